"""The commit log as its owner uses it: groups, segments, threads, and a disk that refuses."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from hullcast.broker.log.commit_log import CommitLog
from hullcast.broker.log.record import HEADER_BYTES, Record, RecordKind
from hullcast.broker.log.segment import segments
from hullcast.broker.log.tail import Tail
from hullcast.network.wire.errors import BadSetting, DirectoryInUse, DiskFull, InvariantBroken, LogBroken
from tests.support.disks import fill, small_disk
from tests.support.durable import CREATE, execute, opened, publish, rows

IDENTITY = bytes(range(16))
ROOT = Path(__file__).parents[3]


def batch(log: CommitLog, payload: bytes = b"rows", count: int = 1) -> int:
    return log.append(
        RecordKind.BATCH, payload, first=log.seq + 1, count=count, publisher=b"p" * 16, publisher_number=7
    )


def read(path: Path) -> list[Record]:
    return list(Tail(path, IDENTITY).records())


@pytest.fixture(params=["file", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> CommitLog:
    return CommitLog(tmp_path, IDENTITY) if request.param == "file" else CommitLog(None)


def test_records_and_updates_are_numbered_without_a_gap(log: CommitLog) -> None:
    assert batch(log, count=3) == 1
    assert log.append(RecordKind.STATEMENT, b"CREATE", first=4, count=0) == 2
    assert batch(log, count=2) == 3
    assert (log.number, log.seq) == (3, 5)
    assert log.write_and_sync() == 3
    assert (log.synced, log.synced_seq, log.pending_bytes) == (3, 5, 0)
    assert log.statistics().synced == 3
    log.close()


@pytest.mark.parametrize("first", [1, 3])
def test_an_update_out_of_order_is_a_bug(log: CommitLog, first: int) -> None:
    batch(log)
    with pytest.raises(InvariantBroken):
        log.append(RecordKind.BATCH, b"", first=first, count=1)
    log.close()


def test_nothing_is_on_disk_before_the_sync_and_all_is_after_it(tmp_path: Path) -> None:
    log = CommitLog(tmp_path, IDENTITY)
    batch(log, b"one")
    batch(log, b"two")
    assert read(tmp_path) == []
    assert (log.synced, log.pending_bytes) == (0, 6)
    log.write_and_sync()
    assert [record.payload for record in read(tmp_path)] == [b"one", b"two"]
    assert read(tmp_path)[1] == Record(RecordKind.BATCH, 2, 2, 1, b"p" * 16, 7, b"two")
    assert log.statistics().groups == 1
    assert log.write_and_sync() == 2  # nothing new: no write
    assert log.statistics().groups == 1
    log.close()


def test_closing_writes_what_is_pending_and_then_refuses(tmp_path: Path) -> None:
    log = CommitLog(tmp_path, IDENTITY)
    batch(log)
    log.close()
    assert len(read(tmp_path)) == 1
    with pytest.raises(LogBroken, match="closed"):
        batch(log)
    log.close()


def test_a_full_segment_is_followed_by_another(tmp_path: Path) -> None:
    log = CommitLog(tmp_path, IDENTITY, segment_bytes=500)
    for number in range(20):
        batch(log, bytes(100), count=number % 3)
        log.write_and_sync()
    found = segments(tmp_path)
    assert len(found) > 5
    assert all(path.stat().st_size < 500 + 2 * 72 + 100 for _, path in found)
    assert [record.number for record in read(tmp_path)] == list(range(1, 21))
    after = list(Tail(tmp_path, IDENTITY).records(7, 6))
    assert [record.number for record in after] == list(range(8, 21))
    log.close()


def test_old_segments_go_and_the_rest_is_still_read(tmp_path: Path) -> None:
    log = CommitLog(tmp_path, IDENTITY, segment_bytes=500)
    for _ in range(20):
        batch(log, bytes(100))
        log.write_and_sync()
    assert log.remove_segments(0) == 0
    assert log.remove_segments(10) > 0
    assert segments(tmp_path)[0][0] <= 11
    assert [record.number for record in Tail(tmp_path, IDENTITY).records(10, 10)] == list(range(11, 21))
    log.remove_segments(1000)
    assert len(segments(tmp_path)) == 1  # the one that is written to stays
    log.close()


def test_appending_goes_on_while_another_thread_syncs(tmp_path: Path) -> None:
    log = CommitLog(tmp_path, IDENTITY, segment_bytes=20_000)
    done = threading.Event()
    seen: list[int] = []

    def sync() -> None:
        while not done.is_set():
            seen.append(log.write_and_sync())

    thread = threading.Thread(target=sync)
    thread.start()
    for number in range(5000):
        batch(log, str(number).encode())
    done.set()
    thread.join()
    log.close()
    assert seen == sorted(seen)
    assert [record.payload for record in read(tmp_path)] == [str(number).encode() for number in range(5000)]


def on_a_pipe(log: CommitLog) -> None:
    """Let the log's open file be a pipe, which cannot be synced."""
    segment = log._segment
    assert segment is not None
    reading, writing = os.pipe()
    os.dup2(writing, segment._descriptor)
    os.close(writing)
    os.set_inheritable(reading, False)
    _READING.append(reading)


_READING: list[int] = []


