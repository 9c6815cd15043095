"""Many subscriptions to one SQL text, made by one call, sent in portions, held as columns."""

from __future__ import annotations

import asyncio
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from hullcast.clients.sdk.line import Line, Owner
from hullcast.clients.sdk.mailbox import GAPS
from hullcast.clients.sdk.subscription import Subscription
from hullcast.network.wire.arrays import Booleans, Ints
from hullcast.network.wire.errors import BadParameter, HullcastError, SubscriptionClosed, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

    from hullcast.clients.sdk.groups import SubscriptionGroup
    from hullcast.clients.sdk.listening import Listening

REASONS = np.array(GAPS)


@dataclass(frozen=True, slots=True)
class Changed:
    """The subscriptions (of many) that have a new answer, as columns: their positions, the updates, the answers.

    `reason` is empty for an ordinary change. If events were lost it says why, as in a Resync: "gap", "sum" or
    "overflow"; the answer may then be the same as before. `resync` marks these entries.

    Of a stream there is an entry for each tuple, those of one subscription in order: its position and its row; None, if
    tuples are missing there.
    """

    which: Ints
    seq: Ints
    answer: npt.NDArray[Any]
    reason: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.which)

    @property
    def resync(self) -> Booleans:
        """Marks the entries whose events were lost."""
        missed: Booleans = self.reason != ""
        return missed


