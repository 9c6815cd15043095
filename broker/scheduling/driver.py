"""The driver: runs work slice by slice, in the order a policy says, by a real or by a simulated clock.

Work that ends is a generator. Each `next` does a slice of a few milliseconds and yields its cost in seconds, as far as
the work itself can tell; its return value is the result. A step that takes long and needs no shared state is yielded as
a function (`Elsewhere`). The driver calls it when there is a place elsewhere (a thread): it copies what the step needs,
and returns the function to run there; the result is sent into the generator. So there are never more copies than
places. Between two slices anything may happen: what a generator read before a `yield` may have changed after it. Work
that cannot go on before others have done something yields `Until`, and is not picked before.

Work that never ends, such as an operator of a stream, is a standing item with a function that does one slice. The
policy picks it, too, from when it is told that there is something to do (`wake`) until there is not (`rest`).

The live server steps the driver on its event loop for a few milliseconds a turn and measures what slices take; a
simulated clock advances by the costs they yield, and gives the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hullcast.broker.scheduling.policy import Item, OrderedPolicy, Ready
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from hullcast.broker.scheduling.policy import Policy


class Until(NamedTuple):
    """What work waits for: the driver asks again whenever others have done something."""

    comes: Callable[[], bool]


Elsewhere = Callable[[], Callable[[], Any]]
Yielded = float | Elsewhere | Until
Work = Generator[Yielded, Any, Any]
WhenDone = Callable[[Any, BaseException | None], None]
Slice = Callable[[], float]  # does one slice, and says what it cost in seconds, as far as it can tell


class Clock(Protocol):
    """The driver's source of time."""

    def now(self) -> float:
        """Seconds since some moment."""

    def pass_by(self, cost_s: float) -> None:
        """A slice that claims this cost was done."""


def at_once(call: Callable[[], Any], done: WhenDone) -> None:
    """Do it here and now: for a simulation, and where no other work waits."""
    try:
        result = call()
    except Exception as error:  # noqa: BLE001  (handed to the work that asked)
        done(None, error)
    else:
        done(result, None)


def until(comes: Callable[[], bool]) -> Work:
    """Work that ends when others have done what it waits for."""
    while not comes():
        yield Until(comes)


def finish(work: Work) -> Any:
    """Do all of some work now; its result."""
    try:
        yielded = next(work)
        while True:
            if isinstance(yielded, Until) and not yielded.comes():
                work.close()
                raise InvariantBroken("work waits for others, and nothing else is being done")
            try:
                sent = yielded()() if callable(yielded) else None
            except Exception as error:  # noqa: BLE001  (the work's own business)
                yielded = work.throw(error)
            else:
                yielded = work.send(sent)
    except StopIteration as stop:
        return stop.value


@dataclass(eq=False, slots=True)
class _Running(Item):
    """Work on its way; `sent` is what its next slice begins with, `prepare` what it wants done elsewhere."""

    work: Work | None = None
    done: WhenDone | None = None
    prepare: Elsewhere | None = None
    until: Until | None = None
    sent: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class DriverStatistics:
    """What waits now, and what was finished since the start."""

    waiting: int
    finished: int


