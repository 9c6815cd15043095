"""Sections of `hullcast bench joins`: Figures 4.2 and 4.7 to 4.12 of Xie (2007), measured plan by plan.

Of select-joins the naming of affected queries is measured; of band joins their counting, but for BJ-SSI where they
begin in its sequences. Writing result rows is left out, as it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import thread_time

import numpy as np

from hullcast.broker.joins import ssi
from hullcast.broker.joins.histogram import Counts, Density, Steps, by_groups
from hullcast.broker.joins.plan import Arrivals
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.bench.joins.cells import (
    MOST,
    Maintained,
    PlanCell,
    WayOfBands,
    asking,
    band_arrivals,
    band_tree,
    check_same_answers,
    check_same_rows,
    filled,
    measure,
    select_arrivals,
    select_tree,
    thread_timed,
)
from hullcast.sim.bench.joins.charts import PERCENT, TIMES, JoinChart, JoinCurve
from hullcast.sim.bench.joins.live import QUICK_LIVE_JOINS, LiveJoinSettings
from hullcast.sim.joins.band import BandDataOuter, BandMerge, BandQueryOuter
from hullcast.sim.joins.band_groups import BandGroups
from hullcast.sim.joins.band_sequences import BandSequences
from hullcast.sim.joins.histogram import by_k_means, equal_width, optimal
from hullcast.sim.joins.selects import SelectJoins, SjJoinFirst, SjNaive, SjSelectFirst
from hullcast.sim.joins.ssi import SjHotspot, Ssi
from hullcast.sim.seeds import generator
from hullcast.sim.traces.table41 import DOMAIN, JOINING, LENGTH_60, Normal, Table41, length_for, stabbing_number

#: A row passes 250 of 100,000 selections in Figure 4.7(ii).
PASSING = 250
#: What the server does: it asks which stretches of S somebody wants, not which queries are affected.
OURS = "ours (spans)"
#: What lists the affected queries can count them instead: closer to "without output".
COUNTED = ", counted"


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
    mixed_arrivals: int = 200
    rounds: int = 7  # seeds, too, where chance has a part
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
    mixed=(100_000, 200_000),
    mixed_arrivals=60,
    rounds=3,
    budget_s=0.008,
    live=QUICK_LIVE_JOINS,
)


# --- Figure 4.2: how much the largest groups cover -----------------------------------------------------------------


def coverage(settings: JoinSettings, tick: Tick) -> tuple[JoinChart, ...]:
    """Figure 4.2: 5,000 groups whose sizes follow a law of Zipf."""
    tops = (50, 100, 250, 500, 1_000, 2_500, 5_000)
    curves = []
    for beta in (1.0, 1.1, 1.2):
        total = np.cumsum(np.arange(1.0, 5_001) ** -beta)
        curves.append(JoinCurve(f"beta {beta}", tops, tuple((float(100 * total[k - 1] / total[-1]),) for k in tops)))
    tick("Figure 4.2")
    return (JoinChart("4.2", "queries in the largest of 5,000 groups", "groups", tuple(curves), PERCENT),)


# --- Figures 4.7 to 4.9: select-joins ------------------------------------------------------------------------------

SELECTS: dict[str, Callable[[], SelectJoins]] = {
    "SSI": Ssi,
    "SelectFirst": SjSelectFirst,
    "JoinFirst": SjJoinFirst,
    "NAIVE": SjNaive,
}


class _Selects:
    """All plans at some places of one chart, until they are measured."""

    def __init__(self, settings: JoinSettings) -> None:
        self._settings = settings
        self._cells: list[PlanCell] = []
        self._groups: list[int] = []
        self._tables: Table41 | None = None

    def at(
        self, x: float, tables: Table41, rectangles: Floats, kinds: Mapping[str, Callable[[], SelectJoins]],
        alpha: float = 0.0,
    ) -> None:  # fmt: skip
        """Plans that name the affected queries, and ours, which finds the rows that somebody wants."""
        if tables != self._tables:
            self._tables, rows = tables, tables.partners()
            self._tree, self._c = select_tree(rows), rows.c
            self._arrivals = select_arrivals(tables.arrivals(MOST))
        plans = filled(kinds, rectangles)
        ours = ssi.Hotspot(alpha)
        ours.add(np.arange(len(rectangles)), rectangles)
        check_same_answers({name: plan.affected for name, plan in plans.items()}, self._tree, self._arrivals)
        check_same_rows([ours], self._tree, self._c, self._arrivals, rectangles)
        hot = next(plan for plan in plans.values() if isinstance(plan, SjHotspot))
        asks: dict[str, Callable[[Floats, Arrivals], object]] = {name: plan.affected for name, plan in plans.items()}
        asks |= {f"{hot.name}{COUNTED}": hot.count_affected, OURS: ours.spans}
        for name, ask in asks.items():
            self._cells.append(PlanCell(name, x, asking(ask, self._tree, self._arrivals)))
        self._groups.append(len(hot.sizes) if alpha else stabbing_number(rectangles[:, 2], rectangles[:, 3]))

    def measured(self, figure: str, title: str, x_label: str, tick: Tick) -> JoinChart:
        """In turns."""
        settings = self._settings
        curves = measure(self._cells, settings.rounds, settings.budget_s, lambda what: tick(f"Figure {figure}, {what}"))
        return JoinChart(figure, title, x_label, curves, groups=tuple(self._groups))


def selects(settings: JoinSettings, tick: Tick) -> tuple[JoinChart, ...]:
    """Figures 4.7 and 4.8."""
    tables, n = _tables(settings), settings.queries
    few = Normal(DOMAIN * PASSING / n, 0.1 * DOMAIN * PASSING / n)
    two = {name: SELECTS[name] for name in ("SSI", "SelectFirst")}
    about = f"{n:,} queries"
    thirty = f"{about}, about 30 groups"
    charts = []

    def chart(
        figure: str, title: str, x_label: str, places: Sequence[tuple[float, Table41, Floats]],
        kinds: Mapping[str, Callable[[], SelectJoins]] = SELECTS,
    ) -> None:  # fmt: skip
        several = _Selects(settings)
        for place in places:
            several.at(*place, kinds)
        charts.append(several.measured(figure, title, x_label, tick))

    by_queries = [(float(k), tables.select_joins(k, c=_thirty(k))) for k in settings.sweep]
    chart("4.7(i)", "about 30 groups", "queries", [(x, tables, queries) for x, queries in by_queries])
    by_groups = [(float(k), tables, tables.select_joins(n, a=few, c=length_for(k, n))) for k in settings.groups]
    chart("4.7(ii)", f"{about}, {PASSING} pass the selection", "groups", by_groups)
    disjoint = [(float(n), tables, tables.select_joins(n, a=few, c=Normal(0.0, 0.0)))]
    chart("4.7(ii), disjoint", f"{about}, each a group", "groups", disjoint, {k: SELECTS[k] for k in ("SSI", "NAIVE")})
    by_share = [(s, tables, tables.select_joins(n, a=_share(s))) for s in settings.selectivities]
    chart("4.8(iii)", thirty, "queries whose range of A holds the row", by_share, two)
    several = [_tables(settings, joining) for joining in settings.joining]
    by_joining = [(float(one.joining or 0), one, one.select_joins(n)) for one in several]
    chart("4.8(iv)", thirty, "rows of S that a row of R meets", by_joining)
    return tuple(charts)


def _tables(settings: JoinSettings, joining: int = JOINING) -> Table41:
    """Of a smaller table as many rows join, relatively."""
    return Table41(settings.rows, max(1, joining * settings.rows // 100_000), settings.seed)


def _thirty(queries: int) -> Normal:
    """Lengths with which so many queries make about 30 groups, or as many as they can."""
    return length_for(min(30, max(1, queries * 6 // 10)), queries, shape=0.2)


def _share(share: float) -> Normal:
    """Lengths with which so large a share of the ranges holds a row's A."""
    return Normal(share * DOMAIN, 0.1 * share * DOMAIN)


