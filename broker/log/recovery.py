"""Opening a data directory: the newest good checkpoint, then the log behind it, make an engine as it was.

DIR/lock  identity  checkpoint-<record>.sqlite  log/<record>.log
      |        |            |                      |
    1 lock   2 read      3 load the newest      4 apply what follows      5 cut a torn end, go on writing
                           that is whole
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hullcast.broker.log.checkpoint import (
    CapturedState,
    Written,
    capturing,
    check,
    checkpoints,
    load,
    remove_leftovers,
    write,
)
from hullcast.broker.log.commit_log import SEGMENT_BYTES, CommitLog
from hullcast.broker.log.directory import LOG, DirectoryLock, found_identity
from hullcast.broker.log.history import readable_from, seq_of
from hullcast.broker.log.private import make_private, sync_directory, tighten
from hullcast.broker.log.publishers import Publishers
from hullcast.broker.log.segment import SegmentWriter
from hullcast.broker.log.segment_reading import HELP, TornEnd
from hullcast.broker.log.space import DiskSpace
from hullcast.broker.log.tail import End, LogCut, Tail
from hullcast.network.wire.errors import (
    BadDirectory,
    CheckpointFailed,
    DirectoryInUse,
    HullcastError,
    InvariantBroken,
    LogBroken,
    LogDamaged,
)
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.log.checkpoint import LoadedCheckpoint
    from hullcast.broker.log.record import Record
    from hullcast.broker.scheduling.driver import Work

log = logger(__name__)

CHECKPOINTS_KEPT = 2  # the newest, and one to fall back on
#: How often recovery says how far it is: to its caller, and in the log.
SAY_S, LOG_S = 0.1, 2.0
TEMPORARY_PREFIX = "hullcast-queries-"
TEMPORARY_SEGMENT_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found when a data directory was opened, for the log and for tests."""

    checkpoint: int | None  # its record number
    rows: int  # in it
    damaged_checkpoints: tuple[str, ...]  # passed over and renamed: an older one and the log had all they held
    segments: int
    records: int  # replayed
    updates: int
    cut: TornEnd | None
    leftovers: int  # files of interrupted checkpoints, removed