class Driver:
    """Work items, and the policy that picks which slice is next, and which item goes elsewhere next.

    Of the `places` elsewhere one owner has all but one at most, so that others find one.
    """

    def __init__(
        self,
        policy: Policy,
        clock: Clock,
        elsewhere: Callable[[Callable[[], Any], WhenDone], None] = at_once,
        places: int = 1,
    ) -> None:
        self._clock = clock
        self._elsewhere = elsewhere
        self._places = places
        self._ready = Ready()  # work that may go on, and standing items that are awake
        self.switch(policy)
        self._standing: dict[Item, Slice] = {}  # those that are awake
        self._waiting: list[_Running] = []  # for others, `until` that has come which they wait for
        self._leaving: list[_Running] = []  # they wait for a place elsewhere
        self._away: list[_Running] = []  # they have one, including those that were withdrawn
        self._finished = 0

    def switch(self, policy: Policy) -> None:
        """Let another policy decide."""
        self.policy = policy
        self._ready.order_by(policy.order if isinstance(policy, OrderedPolicy) else None)

    def __len__(self) -> int:
        """Items that are not finished."""
        return len(self._items())

    def _items(self) -> list[_Running]:
        ready = (item for item in self._ready if isinstance(item, _Running))
        return [*ready, *self._waiting, *self._leaving, *(item for item in self._away if item.work is not None)]

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do at the moment."""
        self._go_on()
        return not self._ready.items

    @property
    def away(self) -> int:
        """Steps that are being done elsewhere, those of withdrawn items among them."""
        return len(self._away)

    def put(self, owner: str, work: Work, done: WhenDone, yielded: Yielded | None = None) -> Item:
        """Take in work; `done` is called with its result, or with what it raised. `yielded` is what its first slice
        gave, if that was done already. How much may wait is decided before (`broker/server/jobs.py`)."""
        item = _Running(owner, self._clock.now(), work=work, done=done)
        self._ready.add(item)
        self._set_aside(item, yielded)
        return item

    def withdraw(self, item: Item) -> None:
        """Drop an item: its result is no longer needed."""
        assert isinstance(item, _Running)
        work = item.work
        self._forget(item)
        if work is not None:
            work.close()

    def withdraw_all(self) -> None:
        """Drop all items."""
        for item in self._items():
            self.withdraw(item)

    # -- standing items --------------------------------------------------------------------------------------

    def wake(self, item: Item, one_slice: Slice) -> None:
        """There is something to do for a standing item, until it rests. One that is awake is woken again if what its
        policy orders it by may have changed."""
        self._standing[item] = one_slice
        self._ready.add(item)

    def rest(self, item: Item) -> None:
        """There is nothing to do for a standing item."""
        if self._standing.pop(item, None) is not None:
            self._ready.remove(item)

    def order_again(self) -> None:
        """The policy has changed its order."""
        self._ready.touch_all()

    def is_awake(self, item: Item) -> bool:
        """Whether a standing item may be picked."""
        return item in self._standing

    # -- steps -----------------------------------------------------------------------------------------------

    def step(self) -> tuple[float, float] | None:
        """Do one slice, if there is one to do. Of a standing item: how long it took, and when it ended."""
        self._go_on()
        if not self._ready.items:
            return None
        began = self._clock.now()
        item = self.policy.pick(self._ready, began)
        one_slice = self._standing.get(item)
        if one_slice is None:
            self._work(item, began)
            return None
        self._clock.pass_by(one_slice())
        now = self._clock.now()
        seconds = now - began
        self.policy.served(item, seconds, now)
        return seconds, now

    def _work(self, item: Item, began: float) -> None:
        """One slice of work that ends."""
        assert isinstance(item, _Running)
        assert item.work is not None
        yielded, result, error, ended = None, None, None, False
        try:
            if item.error is not None:
                raised, item.error = item.error, None
                yielded = item.work.throw(raised)
            else:
                sent, item.sent = item.sent, None
                yielded = item.work.send(sent)
        except StopIteration as stop:
            result, ended = stop.value, True
        except Exception as raised_here:  # noqa: BLE001  (handed to `done`)
            error, ended = raised_here, True
        if isinstance(yielded, float):
            self._clock.pass_by(yielded)
        now = self._clock.now()
        self.policy.served(item, now - began, now)
        if ended:
            done = item.done
            self._forget(item)
            self._finished += 1
            assert done is not None
            done(result, error)
        else:
            self._set_aside(item, yielded)

    def _set_aside(self, item: _Running, yielded: Yielded | None) -> None:
        """The next step of an item is done elsewhere, as soon as there is a place; or waits for others."""
        if isinstance(yielded, Until):
            item.until = yielded
            self._ready.remove(item)
            self._waiting.append(item)
        elif callable(yielded):
            item.prepare = yielded
            self._ready.remove(item)
            self._leaving.append(item)
            self._send_away()

    def _go_on(self) -> None:
        """Items go on for which has come what they waited for."""
        for item in [item for item in self._waiting if item.until is not None and item.until.comes()]:
            self._waiting.remove(item)
            self._ready.add(item)

    def _send_away(self) -> None:
        """Send items elsewhere while there are places."""
        most = max(1, self._places - 1)
        while len(self._away) < self._places:
            owners = [item.owner for item in self._away]
            may = [item for item in self._leaving if owners.count(item.owner) < most]
            if not may:
                return
            began = self._clock.now()
            item = self.policy.pick(may, began)
            assert isinstance(item, _Running)
            assert item.prepare is not None
            self._leaving.remove(item)
            try:
                call = item.prepare()
            except Exception as error:  # noqa: BLE001  (handed to the work that asked)
                item.error = error
                self._ready.add(item)
                continue
            self._away.append(item)
            self._elsewhere(call, partial(self._back, item, began))

    def _back(self, item: _Running, began: float, result: Any, error: BaseException | None) -> None:
        """What was done elsewhere is done."""
        self._away.remove(item)
        now = self._clock.now()
        self.policy.served(item, now - began, now)
        if item.work is not None:
            item.sent, item.error = result, error
            self._ready.add(item)
        self._send_away()

    def _forget(self, item: _Running) -> None:
        item.work = item.done = item.prepare = None
        if item in self._ready.items:
            self._ready.remove(item)
        for others in (self._waiting, self._leaving):
            if item in others:
                others.remove(item)

    def check(self) -> None:
        """Raise InvariantBroken if a policy's order is not that of the items as they are (O1)."""
        if self._ready.items and isinstance(self.policy, OrderedPolicy):
            first, least = self._ready.first(), min(self._ready, key=self.policy.order)
            if first is not least:
                raise InvariantBroken(f"O1: {least} comes before {first}")

    def statistics(self) -> DriverStatistics:
        """A snapshot."""
        return DriverStatistics(len(self), self._finished)
