"""`python -m elastic` is the same as `elastic`."""

import sys

from elastic.cli.main import main

sys.exit(main())