def test_after_a_failed_sync_nothing_is_acknowledged_ever_again(tmp_path: Path) -> None:
    words = "Invalid argument"
    log = CommitLog(tmp_path, IDENTITY)
    batch(log, b"safe")
    assert log.write_and_sync() == 1
    assert log._segment is not None
    kept = os.dup(log._segment._descriptor)
    on_a_pipe(log)
    batch(log, b"lost")
    with pytest.raises(LogBroken, match=words) as broken:
        log.write_and_sync()
    assert "restart the server" in str(broken.value)
    os.dup2(kept, log._segment._descriptor)  # the disk is well again, and still:
    os.close(kept)
    for call in (log.write_and_sync, lambda: batch(log)):
        with pytest.raises(LogBroken, match=words):
            call()
    assert log.synced == 1
    assert log.statistics().broken
    log.close()
    assert [record.payload for record in read(tmp_path)] == [b"safe"]
    while _READING:
        os.close(_READING.pop())


@pytest.mark.parametrize("segment_bytes", [1 << 20, 2000], ids=["one segment", "many"])
def test_a_full_disk_holds_records_back_until_there_is_room(tmp_path: Path, segment_bytes: int) -> None:
    """A real one. The write stops in the middle of a record, or of the header of a segment, and is done again."""
    with small_disk(tmp_path / "disk", 512 << 10) as disk:
        log = CommitLog(disk / "log", IDENTITY, segment_bytes=segment_bytes)
        (disk / "log").mkdir()
        filler = fill(disk)
        payloads: list[bytes] = []
        for size in (1, 5000, 3, 70_000, 40):
            payloads.append(bytes([len(payloads)]) * size)
            batch(log, payloads[-1])
        for _ in range(3):
            with pytest.raises(DiskFull, match="free disk space") as full:
                log.write_and_sync()
            assert (log.synced, log.statistics().pending_records) == (0, len(payloads))
            assert (full.value.directory, full.value.least_bytes) == (str(disk / "log"), sum(map(len, payloads)))
            assert log.stalled is full.value
            assert read(disk / "log") == []
        payloads.append(b"later")  # behind them, and nothing overtakes
        batch(log, b"later")
        filler.unlink()
        assert log.write_and_sync() == len(payloads)
        assert log.stalled is None
        for number in range(20):  # now and then there is room
            payloads.append(bytes([number]) * 6000)
            batch(log, payloads[-1])
            filler = fill(disk, leaving=number % 4 * 4096)
            with suppress(DiskFull):
                log.write_and_sync()
            assert [record.payload for record in read(disk / "log")] == payloads[: log.synced]
            filler.unlink()
            log.write_and_sync()
            assert log.synced == len(payloads)
        log.close()


def test_a_sync_that_finds_no_room_writes_all_again_that_was_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have dropped the pages: those of the mark before the group, too."""
    log = CommitLog(tmp_path, IDENTITY)
    batch(log, b"safe")
    log.write_and_sync()
    (_, path) = segments(tmp_path)[0]
    with_mark = path.read_bytes()
    synced = with_mark[:-HEADER_BYTES]
    batch(log, b"late")

    def full(descriptor: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", full)
        for _ in range(2):
            with pytest.raises(DiskFull):
                log.write_and_sync()
            assert path.read_bytes() == synced
    assert log.write_and_sync() == 2
    log.close()
    assert path.read_bytes().startswith(with_mark)
    assert [record.payload for record in read(tmp_path)] == [b"safe", b"late"]


def test_a_file_that_may_not_grow_breaks_the_log_and_a_restart_mends_it(tmp_path: Path) -> None:
    """RLIMIT_FSIZE: the write stops in the middle of a record, as on a full disk."""
    script = f"""
import resource, sys
from pathlib import Path
from tests.support.durable import CREATE, execute, opened, publish
from hullcast.network.wire.errors import LogBroken
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
data = opened(Path({str(tmp_path)!r}))
execute(data, CREATE)
synced = data.log.write_and_sync()
try:
    for number in range(1000):
        publish(data, {{"K": [number], "V": [1.0]}})
        synced = data.log.write_and_sync()
except LogBroken as error:
    print(synced, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    synced, _, words = done.stdout.partition(" ")
    assert "File too large" in words
    data = opened(tmp_path)
    assert data.log.number >= int(synced) > 10
    assert len(rows(data)) == data.log.number - 1
    publish(data, {"K": [5000], "V": [1.0]})
    data.close()


@pytest.mark.parametrize("size", [0, -1])
def test_a_segment_has_a_size(tmp_path: Path, size: int) -> None:
    with pytest.raises(BadSetting):
        CommitLog(tmp_path, IDENTITY, segment_bytes=size)


def test_a_second_server_on_a_directory_is_refused_by_name(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(DirectoryInUse, match=f"in use by process {os.getpid()}"):
        opened(tmp_path)
    execute(first, CREATE)
    first.close()
    second = opened(tmp_path)
    assert list(second.engine.tables) == ["T"]
    second.close()


def test_a_second_server_in_another_process_is_refused_too(tmp_path: Path) -> None:
    first = opened(tmp_path)
    script = (
        "from pathlib import Path; import sys; from hullcast.broker.log.directory import DirectoryLock\n"
        "try:\n    DirectoryLock(Path(sys.argv[1]))\nexcept Exception as error:\n    print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("DirectoryInUse")
    assert f"process {os.getpid()}" in done.stdout
    first.close()
