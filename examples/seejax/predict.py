"""The command `python -m seejax.predict`; what it does stands in `seejax.training.predict`."""

import sys

from seejax.training.predict import main

if __name__ == "__main__":
    sys.exit(main())
