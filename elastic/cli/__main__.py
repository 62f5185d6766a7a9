"""`python -m elastic.cli` is the same as `elastic`."""

import sys

from elastic.__main__ import main

sys.exit(main())
