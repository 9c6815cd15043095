"""A share of the channels for each key: it counts behind gateways too, and ends with the subscriptions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.subscription import Subscription
from hullcast.network.wire.errors import TooLarge
from tests.support.cluster import PATIENCE_S, wait_for
from tests.support.secured import Secured, secured

TABLE = "CREATE TABLE T (K INTEGER PRIMARY KEY, A REAL, B REAL, C REAL, D REAL, E REAL, F REAL)"
READER: dict[str, object] = {"subscribe": ["T"], "query": ["T"]}
RIGHTS: dict[str, dict[str, object]] = {
    "gateway": {"node": True},
    "admin": {"admin": True, "publish": ["T"]},
    "greedy": READER,
    "modest": READER,
}
SHARE = 3
MORE = "channels of one client .*: 4 is more than the limit of 3"


def channel(column: str) -> str:
    return f"SELECT MAX({column}) FROM T"


def fullest(s: Secured) -> int:
    return s.server.attendance.shares.fullest


async def opened(hc: Client, columns: str) -> list[Subscription]:
    return [await hc.subscribe(channel(column)) for column in columns]


async def test_a_key_has_a_share_of_the_channels_by_whichever_way_it_comes(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        secured(tmp_path, RIGHTS, channels_per_client=SHARE, channel_linger_s=0.0) as s,
        s.client("admin") as admin,
        s.client("greedy") as below,
        s.client("greedy", s.server.endpoint) as beside,
        s.client("modest") as modest,
    ):
        await admin.execute(TABLE)
        first, second = await opened(below, "AB")
        await opened(modest, "AB")  # they stay open
        third = (await opened(beside, "C"))[0]
        again = (await opened(beside, "A"))[0]  # one that counts already
        for hc in (below, beside):
            with pytest.raises(TooLarge, match=MORE):
                await hc.subscribe(channel("D"))
            with pytest.raises(TooLarge, match=MORE):
                await hc.subscribe("SELECT COUNT(*) FROM T", when=channel("D"))
            await hc.subscribe("SELECT COUNT(*) FROM T", when=channel("C"))
        async with modest.subscribe(channel("D")):
            assert (await admin.status())["channels_per_client"] == {"limit": 3, "most": 3, "refused": 4}
        await first.close()  # the other one is still there, elsewhere
        with pytest.raises(TooLarge, match=MORE):
            await below.subscribe(channel("E"))
        await second.close()
        await wait_for(lambda: fullest(s) < SHARE, "others have the channel, and it counts for them")
        await below.subscribe("SELECT COUNT(*) FROM T", when=channel("E"))
        with pytest.raises(TooLarge, match=MORE):
            await below.subscribe(channel("F"))
        await again.close()
        await third.close()


async def test_lost_clients_and_gateways_count_for_a_while_and_resume_within_their_share(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        secured(tmp_path, RIGHTS, channels_per_client=SHARE, channel_linger_s=1.0) as s,
        s.client("admin", s.server.endpoint) as admin,
        s.client("modest", s.server.endpoint) as modest,
    ):
        await admin.execute(TABLE)
        await opened(modest, "ABC")
        async with s.client("greedy") as lost:
            kept = await opened(lost, "ABC")
            for peer in list(s.server.children.peers.values()):
                if peer.role == "node":
                    peer.close("test", "the gateway comes back by another link")
            await wait_for(lambda: s.node.reattached, "it came back")
            await admin.publish("T", [{"K": 1, "A": 1.0, "B": 2.0, "C": 3.0}])
            for sub, answer in zip(kept, (1.0, 2.0, 3.0), strict=True):
                await wait_for(lambda sub=sub, answer=answer: sub.answer == answer, "it goes on")  # type: ignore[misc]
            with pytest.raises(TooLarge, match=MORE):
                await lost.subscribe(channel("D"))
        async with s.client("greedy", s.server.endpoint) as returned:
            await opened(returned, "A")
            with pytest.raises(TooLarge, match="closed less than 1 s ago"):
                await returned.subscribe(channel("D"))
            await wait_for(lambda: fullest_of(s, "greedy") == 1, "the others no longer count")
            await opened(returned, "DE")


def fullest_of(s: Secured, who: str) -> int:
    return len(s.server.attendance.shares._names(s.pairs[who].public))
