import sys

try:
    from seejax.today.command import main
except ModuleNotFoundError as error:
    if error.name != "libcst":
        raise
    print("python -m seejax.today needs LibCST: pip install 'seejax[today]'", file=sys.stderr)
    sys.exit(2)

sys.exit(main())
