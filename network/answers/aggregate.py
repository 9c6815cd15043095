"""COUNT, SUM and AVG of a range: a message moves the answer by a little."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from hullcast.network.answers.answers import SingleAnswers
from hullcast.network.answers.audience import end_of, next_message
from hullcast.network.compiled import kernel, part

if TYPE_CHECKING:
    import numpy.typing as npt

    from hullcast.network.answers.answers import Decoder, Recompute
    from hullcast.network.answers.audience import Audience
    from hullcast.network.answers.outbox import Outbox
    from hullcast.network.wire.arrays import Floats, Ints
    from hullcast.network.wire.bodies import ChannelSpec
    from hullcast.network.wire.columns import Columns

COUNT, SUM, EXACT_SUM, AVG = 0, 1, 2, 3  # `function` of a channel's description


ROWS, HIGH, LOW, LOST_BITS = 0, 1, 2, 3  # columns of a state
STATE = ("rows", "high", "low", "lost_bits")  # their names in first answers

_SPLITTER = 2.0**27 + 1.0  # divides a float64 into two halves of its digits
_HUGE, _TINY, _LEAST = 2.0**800, 2.0**-800, 2.0**-700
_DOWN, _UP = 2.0**-600, 2.0**600
_LESS, _MORE = 1.0 - 2.0**-48, 1.0 + 2.0**-48  # around a number with an error of its last bit or two


class AggregateAnswers(SingleAnswers):
    """Per listener the number of rows in its range and their sum, as an unevaluated pair of floats (high + low).

    The pair holds 106 bits, so that adding and taking away rows for days leaves no drift: the answer is the sum of
    the rows there are now, or that sum divided by their number, rounded once. What even 106 bits could not hold is
    bounded by LOST_BITS; as soon as that could show in the answer (after a row a quadrillion times as large as the
    rest came and went, or an overflow) the listener is *suspect*, and its sum is recomputed from the rows. An empty
    range has the sum 0 exactly.
    """

    form = "places"
    unions = True
    columns = STATE

    def __init__(self, spec: ChannelSpec, decoder: Decoder, recompute: Recompute) -> None:
        super().__init__(spec, decoder, recompute)
        self.function = spec.function
        self._marks: Ints = np.full(len(self.state), -1, np.int64)
        self._mark = 0

    def numbers(self, ids: Ints) -> tuple[Floats, Floats]:
        """NaN stands for NULL. The rest is 0 but for exact sums."""
        values, rests = answers_of(self.function, self.state, ids)
        return values, rests

    def read(self, value: float, rest: float) -> Any:
        if np.isnan(value):
            return None
        if self.function == COUNT:
            return int(value)
        return int(value) + int(rest) if self.function == EXACT_SUM else value

    def column(self, ids: Ints) -> npt.NDArray[Any]:
        """Whole numbers for COUNT, floats with NaN for NULL; objects where a sum may be too large for either."""
        if self.function == EXACT_SUM:
            return super().column(ids)
        values = self.numbers(ids)[0]
        return values.astype(np.int64) if self.function == COUNT else values

    def hear(self, audience: Audience, columns: Columns) -> int:
        """`old.y` and `new.y` are what a row counted for, and counts for."""
        if len(self._marks) < len(self.state):
            self._marks = np.full(len(self.state), -1, np.int64)
        old_y, new_y = cast("Floats", columns["old.y"]), cast("Floats", columns["new.y"])
        seqs, told = cast("Ints", columns["seq"]), 0
        suspects: dict[int, Doubt] = {}
        for was, now in audience.around(*self.boxes(columns)):
            who, what, values, rests, doubted, doubts = _fold(
                self.function, self.state, self._marks, self._mark, *was, *now, old_y, new_y
            )
            self._mark += len(seqs)
            audience.outbox.put(who, seqs[what], values, rests)
            told += len(who)
            for i, (message, value, rest) in zip(doubted.tolist(), doubts.tolist(), strict=True):
                suspects[i] = Doubt(int(seqs[int(message)]), value, rest)
        if suspects:
            self._correct(audience, suspects)
        return told

    def _correct(self, audience: Audience, suspects: dict[int, Doubt]) -> None:
        """Replace the states of suspects, and what they were told of the last message that concerned them."""
        ids = np.array(sorted(suspects))
        folded = {i: self.number(i) for i in suspects}
        exact = self.recompute(ids)
        if exact is None:
            return
        self.start(ids, exact)
        outbox = cast("Outbox", audience.outbox)  # only an engine recomputes answers at once
        for i, doubt in suspects.items():
            value, rest = self.number(i)
            if same(value, rest, doubt.value, doubt.rest):
                outbox.retract(i, doubt.seq)
            elif not same(value, rest, *folded[i]):
                outbox.amend(i, doubt.seq, value, rest)


def first_answers(states: Floats) -> Columns:
    """States, a row for each listener, as first answers."""
    return {name: np.ascontiguousarray(states[:, i]) for i, name in enumerate(STATE)}


class Doubt(NamedTuple):
    """A suspect's last message of a batch, and its answer before that."""

    seq: int
    value: float
    rest: float


