"""`python -m elastic` is the same as `elastic`."""

import sys

from elastic.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
