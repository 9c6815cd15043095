"""The demo's own processes: one publishes a market, two hold the clients; all record what happens.

`stage.py` starts each as `python -m hullcast.clients.demo.workers publisher` (or `subscriber`), and asks it by lines of
JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from hullcast.clients.demo.record import Acknowledged, written, written_event
from hullcast.clients.demo.scenario import MANY, PUBLISHER, WANTED, many_ranges, share_of
from hullcast.clients.demo.stocks import CREATES, Upsert, size_of, stock_trace
from hullcast.clients.processes.worker import serve
from hullcast.clients.sdk.client import connect
from hullcast.network.answers.events import Change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hullcast.clients.demo.scenario import Wanted
    from hullcast.clients.demo.stocks import MarketAction, Trace
    from hullcast.clients.sdk.client import Client
    from hullcast.clients.sdk.subscription import Subscription
    from hullcast.clients.sdk.subscriptions import Subscriptions
    from hullcast.network.answers.events import Event, Snapshot
    from hullcast.network.wire.arrays import Floats

LOOK_S, QUIET_S = 0.005, 0.02
BATCH = 40
#: Events that may wait; far more than come while this process does something else.
BUFFER = 100_000
SHOWN_ROWS = 2


def stay_quiet() -> None:
    """The terminal is the parent's: no logs on it, and Ctrl-C there is for the parent alone, which closes our input."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Moves:
    """Notes when clients were connected again; times are of the clock all processes here share."""

    def __init__(self, clients: Mapping[str, Client]) -> None:
        self._clients = clients
        self._moved: dict[str, list[float]] = {name: [] for name in clients}
        self._task = asyncio.create_task(self._watch(), name="demo.moves")

    def report(self, name: str) -> dict[str, Any]:
        """Where a client is, and the times at which it was connected again."""
        client = self._clients[name]
        return {
            "endpoint": client.statistics().link.endpoint,
            "connected": client.connected,
            "moved": self._moved[name],
        }

    async def stop(self) -> None:
        """Look no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        fresh = {name: client.statistics().link.fresh for name, client in self._clients.items()}
        while True:
            await asyncio.sleep(LOOK_S)
            for name, client in self._clients.items():
                now = client.statistics().link
                if now.fresh != fresh[name] and now.state == "up" and client.connected:
                    fresh[name] = now.fresh
                    self._moved[name].append(time.monotonic())


class PublishingProcess:
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
        self._moves = Moves({PUBLISHER: self._client})
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
        return {"published": self._published, "done": done, **self._moves.report(PUBLISHER)}

    async def _play(self, seconds: float) -> None:
        assert self._trace is not None, "open comes first"
        started, batches = time.monotonic(), self._trace.batches
        for i, batch in enumerate(batches):
            await asyncio.sleep(max(0.0, started + i * seconds / len(batches) - time.monotonic()))
            if seconds and time.monotonic() - started >= seconds:
                return
            for action in batch:
                await self._publish(action, moment=action is batch[-1])

    async def _publish(self, action: MarketAction, *, moment: bool) -> None:
        assert self._client is not None, "open comes first"
        assert self._record is not None, "open comes first"
        if isinstance(action, Upsert):
            receipt = await self._client.publish(action.table, list(action.rows))
        else:
            receipt = await self._client.delete(action.table, list(action.keys))
        self._record.write(Acknowledged(receipt.first_seq, receipt.seq, action, moment).line())
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


class Watched:
    """A subscription whose every event is kept."""

    def __init__(self, one: Wanted, subscription: Subscription[Event | Snapshot]) -> None:
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

    def __init__(self, subscriptions: Subscriptions) -> None:
        self.subscriptions = subscriptions
        self.rebuilt: Floats = subscriptions.answers.copy()
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


class DemoClient:
    """A client and what it subscribed to: many ranges, and some have one subscription that is on the screen."""

    def __init__(self, name: str, client: Client) -> None:
        self.name, self.client = name, client
        self._watched: Watched | None = None
        self._many: Many | None = None

    async def subscribe(self, count: int, seed: int) -> int:
        """Subscribe to what the scenario says; how many subscriptions that is."""
        ranges = share_of(many_ranges(count, seed), self.name)
        if len(ranges):
            self._many = Many(await self.client.subscribe_many(MANY, ranges.low, ranges.high))
        one = WANTED.get(self.name)
        if one is not None:
            subscription = self.client.subscribe(one.sql, overflow="block", buffer=BUFFER, snapshot=True)
            self._watched = Watched(one, await subscription)
        return len(ranges) + (one is not None)

    def look(self) -> dict[str, Any]:
        """How it goes."""
        many, one = self._many.told if self._many is not None else 0, self._watched
        return {
            "told": many + (one.changes if one is not None else 0),
            "row_bytes": one.row_bytes if one is not None else 0,
            "answer": one.look() if one is not None else None,
        }

    async def finish(self) -> dict[str, Any]:
        """Wait until everything is here and taken; all there is to judge."""
        seq = await self.client.sync()
        while self._watched is not None and self._watched.subscription.pending:  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(QUIET_S)
        taken = -1
        while self._many is not None and taken != self._many.taken:  # its task takes them when the loop turns
            taken = self._many.taken
            await asyncio.sleep(QUIET_S)
        return {
            "seq": seq,
            "watched": self._watched.result() if self._watched is not None else None,
            "many": _numbers(self._many.subscriptions.answers) if self._many is not None else [],
            "rebuilt": _numbers(self._many.rebuilt) if self._many is not None else [],
        }

    async def close(self) -> None:
        """Leave everything."""
        if self._watched is not None:
            await self._watched.stop()
        if self._many is not None:
            await self._many.stop()
        await self.client.close()


class SubscribingProcess:
    """What this process can be asked to do."""

    def __init__(self) -> None:
        self._clients: dict[str, DemoClient] = {}
        self._moves: Moves | None = None

    async def open(self, urls: dict[str, list[str]]) -> dict[str, Any]:
        """Connect each client to the first of its gateways that answers."""
        clients = await asyncio.gather(*(connect(ways, name=name, timeout=60.0) for name, ways in urls.items()))
        self._clients = {name: DemoClient(name, client) for name, client in zip(urls, clients, strict=True)}
        self._moves = Moves({name: one.client for name, one in self._clients.items()})
        return {}

    async def subscribe(self, count: int, seed: int) -> dict[str, Any]:
        """Have all clients subscribe, one after the other."""
        return {"subscriptions": sum([await one.subscribe(count, seed) for one in self._clients.values()])}

    async def look(self) -> dict[str, Any]:
        """How it goes, by client."""
        assert self._moves is not None, "open comes first"
        return {name: one.look() | self._moves.report(name) for name, one in self._clients.items()}

    async def finish(self, path: str) -> dict[str, Any]:
        """Wait until everything is here and taken, and write it all to a file."""
        results = await asyncio.gather(*(one.finish() for one in self._clients.values()))
        text = json.dumps(dict(zip(self._clients, results, strict=True)))
        await asyncio.to_thread(Path(path).write_text, text)
        return {}

    async def close(self) -> None:
        """Leave everything."""
        if self._moves is not None:
            await self._moves.stop()
        await asyncio.gather(*(one.close() for one in self._clients.values()))


def _numbers(values: Floats) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


def shown(answer: Any) -> str:
    """An answer in a few words."""
    if answer is None:
        return "NULL"
    if isinstance(answer, float):
        return f"{answer:,.2f}"
    if isinstance(answer, int):
        return f"{answer:,}"
    items = sorted(answer) if isinstance(answer, set) else [" ".join(map(_cell, row)) for row in answer]
    if not items:
        return "nothing"
    rest = f", +{len(items) - SHOWN_ROWS}" if len(items) > SHOWN_ROWS else ""
    return ", ".join(map(str, items[:SHOWN_ROWS])) + rest


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


async def main(worker: PublishingProcess | SubscribingProcess) -> None:
    """Serve until standard input ends."""
    names = ("open", "play", "subscribe", "look", "finish")
    try:
        await serve({name: getattr(worker, name) for name in names if hasattr(worker, name)})
    finally:
        await worker.close()


if __name__ == "__main__":
    stay_quiet()
    asyncio.run(main(PublishingProcess() if sys.argv[1] == "publisher" else SubscribingProcess()))