@part
def _add(state: Floats, i: int, y: float, rows: int) -> None:
    """Add y and the rows to the pair (two-sum, then renormalise: Dekker 1971)."""
    high, low = state[i, HIGH], state[i, LOW]
    state[i, ROWS] += rows
    total = high + y
    if state[i, ROWS] == 0:
        state[i, HIGH] = state[i, LOW] = state[i, LOST_BITS] = 0.0
    elif not np.isfinite(total):
        state[i, HIGH], state[i, LOW], state[i, LOST_BITS] = total, 0.0, np.inf
    else:
        from_y = total - high
        error = (high - (total - from_y)) + (y - from_y)
        rest = error + low
        from_low = rest - error
        state[i, LOST_BITS] += abs((error - (rest - from_low)) + (low - from_low))
        state[i, HIGH] = total + rest
        state[i, LOW] = rest - (state[i, HIGH] - total)


@part
def _is_suspect(function: int, state: Floats, i: int) -> bool:
    """Whether the bits lost so far could show in the answer."""
    lost = state[i, LOST_BITS]
    if lost == 0.0 or function == COUNT:
        return False
    high = state[i, HIGH]  # one float further on either side: low + lost is rounded itself, and may hide a tie
    above = np.nextafter(state[i, LOW] + lost, np.inf)
    below = np.nextafter(state[i, LOW] - lost, -np.inf)
    if function == EXACT_SUM or not (high + above == high and high + below == high):
        return True
    rows = state[i, ROWS]
    return function == AVG and quotient(high, above, rows) != quotient(high, below, rows)


@part
def _remainder(dividend: float, divisor: float, result: float) -> float:
    """dividend - divisor * result without rounding, where result is a float next to their quotient (Dekker 1971)."""
    product = divisor * result
    scaled = _SPLITTER * divisor
    upper = scaled - (scaled - divisor)
    lower = divisor - upper
    scaled = _SPLITTER * result
    above = scaled - (scaled - result)
    below = result - above
    error = ((upper * above - product) + upper * below + lower * above) + lower * below
    return (dividend - product) - error


@part
def quotient(high: float, low: float, rows: float) -> float:
    """(high + low) / rows, rounded once; `high` is the pair's sum rounded, `rows` a whole number from 1 to 2**49.

    Dividing the rounded sum would round twice. A first quotient is corrected by its remainder, which leaves it the
    float on one side of the exact quotient or on the other; then the remainder, free of rounding, is held against
    half the way to the neighbour, and a tie goes to the even one. Very large and small numbers are first brought
    to a middling size by a power of two, so that no product overflows or loses bits.
    """
    if rows == 1.0 or high == 0.0 or not np.isfinite(high) or not np.isfinite(low):
        return high / rows
    sign, scale = (1.0 if high > 0.0 else -1.0), 1.0
    if abs(high) > _HUGE:
        scale = _DOWN
    elif abs(high) < _TINY:
        scale = _UP
    total, rest = sign * high * scale, sign * low * scale
    if scale == _DOWN and low != 0.0 and abs(rest) < _LEAST:  # too small to do more than decide a tie
        rest = _LEAST if sign * low > 0.0 else -_LEAST
    first = total / rows
    correction = (_remainder(total, rows, first) + rest) / rows
    if scale == 1.0 and first + correction * _LESS == first + correction * _MORE:  # nearly always: no tie is near
        return sign * (first + correction)
    result = (first + correction) / scale
    left = _remainder(total, rows, result * scale)
    other = np.nextafter(result, np.inf if left + rest > 0.0 else 0.0)
    gap = other - result
    beyond = (left - rows * (gap * scale * 0.5)) + rest
    if gap < 0.0:
        beyond = -beyond
    halves = result / (2.0 * gap)
    if beyond > 0.0 or (beyond == 0.0 and halves != np.floor(halves)):
        result = other
    return sign * result + 0.0  # one zero only


@kernel
def same(value: float, rest: float, other: float, other_rest: float) -> bool:
    """Whether two answers are equal; NULL (NaN) equals NULL."""
    return (value == other or (value != value and other != other)) and rest == other_rest


