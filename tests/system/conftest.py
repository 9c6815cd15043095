"""After each system test no task, thread, process, socket or open file remains."""

from __future__ import annotations

import asyncio
import gc
import re
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import zmq

from hullcast.broker.server.warming import is_cold
from tests.support.cluster import COMMAND
from tests.support.links import descriptors

#: How long ZeroMQ's own threads may take to close what was closed.
CLOSING_S = 10.0


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    """Compiled before a test waits for a server: on a busy machine with an empty cache that alone may take minutes."""
    if is_cold():
        subprocess.run([COMMAND, "warm"], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="session", autouse=True)
def collector() -> None:
    """pyzmq's collector of large messages: a thread with a context of its own, begun by the first, there for ever."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
        one.bind("inproc://collector")
        other.connect("inproc://collector")
        one.send(bytes(1 << 20), copy=False)
        other.recv()


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    """What is there after a test was there before it."""
    gc.collect()
    tasks, threads, files, processes = asyncio.all_tasks(), _threads(), descriptors(), _processes()
    yield
    left: dict[str, object] = {}
    try:
        async with asyncio.timeout(CLOSING_S):
            while True:
                gc.collect()
                left = {
                    "tasks": asyncio.all_tasks() - tasks - {asyncio.current_task()},
                    "threads": _threads() - threads,
                    "files": {where for _, where in descriptors()} - {where for _, where in files},
                    "processes": _processes() - processes,
                }
                if not any(left.values()):
                    break
                await asyncio.sleep(0.02)
    except TimeoutError:
        told = {what: some for what, some in left.items() if some}
        pytest.fail(f"left behind: {told}{_sockets(str(told))}")


def _threads() -> set[str]:
    """Python's threads, but not the loop's own pool, which lives as long as the loop; and ZeroMQ's."""
    found = {f"{one.name} {one.native_id}" for one in threading.enumerate() if not one.name.startswith("asyncio_")}
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # gone meanwhile
            name = (task / "comm").read_text().strip()
            if name.startswith("ZMQ"):
                found.add(f"{name} {task.name}")
    return found


def _sockets(told: str) -> str:
    """What the kernel says of sockets that are named in a text, a line each: address and state tell whose they are."""
    lines = (line for kind in ("tcp", "tcp6", "unix") for line in Path(f"/proc/net/{kind}").read_text().splitlines())
    inodes = re.findall(r"socket:\[(\d+)\]", told)
    return "".join(f"\n{line}" for line in lines if any(inode in line.split() for inode in inodes))


def _processes() -> set[int]:
    return {one.pid for one in psutil.Process().children(recursive=True)}
