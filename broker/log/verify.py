"""A data directory seen from outside: check that it is whole, list its records, copy it.

Changes nothing in it and takes no lock, so all of this may run beside a server; then the end may be in the middle of a
write, which looks like an unfinished one.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.broker.log.checkpoint import check, checkpoints
from hullcast.broker.log.directory import LOG, read_identity
from hullcast.broker.log.private import make_private, open_private, sync_directory
from hullcast.broker.log.record import RecordKind
from hullcast.broker.log.segment import read_header, segments
from hullcast.broker.log.tail import Tail
from hullcast.network.wire.errors import BadDirectory, LogDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hullcast.broker.log.record import PlacedRecord
    from hullcast.broker.log.segment_reading import SegmentReading, TornEnd


@dataclass(frozen=True, slots=True)
class SeenSegment:
    """One segment; `records` and updates as far as they are good."""

    path: Path
    size_bytes: int
    records: int
    first_record: int
    last_record: int
    first_seq: int
    last_seq: int
    end: int  # where its good records end, in bytes
    problem: str | None


@dataclass(frozen=True, slots=True)
class SeenCheckpoint:
    """One checkpoint."""

    path: Path
    size_bytes: int
    number: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class Verified:
    """A data directory as it was found."""

    identity: bytes
    checkpoints: tuple[SeenCheckpoint, ...]
    segments: tuple[SeenSegment, ...]
    cut: TornEnd | None  # an unfinished write, which the next start will remove: no problem
    problems: tuple[str, ...]

    @property
    def last(self) -> SeenSegment | None:
        """The segment with the last good record. Whether there was one more after it, no file can tell."""
        return next((seen for seen in reversed(self.segments) if seen.records), None)


def verify(directory: Path) -> Verified:
    """Read everything and report; BadDirectory if there is nothing to read."""
    problems: list[str] = []
    try:
        identity = _identity(directory)
    except LogDamaged as error:
        problems.append(str(error))
        identity = _named_by_segments(directory)
    seen_checkpoints = []
    for number, path in checkpoints(directory):
        problem = _problem_of(path, number, identity)
        problems += [problem] if problem else []
        seen_checkpoints.append(SeenCheckpoint(path, path.stat().st_size, number, problem))
    cut, seen_segments = None, []
    with _readable(directory):
        for reading in Tail(directory / LOG, identity).readings():
            seen, cut = _seen(reading), reading.cut
            if cut is None or cut.offset:  # else one that was begun, and has nothing
                seen_segments.append(seen)
    problems += [segment.problem for segment in seen_segments if segment.problem is not None]
    whole = [seen.number for seen in seen_checkpoints if seen.problem is None]
    if seen_segments and seen_segments[0].first_record > (start := max(whole, default=0)) + 1:
        gap = f"records {start + 1} to {seen_segments[0].first_record - 1}"
        problems.append(f"{gap} are in no checkpoint that is whole, nor in the log")
    if whole and not any(segment.problem for segment in seen_segments):
        reached = seen_segments[-1].last_record if seen_segments else 0
        if reached < whole[-1]:
            problems.append(f"the log ends with record {reached}, the newest checkpoint with {whole[-1]}")
    return Verified(identity, tuple(seen_checkpoints), tuple(seen_segments), cut, tuple(problems))


def show(directory: Path, from_seq: int = 0) -> Iterator[tuple[Path, PlacedRecord]]:
    """The records from an update on, each with its file; LogDamaged where they cannot be read."""
    tail = Tail(directory / LOG, _identity(directory))
    with _readable(directory):
        for path, placed in tail.placed(tail.before(from_seq)):
            if placed.record.last >= from_seq:
                yield path, placed


@contextmanager
def _readable(directory: Path) -> Iterator[None]:
    """Errors of the disk as our own; to files that a checkpoint removes meanwhile, the answer is to try again."""
    try:
        yield
    except OSError as error:
        name = Path(error.filename).name if error.filename else LOG
        raise BadDirectory(str(directory), f"{name} cannot be read: {error.strerror or error}") from error


def _seen(reading: SegmentReading) -> SeenSegment:
    """A segment, read although it may be damaged."""
    problem, records = None, 0
    try:
        for placed in reading:
            records += placed.record.kind is not RecordKind.MARK
    except LogDamaged as error:
        problem = str(error)
    reached, header, number = reading.reached, reading.header, reading.number
    last_record, last_seq, end = (reached.number, reached.seq, reached.offset) if reached else (number - 1, 0, 0)
    first_seq = header.seq + 1 if header else 0
    return SeenSegment(
        reading.path, reading.size_bytes, records, number, last_record, first_seq, last_seq, end, problem
    )


def _problem_of(path: Path, number: int, identity: bytes) -> str | None:
    try:
        check(path, number, identity)
    except LogDamaged as error:
        return str(error)
    return None


def _identity(directory: Path) -> bytes:
    """The directory's identity; LogDamaged, with the one that the data itself names, if its file is gone."""
    if not directory.is_dir():
        raise BadDirectory(str(directory), "there is no such directory")
    identity = read_identity(directory)
    if identity is not None:
        return identity
    named = _named_by_segments(directory)
    if named:
        path = str(directory / "identity")
        raise LogDamaged(path, -1, "it is missing", f"By its segments it was {named.hex()}")
    raise BadDirectory(str(directory), "this is not a data directory: it has no file `identity`")


def _named_by_segments(directory: Path) -> bytes:
    """The identity that the segments name; empty if none does."""
    with _readable(directory):
        headers = (read_header(path) for _, path in segments(directory / LOG))
        return next((header.identity for header in headers if header is not None), b"")


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
