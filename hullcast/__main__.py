"""`python -m hullcast`: the command line, where the command `hullcast` is not on the path."""

from __future__ import annotations

import sys

from hullcast.clients.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
