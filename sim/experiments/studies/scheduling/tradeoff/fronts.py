"""Figures 1 and 3, and Algorithm 1: every order of a few queries and updates, and which of them are efficient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.broker.scheduling.knapsack import packed
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BLUE, GREEN, GREY, INK, ORANGE, PINK, finish, format_axes, panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import short
from hullcast.sim.seeds import generator
from hullcast.sim.traces.tradeoff import CITED, positions_of

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from hullcast.broker.scheduling.knapsack import UpdatePositions

    Integers = npt.NDArray[np.int64]

#: By figure: queries, updates. Figure 1 counts updates (each has profit 1), in Figure 3 they have profits of their own.
SIZES = {"Figure 1": (5, 2), "Figure 3": (3, 3)}
PREFERENCES = tuple(tenth / 10 for tenth in range(11))
CLOSE = 0.01
METRICS = ("efficient", "quickest", "freshest", "chosen", "written", "unused")


@dataclass(frozen=True, slots=True)
class FewTransactions:
    """Queries in the order of the shortest job first; all of them profit from all updates."""

    takes: Integers
    costs: Integers
    profits: Integers

    @classmethod
    def drawn(cls, figure: str, seed: int) -> FewTransactions:
        """Queries of increasing execution times; the paper's numbers are lost."""
        queries, updates = SIZES[figure]
        random = generator(seed, "tradeoff", figure)
        takes = np.sort(random.choice(np.arange(1, 21), queries, replace=False)).astype(np.int64)
        costs = random.integers(1, 11, updates)
        profits = np.ones(updates, dtype=np.int64) if figure == "Figure 1" else random.integers(1, 11, updates)
        return cls(takes, costs, profits)

    def orders(self) -> Integers:
        """Of every order of all of them, at any place, the summed response time and the profit."""
        queries = len(self.takes)
        order = np.array(list(permutations(range(queries + len(self.costs)))))
        is_query = order < queries
        ends = np.concatenate([self.takes, self.costs])[order].cumsum(axis=1)
        applied = np.concatenate([0 * self.takes, self.profits])[order].cumsum(axis=1)
        return np.stack([(ends * is_query).sum(axis=1), (applied * is_query).sum(axis=1)], axis=1)

    @property
    def positions(self) -> UpdatePositions:
        """The items of the knapsack."""
        depends = np.ones((len(self.costs), len(self.takes)), dtype=bool)
        return positions_of(depends, self.costs, self.profits)

    @property
    def queries_first(self) -> int:
        """Its summed response time."""
        return int(self.takes.cumsum().sum())

    @property
    def most(self) -> int:
        """Equation 6: what updates first cost the queries."""
        return int(self.costs.sum()) * len(self.takes)


def update_prioritizing(positions: UpdatePositions, bound: int) -> tuple[list[int], Integers]:
    """Algorithm 1, table and walk back: by class the place chosen, and the last row: by bound the most profit.

    Where an item does not fit, the profit p with it is that of no item here; by the letter of lines 3 to 7 it keeps the
    value of the step before, and an item could be stored that does not fit.
    """
    classpos = [rank for low, high in zip(positions.first[:-1], positions.first[1:], strict=True) for rank in
                range(1, high - low)]  # fmt: skip
    owner = np.repeat(np.arange(len(positions.first) - 1), np.diff(positions.first))
    items = np.flatnonzero(positions.place > 0)
    best = np.zeros((len(items) + 1, bound + 1), dtype=np.int64)
    better = np.zeros(best.shape, dtype=bool)
    for n, item in enumerate(items.tolist(), start=1):
        cost = int(positions.cost[item])
        best[n] = best[n - 1]
        if cost <= bound:
            with_it = positions.profit[item] + best[n - classpos[n - 1], : bound + 1 - cost]
            better[n, cost:] = with_it > best[n - 1, cost:]
            best[n, cost:] = np.maximum(best[n - 1, cost:], with_it)
    place, n, left = [0] * (len(positions.first) - 1), len(items), bound
    while n > 0:
        if better[n, left]:
            item = int(items[n - 1])
            place[owner[item]] = int(positions.place[item])
            left, n = left - int(positions.cost[item]), n - classpos[n - 1]
        else:
            n -= 1
    return place, best[-1]


def efficient(schedules: Integers) -> list[tuple[int, int]]:
    """Definition 3.3: of summed response times and profits those that no other dominates, the quickest first."""
    front: list[tuple[int, int]] = []
    for response, profit in sorted({(int(waited), int(gained)) for waited, gained in schedules},
                                   key=lambda each: (each[0], -each[1])):  # fmt: skip
        if not front or profit > front[-1][1]:
            front.append((response, profit))
    return front


def points(quick: bool) -> list[dict[str, Any]]:
    """One of each figure."""
    return grid(figure=["front"], workload=list(SIZES))


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """Every order of one draw, and what is chosen for eleven preferences."""
    few = FewTransactions.drawn(point["workload"], seed)
    front = efficient(few.orders())
    slots = [int(few.most * (1 - qos)) for qos in PREFERENCES]
    places = [packed(few.positions, slot).place for slot in slots]
    written = [np.array(update_prioritizing(few.positions, slot)[0]) for slot in slots]
    unused = [1 - int((few.costs * place).sum()) / slot for slot, place in zip(slots, places, strict=True) if slot]
    last = (few.queries_first + few.most, int(few.profits.sum()) * len(few.takes))
    return {
        "efficient": len(front),
        "quickest": float(front[0] == (few.queries_first, 0)),
        "freshest": float(front[-1] == last),
        "chosen": float(np.mean([_told(few, place) in front for place in places])),
        "written": float(np.mean([_told(few, place) in front for place in written])),
        "unused": max(unused),
    }


