"""The change history and tables as of a sequence number, read from a data directory, agree with a dict of rows."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.log import history as history_module
from hullcast.broker.log.checkpoint import checkpoints
from hullcast.broker.log.history import ChangePortion, HistoryReader, Life, PortionLimits, readable_from
from hullcast.broker.log.history_process import HistoryRequest, _answer
from hullcast.broker.log.record import RecordKind
from hullcast.broker.log.segment import segments
from hullcast.broker.tables.interning import SWEEP_SLACK
from hullcast.broker.tables.store import TableStore
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import HistoryGone, LogDamaged
from hullcast.network.wire.values import rows_of, rows_to_columns
from tests.support.ledger import COLUMNS, KEYS, NOON, ROWS, Ledger, Row


def small(rows: int = 3, size_bytes: int = 1 << 20, enough: Callable[[], bool] = lambda: False) -> PortionLimits:
    return PortionLimits(rows, size_bytes, enough)


def changes_of(
    readers: Iterator[HistoryReader], life: Life, after: int, through: int, limits: PortionLimits
) -> list[tuple[int, str, Row | None]]:
    """All changes, portion by portion, each by the next reader."""
    found: list[tuple[int, str, Row | None]] = []
    while after < through:
        portion = next(readers).changes(life, after, through, limits)
        assert after < portion.last <= through
        assert tuple(portion.columns) == COLUMNS
        after = portion.last
        found += listed(portion)
    return found


def listed(portion: ChangePortion) -> list[tuple[int, str, Row | None]]:
    rows = rows_of(tuple(portion.columns.values()))
    for row, deleted in zip(rows, portion.deleted, strict=True):
        assert not deleted or row[1:] == (None,) * 4
    marked = zip(portion.seq.tolist(), rows, portion.deleted, strict=True)
    return [(seq, row[0], None if deleted else row) for seq, row, deleted in marked]


def rows_as_of(
    readers: Iterator[HistoryReader], life: Life, seq: int, part: int, parts: int, limits: PortionLimits
) -> list[Row]:
    """All rows of a part, portion by portion, each by the next reader."""
    found: list[Row] = []
    start: int | None = None
    while True:
        portion = next(readers).rows(life, seq, part, parts, start, limits)
        found += rows_of(tuple(portion.columns.values()))
        if portion.next is None:
            return found
        start = portion.next


def one_reader(path: Path) -> Iterator[HistoryReader]:
    reader = HistoryReader(path)
    while True:
        yield reader


def new_readers(path: Path) -> Iterator[HistoryReader]:
    while True:
        yield HistoryReader(path)


steps = st.one_of(
    st.tuples(st.just("publish"), st.lists(ROWS, min_size=1, max_size=5)),
    st.tuples(st.just("publish"), st.lists(ROWS, min_size=1, max_size=1)),
    st.tuples(st.just("delete"), st.lists(st.one_of(KEYS, st.just("n\0")), min_size=1, max_size=3, unique=True)),
    st.tuples(st.sampled_from(["elsewhere", "checkpoint", "reopen", "create_again"])),
)


@given(st.lists(steps, max_size=14), st.integers(1, 4), st.booleans(), st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_tables_and_changes_are_those_of_a_dict_of_rows(
    history: list[tuple[Any, ...]], parts: int, fresh: bool, portion: int
) -> None:
    with TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "data")
        for step, *arguments in history:
            getattr(ledger, step)(*arguments)
        readers = (new_readers if fresh else one_reader)(ledger.path)
        life, last = ledger.life, ledger.data.log.synced_seq
        limits = small(portion)
        assert max(readable_from(ledger.path), life.created) == min(ledger.at)
        for seq, expected in ledger.at.items():
            divided = [rows_as_of(readers, life, seq, part, parts, limits) for part in range(parts)]
            together = [row for rows in divided for row in rows]
            assert {row[0]: row for row in together} == expected
            assert len(together) == len(expected)
        for after in ledger.at:
            found = changes_of(readers, life, after, last, limits)
            assert found == [change for change in ledger.changes if change[0] > after]
            replayed = dict(ledger.at[after])
            for _, key, changed in found:
                if changed is None:
                    replayed.pop(key, None)
                else:
                    replayed[key] = changed
            assert replayed == ledger.rows
        ledger.data.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "data")
    yield made
    made.data.close()


def batches(ledger: Ledger, count: int, rows: int = 20) -> None:
    for at in range(count):
        ledger.publish([{"K": f"k{at}-{i}", "R": float(i), "S": "s" * 50} for i in range(rows)])


def test_results_have_numbers_among_the_updates_and_are_changes_of_no_table(ledger: Ledger) -> None:
    ledger.deliver()
    ledger.publish([{"K": "a", "I": 1}])
    ledger.deliver()
    ledger.deliver()
    ledger.delete(["a"])
    ledger.reopen()
    assert ledger.seq == 5
    ledger.checkpoint()
    ledger.deliver()
    ledger.reopen()
    assert ledger.seq == ledger.data.log.synced_seq == 6
    readers = one_reader(ledger.path)
    assert changes_of(readers, ledger.life, 0, 6, small()) == ledger.changes
    assert [change[0] for change in ledger.changes] == [2, 5]
    for seq, rows in ledger.at.items():
        assert {row[0]: row for row in rows_as_of(readers, ledger.life, seq, 0, 1, small())} == rows


def test_a_part_does_not_depend_on_the_checkpoint_it_is_read_from(ledger: Ledger) -> None:
    """Between two portions checkpoints come and go; what was read and what is read then fit together."""
    batches(ledger, 6)
    seq, expected = ledger.seq, dict(ledger.rows)
    first = HistoryReader(ledger.path).rows(ledger.life, seq, 0, 1, None, small(7))
    assert first.next is not None
    ledger.checkpoint()
    batches(ledger, 2)
    ledger.checkpoint()
    rest = rows_as_of_from(ledger, seq, first.next)
    assert {row[0]: row for row in [*rows_of(tuple(first.columns.values())), *rest]} == expected
    assert len(rest) + 7 == len(expected)


def rows_as_of_from(ledger: Ledger, seq: int, start: int | None) -> list[Row]:
    found: list[Row] = []
    while start is not None:
        portion = HistoryReader(ledger.path).rows(ledger.life, seq, 0, 1, start, small(11))
        found += rows_of(tuple(portion.columns.values()))
        start = portion.next
    return found


def test_a_checkpoint_that_is_removed_under_way_is_replaced_by_another(ledger: Ledger) -> None:
    batches(ledger, 3)
    ledger.checkpoint()
    batches(ledger, 1)
    ledger.checkpoint()
    seq, reader = ledger.seq, HistoryReader(ledger.path)
    steps = iter([True, False])
    assert reader.rows(ledger.life, seq, 0, 1, None, small(enough=lambda: next(steps))).next == 0  # it has begun
    newest = max(ledger.path.glob("checkpoint-*.sqlite"))
    newest.rename(newest.with_suffix(".gone"))
    found = rows_as_of(iter(lambda: reader, None), ledger.life, seq, 0, 1, small(1000))
    assert {row[0]: row for row in found} == ledger.rows


def test_a_table_that_takes_long_is_prepared_in_several_calls(ledger: Ledger) -> None:
    batches(ledger, 5)
    ledger.checkpoint()
    batches(ledger, 5)
    reader, calls, found, start = HistoryReader(ledger.path), 0, [], None
    while True:
        portion = reader.rows(ledger.life, ledger.seq, 0, 1, start, small(1000, enough=lambda: True))
        calls += 1
        found += rows_of(tuple(portion.columns.values()))
        if portion.next is None:
            break
        start = portion.next
    assert calls > 2
    assert {row[0]: row for row in found} == ledger.rows


def test_a_checkpoint_that_is_listed_but_gone_when_it_is_opened_is_passed_over(ledger: Ledger) -> None:
    batches(ledger, 2)
    ledger.checkpoint()
    batches(ledger, 1)
    newest = max(ledger.path.glob("checkpoint-*.sqlite"))
    number = f"{int(newest.stem.split('-')[1]) + 1:0{len(newest.stem.split('-')[1])}}"
    (ledger.path / f"checkpoint-{number}.sqlite").symlink_to(ledger.path / "nowhere")
    assert len(checkpoints(ledger.path)) == 2
    found = rows_as_of(iter(lambda: HistoryReader(ledger.path), None), ledger.life, ledger.seq, 0, 1, small(1000))
    assert {row[0]: row for row in found} == ledger.rows


def test_tables_as_of_many_updates_are_built_one_at_a_time_and_each_is_read(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of as many tables take turns. Memory is that of one being built and those kept; and none waits forever
    because its table is forgotten for another's."""
    monkeypatch.setattr(history_module, "_TABLES_KEPT", 1)
    monkeypatch.setattr(history_module, "_ROWS_AT_ONCE", 2)
    batches(ledger, 8)

    def stores() -> int:
        return sum(type(one) is TableStore for one in gc.get_objects())

    reader, before = HistoryReader(ledger.path), stores()
    starts: dict[int, int | None] = dict.fromkeys(range(ledger.seq - 5, ledger.seq + 1), 0)
    found: dict[int, list[Row]] = {seq: [] for seq in starts}
    for _ in range(200):
        for seq, start in list(starts.items()):
            portion = reader.rows(ledger.life, seq, 0, 1, start, small(50, enough=lambda: True))
            found[seq] += rows_of(tuple(portion.columns.values()))
            starts[seq] = portion.next
            if portion.next is None:
                del starts[seq]
        assert stores() <= before + 1
        if not starts:
            break
    assert not starts
    for seq, rows in found.items():
        assert {row[0]: row for row in rows} == ledger.at[seq]
        assert len(rows) == len(ledger.at[seq])


