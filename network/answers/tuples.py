"""Tuples of a stream: each listener hears those in its box, in order, each once; none is kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hullcast.network.answers.answers import Answers
from hullcast.network.answers.outbox import NO_RESTS
from hullcast.network.answers.rows import deliver
from hullcast.network.compiled import kernel
from hullcast.network.matching.messages import GAP

if TYPE_CHECKING:
    from hullcast.network.answers.answers import Decoder, Recompute
    from hullcast.network.answers.audience import Audience
    from hullcast.network.wire.arrays import Booleans, Ints
    from hullcast.network.wire.bodies import ChannelSpec
    from hullcast.network.wire.columns import Columns


class TupleAnswers(Answers):
    """Events that carry a tuple each.

    T1  A listener gets no tuple at or before `heard` of it, the sequence number of its last one (or where it began). So
        whatever is replayed, after a break or a restart of the server, no tuple comes twice.
    """

    form = "points"
    unions = True
    overflow = overflow_of_many = "block"  # each tuple is told

    def __init__(self, spec: ChannelSpec, decoder: Decoder, recompute: Recompute) -> None:
        super().__init__(spec, decoder, recompute)
        self.heard: Ints = np.zeros(16, np.int64)
        self._cells = [(f"row.{i}", kind) for i, kind in enumerate(spec.row_types)]

    def start(self, ids: Ints, first: Columns) -> None:
        """Listeners that have heard nothing yet. What comes first of the stream is told by `hear_first`."""
        highest = int(ids.max(initial=-1)) + 1
        if highest > len(self.heard):
            self.heard = np.concatenate((self.heard, np.zeros(max(highest, len(self.heard)), np.int64)))
        self.heard[ids[ids >= 0]] = 0

    def hear(self, audience: Audience, columns: Columns) -> int:
        seqs, told = cast("Ints", columns["seq"]), 0
        for messages, listeners in audience.at(*self.boxes(columns)[0]):
            who, what = _new(self.heard, seqs, messages, listeners)
            deliver(audience, who, what, np.zeros(len(who)), seqs, partial(self.rows, columns))
            told += len(who)
        return told

    def hear_first(self, audience: Audience, ids: Ints, first: Columns) -> int:
        """Tell listeners `ids` (-1 is nobody) of tuples that came before: row k of `first` is for the member "of"[k],
        with rising sequence numbers for each. Returns how many events that were."""
        of, seqs = cast("Ints", first["of"]), cast("Ints", first["seq"])
        who = ids[of]
        here = np.flatnonzero(who >= 0)
        who, what = _new(self.heard, seqs, here, who[here])
        if len(who):
            audience.outbox.put(
                who, seqs[what], np.zeros(len(who)), NO_RESTS, np.arange(len(who)), self.rows(first, what)
            )
        return len(who)

    def rows(self, columns: Columns, which: Ints) -> list[tuple[Any, ...] | None]:
        """What is shown of some tuples; None where there is none: tuples up to there are missing."""
        values = [self.decoder.values(kind, columns[name].take(which)) for name, kind in self._cells]
        shown: list[tuple[Any, ...] | None] = list(zip(*values, strict=True))
        if GAP in columns:
            for place in np.flatnonzero(cast("Booleans", columns[GAP])[which]).tolist():
                shown[place] = None
        return shown


@kernel
def _new(heard: Ints, seqs: Ints, messages: Ints, listeners: Ints) -> tuple[Ints, Ints]:
    """Of pairs (message, listener) those that the listener has not heard yet (T1), which it then has."""
    who, what, count = np.empty(len(messages), np.int64), np.empty(len(messages), np.int64), 0
    for k in range(len(messages)):
        listener, seq = listeners[k], seqs[messages[k]]
        if seq > heard[listener]:
            heard[listener] = seq
            who[count], what[count] = listener, messages[k]
            count += 1
    return who[:count], what[:count]
