"""What every kind of answer can do: start, hear messages, be shown, be stored and resumed.

A kind is a subclass of `SingleAnswers` (one value a listener, kept as numbers) or `CollectionAnswers` (a set or rows),
and a row in the table of `kinds.py`. The embedded engine and the clients of a server run the same objects.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from hullcast.network.answers.collection import Collection
from hullcast.network.answers.named import row_type
from hullcast.network.matching.duality import NO_PARTITIONS
from hullcast.network.matching.messages import query_boxes
from hullcast.network.wire.arrays import objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.network.answers.audience import Audience
    from hullcast.network.matching.messages import BoxBounds
    from hullcast.network.wire.arrays import Booleans, Floats, Ints
    from hullcast.network.wire.bodies import ChannelSpec
    from hullcast.network.wire.columns import Column, Columns
    from hullcast.network.wire.frames import Form

    Recompute = Callable[["Ints"], Columns | None]


#: What happens in a client to events that come faster than their subscription takes them:
#: conflate    while the queue is full, its last event is replaced: by one with the newest answer, which says how many
#:             changes it stands for beside its own. They are counted in `conflated`
#: latest      only the newest answer waits; what it replaced is counted in `conflated`
#: block       frames are heard no further while the queue is full: the gateway keeps what comes, for a while
#: drop_oldest the oldest event goes, is counted in `dropped`, and a Resync stands where the gap is
#: error       the subscription ends with SubscriptionOverflow
Overflow = Literal["conflate", "latest", "block", "drop_oldest", "error"]


class Decoder(Protocol):
    """How codes become the values that users see, by the name of the column's type."""

    def value(self, kind: str, code: float) -> Any: ...
    def values(self, kind: str, column: Column) -> list[Any]: ...


class Answers(ABC):
    """The answers of all who listen to one channel in this process.

    `recompute` is called with listeners whose answers no message can bring up to date. An engine returns their first
    answers as of the end of the batch. A client returns None: it asks the server, holds their events back, and calls
    `start` when the reply comes.
    """

    form: ClassVar[Form]  # how its messages find listeners: network/matching/messages.py
    unions: ClassVar[bool] = False  # whether a listener may have several boxes (OR, IN, <>) that do not overlap
    overflow: ClassVar[Overflow] = "conflate"  # by default: every change, as long as there is room
    #: Of those that one call made: 100,000 that are followed by their newest answers need no queue each.
    overflow_of_many: ClassVar[Overflow] = "latest"

    def __init__(self, spec: ChannelSpec, decoder: Decoder, recompute: Recompute) -> None:
        self.spec, self.decoder, self.recompute = spec, decoder, recompute

    @abstractmethod
    def start(self, ids: Ints, first: Columns) -> None:
        """Take first answers, as the server's `capture` makes them, for listeners `ids` in that order; -1 is nobody."""

    @abstractmethod
    def hear(self, audience: Audience, columns: Columns) -> int:
        """Take messages in order, and put an event into the audience's outbox for each listener whose answer is another
        one. Returns how many events that were."""

    def boxes(self, columns: Columns) -> list[BoxBounds]:
        """The boxes in which the points of those lie who hear the messages: for places two of each message, around the
        row's place before and after."""
        return query_boxes(self.form, self.spec.dimensions, self.spec.partitioned, columns)

    def sides(self, columns: Columns) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """The four sides of messages that are rectangles, and their partitions (none: `NO_PARTITIONS`)."""
        named = cast("dict[str, Floats]", columns)
        partitions = named["part"] if self.spec.partitioned else NO_PARTITIONS
        return named["il"], named["ir"], named["ol"], named["or"], partitions


