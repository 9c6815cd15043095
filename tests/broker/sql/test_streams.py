"""CREATE STREAM, windows and joins over streams: what is read, and what is refused with which hint."""

from __future__ import annotations

import pytest

from hullcast import Engine
from hullcast.broker.sql.create import (
    AdvanceStream,
    CreateTable,
    DropTable,
    advance_text,
    create_text,
    parse_statement,
)
from hullcast.broker.sql.query import JoinOn, Ref, Window
from hullcast.broker.sql.subscription import ParsedQuery, names_in, parse_subscription
from hullcast.broker.sql.text import MAXIMUM_CHARACTERS
from hullcast.broker.tables.schema import POSITION, Column, ColumnType, StreamTerms, Table, fold
from hullcast.network.answers.kinds import KINDS
from hullcast.network.wire.errors import DuplicateTable, SqlError, UnknownTable

TRADES = "CREATE STREAM TRADES (TS TIMESTAMP, SYMBOL TEXT, PRICE REAL)"


def declared(sql: str) -> Table:
    statement = parse_statement(sql)
    assert isinstance(statement, CreateTable)
    return statement.table


CATALOG = {
    fold(table.name): table
    for table in map(
        declared,
        [
            TRADES,
            "CREATE STREAM QUOTES (SYMBOL TEXT, TS TIMESTAMP, BID REAL) WITH (retain_rows = 500, retain = '1m')",
            "CREATE STREAM CLICKS (PAGE TEXT)",
            "CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, RISK REAL)",
        ],
    )
}


def parse(sql: str) -> ParsedQuery:
    return parse_subscription(sql, CATALOG)


def test_a_stream_is_a_table_whose_last_column_and_key_is_the_position() -> None:
    columns = (
        Column("TS", ColumnType.TIMESTAMP, True),
        Column("SYMBOL", ColumnType.TEXT),
        Column("PRICE", ColumnType.REAL),
        POSITION,
    )
    table = Table("TRADES", columns, 3, stream=StreamTerms())
    assert parse_statement(TRADES) == CreateTable(table)
    assert parse_statement(TRADES.replace("STREAM", "stream if not exists")) == CreateTable(table, if_missing=True)
    assert table.time == 0
    assert table.stream is not None
    assert table.stream.rows == 1_000_000


def test_a_stream_says_how_much_of_it_is_kept() -> None:
    quotes = CATALOG["quotes"]
    assert quotes.stream == StreamTerms(500, 60.0)
    assert quotes.time == 1
    assert CATALOG["clicks"].time is None


@pytest.mark.parametrize("table", CATALOG.values(), ids=CATALOG)
def test_a_stream_is_written_as_it_was_read(table: Table) -> None:
    assert declared(create_text(table)) == table


def test_a_stream_of_many_columns_is_written_briefly_and_read_again() -> None:
    columns = ",".join(f"c{i:03} TEXT" for i in range(200))
    table = declared(f"CREATE STREAM s({columns},at DATETIME)WITH(retain='1h')")
    assert len(create_text(table)) <= MAXIMUM_CHARACTERS
    assert declared(create_text(table)) == table


def test_a_stream_is_dropped_as_a_stream() -> None:
    assert parse_statement("DROP STREAM t") == DropTable("t", word="stream")
    assert parse_statement("drop stream if exists t") == DropTable("t", if_there=True, word="stream")


