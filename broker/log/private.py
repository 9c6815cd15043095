"""Files and folders of a data directory: only their owner may read them, whatever the umask, and their names last."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
from hullcast.network.wire.logs import logger

log = logger(__name__)

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def open_private(path: Path, flags: int) -> int:
    """A descriptor of a file, made with mode 0600 if `flags` say so and it is not there."""
    descriptor = os.open(path, flags, FILE_MODE)
    if flags & os.O_CREAT and stat.S_IMODE(os.fstat(descriptor).st_mode) != FILE_MODE:  # an odd umask, or an older file
        try:
            os.fchmod(descriptor, FILE_MODE)
        except OSError:
            os.close(descriptor)
            raise
    return descriptor


def make_private(folder: Path) -> None:
    """Make a folder with mode 0700, and those it lies in, as they are usually made; one that exists stays as it is."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(FOLDER_MODE)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    folder.chmod(FOLDER_MODE)


def tighten(folder: Path) -> None:
    """Remove access that earlier versions, or a copy, gave to other users; log it if there was any."""
    tightened, failed = 0, ""
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        wanted = FOLDER_MODE if path.is_dir() else FILE_MODE
        if path.is_symlink() or not mode & ~wanted:
            continue
        try:
            path.chmod(mode & wanted)
            tightened += 1
        except OSError as error:
            failed = f"{path}: {error.strerror}"
    if tightened:
        log.warning("access of other users to the data removed", extra={"directory": str(folder), "files": tightened})
    if failed:
        log.warning("other users can read the data", extra={"directory": str(folder), "why": failed})


def sync_directory(directory: Path) -> None:
    """Return when the names in a directory are on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
