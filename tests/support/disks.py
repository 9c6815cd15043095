"""Small disks for tests: real ones, in memory, that can be filled."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def small_disk(place: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of its own; the test is skipped where none can be mounted."""
    place.mkdir()
    mounted = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "hullcast-test", place),
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(("umount", "-l", place), check=True)


def fill(disk: Path, leaving: int = 0) -> Path:
    """A file that takes all that is free on a disk, but so many bytes."""
    filler = disk / "filler"
    found = os.statvfs(disk)
    with filler.open("wb") as file:
        file.write(bytes(max(0, found.f_bavail * found.f_frsize - leaving)))
    return filler
