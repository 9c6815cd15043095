"""Long work on the event loop: others have their turns, and what it found out holds when it is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hullcast.broker.scheduling.driver import Work
from hullcast.broker.server.jobs import Working


@asynccontextmanager
async def running() -> AsyncIterator[Working]:
    working = Working()
    task = asyncio.create_task(working.run())
    try:
        async with asyncio.timeout(10):
            yield working
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_nothing_comes_between_the_last_slice_and_what_follows_from_it() -> None:
    """A reply that names a moment must leave before anything that happens after that moment."""
    order: list[str] = []
    told = asyncio.Event()

    def others() -> None:
        order.append("others")
        told.set()

    def work() -> Work:
        yield 0.0
        yield lambda: lambda: None  # elsewhere
        asyncio.get_running_loop().call_soon(others)
        return "result"

    async with running() as working:
        working.put("a", work(), lambda result, error: order.append(result))
        await told.wait()
    assert order == ["result", "others"]


async def test_others_have_their_turns_while_work_goes_on() -> None:
    stop = False
    turns = 0

    def endless() -> Work:
        while not stop:
            yield 0.0
        return turns

    async with running() as working:
        result = asyncio.create_task(working.do("a", endless()))
        for _ in range(20):
            await asyncio.sleep(0)
            turns += 1
        stop = True
        assert await result == 20


async def test_what_is_done_elsewhere_is_done_in_another_thread() -> None:
    def work() -> Work:
        name = yield lambda: lambda: threading.current_thread().name
        with pytest.raises(ZeroDivisionError):
            yield lambda: lambda: 1 // 0
        return name

    async with running() as working:
        assert (await working.do("a", work())).startswith("hullcast-work")


async def test_work_that_nobody_waits_for_any_more_is_closed() -> None:
    closed: list[bool] = []

    def endless() -> Work:
        try:
            while True:
                yield 0.0
        finally:
            closed.append(True)

    async with running() as working:
        waiting = asyncio.create_task(working.do("a", endless()))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert closed == [True]
        results: list[Any] = []
        working.put("a", endless(), lambda *told: results.append(told))
        await asyncio.sleep(0.01)
    assert closed == [True, True]
    assert not results


async def test_a_stop_does_not_wait_for_what_is_computed_in_threads() -> None:
    working, begun, let_go, ended = Working(), threading.Event(), threading.Event(), threading.Event()

    def compute() -> None:
        begun.set()
        let_go.wait(5.0)
        ended.set()

    def work() -> Work:
        yield lambda: compute

    task = asyncio.create_task(working.run())
    asked = asyncio.create_task(working.do("somebody", work()))
    await asyncio.to_thread(begun.wait, 5.0)
    task.cancel()
    await asyncio.wait((task,))
    assert not ended.is_set()
    let_go.set()
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
