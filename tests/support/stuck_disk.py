"""`hullcast` on a disk that blocks: while the file that STUCK names exists, no sync of the log returns."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from hullcast.clients.cli.main import main

_sync = os.fdatasync


def sync_when_unstuck(descriptor: int) -> None:
    """As `fdatasync`, as soon as the disk answers again."""
    while Path(os.environ["STUCK"]).exists():
        time.sleep(0.05)
    _sync(descriptor)


if __name__ == "__main__":
    os.fdatasync = sync_when_unstuck  # type: ignore[assignment]  # the same, later
    sys.exit(main())