class Subscriptions:
    """Many subscriptions, as `Client.subscribe_many` returns them: use `async with`, or `await` and `close` later.

    The members are in groups, each asked for by a request of its own; all groups are of one channel, so their listeners
    are in one place here.
    """

    def __init__(self, line: Line, groups: list[SubscriptionGroup], timeout_s: float | None = None) -> None:
        self.sql = groups[0].sql
        self._line = line
        self._groups = groups
        self._starts = np.cumsum([0, *(group.count for group in groups)])  # of the groups among the members
        self._taken = 0  # groups that the server has taken
        self._listeners: Ints = np.empty(0, np.int64)
        self._order = self._sorted = self._listeners  # members by listener, and those listeners
        self._made: dict[int, Subscription] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._timeout_s = timeout_s
        self._state: Literal["new", "opening", "open", "closed"] = "new"
        self._error: HullcastError | None = None
        self._owner = Owner(self._group_taken, self._end, lambda: self._end(None), left=self._left)

    def __await__(self) -> Generator[Any, None, Self]:
        return self._opened().__await__()

    async def _opened(self) -> Self:
        if self._state != "new":
            return self
        self._line.session.groups.check_room(int(self._starts[-1]))
        self._state = "opening"
        try:
            for group in self._groups:
                await self._line.open_group(group, self._owner, self._timeout_s)
                if self._is_over():
                    self._leave()
                    break
        except BaseException as error:
            taken = self._taken
            if not self._is_over():
                self._end(None)
                self._state, self._taken = "new", 0  # it may be tried again
            if isinstance(error, BadParameter) and error.row >= 0:  # counted from the beginning of its portion
                raise BadParameter(error.position, error.reason, int(self._starts[taken]) + error.row) from None
            raise
        if self._error is not None:
            raise self._error
        if not self.closed:
            self._listening.skip(self._listeners)
        return self

    def _group_taken(self) -> None:
        self._taken += 1
        if self._taken == len(self._groups) and self._state == "opening":
            assert {group.listening for group in self._groups} == {self._listening}, "one text is of one channel"
            self._listeners = np.concatenate([group.listeners for group in self._groups])
            self._order = np.argsort(self._listeners)
            self._sorted = self._listeners[self._order]
            self._state = "open"

    @property
    def _listening(self) -> Listening:
        return self._groups[0].listening

    async def __aenter__(self) -> Self:
        return await self._opened()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all of these subscriptions. Closing twice is fine."""
        self._end(None)

    def _is_over(self) -> bool:
        return self._state == "closed"

    def _end(self, error: HullcastError | None) -> None:
        if self._state in ("opening", "open"):
            self._state, self._error = "closed", error
            for subscription in list(self._made.values()):
                subscription._ended(error or SubscriptionClosed(self.sql))
            self._leave()
            self._wake()

    def _leave(self) -> None:
        """Leave the groups that the server has taken."""
        taken = self._groups[: self._taken]
        if taken:
            self._listening.mailbox.watch(taken[0].number, np.empty(0, np.int64), None)
        for group in taken:
            self._line.leave(group, None, self._owner)

    def __len__(self) -> int:
        return len(self._listeners)

    def __getitem__(self, i: int) -> Subscription:
        self._check_open()
        try:
            at = range(len(self))[operator.index(i)]
        except IndexError:
            raise IndexError(f"subscription {i} of {len(self)}") from None
        if self._listeners[at] < 0:
            raise SubscriptionClosed(self.sql)
        if at not in self._made:
            group = self._groups[int(np.searchsorted(self._starts, at, side="right")) - 1]
            self._made[at] = Subscription(self._line, group, listener=int(self._listeners[at]))
        return self._made[at]

    def __iter__(self) -> Iterator[Subscription]:
        return (self[i] for i in range(len(self)) if self._listeners[i] >= 0)

    def __repr__(self) -> str:
        return f"<{len(self)} subscriptions {self.sql!r}{' closed' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether the subscriptions have ended."""
        return self._state != "open"

    def _check_open(self) -> None:
        if self.closed:
            raise self._error or SubscriptionClosed(self.sql)

    @property
    def seq(self) -> int:
        """All answers include the updates up to this sequence number."""
        self._check_open()
        session = self._line.session
        standings = [session.standing(group).seq for group in self._groups if group.number in session.groups]
        return min(standings, default=session.position)

    @property
    def answers(self) -> npt.NDArray[Any]:
        """All answers as a column: float64 (NaN is NULL), int64 for COUNT, datetime64 (NaT is NULL), else objects.
        Raises SubscriptionClosed if one of the subscriptions was closed by itself."""
        self._check_open()
        if (self._listeners < 0).any():
            raise SubscriptionClosed(self.sql)
        return self._listening.column(self._listeners)

    @property
    def conflated(self) -> int:
        """How many changes, over all subscriptions, a newer one replaced before `changes` gave them."""
        self._check_open()
        return int(self._listening.mailbox.conflated[self._listeners[self._listeners >= 0]].sum())

    async def changes(self) -> AsyncIterator[Changed]:
        """The subscriptions with a new answer since the last time, again and again: the newest answer of each, if it
        differs from the last one given. If events were lost, it is given in any case, with the reason."""
        while True:
            changed = await self.next_changes()
            if changed is None:
                return
            yield changed

    async def next_changes(self, timeout: float | None = None) -> Changed | None:  # noqa: ASYNC109
        """Wait for new answers, and say which subscriptions have one; None after `timeout` seconds, or at the end."""
        self._check_open()
        listening, group = self._listening, self._groups[0].number  # stands for all of them
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while not self.closed:
            if group not in listening.mailbox.noticed:
                listening.mailbox.watch(group, self._listeners[self._listeners >= 0], self._wake)
            news = listening.take_news(group)
            if len(news.who):
                self._line.taken()
                which = self._order[np.searchsorted(self._sorted, news.who)]
                return Changed(which, news.seqs, news.answers, REASONS[news.gaps])
            if until is not None and loop.time() >= until:
                return None
            await self._wait(until)
        if self._error is not None:
            raise self._error
        return None

    async def _wait(self, until: float | None) -> None:
        """Wait to be woken, but not beyond `until`."""
        if self._waiter is not None:
            raise UsageError(f"two tasks take the changes of `{self.sql}`; subscribe once for each")
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if until is None else loop.call_at(until, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _left(self, listener: int) -> None:
        """One of them was closed by itself."""
        self._listeners[self._listeners == listener] = -1