def _told(few: FewTransactions, place: Integers) -> tuple[int, int]:
    """The summed response time and the profit of a schedule."""
    return few.queries_first + int((few.costs * place).sum()), int((few.profits * place).sum())


def sections(found: Sweep, folder: Path) -> list[Section]:
    """Figure 1, Figure 3."""
    part, picture = found.where(figure="front"), folder / "tradeoff-front.png"
    _draw(picture, min(part.seeds))
    section = Section(
        "tradeoff-front",
        "All schedules of a few queries and updates",
        "Figure 1: 5 queries and 2 updates, which count 1 each; Figure 3: 3 queries and 3 updates with profits of "
        "their own. Times and profits are drawn; all queries profit from all updates; every order there is.",
        "a front of Pareto-efficient schedules leads from queries first to updates first, both with the shortest job "
        "first; the knapsack finds one of it, close to its bound.",
        part.judged(_claims),
        pictures={"Response time and freshness of every order, and the Pareto front": picture},
        notes=["The paper's walk back keeps the first of choices with the most profit, which may cost more than "
               "another: then another schedule is as fresh, and quicker. The shipped knapsack takes the cheapest."],
        cited=CITED,
        items=("Figure 1", "Figure 3", "Figure 4", "Algorithm 1", "Definition 3.3"),
    )  # fmt: skip
    return [section]


def _draw(path: Path, seed: int) -> None:
    figure, axes = panels(1, len(SIZES), share_x=False, share_y=False)
    for one, name in zip(axes.flat, SIZES, strict=True):
        few = FewTransactions.drawn(name, seed)
        queries = len(few.takes)
        schedules, front = few.orders() / queries, np.array(efficient(few.orders())) / queries
        missing = float(few.profits.sum())
        one.scatter(schedules[:, 0], missing - schedules[:, 1], s=7, color=GREY, alpha=0.25, linewidths=0)
        one.plot(front[:, 0], missing - front[:, 1], color=GREEN, marker="o", ms=4, lw=1.4, label="Pareto front")
        arrived = int(generator(seed, "tradeoff", name, "fifo").integers(len(schedules)))
        places = [update_prioritizing(few.positions, int(few.most * (1 - qos)))[0] for qos in PREFERENCES]
        written = np.array([_told(few, np.array(place)) for place in places]) / queries
        one.plot(written[:, 0], missing - written[:, 1], "x", color=PINK, ms=7, zorder=4, label="Algorithm 1")
        ends = ((front[0], "QF + SJF", BLUE, (8, 4)), (front[-1], "UF + SJF", ORANGE, (8, 8)),
                (schedules[arrived], "FIFO", INK, (8, 4)))  # fmt: skip
        for (wait, profit), told, colour, beside in ends:
            one.scatter([wait], [missing - profit], s=36, color=colour, zorder=3)
            one.annotate(told, (wait, missing - profit), beside, textcoords="offset points", color=colour, fontsize=8)
        unit = "updates not applied" if name == "Figure 1" else "profit of updates not applied"
        one.set_title(f"{name}: {len(schedules):,} orders", fontsize=10, color=INK)
        one.set_xlabel("mean response time")
        one.set_ylabel(f"{unit}, per query")
    format_axes(axes, short, short)
    finish(figure, axes, "Every order of a few queries and updates", path)


def _claims(found: Sweep) -> list[Claim]:
    judged = []
    for name, (queries, updates) in SIZES.items():
        (row,) = found.where(workload=name).rows
        claim = partial(Claim, name)
        count = int(row["efficient"])
        judged += [
            claim("queries first by the shortest job is the quickest of all orders", _yes(row["quickest"]),
                  row["quickest"] == 1.0, construction="the shortest job first has the least mean response time",
                  item=name, paper="the optimal response time"),
            claim("updates first by the shortest job is the freshest of all orders, and of these the quickest",
                  _yes(row["freshest"]), row["freshest"] == 1.0, construction="all updates are before all queries",
                  item=name, paper="the optimal schedule in terms of data quality"),
            claim("the front has n + 1 to 2^n efficient schedules of n updates", str(count),
                  updates + 1 <= count <= 2**updates, f"an update has {queries + 1} positions rather than two",
                  value=count, form="{:.0f}".format, item="Figure 4", paper="between n + 1 and 2^n"),
            claim("Algorithm 1 gives an efficient schedule for each of eleven preferences", f"{row['written']:.0%}",
                  row["written"] == 1.0, "of choices with the same profit it keeps the first, not the cheapest",
                  value=row["written"], form="{:.0%}".format, item="Algorithm 1", paper="a pareto-efficient schedule"),
            claim("the shipped knapsack gives an efficient schedule for each of eleven preferences",
                  f"{row['chosen']:.0%}", row["chosen"] == 1.0, value=row["chosen"], form="{:.0%}".format,
                  construction="of choices with the most profit it takes the cheapest", item="Definition 3.3",
                  paper="a pareto-efficient schedule"),
            claim(f"at each preference at most {CLOSE:.0%} of the slot is left", f"{row['unused']:.0%}",
                  row["unused"] <= CLOSE, "with few positions the steps of the front are large", value=row["unused"],
                  form="{:.0%}".format, item="Figure 4", paper="in any case very close to the specified bound"),
        ]  # fmt: skip
    judged.append(Claim("Figure 3", "S1 to S4 are efficient, S2 dominates S5 in both criteria, S4 dominates S8 in one",
                        "", False, incomparable="the costs and profits of the updates are lost with the figure",
                        item="Figure 3", paper="S1, S2, S3, S4"))  # fmt: skip
    return judged


def _yes(share: float) -> str:
    return "yes" if share == 1.0 else "no"
