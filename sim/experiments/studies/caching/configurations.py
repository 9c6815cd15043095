"""What all parts need: the streams of the configurations, the policies by name, and words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hullcast.broker.streams.memory.worth import alpha_of
from hullcast.network.wire.arrays import Ints
from hullcast.sim.experiments.studies.caching.curves import worth_for
from hullcast.sim.experiments.studies.caching.flow import FlowExpect, OptOffline
from hullcast.sim.experiments.studies.caching.models import (
    Chances,
    LinearTrend,
    RandomWalk,
    StreamModel,
    normal_chances,
    uniform_chances,
)
from hullcast.sim.experiments.studies.caching.policy import Heeb, MemoryPolicy, ObservedHeeb, RacedHeeb
from hullcast.sim.experiments.studies.caching.rivals import FOR_EVER, LifeInWindow, Lru, Prob, Rand
from hullcast.sim.output.claims import Claim
from hullcast.sim.output.text import factor
from hullcast.sim.seeds import generator

CITED = "Xie (2007)"
WORDS: Mapping[str, str] = {
    CITED: "J. Xie, Handling Resource Constraints and Scalability in Continuous Query Processing, PhD thesis, Duke "
    "University, 2007, chapter 3",
    "memory": "how many tuples of both streams together are kept (in a cache: of the relation)",
    "results": "pairs of a tuple that came and one of the other stream that was kept, after a warm-up of 4 times the "
    "largest memory of the figure",
    "TOWER, ROOF, FLOOR": "two streams that rise by 1 a step, R one step behind S, with noise of R within 10 and of S "
    "within 15: normal with standard deviations 1 and 2, normal with 3.3 and 5, uniform",
    "WALK": "two random walks with normal steps of variance 1",
    "REAL": "references are daily temperatures of Melbourne, and what is cached is a row for each 0.1 degree",
    "OPT-offline": "knows both streams to their ends: the most results that are possible (by min-cost flow)",
    "LFD": "of a cache: drops what will be referenced last; the optimum, and knows all references",
    "FlowExpect": "plans some steps ahead by a min-cost flow over expected benefits, and takes the first decision",
    "RAND": "drops by chance",
    "PROB": "drops the value that the other stream showed least often; in a cache that is LFU",
    "LIFE": "drops the least of PROB's frequency times the steps left in a window",
    "window": "what RAND, PROB and LIFE know besides: a tuple is of no use any more when it is older than the sum of "
    "the two bounds of noise (not in WALK)",
    "LRU": "drops what has not been used for the longest time",
    "HEEB": "drops the least H: what a tuple is expected to produce, discounted by exp(-dt / alpha), with alpha as the "
    "thesis sets it for a configuration",
    "HEEB, observed": "alpha follows the lifetimes observed, which the thesis leaves to future work",
    "HEEB, raced": "ours: of six alphas from 1 to 64 the one by which HEEB would have had most results lately",
}
TOWER, ROOF, FLOOR, WALK = "TOWER", "ROOF", "FLOOR", "WALK"
CONFIGURATIONS = (TOWER, ROOF, FLOOR, WALK)
OPT, FLOW, RAND, PROB, LIFE, LRU = "OPT-offline", "FlowExpect", "RAND", "PROB", "LIFE", "LRU"
HEEB, OBSERVED, RACED = "HEEB", "HEEB, observed", "HEEB, raced"
POLICIES = (OPT, FLOW, HEEB, OBSERVED, RACED, LRU, RAND, PROB, LIFE)
#: What knows nothing of the streams but what it saw.
RIVALS = (LRU, RAND, PROB, LIFE)
BOUNDS = (10, 15)
NOISE = {
    TOWER: (normal_chances(1.0, 10), normal_chances(2.0, 15)),
    ROOF: (normal_chances(3.3, 10), normal_chances(5.0, 15)),
    FLOOR: (uniform_chances(10), uniform_chances(15)),
}
#: "We use the bound on the noise distribution as the sliding window": for how many steps tuples of R and of S may be
#: useful. After the sum of the bounds none is, and with it LIFE beats PROB, as in the text (`joins` has all three).
SUM, OTHERS, OWN = "sum of the bounds", "bound of the other stream", "bound of its own stream"
WINDOWS = {SUM: (sum(BOUNDS), sum(BOUNDS)), OTHERS: (BOUNDS[1], BOUNDS[0]), OWN: BOUNDS}
#: Mean lifetimes by which the thesis sets alpha: twice the standard deviation, or half of the sum of the bounds.
LIFETIMES = {TOWER: 3.0, ROOF: 8.3, FLOOR: 12.5}
#: How far FlowExpect looks where nothing else is said.
AHEAD = 5


@dataclass(frozen=True, slots=True, eq=False)
class TwoStreams:
    """What came, and what the streams were drawn from."""

    r: Ints
    s: Ints
    of_r: StreamModel
    of_s: StreamModel
    windows: tuple[int, int]  # for tuples of R and of S
    lifetime: float | None  # None: alpha is the memory


def two_streams(configuration: str, steps: int, seed: int, window: str = SUM) -> TwoStreams:
    """All policies and memories of a seed get the same; `window` is a reading of the text."""
    if configuration == WALK:
        step = normal_chances(1.0)
        walk = RandomWalk(step)
        r, s = (np.cumsum(step.drawn(steps, generator(seed, "caching", WALK, side, steps))) for side in "RS")
        return TwoStreams(r, s, walk, walk, (FOR_EVER, FOR_EVER), None)
    return trending(NOISE[configuration], 1, steps, seed, LIFETIMES[configuration], WINDOWS[window])


def trending(
    noise: tuple[Chances, Chances], lag: int, steps: int, seed: int, lifetime: float, windows: tuple[int, int]
) -> TwoStreams:
    """Two streams that rise by 1 a step, R so many steps behind S."""
    t = np.arange(steps)
    draws = [each.drawn(steps, generator(seed, "caching", side, steps)) for each, side in zip(noise, "RS", strict=True)]
    of_r, of_s = LinearTrend(1, -lag, noise[0]), LinearTrend(1, 0, noise[1])
    return TwoStreams(t - lag + draws[0], t + draws[1], of_r, of_s, windows, lifetime)


def policy_of(name: str, streams: TwoStreams, memory: int, seed: int, ahead: int = AHEAD) -> MemoryPolicy:
    """A policy, with what it may know."""
    of_r, of_s, windows = streams.of_r, streams.of_s, streams.windows
    match name:
        case "OPT-offline":
            return OptOffline(streams.r, streams.s, memory)
        case "FlowExpect":
            return FlowExpect((of_r, of_s), memory, ahead)
        case "RAND":
            return Rand(generator(seed, "caching", "RAND", memory), windows)
        case "PROB":
            return Prob(windows)
        case "LIFE":
            return LifeInWindow(windows)
        case "LRU":
            return Lru()
        case "HEEB, observed":
            return ObservedHeeb(of_r, of_s, memory)
        case "HEEB, raced":
            return RacedHeeb(of_r, of_s, memory)
        case _:
            alpha = float(memory) if streams.lifetime is None else alpha_of(streams.lifetime)
            return Heeb(worth_for(of_r, alpha), worth_for(of_s, alpha))


def ratio_claim(
    subject: str, statement: str, ratio: float, holds: bool, because: str = "", workload: str = "", **more: Any
) -> Claim:
    """A claim whose verdict depends on how many times as much something is."""
    return Claim(subject, statement, factor(ratio), holds, because, value=ratio, form=factor, workload=workload, **more)
