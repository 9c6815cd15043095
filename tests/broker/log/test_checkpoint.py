"""Checkpoints: the same values to the bit, whole or not there, and never the only copy of anything."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.log import checkpoint as checkpoint_module
from hullcast.broker.log.checkpoint import CapturedState, capturing, check, checkpoints, load, write
from hullcast.broker.log.publishers import Publishers
from hullcast.broker.log.segment import segments
from hullcast.broker.log.space import DiskSpace
from hullcast.broker.scheduling.driver import finish
from hullcast.broker.sql.create import CreateTable, create_text, parse_statement
from hullcast.broker.tables.schema import Column, ColumnType, Table
from hullcast.network.wire.errors import CheckpointFailed, LogDamaged
from tests.support.disks import fill, small_disk
from tests.support.durable import CREATE, captured, crash, delete, execute, opened, publish, rows

IDENTITY = bytes(range(16))
WIDE = "CREATE TABLE T (K TEXT PRIMARY KEY, R REAL, I INTEGER, W TIMESTAMP NOT NULL, S TEXT)"

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
instants = st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1)).map(lambda naive: naive.replace(tzinfo=UTC))
some_rows = st.fixed_dictionaries(
    {
        "K": texts,
        "R": st.none()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.sampled_from([-0.0, 0.0, 5e-324, 2.0**60]),
        "I": st.none() | st.integers(-(2**53), 2**53),
        "W": instants,
        "S": st.none() | texts,
    }
)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name.isprintable() and '"' not in name
)


def capture(engine: ServedEngine, number: int) -> CapturedState:
    captured: CapturedState = finish(capturing(engine, Publishers(), lambda: number))
    return captured


def values(engine: ServedEngine, table: str) -> dict[str, bytes]:
    """The rows of a table by key, every number as its bits."""
    store = engine._stores[table.lower()]
    found = {}
    for slot in store.live_slots():
        codes = store.cells[:, slot]
        parts = [
            str(engine._interner.text(code)).encode() if column.type is ColumnType.TEXT and code == code
            else np.float64(code).tobytes()
            for column, code in zip(store.table.columns, codes, strict=True)
        ]  # fmt: skip
        found[repr(parts[store.table.key])] = b"|".join(parts)
    return found


@settings(max_examples=60)
@given(st.lists(some_rows, max_size=12), st.lists(texts, max_size=3))
def test_a_checkpoint_brings_back_the_same_bits(given_rows: list[dict[str, Any]], removed: list[str]) -> None:
    engine = ServedEngine()
    engine.execute(WIDE)
    engine.execute("CREATE TABLE EMPTY (K INTEGER PRIMARY KEY)")
    engine.upsert("T", given_rows)
    engine.delete("T", removed)
    with TemporaryDirectory() as name:
        written = write(capture(engine, 5), Path(name), IDENTITY)
        check(written.path, 5, IDENTITY)
        restored = ServedEngine()
        loaded = load(written.path, restored)
    assert (loaded.number, loaded.seq, restored.rows("T")) == (5, engine.seq, engine.rows("T"))
    assert restored.seq == engine.seq
    assert restored.tables == engine.tables
    assert values(restored, "T") == values(engine, "T")
    restored._stores["t"].check()


def test_a_capture_is_not_touched_by_what_comes_after_it(tmp_path: Path) -> None:
    engine = ServedEngine()
    engine.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, S TEXT)")
    engine.upsert("T", {"K": [1, 2], "S": ["one", "two"]})
    captured = capture(engine, 2)
    for round_ in range(4):  # enough fresh texts that the interner sweeps and gives their codes to others
        engine.upsert("T", {"K": list(range(5000)), "S": [f"{round_} {i}" for i in range(5000)]})
    engine.delete("T", [1])
    restored = ServedEngine()
    load(write(captured, tmp_path, IDENTITY).path, restored)
    assert restored.query("SELECT K, S FROM T ORDER BY K") == [(1, "one"), (2, "two")]
    assert restored.seq == 2


changes = st.lists(st.tuples(st.integers(0, 40), st.none() | st.integers(0, 60)), max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.lists(changes, max_size=12), st.integers(1, 6), st.sampled_from([1 << 20, 8 << 10]))
def test_a_capture_in_slices_is_the_state_of_its_last_moment(
    history: list[list[tuple[int, int | None]]], slice_rows: int, feed_bytes: int
) -> None:
    """Rows come, change and go between two slices, texts are swept, a table is dropped and made again."""
    engine = ServedEngine()
    engine.feed.limit_bytes = feed_bytes  # with little room the checkpoint falls behind
    engine.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, S TEXT)")
    engine.execute("CREATE TABLE OTHER (K INTEGER PRIMARY KEY)")
    engine.upsert("T", {"K": list(range(30)), "S": [f"s{i}" for i in range(30)]})
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(checkpoint_module, "CAPTURED_AT_ONCE", slice_rows)
    work = capturing(engine, Publishers(), lambda: 9)
    try:
        for batch in [*history, [], [], []]:
            try:
                next(work)
            except StopIteration as stop:
                captured, seq = stop.value, engine.seq
                break
            for key, text in batch:
                if text is None:
                    engine.delete("T", [key])
                    engine.execute("DROP TABLE OTHER")
                    engine.execute("CREATE TABLE OTHER (K INTEGER PRIMARY KEY)")
                else:
                    engine.upsert("T", [{"K": key, "S": f"t{text}"}])
                    engine.upsert("OTHER", [{"K": text}])
        else:
            captured, seq = finish(work), engine.seq
    finally:
        monkeypatch.undo()
    assert captured.seq == seq
    with TemporaryDirectory() as name:
        restored = ServedEngine()
        load(write(captured, Path(name), IDENTITY).path, restored)
    for table in ("T", "OTHER"):
        assert values(restored, table) == values(engine, table)
    assert not len(engine.feed)


@given(names, st.lists(st.tuples(names, st.sampled_from(ColumnType), st.booleans()), min_size=1, max_size=4))
def test_a_table_is_declared_anew_as_it_was(name: str, described: list[tuple[str, ColumnType, bool]]) -> None:
    columns = {column.lower(): Column(column, kind, required) for column, kind, required in described}
    first, *rest = columns.values()
    table = Table(name, (*rest, Column(first.name, first.type, True)), len(rest))
    try:
        made = parse_statement(_quoted(table))
    except ValueError:
        return  # such a table cannot exist
    assert made == CreateTable(table)
    assert parse_statement(create_text(table)) == CreateTable(table)


def _quoted(table: Table) -> str:
    columns = ", ".join(
        f'"{c.name}" {c.type.value} {"PRIMARY KEY" if c is table.key_column else "NOT NULL" if c.not_null else ""}'
        for c in table.columns
    )
    return f'CREATE TABLE "{table.name}" ({columns})'


def test_a_table_too_wide_for_quotes_is_declared_briefly() -> None:
    columns = ",".join(["k INT PRIMARY KEY", '"select" INT', *(f"column_{i:03} INT" for i in range(250))])
    made = parse_statement(f"CREATE TABLE wide({columns})")
    assert isinstance(made, CreateTable)
    text = create_text(made.table)
    assert len(text) <= len(f"CREATE TABLE wide({columns})")
    assert parse_statement(text) == made


def test_anybody_can_look_into_it_with_sqlite(tmp_path: Path) -> None:
    data = opened(tmp_path)
    execute(data, "CREATE TABLE Ticks (Id INTEGER PRIMARY KEY, At TIMESTAMP, Price REAL, Name TEXT)")
    publish(data, {"Id": [1], "At": ["2026-01-31 12:00:00"], "Price": [2.5], "Name": ["Zoë"]}, "Ticks")
    path = data.write_checkpoint(captured(data)).path
    data.close()
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    micros = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1e6)
    assert database.execute("SELECT Id, At, Price, Name FROM ticks").fetchall() == [(1, micros, 2.5, "Zoë")]
    assert database.execute("SELECT datetime(At / 1000000, 'unixepoch') FROM ticks").fetchone()[0].endswith("12:00:00")
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    opened(tmp_path).close()  # looking changed nothing


def test_tables_may_have_the_names_that_a_checkpoint_uses_itself(tmp_path: Path) -> None:
    data = opened(tmp_path)
    for name in ("Hullcast_Meta", "hullcast_meta_", "HULLCAST_TABLES", "hullcast_receipts", "hullcast_pasts", "select"):
        execute(data, f'CREATE TABLE "{name}" (rowid INTEGER PRIMARY KEY, oid TEXT, _rowid_ REAL)')
        publish(data, {"rowid": [1], "oid": [name], "_rowid_": [0.5]}, name)
    data.write_checkpoint(captured(data))
    before = {name: rows(data, name) for name in data.engine.tables}
    data.close()
    data = opened(tmp_path)
    assert data.recovered.records == 0
    assert {name: rows(data, name) for name in data.engine.tables} == before
    data.close()


def filled(path: Path, **options: Any) -> Any:
    data = opened(path, **options)
    execute(data, CREATE)
    for number in range(10):
        publish(data, {"K": [number, number + 1], "V": [number, 0.5]})
        data.log.write_and_sync()
    return data


def test_recovery_is_a_checkpoint_and_the_log_behind_it(tmp_path: Path) -> None:
    data = filled(tmp_path)
    data.write_checkpoint(captured(data))
    publish(data, {"K": [77], "V": [7.7]})
    delete(data, [3])
    execute(data, "CREATE TABLE U (K INTEGER PRIMARY KEY)")
    data.log.write_and_sync()
    expected, seq = rows(data), data.engine.seq
    crash(data)
    data = opened(tmp_path)
    assert (data.recovered.checkpoint, data.recovered.records, data.recovered.updates) == (11, 3, 2)
    assert rows(data) == expected
    assert data.engine.seq == data.log.seq == seq
    assert list(data.engine.tables) == ["T", "U"]
    data.close()


def test_a_statement_just_before_a_checkpoint_is_not_run_twice(tmp_path: Path) -> None:
    data = opened(tmp_path)
    execute(data, CREATE)
    data.write_checkpoint(captured(data))  # update 0, record 1
    execute(data, "CREATE TABLE U (K INTEGER PRIMARY KEY)")
    data.log.write_and_sync()
    crash(data)
    data = opened(tmp_path)
    assert list(data.engine.tables) == ["T", "U"]
    assert data.recovered.records == 1
    data.close()


def test_two_checkpoints_are_kept_and_the_segments_from_the_older_on(tmp_path: Path) -> None:
    data = filled(tmp_path, segment_bytes=300)
    for number in range(5):
        publish(data, {"K": [number], "V": [number * 100]})
        data.write_checkpoint(captured(data))
    numbers = [number for number, _ in checkpoints(tmp_path)]
    assert numbers == [data.log.number - 1, data.log.number]
    assert segments(tmp_path / "log")[0][0] <= numbers[0] + 1
    assert len(segments(tmp_path / "log")) < 4
    expected = rows(data)
    data.close()
    newest = checkpoints(tmp_path)[-1][1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 4
    newest.write_bytes(content)
    data = opened(tmp_path)  # the older one and the log behind it
    assert data.recovered.checkpoint == numbers[0]
    assert len(data.recovered.damaged_checkpoints) == 1
    assert "checksum" in data.recovered.damaged_checkpoints[0]
    assert rows(data) == expected
    assert [number for number, _ in checkpoints(tmp_path)] == numbers[:1]  # the other was put aside
    assert newest.with_suffix(".damaged").exists()
    data.close()
    data = opened(tmp_path)
    assert data.recovered.damaged_checkpoints == ()
    data.close()


def test_every_flipped_byte_of_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    data = filled(tmp_path)
    written = data.write_checkpoint(captured(data))
    data.close()
    content = written.path.read_bytes()
    for at in [*range(200), *range(200, len(content), 397)]:
        harmed = bytearray(content)
        harmed[at] ^= 1 << at % 8
        written.path.write_bytes(harmed)
        with pytest.raises(LogDamaged):
            check(written.path, written.number, data.identity)
    for size in (0, 50, 64, 100, len(content) - 1):
        written.path.write_bytes(content[:size])
        with pytest.raises(LogDamaged):
            check(written.path, written.number, data.identity)


def test_a_damaged_checkpoint_without_the_log_behind_it_is_refused(tmp_path: Path) -> None:
    data = filled(tmp_path, segment_bytes=300)
    for number in range(3):
        publish(data, {"K": [number], "V": [number * 100]})
        data.write_checkpoint(captured(data))
    data.close()
    for _, path in checkpoints(tmp_path):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LogDamaged, match="checkpoint"):
        opened(tmp_path)


def test_a_log_that_ends_before_the_checkpoint_has_lost_something(tmp_path: Path) -> None:
    data = filled(tmp_path)
    data.write_checkpoint(captured(data))
    data.close()
    segment, begun = sorted((tmp_path / "log").iterdir())
    begun.unlink()
    segment.write_bytes(segment.read_bytes()[:-300])
    with pytest.raises(LogDamaged, match="the log ends with record 9, the checkpoint with 11"):
        opened(tmp_path)


def test_a_checkpoint_of_another_directory_is_refused(tmp_path: Path) -> None:
    data = filled(tmp_path)
    written = write(captured(data), tmp_path, bytes(16))
    data.close()
    data = opened(tmp_path)  # the log has everything
    assert "another data directory" in data.recovered.damaged_checkpoints[0]
    assert data.recovered.records == 11
    data.close()
    with pytest.raises(LogDamaged, match="not as its name says"):
        check(written.path.with_suffix(".damaged"), written.number + 1, bytes(16))


class Killed(BaseException):
    """The process ends here."""


def _dying(_: object = None, *rest: object, **named: object) -> Any:
    raise Killed


@pytest.mark.parametrize(
    ("step", "there"),
    [
        ((checkpoint_module, "_column_blocks"), False),
        ((checkpoint_module, "_seal"), False),
        ((os, "replace"), False),
        ((checkpoint_module, "sync_directory"), True),
    ],
)
def test_a_checkpoint_interrupted_anywhere_leaves_a_directory_that_opens(
    tmp_path: Path, step: tuple[Any, str], there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = filled(tmp_path)
    expected, state = rows(data), captured(data)
    with monkeypatch.context() as patched:
        patched.setattr(*step, _dying)
        patched.setattr(Path, "unlink", lambda self, missing_ok=False: None)  # a killed process tidies nothing
        with pytest.raises(Killed):
            data.write_checkpoint(state)
    crash(data)
    leftovers = list(tmp_path.glob("*.tmp"))
    assert bool(leftovers) != there
    data = opened(tmp_path)
    assert data.recovered.leftovers == len(leftovers)
    assert not list(tmp_path.glob("*.tmp*"))
    assert (data.recovered.checkpoint is not None) == there
    assert rows(data) == expected
    data.write_checkpoint(captured(data))
    data.close()


def _no_room(*_: object) -> Any:
    raise OSError(28, "No space left on device")


def _locked(*_: object) -> Any:
    raise sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize("failure", [_no_room, _locked])
def test_a_checkpoint_that_fails_leaves_everything_as_it_was(
    tmp_path: Path, failure: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = filled(tmp_path)
    first = data.write_checkpoint(captured(data))
    publish(data, {"K": [50], "V": [5]})
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_module, "_column_blocks", failure)
        with pytest.raises(CheckpointFailed, match="nothing is lost"):
            data.write_checkpoint(captured(data))
    assert [path for _, path in checkpoints(tmp_path)] == [first.path]
    assert not list(tmp_path.glob("*.tmp"))
    publish(data, {"K": [51], "V": [5]})
    data.close()
    data = opened(tmp_path)
    assert {50, 51} <= rows(data).keys()
    data.close()


def test_neither_a_checkpoint_nor_history_takes_what_is_reserved_for_the_log(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 << 20) as disk:
        data = opened(disk / "data", segment_bytes=10_000, history_bytes=1 << 30)
        data.space = DiskSpace(disk, 1 << 30)
        execute(data, CREATE)
        for start in range(0, 20_000, 5000):
            publish(data, {"K": list(range(start, start + 5000)), "V": [1.5] * 5000})
            data.write_checkpoint(captured(data))
        assert data.readable_from == 0
        filler = fill(disk, leaving=600_000)  # of these 419,430 are reserved
        with pytest.raises(CheckpointFailed, match=r"needs more than 3.*bytes, and .* are reserved for the commit log"):
            data.write_checkpoint(captured(data))
        assert data.readable_from == 0
        assert not list(data.path.glob("*.tmp"))
        filler.unlink()
        fill(disk, leaving=400_000)
        data.remove_old()
        assert data.readable_from == 15_000
        data.close()
        data = opened(disk / "data")
        assert len(rows(data)) == 20_000
        data.close()


def test_only_the_records_since_a_checkpoint_are_applied_again(tmp_path: Path) -> None:
    filled(tmp_path).close()
    data = opened(tmp_path)
    assert data.recovered.records == 11
    data.write_checkpoint(captured(data))
    publish(data, {"K": [1], "V": [1]})
    data.close()
    data = opened(tmp_path)
    assert data.recovered.records == 1
    data.close()


def test_many_small_tables_are_not_copied_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "CAPTURED_AT_ONCE", 10)
    engine = ServedEngine()
    for i in range(20):
        engine.execute(f"CREATE TABLE T{i} (K INTEGER PRIMARY KEY)")
        engine.upsert(f"T{i}", {"K": np.arange(9)})
    slices = 0
    for cost in (work := capturing(engine, Publishers(), lambda: 9)):
        assert isinstance(cost, float)
        slices += 1
    work.close()
    assert slices >= 17  # of 180 rows
