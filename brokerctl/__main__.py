"""`python -m brokerctl`."""

import gc
import sys

from brokerctl.cli import main

if __name__ == "__main__":
    code = main()
    gc.freeze()  # the interpreter would look for garbage once more: 5 ms, of a stop's hook 40
    sys.exit(code)
