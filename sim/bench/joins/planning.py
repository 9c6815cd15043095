"""A plan for each row: Table 4.2 and Figures 4.13 to 4.21 of Xie (2007), and the server's plans beside them.

Every arrival is taken by every plan, by itself, in each round. From these times all follows: a plan's throughput, that
of any choice among the plans, and which choice would have been best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import thread_time_ns
from typing import NamedTuple

import numpy as np

from hullcast.broker.joins import costs, ssi
from hullcast.broker.joins.plan import Arrivals
from hullcast.broker.joins.planner import Planner
from hullcast.broker.server.calibration import this_machine
from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.sim.bench.frame.benchmark import Tick, quietly
from hullcast.sim.bench.joins.cells import (
    check_same_answers,
    check_same_rows,
    filled,
    select_arrivals,
    select_tree,
    thread_timed,
)
from hullcast.sim.bench.joins.charts import PERCENT, RATES, JoinChart, JoinCurve
from hullcast.sim.bench.joins.plan_costs import PLANS_MEASURED, QUICK, WORKLOADS, measured
from hullcast.sim.bench.joins.sections import OURS, JoinSettings
from hullcast.sim.joins.fitting import fit
from hullcast.sim.joins.routing import PLANS, TABLE_42, PlanRouter, RouterLoad, regress, terms
from hullcast.sim.joins.selects import JoinFirstEach, SelectJoins, SjJoinFirst, SjSelectFirst
from hullcast.sim.joins.ssi import SjHotspot
from hullcast.sim.traces.table41 import Normal, Table41, joining_rows

DYNAMIC, OPT = "DYNAMIC", "OPT"
#: A group with this share of all queries is hot.
ALPHA = 0.002
WAYS: dict[str, Callable[[], SelectJoins]] = {
    "JoinFirst-E": SjJoinFirst,
    "JoinFirst-S": JoinFirstEach,
    "SelectFirst": SjSelectFirst,
    "Hotspot": lambda: SjHotspot(ALPHA),
}
assert tuple(WAYS) == PLANS == tuple(costs.PLANS)
#: Ranges of A: a row in the middle passes 40 % of the selections, one in four passes hardly any.
MIXED_A, MIXED_MIDPOINT = Normal(1_000.0, 210.0), Normal(5_000.0, 1_000.0)
#: Share of the queries in clusters, and how many clusters: of the figures, and for the regression.
HOT, GROUPS = 0.9, 30
FITTED = ((1.0, 0.2, 0.9, 30), (0.2, 1.0, 0.9, 60), (0.5, 0.5, 0.5, 15), (1.0, 1.0, 0.7, 100))
PARTS = 4


class PlanWorkload:
    """Some rows and queries, with all plans that name the affected queries."""

    def __init__(self, settings: JoinSettings, rows: int, queries: int, hot: float, groups: int) -> None:
        tables = Table41(rows, max(1, rows // 100), settings.seed)
        self.partners = tables.partners()
        self.tree = select_tree(self.partners)
        self.queries = tables.clustered(queries, hot=hot, groups=groups, a=MIXED_A, midpoint_a=MIXED_MIDPOINT)
        self.arrivals = select_arrivals(tables.arrivals(settings.mixed_arrivals))
        self.plans = filled(WAYS, self.queries)
        check_same_answers({name: plan.affected for name, plan in self.plans.items()}, self.tree, self.arrivals)
        hotspot = self.plans["Hotspot"]
        assert isinstance(hotspot, SjHotspot)
        self.load = RouterLoad(rows, queries, hotspot.sizes, hotspot.cold)
        self.k_j = joining_rows(self.partners, self.arrivals.groups).astype(np.float64)
        lows, highs = np.sort(self.queries[:, :2], axis=0).T
        xs = self.arrivals.xs
        self.k_s = (np.searchsorted(lows, xs, "right") - np.searchsorted(highs, xs, "left")).astype(np.float64)

    def costs(self, rounds: int) -> Floats:
        """(round, plan, arrival): microseconds."""
        return _costs([plan.affected for plan in self.plans.values()], self.tree, self.arrivals, rounds)


def _costs(
    asks: Sequence[Callable[[Floats, Arrivals], object]], tree: Floats, arrivals: Arrivals, rounds: int
) -> Floats:
    """(round, plan, arrival): microseconds. One round more comes first, to compile and to warm up."""
    found = np.empty((rounds + 1, len(asks), len(arrivals.xs)))
    for turn in range(rounds + 1):
        for i in range(len(arrivals.xs)):
            one = arrivals.take(np.full(1, i))
            for number, ask in enumerate(asks):
                began = thread_time_ns()
                ask(tree, one)
                found[turn, number, i] = (thread_time_ns() - began) / 1e3
    return found[1:]


class Routed(NamedTuple):
    """What each arrival costs by each plan, and the plan that was chosen for it."""

    costs: Floats
    chosen: Ints
    choosing_us: float

    def part(self, at: Ints) -> Routed:
        """Of these arrivals."""
        return Routed(self.costs[:, :, at], self.chosen[at], self.choosing_us)

    def rates(self, dynamic: str) -> dict[str, tuple[float, ...]]:
        """Microseconds an arrival by each method, round by round."""
        each = dict(zip(PLANS, self.costs.mean(axis=2).T.tolist(), strict=True))
        each[dynamic] = (self._by(self.chosen) + self.choosing_us).tolist()
        if dynamic == DYNAMIC:
            each[OPT] = self._by(np.median(self.costs, axis=0).argmin(axis=0)).tolist()
        return {name: tuple(us) for name, us in each.items()}

    def _by(self, plans: Ints) -> Floats:
        found: Floats = self.costs[:, plans, np.arange(len(plans))].mean(axis=1)
        return found

    def shares(self) -> dict[str, tuple[float, ...]]:
        """Per cent of the arrivals that each plan was chosen for."""
        counted = 100 * np.bincount(self.chosen, minlength=len(PLANS)) / len(self.chosen)
        return {name: (share,) for name, share in zip(PLANS, counted.tolist(), strict=True)}

    def right(self) -> dict[str, tuple[float, ...]]:
        """Per cent of the arrivals for which the cheapest plan was chosen, round by round."""
        return {"consistent with OPT": tuple((100 * (self.costs.argmin(axis=1) == self.chosen).mean(axis=1)).tolist())}


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A row of Table 4.2: microseconds, and half of the 95 % interval."""

    plan: str
    name: str
    theirs: str
    value: float
    half: float