@kernel
def _answer(function: int, state: Floats, i: int) -> tuple[float, float]:
    if function == COUNT:
        return state[i, ROWS], 0.0
    if state[i, ROWS] == 0:
        return np.nan, 0.0
    if function == AVG:
        return quotient(state[i, HIGH], state[i, LOW], state[i, ROWS]), 0.0
    return state[i, HIGH], state[i, LOW] if function == EXACT_SUM else 0.0


@kernel
def answers_of(function: int, state: Floats, ids: Ints) -> tuple[Floats, Floats]:
    """(values, rests) of some listeners; see `AggregateAnswers.numbers`."""
    values, rests = np.empty(len(ids)), np.empty(len(ids))
    for k in range(len(ids)):
        values[k], rests[k] = _answer(function, state, ids[k])
    return values, rests


@kernel
def _fold(
    function: int,
    state: Floats,
    marks: Ints,
    mark: int,
    old_messages: Ints,
    old_listeners: Ints,
    new_messages: Ints,
    new_listeners: Ints,
    old_y: Floats,
    new_y: Floats,
) -> tuple[Ints, Ints, Floats, Floats, Ints, Floats]:
    """Merge the two columns of pairs by message; tell the listeners whose answer is another than before.

    Returns (who, message, value, rest) of those told, and the suspects with (message, value, rest before).
    """
    room = len(old_listeners) + len(new_listeners)
    who, what = np.empty(room, np.int64), np.empty(room, np.int64)
    values, rests = np.empty(room), np.empty(room)
    suspects, doubts, doubted = np.empty(room, np.int64), np.empty((room, 3)), 0
    told, a, b = 0, 0, 0
    message = next_message(old_messages, a, new_messages, b)
    while message >= 0:
        first, old_end, new_end = told, end_of(old_messages, a, message), end_of(new_messages, b, message)
        for k in range(a, old_end):
            i = old_listeners[k]
            marks[i] = mark
            who[told] = i
            values[told], rests[told] = _answer(function, state, i)
            told += 1
            _add(state, i, -old_y[message], -1)
        for k in range(b, new_end):
            i = new_listeners[k]
            if marks[i] != mark:
                who[told] = i
                values[told], rests[told] = _answer(function, state, i)
                told += 1
            _add(state, i, new_y[message], 1)
        mark += 1
        kept = first
        for k in range(first, told):
            if _is_suspect(function, state, who[k]):
                suspects[doubted] = who[k]
                doubts[doubted, 0], doubts[doubted, 1], doubts[doubted, 2] = message, values[k], rests[k]
                doubted += 1
            value, rest = _answer(function, state, who[k])
            if not same(value, rest, values[k], rests[k]):
                who[kept], what[kept], values[kept], rests[kept] = who[k], message, value, rest
                kept += 1
        told, a, b = kept, old_end, new_end
        message = next_message(old_messages, a, new_messages, b)
    return who[:told], what[:told], values[:told], rests[:told], suspects[:doubted], doubts[:doubted]


@kernel
def sums_in_boxes(
    columns: Floats, y: Floats, lows: Floats, highs: Floats, starts: Ints, stops: Ints, state: Floats
) -> None:
    """The states of boxes (n, d) over rows given as columns (d, rows): for box i, rows starts[i] to stops[i] are
    looked at. A row whose y is NaN does not count."""
    for i in range(len(lows)):
        for row in range(starts[i], stops[i]):
            inside = y[row] == y[row]
            for d in range(columns.shape[0]):
                inside = inside and lows[i, d] <= columns[d, row] <= highs[i, d]
            if inside:
                _add(state, i, y[row], 1)


@kernel
def together(states: Floats, of: Ints) -> Floats:
    """The states of members, each the sum of states that are `of` it."""
    found = np.zeros((of[-1] + 1 if len(of) else 0, 4))
    for i in range(len(of)):
        if states[i, ROWS] > 0:
            lost = found[of[i], LOST_BITS] + states[i, LOST_BITS]
            found[of[i], LOST_BITS] = 0.0
            _add(found, of[i], states[i, HIGH], int(states[i, ROWS]))
            _add(found, of[i], states[i, LOW], 0)
            found[of[i], LOST_BITS] += lost
    return found


def exact_state(values: list[float]) -> tuple[float, float, float, float]:
    """The state of rows given by value, from their exact sum (Shewchuk's, as in math.fsum)."""
    try:
        high = math.fsum(values)
        low = math.fsum((*values, -high))
        more = math.fsum((*values, -high, -low))
        lost = abs(more)
        if lost and not (low / math.ulp(low)) % 2:  # never an even `low`, which could be taken for half of something
            low = math.nextafter(low, math.copysign(math.inf, more))
            lost = math.ulp(low)
    except OverflowError:  # beyond every float, perhaps only on the way: as SQL, which adds one by one
        high, low, lost = sum(values), 0.0, math.inf
    return float(len(values)), high, low, lost
