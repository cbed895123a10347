"""The command `python -m seejax.predict`; what it does stands in `seejax.training.predict`."""

import sys

from seejax.commands import needing

if __name__ == "__main__":
    with needing("training", "seejax.predict"):
        from seejax.training.predict import main
    sys.exit(main())
