"""A client with many subscriptions: a frame, an opening and a closing cost the same however many are open.

Work is counted in lines of our own Python that run, client, node and server together: a loop over all groups shows.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import hullcast
from hullcast import testing
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.subscription import Subscription
from tests.support.links import wait_until

LIMIT_S = 60
COLUMNS = 20
FEW, MANY = 2 * COLUMNS, 20 * COLUMNS


class Lines:
    """Counts lines while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Lines:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_globals.get("__name__", "")
        return self._ran if name.startswith("hullcast.") else None

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.count += event == "line"
        return self._ran


async def fewest(work: Callable[[], Awaitable[object]], rounds: int = 5) -> int:
    """The lines that a piece of work takes when nothing else, such as a heartbeat, happens beside it."""
    counts = []
    for _ in range(rounds):
        with Lines() as lines:
            await work()
        counts.append(lines.count)
    return min(counts)


async def one_more(client: Client, i: int) -> Subscription:
    """Subscription i, on one of many channels; a row at 0.5 everywhere concerns the first of each channel only."""
    low = i // COLUMNS
    return await client.subscribe(f"SELECT MIN(B) FROM R WHERE X{i % COLUMNS} BETWEEN ? AND ?", low, low + 0.9)


async def test_a_frame_an_opening_and_a_closing_cost_the_same_however_many_are_open() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster(1) as endpoint, hullcast.connect(endpoint) as client:
        names = [f"X{i}" for i in range(COLUMNS)]
        await client.execute(f"CREATE TABLE R (K INTEGER PRIMARY KEY, B REAL, {', '.join(f'{x} REAL' for x in names)})")
        subs: list[Subscription] = []
        waiting: list[asyncio.Task[Any]] = []
        value = 0.0

        async def change() -> None:
            """An update that changes one answer, until it is there."""
            nonlocal value
            value -= 1.0
            await client.publish("R", {"K": 1, "B": value, "X0": 0.5})
            await client.sync()
            assert subs[0].answer == value

        async def open_and_close() -> None:
            await (await one_more(client, len(subs))).close()

        async def grown_to(count: int) -> tuple[int, int]:
            while len(subs) < count:
                subs.append(await one_more(client, len(subs)))
                if len(subs) % 2 == 0:
                    waiting.append(asyncio.create_task(anext(subs[-1])))
            many = await client.subscribe_many("SELECT MIN(B) FROM R WHERE X1 BETWEEN ? AND ?", [5.0], [6.0])
            assert await many.next_changes(0.0) is None
            return await fewest(change), await fewest(open_and_close)

        change_few, open_few = await grown_to(FEW)
        change_many, open_many = await grown_to(MANY)
        assert change_many < 1.2 * change_few, "a frame walks through what is open"
        assert open_many < 1.2 * open_few, "opening or closing walks through what is open"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_coming_back_after_a_break_is_linear_in_what_is_open() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        names = [f"X{i}" for i in range(COLUMNS)]
        await client.execute(f"CREATE TABLE R (K INTEGER PRIMARY KEY, B REAL, {', '.join(f'{x} REAL' for x in names)})")
        opened = 0

        async def come_back() -> None:
            before = client.statistics().resumes
            client._line.dialer.redial(why="test")
            await wait_until(lambda: client.statistics().resumes > before and client.connected)
            await client.sync()

        costs = []
        for count in (FEW, MANY):
            for i in range(opened, count):
                await one_more(client, i)
            opened = count
            costs.append(await fewest(come_back, 3))
        assert costs[1] < 1.2 * MANY / FEW * costs[0]
