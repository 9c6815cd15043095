"""The one reader of the log: it follows a log that is written, and says what is torn, damaged, cut or too new."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hullcast.broker.log.commit_log import CommitLog
from hullcast.broker.log.payload import decode_batch
from hullcast.broker.log.record import HEADER_BYTES, Record, RecordKind
from hullcast.broker.log.segment import decode_header, segments
from hullcast.broker.log.tail import LogCut, Tail
from hullcast.broker.log.verify import show, verify
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import BadDirectory, LogDamaged
from hullcast.network.wire.values import keys_to_column, rows_to_columns

IDENTITY = b"i" * 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A data directory without a log yet; small segments make many of them."""
    (tmp_path / "log").mkdir()
    (tmp_path / "identity").write_text(f"hullcast data directory, format 1\n{IDENTITY.hex()}\n")
    return tmp_path


def opened(path: Path, segment_bytes: int = 600) -> CommitLog:
    return CommitLog(path / "log", IDENTITY, segment_bytes=segment_bytes)


def tail_of(path: Path) -> Tail:
    return Tail(path / "log", IDENTITY)


def publish(log: CommitLog, count: int = 1) -> None:
    for _ in range(count):
        body = bodies.Publish("T", *rows_to_columns([{"K": log.number}]), b"p" * 16, log.number + 1)
        log.append(RecordKind.BATCH, bodies.encode(body), first=log.seq + 1, count=1)
    log.write_and_sync()


def numbers(records: Iterator[Record]) -> list[int]:
    return [record.number for record in records]


READERS: list[Callable[[Path, int], Any]] = [
    lambda path, last: list(tail_of(path).records(0, committed=last)),
    lambda path, last: list(tail_of(path).runs("t", 0, last)),
]


def test_a_tail_asked_again_goes_on_where_it_was(path: Path) -> None:
    log, tail = opened(path), tail_of(path)
    found: list[int] = []
    for round_ in range(12):
        publish(log, 1 + round_ % 3)
        found += numbers(tail.records(len(found), committed=log.synced))
        assert numbers(tail.records(len(found), committed=log.synced)) == []
    assert len(segments(path / "log")) > 3
    assert found == list(range(1, log.number + 1))
    log.close()


def test_what_was_read_is_not_read_again(path: Path) -> None:
    log, tail = opened(path, 1 << 20), tail_of(path)
    publish(log, 5)
    assert numbers(tail.records(0, committed=5)) == [1, 2, 3, 4, 5]
    publish(log)
    ((_, file),) = segments(path / "log")
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    assert numbers(tail.records(5, committed=6)) == [6]
    with pytest.raises(LogDamaged):
        list(tail_of(path).records(5, committed=6))
    log.close()


def test_nothing_behind_what_is_committed_is_given(path: Path) -> None:
    log = opened(path)
    publish(log, 7)
    assert numbers(tail_of(path).records(2, committed=5)) == [3, 4, 5]
    noted = [run.noted.copy() for run in tail_of(path).runs("t", 2, 5)]
    assert np.concatenate(noted, axis=1)[2].tolist() == [3, 4, 5]
    log.close()


@pytest.mark.parametrize("read", READERS)
def test_a_log_that_was_cut_says_so(path: Path, read: Callable[[Path, int], Any]) -> None:
    log = opened(path)
    for _ in range(12):
        publish(log)
    log.remove_segments(6)
    with pytest.raises(LogCut):
        read(path, 12)
    kept = segments(path / "log")[0][0] - 1
    assert numbers(tail_of(path).records(kept, committed=12)) == list(range(kept + 1, 13))
    log.close()


def test_a_segment_removed_while_it_is_read_is_a_cut(path: Path) -> None:
    log = opened(path)
    for _ in range(12):
        publish(log)
    records, runs = tail_of(path).records(0, committed=12), tail_of(path).runs("t", 0, 12)
    next(records)
    next(runs)
    assert log.remove_segments(9)
    with pytest.raises(LogCut):
        list(records)
    with pytest.raises(LogCut):
        list(runs)
    log.close()


@pytest.mark.parametrize("lost", [1, HEADER_BYTES, HEADER_BYTES + 30])
@pytest.mark.parametrize("read", READERS)
def test_what_is_torn_is_damage_if_it_was_committed(path: Path, read: Callable[[Path, int], Any], lost: int) -> None:
    log = opened(path, 1 << 20)
    publish(log, 3)
    log.close()
    ((_, file),) = segments(path / "log")
    os.truncate(file, file.stat().st_size - HEADER_BYTES - lost)  # without the mark
    with pytest.raises(LogDamaged):
        read(path, 3)
    tail = tail_of(path)
    assert numbers(tail.records()) == [1, 2]
    assert tail.cut is not None
    assert (tail.end.number, tail.end.seq) == (2, 2)
    read(path, 2)


