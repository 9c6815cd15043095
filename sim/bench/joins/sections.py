"""The sections of `hullcast bench joins`: Figures 4.7 to 4.16 of Xie (2007), measured plan by plan.

Of select-joins the finding of spans is measured, of band joins the finding of affected queries, counted: step 1 there.
Writing results is left out, as it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from time import perf_counter_ns, thread_time
from typing import Protocol

import numpy as np

from hullcast.broker.joins.costs import DEFAULTS, PLANS, Coefficients, Facts
from hullcast.broker.joins.histogram import Counts, Density, Steps, by_groups
from hullcast.broker.joins.join_first import JoinFirst
from hullcast.broker.joins.naive import NaivePlan
from hullcast.broker.joins.plan import Arrivals, JoinPlan
from hullcast.broker.joins.planner import Planner
from hullcast.broker.joins.select_first import SelectFirst
from hullcast.broker.joins.ssi import Hotspot
from hullcast.broker.server.calibration import this_machine
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.bench.frame.benchmark import Tick, quietly
from hullcast.sim.bench.frame.timing import in_turns
from hullcast.sim.bench.joins.cells import (
    MOST,
    CostCurve,
    PlanCell,
    WayOfBands,
    band_arrivals,
    band_tree,
    check_same_counts,
    check_same_rows,
    counting,
    finding,
    measure,
    select_arrivals,
    select_tree,
    thread_timed,
)
from hullcast.sim.bench.joins.live import QUICK_LIVE_JOINS, LiveJoinSettings
from hullcast.sim.bench.joins.plan_costs import QUICK as QUICK_WORKLOADS
from hullcast.sim.bench.joins.plan_costs import WORKLOADS, measured
from hullcast.sim.joins.band import BandDataOuter, BandMerge, BandQueryOuter
from hullcast.sim.joins.band_groups import BandGroups
from hullcast.sim.joins.fitting import fit
from hullcast.sim.joins.histogram import equal_width, optimal
from hullcast.sim.joins.selects import JoinFirstEach
from hullcast.sim.seeds import generator
from hullcast.sim.traces.table41 import (
    DOMAIN,
    JOINING,
    LENGTH_60,
    Normal,
    Table41,
    length_for,
    stabbing_number,
)

#: A row passes 250 of 100,000 selections in Figure 4.7(ii).
PASSING = 250
#: Lengths of ranges of A in the mixed workload: a row in the middle passes some per cent, one at the edge nobody.
MIXED_A, MIXED_MIDPOINT = Normal(400.0, 100.0), Normal(5_000.0, 1_000.0)


@dataclass(frozen=True, slots=True)
class JoinSettings:
    """Sizes. More rounds: steadier medians."""

    rows: int = 100_000
    queries: int = 100_000
    sweep: tuple[int, ...] = (10, 100, 1_000, 10_000, 100_000)
    groups: tuple[int, ...] = (30, 60, 125, 250, 500, 1_000, 2_000)
    selectivities: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    joining: tuple[int, ...] = (100, 300, 1_000, 3_000, 10_000)
    hot_queries: int = 500_000
    hot_shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    hot_groups: int = 500
    bands: tuple[int, ...] = (50, 500, 5_000, 50_000, 500_000)
    band_groups: tuple[int, ...] = (30, 60, 125, 250, 500, 1_000, 2_500, 5_000)
    changes: int = 100_000
    buckets: tuple[int, ...] = (20, 30, 40, 50, 60, 70)
    mixed: tuple[int, ...] = (100_000, 300_000, 500_000)
    mixed_arrivals: int = 500
    rounds: int = 7
    budget_s: float = 0.02  # of one plan in one round
    live: LiveJoinSettings = field(default_factory=LiveJoinSettings)
    seed: int = 0


FULL_JOINS = JoinSettings()
QUICK_JOINS = JoinSettings(
    sweep=(100, 10_000, 100_000),
    groups=(30, 125, 500, 2_000),
    selectivities=(0.001, 0.01, 0.1),
    joining=(100, 1_000, 10_000),
    hot_queries=200_000,
    hot_shares=(0.1, 0.4, 0.7, 1.0),
    hot_groups=200,
    bands=(50, 5_000, 100_000),
    band_groups=(60, 500, 5_000),
    changes=20_000,
    buckets=(20, 50),
    mixed=(100_000,),
    mixed_arrivals=200,
    rounds=3,
    budget_s=0.008,
    live=QUICK_LIVE_JOINS,
)


@dataclass(frozen=True, slots=True)
class JoinChart:
    """Costs over one parameter, and what the workload was like."""

    key: str  # such as "4.7(i)"
    title: str
    x_label: str
    curves: tuple[CostCurve, ...]
    taus: tuple[int, ...] = ()  # stabbing number at each x

    def curve(self, name: str) -> CostCurve:
        """One of them."""
        return next(curve for curve in self.curves if curve.name == name)


# --- Figures 4.7 and 4.8: select-joins -----------------------------------------------------------------------------


def _ids(rectangles: Floats) -> Ints:
    return np.arange(len(rectangles))


def _filled(kinds: Iterable[Callable[[], JoinPlan]], rectangles: Floats) -> list[JoinPlan]:
    plans = [kind() for kind in kinds]
    for plan in plans:
        plan.add(_ids(rectangles), rectangles)
    return plans


def ssi() -> JoinPlan:
    """SJ-SSI: every group is hot."""
    return Hotspot(alpha=0.0)


SSI = "SSI"
SELECTS: dict[str, Callable[[], JoinPlan]] = {
    SSI: ssi,
    SelectFirst.name: SelectFirst,
    JoinFirst.name: JoinFirst,
    JoinFirstEach.name: JoinFirstEach,
    NaivePlan.name: NaivePlan,
}


def _select_chart(
    settings: JoinSettings,
    chart: tuple[str, str, str],
    places: Sequence[tuple[float, Table41, Floats]],
    tick: Tick,
    names: Sequence[str] = tuple(SELECTS),
) -> JoinChart:
    """All plans at all places: (x, the tables, the queries)."""
    cells, taus = [], []
    trees: dict[Table41, tuple[Floats, Floats, Arrivals]] = {}
    for x, tables, rectangles in places:
        if tables not in trees:
            rows = tables.partners()
            trees[tables] = select_tree(rows), rows.c, select_arrivals(tables.arrivals(MOST))
        tree, c, arrivals = trees[tables]
        plans = _filled([SELECTS[name] for name in names], rectangles)
        check_same_rows(plans, tree, c, arrivals, rectangles)
        cells += [PlanCell(name, x, finding(plan, tree, arrivals)) for name, plan in zip(names, plans, strict=True)]
        taus.append(stabbing_number(rectangles[:, 2], rectangles[:, 3]))
    curves = measure(cells, settings.rounds, settings.budget_s, lambda what: tick(f"Figure {chart[0]}, {what}"))
    return JoinChart(*chart, tuple(curves), tuple(taus))


def selects(settings: JoinSettings, tick: Tick) -> tuple[JoinChart, ...]:
    """Figures 4.7 and 4.8."""
    tables = Table41(settings.rows, _joining(settings, JOINING), settings.seed)
    by_queries = [
        (float(n), tables, tables.select_joins(n, c=length_for(min(30, max(1, n * 6 // 10)), n, shape=0.2)))
        for n in settings.sweep
    ]
    few = Normal(DOMAIN * PASSING / settings.queries, 0.1 * DOMAIN * PASSING / settings.queries)
    by_groups = [
        (float(n), tables, tables.select_joins(settings.queries, a=few, c=length_for(n, settings.queries)))
        for n in settings.groups
    ]
    by_share = [
        (share, tables, tables.select_joins(settings.queries, a=Normal(share * DOMAIN, 0.1 * share * DOMAIN)))
        for share in settings.selectivities
    ]
    several = [Table41(settings.rows, _joining(settings, n), settings.seed) for n in settings.joining]
    by_joining = [(float(one.joining or 0), one, one.select_joins(settings.queries)) for one in several]
    about = f"{settings.queries:,} queries"
    thirty = f"{about}, about 30 groups"
    charts = (
        (("4.7(i)", "about 30 groups", "queries"), by_queries, tuple(SELECTS)),
        (("4.7(ii)", f"{about}, {PASSING} pass the selection", "groups"), by_groups, tuple(SELECTS)),
        (
            ("4.8(iii)", thirty, "share of queries whose range of A holds the row"),
            by_share,
            (SSI, SelectFirst.name),
        ),
        (("4.8(iv)", thirty, "rows of S that a row of R meets"), by_joining, tuple(SELECTS)),
    )
    return tuple(_select_chart(settings, about, places, tick, names) for about, places, names in charts)


def _joining(settings: JoinSettings, rows: int) -> int:
    """As many of a smaller table, relatively."""
    return max(1, rows * settings.rows // 100_000)


# --- Figure 4.9: hotspots ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HotspotSection:
    """Processing time by the share of queries in hot groups."""

    chart: JoinChart
    hot_groups: tuple[int, ...]
    hot_share: tuple[float, ...]  # as tracked
    slope_us: float  # of the straight line through the times, per unit of share
    r_squared: float


def hotspots(settings: JoinSettings, tick: Tick) -> HotspotSection:
    """Figure 4.9. alpha is half of what a hot group has on average, so that all of them are found to be hot."""
    tables = Table41(settings.rows, _joining(settings, JOINING), settings.seed)
    rows = tables.partners()
    tree, arrivals = select_tree(rows), select_arrivals(tables.arrivals(MOST))
    a = Normal(0.01 * DOMAIN, 0.001 * DOMAIN)
    cells, counts, shares, taus = [], [], [], []
    for share in settings.hot_shares:
        rectangles = tables.clustered(settings.hot_queries, hot=share, groups=settings.hot_groups, a=a)
        taus.append(stabbing_number(rectangles[:, 2], rectangles[:, 3]))
        alpha = share / settings.hot_groups / 2
        traditional, hot = _filled((SelectFirst, partial(Hotspot, alpha)), rectangles)
        check_same_rows((traditional, hot), tree, rows.c, arrivals, rectangles)
        assert isinstance(hot, Hotspot)
        counts.append(hot.hot_groups)
        shares.append(1.0 - hot.cold / len(rectangles))
        cells += [
            PlanCell("SelectFirst", share, finding(traditional, tree, arrivals)),
            PlanCell("Hotspot", share, finding(hot, tree, arrivals)),
        ]
        tick(f"Figure 4.9, {share:.0%} hot")
    curves = measure(cells, settings.rounds, settings.budget_s)
    us = np.array(next(curve for curve in curves if curve.name == "Hotspot").us)
    slope, start = np.polyfit(settings.hot_shares, us, 1)
    off = us - (start + slope * np.array(settings.hot_shares))
    r_squared = 1.0 - float((off**2).sum() / ((us - us.mean()) ** 2).sum())
    title = f"{settings.hot_queries:,} queries, at most {settings.hot_groups} hot groups"
    chart = JoinChart("4.9", title, "share of queries in hot groups", tuple(curves), tuple(taus))
    return HotspotSection(chart, tuple(counts), tuple(shares), float(slope), r_squared)


# --- Figure 4.10: band joins ---------------------------------------------------------------------------------------

BANDS: dict[str, Callable[[], WayOfBands]] = {
    BandGroups.name: BandGroups,
    BandMerge.name: BandMerge,
    BandDataOuter.name: BandDataOuter,
    BandQueryOuter.name: BandQueryOuter,
}


def _band_chart(
    settings: JoinSettings,
    chart: tuple[str, str, str],
    places: Sequence[tuple[float, Floats]],
    names: Sequence[str],
    tick: Tick,
) -> JoinChart:
    tables = Table41(settings.rows, None, settings.seed)
    tree, arrivals = band_tree(tables.partners()), band_arrivals(tables.arrivals(MOST))
    cells, taus = [], []
    for x, rectangles in places:
        plans = {name: BANDS[name]() for name in names}
        for plan in plans.values():
            plan.add(_ids(rectangles), rectangles)
        check_same_counts(plans, tree, arrivals)
        cells += [PlanCell(name, x, counting(plan, tree, arrivals)) for name, plan in plans.items()]
        taus.append(stabbing_number(rectangles[:, 2], rectangles[:, 3]))
    curves = measure(cells, settings.rounds, settings.budget_s, lambda what: tick(f"Figure {chart[0]}, {what}"))
    return JoinChart(*chart, tuple(curves), tuple(taus))


@dataclass(frozen=True, slots=True)
class BandSection:
    """Both figures, and 100,000 bands in about 60 groups, where the goals are."""

    by_queries: JoinChart
    by_groups: JoinChart
    sixty: JoinChart


def bands(settings: JoinSettings, tick: Tick) -> BandSection:
    """Figure 4.10."""
    tables = Table41(settings.rows, None, settings.seed)
    names = list(BANDS)
    by_queries = [(float(n), tables.bands(n)) for n in settings.bands]
    n = settings.queries
    by_groups = [(float(groups), tables.bands(n, length_for(groups, n))) for groups in settings.band_groups]
    sixty = [(float(n), tables.bands(n, LENGTH_60))]
    return BandSection(
        _band_chart(settings, ("4.10(i)", "10 to 60 groups", "queries"), by_queries, names, tick),
        _band_chart(settings, ("4.10(ii)", f"{n:,} queries", "groups"), by_groups, names[:-1], tick),
        _band_chart(settings, ("4.10", "about 60 groups", "queries"), sixty, names, tick),
    )


# --- Figure 4.11: upkeep -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UpkeepLine:
    """What a change of the subscriptions costs: one to a call, and many."""

    name: str
    single_us: float
    batch_us: float
    single_ratio: float  # to BJ-MJ, round by round
    batch_ratio: float


@dataclass(frozen=True, slots=True)
class UpkeepSection:
    """Figure 4.11."""

    queries: int
    batch: int
    lines: tuple[UpkeepLine, ...]


#: Changes to a call, where a call has many; changes in a round.
BATCH, ROUND = 1_000, 2_000
EPSILON = 3.0
ENVELOPES = "groups as the server keeps them"


class Maintained(Protocol):
    """What keeps ranges in some order while they come and go."""

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Ranges come."""

    def remove(self, ids: Ints) -> None:
        """Ranges go."""