class _Progress:
    """Says in words what recovery does and how far it is, at most every `SAY_S`; in the log, every `LOG_S`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._stage, self._say_at, self._log_at = "", 0.0, 0.0

    def begin(self, stage: str, **facts: object) -> None:
        """The next stage."""
        self._stage, self._log_at = stage, time.monotonic() + LOG_S
        self._say(stage)
        log.info(stage, extra=facts)

    def reached(self, done: int, total: int, unit: str) -> None:
        """How much of the stage is done; called often."""
        now = time.monotonic()
        if now < self._say_at:
            return
        self._say_at = now + SAY_S
        percent = 100 * done // max(1, total)
        self._say(f"{self._stage}: {done:,} of {total:,} {unit} ({percent} %)")
        if now >= self._log_at:
            self._log_at = now + LOG_S
            log.info(self._stage, extra={"percent": percent, f"{unit}_done": done, unit: total})


class DataDirectory:
    """A data directory that this process owns: the engine, its log and its receipts, all at the same record.

    Invariants:
      D1  the log on disk reaches at least as far as every checkpoint.
      D2  the segments on disk reach back to the oldest checkpoint kept.
    """

    def __init__(
        self,
        path: Path,
        identity: bytes,
        engine: ServedEngine,
        publishers: Publishers,
        log: CommitLog,
        lock: DirectoryLock,
        recovered: Recovered,
        history_bytes: int,
        *,
        durable: bool = True,
    ) -> None:
        """Made by `open_directory` or `TemporaryFolder.begin`. What is not `durable` is never synced."""
        self.path, self.identity = path, identity
        self.engine, self.publishers, self.log = engine, publishers, log
        self.recovered = recovered
        self._lock = lock
        self._history_bytes, self._durable = history_bytes, durable
        self._checkpointed: int | None = None  # the last record in a checkpoint that this process wrote
        #: All behind this sequence number is still read by somebody: the log and a checkpoint before it stay.
        self.needed_behind: int | None = None
        #: The disk, if some of it is reserved for the log.
        self.space: DiskSpace | None = None
        #: Tables can be read as of this sequence number and later ones, and changes behind it.
        self.readable_from = readable_from(path)

    def capturing(self) -> Work:
        """Copy the state, slice by slice; on the thread that owns the engine, between two requests. The result is a
        `CapturedState`."""
        return capturing(self.engine, self.publishers, self._number)

    def _number(self) -> int:
        if self.log.why_broken is not None:
            raise CheckpointFailed(str(self.path), self.log.why_broken)
        if self.engine.seq != self.log.seq:
            raise InvariantBroken(f"the engine is at update {self.engine.seq}, the log at {self.log.seq}")
        return self.log.number

    def write_checkpoint(
        self, captured: CapturedState, reached: Callable[[int, int], None] = lambda done, total: None
    ) -> Written:
        """Put a captured state on disk and remove what it makes unnecessary. Blocks; in any thread, one at a time.
        `reached` hears of rows written and rows there are, now and then; what it raises ends this.

        CheckpointFailed if the disk refuses; the log and the older checkpoints are then as they were.
        """
        self.log.write_and_sync()  # D1
        most_bytes = None if self.space is None else self.space.checkpoint_bytes
        try:
            written = write(captured, self.path, self.identity, self._durable, most_bytes, reached)
            self._checkpointed = written.number
            self.remove_old()
        except (OSError, sqlite3.Error) as error:
            reason = str(error)
            if self.space is not None and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
                reason = f"it needs more than {most_bytes:,} bytes, and {self.space.shown}"
            raise CheckpointFailed(str(self.path), reason) from error
        return written

    def remove_old(self) -> None:
        """Remove what neither a restart needs nor readers of the history: for these nothing is kept at the expense of
        the reserve. Blocks; in any thread, one at a time."""
        found = checkpoints(self.path)
        kept = self._kept([number for number, _ in found]) | self._still_read(found)
        for number, path in found:
            if number not in kept:
                path.unlink()
        if self._durable:
            sync_directory(self.path)
        if len(found) >= CHECKPOINTS_KEPT:
            self.log.remove_segments(min(kept))  # D2
        self.readable_from = readable_from(self.path)

    def _still_read(self, found: list[tuple[int, Path]]) -> set[int]:
        """The newest checkpoint from which on all that is still read can be told; 0 is the beginning of the log."""
        if self.needed_behind is None:
            return set()
        before = [number for number, path in found if seq_of(path) <= self.needed_behind]
        return {before[-1]} if before else {0}

    def _kept(self, found: list[int]) -> set[int]:
        """The checkpoints (record numbers) to keep: the newest two, and of the older ones those whose log is within
        `history_bytes`. An eighth of that lies between them: so they are few, and yet history ends in small steps.
        While the log reaches back to its first record it needs no checkpoint to begin with; that is number 0."""
        kept = set(found[-CHECKPOINTS_KEPT:])
        history_bytes = self._history_bytes if self.space is None or self.space.room_bytes else 0
        sizes = self.log.segment_sizes()
        before = None  # bytes of log behind the checkpoint before
        for number in ([0] if self.readable_from == 0 else []) + found[:-CHECKPOINTS_KEPT]:
            behind = sum(size for following, size in sizes if following > number + 1)
            if behind <= history_bytes and (before is None or before - behind >= history_bytes // 8):
                kept.add(number)
                before = behind
        return kept

    def close(self) -> None:
        """Write what is pending and let others have the directory."""
        try:
            self.log.close(self._checkpointed)
        finally:
            self._lock.release()

    def remove(self) -> None:
        """Close it, and remove it with all that is in it: the end of a temporary folder. Blocks."""
        with suppress(LogBroken):
            self.close()
        shutil.rmtree(self.path, ignore_errors=True)


def open_directory(
    directory: Path | str,
    engine: ServedEngine,
    apply: Callable[[ServedEngine, Record], None],
    *,
    segment_bytes: int = SEGMENT_BYTES,
    history_bytes: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> DataDirectory:
    """Open a data directory, made if need be, and bring an empty engine to the state that its log describes.

    `apply` does to the engine what a record says; only the server knows what a payload means. DirectoryInUse if
    another process has it, LogDamaged if acknowledged data is missing, BadDirectory if the directory
    cannot be used. Beyond what a restart needs, `history_bytes` of the log are kept for readers of the change history.
    `say` hears what is being done and how far it is, in words for people. A process that ends in the middle of this
    leaves the directory as good as it was.
    """
    path = Path(directory)
    try:
        make_private(path)
        make_private(path / LOG)
        lock = DirectoryLock(path)
    except OSError as error:
        reason = (
            "it is a file; name a folder" if path.is_file() else f"cannot make or open it: {error.strerror or error}"
        )
        raise BadDirectory(str(path), reason) from error
    try:
        return _open(path, lock, engine, apply, segment_bytes, history_bytes, _Progress(say))
    except BaseException as error:
        lock.release()
        if isinstance(error, OSError):
            raise BadDirectory(str(path), str(error)) from error
        raise


def _open(
    path: Path,
    lock: DirectoryLock,
    engine: ServedEngine,
    apply: Callable[[ServedEngine, Record], None],
    segment_bytes: int,
    history_bytes: int,
    progress: _Progress,
) -> DataDirectory:
    tighten(path)
    sync_directory(path.absolute().parent)
    sync_directory(path)
    identity = found_identity(path)
    leftovers = remove_leftovers(path)
    publishers = Publishers()
    loaded, damaged = _load_newest(path, identity, engine, progress)
    if loaded is not None:
        publishers.restore(loaded.receipts, loaded.forgotten)
    number, seq = (loaded.number, loaded.seq) if loaded is not None else (0, 0)
    tail = Tail(path / LOG, identity)
    records = 0
    progress.begin("replaying the log", after_record=number)
    try:
        for record in tail.records(number, seq):
            progress.reached(tail.read_bytes, tail.total_bytes, "bytes")
            _apply(path, engine, record, apply)
            publishers.applied(record.publisher, record.publisher_number, record.first, record.last)
            records += 1
        _check_covers(damaged, tail.end)
    except (LogDamaged, LogCut) as error:
        if damaged:  # the log alone is not enough: the damaged checkpoint is the cause
            raise damaged[0] from error
        if isinstance(error, LogCut):
            missing = "Restore the segments or the checkpoint that hold them"
            raise LogDamaged(str(error.file), -1, error.reason, missing) from error
        raise
    commit_log = CommitLog(
        path / LOG,
        identity,
        number=tail.end.number,
        seq=tail.end.seq,
        segment=_resume(path / LOG, tail),
        segment_bytes=segment_bytes,
    )
    recovered = Recovered(
        number if loaded is not None else None,
        loaded.rows if loaded is not None else 0,
        tuple(map(str, damaged)),
        tail.segments,
        records,
        tail.end.seq - seq,
        tail.cut,
        leftovers,
    )
    for file in (Path(error.file) for error in damaged):  # out of the way: D2 is about checkpoints that are whole
        file.rename(file.with_suffix(".damaged"))
    _report(recovered, tail.end)
    return DataDirectory(path, identity, engine, publishers, commit_log, lock, recovered, history_bytes)


def _load_newest(
    path: Path, identity: bytes, engine: ServedEngine, progress: _Progress
) -> tuple[LoadedCheckpoint | None, list[LogDamaged]]:
    """Fill the engine from the newest checkpoint that is whole; and what is wrong with those that are newer."""
    damaged = []
    for number, file in reversed(checkpoints(path)):
        progress.begin("checking a checkpoint", file=file.name, bytes=file.stat().st_size)
        try:
            check(file, number, identity)
        except LogDamaged as error:
            damaged.append(error)
        else:
            progress.begin("loading a checkpoint", file=file.name)
            return load(file, engine, lambda done, total: progress.reached(done, total, "rows")), damaged
    return None, damaged


def _report(recovered: Recovered, end: End) -> None:
    """Log what was found; what an operator should know of is a warning."""
    for problem in recovered.damaged_checkpoints:
        log.warning("damaged checkpoint passed over, the log had it all", extra={"why": problem})
    if recovered.cut is not None:
        cut = recovered.cut
        fields = {"file": str(cut.path), "offset": cut.offset, "cut_bytes": cut.size_bytes, "why": cut.reason}
        log.warning("torn end of the log cut off", extra=fields | {"last_record": end.number, "last_seq": end.seq})
    fields = {"checkpoint": recovered.checkpoint, "records": recovered.records}
    log.info("data recovered", extra=fields | {"last_record": end.number, "last_seq": end.seq})


def _apply(path: Path, engine: ServedEngine, record: Record, apply: Callable[[ServedEngine, Record], None]) -> None:
    """Apply one record, and see that it did what it did when it was written."""
    if engine.seq + 1 != record.first:
        reason = f"record {record.number} begins with update {record.first}, the tables are at {engine.seq}"
        raise LogDamaged(str(path), -1, reason, HELP)
    try:
        apply(engine, record)
    except HullcastError as error:
        reason = f"record {record.number} cannot be applied: {error}"
        raise LogDamaged(str(path), -1, reason, HELP) from error
    if engine.seq != record.last:
        reason = f"record {record.number} ends with update {record.last}, applying it ended with {engine.seq}"
        raise LogDamaged(str(path), -1, reason, HELP)


def _check_covers(damaged: list[LogDamaged], end: End) -> None:
    """A damaged checkpoint may be passed over only if the log holds all that it held (D1 tells how far that was)."""
    for error in damaged:
        number = int(Path(error.file).stem.removeprefix("checkpoint-"))
        if number > end.number:
            raise error


def _resume(log_directory: Path, tail: Tail) -> SegmentWriter | None:
    """The end of the log, to write on; a torn end is cut off now."""
    if tail.cut is not None and tail.cut.offset == 0:  # a segment that was begun and never held a record
        tail.cut.path.unlink()
        sync_directory(log_directory)
    if tail.end.segment is None:
        return None
    return SegmentWriter.resume(*tail.end.segment)


class TemporaryFolder(NamedTuple):
    """An empty folder that only its owner can read, for a data directory that ends with its server.

    A server without a data directory keeps nothing, but one-time queries read files (a checkpoint, and the log behind
    it). So from the first of them on it has such files as well, which nobody waits for.
    """

    path: Path
    identity: bytes
    lock: DirectoryLock

    @classmethod
    def make(cls) -> TemporaryFolder:
        """A new one; those of servers that were killed are removed. Blocks; OSError if there is no place for it.

        It gets its name when it is locked: so a folder of that name whose lock is free has no owner any more.
        """
        made = Path(tempfile.mkdtemp(prefix=f"new-{TEMPORARY_PREFIX}"))
        path = made.with_name(made.name.removeprefix("new-"))
        _remove_ownerless(path.parent)
        lock: DirectoryLock | None = None
        try:
            lock = DirectoryLock(made)
            made.rename(path)
            make_private(path / LOG)
            return cls(path, found_identity(path, durable=False), lock)
        except BaseException:
            if lock is not None:
                lock.release()
            for left in (made, path):
                shutil.rmtree(left, ignore_errors=True)
            raise

    def begin(
        self, engine: ServedEngine, publishers: Publishers, log: CommitLog, pending_limit_bytes: int
    ) -> DataDirectory:
        """A data directory here, whose log is a copy of `log` from the next record on. It can be read as soon as a
        checkpoint has been written: with the log behind it that is everything, since the log began before.

        On the thread that owns the engine, between two requests.
        """
        copy = CommitLog(
            self.path / LOG,
            self.identity,
            number=log.number,
            seq=log.seq,
            segment_bytes=TEMPORARY_SEGMENT_BYTES,
            durable=False,
            pending_limit_bytes=pending_limit_bytes,
        )
        nothing = Recovered(None, 0, (), 0, 0, 0, None, 0)
        directory = DataDirectory(
            self.path, self.identity, engine, publishers, copy, self.lock, nothing, history_bytes=0, durable=False
        )
        log.copy_to(copy)
        return directory


def _remove_ownerless(parent: Path) -> None:
    """Remove temporary folders of ours whose server was killed; its lock ended with it."""
    for path in parent.glob(f"{TEMPORARY_PREFIX}*"):
        with suppress(OSError, DirectoryInUse):
            found = path.lstat()  # a link, or a folder of somebody else, is left alone
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                lock = DirectoryLock(path)
                try:
                    shutil.rmtree(path, ignore_errors=True)
                finally:
                    lock.release()