def test_a_log_of_another_version_is_refused_in_a_sentence(path: Path) -> None:
    log = opened(path)
    publish(log)
    log.close()
    ((_, file),) = segments(path / "log")
    content = file.read_bytes()
    header = decode_header(content)
    assert header is not None
    object.__setattr__(header, "version", 2)
    file.write_bytes(header.encode() + content[len(header.encode()) :])
    others: list[Callable[[Path, int], Any]] = [lambda path, _: list(show(path)), lambda path, _: verify(path)]
    for read in READERS + others:
        with pytest.raises(BadDirectory, match=r"00001\.log has format 2, this program reads format 1"):
            read(path, 1)


@pytest.mark.parametrize("read", READERS)
def test_a_segment_of_another_directory_is_refused(path: Path, read: Callable[[Path, int], Any]) -> None:
    other = CommitLog(path / "log", b"o" * 16)
    publish(other)
    other.close()
    with pytest.raises(LogDamaged, match="it belongs to data directory 6f6f"):
        read(path, 1)


#: A log of version 1: CREATE TABLE T, a row, two rows, a deletion, and the mark behind them.
VERSION_1 = bytes.fromhex(
    "48554c4c4c4f470a01000000696969696969696969696969696969690100000000000000000000000000000073616c747361"
    "6c74c142739cf54863f6b61917ac2e00000031001c0b02000000010000000000000000000000000000000100000000000000"
    "00000000000000000000000000000000000000000000000000000000435245415445205441424c45205420284b20494e5445"
    "474552205052494d415259204b45592c2053205445585429f54863f6b86aea80290000005c25433f01000000020000000000"
    "0000000000000000000001000000000000000100000070707070707070707070707070707070010000000000000096a77075"
    "626c697368a15482a14b01a153a36f6e65c0c4107070707070707070707070707070707001f54863f692873fdf3300000078"
    "1502da0100000003000000000000000000000000000000020000000000000002000000707070707070707070707070707070"
    "70020000000000000096a77075626c697368a15482a14b92a176920203a15392a17692a374776fc0c0c41070707070707070"
    "70707070707070707002f54863f696e6afd522000000e536653d010000000400000000000000000000000000000004000000"
    "000000000100000070707070707070707070707070707070030000000000000095a664656c657465a15492a1769101c41070"
    "70707070707070707070707070707003f54863f6c983b2380000000010b84d7b000000000400000000000000040000000000"
    "0000050000000000000000000000000000000000000000000000000000000000000000000000"
)
CHANGES: tuple[bodies.Body, ...] = (
    bodies.Publish("T", *rows_to_columns([{"K": 1, "S": "one"}]), b"p" * 16, 1),
    bodies.Publish("T", *rows_to_columns([{"K": 2, "S": "two"}, {"K": 3, "S": None}]), b"p" * 16, 2),
    bodies.Delete("T", keys_to_column([1]), b"p" * 16, 3),
)


def test_logs_of_version_1_are_read_whatever_the_wire_does(path: Path) -> None:
    (path / "log" / f"{1:020}.log").write_bytes(VERSION_1)
    tail = tail_of(path)
    statement, *batches = tail.records()
    assert statement.payload.startswith(b"CREATE TABLE T (")
    assert [repr(decode_batch(record.payload)) for record in batches] == list(map(repr, CHANGES))
    assert [(record.first, record.last) for record in batches] == [(1, 1), (2, 3), (4, 4)]
    assert tail.cut is None
    (run,) = tail.runs("t", 0, 4)
    assert [repr(decode_batch(run.payload(place))) for place in range(3)] == list(map(repr, CHANGES))


def test_logs_are_still_written_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another byte here needs another version, and a reader of version 1."""
    monkeypatch.setattr(os, "urandom", lambda size: b"saltsalt"[:size])
    log = opened(path)
    log.append(RecordKind.STATEMENT, b"CREATE TABLE T (K INTEGER PRIMARY KEY, S TEXT)", first=1, count=0)
    for number, (body, count) in enumerate(zip(CHANGES, (1, 2, 1), strict=True), 1):
        payload = bodies.encode(body)
        log.append(
            RecordKind.BATCH, payload, first=log.seq + 1, count=count, publisher=b"p" * 16, publisher_number=number
        )
    log.close()
    assert (path / "log" / f"{1:020}.log").read_bytes() == VERSION_1
