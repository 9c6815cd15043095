"""Joins in which every tuple meets every other one: bounded at every step, and right all the same."""

from __future__ import annotations

import numpy as np
import pytest

from hullcast.broker.streams.batch import END, StreamMoment, TupleBatch, stretches
from hullcast.broker.streams.operators.operator import MOST_RESULTS, RESULTS_AT_ONCE
from hullcast.broker.streams.operators.table_join import TableChanges
from hullcast.broker.streams.operators.windows import StreamWindow
from hullcast.broker.streams.plan import StreamInput, StreamQuery, TableInput
from hullcast.broker.streams.policies import OPERATOR_POLICIES
from hullcast.broker.streams.runner import SHARING_RUNS, OperatorFailed, Runner
from hullcast.network.wire.errors import TooLarge
from tests.broker.streams.test_runner import SteppedClock


def runner() -> Runner:
    return Runner(OPERATOR_POLICIES["fifo"](), SteppedClock())


def window_join(memory: int | None = None, right: str = "s", rows: float = 1e6) -> StreamQuery:
    window = StreamWindow(rows=rows)
    inputs = StreamInput("r", 2, None, window), StreamInput(right, 2, None, window)
    return StreamQuery(*inputs, ((0, 0),), ((0, 1), (1, 1)), timed=False, memory=memory)


def tuples(first: int, count: int) -> TupleBatch:
    """Of one key, each with its own number."""
    seqs = np.arange(first, first + count)
    cells = np.vstack([np.ones(count), seqs.astype(np.float64)])
    return TupleBatch(seqs, np.zeros(count), cells, StreamMoment(0.0, first + count - 1), 0.0)


def stepped(run: Runner, most: int = RESULTS_AT_ONCE + MOST_RESULTS) -> list[tuple[int, ...]]:
    """All results, `at` first; no step makes many."""
    found: list[tuple[int, ...]] = []
    while run.step():
        made = 0
        for results in run.take():
            made += len(results.batch.seqs)
            found += zip(results.batch.seqs.tolist(), *results.batch.cells.astype(int).tolist(), strict=True)
        assert made <= most
        run.check()
    return found


@pytest.mark.parametrize(
    ("memory", "most"), [(None, RESULTS_AT_ONCE + MOST_RESULTS), (1 << 18, RESULTS_AT_ONCE + 64 * 600)]
)
def test_a_window_join_makes_some_results_at_once_and_all_of_them_in_the_end(memory: int | None, most: int) -> None:
    run = runner()
    run.open(window_join(memory))
    run.arrive("r", tuples(1, 600))
    run.arrive("s", tuples(601, 600))
    run.progress("r", StreamMoment(0.0, 2000))
    assert stepped(run, most) == [(later, one, later) for later in range(601, 1201) for one in range(1, 601)]


def test_tuples_of_one_moment_are_not_cut_apart() -> None:
    run = runner()
    run.open(window_join(right="r"))
    run.arrive("r", tuples(1, 500))
    pairs = [(max(one, other), one, other) for one in range(1, 501) for other in range(1, 501)]
    found = stepped(run)
    assert [at for at, _, _ in found] == sorted(at for at, _, _ in pairs)
    assert sorted(found) == sorted(pairs)


def test_a_table_join_makes_some_results_at_once_and_meets_the_changes_between() -> None:
    run, rows = runner(), 500
    run.open(StreamQuery(StreamInput("r", 2), TableInput("t", 2, 1), ((0, 0),), ((0, 1), (1, 1))))
    keys = np.arange(rows)
    some = TableChanges(np.zeros(rows, np.int64), np.vstack([np.ones(rows), keys]), np.zeros(rows, np.bool_))
    more = TableChanges(
        np.arange(101, 600, 2), np.vstack([np.ones(250), np.arange(rows, rows + 250)]), np.zeros(250, np.bool_)
    )
    run.change("t", some)
    run.change("t", more)
    batch = tuples(0, 300)
    seqs = np.arange(2, 602, 2)
    run.arrive("r", batch._replace(seqs=seqs, reached=StreamMoment(0.0, 700)))
    found = stepped(run)
    expected = [
        (seq, at, row) for at, seq in enumerate(seqs.tolist()) for row in range(rows + max(0, (seq - 100) // 2))
    ]
    assert [at for at, _, _ in found] == [at for at, _, _ in expected]
    assert sorted(found) == expected


def test_a_tuple_with_too_many_results_fails_its_own_query_only() -> None:
    run = runner()
    wide, narrow = run.open(window_join()), run.open(window_join(rows=3))
    run.arrive("r", tuples(1, MOST_RESULTS + 1))
    run.arrive("s", tuples(MOST_RESULTS + 2, 1))
    run.progress("r", StreamMoment(0.0, 10 * MOST_RESULTS))
    with pytest.raises(OperatorFailed) as failed:
        stepped(run)
    assert failed.value.query == wide
    assert isinstance(failed.value.error, TooLarge)
    run.close(wide)
    stepped(run)
    assert run.reached(narrow).seq > MOST_RESULTS


def test_a_query_with_much_to_do_is_not_shared_since_that_would_be_done_in_one_go() -> None:
    run = runner()
    number = run.open(window_join())
    assert run.share(window_join()) == number
    run.arrive("r", tuples(1, 2000))
    run.arrive("s", tuples(2001, 2000))
    run.progress("r", StreamMoment(0.0, 5000))
    assert run.share(window_join()) is None
    run.check()
    (results,) = run.take()
    assert len(results.batch.seqs) <= SHARING_RUNS * (RESULTS_AT_ONCE + MOST_RESULTS), "of 4,000,000"


def test_windows_are_filled_without_results_that_nobody_wants() -> None:
    run = runner()
    number = run.open(window_join(), END)
    run.arrive_at(number, 0, tuples(1, MOST_RESULTS + 1))
    run.arrive_at(number, 1, tuples(MOST_RESULTS + 2, 1000))
    run.arrive_at(number, 0, tuples(2 * MOST_RESULTS, 0)._replace(reached=StreamMoment(0.0, 2 * MOST_RESULTS)))
    run.drain(number)
    run.skip(number)
    joins = [one for one in run.paths(number)[0].operators if one.name == "window join"]
    assert [(one.tuples, one.made) for one in joins] == [(MOST_RESULTS + 1001, 0)]
    run.arrive("r", tuples(3 * MOST_RESULTS, 1))
    run.arrive("s", tuples(4 * MOST_RESULTS, 0)._replace(reached=StreamMoment(0.0, 4 * MOST_RESULTS)))
    assert len(stepped(run)) == 1000


def test_stretches_are_cut_between_tuples() -> None:
    seqs = np.array([1, 1, 2, 3, 3, 3, 4, 5])
    assert [seqs[rows].tolist() for rows in stretches(seqs, 2)] == [[1, 1], [2], [3, 3, 3], [4, 5]]
    assert stretches(np.empty(0, np.int64), 2) == []
    assert len(stretches(seqs, 1)) == 5
