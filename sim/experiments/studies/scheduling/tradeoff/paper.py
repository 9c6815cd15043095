"""The scheduler as Thiele, Bader and Lehner (2009) have it: one machine, updates one by one, a plan for every event.

The shipped policy differs in two ways: all pending updates of a table are one, and where all prefer the same it plans
nothing. Here the knapsack is packed at every preference.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.scheduling.knapsack import PackedUpdates, packed
from hullcast.broker.warehouse.deciding.policies.pareto import PATIENCE
from hullcast.sim.traces.tradeoff import TABLES, positions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hullcast.sim.traces.tradeoff import TradeoffWorkload

#: Positions that stay what they are: all queries first, or all updates.
QUERIES_FIRST, UPDATES_FIRST = 0, 1 << 60


def distance(before: Mapping[int, int], after: Mapping[int, int]) -> float | None:
    """Section 4: the mean change of position of the updates that both schedules have; None if there are none."""
    common = before.keys() & after.keys()
    return sum(abs(before[update] - after[update]) for update in common) / len(common) if common else None


class PaperScheduler:
    """Queries wait in the order of the shortest job first with ageing. When a query or an update comes or begins, the
    positions of all updates that wait are chosen again, except when an update comes that no waiting query depends on:
    then "the current schedule can still be used" (section 4)."""

    def __init__(self, load: TradeoffWorkload, qos: Callable[[float], float], position: int | None = None) -> None:
        self.begun: list[tuple[float, float, float]] = []  # when, response time, freshness
        self.distances: list[tuple[float, float]] = []  # when, and from the schedule before
        self.plans: list[tuple[int, PackedUpdates]] = []  # items, and what was packed
        self._load, self._qos, self._position = load, qos, position
        self._costs = load.costs_ms
        self._reads = np.zeros((len(load.takes), TABLES), dtype=bool)
        self._reads[np.arange(len(load.takes))[:, None], load.reads] = True
        self._key = (load.takes + load.asked / PATIENCE).tolist()
        self._queries: list[int] = []  # in their order
        self._place: dict[int, int] = {}  # of updates that wait, in order of arrival

    def run(self) -> None:
        """All of the workload."""
        load, now = self._load, 0.0
        coming = sorted(
            [(when, False, query) for query, when in enumerate(load.asked.tolist())]
            + [(when, True, update) for update, when in enumerate(load.released.tolist())],
            reverse=True,
        )
        while coming or self._queries or self._place:
            now = self._begin(now) if self._queries or self._place else coming[-1][0]
            while coming and coming[-1][0] <= now:
                self._came(*coming.pop())

    def _begin(self, now: float) -> float:
        """Begin the next task; when it ends."""
        load, count = self._load, len(self._queries)
        update = next((update for update, place in self._place.items() if place >= count), None)
        if update is not None:
            del self._place[update]
            took = load.costs[update]
        else:
            query = self._queries.pop(0)
            took = load.takes[query]
            waiting = list(self._place)
            unapplied = load.rows[waiting][self._reads[query, load.touches[waiting]]].sum() if waiting else 0
            self.begun.append((now, now + took - load.asked[query], 1 / (1 + unapplied)))
        self._plan(now)
        return float(now + took)

    def _came(self, now: float, is_update: bool, number: int) -> None:
        if not is_update:
            insort(self._queries, number, key=self._key.__getitem__)
            self._plan(now)
        elif self._reads[self._queries, self._load.touches[number]].any():
            self._plan(now, number)
        else:
            self._place[number] = self._position or 0

    def _plan(self, now: float, *new: int) -> None:
        """Choose positions, also of an update that has come."""
        before, updates, queries = self._place, [*self._place, *new], self._queries
        if self._position is not None:
            self._place = dict.fromkeys(updates, self._position)
        elif queries and updates:
            self._place = dict(zip(updates, self._chosen(updates, queries, self._qos(now)), strict=True))
            if (moved := distance(before, self._place)) is not None:
                self.distances.append((now, moved))

    def _chosen(self, updates: Sequence[int], queries: Sequence[int], qos: float) -> list[int]:
        """Steps 2 to 4 of Figure 6: dependencies, the slot, the knapsack."""
        costs = self._costs[updates]
        depends = self._reads[queries[::-1]][:, self._load.touches[updates]].T
        slot = int(costs.sum()) * len(queries) * (1 - qos)
        positions = positions_of(depends, costs, self._load.rows[updates])
        found = packed(positions, int(slot))
        self.plans.append((len(positions.cost) - len(updates), found))
        places: list[int] = found.place.tolist()
        return places
