"""Subscriptions on one table: shape, names, ranges and partitions, refusals."""

from __future__ import annotations

import pickle
import re
from functools import cache

import pytest

from hullcast.broker.engine.engine import Engine
from hullcast.broker.sql.create import create_text as table_text
from hullcast.broker.sql.query import Ref
from hullcast.broker.sql.subscription import ParsedQuery, parse_subscription
from hullcast.broker.tables.schema import POSITION, Column, ColumnType, StreamTerms, Table
from hullcast.clients.cli.main import in_commands
from hullcast.network.answers.kinds import KINDS, SubscriptionKind
from hullcast.network.wire.errors import SqlError, UnknownColumn, UnknownTable, from_wire, to_wire

_TYPES = {"T": ColumnType.TEXT, "R": ColumnType.REAL, "I": ColumnType.INTEGER, "D": ColumnType.TIMESTAMP}


def table(name: str, columns: str) -> Table:
    """`table("r", "K:T PER:R")`."""
    pairs = [column.split(":") for column in columns.split()]
    return Table(name, tuple(Column(name, _TYPES[kind]) for name, kind in pairs), 0)


STOCK = table("Stock", "SYMBOL:T PER:R RISK:R VOLUME:I SECTOR:T AT:D A:R B:R C:R D:R E:R F:R G:R")
R = table("r", "k:I a:R b:R c:T at:D n:I")
S = table("s", "k:I c:T b:R d:R at:D m:I")
TRADES = Table("trades", (Column("PER", ColumnType.REAL), POSITION), 1, stream=StreamTerms())
CATALOG = {t.name.casefold(): t for t in (STOCK, R, S, TRADES)}
SYMBOL, PER, RISK, VOLUME, SECTOR, AT = (Ref(0, position) for position in range(6))


def parse(sql: str) -> ParsedQuery:
    return parse_subscription(sql, CATALOG)


@pytest.mark.parametrize(
    ("sql", "kind", "y", "name"),
    [
        ("SELECT MIN(per) FROM stock", KINDS["MIN"], PER, "MIN(PER)"),
        ("select max(At) from STOCK s", KINDS["MAX"], AT, "MAX(AT)"),
        ("SELECT COUNT(*) FROM Stock", KINDS["COUNT"], None, "COUNT(*)"),
        ("SELECT COUNT(Sector) FROM Stock", KINDS["COUNT"], SECTOR, "COUNT(SECTOR)"),
        ("SELECT SUM(s.volume) FROM Stock AS s", KINDS["SUM"], VOLUME, "SUM(VOLUME)"),
        ("SELECT AVG(PER) AS mean FROM Stock", KINDS["AVG"], PER, "mean"),
        ("SELECT AVG(PER) mean FROM Stock", KINDS["AVG"], PER, "mean"),
        ("SELECT DISTINCT sector FROM Stock", KINDS["DISTINCT"], SECTOR, "SECTOR"),
        ("SELECT DISTINCT per AS p FROM Stock;", KINDS["DISTINCT"], PER, "p"),
    ],
)
def test_a_function_has_a_kind_a_column_and_a_name(sql: str, kind: SubscriptionKind, y: Ref | None, name: str) -> None:
    query = parse(sql)
    assert (query.shape.kind, query.shape.y, query.columns) == (kind, y, (name,))
    assert (query.shape.tables, query.tables, query.shape.projection) == (("Stock",), (STOCK,), ())
    assert query.shape.on is None


def test_a_selection_lists_its_columns_as_declared_and_may_repeat_them() -> None:
    query = parse("SELECT per, Stock.SYMBOL AS s, PER FROM stock WHERE per > 3")
    assert query.shape.kind is KINDS["SELECT"]
    assert query.shape.projection == (PER, SYMBOL, PER)
    assert query.columns == ("PER", "s", "PER")


def test_a_star_lists_every_column() -> None:
    for star in ("*", "Stock.*"):
        query = parse(f"SELECT {star} FROM Stock")
        assert query.columns == tuple(column.name for column in STOCK.columns)
    assert len(parse("SELECT *, * FROM Stock").columns) == 26