@dataclass(frozen=True, slots=True)
class Planning:
    """Table 4.2, and the figures."""

    coefficients: tuple[Coefficient, ...]
    charts: tuple[JoinChart, ...]


def planning(settings: JoinSettings, tick: Tick) -> Planning:
    """As many rows as queries; a row meets none to 4 % of the rows, and passes none to 40 % of the selections."""
    values, halves = _regressed(settings)
    tick("Table 4.2")
    workloads = QUICK if len(settings.mixed) < 3 else WORKLOADS
    runs = list(measured(workloads, quick=workloads is QUICK, tick=quietly))
    coefficients = fit(runs, this_machine(), costs.DEFAULTS).coefficients
    tick("costs of the server's plans")
    lines, own = [], []
    for size in settings.mixed:
        load = PlanWorkload(settings, size, size, HOT, GROUPS)
        router = PlanRouter(load.load, load.partners.b, load.queries, values)
        lines.append((float(size), _routed(load.costs(settings.rounds), partial(_choice, router, load))))
        own.append((float(size), _ours(settings, load, coefficients)))
        tick(f"Figure 4.13, {size:,}")
    last = lines[-1][1]
    k_j, k_s = load.k_j, 100 * load.k_s / load.load.queries
    about = f"{size:,} queries and rows"
    rates, *others = _charts(("4.13", "4.14", "4.15"), "as many queries as rows", "queries", lines)
    server = _chart("4.13, ours", "the server's plans", "queries", [(x, one.rates(OURS)) for x, one in own])
    charts = (
        replace(rates, curves=(*rates.curves, server.curves[-1])),
        *others,
        *_charts(("4.17", "4.16", "4.20"), about, "rows of S that join", _parts(last, k_j, k_j > 0)),
        *_charts(("4.19", "4.18", "4.21"), about, "% of selections that hold", _parts(last, k_s, k_j > 0)),
        server,
    )
    names = [(plan, name, theirs) for plan, name, theirs in TABLE_42]
    pairs = [pair for plan in PLANS for pair in zip(values[plan].tolist(), halves[plan].tolist(), strict=True)]
    return Planning(tuple(Coefficient(*name, *pair) for name, pair in zip(names, pairs, strict=True)), charts)


