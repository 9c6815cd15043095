"""The worked example that opens the paper: two operators, seven tuples, Greedy against FIFO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hullcast.broker.streams.chart import Chart
from hullcast.sim.experiments.studies.streams.simulated import SimulatedQuery, StreamArrivals, simulate
from hullcast.sim.experiments.studies.streams.workload import CHAIN, CITED, FIFO, GREEDY, Traces, policy_of
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.claims import Claim, Section, ratio_claim

CHART = Chart((0, 1, 2), (1, 0.2, 0))
#: The sizes of the queues at t = 0 .. 6: the digits are lost in our copy of the paper, and were restored by its rules.
TOLD = {GREEDY: (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2), FIFO: (1.0, 1.2, 2.0, 2.2, 3.0, 3.2, 4.0)}
END = 14


def points(quick: bool, traces: Traces = ()) -> list[dict[str, Any]]:
    """The two policies of the paper, and Chain."""
    return grid(policy=(GREEDY, FIFO, CHAIN))


def measure(point: GridPoint, seed: int, traces: Traces = ()) -> dict[str, float]:
    """Queues at t = 0 .. 14; nothing is random."""
    arrivals = [StreamArrivals(np.arange(7.0))]
    found = simulate(
        policy_of(point["policy"]), [SimulatedQuery.of(CHART)], arrivals, np.arange(END + 1, dtype=np.float64) + 1e-6
    )
    return {f"t{at}": float(size) for at, size in enumerate(found.memory)}


def sections(found: Sweep, folder: Path, traces: Traces = ()) -> list[Section]:
    """One."""
    table = [["t", *map(str, range(END + 1))]]
    table += [
        [name, *(f"{abs(found.middle(f't{at}', policy=name)):.1f}" for at in range(END + 1))]
        for name in found.all_of("policy")
    ]
    return [
        Section(
            "streams-example",
            "The worked example: queues by time",
            "One operator takes 1 unit of time for a tuple and keeps 0.2 of it; the next takes 1 unit for these 0.2. A "
            "tuple arrives at each of t = 0 .. 6.",
            "Greedy's queues grow to 2.2, FIFO's to 4.0; both are empty in the end.",
            found.judged(_claims),
            figures=[table],
            cited=CITED,
            items=("Example 1",),
        )
    ]


def _claims(found: Sweep) -> list[Claim]:
    peak = {name: max(found.middle(f"t{at}", policy=name) for at in range(END + 1)) for name in TOLD}
    less = peak[GREEDY] / peak[FIFO]
    claims = [ratio_claim(GREEDY, "needs less memory than FIFO at its peak", less, less < 1, "the simulator is wrong",
                          paper="smaller maximum")]  # fmt: skip
    for name, told in TOLD.items():
        sizes = [found.middle(f"t{at}", policy=name) for at in range(END + 1)]
        off = max(abs(size - restored) for size, restored in zip(sizes, told, strict=False))
        claims.append(Claim(name, "has the queues of the table at t = 0 .. 6 (largest difference)", f"{off:.2g}",
                            off < 1e-9, incomparable="the digits of the table are lost in our copy; these were "
                            "restored from the rules of the example", value=off, paper="a table"))  # fmt: skip
    return claims
