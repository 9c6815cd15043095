"""The publishing process of the demo: replays the market at an even pace, and records what was acknowledged."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from hullcast.clients.cli.processes.worker import serve
from hullcast.clients.demo.record import Entry
from hullcast.clients.demo.scenario import PUBLISHER
from hullcast.clients.demo.stocks import CREATES, Upsert, size_of, stock_trace
from hullcast.clients.demo.worker import Moves, stay_quiet
from hullcast.clients.sdk.client import connect

if TYPE_CHECKING:
    from hullcast.clients.demo.stocks import Action, Trace
    from hullcast.clients.sdk.client import Client

BATCH = 40


class Publisher:
    """What this process can be asked to do."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._moves: Moves | None = None
        self._trace: Trace | None = None
        self._record: TextIO | None = None
        self._playing: asyncio.Task[None] | None = None
        self._published = 0

    async def open(self, urls: list[str], path: str, rows: int, updates: int, seed: int) -> dict[str, Any]:
        """Connect to the first gateway that answers, make the tables, and publish the rows there are at first."""
        self._trace = stock_trace(rows, updates, batch=BATCH, root=seed)
        self._client = await connect(urls, name=PUBLISHER, timeout=60.0)
        self._moves = Moves(self._client)
        self._record = Path(path).open("w")  # noqa: SIM115, ASYNC230  (closed by `close`; local)
        for sql in CREATES:
            await self._client.execute(sql)
        for action in self._trace.start:
            await self._publish(action, moment=False)
        self._published = 0
        return {}

    async def play(self, seconds: float) -> dict[str, Any]:
        """Begin to replay the trace within so many seconds; what does not fit is left out."""
        self._playing = asyncio.create_task(self._play(seconds), name="demo.play")
        return {}

    async def look(self) -> dict[str, Any]:
        """How it goes; `done` when the replay is over. Raises what ended it early."""
        assert self._moves is not None, "open comes first"
        done = self._playing is not None and self._playing.done()
        if done and self._playing is not None:
            self._playing.result()
        return {"published": self._published, "done": done, **self._moves.report()}

    async def _play(self, seconds: float) -> None:
        assert self._trace is not None, "open comes first"
        started, batches = time.monotonic(), self._trace.batches
        for i, batch in enumerate(batches):
            await asyncio.sleep(max(0.0, started + i * seconds / len(batches) - time.monotonic()))
            if seconds and time.monotonic() - started >= seconds:
                return
            for action in batch:
                await self._publish(action, moment=action is batch[-1])

    async def _publish(self, action: Action, *, moment: bool) -> None:
        assert self._client is not None, "open comes first"
        assert self._record is not None, "open comes first"
        if isinstance(action, Upsert):
            receipt = await self._client.publish(action.table, list(action.rows))
        else:
            receipt = await self._client.delete(action.table, list(action.keys))
        self._record.write(Entry(receipt.first_seq, receipt.seq, action, moment).line())
        self._record.flush()
        self._published += size_of(action)

    async def close(self) -> None:
        """Leave everything."""
        if self._playing is not None:
            self._playing.cancel()
            await asyncio.gather(self._playing, return_exceptions=True)
        if self._moves is not None:
            await self._moves.stop()
        if self._client is not None:
            await self._client.close()
        if self._record is not None:
            self._record.close()


async def main() -> None:
    """Serve until standard input ends."""
    publisher = Publisher()
    try:
        await serve({name: getattr(publisher, name) for name in ("open", "play", "look")})
    finally:
        await publisher.close()


if __name__ == "__main__":
    stay_quiet()
    asyncio.run(main())
