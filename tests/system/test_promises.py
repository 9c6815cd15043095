"""The promises of the design, end to end: clients of gateways, two hops from the server, against SQLite."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest

from tests.support.cluster import PATIENCE_S, cluster
from tests.support.queries import subscription
from tests.support.watching import EVERY_KIND, History, Watcher, check_answers, check_streams, settle, watch


async def storm(seed: int, rounds: int, most: int) -> None:
    """Rows come, change and go while subscriptions of every kind do, at every place of the tree."""
    rng = Random(seed)
    history = History()
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack, cluster() as c:
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
        await asyncio.gather(*(client.close() for client in clients))


@pytest.mark.parametrize("seed", range(3))
async def test_every_answer_is_sql_s_and_every_change_is_told_once(seed: int) -> None:
    await storm(seed, rounds=24, most=60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
async def test_every_answer_is_sql_s_through_long_storms(seed: int) -> None:
    await storm(seed, rounds=120, most=120)
