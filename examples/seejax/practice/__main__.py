"""Exercises of the book, checked at each save: `python -m seejax.practice tour`."""

import sys

from seejax.practice.command import main

if __name__ == "__main__":
    sys.exit(main())
