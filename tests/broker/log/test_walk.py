"""The compiled walk over a log finds what the decoder of the wire format finds, and notices every flipped byte."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.log.changes import ChangeBatch, GatheredChanges
from hullcast.broker.log.commit_log import CommitLog
from hullcast.broker.log.record import HEADER_BYTES, RecordKind
from hullcast.broker.log.segment import HEADER_BYTES as FIRST
from hullcast.broker.log.segment import segments
from hullcast.broker.log.tail import Tail
from hullcast.broker.sql.create import CreateTable, parse_statement
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.schema import Table, fold
from hullcast.broker.tables.travel import valued
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import LogDamaged
from hullcast.network.wire.values import keys_to_column, rows_of, rows_to_columns

NOON = datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)


def table_of(sql: str) -> Table:
    statement = parse_statement(sql)
    assert isinstance(statement, CreateTable)
    return statement.table


T = table_of('CREATE TABLE T (K TEXT PRIMARY KEY, "Ä i" INTEGER, R REAL, W TIMESTAMP)')
N = table_of("CREATE TABLE N (V REAL, K INTEGER PRIMARY KEY)")

texts = st.sampled_from(["", "a", "é", "\ud7ff", "x" * 31, "x" * 32, "x" * 300])
whole = st.sampled_from([0, 1, -1, -32, -33, 127, 128, -128, -129, 65535, -(2**31), 2**32, 2**53, -(2**53), 7.0, -0.0])
row_t = st.fixed_dictionaries(
    {
        "K": texts,
        "Ä i": whole | st.none(),
        "R": whole | st.sampled_from([0.5, -1e300, 5e-324, None]),
        "W": st.sampled_from([None, NOON, datetime(1700, 1, 1), "2024-02-29T12:00:00", np.datetime64(3, "us")]),
    }
)
row_n = st.fixed_dictionaries({"V": whole | st.none(), "K": whole})
Change = tuple[str, Any, Any]
changes = st.one_of(
    st.tuples(st.sampled_from(["T", "t"]), row_t.map(lambda row: [row]), st.none()),
    st.tuples(st.just("T"), st.lists(row_t, min_size=2, max_size=3), st.none()),
    st.tuples(st.just("T"), row_t.map(lambda row: [dict(reversed(row.items()))]), st.none()),
    st.tuples(st.just("T"), row_t.map(lambda row: [{"k": row["K"], "r": row["R"]}]), st.none()),
    st.tuples(st.just("T"), st.none(), texts | st.just("n\0") | st.just("\ud800") | st.lists(texts, min_size=1)),
    st.tuples(st.just("N"), row_n.map(lambda row: [row]), st.none()),
    st.tuples(st.just("N"), st.none(), whole),
)


def write(path: Path, history: list[Change], group: int = 3, segment_bytes: int = 1000) -> int:
    """A log with these changes; the last sequence number."""
    (path / "log").mkdir(parents=True)
    log = CommitLog(path / "log", bytes(16), segment_bytes=segment_bytes)
    for number, (table, rows, keys) in enumerate(history, 1):
        body: bodies.Body
        if rows is not None:
            body = bodies.Publish(table, *rows_to_columns(rows), b"p" * 16, number)
            count = len(rows)
        else:
            column = keys_to_column(keys)
            body, count = bodies.Delete(table, column, b"p" * 16, number), len(column)
        log.append(RecordKind.BATCH, bodies.encode(body), first=log.seq + 1, count=count)
        if number % group == 0:
            log.write_and_sync()
    log.close()
    return log.seq


def tail_of(path: Path) -> Tail:
    return Tail(path / "log", bytes(16))


def listed(table: Table, batches: list[ChangeBatch], interner: Interner) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for seqs, cells, deleted, partial in batches:
        kept = np.where(np.isinf(cells), np.nan, cells)
        rows = rows_of(tuple(valued(table, kept, interner).values()))
        marked = zip(seqs.tolist(), rows, np.isinf(cells).T.tolist(), strict=True)
        found += [(seq, row, lacks, deleted, partial) for seq, row, lacks in marked]
    return found


@given(st.lists(changes, max_size=30), st.data())
@settings(deadline=None, max_examples=60)
def test_compiled_and_decoded_rows_are_the_same(history: list[Change], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        last = write(Path(folder), history)
        after = data.draw(st.integers(0, last))
        through = data.draw(st.integers(after, last))
        for table in (T, N):
            compiled, decoded = (GatheredChanges(table, Interner(), after, through) for _ in range(2))
            reader = tail_of(Path(folder))
            updates = 0
            for run in reader.runs(table.name.lower(), after, through):
                compiled.add(run)
                updates += run.updates(after, through)
                for place, (first, count) in enumerate(run.noted[2:].T.tolist()):
                    decoded._add(first, first + count - 1, run.payload(place))
            found = listed(table, compiled.settled(), compiled.interner)
            assert found == listed(table, decoded.settled(), decoded.interner)
            assert compiled.rows == decoded.rows == len(found)
            counted = 0
            before = 0
            for name, rows, keys in history:
                count = len(rows) if rows is not None else len(keys_to_column(keys))
                if name.upper() == table.name:
                    counted += len(set(range(before + 1, before + count + 1)) & set(range(after + 1, through + 1)))
                before += count
            assert updates == counted


@given(st.lists(changes, min_size=1, max_size=12), st.data())
@settings(deadline=None, max_examples=40)
def test_a_reader_goes_on_from_where_another_ended(history: list[Change], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        last = write(Path(folder), history)
        whole_way = GatheredChanges(T, Interner(), 0, last)
        for run in tail_of(Path(folder)).runs("t", 0, last):
            whole_way.add(run)
        stops = sorted({*data.draw(st.lists(st.integers(0, last), max_size=4)), last})
        found: list[tuple[Any, ...]] = []
        after, position = 0, None
        for through in stops:
            gathered, reader = GatheredChanges(T, Interner(), after, through), tail_of(Path(folder))
            for run in reader.runs("t", after, through, position):
                gathered.add(run)
            found += listed(T, gathered.settled(), gathered.interner)
            after, position = through, reader.position
            assert position is None or position.seq <= after
        assert [row[:2] for row in found] == [row[:2] for row in listed(T, whole_way.settled(), whole_way.interner)]


@given(st.lists(changes, min_size=1, max_size=4), st.data())
@settings(deadline=None, max_examples=50)
def test_every_flipped_byte_is_damage(history: list[Change], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        last = write(Path(folder), history, group=100, segment_bytes=1 << 20)
        ((_, path),) = segments(Path(folder) / "log")
        content = bytearray(path.read_bytes())
        end = len(content) - 72  # the mark behind the last record
        place = data.draw(st.integers(56, end - 1))
        content[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        with pytest.raises(LogDamaged):
            for _ in tail_of(Path(folder)).runs("t", 0, last):
                pass


def test_every_byte_of_a_log_counts(tmp_path: Path) -> None:
    """Flipped or cut off anywhere: what is committed is damaged (test_damage.py: for those who read single records)."""
    last = write(tmp_path, [("T", [{"K": "a", "Ä i": 1, "R": 0.5, "W": NOON}], None), ("N", None, 1)], group=100)
    ((_, path),) = segments(tmp_path / "log")
    content = path.read_bytes()
    end = len(content) - HEADER_BYTES  # the mark behind the last record
    flipped = [content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :] for at in range(FIRST, end)]
    for damaged in (*flipped, *(content[:size] for size in range(FIRST, end))):
        path.write_bytes(damaged)
        with pytest.raises(LogDamaged):
            list(tail_of(tmp_path).runs("t", 0, last))
    path.write_bytes(content)
    (run,) = tail_of(tmp_path).runs("t", 0, last)
    assert run.records == 1


def test_rows_published_and_deleted_singly_are_never_decoded_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"K": f"é{i}", "Ä i": -i, "R": i / 3, "W": None if i % 3 else NOON} for i in range(50)]
    history: list[Change] = [("T", [row], None) for row in rows]
    last = write(tmp_path, [*history, ("T", None, "a"), ("N", None, 1), *history])
    gathered = GatheredChanges(T, Interner(), 0, last)
    monkeypatch.setattr(GatheredChanges, "_add", None)
    for run in tail_of(tmp_path).runs("t", 0, last):
        gathered.add(run)
    assert gathered.rows == 101


def test_a_record_is_found_by_the_name_of_its_table(tmp_path: Path) -> None:
    names = ("T", "ü" * 20, "x" * 40, "Y" * 300, "z" * 70_000)
    last = write(tmp_path, [*((name, [{"K": 1}], None) for name in names), *((name, None, 1) for name in names)])
    for place, name in enumerate(names, 1):
        noted = [run.noted.copy() for run in tail_of(tmp_path).runs(fold(name), 0, last)]
        assert np.concatenate(noted, axis=1)[2].tolist() == [place, len(names) + place]


def test_records_larger_than_what_is_read_at_once_are_whole(tmp_path: Path) -> None:
    large = [{"K": f"{i} " + "x" * 60_000, "Ä i": i, "R": 0.5, "W": None} for i in range(150)]
    small: list[Change] = [("T", [{"K": "a", "Ä i": 1, "R": 1.5, "W": NOON}], None)] * 5
    last = write(tmp_path, [*small, ("T", large, None), *small, ("T", large[:2], None)], segment_bytes=1 << 30)
    gathered = GatheredChanges(T, Interner(), 0, last)
    for run in tail_of(tmp_path).runs("t", 0, last):
        gathered.add(run)
    assert [row[0] for row in listed(T, gathered.settled(), gathered.interner)] == list(range(1, last + 1))
    assert tail_of(tmp_path).position is None
