"""A new kind of subscription is a file for its answers, a file for its channel and a row in the table, nothing else.

The kind here is BIT_XOR(y), in tests/support/toy_answers.py and toy_channel.py; its row is added below. Judged by
its definition on the rows, through an embedded engine and through a server, nodes and clients on real sockets.
"""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import replace
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

import pytest

import hullcast
from hullcast import Change, Engine, Resync
from hullcast.clients.cli.commands.explain import in_words
from hullcast.network.answers.kinds import KINDS, SubscriptionKind
from tests.support.cluster import PATIENCE_S, cluster
from tests.support.toy_answers import XorAnswers

CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL, Y INTEGER, G TEXT)"
RANGE = "SELECT BIT_XOR(Y) FROM T WHERE X BETWEEN ? AND ?"
PARTITION = "SELECT BIT_XOR(Y) AS bits FROM T WHERE X BETWEEN ? AND ? AND G = ?"
ALL = "SELECT BIT_XOR(Y) FROM T"


@pytest.fixture(autouse=True)
def row_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = "tests.support.toy_channel:XorChannel"
    monkeypatch.setitem(KINDS, "BIT_XOR", SubscriptionKind("BIT_XOR", XorAnswers, channel, takes=("INTEGER",)))


class Rows:
    """The rows of T, random changes of them, and the definition of the answer."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: dict[int, dict[str, Any]] = {}

    def some(self, n: int) -> list[dict[str, Any]]:
        """Rows to write, of which each is as in the table afterwards."""
        draw = self.random
        rows = [
            {"K": k, "X": draw.randrange(10), "Y": draw.choice([None, *range(16)]), "G": draw.choice("ab")}
            for k in (draw.randrange(12) for _ in range(n))
        ]
        self.rows.update((row["K"], row) for row in rows)
        return rows

    def gone(self) -> int:
        """A key to delete, which may not be there."""
        key = self.random.randrange(12)
        self.rows.pop(key, None)
        return key

    def answer(self, low: float = -1, high: float = 99, group: str | None = None) -> int | None:
        inside = [row for row in self.rows.values() if low <= row["X"] <= high and group in (None, row["G"])]
        values = [row["Y"] for row in inside if row["Y"] is not None]
        return reduce(xor, values) if values else None


@pytest.mark.parametrize("seed", range(5))
def test_an_engine_runs_it(seed: int) -> None:
    rows, engine = Rows(seed), Engine()
    engine.execute(CREATE)
    engine.upsert("T", rows.some(5))
    lows, highs = [0.0, 3.0, 5.0, 8.0], [9.0, 6.0, 5.0, 2.0]
    one, everything = engine.subscribe(PARTITION, 2, 7, "a"), engine.subscribe(ALL)
    many = engine.subscribe_many(RANGE, lows, highs)
    before = one.answer
    for step in range(40):
        batch = engine.delete("T", [rows.gone()]) if step % 4 == 3 else engine.upsert("T", rows.some(1))
        assert one.answer == rows.answer(2, 7, "a")
        assert everything.answer == rows.answer()
        assert many.answers.tolist() == [rows.answer(low, high) for low, high in zip(lows, highs, strict=True)]
        events = one.drain()
        assert len(events) == (one.answer != before)  # told once, and only if it changed
        for event in events:
            assert isinstance(event, Change)
            assert (event.seq, event.answer) == (batch.last_seq, one.answer)
        before = one.answer
    engine.upsert("T", rows.some(30))  # many updates of one row in a batch
    assert (one.answer, everything.answer) == (rows.answer(2, 7, "a"), rows.answer())
    assert one.columns == ("bits",)
    assert one.channel == "BIT_XOR(Y) FROM T OVER X BY G"


def test_the_parser_knows_it_by_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.execute(CREATE)
    assert engine.subscribe("select Bit_Xor(y) from t").answer is None
    refused = [
        ("SELECT BIT_XOR(X) FROM T", "BIT_XOR takes INTEGER"),
        ("SELECT BIT_XOR(*) FROM T", "BIT_XOR takes a plain column"),
        ("SELECT BIT_XOR(X, Y) FROM T", "BIT_XOR takes one column"),
        ("SELECT BIT_XOR(Y), K FROM T", "only item after SELECT"),
        ("SELECT 5 FROM T", "AVG and BIT_XOR of a column"),
    ]
    for sql, message in refused:
        with pytest.raises(hullcast.SqlError, match=re.escape(message)):
            engine.subscribe(sql)
    for name in ("VAR_POP", "MEDIAN"):  # functions that sqlglot knows, one by another name first
        monkeypatch.setitem(KINDS, name, replace(KINDS["BIT_XOR"], name=name))
        assert engine.subscribe(f"SELECT {name}(Y) FROM T").channel == f"{name}(Y) FROM T"
    monkeypatch.delitem(KINDS, "BIT_XOR")
    with pytest.raises(hullcast.SqlError, match="not supported"):
        engine.subscribe("SELECT BIT_XOR(Y) FROM T WHERE X < 5")


@pytest.mark.parametrize("overflow", ["latest", "block"])
async def test_clients_of_a_server_behind_nodes_run_it(overflow: Any, tmp_path: Path) -> None:
    rows = Rows(7)
    async with asyncio.timeout(PATIENCE_S), cluster(3, data=tmp_path) as c, c.client("g2") as writer:
        await writer.execute(CREATE)
        await writer.publish("T", rows.some(6))
        client = await c.client("g1", "g2")
        one = await client.subscribe(PARTITION, 2, 7, "a", overflow=overflow)
        many = await client.subscribe_many(RANGE, [0.0, 4.0, 8.0], [9.0, 6.0, 2.0])

        async def change(steps: int) -> None:
            for _ in range(steps):
                await writer.publish("T", rows.some(2))
                await writer.delete("T", [rows.gone()])

        async def check() -> None:
            await client.sync()
            assert one.answer == rows.answer(2, 7, "a")
            assert many.answers.tolist() == [rows.answer(low, high) for low, high in ((0, 9), (4, 6), (8, 2))]

        await check()
        await change(10)
        await check()
        events = [event async for event in _waiting(one)]
        assert len(events) == 1 if overflow == "latest" else len(events) > 3
        assert all(isinstance(event, Change) for event in events)
        assert events[-1].answer == one.answer
        told = in_words(await client.explain(PARTITION, 2, 7, "a"))
        assert ("channel", "BIT_XOR(Y) FROM T OVER X BY G") in told
        assert any("with every BIT_XOR of T over X by G" in text for _, text in told)

        await c.kill("g1")  # the client goes on by the other gateway, and misses nothing
        await change(5)
        await check()
        assert not any(isinstance(event, Resync) for event in [event async for event in _waiting(one)])

        await change(3)
        await client.sync()
        token, last = one.token, one.answer  # with events that were not taken
        await client.close()
        await change(3)
        async with c.client("g2") as later:
            again = await later.subscribe(PARTITION, 2, 7, "a", resume=token, overflow=overflow)
            events = [event async for event in _waiting(again)]
            assert again.answer == rows.answer(2, 7, "a")
            assert all(isinstance(event, Change) for event in events)
            assert (events[-1].answer if events else last) == again.answer
            await c.stop_server()
            await c.restart_server()
            await change(2)
            await later.sync()
            assert again.answer == rows.answer(2, 7, "a")
            assert any(isinstance(event, Resync) for event in [event async for event in _waiting(again)])


async def _waiting(subscription: Any) -> Any:
    """What waits for a subscription now."""
    while (event := subscription.take_nowait()) is not None:
        yield event


async def test_a_client_that_does_not_know_it_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(1) as c, c.client() as client:
        await client.execute(CREATE)
        with monkeypatch.context() as patch:  # the server of this process knows it all the time
            patch.setattr("hullcast.clients.sdk.session.KINDS", {})
            with pytest.raises(hullcast.UsageError, match="does not know BIT_XOR"):
                await client.subscribe(ALL)
            assert client.statistics().groups == 0
        assert (await client.subscribe(ALL)).answer is None
