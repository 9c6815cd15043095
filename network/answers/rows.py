"""Answers that are collections: which listeners a row or value enters, leaves, or changes in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.answers.outbox import NO_RESTS
from hullcast.network.answers.pairs import end_of, next_message
from hullcast.network.compiled import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from hullcast.network.answers.audience import Audience

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Booleans = npt.NDArray[np.bool_]

#: What an event does to the collection; stored as the event's value.
ENTER, CHANGE, LEAVE = 1.0, 2.0, 3.0


class RowAnswers:
    """Decides who must hear of which row; the collections themselves are kept by whoever reads the events."""

    def __init__(self) -> None:
        self._marks: Ints = np.full(16, -1, np.int64)
        self._mark = 0

    def hear(
        self,
        audience: Audience,
        old: tuple[Floats, Floats],
        new: tuple[Floats, Floats],
        seqs: Ints,
        altered: Booleans,
        items: Callable[[Ints], Sequence[object]],
    ) -> int:
        """Take messages in order. `old` and `new` are the query boxes around the row before and after (empty where
        there is none); `altered` says whether what is shown of a row that stays is different. `items` makes
        the payload of the messages that somebody hears. Returns how many were told."""
        if audience.capacity > len(self._marks):
            self._marks = np.full(2 * audience.capacity, -1, np.int64)
        told = 0
        for was, now in audience.around(old, new):
            who, what, how = _fold(self._marks, self._mark, *was, *now, altered)
            self._mark += 2 * len(seqs)
            deliver(audience, who, what, how, seqs, items)
            told += len(who)
        return told


def deliver(
    audience: Audience, who: Ints, what: Ints, how: Floats, seqs: Ints, items: Callable[[Ints], Sequence[object]]
) -> None:
    """Put events into the outbox, with the payload of just the messages somebody hears."""
    if len(who):
        heard, places = np.unique(what, return_inverse=True)
        audience.outbox.put(who, seqs[what], how, NO_RESTS, places.reshape(-1), items(heard))


@kernel
def _fold(
    marks: Ints,
    mark: int,
    old_messages: Ints,
    old_listeners: Ints,
    new_messages: Ints,
    new_listeners: Ints,
    altered: Booleans,
) -> tuple[Ints, Ints, Floats]:
    """Merge the two columns of pairs by message: in both a row changes, in one only it leaves or enters."""
    room = len(old_listeners) + len(new_listeners)
    who, what, how = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    told, a, b = 0, 0, 0
    message = next_message(old_messages, a, new_messages, b)
    while message >= 0:
        old_end, new_end = end_of(old_messages, a, message), end_of(new_messages, b, message)
        for k in range(a, old_end):
            marks[old_listeners[k]] = mark
        for k in range(b, new_end):
            i = new_listeners[k]
            stays = marks[i] == mark
            if stays:
                marks[i] = mark + 1
            if not stays or altered[message]:
                who[told], what[told], how[told] = i, message, CHANGE if stays else ENTER
                told += 1
        for k in range(a, old_end):
            if marks[old_listeners[k]] == mark:
                who[told], what[told], how[told] = old_listeners[k], message, LEAVE
                told += 1
        mark += 2
        a, b = old_end, new_end
        message = next_message(old_messages, a, new_messages, b)
    return who[:told], what[:told], how[:told]
