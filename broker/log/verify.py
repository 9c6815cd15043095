"""Looking at a data directory without owning it: what is there, whether it is whole, what the records are.

Changes nothing and takes no lock, so it may run beside a server; then the end may be in the middle of a write, which
looks like an unfinished one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.broker.log.checkpoint import checkpoints
from hullcast.broker.log.identity import LOG, read_identity
from hullcast.broker.log.record import Kind
from hullcast.broker.log.replay import BEGUN, Cut, check_header, judge
from hullcast.broker.log.restore import check
from hullcast.broker.log.scan import Placed, Scan
from hullcast.broker.log.segment import HEADER_BYTES, SegmentHeader, decode_header, segments
from hullcast.network.wire.errors import BadDirectory, LogDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
    cut: Cut | None  # an unfinished write, which the next start will remove: no problem
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
    reader = _Reader(directory / LOG, identity)
    seen_segments = tuple(reader.read())
    problems += [segment.problem for segment in seen_segments if segment.problem is not None]
    whole = [seen.number for seen in seen_checkpoints if seen.problem is None]
    if seen_segments and seen_segments[0].first_record > (start := max(whole, default=0)) + 1:
        gap = f"records {start + 1} to {seen_segments[0].first_record - 1}"
        problems.append(f"{gap} are in no checkpoint that is whole, nor in the log")
    if whole and not any(segment.problem for segment in seen_segments):
        reached = seen_segments[-1].last_record if seen_segments else 0
        if reached < whole[-1]:
            problems.append(f"the log ends with record {reached}, the newest checkpoint with {whole[-1]}")
    return Verified(identity, tuple(seen_checkpoints), seen_segments, reader.cut, tuple(problems))


def show(directory: Path, from_seq: int = 0) -> Iterator[tuple[Path, Placed]]:
    """The records from an update on, each with its file; LogDamaged where they cannot be read."""
    identity = _identity(directory)
    found = segments(directory / LOG)
    headers = [decode_header(_read(path, HEADER_BYTES)) for _, path in found]
    for at, (number, path) in enumerate(found):
        following = headers[at + 1] if at + 1 < len(found) else None
        if following is not None and following.seq < from_seq:
            continue
        content = _read(path)
        last = at == len(found) - 1
        if headers[at] is None and last and len(content) <= HEADER_BYTES:
            return
        header = check_header(path, number, headers[at], identity, None)
        scan = _scan(content, header)
        for placed in scan:
            if placed.record.kind is not Kind.MARK and placed.record.last >= from_seq:
                yield path, placed
        if scan.flaw is not None:
            judge(scan.flaw, path, len(content), last)


class _Reader:
    """Reads all segments although some may be damaged."""

    def __init__(self, log_directory: Path, identity: bytes) -> None:
        self._found, self._identity = segments(log_directory), identity
        self.cut: Cut | None = None

    def read(self) -> Iterator[SeenSegment]:
        previous: Scan | None = None
        for number, path in self._found:
            content, last = _read(path), path == self._found[-1][1]
            header = decode_header(content)
            if header is None and last and len(content) <= HEADER_BYTES:
                self.cut = Cut(path, 0, len(content), BEGUN)
                return
            problem, records, scan = None, 0, None
            try:
                header = check_header(path, number, header, self._identity, previous)
                scan = _scan(content, header)
                records = sum(placed.record.kind is not Kind.MARK for placed in scan)
                if scan.flaw is not None:
                    self.cut = judge(scan.flaw, path, len(content), last)
            except LogDamaged as error:
                problem = str(error)
            previous = scan if problem is None else None
            last_record, last_seq = (scan.number, scan.seq) if scan else (number - 1, 0)
            first_seq = header.seq + 1 if header else 0
            end = scan.end if scan else 0
            yield SeenSegment(path, len(content), records, number, last_record, first_seq, last_seq, end, problem)


def _scan(content: bytes, header: SegmentHeader) -> Scan:
    return Scan(content, HEADER_BYTES, seed=header.seed, number=header.number - 1, seq=header.seq)


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
    headers = (decode_header(_read(path, HEADER_BYTES)) for _, path in segments(directory / LOG))
    return next((header.identity for header in headers if header is not None), b"")


def _read(path: Path, size_bytes: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size_bytes)
    except OSError as error:
        raise BadDirectory(str(path.parent.parent), f"{path.name} cannot be read: {error.strerror}") from error
