"""The command `python -m seejax.training`."""

import sys

from seejax.commands import needing

with needing("training", "seejax.training"):
    from seejax.training.command import main

sys.exit(main())
