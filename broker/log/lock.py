"""One server per data directory: a lock that the system takes back when its process dies."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from hullcast.broker.log.private import open_private
from hullcast.network.wire.errors import DirectoryInUse

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "lock"


class DirectoryLock:
    """Held from construction to `release`. The file stays: removing it would let two servers lock two files.

    flock, not a file that exists: after a crash nobody has to clean up. It is not inherited by programs started from
    here (Python opens files so), and a second lock in the same process is refused as well.
    """

    def __init__(self, directory: Path) -> None:
        """DirectoryInUse if somebody has it; its process number is in the file, for the message only."""
        self._descriptor = open_private(directory / _NAME, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._descriptor, 32).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise DirectoryInUse(str(directory), f"process {owner}" if owner else "another process") from None
        except BaseException:
            os.close(self._descriptor)
            raise
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others have it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
