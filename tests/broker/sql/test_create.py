"""CREATE TABLE and DROP TABLE: what is read, and what is refused with which hint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.sql.create import LONGEST_PERIOD_S, CreateTable, DropTable, create_text, parse_statement
from hullcast.broker.sql.text import MAXIMUM_CHARACTERS
from hullcast.broker.tables.schema import Column, ColumnType, FeedTerms, Table
from hullcast.network.wire.errors import SqlError


def test_a_table_is_read_with_its_types_and_its_key() -> None:
    statement = parse_statement(
        "CREATE TABLE Stock (Symbol TEXT PRIMARY KEY, per REAL NOT NULL, n INTEGER, at TIMESTAMP);"
    )
    columns = (
        Column("Symbol", ColumnType.TEXT, True),
        Column("per", ColumnType.REAL, True),
        Column("n", ColumnType.INTEGER),
        Column("at", ColumnType.TIMESTAMP),
    )
    assert statement == CreateTable(Table("Stock", columns, 0))


def test_the_key_may_be_named_at_the_end_and_is_then_not_null() -> None:
    statement = parse_statement("create table t (a INT, b VARCHAR(10), PRIMARY KEY (B))")
    assert isinstance(statement, CreateTable)
    assert statement.table.key == 1
    assert statement.table.key_column == Column("b", ColumnType.TEXT, True)


@pytest.mark.parametrize(
    ("spelling", "meaning"),
    [
        (spelling, meaning)
        for meaning, spellings in {
            ColumnType.TEXT: "TEXT VARCHAR CHAR STRING VARCHAR(20) CHAR(3)",
            ColumnType.REAL: "REAL FLOAT DOUBLE",
            ColumnType.INTEGER: "INTEGER INT BIGINT SMALLINT int",
            ColumnType.TIMESTAMP: "TIMESTAMP DATETIME",
        }.items()
        for spelling in spellings.split()
    ],
)
def test_every_spelling_of_a_type_is_read(spelling: str, meaning: ColumnType) -> None:
    statement = parse_statement(f"CREATE TABLE t (k TEXT PRIMARY KEY, c {spelling})")
    assert isinstance(statement, CreateTable)
    assert statement.table.column("c").type is meaning


def test_a_table_may_be_there_or_missing() -> None:
    table = Table("t", (Column("a", ColumnType.INTEGER, True),), 0)
    assert parse_statement("CREATE TABLE IF NOT EXISTS t (a INT PRIMARY KEY)") == CreateTable(table, if_missing=True)
    assert parse_statement("CREATE TABLE t (a INT PRIMARY KEY)") == CreateTable(table, if_missing=False)
    assert parse_statement("DROP TABLE IF EXISTS t") == DropTable("t", if_there=True)
    assert parse_statement("DROP TABLE t") == DropTable("t", if_there=False)


@pytest.mark.parametrize("name", ["t", "T2", '"two words"', "größe"])
def test_drop_names_a_table(name: str) -> None:
    assert parse_statement(f"DROP TABLE {name}") == DropTable(name.strip('"'))


def test_256_columns_are_accepted_and_257_are_not() -> None:
    def sql(count: int) -> str:
        return "CREATE TABLE t (k INT PRIMARY KEY" + "".join(f", c{n} INT" for n in range(count - 1)) + ")"

    statement = parse_statement(sql(256))
    assert isinstance(statement, CreateTable)
    assert len(statement.table.columns) == 256
    with pytest.raises(SqlError, match="257 columns"):
        parse_statement(sql(257))


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("INSERT INTO t VALUES (1)", "engine.upsert"),
        ("REPLACE INTO t VALUES (1)", "engine.upsert"),
        ("UPDATE t SET a = 1", "engine.upsert"),
        ("DELETE FROM t", "engine.delete"),
        ("SELECT * FROM t", "engine.subscribe.*engine.query"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "engine.subscribe"),
        ("PRAGMA journal_mode", "accepted: CREATE TABLE"),
        ("ALTER TABLE t ADD COLUMN c INT", "create another table and copy the rows: engine.upsert"),
        ("nonsense", "accepted: CREATE TABLE"),
        ("CREATE SEQUENCE x", "accepted: CREATE TABLE"),
        ("DROP TABLE a, b", "one name"),
        ("DROP TABLE a CASCADE", "nothing else"),
        ("CREATE TABLE t", "columns are missing"),
        ("CREATE TABLE t AS SELECT 1", "nothing else"),
        ("CREATE TABLE t LIKE s", "nothing else"),
        ("CREATE OR REPLACE TABLE t (a INT PRIMARY KEY)", "nothing else"),
        ("CREATE TEMP TABLE t (a INT PRIMARY KEY)", "accepted: CREATE TABLE"),
        ("CREATE TABLE t (a INT PRIMARY KEY) STRICT", "nothing else"),
        ("CREATE TABLE t (a INT PRIMARY KEY) WITHOUT ROWID", "accepted: CREATE TABLE"),
        ("CREATE TABLE main.t (a INT PRIMARY KEY)", "plain name"),
        ("CREATE TABLE sqlite_t (a INT PRIMARY KEY)", "are reserved"),
        ('CREATE TABLE "" (a INT PRIMARY KEY)', "1 to 64 printable"),
        (f"CREATE TABLE {'t' * 65} (a INT PRIMARY KEY)", "1 to 64"),
        ('CREATE TABLE t ("a""b" INT PRIMARY KEY)', "double quotes"),
        ("CREATE TABLE t (a INT)", "no primary key"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT PRIMARY KEY)", "one column"),
        ("CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b))", "one column.* make one TEXT column of them"),
        ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))", "named once"),
        ("CREATE TABLE t (a INT PRIMARY KEY, A TEXT)", "two columns"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b)", "no type"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b BLOB)", "accepted types"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b DECIMAL(3, 2))", "use REAL, .*accepted types"),
        (
            "CREATE TABLE t (a INT PRIMARY KEY, b BOOLEAN)",
            r"INTEGER and publish int\(flag\), 0 or 1; accepted types",
        ),
        ("CREATE TABLE t (a INT PRIMARY KEY, b foo)", "accepted types"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b TIMESTAMP(3))", "no size"),
        (
            "CREATE TABLE t (a INT PRIMARY KEY AUTOINCREMENT)",
            "^`AUTOINCREMENT`: .* leave it out and choose the keys",
        ),
        ("CREATE TABLE t (a SERIAL PRIMARY KEY)", "use INTEGER and choose the keys where you publish"),
        ("CREATE TABLE t (a BIGSERIAL PRIMARY KEY)", "use INTEGER and choose the keys where you publish"),
        ("CREATE INDEX i ON t (a)", "there are no indexes; leave it out"),
        ("DROP INDEX i", "there are no indexes; leave it out"),
        ("CREATE TABLE t (a INT PRIMARY KEY DESC)", "not supported"),
        ("CREATE TABLE t (a INT CONSTRAINT k PRIMARY KEY)", "named constraints"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT NULL)", "not supported"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT DEFAULT 3)", "a column that a row does not name is NULL"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT UNIQUE)", "only the primary key is unique"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT REFERENCES s (b))", "no table depends on another"),
        ("CREATE TABLE t (a INT PRIMARY KEY, CHECK (a > 1))", "not supported"),
        ("CREATE TABLE t (a INT PRIMARY KEY, FOREIGN KEY (a) REFERENCES s (b))", "not supported"),
    ],
)
def test_what_is_outside_is_refused_with_what_is_accepted(sql: str, hint: str) -> None:
    with pytest.raises(SqlError, match=hint):
        parse_statement(sql)


TERMS = "CREATE TABLE t (a INT PRIMARY KEY) WITH ({})"


@pytest.mark.parametrize(
    ("terms", "meaning"),
    [
        ("period = '1m', weight = 3", FeedTerms(60.0, 3.0)),
        ("WEIGHT = 0.5, Period='1h 30m'", FeedTerms(5400.0, 0.5)),
        ("period = '200ms'", FeedTerms(0.2)),
        ("period = 60", FeedTerms(60.0)),
        ("weight = 2", FeedTerms(None, 2.0)),
        ("weight = 1e-3", FeedTerms(None, 0.001)),
    ],
)
def test_a_table_says_how_often_it_changes_and_how_much_it_matters(terms: str, meaning: FeedTerms) -> None:
    made = parse_statement(TERMS.format(terms))
    assert isinstance(made, CreateTable)
    assert made.table.feed == meaning
    assert parse_statement(create_text(made.table)) == made


@given(
    st.none() | st.floats(1e-9, LONGEST_PERIOD_S) | st.integers(1, 10**9).map(lambda count: count / 1000).filter(
        lambda period: period <= LONGEST_PERIOD_S
    ),
    st.floats(1e-9, 1e6) | st.integers(1, 10**6).map(float),
)  # fmt: skip
def test_any_terms_are_written_as_they_are_read(period_s: float | None, weight: float) -> None:
    table = Table("t", (Column("a", ColumnType.INTEGER, True),), 0, FeedTerms(period_s, weight))
    assert parse_statement(create_text(table)) == CreateTable(table)


@pytest.mark.parametrize(
    ("terms", "hint"),
    [
        ("period = '1 fortnight'", "such as '200ms', '1m' or '1h 30m'"),
        ("period = 0", "more than 0"),
        ("period = '-1s'", "more than 0"),
        ("period = '400d'", "at most 366 days"),
        ("period = x", "a period is a duration"),
        ("period = '1m', period = '2m'", "period is given twice"),
        ("perod = '1m'", "WITH .* takes period and weight, and nothing else"),
        ("weight = 0", "a weight is a number of more than 0"),
        ("weight = -1", "a weight is a number of more than 0"),
        ("weight = '3'", "a weight is a number"),
        ("weight = 1e300", "at most 1,000,000"),
        ("fillfactor = 70", "accepted: .*WITH .period = '1m', weight = 3"),
        ("format = 'x'", "accepted: .*WITH"),
    ],
)
def test_terms_that_make_no_sense_are_refused_with_those_that_do(terms: str, hint: str) -> None:
    with pytest.raises(SqlError, match=hint):
        parse_statement(TERMS.format(terms))


def test_terms_that_a_checkpoint_could_not_keep_are_refused() -> None:
    """The text is as long and as brief as can be; as it is written for a checkpoint it would be longer."""
    head, tail = "CREATE TABLE t(k INT PRIMARY KEY", ")WITH(period=60)"
    count, more = divmod(MAXIMUM_CHARACTERS - len(head) - len(tail), 36)
    columns = "".join(f",c{place:03}{'x' * 27} INT" for place in range(count))
    with pytest.raises(SqlError, match="too long; use shorter names"):
        parse_statement(head + columns.replace("xxx INT", "xxx" + "y" * more + " INT", 1) + tail)
    made = parse_statement(head + columns[36 * 2 :] + tail)
    assert isinstance(made, CreateTable)
    assert parse_statement(create_text(made.table)) == made


def test_a_table_differs_by_its_terms_only_if_some_are_wanted() -> None:
    plain, often, seldom = (
        Table("t", (Column("a", ColumnType.INTEGER, True),), 0, feed)
        for feed in (None, FeedTerms(60.0, 3.0), FeedTerms(3600.0))
    )
    assert often.difference(plain) == often.difference(often) == ""
    assert often.difference(seldom) == ("it is WITH (period = '1m', weight = 3), not WITH (period = '1h', weight = 1)")
    assert plain.difference(often) == "it is without WITH, not WITH (period = '1m', weight = 3)"


def test_a_key_that_is_no_column_is_unknown() -> None:
    with pytest.raises(ValueError, match="no column b in t"):
        parse_statement("CREATE TABLE t (a INT, PRIMARY KEY (b))")
