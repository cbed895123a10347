import sys

from seejax.training.command import main

sys.exit(main())