def test_the_time_of_a_stream_is_advanced_by_a_statement() -> None:
    statement = AdvanceStream("my trades", 1_714_566_600_000_123.0)
    assert parse_statement(advance_text(statement.name, statement.time)) == statement
    assert parse_statement("advance stream t to '2024-05-01T12:30:00'") == AdvanceStream("t", 1_714_566_600_000_000.0)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE STREAM t (a INT PRIMARY KEY)", "a stream has no primary key"),
        ("CREATE STREAM t (a INT, PRIMARY KEY (a))", "a stream has no primary key"),
        ("CREATE STREAM t (a INT, position INT)", "cannot be called POSITION"),
        ("CREATE STREAM t (a INT, A REAL)", "two columns have this name"),
        ("CREATE STREAM t", "the columns are missing"),
        ("CREATE STREAM t (a INT) WITH (retain = '1h')", "add a TIMESTAMP column"),
        ("CREATE STREAM t (a INT) WITH (retain_rows = 0)", "retain_rows is a whole number"),
        ("CREATE STREAM t (a INT) WITH (retain_rows = 1.5)", "retain_rows is a whole number"),
        ("CREATE STREAM t (a INT) WITH (retain_rows = '5')", "retain_rows is a whole number"),
        ("CREATE STREAM t (a TIMESTAMP) WITH (retain = 'soon')", "retain is a duration"),
        ("CREATE STREAM t (a INT) WITH (weight = 3)", "WITH (..) takes retain_rows and retain"),
        ("CREATE TABLE t (a INT PRIMARY KEY) WITH (retain_rows = 3)", "WITH (..) takes period and weight"),
        ("CREATE STREAM t AS VALUES (1)", "accepted: CREATE STREAM"),
        ("DROP STREAM a, b", "DROP STREAM takes one name"),
        ("ADVANCE STREAM t", "accepted: ADVANCE STREAM name TO"),
        ("ADVANCE STREAM t TO 'noon'", "it is not a timestamp"),
        ("ADVANCE STREAM t TO 5", "accepted: ADVANCE STREAM name TO"),
    ],
)
def test_what_no_stream_can_be_is_refused_with_what_would_help(sql: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_statement(sql)
    assert message in str(caught.value)


def test_streams_and_tables_share_their_names_and_are_not_taken_for_each_other() -> None:
    engine = Engine()
    engine.execute(TRADES)
    engine.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY)")
    engine.execute(TRADES.replace("STREAM", "STREAM IF NOT EXISTS"))
    for sql, message in (
        (TRADES, "stream TRADES already exists; use CREATE STREAM IF NOT EXISTS"),
        (f"{TRADES} WITH (retain_rows = 9)".replace("STREAM", "STREAM IF NOT EXISTS"), "it is without WITH, not WITH"),
        ("CREATE TABLE IF NOT EXISTS TRADES (TS TIMESTAMP PRIMARY KEY)", "it is a stream, not a table"),
        ("CREATE STREAM IF NOT EXISTS STOCK (SYMBOL TEXT)", "it is a table, not a stream"),
    ):
        with pytest.raises(DuplicateTable, match=message):
            engine.execute(sql)
    with pytest.raises(SqlError, match="it is a stream, not a table; DROP STREAM TRADES"):
        engine.execute("DROP TABLE TRADES")
    with pytest.raises(SqlError, match="it is a table, not a stream; DROP TABLE STOCK"):
        engine.execute("DROP STREAM STOCK")
    engine.execute("DROP STREAM TRADES")
    with pytest.raises(UnknownTable):
        engine.execute("DROP STREAM TRADES")
    engine.execute("DROP STREAM IF EXISTS TRADES")


def test_a_filter_over_a_stream_is_a_kind_of_its_own() -> None:
    query = parse("SELECT PRICE, POSITION FROM trades WHERE PRICE > ? AND SYMBOL = 'IBM'")
    assert query.shape.kind is KINDS["TUPLES"]
    assert query.shape.projection == (Ref(0, 2), Ref(0, 3))
    assert (query.shape.ranges, query.shape.partition) == ((Ref(0, 2),), (Ref(0, 1),))
    assert query.shape.windows == ()
    assert parse("SELECT * FROM TRADES").columns == ("TS", "SYMBOL", "PRICE", "POSITION")


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("TRADES [ROWS 1000]", Window(rows=1000)),
        ("trades [rows 1000] t", Window(rows=1000)),
        ('"TRADES"[ROWS 1000] AS t', Window(rows=1000)),
        ("TRADES [RANGE '10s']", Window(range_s=10.0)),
        ("TRADES [ range  '1m 30s' ] AS t", Window(range_s=90.0)),
    ],
)
def test_a_window_stands_behind_the_name_of_its_stream(written: str, window: Window) -> None:
    query = parse(f"SELECT SUM(PRICE) FROM {written} WHERE PRICE < 5")
    assert query.shape.kind is KINDS["SUM"]
    assert query.shape.windows == (window,)
    assert query.shape.tables == ("TRADES",)
    assert query.shape.sources == (f'"TRADES" {window.declared}',)


def test_every_kind_of_answer_can_be_over_a_window_and_windows_are_channels_of_their_own() -> None:
    for what in ("COUNT(*)", "COUNT(PRICE)", "SUM(PRICE)", "AVG(PRICE)", "MIN(PRICE)", "MAX(PRICE)", "DISTINCT SYMBOL"):
        shapes = [parse(f"SELECT {what} FROM TRADES {window}").shape for window in ("[ROWS 5]", "[ROWS 6]")]
        assert shapes[0].kind.name == what.split("(")[0].split(" ")[0]
        assert shapes[0] != shapes[1]


def test_a_stream_joined_with_a_table_has_no_window() -> None:
    query = parse("SELECT TRADES.SYMBOL, PRICE, RISK FROM TRADES JOIN STOCK USING (SYMBOL) WHERE RISK < ?")
    assert query.shape.kind is KINDS["TUPLES"]
    assert query.shape.tables == ("TRADES", "STOCK")
    assert query.shape.on == JoinOn(1, 0, band=False)
    assert (query.shape.windows, query.shape.memory) == ((), None)


