"""A process that starts may take as long as it says that it gets on."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest

from hullcast.clients.processes.child import Child, ProcessFailed

LIMIT_S = 1.0


class Starting:
    """As much of a process as is asked of one that starts: it says lines, and ends when it is told."""

    pid = 0

    def __init__(self) -> None:
        self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    def say(self, **facts: object) -> None:
        self.stdout.feed_data(json.dumps(facts).encode() + b"\n")

    def send_signal(self, number: int) -> None:
        self.returncode = -number
        self.stderr.feed_eof()
        self._ended.set()

    async def wait(self) -> int | None:
        await self._ended.wait()
        return self.returncode


async def test_a_start_may_take_long_as_long_as_there_is_progress() -> None:
    process: Any = Starting()
    child = Child("server", process, lambda text: None)
    waiting = asyncio.create_task(child.wait_ready(LIMIT_S))
    for percent in range(8):
        await asyncio.sleep(LIMIT_S / 5)
        process.say(ready=False, doing=f"replaying the log: {percent} %")
    process.say(ready=True, endpoint="tcp://here")
    await waiting
    assert child.endpoint == "tcp://here"
    process.stdout.feed_eof()
    assert await child.stop() == -signal.SIGTERM


async def test_a_start_without_progress_is_given_up_and_says_where_it_was() -> None:
    process: Any = Starting()
    child = Child("server", process, lambda text: None)
    process.say(ready=False, doing="loading a checkpoint")
    with pytest.raises(ProcessFailed, match=r"no progress for 0.1 s \(loading a checkpoint\)"):
        await child.wait_ready(0.1)
    assert not child.alive