def hotspots(settings: JoinSettings, tick: Tick) -> tuple[JoinChart, ...]:
    """Figure 4.9. alpha is half of what a hot group has on average, so that all of them are found to be hot."""
    tables, several = _tables(settings), _Selects(settings)
    for share in settings.hot_shares:
        queries = tables.clustered(settings.hot_queries, hot=share, groups=settings.hot_groups, a=HOT_A)
        alpha = share / settings.hot_groups / 2
        several.at(share, tables, queries, {"Hotspot": partial(SjHotspot, alpha), "SelectFirst": SjSelectFirst}, alpha)
        tick(f"Figure 4.9, {share:.0%} hot")
    title = f"{settings.hot_queries:,} queries, at most {settings.hot_groups} hot groups"
    return (several.measured("4.9", title, "share of queries in hot groups", lambda what: None),)


#: Ranges of A of Figure 4.9.
HOT_A = Normal(1_000.0, 210.0)


# --- Figure 4.10: band joins ---------------------------------------------------------------------------------------

#: BJ-SSI finds where the affected ranges begin; to read them off as well is another curve.
READ = "BJ-SSI, read off"
BANDS: dict[str, Callable[[], WayOfBands]] = {
    kind.name: kind for kind in (BandSequences, BandGroups, BandMerge, BandDataOuter, BandQueryOuter)
}


