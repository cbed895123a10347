"""The command `python -m seejax.today`."""

import sys

from seejax.commands import needing

with needing("today", "seejax.today"):
    from seejax.today.command import main

sys.exit(main())
