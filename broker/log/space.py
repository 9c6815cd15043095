"""Room on the disk of a data directory: how much is free, and how much is for the commit log alone.

    |<---------------------------- free ----------------------------->|
    |  warehouse, answers, history  |<------------ reserve ------------>|
    |                               |  commit log   |<---- the last --->|

Whatever can be refused, or made again, leaves the reserve to the log. The log leaves the last part of it to changes
that were applied already and wait for the disk: new ones are refused before that is touched.
"""

from __future__ import annotations

import errno
import os
import time
from math import inf
from typing import TYPE_CHECKING

from hullcast.network.wire.errors import DiskFull

if TYPE_CHECKING:
    from pathlib import Path

#: What the system says where there is no room: on the disk, or for this user.
NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
#: The reserve is at most this share of the disk, and the log leaves this share of the reserve.
RESERVE_SHARE, LAST_SHARE = 1 / 10, 1 / 8
#: Seconds for which an answer of the system is used again, unless it is that there is no room.
_VALID_S = 0.02


class DiskSpace:
    """The disk that a directory is on. Asked often, it asks the system now and then, which does not block."""

    def __init__(self, directory: Path, reserve_bytes: int = 0) -> None:
        """On a small disk the reserve is less (`RESERVE_SHARE`)."""
        self.directory = directory
        self._wanted_bytes = reserve_bytes
        self._asked_at = -inf
        self._free, self._size = 1 << 62, 0

    @property
    def free_bytes(self) -> int:
        """What a process without special rights can still write."""
        self._ask()
        return self._free

    @property
    def reserve_bytes(self) -> int:
        """What only the log may use."""
        self._ask()
        return min(self._wanted_bytes, int(self._size * RESERVE_SHARE))

    @property
    def room_bytes(self) -> int:
        """What files other than the log may still take."""
        return max(0, self.free_bytes - self.reserve_bytes)

    @property
    def checkpoint_bytes(self) -> int:
        """What a checkpoint may take: half of the reserve, too, since the log that it replaces goes then."""
        return max(0, self.free_bytes - self.reserve_bytes // 2)

    @property
    def shown(self) -> str:
        """What is free and what is reserved, in words."""
        return f"{self.free_bytes:,} bytes are free on the disk, {self.reserve_bytes:,} are reserved for the commit log"

    def log_full(self, waiting_bytes: int) -> DiskFull | None:
        """Why no change may be accepted now, if so: so many bytes of changes have yet to be written."""
        least = int(self.reserve_bytes * LAST_SHARE) + waiting_bytes
        return DiskFull(str(self.directory), self.free_bytes, least) if self.free_bytes < least else None

    def _ask(self) -> None:
        now = time.monotonic()
        if now - self._asked_at >= _VALID_S or self._free <= self._wanted_bytes:
            self._asked_at = now
            try:
                found = os.statvfs(self.directory)
            except OSError:  # whoever writes there will say why
                return
            self._free, self._size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
