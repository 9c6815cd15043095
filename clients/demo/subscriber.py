"""A subscribing process of the demo: one query of every kind, many MIN ranges, and all their events written down."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.cli.processes.worker import serve
from hullcast.clients.demo.scenario import MANY, many_ranges, wanted
from hullcast.clients.demo.shown import shown
from hullcast.clients.demo.stream import written, written_event
from hullcast.clients.demo.worker import Moves, stay_quiet
from hullcast.clients.sdk.client import connect
from hullcast.network.answers.events import Change

if TYPE_CHECKING:
    import numpy.typing as npt

    from hullcast.clients.demo.scenario import Wanted
    from hullcast.clients.sdk.client import Client
    from hullcast.clients.sdk.subscription import LiveSubscription
    from hullcast.clients.sdk.subscriptions import LiveSubscriptions

#: Events that may wait; far more than come while this process does something else.
BUFFER = 100_000
QUIET_S = 0.02


class Watched:
    """A subscription whose every event is kept."""

    def __init__(self, one: Wanted, subscription: LiveSubscription) -> None:
        self.one, self.subscription = one, subscription
        self.events: list[dict[str, Any]] = []
        self.changes = 0
        self.row_bytes = 0
        self._task = asyncio.create_task(self._take(), name=f"demo.events of {one.sql}")

    async def _take(self) -> None:
        async for event in self.subscription:
            told = written_event(event)
            self.events.append(told)
            if isinstance(event, Change):
                self.changes += 1
                if "left" in told:
                    self.row_bytes += len(json.dumps([told["left"], told["entered"]], separators=(",", ":")))

    async def stop(self) -> None:
        """Leave."""
        await self.subscription.close()
        await self._task

    def look(self) -> dict[str, Any]:
        """What the screen shows of it."""
        answer = self.subscription.answer
        return {
            "text": shown(answer),
            "number": answer if isinstance(answer, int | float) else None,
            "changes": self.changes,
        }

    def result(self) -> dict[str, Any]:
        """All there is to judge."""
        answer = written(self.subscription.answer)
        return {"kind": self.one.kind, "sql": self.one.sql, "answer": answer, "events": self.events}


class Many:
    """Many subscriptions, with the answers known from their changes alone beside those the client holds."""

    def __init__(self, subscriptions: LiveSubscriptions) -> None:
        self.subscriptions = subscriptions
        self.rebuilt: npt.NDArray[np.float64] = subscriptions.answers.copy()
        self.taken = 0
        self._task = asyncio.create_task(self._take(), name="demo.many")

    async def _take(self) -> None:
        async for changed in self.subscriptions.changes():
            self.rebuilt[changed.which] = changed.answer
            self.taken += len(changed)

    @property
    def told(self) -> int:
        """New answers so far, also those that a newer one replaced before they were taken."""
        return self.taken + self.subscriptions.conflated

    async def stop(self) -> None:
        """Leave."""
        await self.subscriptions.close()
        await self._task


class Subscriber:
    """What this process can be asked to do."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._moves: Moves | None = None
        self._watched: list[Watched] = []
        self._many: Many | None = None

    async def open(self, urls: list[str], name: str) -> dict[str, Any]:
        """Connect to the first gateway that answers."""
        self._client = await connect(urls, name=name, timeout=60.0)
        self._moves = Moves(self._client)
        return {}

    async def subscribe(self, name: str, count: int, seed: int) -> dict[str, Any]:
        """Subscribe to what the scenario says."""
        assert self._client is not None, "open comes first"
        ranges = many_ranges(count, seed).of(name)
        if len(ranges):
            self._many = Many(await self._client.subscribe_many(MANY, ranges.low, ranges.high))
        for one in wanted(name):
            subscription = self._client.subscribe(one.sql, overflow="block", buffer=BUFFER, snapshot=True)
            self._watched.append(Watched(one, await subscription))
        return {"subscriptions": len(ranges) + len(self._watched)}

    async def look(self) -> dict[str, Any]:
        """How it goes."""
        assert self._client is not None, "open comes first"
        assert self._moves is not None, "open comes first"
        many = self._many.told if self._many is not None else 0
        return {
            "seq": self._client.seq,
            "told": many + sum(one.changes for one in self._watched),
            "row_bytes": sum(one.row_bytes for one in self._watched),
            "answers": [one.look() for one in self._watched],
            **self._moves.report(),
        }

    async def finish(self, path: str) -> dict[str, Any]:
        """Wait until everything is here and taken, and write it all to a file."""
        assert self._client is not None, "open comes first"
        seq = await self._client.sync()
        while any(one.subscription.pending for one in self._watched):  # noqa: ASYNC110  (of many, no event of its own)
            await asyncio.sleep(0.001)
        taken = -1
        while self._many is not None and taken != self._many.taken:  # its task takes them when the loop turns
            taken = self._many.taken
            await asyncio.sleep(QUIET_S)
        result = {
            "seq": seq,
            "watched": [one.result() for one in self._watched],
            "many": _numbers(self._many.subscriptions.answers) if self._many is not None else [],
            "rebuilt": _numbers(self._many.rebuilt) if self._many is not None else [],
        }
        await asyncio.to_thread(Path(path).write_text, json.dumps(result))
        return {"seq": seq}

    async def close(self) -> None:
        """Leave everything."""
        for one in self._watched:
            await one.stop()
        if self._many is not None:
            await self._many.stop()
        if self._moves is not None:
            await self._moves.stop()
        if self._client is not None:
            await self._client.close()


def _numbers(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


async def main() -> None:
    """Serve until standard input ends."""
    subscriber = Subscriber()
    names = ("open", "subscribe", "look", "finish")
    try:
        await serve({name: getattr(subscriber, name) for name in names})
    finally:
        await subscriber.close()


if __name__ == "__main__":
    stay_quiet()
    asyncio.run(main())
