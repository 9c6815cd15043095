"""Faults by seed: members die and come back, links are cut and stall, and nobody misses anything or hears it twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.subscription import Subscription
from hullcast.network.answers.events import AnyEvent
from hullcast.network.wire.errors import UsageError
from tests.support.cluster import ROOT, SERVER, TaskMember, cluster, server_of, wait_for
from tests.support.faults import Fault, happen, plan, workload
from tests.support.remote_client import remote_client

#: For a whole history of faults; each of them lasts two seconds at most.
PATIENCE_S = 120.0
NODES = [ROOT, "g1", "g2"]


async def go_through(faults: list[Fault], seed: int, data: Path | None, processes: Path | None = None) -> None:
    """All of it while publishers publish and subscribers of every kind listen, come and go."""
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(data=data, processes=processes) as c,
        workload(c, Random(seed)) as work,
    ):
        for fault in faults:
            work.resyncs_allowed |= fault.member == SERVER and fault.kind in ("restart", "kill")
            await work.wait_acknowledged(1 + fault.updates)
            await happen(fault, c)
        await work.wait_acknowledged(20)


@pytest.mark.parametrize("member", ["g1", ROOT])
@pytest.mark.parametrize("kind", ["cut", "kill"])
async def test_nothing_is_lost_or_told_twice_when_a_node_or_its_links_fail(kind: str, member: str) -> None:
    await go_through([Fault(kind, member, 0.1, 10), Fault(kind, member, 1.5, 30)], seed=1, data=None)


async def test_short_and_long_stalls_lose_nothing() -> None:
    await go_through([Fault("stall", where, s, 10) for where in ("g1", ROOT) for s in (0.3, 1.5)], seed=2, data=None)


async def test_publishers_and_subscribers_go_on_when_the_server_comes_back(tmp_path: Path) -> None:
    await go_through([Fault("restart", SERVER, 0.2, 20), Fault("kill", SERVER, 2.0, 20)], seed=3, data=tmp_path)


async def test_nobody_misses_anything_through_any_faults_of_nodes_and_links() -> None:
    await go_through(plan(Random(0), NODES, 4), seed=0, data=None)


async def test_faults_of_all_nodes_at_once_lose_nothing() -> None:
    """Everything that can happen, at three places at the same time."""
    async with asyncio.timeout(PATIENCE_S), cluster() as c, workload(c, Random(9)) as work:
        for kinds in (("stall", "kill", "cut"), ("kill", "outage", "restart")):
            await work.wait_acknowledged(20)
            faults = [Fault(kind, member, 1.0, 0) for kind, member in zip(kinds, NODES, strict=True)]
            await asyncio.gather(*(happen(fault, c) for fault in faults))
        await work.wait_acknowledged(20)


@pytest.mark.parametrize("gone", ["g1", ROOT])
async def test_when_a_node_never_comes_back_its_children_go_elsewhere(gone: str) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster() as c, workload(c, Random(5)) as work:
        await wait_for(lambda: all(_knows_others(client) for client in work.clients), "all know other ways")
        await work.wait_acknowledged(20)
        await c.kill(gone)
        await work.wait_acknowledged(20)


def _knows_others(client: Client) -> bool:
    return len(client._line.dialer.endpoints) >= 4


async def test_what_cannot_be_replayed_is_told_by_a_resync() -> None:
    """A server that keeps hardly any messages: after a long absence subscriptions begin anew, and say so."""
    async with asyncio.timeout(PATIENCE_S), cluster(retention_bytes=500) as c, workload(c, Random(6)) as work:
        work.resyncs_allowed = True
        for member in ("g1", ROOT):
            await work.wait_acknowledged(20)
            await happen(Fault("kill", member, 0.5, 0), c)
        await work.wait_acknowledged(20)
    assert sum(watcher.resyncs for watcher in work.watchers) > 0


async def _wait_told(made: Subscription[AnyEvent], seq: int) -> None:
    await wait_for(lambda: made.seq == seq, f"all is told up to {seq}")


async def test_a_server_that_keeps_nothing_comes_back_empty_and_says_so() -> None:
    lowest = "SELECT MIN(Y) FROM T WHERE K > ?"
    async with asyncio.timeout(PATIENCE_S), cluster(2) as c, c.client("g1") as one, c.client("g1") as other:
        for values in ([3.0, 2.0, 1.0], [5.0]):
            await one.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, Y REAL)")
            made = await other.subscribe(lowest, 0, progress=True)
            for number, value in enumerate(values, 1):
                receipt = await one.publish("T", [{"K": number, "Y": value}])
            await _wait_told(made, receipt.seq)
            assert made.answer == values[-1]
            await c.stop_server()
            await c.restart_server()
            with pytest.raises(UsageError, match="no table"):
                async for _ in made:
                    pass


async def test_processes_are_killed_one_after_the_other_and_everything_is_right_again(tmp_path: Path) -> None:
    """kill -9: a gateway, and the server with everything it had in memory."""
    faults = [Fault("kill", member, 0.0, 20) for member in ("g1", SERVER)]
    await go_through(faults, seed=4, data=tmp_path / "data", processes=tmp_path)


async def test_a_client_that_vanishes_without_goodbye_is_forgotten(tmp_path: Path) -> None:
    """Its subscriptions go from its gateway at once, then from all above; nobody computes for it any more."""
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(channel_linger_s=0.0) as c,
        c.client("g2") as other,
        remote_client(c["g1"].endpoint, tmp_path / "client.log") as remote,
    ):
        await remote.wait_acknowledged(20)
        (held,) = [member for name, member in c.members.items() if name == "g1"]
        server = server_of(c)
        assert isinstance(held, TaskMember)
        attendance = server.attendance
        assert (len(held.service.listener.peers), len(attendance)) == (1, 1)
        remote.process.kill()
        await wait_for(lambda: not held.service.listener.peers, "its gateway forgets it")
        await wait_for(lambda: not len(attendance), "the server computes its channel no more")
        assert not server.children.router.channels()
        assert await other.sync() >= remote.acknowledged


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300, 306))
async def test_everything_is_right_again_after_many_kills_of_processes(seed: int, tmp_path: Path) -> None:
    faults = plan(Random(seed), [*NODES, SERVER], 8)
    await go_through(faults, seed, data=tmp_path / "data", processes=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
async def test_nobody_misses_anything_through_many_faults_of_nodes_and_links(seed: int) -> None:
    await go_through(plan(Random(seed), NODES, 12), seed, data=None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(400, 430))
async def test_everything_is_right_again_after_faults_at_several_places_at_once(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    async with asyncio.timeout(PATIENCE_S), cluster(data=tmp_path) as c, workload(c, rng) as work:
        work.resyncs_allowed = True
        for _ in range(5):
            await work.wait_acknowledged(1 + rng.randrange(40))
            hurt = rng.sample([*NODES, SERVER], rng.randint(2, 4))
            await asyncio.gather(*(happen(plan(rng, [member], 1)[0], c) for member in hurt))
        await work.wait_acknowledged(20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 230))
async def test_everything_is_right_again_after_many_faults_the_server_s_among_them(seed: int, tmp_path: Path) -> None:
    await go_through(plan(Random(seed), [*NODES, SERVER], 12), seed, data=tmp_path)