class _FollowedHotspot(Hotspot):
    """Envelopes that are right after each change, not only when a row arrives."""

    def add(self, ids: Ints, rectangles: Floats) -> None:
        super().add(ids, rectangles)
        self.follow()

    def remove(self, ids: Ints) -> None:
        super().remove(ids)
        self.follow()


def upkeep(settings: JoinSettings, tick: Tick) -> UpkeepSection:
    """Inserts and deletes, each with probability 1/2, of ranges of the same distribution.

    Every structure sees the same changes; a call has one, or a thousand (those that come first, then those that go).
    None of them leaves work for the next look-up.
    """
    tables = Table41(settings.rows, None, settings.seed)
    n = settings.queries
    start, fresh = tables.bands(n), tables.bands(n, name="later")
    kinds: dict[str, Callable[[], Maintained]] = {
        BandGroups.name: lambda: BandGroups(EPSILON),
        ENVELOPES: lambda: _FollowedHotspot(alpha=0.0, epsilon=EPSILON),
        BandMerge.name: BandMerge,
        BandDataOuter.name: BandDataOuter,
    }
    found: dict[tuple[str, int], list[float]] = {}
    for size in (1, BATCH):
        plans = {name: kind() for name, kind in kinds.items()}
        for plan in plans.values():
            plan.add(_ids(start), start)
            plan.add(np.array([2 * n]), fresh[:1])  # compiles, and makes room for all ids
            plan.remove(np.array([2 * n]))
        random = generator(settings.seed, "upkeep", size)
        present, free = list(range(n)), list(range(2 * n, n - 1, -1))
        total = min(settings.changes, n)
        at, seen = 0, 0
        while seen < total:
            calls, turn = [], min(ROUND, total - seen)
            for _ in range(max(1, turn // size)):
                is_insert = random.random(size) < 0.5
                coming = [free.pop() for _ in range(int(is_insert.sum()))]
                going = [_taken(present, int(random.integers(len(present)))) for _ in range(size - len(coming))]
                rectangles = fresh[(at + np.arange(len(coming))) % n]
                at += len(coming)
                present += coming
                free = going + free
                calls.append((np.array(coming, np.int64), rectangles, np.array(going, np.int64)))
            for name in random.permutation(list(plans)).tolist():  # who comes first finds the changes in no cache
                plan, began = plans[name], thread_time()
                for coming_ids, rectangles, going_ids in calls:
                    if len(coming_ids):
                        plan.add(coming_ids, rectangles)
                    if len(going_ids):
                        plan.remove(going_ids)
                took = thread_time() - began
                found.setdefault((name, size), []).append(1e6 * took / (size * len(calls)))
            seen += turn
        tick(f"Figure 4.11, {size:,} to a call")
    lines = []
    for name in kinds:
        # Amortised: the mean, since a rebuild now and then is part of the cost.
        costs = [float(np.mean(found[name, size])) for size in (1, BATCH)]
        ratios = [float(np.mean(found[name, size]) / np.mean(found[BandMerge.name, size])) for size in (1, BATCH)]
        lines.append(UpkeepLine(name, *costs, *ratios))
    return UpkeepSection(n, BATCH, tuple(lines))


def _taken(present: list[int], place: int) -> int:
    """Take one out of a list whose order does not matter."""
    present[place], present[-1] = present[-1], present[place]
    return present.pop()


# --- Figure 4.12: histograms ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistogramErrors:
    """Mean relative errors of 5,000 uniform stabbing queries, by the number of buckets. Of a count of 0, the error
    relative to 1."""

    tau: int
    buckets: tuple[int, ...]
    ours: tuple[float, ...]
    equal: tuple[float, ...]
    optimal: tuple[float, ...]
    build_ms: float  # ours, with the fewest buckets
    optimal_ms: float


STABS = 5_000


def histograms(settings: JoinSettings, tick: Tick) -> HistogramErrors:
    """Figure 4.12: 100,000 intervals in the range [0, 10000], as the text gives them."""
    low, high = Table41(seed=settings.seed).intervals(settings.queries)
    tau = stabbing_number(low, high)
    low, high = np.sort(low), np.sort(high)
    xs = generator(settings.seed, "stabs").uniform(0.0, DOMAIN, STABS)
    true: Ints = np.searchsorted(low, xs, "right") - np.searchsorted(high, xs, "left")
    counts = Counts.of(low, high, Density.uniform(0.0, DOMAIN))
    ways: tuple[Callable[[int], Steps], ...] = (
        lambda buckets: by_groups(low, high, counts, buckets),
        lambda buckets: equal_width(counts, buckets),
        lambda buckets: optimal(counts, buckets),
    )
    ours, equal, best = (tuple(_error(way(k), xs, true) for k in settings.buckets) for way in ways)
    took, _, best_took = (1e3 * _median_time(partial(way, settings.buckets[0])) for way in ways)
    tick("Figure 4.12")
    return HistogramErrors(tau, settings.buckets, ours, equal, best, took, best_took)


def _error(steps: Steps, xs: Floats, true: Ints) -> float:
    return float((np.abs(steps.at(xs) - true) / np.maximum(true, 1)).mean())


def _median_time(run: Callable[[], object]) -> float:
    return median(thread_timed(lambda count: run(), 1) for _ in range(3))


# --- Figures 4.13 to 4.16: a plan per row --------------------------------------------------------------------------

DYNAMIC, HINDSIGHT = "a plan per row", "best in hindsight"


@dataclass(frozen=True, slots=True)
class MixedLine:
    """One size of the mixed workload."""

    queries: int
    rows: int
    tau: int
    hot_groups: int
    us: dict[str, float]  # plan to microseconds an arrival; median of the rounds
    shares: dict[str, float]  # of the arrivals, that each plan was chosen for
    best_shares: dict[str, float]  # .. and should have been
    right: float  # share of the arrivals for which the fastest plan was chosen
    over_best: float  # cost of the best single plan, by that of a plan per row; median of the ratios round by round
    over_hotspot: float  # the same of always Hotspot


def planning(settings: JoinSettings, tick: Tick) -> tuple[MixedLine, ...]:
    """Figures 4.13 to 4.16: as many rows as queries, 70 % of the queries in 200 clusters, rows of R uniform.

    A row may meet nobody or thousands, and pass the selections of nobody or of some per cent: no plan is best for all.
    What plans cost here is measured first, as by `hullcast calibrate`.
    """
    workloads = QUICK_WORKLOADS if len(settings.mixed) == 1 else WORKLOADS
    runs = list(measured(workloads, quick=workloads is QUICK_WORKLOADS, tick=lambda what: None))
    coefficients = fit(runs, this_machine(), DEFAULTS).coefficients
    tick("costs of plans on this machine")
    lines = []
    for size in settings.mixed:
        lines.append(_mixed(settings, size, coefficients))
        tick(f"Figure 4.13, {size:,}")
    return tuple(lines)


def _mixed(settings: JoinSettings, size: int, coefficients: Coefficients) -> MixedLine:
    tables = Table41(size, max(1, size // 100), settings.seed)
    rows = tables.partners()
    tree, arrivals = select_tree(rows), select_arrivals(tables.arrivals(settings.mixed_arrivals))
    rectangles = tables.clustered(size, hot=0.7, groups=200, a=MIXED_A, midpoint_a=MIXED_MIDPOINT)
    plans = dict(zip(PLANS, _filled((JoinFirst, JoinFirstEach, SelectFirst, Hotspot), rectangles), strict=True))
    check_same_rows(list(plans.values()), tree, rows.c, arrivals, rectangles)
    hot = plans[Hotspot.name]
    assert isinstance(hot, Hotspot)
    planner = Planner(band=False, coefficients=coefficients)
    planner.add(rectangles)
    low, high = float(rectangles[:, 2].min()), float(rectangles[:, 3].max())
    facts = Facts(size, size, hot.hot_groups, hot.pieces, hot.cold, y_low=low, y_high=high)
    fastest = _fastest(plans, tree, arrivals)

    def chosen_by(numbers: Ints) -> None:
        for number, plan in enumerate(plans.values()):
            at = np.flatnonzero(numbers == number)
            if len(at):
                plan.spans(tree, arrivals.take(at))

    ways: dict[str, Callable[[int], object]] = {name: finding(plan, tree, arrivals) for name, plan in plans.items()}
    ways[DYNAMIC] = lambda count: chosen_by(planner.choose(tree, arrivals, facts))
    ways[HINDSIGHT] = lambda count: chosen_by(fastest)
    count = len(arrivals.xs)
    timed = {name: lambda turn, way=way: 1e6 * thread_timed(way, count) / count for name, way in ways.items()}
    found = in_turns(timed, settings.rounds, quietly, "")
    us = {name: median(times) for name, times in found.items()}
    best = min(plans, key=us.__getitem__)
    numbers = planner.choose(tree, arrivals, facts)
    return MixedLine(
        size,
        size,
        stabbing_number(rectangles[:, 2], rectangles[:, 3]),
        facts.groups,
        us,
        _shares(numbers),
        _shares(fastest),
        float((numbers == fastest).mean()),
        *(median(a / b for a, b in zip(found[name], found[DYNAMIC], strict=True)) for name in (best, Hotspot.name)),
    )


def _shares(numbers: Ints) -> dict[str, float]:
    return dict(zip(PLANS, (np.bincount(numbers, minlength=len(PLANS)) / len(numbers)).tolist(), strict=True))


def _fastest(plans: dict[str, JoinPlan], tree: Floats, arrivals: Arrivals) -> Ints:
    """The plan that is fastest for each arrival by itself, by the best of three attempts."""
    least = np.full((len(plans), len(arrivals.xs)), np.inf)
    for _ in range(3):
        for i in range(len(arrivals.xs)):
            one = arrivals.take(np.full(1, i))
            for number, plan in enumerate(plans.values()):
                began = perf_counter_ns()
                plan.spans(tree, one)
                least[number, i] = min(least[number, i], perf_counter_ns() - began)
    fastest: Ints = least.argmin(axis=0)
    return fastest