class SingleAnswers(Answers):
    """Answers of one value each, up to date as soon as `hear` returns.

    Row i of `state` is what listener i's answer is computed from: the columns of first answers in the order of
    `columns`. It is also what a resume token stores.
    """

    columns: ClassVar[tuple[str, ...]]

    def __init__(self, spec: ChannelSpec, decoder: Decoder, recompute: Recompute) -> None:
        super().__init__(spec, decoder, recompute)
        self.state: Floats = np.zeros((16, len(self.columns)))

    @abstractmethod
    def numbers(self, ids: Ints) -> tuple[Floats, Floats]:
        """(values, rests) of some listeners: an answer is another one if its value or its rest is. NaN equals NaN."""

    @abstractmethod
    def read(self, value: float, rest: float) -> Any:
        """The answer that a value and a rest stand for."""

    def hear_newest(self, audience: Audience, columns: Columns, latest: Ints, fresh: Ints) -> tuple[int, Ints] | None:
        """`hear` for listeners who all want their newest answer only, where a kind has a faster way: no event is put
        anywhere, but noted in these cells as `newest.settle` does. Returns how many events there were, and the news."""
        return None

    def column(self, ids: Ints) -> npt.NDArray[Any]:
        """Many answers as a column."""
        return objects([self.answer(listener) for listener in ids.tolist()])

    def start(self, ids: Ints, first: Columns) -> None:
        highest = int(ids.max(initial=-1)) + 1
        if highest > len(self.state):
            grown = np.zeros((max(highest, 2 * len(self.state)), len(self.columns)))
            grown[: len(self.state)] = self.state
            self.state = grown
        here = ids >= 0
        for i, name in enumerate(self.columns):
            self.state[ids[here], i] = cast("Floats", first[name])[here]

    def number(self, listener: int) -> tuple[float, float]:
        """(value, rest) of one listener."""
        values, rests = self.numbers(np.array([listener]))
        return float(values[0]), float(rests[0])

    def answer(self, listener: int) -> Any:
        """A listener's answer now."""
        return self.read(*self.number(listener))

    def others(self, ids: Ints, first: Columns) -> Booleans:
        """Which of these listeners have another answer than first answers say; nobody (-1) has."""
        here = ids >= 0
        fresh = type(self)(self.spec, self.decoder, self.recompute)
        fresh.start(np.arange(len(ids)), first)
        (values, rests), (fresh_values, fresh_rests) = self.numbers(ids[here]), fresh.numbers(np.flatnonzero(here))
        both_null = np.isnan(values) & np.isnan(fresh_values)
        other = np.zeros(len(ids), np.bool_)
        other[here] = ((values != fresh_values) & ~both_null) | (rests != fresh_rests)
        return other

    def stored(self, listener: int) -> list[float]:
        """All that a listener's answer is computed from, for a resume token."""
        state: list[float] = self.state[listener].tolist()
        return state

    def restored(self, stored: list[float]) -> Columns:
        """What `stored` gave, as first answers."""
        return {name: np.array([value], np.float64) for name, value in zip(self.columns, stored, strict=True)}


class CollectionAnswers(Answers):
    """Answers that are sets or rows: `hear` decides who must hear of what, and a `Collection` per listener is folded
    from the events when somebody looks.

    First answers stay in the columns they came in until then: of 100,000 sets most are never looked at.
    """

    def __init__(self, spec: ChannelSpec, decoder: Decoder, recompute: Recompute) -> None:
        super().__init__(spec, decoder, recompute)
        self._first: dict[int, tuple[Columns, Ints]] = {}  # columns go with the last listener that needs them

    @abstractmethod
    def entries(self, columns: Columns, rows: Ints) -> list[tuple[Any, Any]]:
        """(key, what is shown) of some messages, or of some rows of first answers."""

    def values(self, kind: str, column: Column, rows: Ints) -> list[Any]:
        """The values of some rows of a column."""
        return self.decoder.values(kind, column.take(rows))

    def shown(self, names: tuple[str, ...]) -> Callable[[Any], Any] | None:
        """How one entry is shown, given the names of the answer's columns; None: the answer is a set of the keys."""
        return row_type(names)

    def collection(
        self, contents: dict[Any, Any], names: tuple[str, ...], limit: int, room: int = sys.maxsize
    ) -> Collection:
        """A listener's collection, given the names of the answer's columns."""
        return Collection(contents, self.shown(names), limit, room)

    def start(self, ids: Ints, first: Columns) -> None:
        """Column "of" says whose row each one is, by the listener's place in `ids`."""
        of = np.asarray(first["of"])
        order = np.argsort(of, kind="stable")
        places = np.arange(len(ids))
        starts, stops = np.searchsorted(of, places, sorter=order), np.searchsorted(of, places, "right", sorter=order)
        for listener, start, stop in zip(ids.tolist(), starts.tolist(), stops.tolist(), strict=True):
            if listener >= 0:
                self._first[listener] = (first, order[start:stop])

    def contents(self, listener: int, *, keep: bool = False) -> dict[Any, Any]:
        """The first answer of a listener, by key; from now on its own business, unless this shall `keep` it."""
        return dict(self.entries(*(self._first[listener] if keep else self._first.pop(listener))))

    def forget(self, ids: Ints) -> None:
        """These left, or have contents of their own."""
        for listener in ids.tolist():
            self._first.pop(listener, None)

    def restored(self, stored: list[Any]) -> dict[Any, Any]:
        """The contents that a resume token stored as [key, what is shown] pairs."""
        several = len(self.spec.key_types) > 1
        return {tuple(key) if several else key: tuple(row) for key, row in stored}