@pytest.mark.parametrize(
    ("where", "ranges", "partition"),
    [
        ("PER BETWEEN ? AND ?", (PER,), ()),
        ("(PER >= ?) AND ((PER < 5))", (PER,), ()),
        ("5 > PER", (PER,), ()),
        ("PER BETWEEN 1 AND 2 AND PER = 1", (PER,), ()),
        ("PER > 1 AND SECTOR = 'TECH' AND SYMBOL = ?", (PER,), (SYMBOL, SECTOR)),
        ("PER > 1 AND VOLUME = 3", (PER,), (VOLUME,)),
        ("SECTOR = 'TECH'", (), (SECTOR,)),
        ("SECTOR = 'TECH' AND VOLUME = 3 AND PER = 1", (PER,), (VOLUME, SECTOR)),
        ("AT = ? AND VOLUME = 3", (VOLUME,), (AT,)),
        ("VOLUME = 3", (VOLUME,), ()),
    ],
)
@pytest.mark.parametrize("select", ["MIN(RISK)", "DISTINCT RISK", "COUNT(*)", "SUM(RISK)", "PER, RISK"])
def test_inequalities_are_ranges_and_equalities_partitions(
    select: str, where: str, ranges: tuple[Ref, ...], partition: tuple[Ref, ...]
) -> None:
    shape = parse(f"SELECT {select} FROM Stock WHERE {where}").shape
    assert (shape.ranges, shape.partition, shape.dimensions) == (ranges, partition, len(ranges))


def test_equal_shapes_are_one_channel() -> None:
    first = parse("SELECT MIN(PER) FROM Stock WHERE RISK BETWEEN ? AND ? AND SECTOR = ?")
    second = parse("select min(x.per) AS other FROM stock x WHERE 'TECH' = sector AND 3 < risk")
    assert first.shape == second.shape
    assert hash(first.shape) == hash(second.shape)


