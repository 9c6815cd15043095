"""Joins over a cluster: every answer is SQL's and every change is told once, whatever comes, goes, breaks or returns;
and the server knows just the ranges of those who live.

The joins of tests/broker/engine/test_join_machine.py, here with clients at gateways, at the root and at the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from math import inf
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from hullcast.broker.index import grouping
from hullcast.broker.joins import standing
from hullcast.broker.reformulate import join as join_module
from hullcast.broker.server import subscribing
from hullcast.broker.tables import interning
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.subscriptions import Subscriptions
from hullcast.network.security.rights import Rights
from tests.broker.engine.test_join_machine import TEXTS, a_join
from tests.broker.engine.test_machine import answer_of, same
from tests.support.cluster import PATIENCE_S, ROOT, SERVER, Cluster, cluster, server_of
from tests.support.queries import SEEDS, Asked
from tests.support.ranges import wait_exact
from tests.support.watching import BUFFER, History, Watcher, check_streams, settle, watch

T = TypeVar("T")
#: Where clients are: each has another way, should a gateway die.
PLACES = (("g1", "g2"), ("g2", "g1"), (ROOT,), (SERVER,))
MOST_WATCHERS, MOST_CLIENTS = 12, 5
#: Nobody's ranges are forgotten while it runs, unless a rule says so.
FOR_LONG = 3600.0


class Many(NamedTuple):
    """Subscriptions made together; `None` for those that were closed alone."""

    client: Client
    asked: list[Asked | None]
    made: Subscriptions


class LiveJoins(RuleBasedStateMachine):
    """A cluster, its clients, and SQLite beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.folder = TemporaryDirectory()
        self.patches = pytest.MonkeyPatch()
        self.history = History()
        self.oracle, self.seq = self.history.oracle(), 0
        self.clients: list[Client] = []
        self.watchers: list[Watcher] = []
        self.many: list[Many] = []
        self.may_begin_again: set[int] = set()  # watchers (by id) that events may have been lost for

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(PATIENCE_S):
                return await work

        return self.runner.run(bounded())

    def step(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something, and look at everything."""

        async def and_check() -> None:
            await work
            await self.check()

        self.run(and_check())

    @initialize(seed=SEEDS, sweeps=st.booleans(), planned=st.booleans(), prune=st.booleans())
    def start(self, seed: int, sweeps: bool, planned: bool, prune: bool) -> None:
        if sweeps:  # partitions and texts are forgotten as soon as nobody has them
            self.patches.setattr(interning, "SWEEP_SLACK", 0)
            self.patches.setattr(grouping, "SWEEP_SLACK", 0)
        if planned:  # however few ranges there are
            self.patches.setattr(standing, "FEW", 0)
        self.patches.setattr(subscribing, "WANTED_AT_ONCE", 1)
        self.patches.setattr(join_module, "AT_ONCE", 4)
        self.sweeps = sweeps
        self.run(self.begin(Random(seed), prune))

    async def begin(self, rng: Random, prune: bool) -> None:
        made = cluster(data=Path(self.folder.name), channel_linger_s=FOR_LONG, prune=prune)
        self.cluster: Cluster = await self.stack.enter_async_context(made)
        for place in PLACES:
            self.clients.append(await self.cluster.client(*place))
        await self.history.create(self.clients[0])
        for _ in range(4):
            await self.history.publish(rng.choice(self.clients), rng)
        for client in self.clients:
            await self.watch(client, a_join(rng))
        await self.check()

    # --- those who listen ------------------------------------------------------------------------------------

    async def watch(self, client: Client, *asked: Asked) -> None:
        if len(self.watchers) < MOST_WATCHERS:
            self.watchers += await watch(client, asked)

    @rule(seed=SEEDS)
    def subscribe(self, seed: int) -> None:
        rng = Random(seed)
        self.step(self.watch(rng.choice(self.clients), *(a_join(rng) for _ in range(rng.randint(1, 3)))))

    @rule(seed=SEEDS)
    def subscribe_many(self, seed: int) -> None:
        rng = Random(seed)
        self.step(self.meanwhile(rng, self.listen_to_many(rng, rng.choice(self.clients))))

    async def listen_to_many(self, rng: Random, client: Client) -> None:
        if len(self.many) >= 3:
            return
        text = rng.choice([text for text in TEXTS if text.parameters])
        asked = [a_join(rng, text) for _ in range(rng.randint(1, 6))]
        given = zip(*(one.parameters for one in asked), strict=True)
        columns = [[float(one) if isinstance(one, int) else one for one in column] for column in given]
        self.many.append(Many(client, [*asked], await client.subscribe_many(asked[0].sql, *columns)))

    @rule(seed=SEEDS)
    def close_some(self, seed: int) -> None:
        self.step(self.stop_listening(Random(seed)))

    async def stop_listening(self, rng: Random) -> None:
        if self.many and rng.random() < 0.5:
            many = rng.choice(self.many)
            left = [i for i, asked in enumerate(many.asked) if asked is not None]
            if rng.random() < 0.5 and len(left) > 1:
                await many.made[rng.choice(left)].close()
                many.asked[:] = [None if many.made._listeners[i] < 0 else one for i, one in enumerate(many.asked)]
            else:
                self.many.remove(many)
                await many.made.close()
        for _ in range(min(rng.randint(0, 2), len(self.watchers))):
            one = self.watchers.pop(rng.randrange(len(self.watchers)))
            self.judge([one])
            await one.subscription.close()

    # --- clients -----------------------------------------------------------------------------------------------

    @rule(seed=SEEDS)
    def a_client_comes(self, seed: int) -> None:
        if len(self.clients) < MOST_CLIENTS:
            self.step(self.come(Random(seed)))

    async def come(self, rng: Random) -> None:
        self.clients.append(await self.cluster.client(*rng.choice(PLACES)))
        await self.watch(self.clients[-1], a_join(rng))

    @rule(seed=SEEDS, vanishes=st.booleans())
    def a_client_goes(self, seed: int, vanishes: bool) -> None:
        if len(self.clients) > 2:
            self.step(self.go(Random(seed), vanishes))

    async def go(self, rng: Random, vanishes: bool) -> None:
        client = self.clients.pop(rng.randrange(len(self.clients)))
        self.judge([one for one in self.watchers if one.client is client])
        self.watchers = [one for one in self.watchers if one.client is not client]
        self.many = [one for one in self.many if one.client is not client]
        if vanishes:
            client._line.dialer._hang_up()
        await client.close()

    @rule(seed=SEEDS, forgotten=st.booleans())
    def resume(self, seed: int, forgotten: bool) -> None:
        if self.watchers:
            self.step(self.continue_elsewhere(Random(seed), forgotten))

    async def continue_elsewhere(self, rng: Random, forgotten: bool) -> None:
        """By its token, at any client, after some changes; perhaps the server has let its range go meanwhile."""
        one = rng.choice(self.watchers)
        if rng.random() < 0.5:
            one.collect()
        token = one.subscription.token
        await one.subscription.close()
        await one.client.sync()
        if forgotten:
            server_of(self.cluster).attendance.expire(inf)
            self.may_begin_again.add(id(one))
        await self.publish(rng, rng.randint(0, 6))
        one.client = rng.choice(self.clients)
        one.subscription = await one.client.subscribe(
            one.asked.sql, *one.asked.parameters, overflow="block", buffer=BUFFER, resume=token
        )

    # --- rows --------------------------------------------------------------------------------------------------

    @rule(seed=SEEDS)
    def change(self, seed: int) -> None:
        rng = Random(seed)
        self.step(self.publish(rng, rng.randint(1, 6)))

    async def publish(self, rng: Random, batches: int) -> None:
        """Up to three at a time: the server applies those that arrive together as one."""
        while batches > 0:
            together = rng.randint(1, min(3, batches))
            await asyncio.gather(*(self.history.publish(rng.choice(self.clients), rng) for _ in range(together)))
            batches -= together

    @rule(seed=SEEDS, most=st.integers(0, 3))
    def too_many_pairs(self, seed: int, most: int) -> None:
        """Nothing is described: all begin again."""
        self.may_begin_again.update(map(id, self.watchers))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(join_module, "MOST_PAIRS", most)
            self.step(self.publish(Random(seed), 2))

    # --- what breaks -------------------------------------------------------------------------------------------

    @rule(seed=SEEDS, who=st.sampled_from([SERVER, ROOT, "g1", "g2"]))
    def cut(self, seed: int, who: str) -> None:
        self.step(self.meanwhile(Random(seed), self.cut_links(who)))

    async def cut_links(self, who: str) -> None:
        self.cluster[who].proxy.cut()

    @rule(seed=SEEDS, who=st.sampled_from([ROOT, "g1", "g2"]))
    def kill(self, seed: int, who: str) -> None:
        self.step(self.meanwhile(Random(seed), self.kill_and_start(who)))

    async def kill_and_start(self, who: str) -> None:
        await self.cluster.kill(who)
        await self.cluster[who].start()

    @rule(seed=SEEDS)
    def read_rights_again(self, seed: int) -> None:
        self.step(self.meanwhile(Random(seed), self.take_rights()))

    async def take_rights(self) -> None:
        server_of(self.cluster).take_rights(Rights.everything())

    async def meanwhile(self, rng: Random, happens: Coroutine[Any, Any, None]) -> None:
        """Rows and subscriptions come while something happens."""
        asked, client = a_join(rng), rng.choice(self.clients)
        await asyncio.gather(happens, self.publish(rng, 3), self.watch(client, asked))

    # --- what must be so ---------------------------------------------------------------------------------------

    async def check(self) -> None:
        await settle(self.clients)
        while self.seq < self.history.seq:
            self.seq += 1
            self.history.apply(self.oracle, self.seq)
        server = server_of(self.cluster)
        assert self.seq == server.engine.seq
        for one in self.watchers:
            self.check_answer(one.asked, one.subscription.answer)
        for many in self.many:
            for i, asked in enumerate(many.asked):
                if asked is not None:
                    self.check_answer(asked, many.made[i].answer)
        await wait_exact(server, self.clients)
        for attending in server.attendance:
            assert isinstance(attending.channel, join_module.JoinChannel)
            attending.channel.standing.check()

    def check_answer(self, asked: Asked, answer: Any) -> None:
        expected = answer_of(self.oracle.contents(asked.sql, *asked.parameters))
        assert same(answer, expected), (asked, answer, expected)

    def judge(self, watchers: list[Watcher]) -> None:
        """Each change was told once, and what was told is all of it."""
        for one in watchers:
            allowed = self.sweeps or id(one) in self.may_begin_again
            check_streams(self.history, [one], resyncs_allowed=allowed)

    def teardown(self) -> None:
        try:
            self.judge(self.watchers)
            self.run(self.end())
        finally:
            self.runner.close()
            self.patches.undo()
            self.folder.cleanup()

    async def end(self) -> None:
        for client in self.clients:
            await client.close()
        await self.stack.aclose()


class LiveJoinsAndRestarts(LiveJoins):
    """The server stops, too, and comes back from its log; everybody waits for it, for seconds."""

    @rule(seed=SEEDS)
    def restart_the_server(self, seed: int) -> None:
        self.may_begin_again.update(map(id, self.watchers))
        self.step(self.meanwhile(Random(seed), self.stop_and_start()))

    async def stop_and_start(self) -> None:
        await self.cluster.stop_server()
        await self.cluster.restart_server()


def histories(examples: int, steps: int) -> settings:
    """As they are drawn: to shrink one would take an hour."""
    return settings(max_examples=examples, stateful_step_count=steps, phases=[Phase.generate], deadline=None)


def test_live_join_histories() -> None:
    run_state_machine_as_test(LiveJoins, settings=histories(7, 14))


@pytest.mark.slow
def test_long_live_join_histories() -> None:
    run_state_machine_as_test(LiveJoinsAndRestarts, settings=histories(40, 40))
