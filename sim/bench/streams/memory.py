"""What it takes to decide which tuple a bounded join drops: microseconds per arrival, by policy.

The join without a bound that holds as many tuples does all but decide: it finds results, and lets tuples go that leave
their windows. RAND decides, and looks at nothing. What HEEB takes more than either is what its decisions take, with
models that are fitted as it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import thread_time

import numpy as np

from hullcast.broker.streams.memory.bounded_join import LEFT, BoundedJoin, JoinWindow, KeepBy
from hullcast.broker.streams.runner import MICRO_BATCH
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.bench.frame.timing import turns
from hullcast.sim.seeds import generator

UNBOUNDED = "without a bound"
#: In the order in which they are shown.
KEPT_BY: tuple[KeepBy, ...] = (KeepBy.RAND, KeepBy.LRU, KeepBy.PROB, KeepBy.LIFE, KeepBy.HEEB)
DECISION_STREAMS = ("skewed", "trend", "walk", "AR(1)")


@dataclass(frozen=True, slots=True)
class DecisionArrivals:
    """Arrivals of two streams, as a join takes them."""

    sides: Ints
    values: Floats
    ordinals: Ints
    times: Floats


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """One policy on one kind of stream: microseconds of CPU an arrival, and results."""

    policy: str
    us: float  # median over rounds
    more_than_unbounded_us: float  # the same, round by round
    more_than_rand_us: float
    produced: float  # share of the results without a bound, windows as large


@dataclass(frozen=True, slots=True)
class DecisionStream:
    """All policies on one kind of stream."""

    stream: str
    model: str  # that HEEB took it for
    unbounded_us: float  # of a join that holds as many
    lines: tuple[DecisionLine, ...]

    def line(self, policy: str) -> DecisionLine:
        """One of them."""
        return next(line for line in self.lines if line.policy == policy)


@dataclass(frozen=True, slots=True)
class DecisionSection:
    """All kinds of streams."""

    kept: int
    arrivals: int
    streams: tuple[DecisionStream, ...]


def decisions(kept: int, arrivals: int, rounds: int, seed: int, tick: Tick) -> DecisionSection:
    """All policies in turns on each kind of stream; windows hold twice as many tuples as are kept."""
    found = []
    for stream in DECISION_STREAMS:
        came = drawn_arrivals(stream, 4 * kept + arrivals, kept, seed)
        ways: dict[str, tuple[int, int | None, KeepBy]] = {UNBOUNDED: (kept // 2, None, KeepBy.RAND)}
        ways |= {policy.name: (kept, kept, policy) for policy in KEPT_BY}
        us: dict[str, list[float]] = {name: [] for name in ways}
        produced: dict[str, int] = {}
        model = ""
        for _ in turns(rounds, tick, f"decisions, {stream}"):
            for name, (rows, memory, policy) in ways.items():
                join = BoundedJoin(JoinWindow(rows=rows), JoinWindow(rows=rows), memory, policy)
                us[name].append(_timed(join, came, 4 * kept))
                produced[name] = join.statistics().produced
                model = join.models()[LEFT].model.value
        full = BoundedJoin(JoinWindow(rows=kept), JoinWindow(rows=kept))
        _timed(full, came, 4 * kept)
        found.append(_stream(stream, model, us, produced, full.statistics().produced))
    return DecisionSection(kept, arrivals, tuple(found))


def _timed(join: BoundedJoin, came: DecisionArrivals, warm: int) -> float:
    """Microseconds of CPU for an arrival, once memory is full."""

    def add(start: int, stop: int) -> None:
        for at in range(start, stop, MICRO_BATCH):
            some = slice(at, min(at + MICRO_BATCH, stop))
            join.add(came.sides[some], came.values[some], came.ordinals[some], came.times[some])

    add(0, warm)
    began = thread_time()
    add(warm, len(came.values))
    return 1e6 * (thread_time() - began) / (len(came.values) - warm)


def _stream(
    stream: str, model: str, us: dict[str, list[float]], produced: dict[str, int], everything: int
) -> DecisionStream:
    counted = {name: of[1:] for name, of in us.items()}  # the first round only warms up
    unbounded, rand = counted[UNBOUNDED], counted[KeepBy.RAND.name]
    lines = [
        DecisionLine(
            policy.name,
            median(counted[policy.name]),
            _more(counted[policy.name], unbounded),
            _more(counted[policy.name], rand),
            produced[policy.name] / max(1, everything),
        )
        for policy in KEPT_BY
    ]
    return DecisionStream(stream, model, median(unbounded), tuple(lines))


def _more(ours: Sequence[float], others: Sequence[float]) -> float:
    return median(a - b for a, b in zip(ours, others, strict=True))


def drawn_arrivals(stream: str, n: int, kept: int, seed: int) -> DecisionArrivals:
    """Sides by chance, values on both sides by one law, spread so that an arrival has a partner or so in windows of
    `kept` rows."""
    draw = generator(seed, "bench/streams/decisions", stream)
    sides = draw.integers(0, 2, n)
    ordinals = np.zeros(n, np.int64)
    for side in (0, 1):
        ordinals[sides == side] = np.arange(np.count_nonzero(sides == side))
    noise = draw.normal(0.0, 1.0, n)
    values: Floats
    if stream == "skewed":
        values = 2 * kept * draw.random(n) ** 2
    elif stream == "trend":
        values = ordinals + kept / 100 * noise * (1 + sides)
    elif stream == "walk":
        values = np.sqrt(kept) / 2 * np.cumsum(noise) + sides * draw.normal(0.0, 2.0, n)
    else:
        values, at = np.empty(n), [0.0, 0.0]
        for place, (side, step) in enumerate(zip(sides.tolist(), noise.tolist(), strict=True)):
            at[side] = 0.9 * at[side] + kept / 8 * step
            values[place] = at[side]
    return DecisionArrivals(sides, np.floor(values), ordinals, np.arange(n, dtype=np.float64))
