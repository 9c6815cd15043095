"""A process that publishes a row now and then, and writes down how long each took: what others do must not show in it.

python -m tests.support.bystander URL     one line per publish: when it was acknowledged, and after how many seconds
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import hullcast

EVERY_S = 0.01
CREATE = "CREATE TABLE BYSTANDER (K INTEGER PRIMARY KEY, V REAL)"


async def publish(url: str) -> None:
    """Publish until killed."""
    async with hullcast.connect(url, name="bystander", timeout=120) as hc:
        await hc.execute(CREATE)
        i = 0
        while True:
            i += 1
            began = time.monotonic()
            await hc.publish("BYSTANDER", [{"K": i % 100, "V": float(i)}])
            print(time.monotonic(), time.monotonic() - began, flush=True)
            await asyncio.sleep(EVERY_S)


class Bystander:
    """The process as a test sees it."""

    def __init__(self) -> None:
        self.took: list[tuple[float, float]] = []  # when, and how long
        self._another = asyncio.Event()

    def note(self, at: float, took: float) -> None:
        """A publish was acknowledged."""
        self.took.append((at, took))
        self._another.set()

    async def until(self, moment: float) -> None:
        """Wait for a publish that was acknowledged after that moment."""
        while not self.took or self.took[-1][0] < moment:
            self._another.clear()
            await self._another.wait()

    async def worst(self, attack: Callable[[], Awaitable[object]]) -> float:
        """The longest publish while something happens, in seconds."""
        began = time.monotonic()
        try:
            await attack()
        finally:
            ended = time.monotonic()
            await self.until(ended)  # what was under way when it ended
        return max(took for at, took in self.took if at >= began)


@asynccontextmanager
async def bystander(url: str) -> AsyncIterator[Bystander]:
    """Somebody who publishes beside whatever happens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.bystander", url, stdout=asyncio.subprocess.PIPE
    )
    seen = Bystander()

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            seen.note(*map(float, line.split()))

    reading = asyncio.create_task(read(), name="test.bystander")
    try:
        await seen.until(0.0)
        yield seen
    finally:
        process.kill()
        await process.wait()
        await reading


if __name__ == "__main__":
    asyncio.run(publish(sys.argv[1]))
