"""What joins over streams keep in memory is counted and bounded, before they begin and while they grow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hullcast import Resync, StreamTuple
from hullcast.network.wire.errors import TooLarge
from tests.support.cluster import PATIENCE_S, cluster, server_of, wait_for
from tests.support.exposition import samples
from tests.support.stream_oracle import moment
from tests.system.test_derived_streams import complete

CREATES = (
    "CREATE STREAM R (TS TIMESTAMP, K INTEGER, A REAL)",
    "CREATE STREAM S (TS TIMESTAMP, K INTEGER, B REAL)",
    "CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL)",
)


def join(left: str, right: str = "ROWS 100", more: str = "") -> str:
    return f"SELECT r.A, s.B FROM R [{left}] r JOIN S [{right}] s ON r.K = s.K{more}"


async def test_a_join_without_room_is_refused_with_the_numbers_and_the_remedy(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, stream_memory_bytes=1 << 20) as made, made.client() as hc:
        for sql in CREATES:
            await hc.execute(sql)
        remedy = r"WITH \(memory = n\) or smaller windows, or ask the operator to raise stream_memory_bytes"
        with pytest.raises(TooLarge, match=f"one join over streams keeps .*{remedy}.*more than the limit of 524,288"):
            await hc.execute(f"CREATE STREAM J AS {join('ROWS 100000')}")
        with pytest.raises(TooLarge, match="one join over streams"):
            await hc.subscribe(join("ROWS 100000"))
        with pytest.raises(TooLarge, match="one join over streams"):
            await hc.subscribe(join("ROWS 100000", more=" WITH (memory = 100000)"))
        assert not (await hc.status())["operators"]["joins"]
        assert set(await hc.tables()) == {"R", "S", "T"}
        await hc.execute(f"CREATE STREAM J AS {join('ROWS 4000', 'ROWS 4000')}")
        await hc.execute(f"CREATE STREAM K AS {join('ROWS 4000', 'ROWS 4000')}")
        await hc.execute(f"CREATE STREAM IF NOT EXISTS K AS {join('ROWS 4000', 'ROWS 4000')}")
        with pytest.raises(TooLarge, match=f"all joins over streams keep, with .* for this one .*{remedy}"):
            async with hc.subscribe(join("ROWS 4000", "ROWS 4000")):
                pass
        with pytest.raises(TooLarge, match="all joins over streams keep"):
            await hc.execute(f"CREATE STREAM M AS {join('ROWS 4000', 'ROWS 4000')}")
        facts = (await hc.explain(join("ROWS 4000", "ROWS 4000")))["derived"]
        assert next(iter(facts.values()))["needed_bytes"] == 2 * 4096 * 8 * 7
        async with hc.subscribe(join("ROWS 100000", more=" WITH (memory = 100)")):
            await hc.execute("DROP STREAM K")
            await hc.execute("DROP STREAM J")
            async with hc.subscribe(join("ROWS 4000", "ROWS 4000")):
                pass


async def test_a_join_that_grows_too_large_fails_alone_says_so_and_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hullcast.broker.server.streams.AGAIN_S", 0.1)
    async with asyncio.timeout(PATIENCE_S), cluster(0, stream_memory_bytes=1 << 20) as made, made.client() as hc:
        for sql in CREATES:
            await hc.execute(sql)
        await hc.execute("CREATE STREAM L AS SELECT A, V FROM R JOIN T ON R.K = T.K")
        await hc.publish("T", {"K": 1, "V": 1.0})
        server = server_of(made)
        async with hc.subscribe(join("RANGE '10s'")) as heard:
            await hc.publish("S", {"TS": moment(0), "K": 1, "B": 1.0})
            for _ in range(20):
                await hc.publish("R", [{"TS": moment(1), "K": 2, "A": 0.0}] * 1000)
            await hc.progress("S", moment(1))
            assert isinstance(await anext(heard), Resync), "it kept too much"
            (known,) = (await hc.status())["operators"]["joins"]
            assert "bytes that one join over streams keeps" in known["failed"]
            await hc.publish("R", {"TS": moment(100), "K": 1, "A": 1.0})
            assert [row[:2] for row in await complete(hc, "L", 1)] == [(1.0, 1.0)]
            await hc.progress("S", moment(100))

            def goes_on() -> bool:
                (one,) = server.streams.status()["joins"]
                return one["opened"] and one["failed"] is None

            await wait_for(goes_on, "the join begins again")
            await hc.publish("S", {"TS": moment(100), "K": 1, "B": 2.0})
            events = [await anext(heard)]
            while not isinstance(events[-1], StreamTuple):
                assert isinstance(events[-1], Resync)
                events.append(await anext(heard))
            assert events[-1].row == (1.0, 2.0)
            await wait_for(lambda: server.streams.status()["joins"][0]["kept_bytes"] > 0, "what it keeps")
            status = server.streams.status()
            assert 0 < status["kept_bytes"] < status["memory_bytes"] == 1 << 20
            assert samples(server, "hullcast_stream_kept_bytes")[()] == status["kept_bytes"]
            assert status["processes"] == 1