def test_a_table_whose_reader_left_does_not_hold_up_the_next(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "_READER_AWAY_S", 0.0)
    batches(ledger, 2)
    reader = HistoryReader(ledger.path)
    reader.rows(ledger.life, ledger.seq, 0, 1, None, small(3))
    found = rows_as_of(iter(lambda: reader, None), ledger.life, ledger.seq - 1, 0, 1, small(1000))
    assert {row[0]: row for row in found} == ledger.at[ledger.seq - 1]


def test_texts_that_no_row_has_any_more_are_forgotten(ledger: Ledger) -> None:
    for at in range(24):
        ledger.publish([{"K": f"k{i % 10}", "S": f"text {at} {i}"} for i in range(1000)])
    reader = HistoryReader(ledger.path)
    found = rows_as_of(iter(lambda: reader, None), ledger.life, ledger.seq, 0, 1, small(1000))
    assert {row[0]: row for row in found} == ledger.rows
    (built,) = reader._tables.values()
    assert len(built.interner) <= 2 * 20 + SWEEP_SLACK  # of 24,010


def test_portions_are_bounded_by_bytes(ledger: Ledger) -> None:
    ledger.publish([{"K": f"k{i}", "S": f"{i}" * 3000} for i in range(200)])
    limits = small(10_000, 20_000)
    sizes = []
    after = 0
    while after < ledger.seq:
        portion = HistoryReader(ledger.path).changes(ledger.life, after, ledger.seq, limits)
        after = portion.last
        sizes.append(len(portion.seq))
    assert sum(sizes) == 200
    assert max(sizes) < 20
    reader = HistoryReader(ledger.path)
    assert len(rows_as_of(iter(lambda: reader, None), ledger.life, ledger.seq, 0, 1, limits)) == 200
    assert reader.rows(ledger.life, ledger.seq, 0, 1, None, limits).next is not None


