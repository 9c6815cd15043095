"""Answers that a message moves by a little: COUNT, SUM and AVG over a range."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from network.compiled import kernel, part

if TYPE_CHECKING:
    import numpy.typing as npt

    from network.answers.audience import Audience

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

COUNT, SUM, EXACT_SUM, AVG = 0, 1, 2, 3
FUNCTIONS = {"COUNT": COUNT, "SUM": SUM, "EXACT_SUM": EXACT_SUM, "AVG": AVG}


class AggregateAnswers:
    """Per listener the number of rows in its range and their sum, as an unevaluated pair of floats (high + low).

    The pair holds 106 bits, so that adding and taking away rows for days leaves no drift: the answer is the sum
    of the rows there are now, rounded once. (Beyond a spread of 2^106 between rows bits are lost, as in any
    finite sum.) Whole numbers are exact up to 2^106. An empty range has the sum 0 exactly.
    """

    def __init__(self, function: int) -> None:
        self.function = function
        self.state: Floats = np.zeros((16, 3))  # rows, high, low
        self._marks: Ints = np.full(16, -1, np.int64)
        self._mark = 0

    def start(self, ids: Ints, state: Floats) -> None:
        """Set the first (rows, high, low) of new listeners."""
        highest = int(ids.max(initial=-1)) + 1
        if highest > len(self.state):
            grown = np.zeros((max(highest, 2 * len(self.state)), 3))
            grown[: len(self.state)] = self.state
            self.state = grown
            self._marks = np.full(len(grown), -1, np.int64)
        self.state[ids] = state

    def answer(self, listener: int) -> tuple[float, float]:
        """(value, rest) of one listener; NaN stands for NULL. The rest is 0 but for exact sums."""
        return _answer(self.function, self.state, listener)

    def hear(
        self,
        audience: Audience,
        old: tuple[Floats, Floats],
        new: tuple[Floats, Floats],
        seqs: Ints,
        old_y: Floats,
        new_y: Floats,
    ) -> int:
        """Take messages in order. `old` and `new` are the query boxes around the row's places (an empty box where
        it had or has none), `old_y` and `new_y` what it counted for. Returns how many were told."""
        told = 0
        for was, now in audience.around(old, new):
            who, what, values, rests = _fold(
                self.function, self.state, self._marks, self._mark, *was, *now, old_y, new_y
            )
            self._mark += len(seqs)
            audience.outbox.put(who, seqs[what], values, rests)
            told += len(who)
        return told


@part
def _add(state: Floats, i: int, y: float, rows: int) -> None:
    """Add y and the rows to the pair (two-sum, then renormalise: Dekker 1971)."""
    high, low = state[i, 1], state[i, 2]
    total = high + y
    part_of_y = total - high
    error = (high - (total - part_of_y)) + (y - part_of_y) + low
    state[i, 1] = total + error
    state[i, 2] = error - (state[i, 1] - total)
    state[i, 0] += rows
    if state[i, 0] == 0:
        state[i, 1] = state[i, 2] = 0.0


@kernel
def _answer(function: int, state: Floats, i: int) -> tuple[float, float]:
    if function == COUNT:
        return state[i, 0], 0.0
    if state[i, 0] == 0:
        return np.nan, 0.0
    if function == AVG:
        return state[i, 1] / state[i, 0], 0.0
    return state[i, 1], state[i, 2] if function == EXACT_SUM else 0.0


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
) -> tuple[Ints, Ints, Floats, Floats]:
    """Merge the two columns of pairs by message; tell the listeners whose answer is another than before."""
    room = len(old_listeners) + len(new_listeners)
    who, what = np.empty(room, np.int64), np.empty(room, np.int64)
    values, rests = np.empty(room), np.empty(room)
    told, a, b = 0, 0, 0
    while a < len(old_listeners) or b < len(new_listeners):
        if b == len(new_listeners) or (a < len(old_listeners) and old_messages[a] <= new_messages[b]):
            message = old_messages[a]
        else:
            message = new_messages[b]
        first = told
        while a < len(old_listeners) and old_messages[a] == message:
            i = old_listeners[a]
            marks[i] = mark
            who[told] = i
            values[told], rests[told] = _answer(function, state, i)
            told += 1
            a += 1
            _add(state, i, -old_y[message], -1)
        while b < len(new_listeners) and new_messages[b] == message:
            i = new_listeners[b]
            if marks[i] != mark:
                who[told] = i
                values[told], rests[told] = _answer(function, state, i)
                told += 1
            b += 1
            _add(state, i, new_y[message], 1)
        mark += 1
        kept = first
        for k in range(first, told):
            value, rest = _answer(function, state, who[k])
            same = (value == values[k] or (value != value and values[k] != values[k])) and rest == rests[k]
            if not same:
                who[kept], what[kept], values[kept], rests[kept] = who[k], message, value, rest
                kept += 1
        told = kept
    return who[:told], what[:told], values[:told], rests[:told]


@kernel
def sums_in_boxes(columns: Floats, y: Floats, lows: Floats, highs: Floats, state: Floats) -> None:
    """First states: for each box (n, d) the rows, given as columns (d, rows), that lie in it. y NaN does not count."""
    for i in range(len(lows)):
        state[i, 0] = state[i, 1] = state[i, 2] = 0.0
        for row in range(len(y)):
            inside = y[row] == y[row]
            for d in range(columns.shape[0]):
                inside = inside and lows[i, d] <= columns[d, row] <= highs[i, d]
            if inside:
                _add(state, i, y[row], 1)
