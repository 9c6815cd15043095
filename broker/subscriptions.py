"""Many local subscriptions to one SQL text, made by one call and held as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from broker.reformulate.extremum import ExtremumChannel
from network.wire.errors import SubscriptionClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from broker.reformulate.channel import Channel
    from broker.sql.subscription import ParsedQuery
    from broker.subscription import Subscription


class Subscriptions:
    """What `Engine.subscribe_many` returns: a sequence of subscriptions, each made when asked for.

    They are closed together, by `close` or at the end of a `with`.
    """

    def __init__(
        self,
        query: ParsedQuery,
        channel: Channel,
        listeners: npt.NDArray[np.int64],
        make: Callable[[int], Subscription],
        close: Callable[[], None],
    ) -> None:
        self.sql = query.sql
        self._channel = channel
        self._listeners = listeners
        self._make = make
        self._close: Callable[[], None] | None = close
        self._made: dict[int, Subscription] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def __getitem__(self, i: int) -> Subscription:
        self._check_open()
        n = len(self._listeners)
        if not -n <= i < n:
            raise IndexError(f"subscription {i} of {n}")
        i %= n
        if i not in self._made:
            self._made[i] = self._make(i)
        return self._made[i]

    def __iter__(self) -> Iterator[Subscription]:
        return (self[i] for i in range(len(self)))

    @property
    def answers(self) -> npt.NDArray[Any]:
        """All answers as a column: floats for MIN and MAX (NaN is NULL), objects for the rest."""
        self._check_open()
        if isinstance(self._channel, ExtremumChannel):
            values = self._channel.answers.values[self._listeners]
            values[np.isinf(values)] = np.nan
            return values
        answers = np.empty(len(self), dtype=object)
        answers[:] = [subscription.answer for subscription in self]
        return answers

    def close(self) -> None:
        """Hear no more. Closing twice is fine."""
        if self._close is not None:
            close, self._close = self._close, None
            close()
            for subscription in self._made.values():
                subscription._close = None  # one of ours: its listener is gone with the others

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._close is None:
            raise SubscriptionClosed(self.sql)
