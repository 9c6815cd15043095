"""Response time against freshness: Thiele, Bader and Lehner (2009), figure by figure.

Two schedulers stand beside each other. *pareto* is the shipped policy on the shipped board (`shipped.py`); *knapsack*
is the paper's scheduler of single updates (`paper.py`). Workloads are in sim/traces/tradeoff.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from pathlib import Path
from typing import Any

from hullcast.sim.experiments.studies.scheduling.tradeoff import (
    effort,
    flips,
    fronts,
    knapsacks,
    preferences,
    runs,
    stability,
)
from hullcast.sim.experiments.study import GridPoint, Sweep
from hullcast.sim.output.claims import Section
from hullcast.sim.traces.tradeoff import CITED

WORDS: Mapping[str, str] = {
    CITED: "M. Thiele, A. Bader, W. Lehner, Multi-Objective Scheduling for Real-Time Data Warehouses, 2009",
    "pareto": "the shipped policy: all pending updates of a table are one, and where all queries prefer the same, "
    "qos = 0 or qos = 1, it does what updates-first or queries-first does, and plans nothing",
    "knapsack": "the paper's scheduler: updates one by one, and a knapsack for every event, at every preference",
    "qos": "how much a query prefers a short wait, from 0 to 1; the rest, 1 - qos, is its preference for fresh rows. "
    "Where preferences flip, it is that of the first phase; the second has 1 - qos, and so on",
    "freshness of an answer": "1 / (1 + rows not yet applied to the tables it reads), when it begins; 1 is best",
    "slot": "the time that updates may take from queries: what all updates first would cost them, times mean 1 - qos",
    "distance": "mean change of an update's position from one schedule to the next, in queries",
}
FIGURES = {"front": fronts, "flips": flips, "stay": preferences, "sizes": knapsacks, "load": effort, "rates": effort,
           "stable": stability}  # fmt: skip
MODULES = tuple(dict.fromkeys(FIGURES.values()))
USUAL = {"workload": "Gauss", "policy": "knapsack", "qos": 0.0, "flips": 0, "size": 0, "dependency": 0.1,
         "shortened": 0.0}  # fmt: skip
METRICS = (*fronts.METRICS, *runs.METRICS, *knapsacks.METRICS)


def points(quick: bool) -> list[dict[str, Any]]:
    """Of all figures."""
    return [USUAL | point for module in MODULES for point in module.points(quick)]


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """Of one figure; what others measure is not a number."""
    measured: dict[str, float] = FIGURES[point["figure"]].measure(point, seed)
    return dict.fromkeys(METRICS, nan) | measured


def sections(found: Sweep, folder: Path) -> list[Section]:
    """In the order of the paper."""
    return [section for module in MODULES for section in module.sections(found, folder)]
