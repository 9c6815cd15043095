"""A copy of a data directory, also of one that a server is writing to."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from hullcast.broker.log.checkpoint import checkpoints
from hullcast.broker.log.identity import LOG, read_identity
from hullcast.broker.log.private import make_private, open_private
from hullcast.broker.log.segment import segments, sync_directory
from hullcast.network.wire.errors import BadDirectory

if TYPE_CHECKING:
    from pathlib import Path

#: A checkpoint of the server removes what it made unnecessary; if that was in the midst of being copied, begin again.
ATTEMPTS = 5


def copy(directory: Path, target: Path) -> None:
    """Copy all that a server needs to start again: identity, checkpoints, then the log.

    In this order the log reaches behind the checkpoints, whatever is written meanwhile; a record that is being written
    may be torn in the copy. `target` must be empty or not there.
    """
    if read_identity(directory) is None:
        raise BadDirectory(str(directory), "this is not a data directory: it has no file `identity`")
    if target.resolve().is_relative_to(directory.resolve()):
        raise BadDirectory(str(target), "it lies inside the data directory; copy to a folder elsewhere")
    try:
        make_private(target)
        if any(target.iterdir()):
            raise BadDirectory(str(target), "it is not empty; copy to a new folder")
        make_private(target / LOG)
        _copy_file(directory / "identity", target / "identity")
        for attempt in range(1, ATTEMPTS + 1):
            try:
                _copy_once(directory, target)
                break
            except FileNotFoundError:
                if attempt == ATTEMPTS:
                    raise
        sync_directory(target / LOG)
        sync_directory(target)
    except OSError as error:
        raise BadDirectory(str(target), f"cannot copy: {error}") from error


def _copy_once(directory: Path, target: Path) -> None:
    for _, path in (*checkpoints(target), *segments(target / LOG)):
        path.unlink()
    for _, path in checkpoints(directory):
        _copy_file(path, target / path.name)
    found = segments(directory / LOG)
    for _, path in found:
        _copy_file(path, target / LOG / path.name)
    later = segments(directory / LOG)
    if later and found and later[0] != found[0]:  # a checkpoint between the two steps
        raise FileNotFoundError(found[0][1])


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as read, os.fdopen(open_private(target, os.O_WRONLY | os.O_CREAT), "wb") as write:
        shutil.copyfileobj(read, write, 1 << 20)
        write.flush()
        os.fsync(write.fileno())