def _regressed(settings: JoinSettings) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Coefficients by plan and half of their intervals, from workloads that differ in all that costs depend on."""
    most, designs, drivers, took = settings.mixed[-1], [], [], []
    for rows, queries, hot, groups in FITTED:
        load = PlanWorkload(settings, round(rows * most), round(queries * most), hot, groups)
        took.append(np.median(load.costs(2), axis=0))
        designs.append([terms(plan, load.load, load.k_j, load.k_s) for plan in PLANS])
        drivers.append([load.k_j, load.k_j, load.k_s, load.k_s])  # of each plan
    each = (zip(*found, strict=True) for found in (designs, drivers, took))
    found = [regress(*map(np.concatenate, three)) for three in zip(*each, strict=True)]
    values, halves = (dict(zip(PLANS, some, strict=True)) for some in zip(*found, strict=True))
    return values, halves


def _choice(router: PlanRouter, load: PlanWorkload) -> Ints:
    return router.choose(load.arrivals.groups, load.arrivals.xs)


def _routed(each: Floats, choose: Callable[[], Ints]) -> Routed:
    chosen = choose()
    took = thread_timed(lambda count: choose(), 1)
    return Routed(each, chosen, 1e6 * took / len(chosen))


def _ours(settings: JoinSettings, load: PlanWorkload, coefficients: costs.Coefficients) -> Routed:
    """The server's plans and planner, which find the rows that somebody wants."""
    plans = filled({costs.PLANS[number]: make for number, make in PLANS_MEASURED.items()}, load.queries)
    check_same_rows(plans.values(), load.tree, load.partners.c, load.arrivals, load.queries)
    hot = plans["Hotspot"]
    assert isinstance(hot, ssi.Hotspot)
    planner = Planner(band=False, coefficients=coefficients)
    planner.add(load.queries)
    low, high = float(load.queries[:, 2].min()), float(load.queries[:, 3].max())
    known = (load.load.rows, load.load.queries, hot.hot_groups, hot.pieces, hot.cold)
    facts = costs.Facts(*known, y_low=low, y_high=high)
    each = _costs([plan.spans for plan in plans.values()], load.tree, load.arrivals, settings.rounds)
    return _routed(each, partial(planner.choose, load.tree, load.arrivals, facts))


def _parts(routed: Routed, values: Floats, some: Booleans) -> list[tuple[float, Routed]]:
    """Some of the arrivals, by a value, in parts of as many; x is the mean of each."""
    order = np.argsort(values, kind="stable")
    parts = np.array_split(order[some[order]], PARTS)
    return [(float(values[at].mean()), routed.part(at)) for at in parts]


def _charts(
    figures: tuple[str, str, str], about: str, x_label: str, lines: Sequence[tuple[float, Routed]]
) -> tuple[JoinChart, ...]:
    rates, shares, right = figures
    return (
        _chart(rates, about, x_label, [(x, one.rates(DYNAMIC)) for x, one in lines]),
        _chart(shares, f"{about}: chosen", x_label, [(x, one.shares()) for x, one in lines], PERCENT),
        _chart(right, f"{about}: right", x_label, [(x, one.right()) for x, one in lines], PERCENT),
    )


def _chart(
    figure: str,
    about: str,
    x_label: str,
    places: Sequence[tuple[float, dict[str, tuple[float, ...]]]],
    unit: str = RATES,
) -> JoinChart:
    xs = tuple(x for x, _ in places)
    curves = [JoinCurve(name, xs, tuple(found[name] for _, found in places)) for name in places[0][1]]
    return JoinChart(figure, about, x_label, tuple(curves), unit)
