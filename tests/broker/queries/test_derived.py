"""Derived streams: what CREATE STREAM .. AS SELECT creates, and the stream behind a subscription to a join."""

from __future__ import annotations

import pytest

from hullcast.broker.queries.derived import HiddenJoin, bind_derived, is_hidden
from hullcast.broker.sql.create import CreateDerived, CreateTable, create_text, parse_statement
from hullcast.broker.sql.subscription import parse_subscription
from hullcast.broker.tables.schema import Column, ColumnType, Table, fold
from hullcast.network.wire.errors import SqlError, UnknownTable

JOIN = "FROM TRADES [ROWS 1000] t JOIN QUOTES [RANGE '10s'] q ON t.SYMBOL = q.SYMBOL"


def catalog() -> dict[str, Table]:
    made: dict[str, Table] = {}
    for sql in (
        "CREATE STREAM TRADES (TS TIMESTAMP, SYMBOL TEXT, PRICE REAL)",
        "CREATE STREAM QUOTES (TS TIMESTAMP, SYMBOL TEXT, BID REAL) WITH (retain = '1h')",
        "CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, RISK REAL, LISTED TIMESTAMP)",
    ):
        statement = parse_statement(sql)
        assert isinstance(statement, CreateTable)
        made[fold(statement.table.name)] = statement.table
    return made


def bound(sql: str) -> Table:
    statement = parse_statement(sql)
    assert isinstance(statement, CreateDerived)
    return bind_derived(statement, catalog())


def test_a_derived_stream_has_what_is_selected_then_where_it_comes_from_then_its_own_position() -> None:
    table = bound(f"CREATE STREAM HOT AS SELECT t.SYMBOL, t.PRICE AS P, q.BID {JOIN} WHERE t.PRICE > 100")
    assert [(column.name, column.type) for column in table.columns] == [
        ("SYMBOL", ColumnType.TEXT),
        ("P", ColumnType.REAL),
        ("BID", ColumnType.REAL),
        ("AT", ColumnType.INTEGER),
        ("POSITION", ColumnType.INTEGER),
    ]
    assert table.stream is not None
    assert table.stream.source == f"SELECT t.SYMBOL, t.PRICE AS P, q.BID {JOIN} WHERE t.PRICE > 100"
    assert table.time is None


def test_its_time_is_the_first_timestamp_that_is_never_null() -> None:
    table = bound("CREATE STREAM S AS SELECT s.LISTED, t.TS, t.PRICE FROM TRADES t JOIN STOCK s USING (SYMBOL)")
    assert table.time == 1
    assert table.columns[0] == Column("LISTED", ColumnType.TIMESTAMP)


@pytest.mark.parametrize(
    "select",
    [
        f"SELECT t.SYMBOL, t.TS, q.BID {JOIN} WHERE t.SYMBOL = 'I''BM' WITH (memory = 10000, retain = '10m')",
        f"SELECT t.TS {JOIN} WITH (retain_rows = 10);",
        "SELECT TS, PRICE FROM TRADES WHERE PRICE BETWEEN 1 AND 2",
        "SELECT TRADES.TS, RISK FROM TRADES JOIN STOCK USING (SYMBOL)",
    ],
)
def test_what_is_created_is_written_and_read_again(select: str) -> None:
    table = bound(f'CREATE STREAM IF NOT EXISTS "A b" AS {select}')
    assert parse_statement(create_text(table)) == CreateTable(table)


def test_terms_of_the_stream_and_of_the_join_stand_together() -> None:
    table = bound(f"CREATE STREAM X AS SELECT t.TS {JOIN} WITH (retain = '10m', memory = 5, retain_rows = 7)")
    assert table.stream is not None
    assert (table.stream.retain_rows, table.stream.retain_s) == (7, 600.0)
    assert table.stream.source == f"SELECT t.TS {JOIN} WITH (memory = 5)"