def test_a_selection_may_have_eight_ranges_and_no_ninth() -> None:
    names = ["PER", "RISK", "A", "B", "C", "D", "E", "F"]
    sql = "SELECT SYMBOL FROM Stock WHERE " + " AND ".join(f"{name} > ?" for name in names)
    assert parse(sql).shape.dimensions == 8
    assert len(parse(sql).binder.slots) == 8
    with pytest.raises(SqlError, match="at most 8"):
        parse(sql + " AND G > ?")


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT MIN(PER) FROM Stock WHERE PER > 1 OR RISK > 1", "range on one column only"),
        ("SELECT MIN(PER) FROM Stock WHERE PER NOT BETWEEN 1 AND 2", "MIN supports one range: .*for each range"),
        ("SELECT MAX(PER) FROM Stock WHERE PER <> 1", "MAX supports one range"),
        ("SELECT DISTINCT PER FROM Stock WHERE PER != 1", "DISTINCT supports one range"),
        ("SELECT MIN(PER) FROM Stock WHERE SECTOR IN ('A', 'B')", "MIN supports one range"),
        ("SELECT PER FROM Stock WHERE PER IN (SELECT A FROM Stock)", "subqueries"),
        ("SELECT PER FROM Stock WHERE PER IN ()", "IN takes a column and a list|accepted"),
        ("SELECT PER FROM Stock WHERE 1 IN (PER, RISK)", "IN takes a column"),
        ("SELECT PER FROM Stock WHERE PER IN (1, NULL)", "never true"),
        ("SELECT PER FROM Stock WHERE SECTOR IN ('A', 1)", "write 'text'"),
        ("SELECT PER FROM Stock WHERE SECTOR <> 'A'", "TEXT columns support = and IN only; name the values"),
        ("SELECT PER FROM Stock WHERE NOT SECTOR = 'A'", "TEXT columns support = and IN only"),
        ("SELECT PER FROM Stock WHERE SECTOR NOT IN ('A', 'B')", "TEXT columns support = and IN only"),
        ("SELECT PER FROM Stock WHERE SECTOR = 'A' OR RISK > 3", "SECTOR.*on both sides of an OR"),
        ("SELECT MIN(PER) FROM Stock WHERE SECTOR LIKE 'T%'", "TEXT columns support = and IN only"),
        ("SELECT MIN(PER) FROM Stock WHERE SECTOR GLOB 'T*'", "TEXT columns support = and IN only"),
        ("SELECT MIN(PER) FROM Stock WHERE RISK IS NULL", "MIN takes no rows where this is NULL"),
        ("SELECT PER FROM Stock WHERE SECTOR IS NULL", "not tested for NULL in a subscription; compare with"),
        (
            "SELECT MIN(PER) FROM Stock WHERE AT > TIMESTAMP '2024-01-01' OR PER > 1",
            "text alone: '2024-05-01 12:30:00'",
        ),
        ("SELECT LEFT(SECTOR, 2) FROM Stock", "a query cannot do it either"),
        ("SELECT FIRST(PER) FROM Stock", "compute the rest in your program"),
        ("SELECT MIN(PER) FROM Stock WHERE PER = NULL", "never true"),
        ("SELECT MIN(PER) FROM Stock WHERE PER = TRUE", "TRUE and FALSE are not supported"),
        ("SELECT MIN(PER) FROM Stock WHERE TRUE", "TRUE and FALSE are not supported"),
        ("SELECT MIN(PER) FROM Stock WHERE PER", "not supported"),
        ("SELECT MIN(PER) FROM Stock WHERE 1 = 1", "no column"),
        ("SELECT MIN(PER) FROM Stock WHERE ? BETWEEN 1 AND 2", "BETWEEN must be on a column"),
        ("SELECT MIN(PER) FROM Stock WHERE PER > (SELECT 1)", "subqueries"),
        ("SELECT MIN(PER) FROM Stock WHERE EXISTS (SELECT 1)", "subqueries"),
        ("SELECT MIN(PER) FROM Stock WHERE ROUND(PER) > 1", "functions"),
        ("SELECT MIN(PER) FROM Stock WHERE PER > datetime('now')", "time does not move by itself"),
        ("SELECT MIN(PER) FROM Stock WHERE MIN(PER) > 1", "not supported here; compare a column with a number"),
        ("SELECT MEDIAN(PER) FROM Stock", "one of MIN, MAX, COUNT, SUM and AVG of a column"),
        ("SELECT MIN(PER) FROM Stock WHERE PER + 1 > 2", "arithmetic"),
        ("SELECT MIN(PER) FROM Stock WHERE PER * 2 > 2", "arithmetic"),
        ("SELECT MIN(PER) FROM Stock WHERE -PER > 2", "arithmetic"),
        ("SELECT MIN(PER) FROM Stock WHERE PER > 1 + 1", "arithmetic"),
        ("SELECT MIN(PER) FROM Stock WHERE PER > RISK", "two columns of one table"),
        ("SELECT MIN(PER) FROM Stock WHERE PER = RISK", "two columns of one table"),
        ("SELECT MIN(PER) FROM Stock WHERE PER - RISK > 1", "two columns of one table"),
        ("SELECT MIN(PER) FROM Stock WHERE PER + RISK > A", "more than two columns"),
        ("SELECT MIN(PER) FROM Stock WHERE (PER, RISK) = (1, 2)", "for each column"),
        ("SELECT MIN(PER) FROM Stock WHERE CASE WHEN PER > 1 THEN 1 END > 0", "CASE"),
        ("SELECT MIN(PER) FROM Stock WHERE PER BETWEEN SYMMETRIC 2 AND 1", "smaller bound first"),
        ("SELECT MIN(PER) FROM Stock WHERE PER > :low", r"are written as \?; write \?"),
        ("SELECT MIN(PER) FROM Stock WHERE PER > @low", r"are written as \?; write \?"),
        ("SELECT MIN(PER) FROM Stock WHERE PER > 'a'", "write a number"),
        ("SELECT MIN(PER) FROM Stock WHERE PER > TIMESTAMP '2024-01-01'", "write a number"),
        ("SELECT MIN(PER) FROM Stock WHERE SECTOR = 5", "write 'text'"),
        ("SELECT MIN(PER) FROM Stock WHERE SECTOR > 'A'", "TEXT columns support = and IN only"),
        ("SELECT MIN(PER) FROM Stock WHERE SECTOR BETWEEN ? AND ?", "TEXT columns support = and IN only"),
        ("SELECT MIN(PER) FROM Stock WHERE SECTOR = -'A'", "negative"),
        ("SELECT MIN(PER) FROM Stock WHERE AT > -?", "negative"),
        ("SELECT MIN(PER) FROM Stock WHERE AT > 5", "write TIMESTAMP"),
        ("SELECT MIN(PER) FROM Stock WHERE AT > 'yesterday'", "ISO-8601"),
        ("SELECT MIN(PER) FROM Stock WHERE AT > TIMESTAMP 'yesterday'", "ISO-8601"),
        ("SELECT MIN(PER) FROM Stock WHERE AT > CAST(? AS TIMESTAMP)", r"or \?"),
        ("SELECT MIN(PER) FROM Stock WHERE AT > CAST('2024-01-01' AS DATE)", "AS TIMESTAMP"),
        ("SELECT MIN(PER) FROM Stock WHERE PER > 1 AND RISK > 1", "range on one column"),
        ("SELECT DISTINCT PER FROM Stock WHERE PER > 1 AND RISK > 1", "range on one column"),
        ("SELECT MIN(PER), MAX(PER) FROM Stock", "one subscription for each"),
        ("SELECT SECTOR, MIN(PER) FROM Stock", "one subscription for each aggregate"),
        ("SELECT SECTOR, MIN(PER) FROM Stock GROUP BY SECTOR", "one subscription per group"),
        ("SELECT MIN(PER) FROM Stock HAVING MIN(PER) > 1", "HAVING"),
        ("SELECT PER FROM Stock ORDER BY PER", "in key order"),
        ("SELECT PER FROM Stock LIMIT 3", "LIMIT"),
        ("SELECT PER FROM Stock LIMIT 3 OFFSET 1", "LIMIT"),
        ("SELECT DISTINCT PER, RISK FROM Stock", "only item after SELECT; make one subscription for each column"),
        (
            'SELECT PER FROM Stock WHERE SECTOR = "IBM"',
            '`"IBM"`: no column.*write it in single quotes; columns: SYMBOL',
        ),
        ("SELECT COUNT(*) FROM trades [RANGE '1 hour']", "units: ms, s, m, min, h, d"),
        ("SHOW TABLES", "use engine.tables"),
        ("DESCRIBE Stock", "use engine.tables"),
        ("SELECT DISTINCT * FROM Stock", "one column"),
        ("SELECT DISTINCT MIN(PER) FROM Stock", "one column"),
        ("SELECT DISTINCT ON (PER) RISK FROM Stock", "DISTINCT ON"),
        ("SELECT COUNT(DISTINCT PER) FROM Stock", "SELECT DISTINCT column"),
        ("SELECT MIN(MAX(PER)) FROM Stock", "plain column"),
        ("SELECT MIN(PER + 1) FROM Stock", "plain column"),
        ("SELECT MIN(*) FROM Stock", "plain column"),
        ("SELECT MIN(PER, RISK) FROM Stock", "expressions are not supported"),
        ("SELECT MIN(SECTOR) FROM Stock", "take numbers and TIMESTAMPs"),
        ("SELECT SUM(AT) FROM Stock", "take numbers"),
        ("SELECT AVG(SECTOR) FROM Stock", "take numbers"),
        ("SELECT MIN(PER) OVER () FROM Stock", "windows"),
        ("SELECT MIN(PER) FILTER (WHERE PER > 1) FROM Stock", "accepted"),
        ("SELECT STDDEV(PER) FROM Stock", "accepted"),
        ("SELECT PER + 1 FROM Stock", "expressions are not supported"),
        ("SELECT 1 FROM Stock", "constant"),
        ("SELECT ? FROM Stock", "constant"),
        ("SELECT 1", "no table"),
        ("SELECT FROM Stock", "accepted: columns"),
        ("SELECT PER FROM Stock UNION SELECT PER FROM Stock", "one subscription for each SELECT"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "WITH is not supported"),
        ("SELECT PER FROM (SELECT * FROM Stock)", "plain tables"),
        ("SELECT PER FROM main.Stock", "nothing else"),
        ("SELECT PER FROM Stock FOR UPDATE", "not supported"),
        ("SELECT PER INTO x FROM Stock", "not supported"),
        ("SELECT PER FROM Stock TABLESAMPLE (10)", "nothing else"),
        ("SELECT PER FROM Stock s (a, b)", "one name"),
        ("SELECT main.Stock.PER FROM Stock", "table.column"),
        ("FROM Stock", "FROM is not supported"),
        ("(SELECT PER FROM Stock)", "accepted: SELECT"),
        ("INSERT INTO Stock VALUES (1)", "engine.upsert"),
        ("CREATE TABLE x (a INT)", "engine.execute"),
        ("SELECT PER FROM Stock; SELECT RISK FROM Stock", "one at a time"),
    ],
)
def test_what_is_outside_is_refused_with_what_would_help(sql: str, hint: str) -> None:
    with pytest.raises(SqlError, match=hint) as caught:
        parse(sql)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    for asked in re.findall(r'engine\.query\("+(.*?)"+\)$', str(caught.value)):  # what it advises works as it stands
        engine_with_tables().query(asked, *[5] * asked.count("?"))