def test_a_range_at_the_end_reads_only_the_segments_that_hold_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches(ledger, 30)
    assert len(list((ledger.path / "log").glob("*.log"))) > 10
    read = 0
    preadv = os.preadv

    def counted(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        nonlocal read
        more = preadv(descriptor, buffers, offset)
        read += more
        return more

    monkeypatch.setattr(os, "preadv", counted)
    portion = HistoryReader(ledger.path).changes(ledger.life, ledger.seq - 5, ledger.seq, small(100))
    assert portion.seq.tolist() == list(range(ledger.seq - 4, ledger.seq + 1))
    assert 0 < read < 10_000


def test_what_is_no_longer_kept_says_from_where_on_history_is_there(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "data", history_bytes=0)
    batches(ledger, 3)
    ledger.checkpoint()
    kept = ledger.seq
    batches(ledger, 3)
    ledger.checkpoint()
    batches(ledger, 3)
    ledger.checkpoint()
    assert ledger.data.readable_from == readable_from(ledger.path) > kept
    with pytest.raises(HistoryGone, match="history_bytes keeps more") as refused:
        HistoryReader(ledger.path).changes(ledger.life, 0, ledger.seq, small())
    assert refused.value.first == ledger.data.readable_from + 1
    with pytest.raises(HistoryGone):
        HistoryReader(ledger.path).rows(ledger.life, kept, 0, 1, None, small())
    ledger.data.close()


def test_the_first_change_that_is_kept_may_be_removed_between_question_and_answer(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "data", history_bytes=0)
    for _ in range(3):
        batches(ledger, 3)
        ledger.checkpoint()
    table, created = ledger.life.table, ledger.life.created

    def answer(after: int | None) -> bodies.Body:
        asked = bodies.ReadChanges("T", after, None)  # the server saw that all is kept, but that was before
        return bodies.decode(_answer(HistoryReader(ledger.path), HistoryRequest(table, created, asked, 0, ledger.seq)))

    changed = answer(None)
    assert isinstance(changed, bodies.ChangedRows)
    assert changed.seq[0] == ledger.data.readable_from + 1
    assert isinstance(answer(0), bodies.Failed)
    ledger.data.close()


def test_history_bytes_keeps_so_much_log_and_few_checkpoints(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "data", history_bytes=40_000)
    for _ in range(60):
        batches(ledger, 1)
        ledger.checkpoint()
        sizes = [path.stat().st_size for path in (ledger.path / "log").glob("*.log")]
        assert sum(sizes) < 40_000 + 4000
        assert len(list(ledger.path.glob("checkpoint-*.sqlite"))) <= 10
    assert sum(sizes) > 30_000
    first = ledger.data.readable_from
    assert 0 < first < ledger.seq - 200
    readers = one_reader(ledger.path)
    for seq in (first, first + 1, (first + ledger.seq) // 2, ledger.seq):
        found = rows_as_of(readers, ledger.life, seq, 0, 1, small(1000))
        assert {row[0]: row for row in found} == ledger.at[seq]
    ledger.reopen()
    assert ledger.data.readable_from == first
    ledger.data.close()


def test_history_from_the_first_update_on_is_kept_beside_any_number_of_checkpoints(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "data", history_bytes=1 << 30)
    for _ in range(4):
        batches(ledger, 3)
        ledger.checkpoint()
    assert ledger.data.readable_from == readable_from(ledger.path) == 0
    portion = HistoryReader(ledger.path).changes(ledger.life, 0, ledger.seq, small(1000))
    assert portion.seq[0] == 1
    assert rows_as_of(one_reader(ledger.path), ledger.life, 1, 0, 1, small(1000)) == list(ledger.at[1].values())
    ledger.data.close()


def test_records_of_earlier_versions_that_lack_columns_are_refused_as_changes_and_right_as_rows(ledger: Ledger) -> None:
    ledger.publish([{"K": "a", "I": 1, "R": 0.5}])
    columns, absent = rows_to_columns([{"K": "a", "S": "later"}])
    body = bodies.Publish("T", columns, absent, b"p" * 16, 99)
    batch = ledger.data.engine.upsert_columns("T", columns, absent)
    ledger.data.log.append(RecordKind.BATCH, bodies.encode(body), first=batch.first_seq, count=1)
    ledger.data.log.write_and_sync()
    reader = HistoryReader(ledger.path)
    with pytest.raises(HistoryGone, match="without all columns") as refused:
        reader.changes(ledger.life, 0, 2, small())
    assert refused.value.first == 3
    assert rows_as_of(iter(lambda: reader, None), ledger.life, 2, 0, 1, small()) == [("a", 1, 0.5, None, "later")]


def test_the_table_before_it_was_created_again_cannot_be_read(ledger: Ledger) -> None:
    batches(ledger, 1)
    ledger.create_again()
    with pytest.raises(HistoryGone, match="the table was created later") as refused:
        HistoryReader(ledger.path).changes(ledger.life, 3, ledger.seq, small())
    assert refused.value.first == 21


def test_a_damaged_record_is_named_and_never_passed_over(ledger: Ledger) -> None:
    batches(ledger, 1)
    (path,) = (ledger.path / "log").glob("*.log")
    content = bytearray(path.read_bytes())
    content[-300] ^= 1
    path.write_bytes(content)
    reader = HistoryReader(ledger.path)
    with pytest.raises(LogDamaged):
        reader.changes(ledger.life, 0, ledger.seq, small())
    with pytest.raises(LogDamaged):
        reader.rows(ledger.life, ledger.seq, 0, 1, None, small())


def test_rows_published_singly_are_not_decoded_one_by_one(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(40):
        ledger.publish([{"K": f"k{i % 7}", "I": i, "R": i / 3, "W": NOON, "S": None}])
    ledger.delete(["k1"])
    monkeypatch.setattr("hullcast.network.wire.bodies.decode", None)
    reader = one_reader(ledger.path)
    assert changes_of(reader, ledger.life, 0, ledger.seq, small(1000)) == ledger.changes
    found = rows_as_of(reader, ledger.life, ledger.seq, 0, 1, small(1000))
    assert {row[0]: row for row in found} == ledger.rows


def test_a_large_segment_behind_another_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that has places of its records in mind begins at one of them only if what is asked for is behind it."""
    monkeypatch.setattr("hullcast.broker.log.segment_reading._BOOKMARK_BYTES", 500)
    ledger = Ledger(tmp_path)
    for i in range(60):
        ledger.publish([{"K": f"k{i}", "I": i, "S": "x" * 40}])
    assert len(segments(tmp_path / "log")) > 3
    reader = one_reader(tmp_path)
    for _ in range(2):
        assert changes_of(reader, ledger.life, 0, ledger.seq, small(1000)) == ledger.changes
    ledger.data.close()
