"""A client as a process of its own: subscribes, publishes rising numbers until its input ends, tells what it heard.

    async with remote_client(URL, log) as remote: await remote.wait_acknowledged(20) ..

    python -m tests.support.remote_client URL     (keys: HULLCAST_KEY and HULLCAST_SERVER_KEY)

One JSON object a line: {"acknowledged": n} after each publish, at the end all events. For tests that start it
on another host, or kill it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import configure
from hullcast.network.answers.events import Resync
from hullcast.network.link.limits import LinkLimits

CREATE = "CREATE TABLE RISING (K INTEGER PRIMARY KEY, V INTEGER)"
SQL = "SELECT MAX(V) FROM RISING WHERE V >= ?"


def tell(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def run(url: str) -> None:
    limits = LinkLimits(heartbeat_s=0.1, silence_s=1.2, handshake_s=1.0, backoff_s=0.05, backoff_most_s=0.3)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    number = 0
    async with Client(configure(url.split(","), timeout=60, limits=limits)) as client:
        if "RISING" not in await client.tables():
            await client.execute(CREATE)
        async with client.subscribe(SQL, 0, overflow="block", buffer=1 << 20) as made:
            first = made.seq
            while not ended.done():
                number += 1
                receipt = await client.publish("RISING", [{"K": number % 10, "V": number}])
                tell(acknowledged=number, seq=receipt.seq)
            await client.sync()
            events = []
            while (event := made.take_nowait()) is not None:
                events.append((event.seq, getattr(event, "answer", None), isinstance(event, Resync)))
            tell(first=first, seq=made.seq, answer=made.answer, events=events, resumes=client.statistics().resumes)


class RemoteClient:
    """What the process has told so far."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.acknowledged = 0
        self.summary: dict[str, Any] | None = None
        self._log = log
        self._news = asyncio.Condition()

    async def read(self) -> None:
        """Take in what it tells, until its output ends."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            told = json.loads(line)
            async with self._news:
                if "acknowledged" in told:
                    self.acknowledged = told["acknowledged"]
                else:
                    self.summary = told
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()

    async def wait_acknowledged(self, more: int) -> None:
        """Wait until so many more of its updates are acknowledged."""
        wanted = self.acknowledged + more
        async with self._news:
            await self._news.wait_for(lambda: self.acknowledged >= wanted or self._ended)
        assert self.acknowledged >= wanted, self._log.read_text()[-3000:]

    async def finish(self) -> dict[str, Any]:
        """Let it end, and say all that it heard."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with self._news:
            await self._news.wait_for(lambda: self.summary is not None or self._ended)
        assert self.summary is not None, self._log.read_text()[-3000:]
        return self.summary

    @property
    def _ended(self) -> bool:
        return self.process.stdout is not None and self.process.stdout.at_eof()

    def check(self) -> None:
        """Each publish raised the maximum: exactly one event for each, in order, and none was applied twice."""
        told = self.summary
        assert told is not None
        assert told["answer"] == told["seq"] == self.acknowledged
        numbers = range(told["first"] + 1, self.acknowledged + 1)
        assert told["events"] == [[number, number, False] for number in numbers]


@asynccontextmanager
async def remote_client(
    url: str, log: Path, *, before: Sequence[str] = (), **environment: str
) -> AsyncIterator[RemoteClient]:
    """The process, for the length of the block; `before` are words before its command."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *before, sys.executable, "-m", "tests.support.remote_client", url, env=os.environ | environment,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    made = RemoteClient(process, log)
    reading = asyncio.create_task(made.read(), name="test.remote")
    try:
        yield made
    finally:
        if process.returncode is None:
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        await asyncio.gather(reading, process.wait())


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
