"""A thousand clients that connect, subscribe, vanish and return together: those beside them are served, and keep their
links, and nothing is left of the crowd."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest
import zmq

from hullcast import Change
from hullcast.clients.sdk.client import Client
from hullcast.network.link.header import Data
from hullcast.network.settings.common import LinkSettings
from hullcast.network.wire import bodies, frames
from tests.support.cluster import Cluster, ProcessMember, cluster
from tests.system.test_hostile import Stranger

CROWD, ROUNDS = 1000, 3
PATIENCE_S = 240.0
#: What the crowd may leave behind in any process.
MEMORY_BYTES = 200 << 20
LOWEST = "SELECT MIN(A) FROM T WHERE B BETWEEN ? AND ?"
PAIRS = "SELECT x.K, y.K FROM T x JOIN T y ON x.K = y.K WHERE x.A BETWEEN ? AND ?"


def memory(c: Cluster) -> dict[str, int]:
    found = {}
    for name, member in c.members.items():
        assert isinstance(member, ProcessMember)
        assert member.process is not None
        found[name] = psutil.Process(member.process.pid).memory_info().rss
    return found


async def storm(context: zmq.Context[zmq.Socket[bytes]], endpoint: str, *, wait: bool) -> None:
    """All at once; with `wait` they vanish when all were answered, else as soon as they have asked."""
    crowd = [Stranger(context, endpoint) for _ in range(CROWD)]
    for i, one in enumerate(crowd):
        one.hello("client")
        group = bodies.Group(1, (LOWEST, PAIRS)[i % 2], (float(i), float(i + 5)), 1)
        asked = bodies.encode(bodies.Subscribe((group,), None, None))
        one.say(frames.encode(frames.Request(1, (), None, asked)))
    for one in crowd:
        if wait:
            await one.wait(Data)
        one.close()


async def publish(hc: Client, changes: int) -> None:
    for count in range(1, changes + 1):
        await hc.publish("T", [{"K": 15, "A": -float(count)}])


@pytest.mark.slow
@pytest.mark.parametrize("at", ["server", "g1"])
async def test_a_crowd_that_comes_and_goes_together_hurts_nobody(tmp_path: Path, at: str) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 4 * CROWD)
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(2, processes=tmp_path, link=LinkSettings(), channel_linger_s=2.0) as c,
        c.client("g1", timeout=PATIENCE_S) as hc,
        c.client("server", timeout=PATIENCE_S) as other,
    ):
        await hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, A REAL, B REAL)")
        await hc.publish("T", {"K": list(range(1000)), "A": [float(i) for i in range(1000)], "B": [15.0] * 1000})
        lowest = await hc.subscribe(LOWEST, 10, 20, overflow="block")
        pairs = await other.subscribe(PAIRS, -1e9, -1)
        before = memory(c)
        changes = 200
        publishing = asyncio.create_task(publish(other, changes), name="test.publish")
        try:
            for i in range(ROUNDS):
                await storm(context, c[at].listen, wait=i % 2 == 0)
        finally:
            context.destroy(linger=0)
        await publishing
        heard = []
        async for event in lowest:
            assert isinstance(event, Change)
            heard.append(event.answer)
            if event.answer == -float(changes):
                break
        assert heard == [-float(i) for i in range(1, changes + 1)], "each change, once and in order"
        await other.sync()
        assert [tuple(row) for row in pairs.answer] == [(15, 15)]
        async with c.client(at, timeout=PATIENCE_S) as newcomer:
            await newcomer.sync()
        while True:  # until nobody of the crowd is left
            status = await hc.status()
            clients = status["children"]["clients"] + sum(node["clients"] for node in status["nodes"])
            ranges = sum(channel["ranges"]["wanted"] for channel in status["channels"] if channel["ranges"])
            if clients <= 3 and ranges == 1 and status["channels_per_client"]["most"] <= 2:
                break
            await asyncio.sleep(0.2)
        assert [client.statistics().link.interruptions for client in (hc, other)] == [0, 0]
        grown = {name: now - before[name] for name, now in memory(c).items()}
        assert max(grown.values()) < MEMORY_BYTES, grown
