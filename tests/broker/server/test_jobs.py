"""The waiting room: limits, turns, deadlines, giving up and lost links, for every kind of work alike."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from hullcast.broker.scheduling.driver import Work
from hullcast.broker.server.jobs import ANY, Jobs, Room, ServerJob, Working
from hullcast.network.wire.errors import DeadlineMissed, HullcastError, Overloaded
from hullcast.network.wire.frames import Origin, Request
from tests.support.cluster import wait_for

ROOM = Room("things", waiting=4, waiting_per_owner=3, at_once=2, at_once_per_owner=1)


@dataclass(eq=False)
class Asked:
    """A job that ends when it is told to, and what has become of it."""

    owner: str
    request: Request
    job: ServerJob | None = None
    begun: bool = False
    stopped: bool = False
    refusal: HullcastError | None = None
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        self.begun = True
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.stopped = True
            raise

    def refuse(self, error: HullcastError) -> None:
        self.refusal = error


class Here:
    """A waiting room, and short ways to ask for things."""

    def __init__(self, working: Working) -> None:
        self.failed: list[BaseException] = []
        self.jobs = Jobs(working, self.failed.append)
        self.numbers = 0

    def ask(
        self,
        owner: str,
        *,
        room: Room = ROOM,
        route: tuple[int, ...] = (1,),
        size: int = 1,
        within_s: float | None = None,
    ) -> Asked:
        self.numbers += 1
        one = Asked(owner, Request(self.numbers, route, Origin(None, ""), b""))
        now = time.monotonic()
        deadline = None if within_s is None else now + within_s

        def late() -> HullcastError:
            return DeadlineMissed(within_s or 0.0, time.monotonic() - now, 0.0)

        one.job = ServerJob(owner, now, size, deadline, room, one.request, one.run, one.refuse, late)
        self.jobs.put(one.job)
        return one


@asynccontextmanager
async def here() -> AsyncIterator[Here]:
    working = Working()
    task = asyncio.create_task(working.run())
    found = Here(working)
    try:
        async with asyncio.timeout(30):
            yield found
        found.jobs.check()
        assert not found.failed
    finally:
        await found.jobs.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_jobs_run_as_there_are_places_and_owners_take_turns() -> None:
    async with here() as place:
        greedy = [place.ask("greedy") for _ in range(3)]
        modest = [place.ask("modest") for _ in range(2)]
        await turns()
        assert [one.begun for one in (*greedy, *modest)] == [True, False, False, True, False]
        greedy[0].may_end.set()
        await turns()
        assert greedy[1].begun, "modest has its place already"
        modest[0].may_end.set()
        await turns()
        assert modest[1].begun
        place.jobs.check()


async def test_too_many_of_one_owner_are_refused_and_others_are_not() -> None:
    async with here() as place:
        for _ in range(4):  # one runs, three wait
            place.ask("a")
        with pytest.raises(Overloaded, match=r"waiting things of one client.*3"):
            place.ask("a")
        place.ask("b")


async def test_whoever_has_most_waiting_makes_room_for_others() -> None:
    async with here() as place:
        greedy = [place.ask("greedy") for _ in range(4)]
        place.ask("x")  # has the other place
        place.ask("x")  # the room is full
        newcomer = place.ask("y")
        assert [one.refusal is None for one in greedy] == [True, True, True, False], "the latest of who has most"
        assert newcomer.refusal is None
        with pytest.raises(Overloaded):
            place.ask("y")  # would have as many as greedy


async def test_bytes_are_bounded_but_for_a_single_request() -> None:
    room = Room("things", at_once=1, held_bytes=15, held_bytes_per_owner=10)
    async with here() as place:
        large = place.ask("a", room=room, size=11)
        with pytest.raises(Overloaded, match="bytes of waiting things"):
            place.ask("a", room=room, size=1)
        place.ask("b", room=room, size=4)
        with pytest.raises(Overloaded, match="bytes of waiting things"):
            place.ask("c", room=room, size=5)
        large.may_end.set()
        await turns()
        place.ask("a", room=room, size=10)


async def test_where_all_run_at_once_what_runs_is_bounded() -> None:
    room = Room("things", waiting=3, waiting_per_owner=2)
    assert room.at_once == ANY
    async with here() as place:
        place.ask("a", room=room)
        place.ask("a", room=room)
        with pytest.raises(Overloaded):
            place.ask("a", room=room)
        place.ask("b", room=room)
        with pytest.raises(Overloaded):
            place.ask("b", room=room)  # has as many as anybody


async def test_where_all_run_at_once_the_latest_of_who_has_most_is_stopped_for_others() -> None:
    room = Room("things", waiting=3)
    async with here() as place:
        greedy = [place.ask("greedy", room=room) for _ in range(3)]
        await turns()
        newcomer = place.ask("modest", room=room)
        await turns()
        assert [one.stopped for one in greedy] == [False, False, True]
        assert isinstance(greedy[2].refusal, Overloaded)
        assert newcomer.begun
        assert place.jobs.given_up[room] == 0


async def test_a_job_that_has_just_ended_is_not_refused_as_well() -> None:
    room = Room("things", waiting=2)
    async with here() as place:
        first, last = place.ask("greedy", room=room), place.ask("greedy", room=room)
        await turns()
        last.may_end.set()
        await asyncio.sleep(0)  # its task is done, and nobody has noticed yet
        assert place.jobs.running(room) == 2
        newcomer = place.ask("modest", room=room)
        await turns()
        assert (first.refusal, last.refusal, newcomer.begun) == (None, None, True)


async def test_a_deadline_that_passes_while_it_waits_refuses_it_and_one_that_runs_goes_on() -> None:
    async with here() as place:
        running = place.ask("a", within_s=0.02)
        waiting = place.ask("a", within_s=0.02)
        await wait_for(lambda: waiting.refusal is not None, "it is late")
        assert isinstance(waiting.refusal, DeadlineMissed)
        assert running.begun
        assert not running.stopped
        assert place.jobs.waiting(ROOM) == 0


async def test_what_is_given_up_stops_wherever_it_is() -> None:
    async with here() as place:
        running, waiting, other = place.ask("a"), place.ask("a"), place.ask("a")
        place.jobs.give_up(waiting.request)
        place.jobs.give_up(waiting.request)
        await turns()
        place.jobs.give_up(running.request)
        await turns()
        assert (running.stopped, waiting.begun, other.begun) == (True, False, True)
        assert place.jobs.given_up[ROOM] == 2
        assert waiting.refusal is None, "there is no reply"


async def test_what_came_by_a_lost_link_stops_and_nothing_else() -> None:
    async with here() as place:
        routes = [(1,), (5, 1), (6, 1), (5, 2)]
        room = Room("things")
        asked = {route: place.ask("a", room=room, route=route) for route in routes}
        await turns()
        place.jobs.gone((5,), (1,))
        await turns()
        assert [route for route, one in asked.items() if one.stopped] == [(5, 1)]
        place.jobs.gone((1,))
        await turns()
        assert [route for route, one in asked.items() if one.stopped] == [(1,), (5, 1), (6, 1)]


async def test_work_in_slices_is_given_up_between_two_slices() -> None:
    closed: list[bool] = []

    def endless() -> Work:
        try:
            while True:
                yield 0.0
        finally:
            closed.append(True)

    async with here() as place:
        request = Request(1, (1,), Origin(None, ""), b"")
        job = ServerJob("a", 0.0, 0, None, Room("requests"), request)
        place.jobs.work(job, endless(), lambda result, error: closed.append(False), None)
        await turns()
        assert place.jobs.running(job.room) == 1
        place.jobs.gone((1,))
        assert closed == [True]
        assert place.jobs.running(job.room) == 0
        full = Room("requests", waiting=0)
        with pytest.raises(Overloaded):
            place.jobs.work(ServerJob("a", 0.0, 0, None, full, request), endless(), lambda result, error: None, None)
        assert closed == [True], "it had not begun"


async def test_a_job_that_raises_stops_the_server() -> None:
    async with here() as place:

        async def fails() -> None:
            raise ZeroDivisionError

        place.jobs.put(ServerJob("a", 0.0, 0, None, ROOM, None, fails, lambda error: None))
        await turns(5)
        assert [type(error) for error in place.failed] == [ZeroDivisionError]
        place.failed.clear()


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_no_limit_is_exceeded_and_every_job_ends_one_way(seed: int) -> None:
    chance = random.Random(seed)
    room = Room("things", waiting=5, waiting_per_owner=3, at_once=3, at_once_per_owner=2, held_bytes=40)
    asked: list[Asked] = []
    async with here() as place:
        for _ in range(200):
            match chance.randrange(6):
                case 0 | 1 | 2:
                    owner, route = chance.choice("abc"), (chance.randrange(3), chance.randrange(2))
                    try:
                        asked.append(place.ask(owner, room=room, route=route, size=chance.randrange(10)))
                    except Overloaded:
                        queue = list(place.jobs._queue(room))
                        waiting = Counter(job.owner for job in queue)
                        held = sum(job.size_bytes for job in (*queue, *(one.job for one in asked if runs(one))) if job)
                        assert waiting[owner] == 3 or waiting.total() == 5 or held > 30
                case 3 if asked:
                    chance.choice(asked).may_end.set()
                case 4 if asked:
                    place.jobs.give_up(chance.choice(asked).request)
                case 5:
                    place.jobs.gone((chance.randrange(3),), (chance.randrange(2),))
            await turns(chance.randrange(4))
            place.jobs.check()
            running = Counter(one.owner for one in asked if runs(one))
            assert running.total() == place.jobs.running(room) <= 3
            assert max(running.values(), default=0) <= 2
        for one in asked:
            one.may_end.set()
        await turns(50)
        assert place.jobs.running(room) == place.jobs.waiting(room) == len(place.jobs.open) == 0


def runs(one: Asked) -> bool:
    assert one.job is not None
    return one.job.serving


async def test_a_job_that_is_given_up_and_then_loses_its_link_is_stopped_once_and_ends_in_peace() -> None:
    async with here() as place:
        alone, over = Room("reads", at_once=1), asyncio.Event()
        ended: list[str] = []

        async def read() -> None:
            try:
                await asyncio.Event().wait()
            finally:  # as a read of the history: the next one must not begin before its answer has come
                await over.wait()
                ended.append("in peace")

        request = Request(1, (1,), Origin(None, ""), b"")
        place.jobs.put(ServerJob("one", time.monotonic(), 1, None, alone, request, read, lambda _: None))
        following = place.ask("other", room=alone, route=(2,))
        await turns()
        place.jobs.give_up(request)
        await turns()
        place.jobs.gone((1,))
        await turns()
        assert not following.begun
        assert place.jobs.given_up[alone] == 1
        over.set()
        await turns()
        assert ended == ["in peace"]
        assert following.begun
