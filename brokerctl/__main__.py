"""`python -m brokerctl`."""

import sys

from brokerctl.cli import main

if __name__ == "__main__":
    sys.exit(main())
