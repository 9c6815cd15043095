"""What a kept tuple is worth to a running join: the tuple of least worth is dropped.

    RAND    a number by chance                       LRU    when it last joined
    PROB    Pr{the other stream shows its value}     LIFE   PROB times the arrivals it has left in its window
    HEEB    what it is expected to produce in its window, later results discounted by exp(-dt / alpha)

(Xie (2007), sections 3.4.3 and 3.6.) Time is counted in arrivals. A tuple of one side can only join arrivals of the
other, so for HEEB that side's arrivals are the steps, j = 1 .. J, where J is how many more it will see of them; alpha
is in the same unit. What is believed of a stream (`Beliefs`) says how H is found:

    STATIONARY   p(v) (1 - exp(-J / alpha)) / (exp(1 / alpha) - 1): the sum of a geometric series
    TREND        a curve c over the distance from the trend: c(o) - exp(-J / alpha) c(o - slope J), as after J steps the
                 same curve applies to the place where the tuple is then (incremental in value and time)
    SURFACE      a table over (last value, offset, level of J): walks have one row, AR(1) a row for each of some values

Probabilities of values are relative frequencies from a table of counters (two rows, the smaller counts), halved now and
then, so that old arrivals count less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hullcast.broker.streams.memory.kept import mixed
from hullcast.network.compiled import borrowing, kernel
from hullcast.network.wire.arrays import Floats, Ints

RAND, LRU, PROB, LIFE, HEEB = range(5)
STATIONARY, TREND, SURFACE = range(3)
#: Columns of `terms`, a row for each side: what is believed of the values that arrive there.
#: ALPHA is that of the curves, LATELY the one of the last look, LATELY_SUM exp(1 / LATELY) - 1. SMOOTH: how far the
#: level follows a new value.
KIND, ALPHA, LATELY, LOW, BIN, SLOPE, BASE, X_LOW, X_BIN, RELATIVE, SMOOTH, LATELY_SUM = range(12)
#: Elements of `clock`: the time, the mean time between arrivals, the mean lifetime of what was dropped, estimated
#: results missed; then for each side its share of the arrivals, the mean advance of its ordinal with an arrival of any
#: side, and its level: the last value, or for walks seen through noise a smoothed one.
NOW, GAP, LIFETIME, MISSED, SHARE, PACE, SHOWN = 0, 1, 2, 3, 4, 6, 8
CLOCKS = 10
#: Elements of `state`: counters, and for each side its last ordinal, arrivals, and the total of its table of counters.
STEPS, PRODUCED, DROPPED, REFUSED, EXPIRED, FOUND, LET_GO, HEAD, QUEUED, LEVEL, LOOKS, LOOKED = range(12)
POSITION, ARRIVED, TOTAL = 12, 14, 16
STATES = 18
#: How far back means go, in arrivals.
MEMORY_OF_MEANS = 1_024.0
#: HEEB on stationary streams takes lifetimes for so many times shorter than they are on average: decisions are about
#: tuples of little worth, which stay for less long. Chosen by measurement (MEMORY.md).
SHORTER = 8.0
#: Levels of J in a surface: 1, 2, 4 .. arrivals, the last for all beyond.
LEVELS = 16
_SALT = 0x5851F42D4C957F2D


class Beliefs(NamedTuple):
    """What is believed of the two streams."""

    counts: Ints  # (side, row, hash of a value)
    terms: Floats
    curves: Floats  # (side, last value, level, offset)


def new_beliefs(width: int, knots: int, bins: int) -> Beliefs:
    """Both stationary, nothing seen. `width` is a power of two."""
    return Beliefs(
        np.zeros((2, 2, width), np.int64),
        np.ones((2, 12)) * [STATIONARY, *[1.0] * 11],
        np.zeros((2, knots, LEVELS, bins)),
    )


@borrowing
def count(counts: Ints, side: int, key: int, state: Ints) -> None:
    """A value was shown by a side."""
    width = counts.shape[2]
    counts[side, 0, mixed(key) & (width - 1)] += 1
    counts[side, 1, mixed(key ^ _SALT) & (width - 1)] += 1
    state[TOTAL + side] += 1
    if state[TOTAL + side] >= 8 * width:
        state[TOTAL + side] //= 2
        for row in range(2):
            for at in range(width):
                counts[side, row, at] //= 2


@borrowing
def counter_places(key: int, width: int) -> tuple[int, int]:
    """Where the two counters of a value are, in rows of so many."""
    return mixed(key) & (width - 1), mixed(key ^ _SALT) & (width - 1)


@borrowing
def seen_of(counts: Ints, side: int, key: int) -> int:
    """How often a side showed a value, of what counts."""
    one, two = counter_places(key, counts.shape[2])
    return int(min(counts[side, 0, one], counts[side, 1, two]))


class Outlook(NamedTuple):
    """What all tuples of a side have in common when they are valued: of their window, and of the other side's stream.

    Numbers only: an array that is passed on has its references counted at each call, which takes longer than to value a
    tuple.
    """

    rows: float
    span: float
    position: int  # the last ordinal of the side
    now: float
    pace: float
    gap: float
    share: float  # of the other side among arrivals
    total: int  # of the other side's table of counters
    kind: int
    alpha: float
    lately: float
    lately_sum: float
    slope: float
    trend: float  # where the trend is
    low: float
    bin: float
    x_low: float
    x_bin: float
    relative: float
    shown: float


@borrowing
def outlook_of(side: int, terms: Floats, windows: Floats, state: Ints, clock: Floats) -> Outlook:
    """That of the tuples of a side, as of now."""
    other = 1 - side
    return Outlook(
        windows[side, 0], windows[side, 1], state[POSITION + side], clock[NOW], max(clock[PACE + side], 1e-9),
        max(clock[GAP], 1e-300), max(clock[SHARE + other], 1e-9), max(1, state[TOTAL + other]),
        int(terms[other, KIND]), terms[other, ALPHA], terms[other, LATELY], terms[other, LATELY_SUM],
        terms[other, SLOPE], terms[other, SLOPE] * (state[ARRIVED + other] - 1) + terms[other, BASE],
        terms[other, LOW], terms[other, BIN], terms[other, X_LOW], terms[other, X_BIN], terms[other, RELATIVE],
        clock[SHOWN + other],
    )  # fmt: skip


@borrowing
def arrivals_left(ordinal: int, time: float, outlook: Outlook) -> float:
    """How many more arrivals of the other side a tuple will see before it leaves its window, at the rates of late."""
    steps = np.inf
    if outlook.rows < np.inf:
        steps = max(0.0, ordinal + outlook.rows - outlook.position) / outlook.pace
    if outlook.span < np.inf:
        steps = min(steps, max(0.0, time + outlook.span - outlook.now) / outlook.gap)
    return float(steps * outlook.share)


@borrowing
def by_chance(number: int) -> float:
    """What a tuple is worth to RAND."""
    return float(mixed(number ^ _SALT))


@borrowing
def by_frequency(policy: int, seen: int, left: float, outlook: Outlook) -> float:
    """What a tuple is worth to PROB and LIFE, and to HEEB if the other stream is stationary: by how often that stream
    showed its value."""
    chance = seen / outlook.total
    if policy == PROB:
        return float(chance)
    if policy == LIFE:
        return float(chance * min(left, 1e300))
    return float(chance * ((1.0 - np.exp(-left / outlook.lately)) / outlook.lately_sum))


@borrowing
def worth_of(
    policy: int, side: int, key: int, code: float, number: int, ordinal: int, time: float, used: int,
    counts: Ints, curves: Floats, outlook: Outlook,
) -> float:  # fmt: skip
    """What a tuple of one side is worth by the policy."""
    if policy == RAND:
        return by_chance(number)
    if policy == LRU:
        return float(used)
    left = arrivals_left(ordinal, time, outlook)
    if policy != HEEB or outlook.kind == STATIONARY:
        return by_frequency(policy, seen_of(counts, 1 - side, key), left, outlook)
    return by_curve(curves, 1 - side, code, left, outlook)


@borrowing
def by_curve(curves: Floats, other: int, code: float, left: float, outlook: Outlook) -> float:
    """What a tuple is worth to HEEB if the other stream is not stationary."""
    if outlook.kind == TREND:
        return on_trend(curves, other, code - outlook.trend, left, outlook)
    return on_surface(curves, other, code, left, outlook)


@kernel
def alpha_of(lifetime: float) -> float:
    """The alpha whose mean lifetime 1 / (1 - exp(-1 / alpha)) is this one; lifetimes below 1.01 count as 1.01."""
    return float(-1.0 / np.log(1.0 - 1.0 / max(lifetime, 1.01)))


@borrowing
def on_trend(curves: Floats, other: int, offset: float, left: float, outlook: Outlook) -> float:
    """H at a distance from the trend: the curve there, less what it will be when the tuple leaves its window."""
    slope = outlook.slope
    if slope < 0.0:
        slope, offset = -slope, -offset
    found = _on_curve(curves, other, offset, slope, outlook)
    if found > 0.0 and left < 30.0 * outlook.alpha:
        then = _on_curve(curves, other, offset - slope * left, slope, outlook)
        if then > 0.0:  # mostly it is not: the trend has passed by then
            found -= np.exp(-left / outlook.alpha) * then
    return float(max(found, 0.0))


@borrowing
def _on_curve(curves: Floats, other: int, offset: float, slope: float, outlook: Outlook) -> float:
    """A curve is 0 behind the noise, and ahead of it what it will be when the trend is there, discounted by the time
    until then; between its points it goes along a line."""
    bins = curves.shape[3]
    at = (offset - outlook.low) / outlook.bin
    if at > bins - 1.0:
        late = (at - (bins - 1.0)) * outlook.bin / (slope * outlook.alpha)
        return float(np.exp(-late) * curves[other, 0, 0, bins - 1])
    if not at >= 0.0:
        return 0.0
    below = min(int(at), bins - 2)
    value = curves[other, 0, 0, below]
    return float(value + (at - below) * (curves[other, 0, 0, below + 1] - value))


@borrowing
def on_surface(curves: Floats, other: int, code: float, left: float, outlook: Outlook) -> float:
    """The table at (last value, offset, J), between its points along lines; 0 beyond its ends."""
    knots, bins = curves.shape[1], curves.shape[3]
    offset = code - outlook.shown if outlook.relative > 0.0 else code
    at = (offset - outlook.low) / outlook.bin
    if not 0.0 <= at <= bins - 1.0:
        return 0.0
    below = min(int(at), bins - 2)
    along = at - below
    level, over = LEVELS - 1, 0.0
    if left < 2.0 ** (LEVELS - 1):
        level = _highest_bit(int(left))
        over = max(0.0, left / (1 << level) - 1.0)
    row, beside = 0, 0.0
    if not outlook.relative > 0.0:
        place = min(max((outlook.shown - outlook.x_low) / outlook.x_bin, 0.0), knots - 1.0)
        row = min(int(place), knots - 2)
        beside = place - row
    found = 0.0
    for more in range(2 if beside > 0.0 else 1):
        for higher in range(2 if over > 0.0 else 1):
            weight = (beside if more == 1 else 1.0 - beside) * (over if higher == 1 else 1.0 - over)
            value = curves[other, row + more, level + higher, below]
            found += weight * (value + along * (curves[other, row + more, level + higher, below + 1] - value))
    return found if left >= 1.0 else found * left


@borrowing
def _highest_bit(number: int) -> int:
    """The place of the highest bit of a number below 2^16; 0 for 0."""
    found = 0
    for half in (8, 4, 2, 1):
        if number >> half:
            number >>= half
            found += half
    return found
