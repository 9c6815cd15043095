"""A run of a scheduler while preferences change: how answers began, how far each schedule is from the one before."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

import numpy as np

from hullcast.sim.experiments.studies.scheduling.tradeoff.paper import QUERIES_FIRST, UPDATES_FIRST, PaperScheduler
from hullcast.sim.experiments.studies.scheduling.tradeoff.shipped import POLICIES, FlippingWarehouse, MeasuredPareto
from hullcast.sim.traces.tradeoff import tradeoff_workload

if TYPE_CHECKING:
    import numpy.typing as npt

    from hullcast.sim.experiments.study import GridPoint

    Floats = npt.NDArray[np.float64]

#: Schedulers of single updates: the paper's, and the pure policies beside it.
PAPER: dict[str, int | None] = {
    "knapsack": None, "single queries-first": QUERIES_FIRST, "single updates-first": UPDATES_FIRST,
}  # fmt: skip
STEPS = 28  # of the time of a run
FAR = 20  # whole distances below have a count of their own
COURSES = ("response", "freshness", "distance")
METRICS = (
    *(f"{what} {at}" for what in COURSES for at in range(STEPS)), *COURSES, "schedules",
    *(f"far {whole}" for whole in range(FAR + 1)),
)  # fmt: skip


def run(point: GridPoint, seed: int) -> dict[str, float]:
    """With qos in the first phase, 1 - qos in the second, and so on."""
    load = tradeoff_workload(point["workload"], point["size"], seed)
    end, flips, qos = float(load.asked[-1]), point["flips"], point["qos"]
    ends = np.linspace(0.0, end, flips + 2)[:-1]

    def preferred(now: float) -> float:
        phase = int(np.searchsorted(ends, now, side="right")) - 1
        return 1.0 - qos if phase % 2 else float(qos)

    if point["policy"] in PAPER:
        scheduler = PaperScheduler(load, preferred, PAPER[point["policy"]])
        scheduler.run()
        begun, distances = scheduler.begun, scheduler.distances
    else:
        policy = POLICIES[point["policy"]]()
        warehouse = FlippingWarehouse(policy, load)
        for when in ends.tolist():
            warehouse.prefer_at(when, preferred(when))
        warehouse.run()
        begun, distances = warehouse.begun, policy.distances if isinstance(policy, MeasuredPareto) else []
    when, response, freshness = np.array(begun).T
    measured = course("response", when, response, end) | course("freshness", when, freshness, end)
    if distances:
        when, moved = np.array(distances).T
        whole = np.bincount(np.minimum(moved.round().astype(int), FAR), minlength=FAR + 1)
        measured |= course("distance", when, moved, end)
        measured |= {"schedules": float(len(moved))} | {f"far {at}": float(count) for at, count in enumerate(whole)}
    return measured


def course(name: str, when: Floats, values: Floats, end: float) -> dict[str, float]:
    """The mean, and that of each step of the time up to the end; nan where there is nothing."""
    step = (when / end * STEPS).astype(int)
    means = {f"{name} {at}": float(values[step == at].mean()) if (step == at).any() else nan for at in range(STEPS)}
    return means | {name: float(values.mean())}
