"""An engine beside a client: whoever publishes to both can ask the engine what the client must have heard.

The engine's own answers and events are held against SQLite elsewhere (tests/broker/engine/test_machine.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from hullcast.broker.engine.engine import Engine
from hullcast.broker.engine.subscription import EngineSubscription
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.subscription import Subscription
from hullcast.network.answers.events import Change, Event
from tests.support.queries import COLUMNS, CREATE, KEY, KEYS, Asked, row


@dataclass
class Pair:
    """The same subscription in both, and the events of each so far."""

    asked: Asked
    local: EngineSubscription
    live: Subscription
    exact: bool  # every event, or only the newest answer
    expected: list[Any] = field(default_factory=list)
    heard: list[Any] = field(default_factory=list)


class Twins:
    """Tables R, S and W in an engine and in a server, and pairs of subscriptions."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client = client
        self.engine = Engine()
        self.rng = Random(seed)
        self.pairs: list[Pair] = []

    async def create(self) -> None:
        """The tables, with some rows."""
        for statement in CREATE:
            await self.client.execute(statement)
            self.engine.execute(statement)
        for table in "RSW":
            rows = [row(self.rng, table, COLUMNS[table]) | {KEY[table]: key} for key in KEYS[table][::2]]
            await self.publish(table, rows)

    async def publish(self, table: str, rows: list[dict[str, Any]]) -> None:
        """The same rows to both."""
        batch = self.engine.upsert(table, rows)
        receipt = await self.client.publish(table, rows)
        assert (receipt.first_seq, receipt.seq) == (batch.first_seq, batch.last_seq)

    async def change(self) -> None:
        """One change of any kind."""
        table = self.rng.choice("RSW")
        if self.rng.random() < 0.2:
            key = self.rng.choice(KEYS[table])
            batch = self.engine.delete(table, [key])
            receipt = await self.client.delete(table, [key])
            assert receipt.seq == batch.last_seq
        else:
            await self.publish(table, [row(self.rng, table) for _ in range(self.rng.randint(1, 4))])

    async def subscribe(self, asked: Asked, **options: Any) -> Pair:
        """The same subscription in both; they begin alike."""
        live = await self.client.subscribe(asked.sql, *asked.parameters, **options)
        local = self.engine.subscribe(asked.sql, *asked.parameters)
        exact = options.get("overflow") != "latest"
        pair = Pair(asked, local, live, exact)
        assert live.answer == local.answer, asked
        self.pairs.append(pair)
        return pair

    async def check(self) -> None:
        """Answers are the same, and so is every event of those who hear each."""
        assert await self.client.sync() == self.engine.seq
        for pair in self.pairs:
            assert pair.live.seq == self.engine.seq
            assert pair.live.answer == pair.local.answer, pair.asked
            pair.expected += map(told, pair.local.drain())
            while (event := pair.live.take_nowait()) is not None:
                pair.heard.append(told(event))
            if pair.exact:
                assert pair.heard == pair.expected, pair.asked


def told(event: Event) -> Any:
    """An event as a value."""
    if isinstance(event, Change):
        return event.seq, event.answer, event.entered, event.left, event.changed
    return event.seq, event.answer