@pytest.mark.parametrize(
    ("select", "part"),
    [
        ("SELECT * FROM TRADES", "has its own POSITION"),
        ("SELECT SYMBOL AS at FROM TRADES", "has its own at"),
        ("SELECT SYMBOL FROM TRADES WHERE PRICE > ?", "no parameters"),
        ("SELECT SYMBOL FROM STOCK", "use CREATE VIEW for tables"),
        ("SELECT MIN(PRICE) FROM TRADES [ROWS 3]", "selects columns of a stream"),
        (f"SELECT t.SYMBOL, q.symbol {JOIN}", "two columns have this name"),
        ("VALUES (1)", "cannot be parsed"),
        (f"SELECT t.TS {JOIN} WITH (weight = 1)", "memory, retain_rows and retain"),
        (f"SELECT t.TS {JOIN} WITH (memory = 0)", "memory"),
        (f"SELECT t.TS {JOIN} WITH (retain_rows = 0)", "retain_rows is a whole number"),
        (f"SELECT t.PRICE {JOIN} WITH (retain = '1h')", "TIMESTAMP"),
        ("SELECT t.TS FROM TRADES [ROWS 5] t JOIN QUOTES [ROWS 5] q ON q.BID - t.PRICE BETWEEN 0 AND 1", "joined by ="),
    ],
)
def test_what_cannot_be_a_derived_stream_is_refused_with_the_reason(select: str, part: str) -> None:
    with pytest.raises(SqlError, match=part):
        bound(f"CREATE STREAM X AS {select}")


def test_a_source_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownTable, match="NOBODY"):
        bound("CREATE STREAM X AS SELECT A FROM NOBODY")


def hidden(sql: str) -> HiddenJoin:
    return HiddenJoin(parse_subscription(sql, catalog()))


def test_subscriptions_that_differ_in_constants_and_names_share_a_hidden_stream() -> None:
    one = hidden(f"SELECT q.BID, t.SYMBOL {JOIN} WHERE t.PRICE BETWEEN ? AND ?")
    other = hidden(
        "SELECT x.SYMBOL AS S, BID FROM TRADES [ROWS 1000] x JOIN QUOTES [RANGE '10s'] USING (SYMBOL) WHERE PRICE > 5"
    )
    third = hidden(f"SELECT q.BID, t.SYMBOL {JOIN} WHERE t.PRICE BETWEEN ? AND ? WITH (memory = 9)")
    assert one.name == other.name != third.name
    assert is_hidden(one.name)


def test_the_statement_of_a_hidden_stream_is_read_as_it_is_meant() -> None:
    for memory in ("", " WITH (memory = 9)"):
        made = hidden(f"SELECT q.BID, t.SYMBOL {JOIN} WHERE t.PRICE BETWEEN ? AND ?{memory}")
        assert parse_statement(made.statement_text) == made.statement


def test_a_subscription_to_a_join_becomes_one_to_its_hidden_stream() -> None:
    made = hidden(
        f"SELECT q.BID AS OFFER, t.SYMBOL {JOIN} WHERE t.PRICE BETWEEN ? AND ? AND q.BID > 3 AND t.SYMBOL = ?"
    )
    stream = bind_derived(made.statement, catalog())
    query = made.rewritten(stream)
    named = [column.name for column in stream.columns]
    assert query.columns == ("OFFER", "SYMBOL")
    assert query.shape.tables == (made.name,)
    assert [named[ref.column] for ref in query.shape.projection] == ["C2", "C0"]
    assert [named[ref.column] for ref in query.shape.ranges] == ["C1", "C2"]
    assert [named[ref.column] for ref in query.shape.partition] == ["C0"]
    predicate = query.bind((20, 60, "IBM"))
    assert (predicate.low[0, 0], predicate.high[0, 0], predicate.partition[0]) == (20, 60, ["IBM"])
    assert 3 < predicate.low[0, 1] < 3.0001
