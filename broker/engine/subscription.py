"""A local subscription: its current answer, and the events since the last call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

from hullcast.network.answers.collection import Collection
from hullcast.network.answers.events import Event, Resync, StreamTuple, change_to
from hullcast.network.answers.named import row_type
from hullcast.network.wire.errors import SubscriptionClosed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.reformulate.channel import Channel, CollectionChannel, SingleChannel
    from hullcast.broker.reformulate.tuples import TuplesChannel
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.sql.subscription import ParsedQuery


class EngineSubscription(ABC):
    """A subscription, as `Engine.subscribe` returns it. Close it when you no longer need it, or use `with`."""

    def __init__(
        self,
        query: ParsedQuery,
        channel: Channel,
        listener: int,
        now: Callable[[], int],
        close: Callable[[EngineSubscription], None],
    ) -> None:
        self.sql = query.sql
        self.columns = query.columns
        self.channel = channel.name
        self.dropped = 0  # events lost because nobody drained them in time, over the whole life
        self._query = query
        self._channel = channel
        self._outbox = channel.outbox
        self._listener = listener
        self._now = now
        self._close: Callable[[EngineSubscription], None] | None = close

    @property
    def answer(self) -> Any:
        """What the SQL gives over the current rows: None, a number, a timestamp, a set or a list of rows."""
        self._check_open()
        return self._answer()

    @property
    def seq(self) -> int:
        """`answer` includes the updates up to this sequence number."""
        return self._now()

    @property
    def pending(self) -> int:
        """How many events wait to be drained."""
        self._check_open()
        return self._outbox.waiting(self._listener)

    def drain(self) -> list[Event]:
        """The events since the last drain, oldest first; only a Resync if some were dropped."""
        self._check_open()
        return self._changes()

    def _resync(self, lost: int, answer: Any) -> Resync:
        self.dropped += lost
        return Resync(self._now(), answer, lost)

    def close(self) -> None:
        """End the subscription. Closing twice is fine."""
        if self._close is not None:
            close, self._close = self._close, None
            close(self)

    @property
    def closed(self) -> bool:
        """Whether the subscription was closed."""
        return self._close is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<subscription {self.sql!r}{' closed' if self.closed else ''}>"

    def _check_open(self) -> None:
        if self._close is None:
            raise SubscriptionClosed(self.sql)
        self._now()  # a stopped engine has no answers either

    @abstractmethod
    def _answer(self) -> Any: ...

    @abstractmethod
    def _changes(self) -> list[Event]: ...


class SingleSubscription(EngineSubscription):
    """An answer of one value."""

    _channel: SingleChannel

    def _answer(self) -> Any:
        return self._channel.answers.answer(self._listener)

    def _changes(self) -> list[Event]:
        lost = self._outbox.take_lost(self._listener)
        taken = self._outbox.take(self._listener)
        if lost:
            return [self._resync(lost + len(taken.seqs), self._answer())]
        values = map(self._channel.answers.read, taken.values, taken.rests)
        return list(map(change_to, taken.seqs, values))


class CollectionSubscription(EngineSubscription):
    """A set of values, or rows in the order of their keys.

    The contents are brought up to date from the events when somebody looks, not with every update.
    """

    _channel: CollectionChannel

    def __init__(
        self,
        query: ParsedQuery,
        channel: CollectionChannel,
        listener: int,
        now: Callable[[], int],
        close: Callable[[EngineSubscription], None],
        predicate: Predicates,
    ) -> None:
        super().__init__(query, channel, listener, now, close)
        self._predicate = predicate
        shown = channel.answers.shown(query.columns)
        self._collection = Collection(channel.contents(predicate), shown, channel.outbox.limit)
        # One of many may be made long after it was admitted: what it missed till now is in the contents already.
        self._collection.lost = len(self._outbox.take(listener).seqs) + self._outbox.take_lost(listener)

    def _listen(self) -> None:
        """Bring the contents up to date."""
        lost = self._outbox.take_lost(self._listener)
        if lost:
            lost += len(self._outbox.take(self._listener).seqs)
            self._collection.lose(self._channel.contents(self._predicate), lost)
        self._collection.hear(self._outbox.take(self._listener))

    def _answer(self) -> Any:
        self._listen()
        return self._collection.answer()

    @property
    def pending(self) -> int:
        self._check_open()
        self._listen()
        return self._collection.pending

    def _changes(self) -> list[Event]:
        self._listen()
        if self._collection.lost:
            return [self._resync(self._collection.take_lost(), self._collection.answer())]
        return list(self._collection.take())


class TupleSubscription(EngineSubscription):
    """The tuples of a stream: each is an event, and there is no answer."""

    _channel: TuplesChannel

    def _answer(self) -> Any:
        raise UsageError(f"`{self.sql}` reads a stream, so it has no answer; its events are the tuples")

    def _changes(self) -> list[Event]:
        """If some were dropped (the oldest), a Resync stands before the others."""
        taken, shown = self._outbox.take(self._listener), row_type(self.columns)
        events: list[Event] = [StreamTuple(seq, shown(row)) for seq, row in zip(taken.seqs, taken.items, strict=True)]
        lost, gap = self._outbox.take_lost(self._listener), self._channel.take_gap(self._listener)
        if lost or gap:
            self.dropped += lost
            seq = taken.seqs[0] - 1 if events else self._now()
            events.insert(0, Resync(seq, None, lost, "overflow" if lost else "gap"))
        return events
