"""The parts of a path by themselves: boxes that cover others, queues, windows and tables that outgrow their room."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.streams.batch import BEGINNING, StreamMoment, TupleBatch
from hullcast.broker.streams.operators.selection import SelectionBoxes, covering
from hullcast.broker.streams.operators.table_join import TableChanges
from hullcast.broker.streams.operators.windows import StreamWindow
from hullcast.broker.streams.plan import StreamInput, StreamQuery, TableInput, WantedRanges
from hullcast.broker.streams.policies import OPERATOR_POLICIES
from hullcast.broker.streams.queue import TupleQueue
from hullcast.broker.streams.runner import Runner

grid = st.integers(0, 12).map(float)
ends = st.sampled_from([-inf, *map(float, range(13)), inf])


class StillClock:
    def now(self) -> float:
        return 0.0

    def pass_by(self, cost_s: float) -> None:
        """No time passes."""


def tuples(first: int, keys: list[float], time: float = 0.0) -> TupleBatch:
    seqs = np.arange(first, first + len(keys))
    times = np.full(len(keys), time)
    return TupleBatch(seqs, times, np.array([keys, seqs]), StreamMoment(time, int(seqs[-1])), 0.0)


@given(
    st.lists(st.tuples(st.tuples(ends, ends), st.tuples(ends, ends)), max_size=30),
    st.integers(1, 4),
    st.lists(st.tuples(grid, grid), max_size=20),
)
def test_few_boxes_that_cover_many_let_everything_pass_that_any_of_them_would(
    boxes: list[tuple[tuple[float, float], tuple[float, float]]], most: int, points: list[tuple[float, float]]
) -> None:
    bounds = np.array(boxes, np.float64).reshape(len(boxes), 2, 2)
    lows, highs = bounds[:, :, 0].copy(), bounds[:, :, 1].copy()
    few = covering(lows, highs, most)
    assert len(few[0]) <= max(most, 0)
    cells = np.array([*points, (nan, 1.0)], np.float64).T.copy()
    columns = np.array([0, 1])
    exact = SelectionBoxes(columns, lows, highs).holds(cells)
    covered = SelectionBoxes(columns, few[0].copy(), few[1].copy()).holds(cells)
    plain = [any(all(a <= x <= b for x, (a, b) in zip(point, box, strict=True)) for box in boxes) for point in points]
    assert exact.tolist() == [*plain, False]
    assert not (exact & ~covered).any()


def test_ranges_of_one_column_that_do_not_touch_stay_apart_where_the_gaps_are_widest() -> None:
    lows = np.array([[0.0], [10.0], [11.0], [50.0]])
    found = covering(lows, lows + 0.5, 3)
    assert [bounds.ravel().tolist() for bounds in found] == [[0.0, 10.0, 50.0], [0.5, 11.5, 50.5]]


@given(st.lists(st.one_of(st.integers(1, 4), st.integers(-6, -1)), max_size=30), st.booleans())
def test_a_queue_gives_back_what_was_put_in_in_order(steps: list[int], ghosts: bool) -> None:
    queue = TupleQueue("q", 0.0)
    put: list[tuple[int, float | None]] = []
    got: list[tuple[int, float | None]] = []
    seq = 1
    for at, step in enumerate(steps):
        if step > 0:
            keys = [float(i % 3) for i in range(step)]
            batch = tuples(seq, keys)._replace(arrived=float(at))
            if ghosts:
                batch = batch.keep(np.array(keys) != 1.0, ghosts=True)
            put += [(seq + i, None if ghosts and key == 1.0 else key) for i, key in enumerate(keys)]
            queue.put(batch)
            seq += step
        elif queue.tuples and step % 2:
            got += listed(queue.take(-step))
        elif queue.tuples:
            gathered = queue.gather(-step)
            count = min(-step, len(gathered.seqs))
            got += listed(gathered)[:count]
            queue.drop(count)
        queue.check()
        assert queue.frontier() == (queue.reached if not queue.tuples else (0.0, put[len(got)][0] - 1))
    assert got == put[: len(got)]
    assert len(got) + queue.tuples == len(put)
    assert sum(size for _, size in queue.waiting()) == queue.size


def listed(batch: TupleBatch) -> list[tuple[int, float | None]]:
    places = range(len(batch.seqs)) if batch.places is None else batch.places.tolist()
    keys = [None if place < 0 else float(batch.cells[0, place]) for place in places]
    return list(zip(batch.seqs.tolist(), keys, strict=True))


@pytest.mark.parametrize("partners", [100, 300, 1500, 9000])
def test_windows_grow_and_one_tuple_may_have_any_number_of_results(partners: int) -> None:
    window = StreamWindow(rows=partners - 10)
    query = StreamQuery(
        StreamInput("r", 2, None, window), StreamInput("s", 2, None, window), ((0, 0),), ((0, 1), (1, 1))
    )
    runner = Runner(OPERATOR_POLICIES["chain"](), StillClock())
    number = runner.open(query)
    keys = [float(i % 2) for i in range(partners)]
    runner.arrive("r", tuples(1, keys))
    runner.arrive("s", tuples(partners + 1, [0.0, 5.0, 1.0]))
    runner.progress("r", StreamMoment(1.0, partners + 3))
    while runner.step():
        pass
    runner.check()
    (results,) = runner.take()
    in_window = list(range(11, partners + 1))  # the first ten have left
    zeros, ones = [seq for seq in in_window if seq % 2], [seq for seq in in_window if not seq % 2]
    assert results.query == number
    assert results.batch.cells[0].tolist() == zeros + ones
    assert results.batch.cells[1].tolist() == [partners + 1.0] * len(zeros) + [partners + 3.0] * len(ones)


@pytest.mark.parametrize("rows", [100, 300, 5000])
def test_tables_grow_and_rows_that_lack_columns_keep_what_they_had(rows: int) -> None:
    query = StreamQuery(
        StreamInput("r", 2), TableInput("t", 3, 0, WantedRanges((2,), (((0, 1),),))), ((0, 1),), ((1, 0),)
    )
    runner = Runner(OPERATOR_POLICIES["fifo"](), StillClock())
    runner.open(query)
    keys = np.arange(float(rows))
    table = np.array([keys, keys % 2, np.zeros(rows)])
    runner.change("t", TableChanges(np.arange(1, rows + 1), table, np.zeros(rows, np.bool_)))
    lacking = np.array(
        [[0.0, 1.0, rows], [-inf, 0.0, 0.0], [5.0, -inf, -inf]]
    )  # the last one is new: its range is NULL
    runner.change("t", TableChanges(np.arange(rows + 1, rows + 4), lacking, np.zeros(3, np.bool_)))
    runner.arrive("r", tuples(rows + 4, [0.0]))
    while runner.step():
        pass
    runner.check()
    (results,) = runner.take()
    assert sorted(results.batch.cells[0].tolist()) == sorted([1.0, *range(2, rows, 2)])


def test_what_waits_is_counted_and_streams_of_queries_that_hold_too_much_are_full() -> None:
    window = StreamWindow(rows=10)
    query = StreamQuery(StreamInput("r", 2, None, window), StreamInput("s", 2, None, window), ((0, 0),), ((0, 1),))
    runner = Runner(OPERATOR_POLICIES["chain"](), StillClock(), limit_bytes=10_000)
    number = runner.open(query)
    runner.open(StreamQuery(StreamInput("q", 2), None, (), ((0, 0),)))
    runner.arrive("r", tuples(1, [1.0] * 1000, time=5.0))
    while runner.step():
        pass
    assert runner.idle
    assert runner.held_bytes == 1000 * 32
    assert runner.full() == {"r"}
    runner.progress("s", StreamMoment(6.0, 1000))
    while runner.step():
        pass
    assert (runner.held_bytes, runner.most_held_bytes, runner.full()) == (0, 1000 * 32, set())
    runner.arrive("r", tuples(1001, [1.0] * 10, time=9.0))
    assert runner.close(number)
    runner.check()
    assert runner.held_bytes == 0
    assert not runner.step()


def test_a_query_that_is_alike_is_shared_until_its_last_user_closes_it() -> None:
    runner = Runner(OPERATOR_POLICIES["chain"](), StillClock())
    query = StreamQuery(StreamInput("q", 2), None, (), ((0, 0),))
    assert runner.share(query) is None
    number = runner.open(query)
    assert runner.share(StreamQuery(StreamInput("q", 2), None, (), ((0, 0),))) == number
    assert runner.share(StreamQuery(StreamInput("q", 2), None, (), ((0, 1),))) is None
    assert runner.statistics().queries == 1
    assert not runner.close(number)
    assert runner.statistics().queries == 1
    assert runner.close(number)
    assert runner.statistics().queries == 0
    assert runner.share(query) is None


def test_nothing_is_before_the_beginning() -> None:
    assert StreamMoment(-inf, 0) > BEGINNING