@cache
def engine_with_tables() -> Engine:
    engine = Engine()
    for table in CATALOG.values():
        engine.execute(table_text(table))
    return engine


PLACEHOLDERS = "parameters are written as ?; write ? for each value and give them in order"
ONLY_EQUAL = "TEXT columns support = and IN only; name the values: = or IN (..)"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("PER > %s", f"`%s`: {PLACEHOLDERS}"),
        ("PER > %(low)s", f"`%(name)s`: {PLACEHOLDERS}"),
        ("PER > $1", f"`$1`: {PLACEHOLDERS}"),
        ("PER > :low", f"`:low`: {PLACEHOLDERS}"),
        ("PER > @low", f"`@low`: {PLACEHOLDERS}"),
        ("PER > ?1", f"`?1`: {PLACEHOLDERS}"),
        ("PER > {low}", "`{..}`: " + PLACEHOLDERS),
        (
            "SECTOR IS NULL",
            "`SECTOR IS NULL`: TEXT columns are not tested for NULL in a subscription; compare with = or IN",
        ),
        ("SECTOR <> 'A'", f"`SECTOR <> 'A'`: {ONLY_EQUAL}"),
        ("SECTOR != ?", f"`SECTOR != ?`: {ONLY_EQUAL}"),
        ("SECTOR < 'A'", f"`SECTOR < 'A'`: {ONLY_EQUAL}"),
        ("SECTOR LIKE 'A%'", f"`SECTOR LIKE 'A%'`: {ONLY_EQUAL}"),
        (
            "PER > 1 GROUP BY SECTOR",
            "`GROUP BY SECTOR`: GROUP BY is not supported in a subscription; make one subscription per group, with = "
            "on the column",
        ),
    ],
)
def test_what_many_try_first_is_refused_with_the_way_that_works(where: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(f"SELECT COUNT(*) FROM Stock WHERE {where}")
    once = f'ask once: engine.query("SELECT COUNT(*) FROM Stock WHERE {where}")'
    assert str(caught.value).removesuffix(once).removesuffix("or ").removesuffix("; ") == message


def said_to_clients(sql: str) -> str:
    with pytest.raises(SqlError) as caught:
        parse(sql)
    return str(from_wire(*to_wire(caught.value)))


@pytest.mark.parametrize(
    ("sql", "tables", "view"),
    [
        ("SELECT C, MIN(PER) FROM Stock GROUP BY C", "Stock", "SELECT C, MIN(PER) FROM Stock GROUP BY C"),
        ("SELECT PER FROM stock ORDER BY PER", "Stock", "SELECT PER FROM stock"),
        ("SELECT PER FROM stock ORDER BY PER LIMIT 3", "Stock", "SELECT PER FROM stock"),
        ("SELECT * FROM stock s ORDER BY s.PER DESC", "Stock", "SELECT * FROM stock AS s"),
        ("SELECT SYMBOL FROM Stock ORDER BY PER DESC LIMIT 3", "Stock", None),
        ("SELECT PER FROM Stock WHERE SECTOR IS NOT NULL", "Stock", "SELECT PER FROM Stock WHERE NOT SECTOR IS NULL"),
        ("SELECT PER FROM Stock WHERE SECTOR IS NULL", "Stock", "SELECT PER FROM Stock WHERE SECTOR IS NULL"),
        ("SELECT MIN(PER) FROM Stock WHERE RISK <> 1", "Stock", "SELECT MIN(PER) FROM Stock WHERE RISK <> 1"),
        ("SELECT MIN(PER) FROM Stock WHERE VOLUME = 1 OR PER = 2", "Stock", None),
        ("SELECT PER FROM Stock WHERE NOT (SECTOR = 'TECH')", "Stock", None),
        ("SELECT PER FROM Stock WHERE PER > (SELECT AVG(a) FROM r)", "Stock, r", None),
        ("SELECT r.a FROM r LEFT JOIN s ON r.k = s.k", "r, s", None),
        (
            "SELECT r.a FROM r JOIN s USING (k) JOIN r x USING (k)",
            "r, s",
            "SELECT r.a FROM r JOIN s USING (k) JOIN r AS x USING (k)",
        ),
        ("SELECT PER FROM Stock UNION SELECT a FROM r", "Stock, r", None),
        ("WITH x AS (SELECT PER FROM Stock) SELECT * FROM x", "Stock", None),
        ("SELECT COUNT(DISTINCT PER) FROM Stock", "Stock", None),
        ("SELECT MAX(PER, RISK) FROM Stock", "Stock", None),
        ("SELECT PER, COUNT(*) FROM trades GROUP BY PER", "trades", None),
        ("SELECT PER FROM trades WHERE PER + 1 = 2", "trades", None),
    ],
)
def test_a_select_that_cannot_be_followed_is_refused_with_the_statements_that_bring_its_rows(
    sql: str, tables: str, view: str | None
) -> None:
    said = said_to_clients(sql)
    assert f'hc.subscribe("{sql}", when="{tables}"); every="1h" instead of when= sends' in said
    assert "engine" not in said
    sorting = "".join(sql.replace("s.", "").partition("ORDER")[1:])
    read = f', and read it with hc.query("SELECT * FROM name {sorting}")' if sorting else ""
    assert view is None or said.endswith(f"CREATE VIEW name AS {view} WITH (response_time = '50ms'){read}")
    assert ("CREATE VIEW" in said) == (view is not None)
    names = f'"{tables}"' if "," in tables else tables
    assert f'`hullcast subscribe "{sql}" --when {names}`' in in_commands(said)
    assert "--every 1h instead of --when" in in_commands(said)
    assert "hc." not in in_commands(said)


@pytest.mark.parametrize("part", ["PER/RISK", "ifnull(PER,1)", "(PER  +RISK)*2", "PER  not  in (1,2)", "median( PER )"])
def test_a_refusal_quotes_what_its_author_wrote(part: str) -> None:
    said = said_to_clients(f"SELECT PER FROM Stock WHERE RISK > 1 AND {part} > 5")
    assert said.startswith(f"`{' '.join(part.split())}"), said


def test_who_asks_for_tables_is_told_the_command_that_shows_them() -> None:
    assert in_commands(said_to_clients("SHOW TABLES")) == "SHOW is not supported; use `hullcast tables`"


def test_a_long_select_is_shortened_and_parameters_are_hinted_at_in_a_refusal() -> None:
    sql = f"SELECT {', '.join(['PER, RISK'] * 30)} FROM Stock WHERE SECTOR = ? ORDER BY PER"
    said = said_to_clients(sql)
    assert 'hc.subscribe("SELECT PER, RISK, PER, ' in said
    assert " .. RISK, PER, " in said
    assert 'FROM Stock WHERE SECTOR = ? ORDER BY PER", .., when="Stock")' in said
    assert len(said) < 700


@pytest.mark.parametrize(
    "where", ["PER > 'a'", "PER > NULL", "AT > 5", "PER > NOW() - 5", "PER BETWEEN SYMMETRIC 2 AND 1"]
)
def test_a_mistake_is_not_answered_with_other_ways(where: str) -> None:
    assert "when=" not in said_to_clients(f"SELECT MIN(PER) FROM Stock WHERE {where}")


@pytest.mark.parametrize(
    "now", ["NOW() - INTERVAL '1 hour'", "CURRENT_TIMESTAMP", "datetime('now', '-1 hour')", "date('now')"]
)
def test_the_time_of_now_is_refused_with_what_moves(now: str) -> None:
    said = said_to_clients(f"SELECT COUNT(*) FROM Stock WHERE AT > {now}")
    assert "time does not move by itself in a subscription; bind a datetime with ?" in said
    assert "FROM stream [RANGE '1h']" in said
    assert "JOIN" not in said.upper()
    if now.endswith("hour')") or now.startswith(("CURRENT", "date(")):
        assert f'again and again: hc.subscribe("SELECT COUNT(*) FROM Stock WHERE AT > {now}", every="1s")' in said
        assert f'`hullcast subscribe "SELECT COUNT(*) FROM Stock WHERE AT > {now}" --every 1s`' in in_commands(said)
    else:
        assert said.endswith("""datetime('now', '-1 hour') for the time an hour ago, and subscribe with every="1s\"""")
        assert in_commands(said).endswith("an hour ago, and subscribe with --every 1s")
    interval = said_to_clients("SELECT COUNT(*) FROM Stock WHERE AT > ? - INTERVAL '1 hour'")
    assert "INTERVAL is not supported; compute the time in your program and bind the datetime with ?" in interval


def test_unknown_names_are_named() -> None:
    with pytest.raises(UnknownTable, match="no table bonds"):
        parse("SELECT MIN(PER) FROM bonds")
    with pytest.raises(UnknownTable, match="no table Stock"):  # the alias hides the name
        parse("SELECT Stock.PER FROM Stock s")
    for sql in (
        "SELECT yield FROM Stock",
        "SELECT PER FROM Stock WHERE yield > 1",
        "SELECT SUM(yield) FROM Stock",
    ):
        with pytest.raises(UnknownColumn, match="no column yield in Stock"):
            parse(sql)
