"""Exercises of the book, checked at each save: `python -m seejax.practice tour`."""

import sys

if __name__ == "__main__":
    try:
        from seejax.practice.command import main

        sys.exit(main())
    except KeyboardInterrupt:  # while it is imported
        sys.exit(130)