def test_two_streams_are_joined_by_their_windows_in_bounded_memory() -> None:
    sql = "SELECT PRICE, BID FROM TRADES [ROWS 1000] JOIN QUOTES [RANGE '10s'] ON TRADES.SYMBOL = QUOTES.SYMBOL"
    query = parse(sql)
    assert query.shape.windows == (Window(rows=1000), Window(range_s=10.0))
    assert query.shape.memory is None
    assert query.shape.on == JoinOn(1, 0, band=False)
    assert parse(f"{sql} WHERE BID > ? WITH (memory = 10000)").shape.memory == 10000
    assert query.shape.sources == ('"TRADES" [ROWS 1000]', "\"QUOTES\" [RANGE '10s']")
    both = parse("SELECT a.PRICE FROM TRADES [ROWS 9] AS a JOIN TRADES [ROWS 8] AS b ON a.SYMBOL = b.SYMBOL").shape
    assert both.windows == (Window(rows=9), Window(rows=8))
    band = parse("SELECT a.PRICE FROM TRADES [ROWS 9] a JOIN QUOTES [ROWS 8] b ON b.BID - a.PRICE BETWEEN 0 AND ?")
    assert band.shape.on == JoinOn(2, 2, band=True)


def test_the_names_in_a_text_are_found_whatever_its_windows() -> None:
    sql = "SELECT a.PRICE FROM TRADES [ROWS 9] a JOIN QUOTES [RANGE '1s'] b USING (SYMBOL) WITH (memory = 5)"
    assert names_in(sql) == ("trades", "quotes")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT COUNT(*) FROM TRADES", "needs a window; name one: FROM TRADES [ROWS 1000] or FROM TRADES [RANGE"),
        ("SELECT DISTINCT SYMBOL FROM TRADES", "needs a window"),
        ("SELECT COUNT(*) FROM CLICKS [RANGE '1s']", "RANGE needs a stream with a TIMESTAMP column"),
        ("SELECT PRICE FROM TRADES [ROWS 5]", "columns of a window are not delivered"),
        ("SELECT COUNT(*) FROM STOCK [ROWS 5]", "a table has no windows"),
        ("SELECT COUNT(*) FROM QUOTES [ROWS 501]", "at most what the stream retains (retain_rows = 500)"),
        ("SELECT COUNT(*) FROM QUOTES [RANGE '61s']", "at most what the stream retains"),
        ("SELECT COUNT(*) FROM TRADES [RANGE '1e303s']", "at most what the stream retains"),
        ("SELECT COUNT(*) FROM TRADES [ROWS 0]", "at least something"),
        ("SELECT COUNT(*) FROM TRADES [RANGE '0s']", "at least something"),
        ("SELECT COUNT(*) FROM TRADES [ROWS many]", "accepted: FROM stream [ROWS 1000]"),
        ("SELECT COUNT(*) FROM TRADES [ROWS]", "accepted: FROM stream [ROWS 1000]"),
        ("SELECT COUNT(*) FROM TRADES [RANGE 10s]", "accepted: FROM stream [ROWS 1000]"),
        ("SELECT PRICE FROM TRADES JOIN QUOTES [ROWS 5] USING (SYMBOL)", "both streams of a join need a window"),
        ("SELECT PRICE FROM TRADES [ROWS 5] JOIN STOCK USING (SYMBOL)", "a stream joined with a table has no window"),
        ("SELECT PRICE FROM TRADES JOIN STOCK USING (SYMBOL) WITH (memory = 5)", "only a join of two windows"),
        ("SELECT PRICE FROM TRADES WITH (memory = 5)", "only a join of two windows"),
        ("SELECT PRICE FROM TRADES WITH (memory = 0)", "WITH (..) takes memory"),
        ("SELECT PRICE FROM TRADES WITH (memory = 1, memory = 2)", "WITH (..) takes memory"),
        ("SELECT PRICE FROM TRADES WITH (speed = 1)", "WITH (..) takes memory"),
        ("SELECT PRICE FROM TRADES WITH (memory)", "accepted: WITH (memory = 10000)"),
        ("SELECT PRICE FROM TRADES WITH ()", "accepted: WITH (memory = 10000)"),
    ],
)
def test_windows_without_a_meaning_are_refused_with_what_would_help(sql: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(sql)
    assert message in str(caught.value)


def test_an_embedded_engine_does_not_join_streams() -> None:
    engine = Engine()
    engine.execute(TRADES)
    engine.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, RISK REAL)")
    with pytest.raises(SqlError, match="joins over streams need a server"):
        engine.subscribe("SELECT PRICE, RISK FROM TRADES JOIN STOCK USING (SYMBOL)")
