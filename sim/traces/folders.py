"""Folders that traces are written to: the old trace stays until the new one is whole.

The files of a new trace come to lie beside those of the old one, under other names. The moment in which `trace.json` is
written is the one in which the new trace replaces the old one, because it names the files; then the old files go. So an
error, or a kill, leaves the trace that was there; nothing is renamed, which an object store could not do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.storage import Place, place_of
from hullcast.sim.traces.trace import EVENTS, INFO, REFUSED, Where, files_of, read_info

#: A file that is there while a trace is being written: whatever lies beside it is a trace's.
UNFINISHED = ".unfinished"
#: What Spark, or we, write where rows are.
_FILES = ("*.parquet", ".*.crc", "_SUCCESS", ".*.parquet.*")
_SCRATCH = "_temporary"


def check_folder(folder: Where, *, force: bool = False) -> Place:
    """Refuse a folder that a trace must not be written to: one with anything in it, but for a trace with `force`."""
    place = place_of(folder)
    try:
        if place.is_local:
            _try_making(place)
        there = {item.name for item in place.entries()}
        if there and not force:
            raise UsageError(f"{place} is not empty; give another folder, or --force to replace the trace in it")
        if there and UNFINISHED not in there:  # or what is there may be the beginning of a trace
            try:
                read_info(place)
            except UsageError as error:
                raise UsageError(f"--force replaces traces and nothing else: {error}") from error
        strange = next(_strange(place), None)
    except OSError as error:
        raise UsageError(f"cannot write to {place}: {error.strerror or error}") from error
    if strange is not None:
        raise UsageError(f"{place} holds more than a trace ({strange}); --force removes nothing but traces")
    return place


@contextmanager
def writing(folder: Where, *, force: bool = False) -> Iterator[Place]:
    """The folder, to write the files of a trace to, and trace.json last; afterwards it holds one trace, or none.

    If the block fails before trace.json is written, this is the trace that was there before.
    """
    place = check_folder(folder, force=force)
    made = not place.exists()
    try:
        (place / UNFINISHED).write_text("a trace is being written here\n")
    except OSError as error:
        raise UsageError(f"cannot write to {place}: {error.strerror or error}") from error
    try:
        yield place
    finally:
        with suppress(OSError):  # what cannot be removed now is no part of the trace, and goes with the next --force
            _sweep(place)
            if made and place.is_local and not place.entries():
                place.remove()


def _sweep(place: Place) -> None:
    """Leave what belongs to the trace."""
    try:
        wanted = files_of(place)
    except UsageError:
        wanted = {EVENTS: set(), REFUSED: set()}
    for name, files in wanted.items():
        rows = place / name
        for item in rows.entries():
            if item.name not in files:
                (rows / item.name).remove()
        if not files and not (name == EVENTS and (place / INFO).exists()):
            rows.remove()
    for item in place.entries():
        if item.name == UNFINISHED or _is_ours(item.name):
            (place / item.name).remove()


def _try_making(place: Place) -> None:
    """OSError if a folder cannot be made; better now than after the work."""
    path = place.local
    nearest = next(above for above in (path, *path.resolve().parents) if above.exists())
    if not nearest.is_dir():
        raise UsageError(f"{nearest} is a file, not a folder")
    missing = [above for above in (path.resolve(), *path.resolve().parents) if not above.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for above in missing:
        above.rmdir()


def _strange(place: Place) -> Iterator[str]:
    """The names of what is in a folder and is not of a trace."""
    for item in place.entries():
        rows = item.name in (EVENTS, REFUSED) and item.is_folder and not _is_link(place / item.name)
        if rows:
            yield from (f"{item.name}/{name}" for name in _strange_rows(place / item.name))
        elif item.is_folder or not (item.name in (INFO, UNFINISHED) or _is_ours(item.name)):
            yield item.name


def _strange_rows(folder: Place) -> Iterator[str]:
    for item in folder.entries():
        if item.is_folder and item.name == _SCRATCH:  # Spark's own tree: folders of any name, but no other files
            inside = (name for name in (folder / item.name).files() if not _is_rows(name.rpartition("/")[2]))
            yield from (f"{item.name}/{name}" for name in inside)
        elif item.is_folder or _is_link(folder / item.name) or not _is_rows(item.name):
            yield item.name


def _is_rows(name: str) -> bool:
    return any(fnmatchcase(name, form) for form in _FILES)


def _is_ours(name: str) -> bool:
    """Whether it is half of one of our files, or a checksum of one."""
    return name.startswith((f".{INFO}.", f".{UNFINISHED}."))


def _is_link(place: Place) -> bool:
    return place.is_local and place.local.is_symlink()
