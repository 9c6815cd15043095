"""The driver: runs work slice by slice, in the order a policy says, by a real or by a simulated clock.

Work is a generator. Each `next` does a slice of a few milliseconds and yields what it cost, in seconds, as far as the
work itself can tell; its return value is the result. Work that takes long and needs nobody else is yielded as a
function (`Elsewhere`): it is called where it holds up nobody, and its result is sent in. Between two slices
everything else may happen: what a generator read before a `yield` may be another afterwards.

One implementation, two clocks. The live server steps the driver on its event loop for a few milliseconds a turn and
measures what slices take; a simulation advances its clock by the costs they yield, and sees the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from broker.scheduling.policy import Item
from network.wire.errors import Overloaded

if TYPE_CHECKING:
    from broker.scheduling.policy import Policy

Elsewhere = Callable[[], Any]
Work = Generator[float | Elsewhere, Any, Any]
Done = Callable[[Any, BaseException | None], None]

#: Items that may wait; when full, more are refused as Overloaded.
WAITING, WAITING_PER_OWNER = 4096, 1024


class Clock(Protocol):
    """Where the driver has its time from."""

    def now(self) -> float:
        """Seconds since some moment."""

    def pass_by(self, cost_s: float) -> None:
        """A slice that claims this cost was done."""


class SimulatedClock:
    """Time that passes by nothing but the costs that work claims."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def pass_by(self, cost_s: float) -> None:
        self.time += cost_s


def at_once(call: Elsewhere, done: Done) -> None:
    """Elsewhere is here: for a simulation, and wherever there is nobody to wait."""
    try:
        result = call()
    except Exception as error:  # noqa: BLE001  (handed to the work that asked)
        done(None, error)
    else:
        done(result, None)


def finish(work: Work) -> Any:
    """Do all of some work now; its result."""
    try:
        yielded = next(work)
        while True:
            yielded = work.send(yielded() if callable(yielded) else None)
    except StopIteration as stop:
        return stop.value


def going_on(work: Work, yielded: float | Elsewhere) -> Work:
    """The rest of some work whose first slice was done outside a driver, and yielded this."""
    try:
        while True:
            try:
                sent = yield yielded
            except Exception as error:  # noqa: BLE001  (the work's own business)
                yielded = work.throw(error)
            else:
                yielded = work.send(sent)
    except StopIteration as stop:
        return stop.value
    finally:
        work.close()


@dataclass(eq=False, slots=True)
class _Running(Item):
    """Work on its way; `sent` is what its next slice begins with."""

    work: Work | None = None
    done: Done | None = None
    sent: Any = None
    error: BaseException | None = None
    spent_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DriverStatistics:
    """Counters since the start, and what is there now."""

    waiting: int
    finished: int
    slices: int
    longest_slice_s: float


class Driver:
    """Work items, and the policy that picks whose slice is next."""

    def __init__(self, policy: Policy, clock: Clock, elsewhere: Callable[[Elsewhere, Done], None] = at_once) -> None:
        self._policy = policy
        self._clock = clock
        self._elsewhere = elsewhere
        self._ready: list[_Running] = []
        self._away: set[_Running] = set()
        self._finished = self._slices = 0
        self._longest_s = 0.0

    def __len__(self) -> int:
        """Items that are not finished."""
        return len(self._ready) + len(self._away)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do at the moment."""
        return not self._ready

    def put(self, owner: str, work: Work, done: Done) -> Item:
        """Take in work; `done` is called with its result, or with what it raised."""
        mine = sum(item.owner == owner for item in (*self._ready, *self._away))
        if len(self) >= WAITING or mine >= WAITING_PER_OWNER:
            raise Overloaded("requests waiting to be worked on", WAITING if len(self) >= WAITING else mine)
        item = _Running(owner, self._clock.now(), work=work, done=done)
        self._ready.append(item)
        return item

    def withdraw(self, item: Item) -> None:
        """Nobody waits for an item any more."""
        assert isinstance(item, _Running)
        if item in self._ready or item in self._away:
            self._forget(item)
            if item.work is not None:
                item.work.close()

    def withdraw_all(self) -> None:
        """Nobody waits for anything any more."""
        for item in (*self._ready, *self._away):
            self.withdraw(item)

    def step(self) -> None:
        """Do one slice, if there is one to do."""
        if self.idle:
            return
        began = self._clock.now()
        item = self._policy.pick(self._ready, began)
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
        except Exception as raised_here:  # noqa: BLE001  (handed to whoever waits for the result)
            error, ended = raised_here, True
        if isinstance(yielded, float):
            self._clock.pass_by(yielded)
        now = self._clock.now()
        item.spent_s += now - began
        self._slices += 1
        self._longest_s = max(self._longest_s, now - began)
        self._policy.served(item, now - began, now)
        if ended:
            self._forget(item)
            self._finished += 1
            assert item.done is not None
            item.done(result, error)
        elif callable(yielded):
            self._ready.remove(item)
            self._away.add(item)
            self._elsewhere(yielded, lambda result, error: self._back(item, result, error))

    def _back(self, item: _Running, result: Any, error: BaseException | None) -> None:
        """What was done elsewhere is done."""
        if item in self._away:
            self._away.remove(item)
            item.sent, item.error = result, error
            self._ready.append(item)

    def _forget(self, item: _Running) -> None:
        self._away.discard(item)
        if item in self._ready:
            self._ready.remove(item)

    def statistics(self) -> DriverStatistics:
        """A snapshot."""
        return DriverStatistics(len(self), self._finished, self._slices, self._longest_s)
