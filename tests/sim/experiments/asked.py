"""The oracle of compiled decisions: simulated streams whose policy is asked itself, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from hullcast.broker.streams.policies.policy import OperatorPolicy
from hullcast.network.wire.arrays import Floats
from hullcast.sim.experiments.studies.streams.simulated import (
    SimulatedQuery,
    SimulatedStreams,
    StreamArrivals,
    charts_of,
    found_in,
    world_of,
)
from hullcast.sim.experiments.studies.streams.simulated_world import NOBODY, NOW, SimulatedWorld, settle, work


def asked(
    policy: OperatorPolicy,
    queries: Sequence[SimulatedQuery],
    arrivals: Sequence[StreamArrivals],
    samples: Floats,
    *,
    seed: int | None = None,
    heartbeats: bool = False,
) -> SimulatedStreams:
    world, queues = world_of(queries, arrivals, samples, seed=seed, heartbeats=heartbeats)
    policy.measured(charts_of(queries), 0.0)
    for at, queue in enumerate(queues):
        queue.ages = partial(_waiting, world, at)
    ready = np.empty(len(queues), np.int64)
    while found := settle(world, ready):
        items = [queues[at] for at in ready[:found]]
        for at, item in zip(ready[:found], items, strict=True):
            item.arrived, item.size = float(world.arrived[world.head[at]]), float(world.size[at])
        picked = policy.pick(items, float(world.clock[NOW]))
        took = work(world, next(at for at, queue in enumerate(queues) if queue is picked))
        policy.served(picked, took, float(world.clock[NOW]))
    return found_in(world)


def _waiting(world: SimulatedWorld, queue: int) -> list[tuple[float, float]]:
    entry, waiting = int(world.head[queue]), []
    while entry != NOBODY:
        waiting.append((float(world.arrived[entry]), float(world.weight[entry])))
        entry = int(world.link[entry])
    return waiting