def _band_chart(
    settings: JoinSettings, figure: str, title: str, x_label: str, places: Sequence[tuple[float, Floats]],
    names: Sequence[str], tick: Tick,
) -> JoinChart:  # fmt: skip
    tables = Table41(settings.rows, None, settings.seed)
    tree, arrivals = band_tree(tables.partners()), band_arrivals(tables.arrivals(MOST))
    cells = []
    for x, rectangles in places:
        plans = filled({name: BANDS[name] for name in names}, rectangles)
        asks = {name: plan.count_affected for name, plan in plans.items()}
        check_same_answers(asks, tree, arrivals)
        sequences = plans[BandSequences.name]
        assert isinstance(sequences, BandSequences)
        asks |= {BandSequences.name: sequences.reached, READ: sequences.count_affected}
        cells += [PlanCell(name, x, asking(ask, tree, arrivals)) for name, ask in asks.items()]
    curves = measure(cells, settings.rounds, settings.budget_s, lambda what: tick(f"Figure {figure}, {what}"))
    groups = tuple(stabbing_number(rectangles[:, 2], rectangles[:, 3]) for _, rectangles in places)
    return JoinChart(figure, title, x_label, curves, groups=groups)


def bands(settings: JoinSettings, tick: Tick) -> tuple[JoinChart, ...]:
    """Figure 4.10, and 100,000 bands in about 60 groups, where the goals are."""
    tables, n, names = Table41(settings.rows, None, settings.seed), settings.queries, list(BANDS)
    by_queries = [(float(k), tables.bands(k)) for k in settings.bands]
    by_groups = [(float(groups), tables.bands(n, length_for(groups, n))) for groups in settings.band_groups]
    sixty = [(float(n), tables.bands(n, LENGTH_60))]
    return (
        _band_chart(settings, "4.10(i)", "10 to 60 groups", "queries", by_queries, names, tick),
        _band_chart(settings, "4.10(ii)", f"{n:,} queries", "groups", by_groups, names[:-1], tick),
        _band_chart(settings, "4.10, goals", "about 60 groups", "queries", sixty, names, tick),
    )


# --- Figure 4.11: upkeep -------------------------------------------------------------------------------------------

#: Changes to a call, where a call has many; changes in a round, and parts that all rounds are put into.
BATCH, ROUND, PARTS = 1_000, 2_000, 5
EPSILON = 3.0
SERVERS = "groups as the server keeps them"


class _FollowedHotspot(ssi.Hotspot):
    """Envelopes that are right after each change, not only when a row arrives."""

    def add(self, ids: Ints, rectangles: Floats) -> None:
        super().add(ids, rectangles)
        self.follow()

    def remove(self, ids: Ints) -> None:
        super().remove(ids)
        self.follow()


MAINTAINED: dict[str, Callable[[], Maintained]] = {
    BandSequences.name: partial(BandSequences, EPSILON),
    BandGroups.name: partial(BandGroups, EPSILON),
    SERVERS: partial(_FollowedHotspot, alpha=0.0, epsilon=EPSILON),
    BandMerge.name: BandMerge,
    BandDataOuter.name: BandDataOuter,
}


def upkeep(settings: JoinSettings, tick: Tick) -> tuple[JoinChart, ...]:
    """Inserts and deletes, each with probability 1/2, of ranges of the same distribution.

    Every structure sees the same changes; a call has one, or a thousand (those that come first, then those that go).
    None of them leaves work for the next look-up. A value is the mean of a part of all changes, since a partition
    that is computed again now and then is part of the cost.
    """
    sizes = (1, BATCH)
    found = {size: _changed(settings, size) for size in sizes}
    tick("Figure 4.11")
    curves = tuple(JoinCurve(name, sizes, tuple(found[size][name] for size in sizes)) for name in MAINTAINED)
    return (JoinChart("4.11", f"from {settings.queries:,} bands, a change", "changes to a call", curves, TIMES),)


