"""Measuring plans in turns: what one arrival costs each of them, and whether all say the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import thread_time
from typing import Any, Protocol, TypeVar

import numpy as np

from hullcast.broker.index.a2b import A2BTree
from hullcast.broker.index.nodes import FREE_NODES, HEIGHT, insert
from hullcast.broker.joins.plan import Arrivals, JoinPlan, walk
from hullcast.network.compiled import kernel
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.bench.frame.benchmark import Tick, quietly
from hullcast.sim.bench.frame.timing import MeasurementFailed
from hullcast.sim.bench.joins.charts import JoinCurve
from hullcast.sim.traces.table41 import RowsOfR, RowsOfS

#: Arrivals of one round, at least and at most; how many all plans must agree on.
FEWEST, MOST, CHECKED = 24, 2_000, 24


class Maintained(Protocol):
    """What keeps queries in some order while they come and go."""

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Queries come."""

    def remove(self, ids: Ints) -> None:
        """Queries go."""


class WayOfBands(Maintained, Protocol):
    """A way of finding affected bands."""

    def count_affected(self, tree: Floats, arrivals: Arrivals) -> Ints:
        """How many bands get a row, for each arrival."""


K = TypeVar("K", bound=Maintained)


@dataclass(frozen=True, slots=True)
class PlanCell:
    """One plan at one place of one chart."""

    curve: str
    x: float
    run: Callable[[int], object]  # process the first so many arrivals


def measure(cells: Sequence[PlanCell], rounds: int, budget_s: float, tick: Tick = quietly) -> tuple[JoinCurve, ...]:
    """Microseconds an arrival. All cells in turns, so that a busy moment of the machine falls on all alike. Processor
    time of this thread, so that what other processes do counts little. Each round of a cell takes about `budget_s`, or
    FEWEST arrivals."""
    counts = []
    for cell in cells:
        cell.run(1)  # compiles, and brings what it needs into the caches
        took = thread_timed(cell.run, FEWEST) / FEWEST
        counts.append(int(np.clip(budget_s / max(took, 1e-9), FEWEST, MOST)))
    found: dict[str, dict[float, list[float]]] = {}
    for turn in range(rounds):
        tick(f"round {turn + 1} of {rounds}")
        for cell, count in zip(cells, counts, strict=True):
            us = 1e6 * thread_timed(cell.run, count) / count
            found.setdefault(cell.curve, {}).setdefault(cell.x, []).append(us)
    return tuple(JoinCurve(name, tuple(at), tuple(map(tuple, at.values()))) for name, at in found.items())


def thread_timed(run: Callable[[int], object], count: int) -> float:
    """Seconds of processor time of this thread."""
    started = thread_time()
    run(count)
    return thread_time() - started


def filled(kinds: Mapping[str, Callable[[], K]], rectangles: Floats) -> dict[str, K]:
    """One of each kind, with all queries."""
    made = {name: kind() for name, kind in kinds.items()}
    for each in made.values():
        each.add(np.arange(len(rectangles)), rectangles)
    return made


def asking(ask: Callable[[Floats, Arrivals], object], tree: Floats, arrivals: Arrivals) -> Callable[[int], object]:
    """What is measured: a plan is asked about the first so many arrivals."""
    return lambda count: ask(tree, first(arrivals, count))


def first(arrivals: Arrivals, count: int) -> Arrivals:
    """The first so many."""
    return Arrivals(*(column[:count] for column in arrivals))


def check_same_rows(
    plans: Iterable[JoinPlan], tree: Floats, xs: Floats, arrivals: Arrivals, rectangles: Floats
) -> None:
    """MeasurementFailed unless all plans lead to the rows that brute force finds, for the first few arrivals. `xs` are
    the tree's, by slot."""
    some = first(arrivals, CHECKED)
    wanted = rows_wanted(tree, xs, some, rectangles)
    for plan in plans:
        spans = plan.spans(tree, some)
        of, slots, *_ = walk(tree, some.groups, some.offsets, *spans, 1 << 40)
        found = np.unique(np.column_stack((of, slots)), axis=0)
        sure = bool(spans.sure.all())
        right = np.array_equal(found, wanted) if sure else len(found) >= len(wanted)
        if not right:
            raise MeasurementFailed(f"{plan.name} leads to {len(found):,} rows, brute force to {len(wanted):,}")


def check_same_answers(asks: Mapping[str, Callable[[Floats, Arrivals], Any]], tree: Floats, arrivals: Arrivals) -> None:
    """MeasurementFailed unless all give the same counts, or name the same queries, for the first few arrivals."""
    answers = {name: np.array(ask(tree, first(arrivals, CHECKED))) for name, ask in asks.items()}
    answers = {name: one if one.ndim == 1 else one[:, np.lexsort(one[::-1])] for name, one in answers.items()}
    if any(not np.array_equal(answer, next(iter(answers.values()))) for answer in answers.values()):
        sizes = {name: answer.shape[1] if answer.ndim > 1 else int(answer.sum()) for name, answer in answers.items()}
        raise MeasurementFailed(f"affected queries differ: {sizes}")


def rows_wanted(tree: Floats, xs: Floats, arrivals: Arrivals, rectangles: Floats) -> Ints:
    """(arrival, slot) of each row that some rectangle wants, in order; by brute force over rectangles."""
    everything = (np.full(1, -np.inf), np.full(1, np.inf), np.ones(1, np.bool_))
    found = [np.empty((0, 2), np.int64)]
    for i in range(len(arrivals.xs)):
        _, slots, *_ = walk(tree, arrivals.groups, arrivals.offsets, np.full(1, i), *everything, 1 << 40)
        y = xs[slots] - arrivals.offsets[i]
        x = arrivals.xs[i]
        low, high = rectangles[(rectangles[:, 0] <= x) & (x <= rectangles[:, 1])][:, 2:].T
        begun = np.searchsorted(np.sort(low), y, "right")
        ended = np.searchsorted(np.sort(high), y, "left")
        mine = np.sort(slots[begun > ended])
        found.append(np.column_stack((np.full(len(mine), i), mine)))
    return np.concatenate(found)


# --- the other side's index ----------------------------------------------------------------------------------------


def select_tree(rows: RowsOfS) -> Floats:
    """S(B, C): rows by B, and then by C."""
    return _tree(rows.b, rows.c)


def band_tree(rows: RowsOfS) -> Floats:
    """S(B)."""
    return _tree(np.zeros(len(rows.b)), rows.b)


def select_arrivals(rows: RowsOfR) -> Arrivals:
    """Rows of R that meet those of one B."""
    return Arrivals(rows.b, np.zeros(len(rows.b)), rows.a)


def band_arrivals(rows: RowsOfR) -> Arrivals:
    """Rows of R whose B is what differences are taken from."""
    return Arrivals(np.zeros(len(rows.b)), rows.b, np.zeros(len(rows.b)))


def _tree(groups: Floats, xs: Floats) -> Floats:
    tree = A2BTree()
    tree.reserve(len(xs))
    done = load_rows(tree.memory, tree.leaf_of, groups, xs, 0)
    while done < len(xs):
        tree.grow()
        done = load_rows(tree.memory, tree.leaf_of, groups, xs, done)
    return tree.memory


@kernel
def load_rows(m: Floats, leaf_of: Ints, groups: Floats, xs: Floats, start: int) -> int:
    """Insert rows from `start` on while there is room; up to where that was."""
    for slot in range(start, len(xs)):
        if m[FREE_NODES] < m[HEIGHT] + 2:
            return slot
        insert(m, leaf_of, slot, groups[slot], xs[slot], 0.0)
    return len(xs)
