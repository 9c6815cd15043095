"""The waiting room: whatever takes longer than a moment waits, runs and is given up here, whoever asked for it.

A job belongs to an owner and, if it answers a request, to the route that the request came by. Each kind of work has a
`Room` that says how much of it may wait and run. Owners have turns (`broker/scheduling/fair_queue.py`): one with many
jobs keeps no other waiting. What nobody waits for any more is stopped wherever it is.

    put -> waits -> its turn: runs (a task, or slices on the event loop) -> ends, and the next one begins
             |-> its deadline passes: refused        |-> given up, or its link is gone: stopped
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from hullcast.broker.scheduling.driver import Driver
from hullcast.broker.scheduling.fair_queue import FairQueue, Queued
from hullcast.broker.scheduling.policy import FairShare
from hullcast.network.wire.errors import InvariantBroken, Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from hullcast.broker.scheduling.driver import DriverStatistics, WhenDone, Work, Yielded
    from hullcast.broker.scheduling.fair_queue import Measure
    from hullcast.broker.scheduling.policy import Item
    from hullcast.network.wire.errors import HullcastError
    from hullcast.network.wire.frames import Request

T = TypeVar("T")

#: So many that it is no limit.
ANY = 1 << 60


@dataclass(frozen=True, slots=True)
class Room:
    """A kind of work, by the name it has in refusals, and how much of it there may be: in all, and of one owner. Bytes
    are those of requests until they are answered; a single one may have more.

    Without `at_once` all jobs begin now, and wait for something elsewhere: as long as they do, they count as waiting.
    """

    called: str
    waiting: int = 1000
    waiting_per_owner: int = 200
    at_once: int = ANY
    at_once_per_owner: int = ANY
    held_bytes: int = 128 << 20
    held_bytes_per_owner: int = 64 << 20

    @property
    def all_begin(self) -> bool:
        return self.at_once == ANY


class Awaited(NamedTuple):
    """What a request must wait for: in which room, what is done there, and by when it must have begun."""

    room: Room
    run: Callable[[], Coroutine[Any, Any, Any]]
    deadline: float | None = None
    late: Callable[[], HullcastError] | None = None  # why it is refused then


class Stoppable(Protocol):
    """Something that is there for a request."""

    def stop(self) -> None:
        """Its client does not want it any more."""

    def link_gone(self) -> None:
        """Nobody takes answers any more by the link that the request came by."""


@dataclass(eq=False, slots=True)
class ServerJob(Queued):
    """Work for a request, or of the server itself (`request` is None then)."""

    room: Room
    request: Request | None
    run: Callable[[], Coroutine[Any, Any, None]] | None = None  # None: it is done in slices
    refuse: Callable[[HullcastError], None] | None = None  # answers it instead; None: it is never refused
    late: Callable[[], HullcastError] | None = None  # why it is refused when its deadline has passed
    began: float = field(default=0.0, init=False)
    stop: Callable[[], None] = field(init=False, repr=False)  # nobody wants it any more
    end: Callable[[], object] | None = field(default=None, init=False, repr=False)  # stops it; None: it does not run
    timer: asyncio.TimerHandle | None = field(default=None, init=False)  # at its deadline, while it waits

    def link_gone(self) -> None:
        self.stop()


class ByRoute(Generic[T]):
    """Requests being answered: what is done for them, by the route and the id of each.

    A route is set by those it leads through, link by link, and a link's number is never given twice: so nobody can name
    the request of another. An id is the client's, and may come twice if that is what it sends. To add, find and discard
    one takes one step; to find all below some links takes one for each route that ends with our link they are behind.
    """

    def __init__(self) -> None:
        self._links: dict[int, dict[tuple[int, ...], dict[int, list[T]]]] = {}  # by our own link, route, id

    def __len__(self) -> int:
        return sum(len(found) for routes in self._links.values() for ids in routes.values() for found in ids.values())

    def add(self, request: Request, thing: T) -> None:
        route = request.route
        self._links.setdefault(route[-1], {}).setdefault(route, {}).setdefault(request.id, []).append(thing)

    def discard(self, request: Request, thing: T) -> None:
        route = request.route
        routes = self._links.get(route[-1], {})
        ids = routes.get(route, {})
        left = [other for other in ids.get(request.id, ()) if other is not thing]
        if left:
            ids[request.id] = left
            return
        ids.pop(request.id, None)
        if not ids:
            routes.pop(route, None)
        if not routes:
            self._links.pop(route[-1], None)

    def of(self, request: Request) -> list[T]:
        """What is done for the requests that came the same way with the same id."""
        route = request.route
        return list(self._links.get(route[-1], {}).get(route, {}).get(request.id, ()))

    def below(self, links: Sequence[int], route: tuple[int, ...] = ()) -> list[T]:
        """What is done for all requests that came by one of these links of the node that a route leads to; without a
        route, by one of our own."""
        if not route:
            ours = [ids for link in links for ids in self._links.get(link, {}).values()]
        else:
            places, wanted = len(route) + 1, {(link, *route) for link in links}
            routes = self._links.get(route[-1], {})
            ours = [ids for way, ids in routes.items() if way[-places:] in wanted]
        return [thing for ids in ours for found in ids.values() for thing in found]


class Jobs:
    """All jobs of a server.

    Invariants (`check` tests them):
      J1  No room has more jobs than it may, in all or of one owner: waiting, running, in bytes.
      J2  A job waits only if its room, or its owner in it, has no place.
      J3  A job of a request is found by that request until it ends, or is given up.
    """

    def __init__(self, working: Working, fail: Callable[[BaseException], None]) -> None:
        """`fail` is told what a job raised that it should have answered: the server stops."""
        self._working, self._fail = working, fail
        self._queues: dict[Room, FairQueue[ServerJob]] = {}
        self.open: ByRoute[Stoppable] = ByRoute()  # jobs, and whatever else is there for requests
        self._tasks: set[asyncio.Task[None]] = set()
        self.given_up: Counter[Room] = Counter()
        self._stopped = False

    def waiting(self, room: Room) -> int:
        return 0 if room.all_begin else len(self._queue(room))

    def running(self, room: Room) -> int:
        return len(self._queue(room)) if room.all_begin else self._queue(room).serving

    def _queue(self, room: Room) -> FairQueue[ServerJob]:
        return self._queues.setdefault(room, FairQueue(room.at_once_per_owner))

    # --- coming ----------------------------------------------------------------------------------------------

    def put(self, job: ServerJob) -> None:
        """Run a job when its turn comes: now, if there is a place. If too many wait, it is Overloaded, or else the
        latest of an owner that has more waiting."""
        self._admit(job)
        queue = self._queue(job.room)
        queue.add(job)
        self._note(job)
        if job.room.all_begin:
            self._begin(job)
            return
        if job.deadline is not None:
            loop = asyncio.get_running_loop()
            job.timer = loop.call_at(loop.time() + job.deadline - time.monotonic(), self._miss, job)
        self._begin_next(job.room)

    def work(self, job: ServerJob, work: Work, done: WhenDone, yielded: Yielded | None) -> None:
        """Do work in slices on the event loop, from its second on: `yielded` is what the first gave. Overloaded, and
        the work is closed, if too much is being done."""
        try:
            self._admit(job)
        except Overloaded:
            work.close()
            raise
        self._queue(job.room).add(job)
        self._note(job)

        def ended(result: Any, error: BaseException | None) -> None:
            self._leave(job)
            done(result, error)

        item = self._working.put(job.owner, work, ended, yielded)

        def withdrawn() -> None:
            self._working.withdraw(item)
            self._leave(job)

        job.end = withdrawn

    def _admit(self, job: ServerJob) -> None:
        room, queue, owner, size = job.room, self._queue(job.room), job.owner, job.size_bytes
        many, large = f"waiting {room.called}", f"bytes of waiting {room.called}"
        if queue.waiting_of(owner) >= room.waiting_per_owner:
            raise Overloaded(f"{many} of one client", room.waiting_per_owner)
        if queue.holds(owner) and queue.held_by(owner) + size > room.held_bytes_per_owner:
            raise Overloaded(f"{large} of one client", room.held_bytes_per_owner)
        while len(queue) >= room.waiting:
            self._make_room(Overloaded(many, room.waiting), job, "items")
        while queue.held_bytes and queue.held_bytes + size > room.held_bytes:
            self._make_room(Overloaded(large, room.held_bytes), job, "bytes")

    def _make_room(self, refusal: Overloaded, newcomer: ServerJob, measure: Measure) -> None:
        """Refuse the latest job of the owner that has most waiting; raise `refusal` if that is the newcomer's."""
        queue = self._queue(newcomer.room)
        most = queue.most(measure)
        mine = queue.waiting_of(newcomer.owner, measure) + (1 if measure == "items" else newcomer.size_bytes)
        latest = None if most is None else queue.latest_of(most)
        if most is None or latest is None or latest.refuse is None or queue.waiting_of(most, measure) <= mine:
            raise refusal
        self._forget(latest)
        if latest.end is None or latest.end():  # else it has just been answered
            latest.refuse(refusal)

    def _note(self, job: ServerJob) -> None:
        job.stop = partial(self.withdraw, job)
        if job.request is not None:
            self.open.add(job.request, job)

    # --- running ---------------------------------------------------------------------------------------------

    def _begin_next(self, room: Room) -> None:
        queue = self._queue(room)
        job = queue.next() if queue.serving < room.at_once and not self._stopped else None
        if job is not None:
            queue.begin(job)
            self._begin(job)

    def _begin(self, job: ServerJob) -> None:
        assert job.run is not None, "others are done in slices"
        job.began = time.monotonic()
        if job.timer is not None:
            job.timer.cancel()
        task = asyncio.create_task(job.run(), name=f"server.{job.room.called}")
        self._tasks.add(task)
        job.end = task.cancel
        task.add_done_callback(partial(self._ended, job))

    def _ended(self, job: ServerJob, task: asyncio.Task[None]) -> None:
        """A job is done, or was stopped: its owner had the time in both cases."""
        self._tasks.discard(task)
        self._leave(job)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)
        if not job.room.all_begin:
            self._begin_next(job.room)

    def _leave(self, job: ServerJob) -> None:
        if job.serving:
            now = time.monotonic()
            self._queue(job.room).end(job, now - job.began, now)
            self._unnote(job)
        else:
            self._forget(job)

    def _unnote(self, job: ServerJob) -> None:
        if job.request is not None:
            self.open.discard(job.request, job)

    def _forget(self, job: ServerJob) -> None:
        """It counts as waiting no more, if it did."""
        if job in self._queue(job.room):
            self._queue(job.room).remove(job)
        self._unnote(job)
        if job.timer is not None:
            job.timer.cancel()

    def _miss(self, job: ServerJob) -> None:
        self._forget(job)
        assert job.late is not None, "it has a deadline"
        assert job.refuse is not None, "it waits"
        job.refuse(job.late())

    # --- going -----------------------------------------------------------------------------------------------

    def give_up(self, request: Request) -> None:
        """A client does not wait any more for the answer to the request that had the same id. There is no reply."""
        for thing in self.open.of(request):
            thing.stop()

    def gone(self, links: Sequence[int], route: tuple[int, ...] = ()) -> None:
        """Nobody takes answers any more by these links of the node at the end of a route (without one: by ours)."""
        for thing in self.open.below(links, route):
            thing.link_gone()

    def withdraw(self, job: ServerJob) -> None:
        self.given_up[job.room] += 1
        if job.end is not None:
            self._unnote(job)  # stopped once: a second cancel would break into what it does to end
            job.end()
        else:
            self._forget(job)

    async def stop(self) -> None:
        self._stopped = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def check(self) -> None:
        """Raise InvariantBroken unless J1 to J3 hold; looks at everything."""
        for room, queue in self._queues.items():
            queue.check()
            if len(queue) > room.waiting or queue.serving > room.at_once:
                raise InvariantBroken(f"J1: {len(queue)} {room.called} wait, {queue.serving} run")
            if not room.all_begin and queue.serving < room.at_once and queue.next() is not None:
                raise InvariantBroken(f"J2: {room.called} wait though there is a place")
            for job in queue:
                if job.request is not None and job.end is None and job not in self.open.of(job.request):
                    raise InvariantBroken(f"J3: nobody finds {job}")


