"""What all parts need: the planners by name, changes that come, and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hullcast.broker.views.costs import CostFunction
from hullcast.broker.views.planner import Thrifty, ViewPlanner
from hullcast.sim.experiments.studies.batching.guessed import Guessed
from hullcast.sim.experiments.studies.batching.lgm import Lgm, best_plan
from hullcast.sim.experiments.studies.batching.planners import Naive, Online
from hullcast.sim.experiments.studies.batching.simulated import SimulatedView, simulate
from hullcast.sim.seeds import generator

CITED = "Xie (2007)"
WORDS: Mapping[str, str] = {
    CITED: "J. Xie, Handling Resource Constraints and Scalability in Continuous Query Processing, PhD thesis, Duke "
    "University, 2007, chapter 2",
    "limit": "dT, the promised time: what is pending never takes longer",
    "T": "the step in which the view is refreshed; all that is pending is propagated then, and that counts",
    "NAIVE": "propagates all tables when the limit is reached",
    "OPT-LGM": "the cheapest plan that acts only at the limit, empties tables as a whole, and no more of them than "
    "needed; it knows T and all that comes",
    "ADAPT": "follows the OPT-LGM plan for T0 = 500 and one change of each table in a step, over and over, whatever "
    "comes (SIMULATE in the thesis)",
    "ONLINE": "at the limit, empties those tables after which a unit of time will have cost least; knows nothing ahead",
    "THRIFTY": "ours: at the limit, empties those tables whose cost beyond the least possible for their changes is "
    "lowest for the time that it buys; knows nothing ahead",
    "p, sd": "in each step, with probability p, changes of a table come: as many as a normal variate with mean 1 and "
    "this standard deviation says, rounded, and drawn again until it is positive",
    "cost": "seconds of propagation, the refresh at T included",
}
NAIVE, LGM, ADAPT, ONLINE, THRIFTY = "NAIVE", "OPT-LGM", "ADAPT", "ONLINE", "THRIFTY"
PLANNERS = (NAIVE, ADAPT, ONLINE, THRIFTY, LGM)
#: What ADAPT takes for granted.
GUESSED_T, GUESSED_RATE = 500, 1.0
#: The kinds of arrivals: p and sd; one of each table in each step is "uniform".
KINDS = {"slow, stable": (0.5, 1.0), "slow, unstable": (0.5, 5.0), "fast, stable": (0.9, 1.0),
         "fast, unstable": (0.9, 5.0)}  # fmt: skip
UNIFORM = "uniform"

Arrivals = npt.NDArray[np.int64]


def drawn_arrivals(kind: str, steps: int, seed: int, tables: int = 2) -> Arrivals:
    """Changes of each table in each step; all planners get the same."""
    if kind == UNIFORM:
        return np.ones((steps, tables), np.int64)
    p, sd = KINDS[kind]
    chance = generator(seed, "batching", "arrivals", kind, steps)
    come = np.rint(chance.normal(1.0, sd, (steps, tables)))
    while (again := come <= 0).any():
        come[again] = np.rint(chance.normal(1.0, sd, int(again.sum())))
    return np.where(chance.random((steps, tables)) < p, come, 0).astype(np.int64)


def planner_of(name: str, arrivals: Arrivals, costs: Sequence[CostFunction], limit_s: float) -> ViewPlanner:
    """A planner, with what it may know."""
    if name == LGM:
        return Lgm(best_plan(arrivals, costs, limit_s))
    if name == ADAPT:
        return Guessed(float(GUESSED_T), [GUESSED_RATE] * arrivals.shape[1], steps=GUESSED_T, effort=300_000)
    return {NAIVE: Naive, ONLINE: Online, THRIFTY: Thrifty}[name]()


def planned(name: str, arrivals: Arrivals, costs: Sequence[CostFunction], limit_s: float) -> SimulatedView:
    """What a planner makes of it."""
    return simulate(planner_of(name, arrivals, costs, limit_s), arrivals, costs, limit_s)
