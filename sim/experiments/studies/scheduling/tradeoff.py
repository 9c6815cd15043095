"""Response time against freshness: Pareto under changing preferences, and how stable plans are.

All run the shipped board and policies on one place (workloads: sim/traces/tradeoff.py). A load takes all that is
pending of its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hullcast.broker.warehouse.deciding.board import Answer, Board, Feed, Load, LoadCost, Question, Task
from hullcast.broker.warehouse.deciding.policies.knapsack import packed
from hullcast.broker.warehouse.deciding.policies.pareto import Pareto, turn
from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy, first_toward, oldest_load
from hullcast.broker.warehouse.deciding.policies.simple import Fifo, QueriesFirst, UpdatesFirst
from hullcast.sim.experiments.studies.scheduling.simulated import SimulatedWarehouse
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, number
from hullcast.sim.traces.tradeoff import LOAD, TABLES, TradeoffWorkload, knapsack_of, tradeoff_workload

CITED = "Thiele, Bader and Lehner (2009)"
WORDS: Mapping[str, str] = {
    CITED: "M. Thiele, A. Bader, W. Lehner, Multi-Objective Scheduling for Real-Time Data Warehouses, 2009",
    "qos": "how much a query prefers a short wait, from 0 to 1; the rest, 1 - qos, is its preference for fresh rows "
    "(-1 in the list above: it changes)",
    "freshness of an answer": "1 / (1 + rows not yet applied to the tables it reads), when it begins; 1 is best",
    "slot": "the time that updates may take from queries: what all updates first would cost them, times mean 1 - qos",
    "stability": "mean change of an update's position from one plan to the next, in queries",
}
WORKLOADS = ("Gauss", "Zipf")
POLICIES = ("pareto", "queries-first", "updates-first", "fifo")
FLIPS = 6
WINDOWS = 4  # of each phase
PREFERENCES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
CHANGING = -1.0  # in place of a preference
DEPENDENCY = 0.1
METRICS = (
    *(f"{what} {at}" for what in ("response", "freshness") for at in range((FLIPS + 1) * WINDOWS)),
    "response", "freshness", "agreed", "stability", "plans", "kept",
    "items", "work", "bytes", "exact", "cells",
)  # fmt: skip


# -- what is measured ------------------------------------------------------------------------------------------


def points(quick: bool) -> list[dict[str, Any]]:
    """Preferences that flip, that stay, that flip more and more often; and knapsacks by size and by dependency."""
    many, some = (700, 300) if quick else (5_000, 1_000)
    changes = (1, 10, 50, 100) if quick else (1, 50, 500, 1_000)
    sizes, rates = ((100, 200, 500), (0.02, 0.1, 0.5)) if quick else ((100, 200, 500, 1_000, 2_000), (0.01, 0.02, 0.05,
                    0.1, 0.2, 0.5, 1.0))  # fmt: skip

    def part(figure: str, **values: Any) -> list[dict[str, Any]]:
        usual = {"policy": ["pareto"], "qos": [CHANGING], "flips": [0], "dependency": [DEPENDENCY]}
        return [{"figure": figure, **point} for point in grid(**{"workload": WORKLOADS, **usual, **values})]

    found = part("flips", policy=POLICIES, flips=[FLIPS], size=[many])
    found += part("stay", qos=PREFERENCES, size=[some])
    found += part("stable", workload=["Gauss"], flips=changes, size=[many])
    found += part("sizes", qos=[0.5], size=sizes)
    found += part("rates", qos=[0.5], size=[sizes[-1] if quick else 1_000], dependency=rates)
    return found


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """A run, or a knapsack; what the other kind measures is not a number."""
    measured = _pack(point, seed) if point["figure"] in ("sizes", "rates") else _run(point, seed)
    return {name: measured.get(name, nan) for name in METRICS}


class QueriesInTurn(QueriesFirst):
    """Queries first, in the order that Pareto has for them."""

    def next(self, board: Board, now: float) -> Task | None:
        return first_toward(sorted(board.waiting, key=turn), board) or (None if board.waiting else oldest_load(board))


class UpdatesInTurn(UpdatesFirst):
    """Updates first, and then queries in the order that Pareto has for them."""

    def next(self, board: Board, now: float) -> Task | None:
        return oldest_load(board) or first_toward(sorted(board.waiting, key=turn), board)


class Compared(Pareto):
    """Pareto, and how often the pure policy of its preference would have done the same."""

    pure: ClassVar = {0.0: UpdatesInTurn(), 1.0: QueriesInTurn()}

    def __init__(self) -> None:
        super().__init__()
        self.qos = nan
        self.agreed: list[bool] = []

    def next(self, board: Board, now: float) -> Task | None:
        other = self.pure[self.qos].next(board, now) if self.qos in self.pure else None
        task = super().next(board, now)
        if self.qos in self.pure and (task or other):
            self.agreed.append(_named(task) == _named(other))
        return task


def _named(task: Task | None) -> object:
    if isinstance(task, Load):
        return task.table, task.through
    return task and task.question


@dataclass(slots=True)
class KnownCost(LoadCost):
    """What a load takes, known beforehand as in the paper: the sum of what its updates take."""

    takes: dict[int, float] = field(default_factory=dict)  # by last sequence number
    feed: Feed | None = None

    def learn(self, rows: int, took_s: float) -> None:
        """There is nothing to learn."""

    def of(self, rows: int) -> float:
        """What all that is pending takes."""
        assert self.feed is not None
        return sum(self.takes[release.through] for release in self.feed.pending)


class FlippingWarehouse(SimulatedWarehouse):
    """One place; who waits asks again when preferences change. Writes down how each answer began."""

    def __init__(self, policy: WarehousePolicy, load: TradeoffWorkload) -> None:
        self.takes: dict[int, float] = {}
        self.qos = 1.0
        self.begun: list[tuple[float, float, float]] = []  # when, response time, freshness
        feeds = [Feed(str(table), cost=KnownCost(self.takes)) for table in range(TABLES)]
        for feed in feeds:
            assert isinstance(feed.cost, KnownCost)
            feed.cost.feed = feed
        super().__init__(
            policy, feeds=feeds, load_s=lambda load, board: sum(self.takes[each.through] for each in load.batch)
        )
        for number_, (when, takes, reads) in enumerate(zip(load.asked, load.takes, load.reads, strict=True)):
            question = Question(number_, "desk", tuple(map(str, reads)), float(when), expected_s=float(takes))
            self.ask_at(float(when), question)
        for when, cost, rows, table in zip(load.released, load.costs, load.rows, load.touches, strict=True):
            self._time.at(float(when), partial(self._known, float(cost), str(table), int(rows)))

    def prefer(self, qos: float) -> None:
        """From now on, also for those that wait."""
        self.qos = qos
        if not isinstance(self.policy, Compared):
            return  # the others do not ask for preferences, and nothing is loaded on demand
        self.policy.qos = qos
        for question in list(self.board.waiting):
            self.board.withdraw(question)
            self.policy.withdrawn(question, self.board, self.now)
            self._ask(question)

    def prefer_at(self, when: float, qos: float) -> None:
        """Then."""
        self._time.at(when, partial(self.prefer, qos))

    def _known(self, cost: float, table: str, rows: int) -> None:
        self.takes[self.board.horizon + rows] = cost
        self._release(table, rows)

    def _ask(self, question: Question) -> None:
        question.freshness = 1.0 - self.qos if isinstance(self.policy, Compared) else 0.0
        super()._ask(question)

    def _begin(self, task: Task, now: float) -> None:
        if isinstance(task, Answer):
            unapplied = sum(self.board.feeds[table].pending_rows for table in task.question.tables)
            response = now + task.question.expected_s - task.question.arrived
            self.begun.append((now, response, 1 / (1 + unapplied)))
        super()._begin(task, now)


def _run(point: GridPoint, seed: int) -> dict[str, float]:
    load = tradeoff_workload(point["workload"], point["size"], seed)
    policies: dict[str, type[WarehousePolicy]] = {
        "pareto": Compared,
        "queries-first": QueriesInTurn,
        "updates-first": UpdatesInTurn,
        "fifo": Fifo,
    }
    warehouse = FlippingWarehouse(policies[point["policy"]](), load)
    ends = np.linspace(0.0, load.asked[-1], point["flips"] + 2)
    for phase, when in enumerate(ends[:-1]):
        warehouse.prefer_at(float(when), float(phase % 2) if point["qos"] == CHANGING else point["qos"])
    warehouse.run()
    when, response, freshness = np.array(warehouse.begun).T
    measured = {"response": response.mean(), "freshness": freshness.mean()}
    if point["flips"] == FLIPS:
        edges = np.linspace(0.0, load.asked[-1], (FLIPS + 1) * WINDOWS + 1)
        for at, (low, high) in enumerate(pairwise(edges)):
            inside = (when >= low) & (when < high)
            measured[f"response {at}"] = response[inside].mean() if inside.any() else nan
            measured[f"freshness {at}"] = freshness[inside].mean() if inside.any() else nan
    if isinstance(warehouse.policy, Compared):
        counters = warehouse.policy.counters()
        measured |= {"stability": counters["mean change of positions"]}
        measured |= {"plans": counters["plans made"], "kept": counters["plans kept"]}
        if warehouse.policy.agreed:
            measured["agreed"] = float(np.mean(warehouse.policy.agreed))
    return {name: float(value) for name, value in measured.items()}


def _pack(point: GridPoint, seed: int) -> dict[str, float]:
    positions, slot = knapsack_of(point["workload"], point["size"], point["dependency"], point["qos"], seed)
    found = packed(positions, slot)
    items = len(positions.cost) - point["size"]
    return {
        "items": items,
        "work": items + found.work,
        "bytes": found.size_bytes,
        "exact": float(found.exact),
        "cells": float(items) * slot,
    }


# -- what is found ---------------------------------------------------------------------------------------------


def sections(found: Sweep, folder: Path) -> list[Section]:
    """Preferences that change, that stay; the knapsack; stability."""
    return [_flips(found, folder), _stay(found, folder), _knapsacks(found, folder), _stability(found, folder)]


def _course(found: Sweep, metric: str, of: str, policy: str) -> list[tuple[float, list[float]]]:
    part = found.where(figure="flips", workload=of, policy=policy)
    curve = [(at / WINDOWS, part.values(f"{metric} {at}")) for at in range((FLIPS + 1) * WINDOWS)]
    return [(x, kept) for x, values in curve if (kept := [value for value in values if value == value])]


def _flips(found: Sweep, folder: Path) -> Section:
    picture = folder / "tradeoff-flips.png"
    titles = {"response": "response time [s]", "freshness": "freshness"}
    rows = [
        [Panel(f"{of}: {told}", [BandCurve(name, _course(found, metric, of, name)) for name in POLICIES]) for of in
         WORKLOADS] for metric, told in titles.items()
    ]  # fmt: skip
    draw_panels(
        rows, picture, title="Preferences that flip six times", x_label="phases (0 to 1: qos = 0, 1 to 2: qos = 1, ..)",
        share_y=False, y_log=False, source="Means of the answers that began in each quarter of a phase",
    )  # fmt: skip
    size = found.where(figure="flips").rows[0]["size"]
    return Section(
        "tradeoff-flips",
        "Response time and freshness while preferences change",
        f"{size:,} queries and as many updates on one place that is busy {LOAD:.0%} of the time; all queries, also "
        f"those that wait, change from qos = 0 (fresh) to qos = 1 (quick) or back {FLIPS} times. Queries have the "
        "same order under pareto, queries-first and updates-first.",
        "the schedule follows every change, and in each phase is as good as the policy that is best for it.",
        found.where(figure="flips").judged(_flip_claims),
        pictures={"Response time and freshness over seven phases, a line for each policy": picture},
        cited=CITED,
    )


def _late(found: Sweep, metric: str, qos: int) -> float:
    """The mean over the last quarters of the phases with this preference: what built up before is worked off."""
    ends = [WINDOWS * (phase + 1) - 1 for phase in range(FLIPS + 1) if phase % 2 == qos]
    return float(np.nanmean([found.middle(f"{metric} {at}") for at in ends]))


def _flip_claims(found: Sweep) -> list[Claim]:
    judged = []
    for of in WORKLOADS:
        mine, quick, fresh = (
            found.where(workload=of, policy=name) for name in ("pareto", "queries-first", "updates-first")
        )
        agreed = mine.middle("agreed")
        less = _late(mine, "freshness", 0)
        slower = _late(mine, "response", 1) / _late(quick, "response", 1)
        better = mine.middle("freshness") / quick.middle("freshness")
        sooner = mine.middle("response") / fresh.middle("response")
        judged += [
            Claim(of, "every decision of a phase is that of the pure policy on the same board", f"{agreed:.1%}",
                  agreed == 1.0, "some decisions differ", value=agreed, form="{:.1%}".format,
                  construction="with qos 0 or 1 everywhere Pareto plans nothing, and does what the pure policy does"),
            Claim(of, "at the end of phases with qos = 0 answers are as fresh as with updates-first", f"{less:.3f}",
                  abs(less - _late(fresh, "freshness", 0)) < 0.005, "updates of the phase before are still pending",
                  value=less, form="{:.3f}".format),
            Claim(of, "at the end of phases with qos = 1 queries take at most 1.1x as long as with queries-first",
                  factor(slower), slower <= 1.1, "queries that queued up in the phase before still delay them",
                  value=slower, form=factor),
            Claim(of, "over all phases answers are fresher than with queries-first", factor(better), better > 1,
                  "they are not", value=better, form=factor),
            Claim(of, "over all phases queries are quicker than with updates-first", factor(sooner), sooner < 1,
                  "they pay for loads that queries-first phases put off", value=sooner, form=factor),
        ]  # fmt: skip
    return judged


def _stay(found: Sweep, folder: Path) -> Section:
    picture = folder / "tradeoff-stay.png"
    part = found.where(figure="stay")
    panels = [
        Panel(told, [BandCurve(of, part.along("qos", metric, workload=of)) for of in WORKLOADS])
        for metric, told in (("response", "response time [s]"), ("freshness", "freshness"))
    ]
    draw_panels(
        [panels], picture, title="Preferences that stay", x_label="qos (0: fresh, 1: quick)", y_log=False,
        share_y=False,
    )  # fmt: skip
    return Section(
        "tradeoff-stay",
        "Response time and freshness by preference",
        f"{part.rows[0]['size']:,} queries and as many updates; all queries have the same preference.",
        "a larger slot puts more updates before queries: fresher answers, longer response times.",
        part.judged(_stay_claims),
        pictures={"Response time and freshness by qos, a line for each workload": picture},
        cited=CITED,
    )


def _stay_claims(found: Sweep) -> list[Claim]:
    judged = []
    for of in WORKLOADS:
        waits = [found.middle("response", workload=of, qos=qos) for qos in PREFERENCES]
        fresh = [found.middle("freshness", workload=of, qos=qos) for qos in PREFERENCES]
        steps = sum(after <= before + 1e-9 for before, after in pairwise(fresh))
        saved, lost = waits[-1] / waits[0], fresh[-1] / fresh[0]
        judged += [
            Claim(of, "each step of qos from 0 to 1 makes answers less fresh, or leaves them as they are",
                  f"{steps} of {len(fresh) - 1}", steps == len(fresh) - 1,
                  "plans are best for what waits now, not for what is to come", value=steps, form="{:.0f}".format),
            Claim(of, "qos = 1 is quicker than qos = 0", factor(saved), saved < 1, "it is slower",
                  value=saved, form=factor),
            Claim(of, "qos = 1 is less fresh than qos = 0", factor(lost), lost < 1, "it is fresher",
                  value=lost, form=factor),
        ]  # fmt: skip
    return judged


def _knapsacks(found: Sweep, folder: Path) -> Section:
    picture = folder / "tradeoff-knapsack.png"
    sizes, rates = found.where(figure="sizes"), found.where(figure="rates")

    def curves(part: Sweep, over: str, metric: str) -> list[BandCurve]:
        return [BandCurve(of, part.along(over, metric, workload=of)) for of in WORKLOADS]

    draw_panels(
        [[Panel("items and states looked at", curves(sizes, "size", "work")),
          Panel("memory [bytes]", curves(sizes, "size", "bytes"))]],
        picture, title="Knapsack by queries, and as many updates", x_label="queries (log)", x_log=True, share_y=False,
        source=f"Dependency {DEPENDENCY:.0%}, qos 0.5, unit 1 ms",
    )  # fmt: skip
    by_rate = folder / "tradeoff-dependency.png"
    draw_panels(
        [[Panel("items and states looked at", curves(rates, "dependency", "work")),
          Panel("memory [bytes]", curves(rates, "dependency", "bytes"))]],
        by_rate, title="Knapsack by dependency", x_label="dependency (log)", x_log=True, share_y=False,
        x_format=lambda rate: f"{rate:.0%}" if rate <= 1 else "",
        source=f"{rates.rows[0]['size']:,} queries and updates, qos 0.5, unit 1 ms",
    )  # fmt: skip
    by_size = [(f"{of} {size:,} x {size:,}", sizes.where(workload=of, size=size)) for of in WORKLOADS for size in
               sizes.all_of("size")]  # fmt: skip
    by_dependency = [(f"{of} {rate:.0%}", rates.where(workload=of, dependency=rate)) for of in WORKLOADS for rate in
                     rates.all_of("dependency")]  # fmt: skip
    return Section(
        "tradeoff-knapsack",
        "What a plan takes",
        "All queries and updates at once, costs in milliseconds, qos = 0.5. Seconds are measured by the benchmark of "
        "the warehouse.",
        "1,000 queries and 1,000 updates at once, a tenth dependent, took 16 s and 1,400 MB; time and memory grow with "
        "load and dependency.",
        Sweep([*sizes.rows, *rates.rows]).judged(_knapsack_claims),
        pictures={
            "Items and states looked at, and memory by size": picture,
            "Items and states looked at, and memory by dependency": by_rate,
        },
        figures=[_taken("queries x updates", by_size), _taken("dependency", by_dependency)],
        cited=CITED,
    )


def _taken(told: str, points: list[tuple[str, Sweep]]) -> list[list[str]]:
    """What knapsacks took: medians, and the share of draws with an exact answer."""
    rows = [[told, "items", "items and states looked at", "cells of the paper's table", "memory", "exact"]]
    for name, part in points:
        items, work, cells, size = (part.middle(metric) for metric in ("items", "work", "cells", "bytes"))
        exact = np.mean(part.values("exact"))
        rows.append([name, number(items), number(work), f"{cells:.1e}", f"{size / 1e6:.1f} MB", f"{exact:.0%}"])
    return rows


def _knapsack_claims(found: Sweep) -> list[Claim]:
    judged = []
    for of in WORKLOADS:
        sizes, rates = found.where(figure="sizes", workload=of), found.where(figure="rates", workload=of)
        largest = max(size for size in sizes.all_of("size") if size <= 1_000)
        at = sizes.where(size=largest)
        exact = float(np.mean(sizes.values("exact")))
        memory = at.middle("bytes") / 1e6
        share = at.middle("work") / at.middle("cells")
        grows, looked = (
            [rates.middle(metric, dependency=rate) for rate in sorted(rates.all_of("dependency"))]
            for metric in ("bytes", "work")
        )
        always = float(np.mean(rates.values("exact")))
        judged += [
            Claim(of, f"with a tenth dependent every answer is exact to the millisecond, up to "
                  f"{max(sizes.all_of('size')):,} at once", f"{exact:.0%}", exact == 1.0, "the effort has a limit",
                  value=exact, form="{:.0%}".format),
            Claim(of, f"{largest:,} x {largest:,} take at most 100 MB", f"{memory:.1f} MB", memory <= 100,
                  "too many states", value=memory, form="{:.1f} MB".format),
            Claim(of, "items and states looked at are less than a millionth of the cells of the paper's table",
                  f"{share:.1g}", share < 1e-6, "too many states", value=share, form="{:.1g}".format),
            Claim(of, "memory grows with dependency", factor(grows[-1] / grows[0]), grows == sorted(grows),
                  "it does not", value=grows[-1] / grows[0], form=factor),
            Claim(of, "at each step of dependency more items and states are looked at", factor(looked[-1] / looked[0]),
                  looked == sorted(looked), "how many depends more on the draw", value=looked[-1] / looked[0],
                  form=factor),
            Claim(of, f"at every dependency, up to {max(rates.all_of('dependency')):.0%}, the answer is exact",
                  f"{always:.0%}", always == 1.0, "the effort has a limit", value=always, form="{:.0%}".format),
        ]  # fmt: skip
    return judged


def _stability(found: Sweep, folder: Path) -> Section:
    part = found.where(figure="stable")
    picture = folder / "tradeoff-stability.png"
    kept = [
        (flips, [kept / (kept + made) for kept, made in zip(part.values("kept", flips=flips),
                                                          part.values("plans", flips=flips), strict=True)])
        for flips in part.all_of("flips")
    ]  # fmt: skip
    draw_panels(
        [[Panel("mean change of positions", [BandCurve("Gauss", part.along("flips", "stability"))]),
          Panel("share of events that keep the plan", [BandCurve("Gauss", kept)])]],
        picture, title="How stable plans are", x_label="changes of preferences (log)", x_log=True, y_log=False,
        share_y=False,
    )  # fmt: skip
    return Section(
        "tradeoff-stability",
        "Stability of plans",
        f"{part.rows[0]['size']:,} queries and as many updates (Gauss); preferences of all queries flip between 0 and "
        "1, more and more often.",
        "with stable preferences plans barely change (0 or 1 positions); the more often preferences change, the more "
        "they do.",
        part.judged(_stable_claims),
        pictures={"Mean change of positions, and share of events that keep the plan, by changes": picture},
        cited=CITED,
    )


def _stable_claims(found: Sweep) -> list[Claim]:
    curve = [found.middle("stability", flips=flips) for flips in sorted(found.all_of("flips"))]
    more = curve[-1] - curve[0]
    return [
        Claim("", "with one change plans differ by less than one position in the mean", number(curve[0]), curve[0] < 1,
              "new queries move those behind them", value=curve[0]),
        Claim("", "with the most changes plans differ more than with one", f"by {number(more)} positions", more > 0,
              "they do not", value=more),
    ]  # fmt: skip
