"""One-time SELECTs against a SQLite database built directly, and against strangers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.queries.mirror import Mirror
from hullcast.broker.queries.reading import Plan, read_query
from hullcast.broker.queries.sqlite_copy import SqliteCopy
from hullcast.broker.sql.text import MAXIMUM_CHARACTERS
from hullcast.broker.tables.feed import ChangeFeed
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.schema import Column, ColumnType, Table, fold
from hullcast.broker.tables.store import TableStore
from hullcast.broker.tables.values import LONGEST_TEXT_BYTES
from hullcast.network.wire.errors import BadParameter, HullcastError, SqlError, UnknownTable
from tests.support.rows import coded, coded_keys

TRADE = Table(
    "Trade",
    (
        Column("ID", ColumnType.INTEGER),
        Column("AT", ColumnType.TIMESTAMP),
        Column("WHO", ColumnType.TEXT),
        Column("PRICE", ColumnType.REAL),
    ),
    0,
)
QUOTE = Table("Quote", (Column("WHO", ColumnType.TEXT), Column("SEEN", ColumnType.TIMESTAMP)), 0)
FIRST, SECOND = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, 3, tzinfo=UTC)


class Engine:
    """Stores and a mirror, as the engine holds them."""

    def __init__(self, **limits: int) -> None:
        self.interner = Interner()
        self.stores = {"trade": TableStore(TRADE), "quote": TableStore(QUOTE)}
        self.feed = ChangeFeed()
        self.mirror = Mirror(self.stores, self.interner, self.feed, **limits)

    def put(self, table: Table, rows: object) -> None:
        store = self.stores[table.name.lower()]
        self.feed.append(store, 0, store.apply(coded(table, rows, self.interner)))

    def drop(self, table: Table, keys: object) -> None:
        store = self.stores[table.name.lower()]
        self.feed.append(store, 0, store.remove(coded_keys(table, keys, self.interner)))


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    engine.put(TRADE, [{"ID": 1, "AT": FIRST, "WHO": "a", "PRICE": 1.5}, {"ID": 2, "AT": SECOND}, {"ID": 3}])
    engine.put(QUOTE, {"WHO": ["a", "b"], "SEEN": [SECOND, None]})
    yield engine
    engine.mirror.close()


def test_rows_have_names_and_python_values(engine: Engine) -> None:
    rows: list[Any] = engine.mirror.query("SELECT *, count(*) OVER () AS n, 1 + 1 FROM trade ORDER BY id")
    assert rows[0] == (1, FIRST, "a", 1.5, 3, 2)
    assert rows[0]._fields == ("ID", "AT", "WHO", "PRICE", "n", "_5")
    assert rows[2] == (3, None, None, None, 3, 2)
    assert isinstance(rows[0].ID, int)


@pytest.mark.parametrize(
    ("sql", "parameters", "expected"),
    [
        ("SELECT id FROM TRADE WHERE at >= '2026-01-02T00:00:00Z'", (), [(2,)]),
        ("SELECT id FROM trade WHERE '2026-01-01' = at", (), [(1,)]),
        ("SELECT id FROM trade WHERE at IN ('2026-01-01T01:00+01:00')", (), [(1,)]),
        ("SELECT id FROM trade WHERE at BETWEEN '20260101' AND ?", ("2026-01-01T12",), [(1,)]),
        ("SELECT id FROM trade WHERE at > :t", {"t": datetime(2026, 1, 1, 1)}, [(2,)]),
        ("SELECT id FROM trade WHERE at = ?", (np.datetime64("2026-01-01"),), [(1,)]),
        ("SELECT id FROM trade WHERE at = ?", (date(2026, 1, 1),), [(1,)]),
        ("SELECT id FROM trade WHERE at = ?", (None,), []),
        ("SELECT id FROM trade WHERE (id, at) = (1, '2026-01-01')", (), [(1,)]),
        ("SELECT id FROM trade WHERE CASE at WHEN '2026-01-01' THEN 1 END", (), [(1,)]),
        ("SELECT max(at), min(t.at), max(id) FROM trade t", (), [(SECOND, FIRST, 3)]),
        ("SELECT x FROM (SELECT at AS x FROM trade) WHERE x < '2026-01-01T12:00'", (), [(FIRST,)]),
        (
            "WITH w(i, x) AS (SELECT id, at FROM trade) SELECT x FROM w WHERE x > '2026-01-02'",
            (),
            [(SECOND,)],
        ),
        (
            "SELECT seen FROM quote WHERE seen > '2026-01-01' UNION SELECT seen FROM quote",
            (),
            [(None,), (SECOND,)],
        ),
        ("SELECT * FROM trade JOIN quote USING (who)", (), [(1, FIRST, "a", 1.5, SECOND)]),
        ("SELECT * FROM trade NATURAL JOIN quote", (), [(1, FIRST, "a", 1.5, SECOND)]),
        (
            "SELECT (SELECT max(at) FROM trade WHERE at < q.seen) FROM quote q ORDER BY who",
            (),
            [(FIRST,), (None,)],
        ),
        ("SELECT id FROM trade WHERE price = ? AND who = ?", (np.float32(1.5), "a"), [(1,)]),
        ("SELECT strftime('%d', at) FROM trade WHERE id = ?", (np.int64(2),), [("02",)]),
        ("SELECT 1", (), [(1,)]),
    ],
)
def test_a_query_is_answered_as_written_here(
    engine: Engine, sql: str, parameters: Any, expected: list[tuple[object, ...]]
) -> None:
    assert engine.mirror.query(sql, parameters) == expected


@pytest.mark.parametrize(
    ("sql", "parameters", "error"),
    [
        ("SELECT * FROM nope", (), UnknownTable),
        ("SELECT * FROM other.trade", (), UnknownTable),
        ("SELECT * FROM sqlite_master", (), UnknownTable),
        ("SELECT * FROM pragma_database_list", (), UnknownTable),
        ("SELECT * FROM pragma_table_info('trade')", (), SqlError),
        ("SELECT nope FROM trade", (), SqlError),
        ("SELECT 1; SELECT 2", (), SqlError),
        ("DELETE FROM trade", (), SqlError),
        ("WITH w AS (SELECT 1) DELETE FROM trade", (), SqlError),
        ("CREATE TABLE x AS SELECT 1", (), SqlError),
        ("ATTACH 'x' AS y", (), SqlError),
        ("PRAGMA query_only = OFF", (), SqlError),
        ("SELECT load_extension('x')", (), SqlError),
        ("SELECT zeroblob(1000000000)", (), SqlError),
        ("SELECT FROM WHERE", (), SqlError),
        ("", (), SqlError),
        ("SELECT '\0'", (), SqlError),
        ("SELECT '\ud800'", (), SqlError),
        ("SELECT " + "(" * 1500 + "1" + ")" * 1500, (), SqlError),
        ("SELECT '" + "x" * MAXIMUM_CHARACTERS + "'", (), SqlError),
        ("SELECT id FROM trade WHERE at > 5", (), SqlError),
        ("SELECT id FROM trade WHERE at > 'yesterday'", (), SqlError),
        ("SELECT id FROM trade WHERE at > ?", ("yesterday",), BadParameter),
        ("SELECT ?", (), BadParameter),
        ("SELECT ?", (1, 2), BadParameter),
        ("SELECT ?", (2**70,), BadParameter),
        ("SELECT ?", ("\ud800",), BadParameter),
        ("SELECT ?", ([1],), BadParameter),
        ("SELECT ?", (float("nan"),), BadParameter),
        ("SELECT ?", "a", BadParameter),
    ],
)
def test_what_is_no_read_only_select_is_refused_and_harms_nothing(
    engine: Engine, sql: str, parameters: Any, error: type[HullcastError]
) -> None:
    with pytest.raises(error):
        engine.mirror.query(sql, parameters)
    engine.put(TRADE, {"ID": 4})
    assert engine.mirror.query("SELECT count(*) FROM trade") == [(4,)]


def test_the_guard_holds_even_if_the_parser_were_fooled(engine: Engine) -> None:
    engine.mirror.query("SELECT * FROM trade")
    for sql in (
        "DELETE FROM trade",
        "ATTACH ':memory:' AS y",
        "PRAGMA query_only = OFF",
        "SELECT * FROM sqlite_master",
    ):
        with pytest.raises(SqlError, match=r"not authorized|prohibited"):
            fooled(engine, sql)


def fooled(engine: Engine, sql: str, *tables: str) -> Any:
    """What SQLite does with a statement when the parser found just these tables in it."""
    return engine.mirror._sqlite.read(Plan(sql, sql, tables, frozenset({"sqlite_master"}), (), frozenset()), ())


def test_the_guard_lets_nothing_be_read_but_what_was_found_in_the_statement(engine: Engine) -> None:
    engine.mirror.query("SELECT * FROM trade, quote")  # both are copied now
    for sql in (
        "SELECT ('a', 1) IN quote",
        "SELECT count(*) FROM quote",
        "SELECT EXISTS (SELECT 1 FROM main.quote)",
        "SELECT id FROM trade WHERE who IN (SELECT who FROM quote)",
        "SELECT 1 IN json_each('[1]')",
        "WITH sqlite_master AS (SELECT 1 AS sql) SELECT sql FROM main.sqlite_master",
    ):
        with pytest.raises(SqlError, match=r"not authorized|prohibited|vtable constructor failed"):
            fooled(engine, sql, "trade")
    assert fooled(engine, "SELECT count(*) FROM TRADE", "trade") == [(3,)]


@pytest.mark.parametrize(
    "name", ["quote", "main.quote", '"quote"', "[quote]", "`quote`", "'quote'", "Quote", "nowhere"]
)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ('b', NULL) IN {}",
        "SELECT ('b', NULL) NOT IN {} FROM trade",
        "SELECT 1 WHERE ('b', 1) IN {}",
        "SELECT count(*) FILTER (WHERE (who, at) IN {}) FROM trade",
        "SELECT * FROM trade ORDER BY (who, at) IN {}",
        "WITH quote AS (SELECT 1) SELECT 1 IN {}",
        "SELECT (WITH quote AS (SELECT 1) SELECT 2), ('b', 1) IN {}",
    ],
)
def test_a_table_behind_in_is_refused_with_what_to_write_instead(engine: Engine, sql: str, name: str) -> None:
    engine.mirror.query("SELECT * FROM quote")  # somebody who may had it copied
    with pytest.raises(SqlError, match=r"IN is followed by a name; write IN \(SELECT \.\. FROM"):
        engine.mirror.query(sql.format(name))


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("WITH x AS (SELECT 1 UNION ALL SELECT 2) SELECT count(*) FROM x", [(2,)]),
        ("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT 1 FROM c LIMIT 3) SELECT count(*) FROM C d", [(3,)]),
        ("WITH quote AS (SELECT 1) SELECT count(*) FROM quote", [(1,)]),
        ("SELECT count(*) FROM (SELECT 1 FROM trade) s, (VALUES (1), (2)) v", [(6,)]),
        ("SELECT id FROM trade WHERE who IN (SELECT who FROM quote)", [(1,)]),
        ("SELECT max(row_number) FROM (SELECT row_number() OVER () AS row_number FROM Trade)", [(3,)]),
        ("SELECT count(*) FROM trade t NATURAL JOIN main.QUOTE", [(1,)]),
    ],
)
def test_names_of_its_own_hinder_no_statement(engine: Engine, sql: str, rows: list[tuple[int]]) -> None:
    assert engine.mirror.query(sql) == rows


def test_columns_that_double_along_a_chain_are_refused_quickly(engine: Engine) -> None:
    links = [f"c{i} AS (SELECT * FROM c{i - 1} a, c{i - 1} b)" for i in range(1, 60)]
    with pytest.raises(SqlError):
        engine.mirror.query(f"WITH c0 AS (SELECT * FROM trade), {', '.join(links)} SELECT * FROM c59")


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT cost FROM trade", "no such column: cost; columns: ID, "),
        ("SELECT MEDIAN(id) FROM trade", "no such function: MEDIAN; queries have the functions of SQLite"),
        ("SELECT id FROM trade WHERE at > NOW()", r"write datetime\('now', '-1 hour'\)"),
        ("SELECT id FROM trade WHERE at > NOW() - INTERVAL '1 hour'", r"write datetime\('now', '-1 hour'\)"),
        ("SELECT id FROM trade WHERE at > TIMESTAMP '2024-05-01'", "as text alone: '2024-05-01 12:30:00'"),
        ("SHOW TABLES", "use engine.tables"),
    ],
)
def test_what_sqlite_lacks_is_refused_with_what_to_write(engine: Engine, sql: str, says: str) -> None:
    with pytest.raises(SqlError, match=says):
        engine.mirror.query(sql, ())


def test_a_wrong_number_of_values_is_said_in_plain_words(engine: Engine) -> None:
    with pytest.raises(BadParameter, match=r"^the query has 2 `\?` and got 1 values; give one value for each `\?`$"):
        engine.mirror.query("SELECT ? + ?", (1,))


def test_work_and_answers_are_bounded() -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT {} FROM c"
    engine = Engine(step_limit=100_000, row_limit=10)
    with pytest.raises(SqlError, match="stopped after 100,000 steps"):
        engine.mirror.query(endless.format("count(*)"))
    with pytest.raises(SqlError, match="more than 10 rows"):
        engine.mirror.query(endless.format("x"))
    assert len(engine.mirror.query(endless.format("x") + " LIMIT 10")) == 10
    engine.mirror.close()


def test_a_table_dropped_and_created_anew_is_copied_anew(engine: Engine) -> None:
    assert engine.mirror.query("SELECT count(*) FROM quote") == [(2,)]
    del engine.stores["quote"]
    with pytest.raises(UnknownTable):
        engine.mirror.query("SELECT * FROM quote")
    other = Table("QUOTE", (Column("N", ColumnType.INTEGER),), 0)
    engine.stores["quote"] = TableStore(other)
    engine.put(other, {"N": [7]})
    assert engine.mirror.query("SELECT * FROM quote") == [(7,)]


def test_columns_may_be_named_as_sqlite_names_its_rowid() -> None:
    names = ["rowid", "_rowid_", "oid", 'a "quoted" one']
    for count in range(1, 5):
        table = Table("T", tuple(Column(name, ColumnType.INTEGER) for name in names[:count]), 0)
        interner, store = Interner(), TableStore(table)
        feed = ChangeFeed()
        mirror = Mirror({"t": store}, interner, feed)
        for key in (5, 6):
            feed.append(store, 0, store.apply(coded(table, dict.fromkeys(names[:count], key), interner)))
            feed.append(store, 0, store.remove(coded_keys(table, key - 1, interner)))
            assert mirror.query("SELECT * FROM t") == [(key,) * count]
        mirror.close()


@pytest.mark.parametrize("names", [("K", "V"), ("rowid", "_rowid_", "oid")])
def test_a_key_that_moved_to_another_slot_may_come_before_what_took_its_place(names: tuple[str, ...]) -> None:
    """Rows come some at a time: key 1 stands in slot 0 already when slot 7, where it was, says what it holds now."""
    copy = SqliteCopy()
    copy.create(Table("T", tuple(Column(name, ColumnType.INTEGER) for name in names), 0))

    def put(slot: int, key: int | None) -> None:
        cells = [np.array([] if key is None else [key], np.float64)] * len(names)
        copy.put("T", np.array([slot]), np.array([key is not None]), cells)

    def keys() -> list[int]:
        plan = read_query("SELECT * FROM T", {fold(table.name): table for table in copy.tables.values()})
        return sorted(row[0] for row in copy.read(plan, ()))

    for after in (2, None):
        put(7, 1)
        put(0, 1)
        put(7, after)
        assert keys() == [1] + ([2] if after else [])
    put(7, 2)
    put(0, 2)
    put(7, 1)  # they changed places
    assert keys() == [1, 2]
    copy.close()


def test_a_row_of_many_long_texts_can_be_read_and_sorted() -> None:
    table = Table("T", tuple(Column(f"C{i}", ColumnType.TEXT) for i in range(12)), 0)
    interner, store = Interner(), TableStore(table)
    longest = "x" * LONGEST_TEXT_BYTES
    store.apply(coded(table, [dict.fromkeys((c.name for c in table.columns), longest)], interner))
    mirror = Mirror({"t": store}, interner, ChangeFeed())
    assert mirror.query("SELECT a.* FROM t a JOIN t b USING (c0) ORDER BY b.c1") == [(longest,) * 12]
    with pytest.raises(SqlError, match="too big"):
        mirror.query("SELECT " + " || ".join(["c0"] * 20) + " FROM t")
    mirror.close()


grid = st.integers(0, 4)
steps = st.one_of(
    st.tuples(st.just("put"), st.lists(st.tuples(grid, st.none() | grid, st.none() | grid), max_size=4)),
    st.tuples(st.just("drop"), st.lists(grid, max_size=3)),
    st.tuples(
        st.just("ask"),
        st.sampled_from(["", "WHERE price > 1", "WHERE at >= '2026-01-03'", "WHERE who = 'w1'"]),
    ),
)


@given(history=st.lists(steps, max_size=12))
def test_the_mirror_agrees_with_a_database_built_directly(history: list[tuple[str, Any]]) -> None:
    engine = Engine()
    direct = sqlite3.connect(":memory:")
    direct.execute("CREATE TABLE trade (id INTEGER PRIMARY KEY, at TEXT, who TEXT, price REAL)")
    for kind, argument in [*history, ("ask", "")]:
        if kind == "put":
            for key, day, price in argument:
                who = None if price is None else f"w{price}"
                at = None if day is None else f"2026-01-0{day + 1}"
                engine.put(TRADE, {"ID": key, "AT": at, "WHO": who, "PRICE": price})
                direct.execute("INSERT OR REPLACE INTO trade VALUES (?, ?, ?, ?)", (key, at, who, price))
        elif kind == "drop":
            engine.drop(TRADE, argument)
            direct.executemany("DELETE FROM trade WHERE id = ?", [(key,) for key in argument])
        else:
            answer = [
                (key, at and at.date().isoformat(), who, price)
                for key, at, who, price in engine.mirror.query(f"SELECT * FROM trade {argument} ORDER BY id")
            ]
            assert answer == direct.execute(f"SELECT * FROM trade {argument} ORDER BY id").fetchall()
    engine.mirror.close()
    direct.close()


@pytest.mark.parametrize(
    "sql",
    [
        "WITH sqlite_master AS (SELECT 1 AS sql) SELECT sql FROM main.sqlite_master",
        "WITH sqlite_master AS (SELECT 1 AS sql) SELECT sql FROM sqlite_schema",
        "SELECT sql FROM main.sqlite_master",
        "WITH quote AS (SELECT 1 AS who) SELECT who FROM main.sqlite_master",
    ],
)
def test_the_schema_of_all_tables_is_nobodys_to_read(engine: Engine, sql: str) -> None:
    engine.mirror.query("SELECT * FROM quote")
    with pytest.raises((SqlError, UnknownTable)):
        engine.mirror.query(sql)


def test_a_statement_that_breaks_the_parser_is_refused_as_any_other(engine: Engine) -> None:
    with pytest.raises(SqlError, match="cannot be parsed"):
        engine.mirror.query("SELECT * FROM trade LATERAL . UNION SELECT * FROM trade")


def test_a_text_among_instants_is_given_as_it_is(engine: Engine) -> None:
    rows = engine.mirror.query("SELECT at FROM trade WHERE id = 1 UNION ALL SELECT 'total'")
    assert rows == [(FIRST,), ("total",)]


@pytest.mark.parametrize("expression", ["CAST('2024-01-31' AS DATE)", "CAST('7 up' AS DATETIME)", "+WHO = 10"])
def test_a_statement_with_instants_means_what_it_means_without(engine: Engine, expression: str) -> None:
    engine.put(TRADE, [{"ID": 9, "AT": FIRST, "WHO": "10"}])
    plain = engine.mirror.query(f"SELECT {expression} FROM trade WHERE ID = 9")
    assert engine.mirror.query(f"SELECT {expression} FROM trade WHERE ID = 9 AND AT > '1970-01-01'") == plain


@pytest.mark.parametrize(
    ("condition", "parameters"),
    [
        ("at = ? AND id = ?", (FIRST, 1)),
        ("id = ?2 AND at = ?1", (FIRST, 1)),
        ("id = :id AND (at) >= :at AND :at <= at", {"id": 1, "at": FIRST}),
        ("id = @id AND at BETWEEN $at AND '2026-01-01T00:00:00+00:00'", {"id": 1, "at": FIRST}),
        ("(id, at) = (?, ?) AND who <> 'it''s ? :x'", (1, FIRST)),
        ("CASE at WHEN ? THEN 1 END = 1", (FIRST,)),
        ("at IN ('2026-01-01', ?) AND id = 1 -- a ? in a comment", (SECOND,)),
    ],
)
def test_parameters_and_literals_beside_instants_are_changed_where_they_stand(
    engine: Engine, condition: str, parameters: Any
) -> None:
    assert engine.mirror.query(f"SELECT id FROM trade WHERE {condition}", parameters) == [(1,)]
