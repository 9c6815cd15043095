"""Recovery: what a killed server had acknowledged is there, once, and a request sent again keeps its receipt."""

from __future__ import annotations

import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hullcast.broker.engine.engine import Engine
from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.log import checkpoint
from hullcast.broker.log.checkpoint import _seal
from hullcast.broker.log.publishers import WINDOW, Answered
from hullcast.broker.log.record import NOBODY, Record
from hullcast.broker.log.recovery import open_directory
from hullcast.network.wire.errors import (
    BadDirectory,
    DirectoryInUse,
    InvariantBroken,
    LogDamaged,
    OutOfTurn,
    RetryTooOld,
    Superseded,
)
from hullcast.network.wire.logs import event_of
from tests.support.durable import CREATE, apply, captured, crash, execute, only_segment, opened, publish, rows
from tests.support.log_writer import CREATE as WRITER_CREATE
from tests.support.log_writer import expected

ROOT = Path(__file__).parents[3]
ANNA, BERT = b"anna".ljust(16), b"bert".ljust(16)


def write_and_kill(directory: Path, mode: str, seed: int, *, reports: int, more_s: float) -> int:
    """Let a process write, kill it some time after so many reports; the last record that it reported as synced."""
    words = [sys.executable, "-m", "tests.support.log_writer", str(directory), mode, str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(reports)]
        time.sleep(more_s)  # into the middle of whatever it does then
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines(keepends=True)
        process.wait()
    whole = [int(line) for line in lines if line.endswith(b"\n")]
    assert whole, "the writer died by itself"
    return whole[-1]


def check_after_kill(directory: Path, synced: int) -> None:
    data = opened(directory)
    assert data.log.number >= synced
    assert rows(data) == expected(data.log.number)
    last = data.log.number
    assert data.publishers.judge(b"p" * 16, last) == (last - 1, last - 1)  # record 1, a statement, has no update
    data.engine._stores["t"].check()
    data.close()


def killed_again_and_again(directory: Path, seeds: range) -> None:
    data = opened(directory)
    execute(data, WRITER_CREATE)
    identity = data.identity.hex()
    data.close()
    chance = random.Random(seeds.start)
    for seed in seeds:
        reports = chance.randrange(1, 40)
        check_after_kill(
            directory, write_and_kill(directory, identity, seed, reports=reports, more_s=chance.random() / 20)
        )


def test_what_was_reported_as_synced_survives_kill_9(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path, range(6))


@pytest.mark.slow
@pytest.mark.parametrize("start", [100, 200, 300, 400])
def test_what_was_reported_as_synced_survives_kill_9_many_times(tmp_path: Path, start: int) -> None:
    killed_again_and_again(tmp_path, range(start, start + 12))


def test_checkpoints_and_segments_that_go_survive_kill_9_too(tmp_path: Path) -> None:
    for seed in (1, 2):
        check_after_kill(tmp_path, write_and_kill(tmp_path, "engine", seed, reports=120, more_s=0.02 * seed))


@pytest.mark.slow
def test_checkpoints_and_segments_that_go_survive_kill_9_many_times(tmp_path: Path) -> None:
    chance = random.Random(9)
    for seed in range(10):
        synced = write_and_kill(
            tmp_path, "engine", seed, reports=chance.randrange(30, 200), more_s=chance.random() / 10
        )
        check_after_kill(tmp_path, synced)


def test_a_new_directory_is_empty_and_opens_again(tmp_path: Path) -> None:
    for _ in range(2):
        data = opened(tmp_path / "deep" / "down")
        assert data.engine.seq == data.log.number == 0
        assert data.recovered.checkpoint is None
        data.close()


def test_what_was_not_synced_is_either_there_or_not(tmp_path: Path) -> None:
    data = opened(tmp_path)
    execute(data, CREATE)
    publish(data, {"K": [1], "V": [1]})
    data.log.write_and_sync()
    publish(data, {"K": [2], "V": [2]})
    crash(data)
    data = opened(tmp_path)
    assert rows(data) == {1: (1.0,)}
    assert data.engine.seq == data.log.seq == 1
    data.close()


