"""MIN over PARTSUPP, SUPPLIER, NATION and REGION, small: the view of the experiments, maintained from a real log."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from hullcast.broker.queries.reading import read_query
from hullcast.broker.tables.schema import fold
from hullcast.broker.warehouse.files.table_file import file_of, open_for_reading, pin
from hullcast.broker.warehouse.files.table_loader import Loader
from hullcast.broker.warehouse.files.view_loader import ViewLoader
from hullcast.broker.warehouse.messages import FileOf, FirstRows, Pinned, QueryLimits, Select
from hullcast.broker.warehouse.process.answering import Answering
from hullcast.network.wire.bodies import QueryAnswer, decode
from hullcast.network.wire.values import to_list
from tests.support.base_tables import BaseTables, Row, answer, ordered

CREATES = (
    "CREATE TABLE PARTSUPP (K INTEGER PRIMARY KEY, SUPPKEY INTEGER, COST REAL)",
    "CREATE TABLE SUPPLIER (K INTEGER PRIMARY KEY, NAME TEXT, NATIONKEY INTEGER)",
    "CREATE TABLE NATION (K INTEGER PRIMARY KEY, NAME TEXT, REGIONKEY INTEGER)",
    "CREATE TABLE REGION (K INTEGER PRIMARY KEY, NAME TEXT)",
)
CHEAPEST = """CREATE VIEW CHEAPEST AS SELECT n.NAME, MIN(ps.COST), COUNT(*)
    FROM PARTSUPP ps JOIN SUPPLIER s ON ps.SUPPKEY = s.K JOIN NATION n ON s.NATIONKEY = n.K
    JOIN REGION r ON n.REGIONKEY = r.K WHERE r.NAME = 'MIDDLE EAST' GROUP BY n.NAME WITH (response_time = '50ms')"""
PARTSUPPS, SUPPLIERS, NATIONS, REGIONS = 800, 40, 10, ("AFRICA", "MIDDLE EAST", "EUROPE")


def filled(path: Path, chance: random.Random) -> BaseTables:
    base = BaseTables(path, CREATES, segment_bytes=1 << 20)
    base.put("REGION", list(enumerate(REGIONS)))
    base.put("NATION", [(k, f"NATION {k}", k % len(REGIONS)) for k in range(NATIONS)])
    base.put("SUPPLIER", [supplier(chance, k) for k in range(SUPPLIERS)])
    base.put("PARTSUPP", [partsupp(chance, k) for k in range(PARTSUPPS)])
    return base


def supplier(chance: random.Random, key: int) -> Row:
    return key, f"Supplier {key}", chance.randrange(NATIONS)


def partsupp(chance: random.Random, key: int) -> Row:
    return key, chance.randrange(SUPPLIERS), chance.randrange(100, 1000) / 10


def test_the_cheapest_offer_of_each_nation(tmp_path: Path) -> None:
    chance = random.Random(7)
    base = filled(tmp_path / "data", chance)
    view, loader = base.view(CHEAPEST), ViewLoader(base.path)
    assert loader.build(view, base.seq).built
    for _ in range(40):
        base.put("PARTSUPP", [partsupp(chance, chance.randrange(PARTSUPPS)) for _ in range(20)])
        base.put("SUPPLIER", [supplier(chance, chance.randrange(SUPPLIERS))])
        cheapest = min(base.now["partsupp"].values(), key=lambda row: row[2])
        base.take("PARTSUPP", [cheapest[0], chance.randrange(PARTSUPPS)])
        tables = chance.sample(["PARTSUPP", "SUPPLIER", "NATION", "REGION"], chance.randrange(1, 5))
        done = loader.propagate(view, dict.fromkeys(tables, base.seq))
        assert not done.built
        states = loader.state(view)
        assert states is not None
        database = open_for_reading(base.path, [view])
        pin(database, [view], base.data.identity)
        rows = {table: base.as_of(table, state.current) for table, state in states.items()}
        assert ordered(database.execute("SELECT * FROM CHEAPEST")) == answer(view.definition, rows)
        database.close()
    assert not loader.build(view, base.seq).built
    loader.close()
    base.data.close()


def test_a_query_reads_a_view_together_with_tables(tmp_path: Path) -> None:
    """Answering runs the SELECT as over tables alone: it knows files, and which names are in them."""
    base = filled(tmp_path / "data", random.Random(3))
    view, nation = base.view(CHEAPEST), base.life_of("NATION")
    ViewLoader(base.path).build(view, base.seq)
    Loader(base.path).load(nation, base.seq)
    lives: Any = (nation, view)
    files: Any = tuple(FileOf(life, str(file_of(base.path, life)), base.seq, base.seq) for life in lives)
    sql = 'SELECT n.K, c."MIN(ps.COST)", (SELECT COUNT(*) FROM CHEAPEST) FROM NATION n JOIN CHEAPEST c USING (NAME)'
    plan = read_query(sql, {fold(life.table.name): life.table for life in lives}, attached=True)
    limits = QueryLimits(5, 1 << 30, 1000, 1 << 20)
    select = Select(sql, plan, {}, (), files, b"t", str(tmp_path / "spool"), limits)
    said: list[object] = []

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the files are there")

    Answering(base.path, base.data.identity).answer(select, said.append, lambda: None, never)
    pinned, first = said
    assert pinned == Pinned((base.seq, base.seq))
    assert isinstance(first, FirstRows)
    found = decode(first.body)
    assert isinstance(found, QueryAnswer)
    rows = list(zip(*(to_list(column) for column in found.columns), strict=True))
    now = {table: list(base.now[table].values()) for table in base.tables}
    cheapest = [tuple(value for _, value in row) for row in answer(view.definition, now)]
    assert len(cheapest) > 1
    assert ordered((f"NATION {key}", least) for key, least, _ in rows) == ordered(row[:2] for row in cheapest)
    assert {count for *_, count in rows} == {len(cheapest)}
    base.data.close()
