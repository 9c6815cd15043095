"""Folders that traces are written to: made next to what is there, put in its place when whole; nothing else is touched.

A trace is written to `DIR/.unfinished` and moved up at the end, `trace.json` last. So an error, or a kill, leaves the
trace that was there; and everything stays on one file system, even if DIR is a mount point or the current folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from hullcast.network.wire.errors import UsageError
from hullcast.sim.traces.trace import EVENTS, INFO, REFUSED, read_info

UNFINISHED = ".unfinished"
#: What Spark, or we, write where rows are.
_FILES = ("*.parquet", ".*.crc", "_SUCCESS")
_SCRATCH = "_temporary"


def check_folder(folder: Path | str, *, force: bool = False) -> Path:
    """Refuse a folder that a trace must not be written to: one with anything in it, but for a trace with `force`."""
    path = Path(folder)
    try:
        nearest = next(place for place in (path, *path.resolve().parents) if place.exists())
        if not nearest.is_dir():
            raise UsageError(f"{nearest} is a file, not a folder")
        there = {item.name for item in path.iterdir()} if path.exists() else set()
        if there and not force:
            raise UsageError(f"{path} is not empty; give another folder, or --force to replace the trace in it")
        strange = next(_strange(path), None)
        _try_making(path)
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror or error}") from error
    if strange is not None:
        name = strange.relative_to(path)
        raise UsageError(f"{path} holds more than a trace ({name}); --force removes nothing but traces")
    if there and UNFINISHED not in there:  # or what is there may be half of a trace that was being put in place
        try:
            read_info(path)
        except UsageError as error:
            raise UsageError(f"--force replaces traces and nothing else: {error}") from error
    return path


@contextmanager
def writing(folder: Path | str, *, force: bool = False) -> Iterator[Path]:
    """An empty folder to write a trace to; its contents go to `folder` if the block ends without an error."""
    path = check_folder(folder, force=force)
    stage, made = path / UNFINISHED, not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        if stage.exists():
            shutil.rmtree(stage)  # of a run that was killed
        stage.mkdir()
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror or error}") from error
    try:
        yield stage
        _replace(path, stage)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if made:
            with suppress(OSError):  # it is not empty if all went well
                path.rmdir()


def _try_making(path: Path) -> None:
    """OSError if a folder cannot be made; better now than after the work."""
    missing = [place for place in (path.resolve(), *path.resolve().parents) if not place.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for place in missing:
        place.rmdir()


def _replace(path: Path, stage: Path) -> None:
    (path / INFO).unlink(missing_ok=True)  # first: without it the rest is no trace
    for name in (EVENTS, REFUSED):
        if (path / name).exists():
            (path / name).rename(stage / f"old-{name}")
        if (stage / name).exists():
            (stage / name).rename(path / name)
    (stage / INFO).rename(path / INFO)


def _strange(path: Path) -> Iterator[Path]:
    """What is in a folder and is not of a trace."""
    for item in sorted(path.iterdir()) if path.exists() else ():
        if item.name == INFO:
            fine = item.is_file()
        elif item.name in (EVENTS, REFUSED, UNFINISHED):
            fine = item.is_dir() and not item.is_symlink()
        else:
            fine = False
        if not fine:
            yield item
        elif item.name == UNFINISHED:
            yield from _strange_stage(item)
        elif item.is_dir():
            yield from _strange_rows(item, parts=item.name == EVENTS)


def _strange_stage(stage: Path) -> Iterator[Path]:
    for item in sorted(stage.iterdir()):
        name = item.name.removeprefix("old-")
        if name in (EVENTS, REFUSED) and item.is_dir() and not item.is_symlink():
            yield from _strange_rows(item, parts=name == EVENTS)
        elif name != INFO:
            yield item


def _strange_rows(folder: Path, *, parts: bool) -> Iterator[Path]:
    for item in sorted(folder.iterdir()):
        if item.is_symlink() or (item.is_file() and not any(fnmatchcase(item.name, form) for form in _FILES)):
            yield item
        elif item.is_dir() and item.name == _SCRATCH:  # Spark's own tree: folders of any name, but no other files
            inside = (inner for inner in item.rglob("*") if not inner.is_dir())
            yield from (inner for inner in inside if not any(fnmatchcase(inner.name, form) for form in _FILES))
        elif item.is_dir() and parts and item.name.startswith("part="):
            yield from _strange_rows(item, parts=False)
        elif item.is_dir():
            yield item
        elif parts and item.name.endswith(".parquet"):
            yield item  # rows of events are in parts
