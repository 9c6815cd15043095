"""Links between processes that are killed or stand still."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.support.links import QUICK, running_dialer, running_listener, wait_until

PARENT = """
import asyncio
from hullcast.network.link.limits import LinkLimits
from tests.support.links import running_listener

async def main():
    limits = LinkLimits(heartbeat_s={heartbeat_s}, silence_s={silence_s})
    async with running_listener(echo=True, limits=limits) as (listener, _):
        print(listener.endpoint, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
CHILD = """
import asyncio
from tests.support.links import running_dialer

async def main():
    async with running_dialer("{endpoint}") as (dialer, child):
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@asynccontextmanager
async def running_process(program: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Another Python for the length of the block, and the first line it says."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            line = await process.stdout.readline()
        yield process, line.decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_killed_parent_is_noticed_at_once() -> None:
    """Far sooner than by silence, which here would take half a minute."""
    async with (
        running_process(PARENT.format(heartbeat_s=10, silence_s=60)) as (process, endpoint),
        running_dialer(endpoint) as (dialer, child),
    ):
        os.kill(process.pid, signal.SIGKILL)
        await wait_until(lambda: child.downs, seconds=5)
        assert dialer.state == "interrupted"  # it may have been the network


async def test_a_parent_that_stands_still_is_noticed_and_found_again() -> None:
    async with (
        running_process(PARENT.format(heartbeat_s=0.1, silence_s=1.5)) as (process, endpoint),
        running_dialer(endpoint) as (dialer, child),
    ):
        os.kill(process.pid, signal.SIGSTOP)
        await wait_until(lambda: child.downs)
        assert child.downs[0].startswith("not heard")
        os.kill(process.pid, signal.SIGCONT)
        await wait_until(lambda: dialer.state == "up")
        dialer.send(b"awake")
        await wait_until(lambda: child.frames == [b"awake"])


async def test_a_child_that_stands_still_leaves_and_its_connection_ends() -> None:
    async with (
        running_listener() as (listener, parent),
        running_process(CHILD.format(endpoint=listener.endpoint)) as (process, line),
    ):
        assert line == "up"
        os.kill(process.pid, signal.SIGSTOP)
        await wait_until(lambda: parent.left)
        assert parent.left[0][1].startswith("silent")
        await wait_until(lambda: listener.statistics().connections == 0)
        os.kill(process.pid, signal.SIGCONT)
        await wait_until(lambda: len(parent.joined) == 2)


async def test_a_killed_child_is_disconnected_at_once_and_leaves_after_the_silence() -> None:
    async with (
        running_listener(limits=replace(QUICK, silence_s=3.0)) as (listener, parent),
        running_process(CHILD.format(endpoint=listener.endpoint)) as (process, _),
    ):
        os.kill(process.pid, signal.SIGKILL)
        await wait_until(lambda: not parent.joined[0].session.connected, seconds=2)
        parent.joined[0].send(b"kept for its return")
        await wait_until(lambda: parent.left)