def test_an_identity_lasts(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.close()
    second = opened(tmp_path)
    assert first.identity == second.identity
    second.close()
    other = opened(tmp_path / "other")
    assert other.identity != first.identity
    other.close()


def test_a_retry_after_a_crash_is_answered_with_its_old_receipt(tmp_path: Path) -> None:
    data = opened(tmp_path)
    execute(data, CREATE, ANNA, 1)
    publish(data, {"K": [1, 2], "V": [1, 2]}, publisher=ANNA, number=2)
    publish(data, {"K": [3], "V": [3]}, publisher=BERT, number=1)
    data.write_checkpoint(captured(data))
    publish(data, {"K": [4], "V": [4]}, publisher=ANNA, number=4)  # 3 was refused
    data.log.write_and_sync()
    crash(data)
    data = opened(tmp_path)
    receipts = data.publishers
    assert receipts.judge(ANNA, 1) == Answered(1, 0)
    assert receipts.judge(ANNA, 2) == Answered(1, 2)
    with pytest.raises(Superseded):
        receipts.judge(ANNA, 3)
    assert receipts.judge(ANNA, 4) == Answered(4, 4)
    assert receipts.judge(ANNA, 5, after=4) is None
    with pytest.raises(OutOfTurn):
        receipts.judge(ANNA, 6, after=5)
    assert receipts.judge(BERT, 1) == Answered(3, 3)
    assert receipts.judge(BERT, 2) is None
    assert receipts.judge(NOBODY, 0) is None
    data.close()


def test_what_was_forgotten_is_known_to_be_forgotten_after_a_crash(tmp_path: Path) -> None:
    data = opened(tmp_path)
    execute(data, CREATE, ANNA, 1)
    for number in range(2, 3 + WINDOW):
        publish(data, {"K": [number], "V": [0]}, publisher=ANNA, number=number)
    data.publishers._key_bytes = 1  # forget whoever is not the only one of its key
    publish(data, {"K": [0], "V": [0]}, publisher=ANNA[:8] + b"another".ljust(8), number=1)
    data.write_checkpoint(captured(data))
    publish(data, {"K": [0], "V": [1]}, publisher=BERT, number=1)
    data.log.write_and_sync()
    crash(data)
    data = opened(tmp_path)
    assert len(data.publishers) == 2
    with pytest.raises(RetryTooOld):
        data.publishers.judge(ANNA, 2 + WINDOW, again=True)
    assert data.publishers.judge(ANNA, 3 + WINDOW) is None
    assert data.publishers.judge(BERT, 1, again=True) == Answered(WINDOW + 3, WINDOW + 3)
    data.close()


def test_a_checkpoint_from_before_receipts_had_keys_is_read_without_its_receipts(tmp_path: Path) -> None:
    data = opened(tmp_path)
    execute(data, CREATE, ANNA, 1)
    publish(data, {"K": [1], "V": [1]}, publisher=ANNA, number=2)
    written = data.write_checkpoint(captured(data))
    data.close()
    with closing(sqlite3.connect(written.path)) as database:
        database.execute("DROP TABLE hullcast_forgotten")
        database.execute("CREATE TABLE hullcast_pasts (publisher BLOB, through INTEGER, holes TEXT)")
        database.execute("UPDATE hullcast_meta SET value = 2 WHERE name = 'format'")
        database.commit()
    _seal(written.path)
    data = opened(tmp_path)
    assert data.recovered.checkpoint == written.number
    assert rows(data) == {1: (1.0,)}
    assert len(data.publishers) == 0
    data.close()


def test_a_record_that_does_something_else_than_before_stops_recovery(tmp_path: Path) -> None:
    data = opened(tmp_path)
    execute(data, CREATE)
    publish(data, {"K": [1, 2], "V": [1, 2]})
    data.close()

    def half(engine: Engine, record: Record) -> None:
        if record.count:
            engine.upsert("T", {"K": [1]})
        else:
            apply(engine, record)

    def refusing(engine: Engine, record: Record) -> None:
        engine.upsert("NOWHERE", {"K": [1]})

    for wrong, words in ((half, "ends with update 2, applying it ended with 1"), (refusing, "no table NOWHERE")):
        with pytest.raises(LogDamaged, match=words):
            open_directory(tmp_path, ServedEngine(), wrong)
    opened(tmp_path).close()  # and nothing was changed


def test_an_engine_ahead_of_its_log_cannot_be_captured(tmp_path: Path) -> None:
    data = opened(tmp_path)
    execute(data, CREATE)
    data.engine.upsert("T", {"K": [1]})
    with pytest.raises(InvariantBroken):
        captured(data)
    data.close()


@pytest.mark.parametrize("kind", ["file", "below a file", "format"])
def test_a_directory_that_cannot_be_one_is_refused_in_a_sentence(tmp_path: Path, kind: str) -> None:
    path: Any = tmp_path / "file"
    if kind == "format":
        path = tmp_path / "data"
        opened(path).close()
        identity = path / "identity"
        identity.write_text(identity.read_text().replace("format 1", "format 2"))
    else:
        path.write_text("")
        path = path if kind == "file" else path / "data"
    reason = {"file": "it is a file; name a folder", "below a file": "cannot make or open it"}.get(kind, "")
    with pytest.raises(BadDirectory, match=f"data directory .*{reason}"):
        opened(path)


def test_a_failed_opening_lets_the_directory_go(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "identity").write_text("nonsense")
    for _ in range(2):
        with pytest.raises(LogDamaged) as damaged:
            opened(tmp_path)
        assert not isinstance(damaged.value, DirectoryInUse)


def modes(path: Path) -> dict[str, int]:
    return {str(each.relative_to(path)): each.stat().st_mode & 0o777 for each in (path, *path.rglob("*"))}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_may_read_what_is_written(tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, int] = {}
    seal = checkpoint._seal
    monkeypatch.setattr(
        checkpoint, "_seal", lambda path, durable: (seen.update(modes(path.parent)), seal(path, durable))[1]
    )
    before = os.umask(umask)
    try:
        data = opened(tmp_path / "data", segment_bytes=1)
        execute(data, CREATE)
        data.log.write_and_sync()
        publish(data, {"K": [1], "V": [1.0]})
        data.write_checkpoint(captured(data))
        data.close()
    finally:
        os.umask(before)
    found = modes(tmp_path / "data")
    assert len(found) == 8, "folder, log, lock, identity, a checkpoint, three segments"
    for name, mode in (found | seen).items():
        assert mode == (0o700 if name in (".", "log") else 0o600), name
    assert any(name.endswith(".tmp") for name in seen), "also while it was being written"


def test_a_directory_that_others_could_read_is_tightened_and_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = opened(tmp_path / "data")
    execute(data, CREATE)
    data.write_checkpoint(captured(data))
    data.close()
    for path in (tmp_path / "data", *(tmp_path / "data").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    opened(tmp_path / "data").close()
    assert set(modes(tmp_path / "data").values()) == {0o700, 0o600}
    assert [event_of(line) for line in caplog.records] == ["access of other users to the data removed"]
    caplog.clear()
    opened(tmp_path / "data").close()
    assert not caplog.records


def test_a_torn_end_is_a_warning_with_file_offset_bytes_and_the_last_whole_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = opened(tmp_path)
    execute(data, CREATE)
    publish(data, {"K": [1, 2], "V": [1.0, 2.0]})
    data.log.write_and_sync()
    data.close()
    segment = only_segment(tmp_path)
    whole = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(b"half a record")
    opened(tmp_path).close()
    (line,) = [line for line in caplog.records if line.levelno >= logging.WARNING]
    said = vars(line)
    assert event_of(line) == "torn end of the log cut off"
    assert (said["file"], said["offset"], said["cut_bytes"]) == (str(segment), whole, len(b"half a record"))
    assert (said["last_record"], said["last_seq"]) == (2, 2)