def _changed(settings: JoinSettings, size: int) -> dict[str, tuple[float, ...]]:
    """Microseconds a change, with so many to a call: the means of the parts."""
    tables, n = Table41(settings.rows, None, settings.seed), settings.queries
    start, fresh = tables.bands(n), tables.bands(n, name="later")
    plans = filled(MAINTAINED, start)
    for plan in plans.values():
        plan.add(np.array([2 * n]), fresh[:1])  # compiles, and makes room for all ids
        plan.remove(np.array([2 * n]))
    random = generator(settings.seed, "upkeep", size)
    present, free = list(range(n)), list(range(2 * n, n - 1, -1))
    took: dict[str, list[float]] = {name: [] for name in plans}
    at, per_call = 0, max(1, ROUND // size)
    for _ in range(max(PARTS, settings.changes // ROUND)):
        calls = []
        for _ in range(per_call):
            come = int((random.random(size) < 0.5).sum())
            coming = [free.pop() for _ in range(come)]
            going = [_taken(present, int(random.integers(len(present)))) for _ in range(size - come)]
            rectangles = fresh[(at + np.arange(come)) % n]
            at += come
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
            took[name].append(1e6 * (thread_time() - began) / (size * per_call))
    return {name: tuple(float(part.mean()) for part in np.array_split(us, PARTS)) for name, us in took.items()}


def _taken(present: list[int], place: int) -> int:
    """Take one out of a list whose order does not matter."""
    present[place], present[-1] = present[-1], present[place]
    return present.pop()


# --- Figure 4.12: histograms ---------------------------------------------------------------------------------------

STABS = 5_000
HISTOGRAMS = ("SSI-HIST", "EQW-HIST", "OPTIMAL", "ours")


def histograms(settings: JoinSettings, tick: Tick) -> tuple[JoinChart, ...]:
    """Figure 4.12: mean relative errors of uniform stabbing queries; of a count of 0 the error relative to 1.

    A round is a seed: other intervals, and other queries.
    """
    errors = {name: [list[float]() for _ in settings.buckets] for name in HISTOGRAMS}
    seconds: dict[str, list[float]] = {name: [] for name in HISTOGRAMS}
    groups = []
    for seed in range(settings.seed, settings.seed + settings.rounds):
        low, high = Table41(seed=seed).intervals(settings.queries)
        groups.append(float(stabbing_number(low, high)))
        lows, highs = np.sort(low), np.sort(high)
        xs = generator(seed, "stabs").uniform(0.0, DOMAIN, STABS)
        true: Ints = np.searchsorted(lows, xs, "right") - np.searchsorted(highs, xs, "left")
        counts = Counts.of(lows, highs, Density.uniform(0.0, DOMAIN))
        ways: tuple[Callable[[int], Steps], ...] = (
            partial(by_k_means, low, high),
            partial(equal_width, counts),
            partial(optimal, counts),
            partial(by_groups, lows, highs, counts),
        )
        for name, way in zip(HISTOGRAMS, ways, strict=True):
            for place, buckets in enumerate(settings.buckets):
                errors[name][place].append(100 * _error(way(buckets), xs, true))
            seconds[name].append(1e6 * thread_timed(way, settings.buckets[0]))
    tick("Figure 4.12")
    curves = [JoinCurve(name, settings.buckets, tuple(map(tuple, errors[name]))) for name in HISTOGRAMS]
    fewest = settings.buckets[:1]
    building = [JoinCurve(name, fewest, (tuple(seconds[name]),)) for name in HISTOGRAMS]
    some = JoinCurve("groups", fewest, (tuple(groups),))
    about = f"{settings.queries:,} intervals"
    return (
        JoinChart("4.12", f"{about}, mean relative error", "buckets", tuple(curves), PERCENT),
        JoinChart("4.12, building", about, "buckets", tuple(building), TIMES),
        JoinChart("4.12, groups", about, "buckets", (some,), "stabbing groups"),
    )


def _error(steps: Steps, xs: Floats, true: Ints) -> float:
    return float((np.abs(steps.at(xs) - true) / np.maximum(true, 1)).mean())
