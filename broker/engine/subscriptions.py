"""Many local subscriptions to one SQL text, made by one call and held as columns."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hullcast.network.answers.answers import SingleAnswers
from hullcast.network.wire.arrays import objects
from hullcast.network.wire.errors import SubscriptionClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from hullcast.broker.engine.subscription import EngineSubscription
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.sql.subscription import ParsedQuery
    from hullcast.network.wire.arrays import Ints


class EngineSubscriptions:
    """Many subscriptions, as `Engine.subscribe_many` returns them; `many[i]` is one of them.

    They are closed together, by `close` or at the end of a `with`; one may be closed before, and is then left out
    when iterating.
    """

    def __init__(
        self,
        query: ParsedQuery,
        channel: Channel,
        listeners: Ints,
        make: Callable[[int, Callable[[EngineSubscription], None]], EngineSubscription],
        leave: Callable[[Ints], None],
        check_sound: Callable[[], None],
    ) -> None:
        self.sql = query.sql
        self._channel = channel
        self._listeners = listeners
        self._make = make
        self._leave = leave
        self._check_sound = check_sound
        self._open = np.ones(len(listeners), np.bool_)
        self._made: dict[int, EngineSubscription] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def __getitem__(self, i: int) -> EngineSubscription:
        n = len(self._listeners)
        try:
            at = range(n)[operator.index(i)]
        except IndexError:
            raise IndexError(f"subscription {i} of {n}") from None
        if not self._open[at]:
            raise SubscriptionClosed(self.sql)
        if at not in self._made:
            self._made[at] = self._make(at, lambda _: self._close_one(at))
        return self._made[at]

    def __iter__(self) -> Iterator[EngineSubscription]:
        return (self[i] for i in range(len(self)) if self._open[i])

    def __repr__(self) -> str:
        return f"<{int(self._open.sum())} subscriptions {self.sql!r}>"

    @property
    def answers(self) -> npt.NDArray[Any]:
        """All answers as a column: floats (NaN is NULL), int64 for COUNT, datetime64 (NaT is NULL), objects for the
        rest. SubscriptionClosed if one of them was closed."""
        self._check_sound()
        if not self._open.all():
            raise SubscriptionClosed(self.sql)
        if isinstance(self._channel.answers, SingleAnswers):
            return self._channel.answers.column(self._listeners)
        return objects([subscription.answer for subscription in self])

    def close(self) -> None:
        """End all of these subscriptions. Closing twice is fine, also if some were closed before."""
        listeners = self._listeners[self._open]
        self._open[:] = False
        for subscription in self._made.values():
            subscription.close()  # only marks it: its listener leaves with the others
        if len(listeners):
            self._leave(listeners)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _close_one(self, at: int) -> None:
        if self._open[at]:
            self._open[at] = False
            del self._made[at]
            self._leave(self._listeners[at : at + 1])
