"""Queries and updates of a warehouse in the sizes of Thiele, Bader and Lehner (2009), section 5.

Tables are the paper's partitions: an update touches one, a query reads a tenth of them, so that a tenth of all updates
concern it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hullcast.broker.scheduling.knapsack import UpdatePositions, update_positions
from hullcast.sim.seeds import generator

CITED = "Thiele, Bader and Lehner (2009)"
WORKLOADS = ("Gauss", "Zipf")
TABLES, READ = 50, 5
LOAD = 0.95  # of the time, in the mean, one place has something to do


@dataclass(frozen=True, slots=True)
class TradeoffWorkload:
    """Sizes in seconds and rows, and when each query and update comes."""

    takes: npt.NDArray[np.float64]
    costs: npt.NDArray[np.float64]
    rows: npt.NDArray[np.int64]
    asked: npt.NDArray[np.float64]
    released: npt.NDArray[np.float64]
    reads: npt.NDArray[np.int64]
    touches: npt.NDArray[np.int64]

    @property
    def costs_ms(self) -> npt.NDArray[np.int64]:
        """What updates take, in whole milliseconds."""
        return np.maximum(1, (self.costs * 1_000).round()).astype(np.int64)


@lru_cache(maxsize=4)
def tradeoff_workload(kind: str, size: int, seed: int, read: int = READ) -> TradeoffWorkload:
    """As many updates as queries, in the paper's sizes."""
    random = generator(seed, "tradeoff", kind, size)
    takes: npt.NDArray[np.float64]
    costs: npt.NDArray[np.float64]
    if kind == "Gauss":
        takes, costs, rows = (random.normal(mean, 1, size) for mean in (5_000.0, 500.0, 50.0))
    else:
        takes, costs, rows = _zipf(random, 10, 2_000, size), _zipf(random, 5, 100, size), _zipf(random, 1, 500, size)
    apart_s = (takes.mean() + costs.mean()) / 1_000 / LOAD
    asked, released = (np.cumsum(random.exponential(apart_s, size)) for _ in range(2))
    reads = random.permuted(np.tile(np.arange(TABLES), (size, 1)), axis=1)[:, :read]
    touches = random.integers(0, TABLES, size)
    return TradeoffWorkload(
        takes / 1_000, costs / 1_000, rows.round().astype(np.int64), asked, released, reads, touches
    )


def _zipf(random: np.random.Generator, step: float, ranks: int, size: int) -> npt.NDArray[np.float64]:
    """Multiples of a step, each as often as the inverse of its rank."""
    chance = 1.0 / np.arange(1, ranks + 1)
    return step * random.choice(np.arange(1.0, ranks + 1), size, p=chance / chance.sum())


def knapsack_of(kind: str, size: int, dependency: float, qos: float, seed: int) -> tuple[UpdatePositions, int]:
    """All at once, as the paper's largest case: positions in milliseconds, and the slot."""
    load = tradeoff_workload(kind, size, seed)
    depends = generator(seed, "depends", kind, size, dependency).random((size, size)) < dependency
    return positions_of(depends, load.costs_ms, load.rows), int(load.costs_ms.sum() * size * (1 - qos))


def positions_of(
    depends: npt.NDArray[np.bool_], costs: npt.NDArray[np.int64], profits: npt.NDArray[np.int64]
) -> UpdatePositions:
    """The positions of updates by `depends[u, k]`: whether the query that is the k-th before the last (0: the last)
    depends on update u."""
    first = np.concatenate([[0], np.cumsum(depends.sum(axis=1))]).astype(np.int64)
    return update_positions(costs, profits, first, np.nonzero(depends)[1].astype(np.int64) + 1)
