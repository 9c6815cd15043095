"""A data directory as such: its identity, and the lock of the one server that may have it.

The identity is 16 random bytes in a small text file, the same as long as the directory lives. Segments and checkpoints
carry it, so that files of two directories cannot be mixed up. Clients never see it: their epoch is one run of the
server process, which draws a new one at each start (broker/server/service.py).
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from hullcast.broker.log.checkpoint import checkpoints
from hullcast.broker.log.private import open_private, sync_directory
from hullcast.broker.log.segment import segments
from hullcast.network.wire.errors import BadDirectory, DirectoryInUse, LogDamaged

FORMAT = 1
LOG = "log"
_NAME = "identity"
_TITLE = f"hullcast data directory, format {FORMAT}"


def read_identity(directory: Path) -> bytes | None:
    """The identity, or None where there is none; BadDirectory or LogDamaged if the file says something else."""
    path = directory / _NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    lines = content.decode("ascii", "replace").splitlines()
    title = _TITLE.rpartition(" ")[0]
    if len(lines) == 2 and lines[0].rpartition(" ")[0] == title and lines[0] != _TITLE:
        raise BadDirectory(str(directory), f"it has format {lines[0].rpartition(' ')[2]}, this program knows {FORMAT}")
    try:
        identity = bytes.fromhex(lines[1])
        if lines[0] != _TITLE or len(identity) != 16 or len(lines) != 2:
            raise ValueError
    except (ValueError, IndexError):
        raise LogDamaged(
            str(path),
            -1,
            "its content is not an identity",
            f"It must have two lines: `{_TITLE}`, and 32 hexadecimal digits",
        ) from None
    return identity


def found_identity(directory: Path, durable: bool = True) -> bytes:
    """The identity of a directory that this process has locked, given to it now if it is new.

    A directory with data but without identity is not new; giving it another one would orphan the data.
    """
    identity = read_identity(directory)
    if identity is not None:
        return identity
    if segments(directory / LOG) or checkpoints(directory):
        raise LogDamaged(
            str(directory / _NAME),
            -1,
            "it is missing although there is data",
            f"Restore it: `{_TITLE}`, then a line with the identity that `hullcast log verify` shows",
        )
    identity = os.urandom(16)
    temporary = directory / f"{_NAME}.tmp"
    descriptor = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{_TITLE}\n{identity.hex()}\n")
        file.flush()
        if durable:
            os.fsync(file.fileno())
    os.replace(temporary, directory / _NAME)
    if durable:
        sync_directory(directory)
    return identity


class DirectoryLock:
    """Held from construction to `release`. The file stays: removing it would let two servers lock two files.

    flock, not a file that exists: after a crash there is nothing to clean up. It is not inherited by programs started
    from here (Python opens files so), and a second lock in the same process is refused as well.
    """

    def __init__(self, directory: Path) -> None:
        """DirectoryInUse if another process has it; its number is in the file, for the message only."""
        self._descriptor = open_private(directory / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._descriptor, 32).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise DirectoryInUse(str(directory), f"process {owner}" if owner else "another process") from None
        except BaseException:
            os.close(self._descriptor)
            raise
        with suppress(OSError):  # a full disk: then the message says less
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others have it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
