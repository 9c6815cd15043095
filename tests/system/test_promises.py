"""The promises of the design, end to end: clients of gateways, two hops from the server, against SQLite."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from hullcast.clients.sdk.client import Client
from hullcast.network.answers.events import Change, Snapshot
from tests.support.cluster import PATIENCE_S, TaskMember, cluster, wait_for
from tests.support.queries import subscription
from tests.support.watching import EVERY_KIND, History, Watcher, check_answers, check_streams, settle, watch


async def storm(seed: int, rounds: int, most: int, **options: Any) -> None:
    """Rows come, change and go while subscriptions of every kind do, at every place of the tree."""
    rng = Random(seed)
    history = History()
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack, cluster(**options) as c:
        clients = [await stack.enter_async_context(c.client(at)) for at in ("g1", "g1", "g2", "root", "server")]
        await history.create(clients[0])
        for _ in range(5):
            await history.publish(clients[2], rng)
        watchers = await watch(clients[0], EVERY_KIND)
        everybody: list[Watcher] = list(watchers)
        for number in range(rounds):
            if number % 3 == 0 and len(watchers) < most:
                more = await watch(rng.choice(clients), [subscription(rng) for _ in range(6)])
                watchers += more
                everybody += more
            publishing = [history.publish(rng.choice(clients), rng) for _ in range(rng.choice((1, 1, 4)))]
            await asyncio.gather(*publishing)
            await settle(clients)
            assert {client.seq for client in clients} == {history.seq}
            check_answers(history, watchers)
            if number % 7 == 6:
                leaving = watchers.pop(rng.randrange(len(watchers)))
                leaving.collect()
                everybody.remove(leaving)
                await leaving.subscription.close()
        history.check_complete(await clients[0].sync())
        check_streams(history, everybody, resyncs_allowed=False)
        for one in watchers:
            await one.subscription.close()
        for member in c.members.values():
            assert isinstance(member, TaskMember)
            await _wait_deserted(member)
        await asyncio.gather(*(client.close() for client in clients))


async def _wait_deserted(member: TaskMember) -> None:
    router = member.service.children.router
    await wait_for(lambda: not router.channels(), f"nothing is routed at {member.name} any more")


@pytest.mark.parametrize("seed", range(2))
async def test_every_answer_is_sql_s_and_every_change_is_told_once(seed: int) -> None:
    await storm(seed, rounds=20, most=50)


async def test_covers_of_one_box_and_a_server_that_prunes_nothing_change_no_answer() -> None:
    await storm(7, rounds=12, most=50, cover_budget=1, prune=False)


async def test_after_sync_sums_are_right_to_the_last_bit() -> None:
    """Rows that cancel each other cost a sum more bits than it has; then it is taken anew from the rows."""
    rng = Random(8)
    wild = [2.0**53, 1.0, -1.0, 1e-20, 2e-20, 1e40, -1e40, 1e300, 0.1, None]
    async with asyncio.timeout(PATIENCE_S), cluster(2) as c, c.client("g1") as one, c.client("server") as other:
        await one.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, Y REAL)")
        totals = [(await one.subscribe("SELECT SUM(Y) FROM T WHERE K < ?", n), n) for n in range(2, 7)]
        means = [(await one.subscribe("SELECT AVG(Y) FROM T WHERE K < ?", n), n) for n in range(2, 7)]
        many = [
            await one.subscribe_many(f"SELECT {what}(Y) FROM T WHERE K < ?", list(range(2, 7)))
            for what in ("SUM", "AVG")
        ]
        held: dict[int, float | None] = {}
        for _ in range(150):
            batch = [(rng.randrange(6), rng.choice(wild)) for _ in range(rng.choice((1, 1, 3)))]
            await other.publish("T", [{"K": key, "Y": y} for key, y in batch])
            held.update(batch)
            await one.sync()
            for made, n in (*totals, *means):
                values = [y for key, y in held.items() if y is not None and key < n]
                exact = sum(map(Fraction, values), Fraction(0)) / (1 if "SUM" in made.sql else len(values) or 1)
                assert made.answer == (float(exact) if values else None), (made.sql, n, values)
            for each, column in zip((totals, means), many, strict=True):
                answers = [np.nan if made.answer is None else made.answer for made, _ in each]
                np.testing.assert_array_equal(column.answers, np.array(answers))


async def test_a_subscription_is_in_effect_when_it_returns() -> None:
    """Promise 5: whoever publishes after that is heard, however far away, and nothing before is missed."""
    async with asyncio.timeout(PATIENCE_S), cluster() as c, c.client("g1") as one, c.client("g2") as other:
        await one.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, Y INTEGER)")
        publishing = asyncio.create_task(_count_up(other), name="test.counting")
        for _ in range(20):
            async with one.subscribe("SELECT MAX(Y) FROM T", overflow="block", buffer=1 << 20, snapshot=True) as made:
                first = await anext(made)
                assert isinstance(first, Snapshot)
                for seq in range(first.seq + 1, first.seq + 4):
                    event = await anext(made)
                    assert isinstance(event, Change)
                    assert event.seq == event.answer == seq
                assert (first.answer or 0) == first.seq
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)


async def _count_up(client: Client) -> None:
    """The update with number n writes n."""
    number = 0
    while True:
        number += 1
        await client.publish("T", [{"K": number % 5, "Y": number}])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
async def test_every_answer_is_sql_s_through_long_storms(seed: int) -> None:
    await storm(seed, rounds=120, most=120)
