"""What join plans cost on this machine, run on made workloads: for `hullcast calibrate` and `hullcast bench joins`."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.joins.costs import HOTSPOT, JOIN_FIRST_E, JOIN_FIRST_S, SELECT_FIRST, Facts
from hullcast.broker.joins.histogram import IntervalHistogram
from hullcast.broker.joins.join_first import JoinFirst
from hullcast.broker.joins.plan import Arrivals, JoinPlan
from hullcast.broker.joins.select_first import SelectFirst
from hullcast.broker.joins.ssi import Hotspot
from hullcast.broker.reformulate.keeper import TreeKeeper
from hullcast.broker.tables.store import Updates
from hullcast.sim.joins.fitting import PlanRun
from hullcast.sim.joins.selects import JoinFirstEach

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hullcast.network.wire.arrays import Floats

#: How long one measurement runs, at least, and how often it is made: the quickest counts.
RUN_S, QUICK_RUN_S, ROUNDS = 0.004, 0.001, 3
#: Joining rows of the rows that arrive; how many there are of each.
JOINING, QUICK_JOINING = (1, 30, 1000), (1, 100)
ARRIVALS = 256
#: Which share of the ranges holds x, in each fifth of SPACE. Other ranges at every x: a processor remembers for a while
#: how sorting the same ones went, and would do it in a third of the time.
WHERE = (0.0003, 0.03, 0.0, 0.003, 0.15)
#: Where x and y lie.
SPACE = 10_000.0


class JoinLoad(NamedTuple):
    """What the plans are run on."""

    rows: int
    ranges: int
    groups: int  # clusters of y
    scattered: float  # share of the ranges that is in none


WORKLOADS = (
    JoinLoad(5_000, 1_000, 10, 0.0),
    JoinLoad(50_000, 10_000, 30, 0.1),
    JoinLoad(20_000, 10_000, 200, 0.5),
    JoinLoad(100_000, 50_000, 60, 0.02),
    JoinLoad(100_000, 100_000, 30, 0.2),
)
QUICK = (JoinLoad(2_000, 500, 5, 0.0), JoinLoad(4_000, 2_000, 20, 0.2), JoinLoad(10_000, 5_000, 60, 0.05))


#: How to make each plan.
PLANS_MEASURED: dict[int, Callable[[], JoinPlan]] = {
    JOIN_FIRST_E: JoinFirst,
    JOIN_FIRST_S: JoinFirstEach,
    SELECT_FIRST: SelectFirst,
    HOTSPOT: Hotspot,
}


def _known(plan: JoinPlan, workload: JoinLoad) -> Facts:
    facts = Facts(rows=workload.rows, ranges=workload.ranges)
    if isinstance(plan, Hotspot):
        return facts._replace(groups=plan.hot_groups, pieces=plan.pieces, cold=plan.cold)
    return facts


def measured(workloads: tuple[JoinLoad, ...], *, quick: bool, tick: Callable[[str], None]) -> Iterator[PlanRun]:
    """Runs of all plans on all workloads."""
    for number, workload in enumerate(workloads):
        tick(f"{workload.rows:,} rows, {workload.ranges:,} ranges in {workload.groups} groups")
        rng = np.random.default_rng(number)
        joining = QUICK_JOINING if quick else JOINING
        tree = _tree(workload.rows, joining, rng)
        rectangles = _rectangles(workload, rng)
        ranges = IntervalHistogram()
        ranges.add(rectangles[:, 0], rectangles[:, 1])
        for plan, make in PLANS_MEASURED.items():
            one = make()
            one.add(np.arange(len(rectangles)), rectangles)
            facts = _known(one, workload)
            for kind, k_j in enumerate(joining):
                values = np.resize(_values(workload.rows, kind, k_j), ARRIVALS)
                for fifth in range(len(WHERE)):
                    xs = (fifth + rng.uniform(0.25, 0.75, ARRIVALS)) * SPACE / len(WHERE)
                    arrivals = Arrivals(values, np.zeros(ARRIVALS), xs)
                    spent = _time(one, tree, arrivals, QUICK_RUN_S if quick else RUN_S)
                    yield PlanRun(plan, facts, float(k_j), float(ranges.exact(xs).mean()), spent)


def _tree(rows: int, joining: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """An index where a quarter of the rows at most, and 64 values, are those that have so many rows each."""
    values = np.concatenate([np.repeat(_values(rows, kind, many), many) for kind, many in enumerate(joining)])
    values = np.concatenate((values, -1.0 - np.arange(rows - len(values))))  # every other row has one of its own
    there = np.ones(rows, np.bool_)
    cells = np.array([values, rng.uniform(0, SPACE, rows)])
    keeper = TreeKeeper(1, None, (0,))
    keeper.update(Updates(np.arange(rows), ~there, there, np.full_like(cells, np.nan), cells))
    return keeper.tree.memory


def _values(rows: int, kind: int, many: int) -> Floats:
    """Join values that have so many rows each."""
    return np.arange(max(1.0, min(ARRIVALS, rows // (4 * many)))) + 1000 * kind


def _rectangles(workload: JoinLoad, rng: np.random.Generator) -> Floats:
    """x-intervals in all fifths but the middle one; y-intervals around points of groups, or in a fifth without any."""
    n = workload.ranges
    fifths = len(WHERE)
    fifth = rng.choice(np.flatnonzero(WHERE), n)
    half = np.array(WHERE)[fifth] * (fifths - 1) / 2  # of a fifth: as long as it takes for so many to hold x
    x, half = (fifth + rng.uniform(half, 1 - half)) * SPACE / fifths, half * SPACE / fifths
    apart = 0.8 * SPACE / workload.groups
    below, above = rng.uniform(0, apart / 4, (2, n))
    y = (rng.integers(workload.groups, size=n) + 0.5) * apart
    cold = np.arange(n) < workload.scattered * n
    y[cold] = rng.uniform(0.8 * SPACE, SPACE, cold.sum())
    below[cold], above[cold] = rng.uniform(0, 0.001 * SPACE, (2, int(cold.sum())))
    return np.stack((x - half, x + half, y - below, y + above), axis=1)


def _time(plan: JoinPlan, tree: Floats, arrivals: Arrivals, least_s: float) -> float:
    """Nanoseconds of this thread's time a row, of the quickest of some rounds; rows that cost much are fewer."""
    some, best = 1, np.inf
    for _ in range(ROUNDS + 2):
        batch = arrivals.take(np.arange(some))
        start = thread_time()
        repeats = 0
        while thread_time() - start < least_s:
            plan.spans(tree, batch)
            repeats += 1
        best = min(best, (thread_time() - start) / (repeats * some))
        some = min(len(arrivals.xs), max(1, int(least_s / best)))
    return 1e9 * best
