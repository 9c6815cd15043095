"""Views of a real server: right through restarts and kills, ready in time, and refused where they cannot be."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hullcast.network.answers.events import Change
from hullcast.network.wire.errors import (
    DuplicateView,
    PromiseTooShort,
    SqlError,
    TableInView,
    UnknownTable,
    UnknownView,
    UsageError,
)
from tests.support.cluster import PATIENCE_S, PATIENT, cluster, wait_for
from tests.system.test_warehouse import warehouse_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from hullcast.clients.sdk.client import Client
    from hullcast.clients.sdk.subscription import Subscription

TABLES = (
    "CREATE TABLE PARTSUPP (ID INTEGER PRIMARY KEY, SUPPLIER INTEGER, COST REAL)",
    "CREATE TABLE SUPPLIER (ID INTEGER PRIMARY KEY, NATION TEXT, BALANCE REAL)",
    "CREATE TABLE NATION (NAME TEXT PRIMARY KEY, REGION TEXT)",
)
SELECT = (
    "SELECT n.NAME, MIN(ps.COST) AS CHEAPEST, COUNT(*) AS OFFERS, SUM(ps.COST) AS TOTAL FROM PARTSUPP ps "
    "JOIN SUPPLIER s ON ps.SUPPLIER = s.ID JOIN NATION n ON s.NATION = n.NAME WHERE n.REGION = 'EAST' GROUP BY n.NAME"
)
CREATE = f"CREATE VIEW CHEAPEST AS {SELECT} WITH (response_time = '2s')"


@asynccontextmanager
async def serving(data: Path | None, **settings: Any) -> AsyncIterator[Client]:
    async with asyncio.timeout(PATIENCE_S), cluster(0, data, link=PATIENT, **settings) as made, made.client() as hc:
        yield hc


async def fill(hc: Client, draw: random.Random) -> None:
    for create in TABLES:
        await hc.execute(create)
    await hc.publish("NATION", [{"NAME": name, "REGION": draw.choice(("EAST", "WEST"))} for name in "ABCD"])
    await hc.publish("SUPPLIER", [supplier(draw, number) for number in range(8)])
    await hc.publish("PARTSUPP", [offer(draw, number) for number in range(60)])


def supplier(draw: random.Random, number: int) -> dict[str, Any]:
    return {"ID": number, "NATION": draw.choice("ABCDX"), "BALANCE": float(draw.randint(-3, 3))}


def offer(draw: random.Random, number: int) -> dict[str, Any]:
    return {"ID": number, "SUPPLIER": draw.choice([None, *range(9)]), "COST": draw.choice([None, 0.1, 0.2, 1.0, 7.5])}


async def change(hc: Client, draw: random.Random) -> None:
    """Something happens to one of the tables."""
    match draw.randrange(8):
        case 0:
            await hc.publish("NATION", [{"NAME": draw.choice("ABCD"), "REGION": draw.choice(("EAST", "WEST", None))}])
        case 1:
            await hc.publish("SUPPLIER", [supplier(draw, draw.randrange(9))])
        case 2:
            await hc.delete("SUPPLIER", [draw.randrange(9)])
        case 3:
            await hc.delete("PARTSUPP", [draw.randrange(80) for _ in range(draw.randint(1, 9))])
        case _:
            await hc.publish("PARTSUPP", [offer(draw, draw.randrange(80)) for _ in range(draw.randint(1, 20))])


async def same(hc: Client) -> None:
    """The view is its SELECT over the tables, computed by SQLite at the same moment."""
    rows = await hc.query("SELECT * FROM CHEAPEST ORDER BY 1")
    wanted = await hc.query(f"{SELECT} ORDER BY 1")
    assert rows == [pytest.approx(row, rel=1e-12) for row in wanted]
    both = await hc.query(f"SELECT (SELECT COUNT(*) FROM CHEAPEST), (SELECT COUNT(*) FROM ({SELECT}))")
    assert both[0][0] == both[0][1]


@pytest.mark.parametrize("kept", [True, False], ids=["on disk", "in memory"])
async def test_a_view_is_its_select_after_any_changes(tmp_path: Path, kept: bool) -> None:
    draw = random.Random(7)
    async with serving(tmp_path / "data" if kept else None) as hc:
        await fill(hc, draw)
        await hc.execute(CREATE)
        await same(hc)
        for _ in range(40):
            for _ in range(draw.randint(1, 4)):
                await change(hc, draw)
            await same(hc)
        rows = await hc.query("SELECT * FROM CHEAPEST")
        assert rows.worth is not None
        worth = rows.worth.tables["CHEAPEST"]
        assert worth.promise_s == 2.0
        assert worth.refresh_s is not None
        assert worth.refresh_s < 2.0
        assert worth.unapplied == 0
        facts: dict[str, int] = {}
        while facts.get("within", 0) < 83:  # reported twice a second
            await asyncio.sleep(0.05)
            facts = (await hc.status())["queries"]["views"].get("CHEAPEST", {})
        assert (facts["within"], facts["beyond"]) == (83, 0)


async def test_views_survive_restarts_with_and_without_a_checkpoint(tmp_path: Path) -> None:
    draw = random.Random(8)
    for attempt in range(3):
        async with serving(tmp_path / "data") as hc:
            if attempt == 0:
                await fill(hc, draw)
                await hc.execute(CREATE)
            assert list(await hc.views()) == ["CHEAPEST"]
            for _ in range(5):
                await change(hc, draw)
            await same(hc)
            await change(hc, draw)


async def test_what_is_killed_under_way_loses_and_doubles_nothing(tmp_path: Path) -> None:
    draw = random.Random(9)
    async with serving(tmp_path / "data") as hc:
        await fill(hc, draw)
        await hc.execute(CREATE)
        for turn in range(6):
            for _ in range(4):
                await change(hc, draw)
            process = warehouse_process()
            victims = process.children() if turn % 3 else [process]
            asked = asyncio.create_task(hc.query("SELECT COUNT(*) FROM CHEAPEST"))
            await asyncio.sleep(draw.random() * 0.01)
            for victim in victims:
                victim.kill()
            await asyncio.gather(asked, return_exceptions=True)
            for attempt in range(10):  # one that is dead already may be asked before that is noticed
                try:
                    await same(hc)
                    break
                except SqlError as error:
                    if attempt == 9 or "its process was killed" not in str(error):
                        raise


async def test_changes_are_propagated_before_anybody_asks_when_they_would_take_too_long(tmp_path: Path) -> None:
    draw = random.Random(10)
    async with serving(tmp_path / "data") as hc:
        await fill(hc, draw)
        create = CREATE.replace("'2s'", "'100ms'")
        await hc.execute(create)

        async def propagations() -> int:
            views = (await hc.status())["queries"]["views"]
            return int(views["CHEAPEST"]["propagations"]) if views else 0

        assert await propagations() == 0
        while not await propagations():
            await hc.publish("PARTSUPP", [offer(draw, number) for number in range(2000)])
        await same(hc)


async def test_a_promise_that_cannot_be_kept_is_refused_with_the_shortest_one(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as hc:
        await fill(hc, random.Random(11))
        with pytest.raises(PromiseTooShort, match="the shortest response time it can promise is") as caught:
            await hc.execute(CREATE.replace("'2s'", "'0.1ms'"))
        assert caught.value.shortest_s > 1e-4
        files = tmp_path / "data" / "warehouse"
        await wait_for(lambda: not list(files.glob("cheapest-*.sqlite")), "no file is left of it")
        assert await hc.views() == {}
        with pytest.raises(UnknownTable):
            await hc.query("SELECT * FROM CHEAPEST")
        await hc.execute(CREATE)
        await same(hc)


async def test_statements_about_views_are_checked(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as hc:
        await fill(hc, random.Random(12))
        await hc.execute(CREATE)
        await hc.execute(CREATE.replace("CREATE VIEW", "CREATE VIEW IF NOT EXISTS"))
        with pytest.raises(DuplicateView, match="view CHEAPEST already exists"):
            await hc.execute(CREATE)
        with pytest.raises(DuplicateView, match="another definition"):
            await hc.execute(
                "CREATE VIEW IF NOT EXISTS CHEAPEST AS SELECT NAME FROM NATION WITH (response_time = '1s')"
            )
        with pytest.raises(DuplicateView, match="table NATION already exists"):
            await hc.execute("CREATE VIEW NATION AS SELECT ID FROM SUPPLIER WITH (response_time = '1s')")
        with pytest.raises(DuplicateView, match="view CHEAPEST already exists"):
            await hc.execute("CREATE TABLE CHEAPEST (ID INTEGER PRIMARY KEY)")
        with pytest.raises(TableInView, match="table SUPPLIER is read by view CHEAPEST; DROP VIEW CHEAPEST first"):
            await hc.execute("DROP TABLE SUPPLIER")
        with pytest.raises(SqlError, match="a view cannot read another view"):
            await hc.execute("CREATE VIEW V AS SELECT NAME FROM CHEAPEST WITH (response_time = '1s')")
        with pytest.raises(SqlError, match="it is a view"):
            async with hc.subscribe("SELECT NAME FROM CHEAPEST"):
                pass
        with pytest.raises(UsageError, match="CHEAPEST is a view, not a table: name a table that it reads"):
            await hc.publish("CHEAPEST", [{"NAME": "A"}])
        with pytest.raises(UsageError, match="CHEAPEST is a view, not a table"):
            async for _ in hc.changes("CHEAPEST"):
                pass
        explained = await hc.explain("SELECT * FROM CHEAPEST")
        assert explained["views"]["CHEAPEST"]["tables"] == ["PARTSUPP", "SUPPLIER", "NATION"]
        await hc.execute("DROP VIEW CHEAPEST")
        with pytest.raises(UnknownView):
            await hc.execute("DROP VIEW CHEAPEST")
        await hc.execute("DROP VIEW IF EXISTS CHEAPEST")
        await hc.execute("DROP TABLE SUPPLIER")
        files = tmp_path / "data" / "warehouse"
        await wait_for(lambda: not list(files.glob("cheapest-*.sqlite")), "the file of a view is removed with it")


async def result_of(subscription: Subscription) -> Any:
    """The rows of the next event."""
    event = await anext(subscription)
    assert isinstance(event, Change)
    return event.answer


async def test_a_view_is_delivered_up_to_date_when_its_condition_changes(tmp_path: Path) -> None:
    draw = random.Random(13)
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(1, tmp_path / "data", link=PATIENT) as made,
        made.client() as hc,
        made.client() as other,
    ):
        await fill(hc, draw)
        await hc.execute(CREATE)
        lowest = "SELECT MIN(BALANCE) FROM SUPPLIER"
        async with (
            hc.subscribe("SELECT * FROM CHEAPEST ORDER BY 1", when=lowest) as sub,
            other.subscribe("SELECT * FROM CHEAPEST ORDER BY 1", when=lowest) as same_one,
        ):
            assert sub.answer == same_one.answer == await hc.query(f"{SELECT} ORDER BY 1")
            for step in range(5):
                await change(hc, draw)
                fired = await hc.publish("SUPPLIER", [{"ID": 7, "NATION": "A", "BALANCE": -10.0 - step}])
                wanted = await hc.query(f"{SELECT} ORDER BY 1")
                for one in (sub, same_one):
                    event = await result_of(one)
                    while event.worth.seq < fired.seq:  # changes before it may have fired, too
                        event = await result_of(one)
                    assert event == [pytest.approx(row, rel=1e-12) for row in wanted]
                    assert event.worth.tables["CHEAPEST"].promise_s == 2.0
