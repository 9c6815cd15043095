"""Rows of a table or of a join: which listeners a row enters, leaves, or changes in."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hullcast.network.answers.answers import CollectionAnswers
from hullcast.network.answers.audience import end_of, next_message
from hullcast.network.answers.collection import CHANGE, ENTER, LEAVE
from hullcast.network.answers.outbox import NO_RESTS
from hullcast.network.compiled import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hullcast.network.answers.answers import Decoder, Recompute
    from hullcast.network.answers.audience import Audience
    from hullcast.network.wire.arrays import Booleans, Floats, Ints
    from hullcast.network.wire.bodies import ChannelSpec
    from hullcast.network.wire.columns import Columns


class RowAnswers(CollectionAnswers):
    """Rows in the order of their keys."""

    form = "places"
    unions = True

    def __init__(self, spec: ChannelSpec, decoder: Decoder, recompute: Recompute) -> None:
        super().__init__(spec, decoder, recompute)
        self._keys = [(f"key.{i}", kind) for i, kind in enumerate(spec.key_types)]
        self._cells = [(f"row.{i}", kind) for i, kind in enumerate(spec.row_types)]
        self._marks: Ints = np.full(16, -1, np.int64)
        self._mark = 0

    def hear(self, audience: Audience, columns: Columns) -> int:
        """`altered` says whether what is shown of a row that stays is different."""
        if audience.capacity > len(self._marks):
            self._marks = np.full(2 * audience.capacity, -1, np.int64)
        seqs, altered = cast("Ints", columns["seq"]), cast("Booleans", columns["altered"])
        told = 0
        for was, now in audience.around(*self.boxes(columns)):
            who, what, how = _fold(self._marks, self._mark, *was, *now, altered)
            self._mark += 2 * len(seqs)
            deliver(audience, who, what, how, seqs, partial(self.entries, columns))
            told += len(who)
        return told

    def entries(self, columns: Columns, rows: Ints) -> list[tuple[Any, Any]]:
        keys, cells = (
            [self.values(kind, columns[name], rows) for name, kind in named] for named in (self._keys, self._cells)
        )
        return list(zip(keys[0] if len(keys) == 1 else zip(*keys, strict=True), zip(*cells, strict=True), strict=True))


def deliver(
    audience: Audience, who: Ints, what: Ints, how: Floats, seqs: Ints, items: Callable[[Ints], Sequence[object]]
) -> None:
    """Put events into the outbox, in the order of the messages, with the payload of just those somebody hears."""
    if len(who):
        first = np.ones(len(what), np.bool_)
        first[1:] = what[1:] != what[:-1]
        audience.outbox.put(who, seqs[what], how, NO_RESTS, np.cumsum(first) - 1, items(what[first]))


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
