"""Loading feeds: staleness, stretch and weighted staleness against the bounds of Bateni et al. (2009).

Figure 1 by hand, and four cases, each over how much there is to load: `load` is the share of what all places could do
at most, alpha t / p.

    any         updates of any length: eager policies against Theorem 3.1 and Corollary 3.2
    groups      three groups of quasiperiodic tables, those of a group updated at almost the same time: Lemma 4.2 and
                Theorems 4.3 and 5.1
    huge        a huge update and then a tiny one (section 4): no constant stretch in general
    questions   feeds and questions together: what policies make of both
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import inf, isclose, nan, sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hullcast.broker.warehouse.deciding.board import Board, Load, Question, Task
from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy
from hullcast.sim.experiments.studies.scheduling.baselines import POLICIES
from hullcast.sim.experiments.studies.scheduling.simulated import CountedFeed, SimulatedWarehouse
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, number, short
from hullcast.sim.seeds import generator

CITED = "Bateni et al. (2009)"
WORDS: Mapping[str, str] = {
    CITED: "M. Bateni, L. Golab, M. Hajiaghayi, H. Karloff, Scheduling to Minimize Staleness and Stretch in Real-Time "
    "Data Warehouses, SPAA 2009",
    "p, t, g": "places (processors), tables, groups of tables with similar periods",
    "alpha": "how long it takes to load what a table gets in a second; with different alphas: drawn by table, and the "
    "largest makes the load",
    "B": "the period of a group: updates are B/2 to B long",
    "tight interval": "in which all places of a group are busy",
    "load": "alpha t / p: the share of what all places could do that loading takes, if nothing waits",
    "staleness": "of a table: the time since the release up to which it is current; total: summed over time and "
    "tables, up to the end of each table's last load",
    "LOW": "the sum of squared lengths of all updates (of the time each covers); no schedule has less than LOW/2",
    "penalty": "the sum of squared flow times of batches; total staleness is at most half of it",
    "stretch": "the time from the beginning of what an update covers until it is loaded, by its length; the largest",
    "eager": "no place is idle while a table could be loaded",
    "myopic": "loads the table whose oldest update has waited longest",
    "least waited": "eager, and otherwise as bad as possible: loads the table whose oldest update has waited least",
    "group-and-run": "divides the places among groups of tables with similar periods; myopic in each",
}
#: Corollary 3.2: loads that take less than this share of what the places could do.
EAGER_LIMIT = (sqrt(3) - 1) / 2
#: By case.
PLACES = {"any": 4, "groups": 8, "huge": 4, "questions": 8}
TABLES = {"any": 16, "groups": 24, "huge": 4, "questions": 24}
PERIODS = (1.0, 10.0, 100.0)
#: What Theorems 4.3 and 5.1 allow: alpha <= (p - g) / (8 t), as a load; alpha <= 1/8 then holds, too.
CONDITION = (PLACES["groups"] - len(PERIODS)) / (8 * PLACES["groups"])
LOADS = {
    "any": (0.01, 0.03, 0.1, 0.2, 0.3, 0.36, 0.5, 0.7, 0.9, 1.0, 1.2, 1.5),
    "groups": (CONDITION / 4, CONDITION / 2, CONDITION, 0.15, 0.3, 0.5, 0.7, 0.9, 1.0, 1.2, 1.5),
}
LOADS_QUICK = {"any": (0.01, 0.1, 0.36, 0.9, 1.2), "groups": (CONDITION, 0.3, 0.9, 1.2)}
HUGE = (10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
HUGE_ALPHA = 0.1
ASKED = (0.0, 0.2, 0.4, 0.6, 0.8)
FEEDS_LOAD = 0.3
#: What stands behind the name of a policy, if alphas differ by table, or periods are not declared.
DIFFERENT, LEARNT = " with different alphas", " with learnt periods"
EAGER = ("myopic", "least waited", "myopic" + DIFFERENT)
RUNS = ("group-and-run", "group-and-run" + LEARNT, "group-and-run" + DIFFERENT)
GROUPED = (*RUNS, "myopic")
STUDIED = ("fifo", "updates-first", "myopic", "group-and-run")
#: Limits of Lemma 4.2 (of B) and of Theorems 4.3 and 5.1; and for the latter what follows from the lemma directly (see
#: the section's notes).
WAIT, STRETCH, WEIGHTED, WEIGHTED_BY_WAIT = 1 / 6, 3.0, 4.5, 1.625**2
#: Limits of our own statements.
NEARLY_ONE, LITTLE, GROWS = 1.1, 1.25, 2.0
#: So many time units a run takes at least from which growth can be told: it has a dozen updates of the longest period.
LONG = 1_000.0


class LeastWaited(WarehousePolicy):
    """An eager policy that nobody should use: Theorem 3.1 is about it, too."""

    name: ClassVar[str] = "least waited"
    about: ClassVar[str] = "loads the table that has waited least"

    def next(self, board: Board, now: float) -> Task | None:
        feed = max(board.loadable(), key=lambda feed: feed.pending[0].at, default=None)
        return None if feed is None else board.load(feed)


# -- what is measured ------------------------------------------------------------------------------------------


def points(quick: bool) -> list[dict[str, Any]]:
    """Every case with its policies, over its loads."""
    loads = LOADS_QUICK if quick else LOADS
    per_table, span = (80, 300.0) if quick else (600, 1_500.0)
    asked = ASKED[::2] if quick else ASKED
    none = {"ratio": [0.0], "asked": [0.0]}
    asking = grid(
        case=["questions"], policy=(*STUDIED, "queries-first"), load=[FEEDS_LOAD], size=[span], ratio=[0.0], asked=asked
    )
    return [
        *grid(case=["any"], policy=EAGER, load=loads["any"], size=[per_table], **none),
        *grid(case=["groups"], policy=GROUPED, load=loads["groups"], size=[span], **none),
        *grid(case=["huge"], policy=STUDIED, load=[HUGE_ALPHA], size=[2], ratio=HUGE, asked=[0.0]),
        *asking,
    ]


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """Run a policy over releases drawn at random, by the simulated clock."""
    case, name = point["case"], point["policy"].partition(" with ")[0]
    variant = point["policy"].removeprefix(name)
    feeds = drawn(case, point["size"], point["ratio"], seed)
    alphas = [alpha_of(case, point["load"])] * TABLES[case]
    if variant == DIFFERENT:
        shares = generator(seed, "scheduling", "alphas").uniform(0.0, 1.0, TABLES[case] - 1).tolist()
        alphas[1:] = [alphas[0] * share for share in shares]
    boards = [
        CountedFeed(f"T{n}", period_s=None if variant == LEARNT else of.period, weight=of.weight)
        for n, of in enumerate(feeds)
    ]
    warehouse, loads = noting({**POLICIES, LeastWaited.name: LeastWaited}[name](), PLACES[case], boards, alphas)
    for feed, of in zip(boards, feeds, strict=True):
        for at in of.released.tolist():
            warehouse.release_at(at, feed.name)
    end = max(float(of.released[-1]) for of in feeds)
    for question in questions(point["asked"], PLACES[case], end, seed):
        warehouse.ask_at(question.arrived, question)
    warehouse.run(until=end / 2)
    half = [feed.total_staleness(end / 2) for feed in boards]
    warehouse.run(until=end)
    growth = median(feed.total_staleness(end) / first - 1 for feed, first in zip(boards, half, strict=True))
    warehouse.run()
    low = sum(feed.low for feed in boards)
    return {
        "staleness": sum(feed.loaded_staleness for feed in boards) / (low / 2),
        "weighted": sum(feed.weight * feed.loaded_staleness for feed in boards)
        / (sum(feed.weight * feed.low for feed in boards) / 2),
        "penalty": sum(feed.penalty for feed in boards) / low,
        "stretch": max(feed.stretch for feed in boards),
        **(_of_groups(loads) if case == "groups" else dict.fromkeys(("update's wait", "tight"), nan)),
        "growth": growth,
        "updates per load": sum(len(of.released) for of in feeds) / sum(feed.loads for feed in boards),
        "wait": fmean([(each.began or 0.0) - each.arrived for each, _ in warehouse.answered] or [0.0]),
        "too few places": warehouse.policy.counters().get("too_few_places", 0.0),
    }


class NotedLoad(NamedTuple):
    """A load of a table: when the first update in it was released, and from when to when it had a place."""

    table: int
    released: float
    began: float
    ended: float


def noting(
    policy: WarehousePolicy, places: int, feeds: Sequence[CountedFeed], alphas: Sequence[float]
) -> tuple[SimulatedWarehouse, list[NotedLoad]]:
    """A warehouse with these tables, and all loads as they begin."""
    loads: list[NotedLoad] = []
    number = {feed.name: table for table, feed in enumerate(feeds)}

    def load_s(load: Load, board: Board) -> float:
        table = number[load.table]
        took_s = alphas[table] * covered(load)
        loads.append(NotedLoad(table, load.batch[0].at, warehouse.now, warehouse.now + took_s))
        return took_s

    warehouse = SimulatedWarehouse(policy, places, feeds=feeds, load_s=load_s)
    return warehouse, loads


def tight(loads: Iterable[NotedLoad], places: int) -> float:
    """How long all these places were busy without a gap, at most (Definition 4.1)."""
    steps = sorted([*((load.began, -1) for load in loads), *((load.ended, 1) for load in loads)])  # begins first
    longest = since = 0.0
    free = places
    for at, less in steps:
        if free > 0 >= free + less:
            since = at
        elif free <= 0 < free + less:
            longest = max(longest, at - since)
        free += less
    return longest


def _of_groups(loads: list[NotedLoad]) -> dict[str, float]:
    """The longest wait of an update, and the longest tight interval, where they are the largest part of B."""
    size = TABLES["groups"] // len(PERIODS)
    places = -(-(PLACES["groups"] - len(PERIODS)) // len(PERIODS))
    groups = [(period, [load for load in loads if load.table // size == g]) for g, period in enumerate(PERIODS)]
    return {
        "update's wait": max((load.began - load.released) / period for period, mine in groups for load in mine),
        "tight": max(tight(mine, places) / period for period, mine in groups),
    }


def alpha_of(case: str, load: float) -> float:
    """The largest alpha of a table that makes this load."""
    return load * PLACES[case] / TABLES[case]


def covered(load: Load) -> float:
    """The length of a batch."""
    return load.batch[-1].at - load.batch[0].since


@dataclass(frozen=True, slots=True)
class DrawnFeed:
    """When the updates of a table are released."""

    released: np.ndarray
    period: float
    weight: float


@lru_cache(maxsize=4)
def drawn(case: str, size: float, ratio: float, seed: int) -> list[DrawnFeed]:
    """The tables of a case; all its policies and loads get the same."""
    tables, chance = TABLES[case], generator(seed, "scheduling", "feeds", case)
    weights = chance.uniform(1.0, 10.0, tables).tolist()
    if case == "huge":
        return [DrawnFeed(np.array([ratio, ratio + 1.0]) + 1e-3 * n, ratio, 1.0) for n in range(tables)]
    if case == "any":  # lengths that differ by orders of magnitude, within a table and between tables
        means = np.exp(chance.uniform(0.0, np.log(30.0), tables))
        count = [max(2, int(size * means.mean() / mean)) for mean in means]
        lengths = [chance.lognormal(0.0, 1.5, n) * mean for n, mean in zip(count, means, strict=True)]
        return [DrawnFeed(np.cumsum(of), float(of.mean()), weight) for of, weight in zip(lengths, weights, strict=True)]
    found: list[DrawnFeed] = []
    for place, period in enumerate(PERIODS):
        together = np.cumsum(chance.uniform(0.501, 0.999, int(2 * size / period) + 1) * period)
        for n in range(tables // len(PERIODS)):
            released = together[together <= size] + 1e-5 * period * (n + 1 + place / 4)  # no two at once
            found.append(DrawnFeed(released, 0.75 * period, weights[len(found)]))
    return found


def questions(share: float, places: int, end: float, seed: int) -> list[Question]:
    """Questions about what is loaded that take this share of the places, at random moments."""
    chance, mean = generator(seed, "scheduling", "questions", share), 0.5
    count = int(share * places * end / mean)
    moments, times = np.sort(chance.uniform(0, end, count)).tolist(), chance.exponential(mean, count).tolist()
    return [
        Question(n, "desk", (f"T{n % TABLES['questions']}",), at, freshness=0.0, expected_s=took)
        for n, (at, took) in enumerate(zip(moments, times, strict=True))
    ]


# -- what is found ---------------------------------------------------------------------------------------------


def sections(found: Sweep, folder: Path) -> list[Section]:
    """Figure 1, and one for each case."""
    return [
        _figure_1(folder / "feeds-figure-1.png"),
        _any(found.where(case="any"), folder / "feeds-staleness.png"),
        _groups(found.where(case="groups"), folder / "feeds-stretch.png"),
        _huge(found.where(case="huge"), folder / "feeds-huge.png"),
        _questions(found.where(case="questions"), folder / "feeds-questions.png"),
    ]


def _curves(found: Sweep, along: str, metric: str, policies: Iterable[str]) -> list[BandCurve]:
    return [BandCurve(policy, found.along(along, metric, policy=policy)) for policy in policies]


#: What is varied or measured, where its name alone does not say it.
_TOLD = {
    "ratio": "S1/S2",
    "asked": "load of questions",
    "penalty": "penalty / LOW",
    "staleness": "staleness / (LOW/2)",
    "weighted": "weighted staleness / least possible",
    "growth": "staleness, second half / first half",
    "wait": "mean wait [s]",
    "update's wait": "longest wait of an update / B",
    "tight": "longest tight interval / B",
}


def _table(found: Sweep, along: str, metrics: Iterable[str], policies: Iterable[str]) -> list[list[str]]:
    """Medians, a column for each value of what is varied."""
    values = sorted(found.all_of(along))

    def row(metric: str, policy: str) -> list[str]:
        medians = [found.middle(metric, policy=policy, **{along: each}) for each in values]
        return [f"{_TOLD.get(metric, metric)}, {policy}", *map(number, medians)]

    rows = [row(metric, policy) for metric in metrics for policy in policies]
    return [[_TOLD.get(along, along), *map(short, values)], *rows]


def _ratio(subject: str, statement: str, ratio: float, holds: bool, because: str = "", **more: Any) -> Claim:
    return Claim.of(subject, statement, ratio, holds, because, factor, **more)


# Figure 1

#: Releases of the table; what else its place does, from when and how long; alpha; and when loads end.
RELEASED, BUSY, ALPHA = (4.0, 9.0, 11.0), ((0.0, 5.0), (7.0, 6.0)), 0.5
ENDED = tuple(sum(busy) + ALPHA * length for busy, length in zip(BUSY, (4.0, 7.0), strict=True))
#: Staleness over time, by the corners of its line.
Line = list[tuple[float, list[float]]]


def _staleness(released: Iterable[float]) -> tuple[CountedFeed, Line]:
    """A table that is released then."""
    feed = CountedFeed("T")
    warehouse, _ = noting(POLICIES["myopic"](), 1, [feed], [ALPHA])
    for at, took_s in BUSY:
        warehouse.ask_at(at, Question(0, "desk", ("T",), at, freshness=0.0, expected_s=took_s))
    for at in released:
        warehouse.release_at(at, "T")
    line: Line = [(0.0, [0.0])]
    for at in (corner - before for corner in sorted({*RELEASED, *ENDED, 20.0}) for before in (1e-9, 0.0)):
        warehouse.run(until=at)
        line.append((at, [at - feed.current_at]))
    return feed, line


def _area(line: Line, until: float) -> float:
    return sum((b - a) * (y + z) / 2 for (a, [y]), (b, [z]) in pairwise(line) if b < until)


def _figure_1(picture: Path) -> Section:
    (one, two, three), (end_1, end_2) = RELEASED, ENDED
    (feed, line), (single, _) = _staleness(RELEASED), _staleness(RELEASED[::2])
    since = [(at, [at - max(each for each in (0.0, *RELEASED) if each <= at)]) for at, _ in line]
    batch = [(at, [at - one]) for at, _ in line if one <= at < end_2]
    draw_panels(
        [[Panel("", [
            BandCurve("staleness", line), BandCurve("since its last release", since, thin=True),
            BandCurve("flow time", batch, thin=True),
        ])]],
        picture, title="Staleness of a table over time", x_label="time", y_log=False,
        source="The area below the time since the last release, up to that release, is LOW/2",
    )  # fmt: skip
    compared = {
        "LOW/2, by the area of its triangles": (feed.low / 2, _area(since, three)),
        "total staleness, by the area under its line": (feed.loaded_staleness, _area(line, end_2)),
        "penalty, by the squares of both flow times": (feed.penalty, end_1**2 + (end_2 - one) ** 2),
        "stretch, by the largest ratio of the three updates": (
            feed.stretch, max(end_1 / one, (end_2 - one) / (two - one), (end_2 - two) / (three - two))),
        "total staleness with one update for the last two, by that with both": (
            single.loaded_staleness, feed.loaded_staleness),
    }  # fmt: skip
    return Section(
        "feeds-figure-1", "Feeds: staleness over time",
        f"One table and one place, by hand: updates are released at {', '.join(map(short, RELEASED))}; the place is "
        f"free at {' and '.join(short(sum(busy)) for busy in BUSY)}; alpha is {ALPHA:g}.",
        "staleness rises with time and falls when a load ends; the triangles over releases are LOW/2, those over "
        "batches half of the penalty; one update for the two of a batch would make no difference.",
        [_ratio("", statement, a / b, isclose(a, b, rel_tol=1e-6), "the accounting is wrong", item="Figure 1",
                paper="1x") for statement, (a, b) in compared.items()],
        pictures={"Staleness of a table over time, with the triangles of LOW/2 and of the penalty": picture},
        cited=CITED, items=("Figure 1",),
    )  # fmt: skip


# any lengths: Theorem 3.1, Corollary 3.2


def eager_bound(alpha: float, places: int, tables: int) -> float:
    """The factor within which total staleness is of the least possible, for every eager policy: Theorem 3.1 with the
    beta and delta that give the least. inf where it promises nothing.

    `alpha`: how long it takes at most to load what a table gets in a second.
    """
    share = alpha * tables / places
    if share >= EAGER_LIMIT:
        return inf
    gamma = sqrt(3) * share / (1 - share)  # sqrt(delta) (1 - beta) must be as large; it is less than 1

    def factor(beta: float) -> float:
        return 1 / (beta**4 * (1 - (gamma / (1 - beta)) ** 2))

    low, high = 0.0, 1 - gamma  # factor is convex between, and infinite at both
    for _ in range(100):
        third = (high - low) / 3
        if factor(low + third) < factor(high - third):
            high -= third
        else:
            low += third
    return (1 + alpha) ** 2 * factor((low + high) / 2)


def bound_at(load: float) -> float:
    """The constant of Theorem 3.1 for the case `any`."""
    return eager_bound(alpha_of("any", load), PLACES["any"], TABLES["any"])


def _any(found: Sweep, picture: Path) -> Section:
    loads = sorted(found.all_of("load"))
    bounds = BandCurve("Theorem 3.1", [(load, [bound_at(load)]) for load in loads if load <= 0.2], thin=True)
    panels = [
        Panel("penalty (1 = LOW)", [*_curves(found, "load", "penalty", EAGER), bounds]),
        Panel("total staleness (1 = LOW/2)", _curves(found, "load", "staleness", EAGER)),
    ]
    draw_panels(
        [panels], picture, title="Eager policies: staleness against the least possible", x_label="load (log)",
        x_log=True, source=f"Updates of any length; the theorem says nothing from a load of {EAGER_LIMIT:.3f} on",
    )  # fmt: skip
    table = _table(found, "load", ("penalty", "staleness", "stretch", "updates per load"), EAGER)
    promised = ["Theorem 3.1", *(short(bound_at(load)) if load < EAGER_LIMIT else "none" for load in loads)]
    return Section(
        "feeds-staleness",
        "Feeds: total staleness of eager policies",
        f"{TABLES['any']} tables on {PLACES['any']} places. Lengths of updates are lognormal (sigma 1.5), mean lengths "
        "of tables differ by up to 30 times.",
        "if no place is ever idle while a table could be loaded, and alpha <= C p/t with C < 0.366, the penalty is "
        "within a constant of LOW, and so is twice the staleness (Theorem 3.1); the constant approaches 1 as alpha "
        "falls (Corollary 3.2).",
        found.judged(_judge_any),
        pictures={"Penalty in units of LOW and staleness in units of LOW/2, over load": picture},
        figures=[[table[0], promised, *table[1:]]],
        notes=[
            "Which table is loaded next hardly matters for total staleness: what waits for a table is loaded at once, "
            "and costs it no more than one update of the same length. The constant of the theorem is far from what is "
            "measured, and nothing breaks where the theorem ends. Above a load of 1 the places cannot keep up: "
            "batches, and with them staleness, grow for as long as updates come. Stretch is another matter (see "
            "below).",
        ],
        cited=CITED,
        items=("Theorem 3.1", "Corollary 3.2"),
    )


def _judge_any(found: Sweep) -> list[Claim]:
    judged = []
    loads = found.all_of("load")
    inside = [load for load in loads if load < EAGER_LIMIT]
    for policy in EAGER:
        mine = found.where(policy=policy)
        worst = max(mine.middle("penalty", load=load) / bound_at(load) for load in inside)
        least, half = mine.middle("staleness", load=min(loads)), mine.middle("penalty", load=min(loads))
        between = min(row["staleness"] for row in mine.rows)
        above = max(row["staleness"] / row["penalty"] for row in mine.rows)
        judged += [
            _ratio(policy, f"at loads below {EAGER_LIMIT:.3f} the penalty is at most LOW times the constant of "
                   "Theorem 3.1", worst, worst <= 1, "the theorem does not hold", item="Theorem 3.1", paper="1x"),
            _ratio(policy, f"at a load of {min(loads):g} penalty is at most {NEARLY_ONE}x LOW, and staleness at most "
                   f"{NEARLY_ONE}x LOW/2", max(least, half), max(least, half) <= NEARLY_ONE, "loads take time",
                   item="Corollary 3.2", paper="approaches 1"),
            _ratio(policy, "at every load staleness is at least LOW/2", between, between >= 1,
                   construction="a table is never fresher than its last release", item="Section 2.2", paper="1x"),
            _ratio(policy, "at every load staleness is at most half of the penalty", above, above <= 1 + 1e-9,
                   construction="the triangles of batches cover the area under staleness", item="Section 2.2",
                   paper="1x"),
        ]  # fmt: skip
    keeping_up = [load for load in loads if load < 1]
    apart = max(
        max(a / b, b / a)
        for load in keeping_up
        for a, b in [[found.middle("staleness", policy=policy, load=load) for policy in EAGER[:2]]]
    )
    judged.append(
        _ratio("least waited", f"at loads below 1 staleness and that of myopic differ by at most {LITTLE}x", apart,
               apart <= LITTLE, "the order matters", item="Corollary 3.2", paper="any eager policy")
    )  # fmt: skip
    return judged


# quasiperiodic tables: Theorems 4.3 and 5.1


def _groups(found: Sweep, picture: Path) -> Section:
    panels = [
        Panel("stretch", _curves(found, "load", "stretch", GROUPED), level=(STRETCH, "Theorem 4.3")),
        Panel(
            "weighted staleness (1 = least possible)", _curves(found, "load", "weighted", GROUPED),
            level=(WEIGHTED, "Theorem 5.1"),
        ),
    ]  # fmt: skip
    draw_panels(
        [panels], picture, title="Tables of three periods: stretch and weighted staleness", x_label="load (log)",
        x_log=True, share_y=False, source=f"The theorems are about loads up to {CONDITION:.3f}. Least possible: LOW/2, "
        "weighted, or more",
    )  # fmt: skip
    places, tables, groups = PLACES["groups"], TABLES["groups"], len(PERIODS)
    used = groups * -(-(places - groups) // groups)
    stretch = {load: found.middle("stretch", policy="group-and-run", load=load) for load in found.all_of("load")}
    kept = max((load for load in stretch if stretch[load] < STRETCH), default=0.0)
    return Section(
        "feeds-stretch",
        "Feeds: stretch and weighted staleness of quasiperiodic tables",
        f"{tables} tables on {places} places: {tables // groups} tables each whose updates are B/2 to B long, for B of "
        f"{', '.join(f'{period:g}' for period in PERIODS)}. Those of a group are released at almost the same time, "
        f"which is the worst for waiting. Weights are 1 to 10. The theorems' condition is a load of at most "
        f"{CONDITION:.3f}.",
        "with alpha <= (p - g)/(8 t) and alpha <= 1/8, no update waits and no tight interval lasts longer than B/6 "
        "(Lemma 4.2), GroupAndRun keeps the stretch below 3 (Theorem 4.3), and its weighted staleness is at most 4.5 "
        "times the least possible (Theorem 5.1). If a table takes more than p/t, but their average does not, the "
        "warehouse may keep up (section 6).",
        found.judged(_judge_groups),
        pictures={"Stretch and weighted staleness over load, a line for each policy": picture},
        figures=[_table(found, "load", ("stretch", "weighted", "growth", "update's wait", "tight"), GROUPED)],
        notes=[
            "Of Theorem 5.1 the last step of the proof takes LOW for a lower bound, where it is LOW/2: what it shows "
            "is a factor of 9. The theorem is true nevertheless: by Lemma 4.2 an update waits for B/6 at most and is "
            f"loaded in 7/48 B, together 5/8 of its length, so that the factor is at most 1.625 squared, "
            f"{WEIGHTED_BY_WAIT:.2f}.",
            "Myopic lets short loads wait for long ones: its stretch exceeds 3 at a load where the theorems still hold "
            "for GroupAndRun. Its weighted staleness is lower all the same, because all places are open to all tables. "
            f"GroupAndRun has a stretch below 3 up to a load of {kept:.2g} here, far beyond the condition. But its "
            "formula keeps g places back for rounding up, whether they are needed or not: of the "
            f"{places} places {used} are used, and above a load of {used / places:g} it falls behind.",
        ],
        cited=CITED,
        items=("Lemma 4.2", "Theorem 4.3", "Theorem 5.1", "Figure 2", "Section 6"),
    )


def _judge_groups(found: Sweep) -> list[Claim]:
    loads = found.all_of("load")
    inside = [load for load in loads if load <= CONDITION]
    judged = []
    for policy in RUNS:
        mine = found.where(policy=policy)
        wait, longest, stretch, weighted = (
            max(mine.middle(metric, load=load) for load in inside)
            for metric in ("update's wait", "tight", "stretch", "weighted")
        )
        judged += [
            _ratio(policy, "within the condition no update waits longer than B/6 (longest / (B/6))", wait / WAIT,
                   wait <= WAIT, "it does", item="Lemma 4.2", paper="1x"),
            _ratio(policy, "and no tight interval is longer than B/6 (longest / (B/6))", longest / WAIT,
                   longest <= WAIT, "it is", item="Lemma 4.2", paper="1x"),
            _ratio(policy, f"within the condition stretch is below {STRETCH:g}", stretch, stretch < STRETCH,
                   "it is not", item="Theorem 4.3", paper="3x"),
            _ratio(policy, f"within the condition weighted staleness is at most {WEIGHTED}x the least possible",
                   weighted, weighted <= WEIGHTED, "it is not", item="Theorem 5.1", paper="4.5x"),
            _ratio(policy, f"and at most {WEIGHTED_BY_WAIT:.2f}x (our count)", weighted, weighted <= WEIGHTED_BY_WAIT,
                   "it is not", item="Theorem 5.1"),
        ]  # fmt: skip
    short_loads = found.middle("stretch", policy="myopic", load=CONDITION)
    judged.append(_ratio("myopic", f"at the edge of the condition stretch is above {STRETCH:g}: groups are needed",
                         short_loads, short_loads > STRETCH, "long loads were short enough here",
                         item="Section 4"))  # fmt: skip
    too_short = "" if found.rows[0]["size"] >= LONG else "the run is too short"
    idle = "its formula leaves some places to no group"
    for policy in GROUPED:
        mine = found.where(policy=policy)
        keeps, grows = mine.middle("growth", load=0.9), mine.middle("growth", load=1.2)
        same, average = f"staleness of the second half is that of the first (within {LITTLE}x)", policy == RUNS[-1]
        late = (
            _ratio(policy, f"at a load of 1.2, but less on average, {same}", grows, 1 / LITTLE <= grows <= LITTLE, idle,
                   item="Section 6", paper="may keep up")
            if average
            else _ratio(policy, f"at a load of 1.2 it is at least {GROWS:g}x: nothing can keep up", grows,
                        grows >= GROWS, "it does not grow")
        )  # fmt: skip
        early = _ratio(policy, f"at a load of 0.9 {same}", keeps, 1 / LITTLE <= keeps <= LITTLE,
                       "it begins with nothing to do" if policy == "myopic" else idle)  # fmt: skip
        judged += [replace(each, unknown=too_short) for each in (early, late)]
    return judged


# section 4: a tiny update behind a huge one


def _huge(found: Sweep, picture: Path) -> Section:
    expected = [(ratio, [HUGE_ALPHA * ratio]) for ratio in HUGE]
    curves = [
        *_curves(found, "ratio", "stretch", ("myopic", "group-and-run")),
        BandCurve("alpha S1/S2", expected, thin=True),
    ]
    draw_panels(
        [[Panel("", curves, y_label="stretch")]], picture, title="A tiny update behind a huge one",
        x_label="S1/S2 (log)", x_log=True, source="fifo and updates-first are as myopic",
    )  # fmt: skip
    return Section(
        "feeds-huge",
        "Feeds: no constant stretch in general",
        f"{TABLES['huge']} tables on {PLACES['huge']} places, alpha {HUGE_ALPHA:g}: each gets an update of length S1, "
        "and then one of length S2 = 1.",
        "a tiny update that comes while a huge one is loaded waits for its end; its stretch is at least alpha S1/S2, "
        "whatever the policy does (section 4).",
        found.judged(_judge_huge),
        pictures={"Stretch by the ratio of lengths": picture},
        figures=[_table(found, "ratio", ("stretch",), STUDIED)],
        notes=[
            "A load cannot be interrupted, and a table is loaded by one place at a time. So a bound on stretch needs a "
            "bound on how much the lengths of one table's updates differ: periods. Group-and-run has twice the stretch "
            "here because all tables are in one group, which by the formula gets 3 of the 4 places.",
        ],
        cited=CITED,
        items=("Section 4",),
    )  # fmt: skip


def _judge_huge(found: Sweep) -> list[Claim]:
    judged = []
    for policy in STUDIED:
        least = min(found.middle("stretch", policy=policy, ratio=ratio) / (HUGE_ALPHA * ratio) for ratio in HUGE)
        statement = "stretch is at least alpha S1/S2, so that no constant bounds it"
        judged.append(_ratio(policy, statement, least, least >= 1 - 1e-9, "the tiny update did not wait",
                             construction="it is loaded with the huge one, which takes alpha S1, or after that",
                             item="Section 4", paper="1x"))  # fmt: skip
    return judged


# feeds and questions


def _questions(found: Sweep, picture: Path) -> Section:
    policies = (*STUDIED, "queries-first")
    shown = tuple(policy for policy in policies if policy != "updates-first")
    asking = Sweep([row for row in found.rows if row["asked"]])
    panels = [
        Panel("total staleness (1 = LOW/2)", _curves(found, "asked", "staleness", shown)),
        Panel("stretch", _curves(found, "asked", "stretch", shown)),
        Panel("mean wait of questions [s]", _curves(asking, "asked", "wait", shown)),
    ]
    draw_panels(
        [panels], picture, title=f"Feeds at a load of {FEEDS_LOAD:g}, and questions", x_label="load by questions",
        share_y=False, source="updates-first is as myopic. Together more than 1: not all can be done",
    )  # fmt: skip
    return Section(
        "feeds-questions",
        "Feeds and questions: policies side by side",
        f"The tables of the section before at a load of {FEEDS_LOAD:g}, and questions about what is loaded (freshness "
        "0) that take a share of the places, 0.5 s each on average. The paper has no questions.",
        "",
        found.judged(_judge_questions),
        pictures={"Staleness, stretch and waits of questions by load of questions": picture},
        figures=[_table(found, "asked", ("staleness", "stretch", "wait"), policies)],
        notes=[
            "Loads of one table are always taken together, so fifo, updates-first and myopic differ only in what "
            "questions may do. Where loads go first, questions cost them little (a load waits until a running question "
            "ends, no longer); where they do not, staleness grows as soon as there is more to do than the places can. "
            "Group-and-run leaves places free that its groups do not use, and short questions wait least there as long "
            "as they fit.",
        ],
        cited=CITED,
    )


def _judge_questions(found: Sweep) -> list[Claim]:
    none, most = min(found.all_of("asked")), max(found.all_of("asked"))
    judged = []
    because = {
        "fifo": "questions that came first are answered first",
        "queries-first": "loads wait until nothing is asked",
    }
    for policy in (*STUDIED, "queries-first"):
        mine = found.where(policy=policy)
        dearer = mine.middle("staleness", asked=most) / mine.middle("staleness", asked=none)
        statement = f"with questions at a load of {most:g} staleness is at most {NEARLY_ONE}x that without"
        judged.append(
            _ratio(policy, statement, dearer, dearer <= NEARLY_ONE, because.get(policy, "questions hold up loads"))
        )
    for policy in ("fifo", "updates-first"):
        same = max(
            found.middle(metric, policy=policy, asked=none) / found.middle(metric, policy="myopic", asked=none)
            for metric in ("staleness", "stretch", "penalty")
        )
        judged.append(_ratio(policy, "without questions it does what myopic does", same, same == 1, "it does not",
                             construction="each loads the table whose oldest update has waited longest"))  # fmt: skip
    first = max(
        found.middle("wait", policy="queries-first", asked=asked)
        / min(found.middle("wait", policy=policy, asked=asked) for policy in STUDIED)
        for asked in found.all_of("asked")
        if asked
    )
    judged.append(_ratio("queries-first", "questions wait least, whatever their load", first, first <= 1,
                         "loads begin on all places when nothing is asked, and cannot be interrupted"))  # fmt: skip
    return judged