#: Seconds of work between two turns of the event loop.
TURN_S = 0.003
#: Threads for work without shared state; they spend their time in compiled code, which lets others run.
THREADS = 2


class _RealClock:
    def now(self) -> float:
        return time.perf_counter()

    def pass_by(self, cost_s: float) -> None:
        """It passes by itself."""


class Working:
    """Runs the work of requests in turns, so that other requests do not wait for it; owners get equal shares."""

    def __init__(self) -> None:
        self._driver = Driver(FairShare(), _RealClock(), self._elsewhere, THREADS)
        self._something = asyncio.Event()
        self._awaited: set[asyncio.Future[Any]] = set()
        self._ended = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="hullcast-work")

    def put(self, owner: str, work: Work, done: WhenDone, yielded: Yielded | None = None) -> Item:
        """Take in work, as `Driver.put` does. `done` is called in the very turn in which the last slice ends: what
        the work found out then still holds."""
        item = self._driver.put(owner, work, done, yielded)
        self._something.set()
        return item

    def withdraw(self, item: Item) -> None:
        self._driver.withdraw(item)

    async def do(self, owner: str, work: Work) -> Any:
        """The result of some work; by the time it is here, more may have happened. Cancelled if `run` ends first."""
        if self._ended:
            work.close()
            raise asyncio.CancelledError
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._awaited.add(future)

        def done(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        try:
            item = self.put(owner, work, done)
            try:
                return await future
            finally:
                self._driver.withdraw(item)
        finally:
            self._awaited.discard(future)

    def _elsewhere(self, call: Callable[[], Any], done: WhenDone) -> None:
        """Call it in a thread; `done` is called here, on the loop."""
        loop = asyncio.get_running_loop()

        def back(future: Future[Any]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            result = None if error is not None else future.result()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(returned, result, error)

        def returned(result: Any, error: BaseException | None) -> None:
            done(result, error)
            self._something.set()

        self._threads.submit(call).add_done_callback(back)

    async def run(self) -> None:
        try:
            while True:
                await self._something.wait()
                began = time.perf_counter()
                while not self._driver.idle and time.perf_counter() - began < TURN_S:
                    self._driver.step()
                if self._driver.idle:
                    self._something.clear()
                await asyncio.sleep(0)
        finally:
            self._driver.withdraw_all()
            self._ended = True
            for future in self._awaited:
                future.cancel()
            # what is being computed there is no longer needed, and touches no shared state: do not wait for it;
            # threads without work end at once
            self._threads.shutdown(wait=not self._driver.away, cancel_futures=True)

    def statistics(self) -> DriverStatistics:
        return self._driver.statistics()
