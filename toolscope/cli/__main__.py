"""``python -m toolscope.cli`` is the command ``toolscope``."""

import sys

from toolscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
