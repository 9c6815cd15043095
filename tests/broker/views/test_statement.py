"""CREATE VIEW and DROP VIEW: what is accepted, what is refused and why, and that a view is written as it is read."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hullcast.broker.engine.engine import Engine
from hullcast.broker.queries.view import ViewCondition, ViewDefinition, bind_view, create_text
from hullcast.broker.sql.create import parse_statement
from hullcast.broker.sql.query import Ref
from hullcast.broker.sql.text import MAXIMUM_CHARACTERS
from hullcast.broker.sql.view import CreateView, DropView
from hullcast.broker.tables.schema import ColumnType, fold
from hullcast.network.wire.errors import HullcastError, SqlError, UnknownColumn, UnknownTable
from tests.broker.views.strategies import TABLES, views
from tests.support.base_tables import table_of, view_of

TPC = tuple(
    map(
        table_of,
        (
            "CREATE TABLE PARTSUPP (K INTEGER PRIMARY KEY, PARTKEY INTEGER, SUPPKEY INTEGER, COST REAL, AT TIMESTAMP)",
            "CREATE TABLE SUPPLIER (K INTEGER PRIMARY KEY, NAME TEXT, NATIONKEY INTEGER, BALANCE REAL)",
            "CREATE TABLE NATION (K INTEGER PRIMARY KEY, NAME TEXT, REGIONKEY REAL)",
            'CREATE TABLE "select" (K TEXT PRIMARY KEY, "from" TEXT)',
        ),
    )
)
CHEAPEST = """CREATE VIEW CHEAPEST AS
    SELECT n.NAME, MIN(ps.COST), COUNT(*)
    FROM PARTSUPP ps JOIN SUPPLIER AS s ON ps.SUPPKEY = s.K AND s.BALANCE > -5 JOIN NATION n ON s.NATIONKEY = n.K
    WHERE ps.COST BETWEEN 1 AND 2.5 AND n.NAME IN ('PERU', 'IT''S')
    GROUP BY n.NAME
    WITH (response_time = '50ms');"""


def read(sql: str) -> ViewDefinition:
    return view_of(sql, TPC)


def test_a_view_is_bound_to_its_tables() -> None:
    view = read(CHEAPEST)
    assert (view.name, view.response_time_s) == ("CHEAPEST", 0.05)
    assert [(source.name, source.table.name, source.columns) for source in view.sources] == [
        ("ps", "PARTSUPP", (0, 2, 3)),
        ("s", "SUPPLIER", (0, 2)),
        ("n", "NATION", (0, 1)),
    ]
    assert view.equalities == ((Ref(0, 2), Ref(1, 0)), (Ref(1, 2), Ref(2, 0)))
    assert [source.conditions for source in view.sources] == [
        (ViewCondition(Ref(0, 3), ">=", (1,)), ViewCondition(Ref(0, 3), "<=", (2.5,))),
        (ViewCondition(Ref(1, 3), ">", (-5,)),),
        (ViewCondition(Ref(2, 1), "IN", ("PERU", "IT'S")),),
    ]
    assert view.groups == (Ref(2, 1),)
    assert [(output.name, output.function, output.column, output.type) for output in view.outputs] == [
        ("NAME", "", Ref(2, 1), ColumnType.TEXT),
        ("MIN(ps.COST)", "MIN", Ref(0, 3), ColumnType.REAL),
        ("COUNT(*)", "COUNT", None, ColumnType.INTEGER),
    ]


def test_if_exists_and_if_not_exists() -> None:
    statement = parse_statement(CHEAPEST.replace("VIEW", "VIEW IF NOT EXISTS"))
    assert isinstance(statement, CreateView)
    assert statement.if_missing
    assert parse_statement("DROP VIEW v") == DropView("v")
    assert parse_statement('drop view if exists "a b";') == DropView("a b", if_there=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("FROM PARTSUPP p, SUPPLIER s WHERE p.SUPPKEY = s.K", "FROM PARTSUPP p JOIN SUPPLIER s ON p.SUPPKEY = s.K"),
        ("FROM PARTSUPP p JOIN SUPPLIER s USING (K)", "FROM PARTSUPP p INNER JOIN SUPPLIER s ON p.K = s.K"),
        (
            "FROM PARTSUPP p CROSS JOIN SUPPLIER s WHERE (p.K = s.K)",
            "FROM PARTSUPP AS p JOIN SUPPLIER s ON ((p.K = s.K))",
        ),
        ("FROM PARTSUPP p WHERE 5 > p.COST", "FROM PARTSUPP p WHERE COST < 5"),
        ("FROM PARTSUPP p WHERE COST = -1", "FROM PARTSUPP p WHERE ((COST) = - (1))"),
        ("FROM PARTSUPP p WHERE NOT COST IS NULL", "FROM PARTSUPP p WHERE COST IS NOT NULL"),
        ("FROM PARTSUPP p WHERE NOT K IN (1)", "FROM PARTSUPP p WHERE K NOT IN (1)"),
        ("FROM PARTSUPP p WHERE AT > '2024-02-29'", "FROM PARTSUPP p WHERE AT > TIMESTAMP '2024-02-29T00:00:00Z'"),
        ("FROM PARTSUPP p WHERE COST > 1 AND COST > 1", "FROM PARTSUPP p WHERE COST > 1"),
    ],
)
def test_spellings_of_the_same_view(one: str, other: str) -> None:
    first, second = (read(f"CREATE VIEW v AS SELECT p.COST {text}") for text in (one, other))
    assert first == second
    assert hash(first) == hash(second)
    assert first.outputs == second.outputs


def test_response_time_may_also_stand_before_the_select() -> None:
    before = CHEAPEST.replace(" AS\n", " WITH (response_time = '50ms') AS\n").replace(
        "\n    WITH (response_time = '50ms')", ""
    )
    assert read(before) == read(CHEAPEST)


def test_names_of_outputs_are_those_that_sqlite_gives() -> None:
    view = read(
        'CREATE VIEW v AS SELECT  min( p."COST" ) , Count ( * ), max(p.cost)  AS "most (€)", p.suppkey, p.K x '
        "FROM PARTSUPP p GROUP BY suppkey, p.K"
    )
    assert [output.name for output in view.outputs] == ['min( p."COST" )', "Count ( * )", "most (€)", "SUPPKEY", "x"]
    assert view_of(create_text(view), TPC) == view


def test_a_star_is_all_columns_and_one_of_using() -> None:
    view = read("CREATE VIEW v AS SELECT * FROM NATION n JOIN SUPPLIER s USING (K, NAME)")
    assert [output.name for output in view.outputs] == ["K", "NAME", "REGIONKEY", "NATIONKEY", "BALANCE"]
    view = read("CREATE VIEW v AS SELECT s.*, n.REGIONKEY FROM NATION n JOIN SUPPLIER s USING (K)")
    assert [output.name for output in view.outputs] == ["K", "NAME", "NATIONKEY", "BALANCE", "REGIONKEY"]
    view = read("CREATE VIEW v AS SELECT K AS a, s.K AS b FROM NATION n JOIN SUPPLIER s USING (K)")
    assert [output.column for output in view.outputs] == [Ref(0, 0), Ref(1, 0)]


def test_equalities_within_a_source_are_its_own_condition() -> None:
    view = read("CREATE VIEW v AS SELECT COUNT(*) FROM PARTSUPP WHERE PARTKEY = SUPPKEY AND COST <> K")
    assert len(view.sources[0].conditions) == 2
    assert view.sources[0].columns == (0,)


AND = "FROM PARTSUPP p JOIN SUPPLIER s ON p.SUPPKEY = s.K"


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        (f"p.COST {AND} WHERE p.K = 1 OR p.K = 2", "OR is not supported"),
        (f"p.COST {AND} WHERE NOT p.K = 1", "NOT is not supported"),
        (f"p.COST {AND} WHERE p.K NOT BETWEEN 1 AND 2", "NOT BETWEEN"),
        (f"p.COST {AND} WHERE p.K IS 1", "IS is not supported"),
        (f"p.COST {AND} WHERE p.K = NULL", "never true"),
        (f"p.COST {AND} WHERE p.K IN (1, NULL)", "never true"),
        (f"p.COST {AND} WHERE p.K IN ()", "at least one|expected|missing|parsed"),
        (f"p.COST {AND} WHERE p.K IN (SELECT K FROM NATION)", "IN takes constants"),
        (f"p.COST {AND} WHERE EXISTS (SELECT 1)", "subqueries"),
        (f"p.COST {AND} WHERE p.K + 1 = 2", "expressions"),
        (f"p.COST {AND} WHERE ABS(p.K) = 2", "expressions"),
        (f"p.COST {AND} WHERE s.NAME LIKE 'a%'", "expressions"),
        (f"p.COST {AND} WHERE 1 = 1", "no column is compared"),
        (f"p.COST {AND} WHERE p.K = ?", "no parameters"),
        (f"p.COST {AND} WHERE p.K = :k", "parameters"),
        (f"p.COST {AND} WHERE COUNT(*) > 1", "aggregates are not supported in conditions"),
        (f"p.COST {AND} WHERE p.COST", "not supported"),
        (f"p.COST {AND} WHERE TRUE", "not supported"),
        (f"p.COST {AND} WHERE p.COST > 1e999", "too large"),
        (f"p.COST {AND} WHERE p.COST = 'a'", "cannot be compared"),
        (f"p.COST {AND} WHERE s.NAME = 5", "cannot be compared"),
        (f"p.COST {AND} WHERE s.NAME = p.K", "cannot be compared"),
        (f"p.COST {AND} WHERE p.AT > 'soon'", "cannot be compared"),
        (f"p.COST {AND} WHERE p.AT > 5", "cannot be compared"),
        (f"p.COST {AND} WHERE p.AT = s.NAME", "cannot be compared"),
        (f"p.COST, COUNT(*) {AND}", "neither an aggregate nor in GROUP BY"),
        (f"p.COST, COUNT(*) {AND} GROUP BY p.K", "neither an aggregate nor in GROUP BY"),
        (f"COUNT(*) {AND} GROUP BY 1", "GROUP BY takes columns"),
        (f"COUNT(*) {AND} GROUP BY ROLLUP (p.K)", "GROUP BY takes columns"),
        (f"COUNT(*) {AND} GROUP BY p.K HAVING COUNT(*) > 1", "HAVING is not supported"),
        (f"p.COST {AND} ORDER BY 1", "ORDER BY is not supported"),
        (f"p.COST {AND} LIMIT 3", "LIMIT is not supported"),
        (f"DISTINCT p.COST {AND}", "DISTINCT is not supported"),
        (f"COUNT(DISTINCT p.COST) {AND}", "DISTINCT"),
        (f"SUM(*) {AND}", "plain column"),
        (f"MIN(p.COST, 1) {AND}", "expressions"),
        (f"MIN(p.COST + 1) {AND}", "plain column"),
        (f"p.COST + 1 {AND}", "expressions"),
        (f"1 {AND}", "expressions and constants"),
        (f"SUM(s.NAME) {AND}", "SUM of s.NAME"),
        (f"AVG(p.AT) {AND}", "AVG of p.AT"),
        (f"GROUP_CONCAT(s.NAME) {AND}", "not supported"),
        (f"COUNT(*) OVER () {AND}", "expressions|not supported"),
        (f"(SELECT 1) {AND}", "subqueries"),
        (f"p.K, s.K {AND}", "two columns of the view have this name"),
        (f"p.K, s.NAME AS k {AND}", "two columns of the view have this name"),
        (f'p.K AS "{"x" * 300}" {AND}', "not a valid name"),
        ("p.COST FROM PARTSUPP p LEFT JOIN SUPPLIER s ON p.SUPPKEY = s.K", "LEFT JOIN is not supported"),
        ("p.COST FROM PARTSUPP p NATURAL JOIN SUPPLIER s", "NATURAL JOIN is not supported"),
        ("p.COST FROM PARTSUPP p FULL OUTER JOIN SUPPLIER s USING (K)", "FULL OUTER JOIN is not supported|FULL"),
        ("p.COST FROM PARTSUPP p, SUPPLIER s", "no equality joins it"),
        ("p.COST FROM PARTSUPP p CROSS JOIN SUPPLIER s WHERE p.K < s.K", "no equality joins it"),
        ("p.COST FROM PARTSUPP p JOIN PARTSUPP p ON p.K = p.K", "two tables have this name"),
        ("COST FROM PARTSUPP JOIN PARTSUPP USING (K)", "two tables have this name"),
        ("p.COST FROM (SELECT 1) p", "subqueries"),
        ("p.COST FROM other.PARTSUPP p", "name and an alias"),
        ("1", "reads no table"),
        ("K FROM PARTSUPP p JOIN SUPPLIER s ON p.SUPPKEY = s.K", "several tables have"),
        ("p.COST FROM PARTSUPP p, SUPPLIER s JOIN NATION n USING (K) WHERE p.K = s.K", "several tables before it"),
        (" , ".join(["p.COST"] * 2) + f" {AND}", "two columns"),
        ("a0.K FROM " + ", ".join(f"NATION a{i}" for i in range(9)) + " WHERE a0.K = 1", "reads 9 tables"),
        (f"p.COST {AND} UNION SELECT 1", "one SELECT"),
    ],
)
def test_what_is_outside_is_refused_with_the_reason(select: str, reason: str) -> None:
    with pytest.raises(SqlError, match=reason) as caught:
        read(f"CREATE VIEW v AS SELECT {select} WITH (response_time = '50ms')")
    assert caught.value.accepted
    assert caught.value.part


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("CREATE VIEW v AS SELECT K FROM NATION", "promises no response time"),
        ("CREATE VIEW v AS SELECT K FROM NATION WITH (response_time = '0s')", "more than 0"),
        ("CREATE VIEW v AS SELECT K FROM NATION WITH (response_time = '1us')", "units: ms, s, m, min, h, d"),
        ("CREATE VIEW v AS SELECT K FROM NATION WITH (response_time = '25h')", "at most a day"),
        ("CREATE VIEW v AS SELECT K FROM NATION WITH (response_time = 'soon')", "duration"),
        ("CREATE VIEW v AS SELECT K FROM NATION WITH (response_time = fast)", "duration"),
        ("CREATE VIEW v AS SELECT K FROM NATION WITH (period = '1m')", "takes response_time"),
        ("CREATE VIEW v AS SELECT K FROM NATION WITH (response_time = '1s', response_time = '2s')", "twice"),
        ("CREATE VIEW v WITH (response_time = '1s') AS SELECT K FROM NATION WITH (response_time = '2s')", "twice"),
        ("CREATE OR REPLACE VIEW v AS SELECT K FROM NATION WITH (response_time = '1s')", "OR REPLACE"),
        ("CREATE TEMP VIEW v AS SELECT K FROM NATION WITH (response_time = '1s')", "nothing else"),
        ("CREATE VIEW v (a) AS SELECT K FROM NATION WITH (response_time = '1s')", "named in its SELECT"),
        ("CREATE VIEW main.v AS SELECT K FROM NATION WITH (response_time = '1s')", "plain name"),
        ("CREATE VIEW sqlite_v AS SELECT K FROM NATION WITH (response_time = '1s')", "reserved"),
        ("CREATE VIEW \"\" AS SELECT K FROM NATION WITH (response_time = '1s')", "valid name|expected|missing"),
        ("CREATE VIEW v AS VALUES (1) WITH (response_time = '1s')", "one SELECT|parsed|unsupported|expected"),
        ("CREATE VIEW v WITH (response_time = '1s')", "one SELECT|unsupported|missing"),
        ("DROP VIEW a, b", "one name"),
        ("DROP VIEW a CASCADE", "nothing else"),
    ],
)
def test_statements_that_are_no_view(sql: str, reason: str) -> None:
    with pytest.raises(SqlError, match=reason):
        parse_statement(sql)


def test_unknown_names() -> None:
    for sql, error in (
        ("SELECT K FROM NOWHERE", UnknownTable),
        ("SELECT x.K FROM NATION", UnknownTable),
        ("SELECT NATION.K FROM NATION n", UnknownTable),
        ("SELECT NOTHING FROM NATION", UnknownColumn),
        ("SELECT n.NOTHING FROM NATION n", UnknownColumn),
        ("SELECT n.K FROM NATION n JOIN SUPPLIER s USING (BALANCE)", UnknownColumn),
        ("SELECT n.K FROM NATION n JOIN SUPPLIER s USING (REGIONKEY)", UnknownColumn),
    ):
        with pytest.raises(error):
            read(f"CREATE VIEW v AS {sql}")


def test_a_view_cannot_read_a_view() -> None:
    statement = parse_statement("CREATE VIEW w AS SELECT * FROM V WITH (response_time = '1s')")
    assert isinstance(statement, CreateView)
    with pytest.raises(SqlError, match="cannot read another view"):
        bind_view(statement, {fold(table.name): table for table in TPC}, {"v"})


def test_an_embedded_engine_has_no_views() -> None:
    engine = Engine()
    engine.execute("CREATE TABLE NATION (K INTEGER PRIMARY KEY)")
    for sql in ("CREATE VIEW v AS SELECT K FROM NATION WITH (response_time = '1s')", "DROP VIEW v"):
        with pytest.raises(SqlError, match="embedded engine"):
            engine.execute(sql)


def test_a_view_that_could_not_be_written_again_is_refused() -> None:
    columns = ", ".join(f"a_long_column_name_{i} INT" for i in range(140))
    wide = table_of(f"CREATE TABLE W ({columns}, K INT PRIMARY KEY)")
    with pytest.raises(SqlError, match="too long"):
        view_of("CREATE VIEW v AS SELECT * FROM W a_longer_alias", [wide])


# -- writing -----------------------------------------------------------------------------------------------


@given(views())
@settings(max_examples=100, deadline=None)
def test_a_view_is_written_as_it_is_read(sql: str) -> None:
    view = view_of(sql, TABLES)
    text = create_text(view)
    again = view_of(text, TABLES)
    assert again == view
    assert create_text(again) == text
    assert len(text) <= MAXIMUM_CHARACTERS


@pytest.mark.parametrize(
    "select",
    [
        'x."from" AS "where", y.K AS "a""b" FROM "select" x JOIN "select" AS "group" ON x.K = "group"."from", '
        '"select" y WHERE y.K = x.K',
        "COUNT(*) AS n, SUM(COST) FROM PARTSUPP WHERE COST > 1e16 AND COST < 1.7976931348623157e308 AND COST <> 0.1",
        "COUNT(*) FROM PARTSUPP WHERE K < 9223372036854775807 AND K > -9223372036854775808",
        "COUNT(*) FROM PARTSUPP WHERE K <> 9007199254740993 AND K <> 99999999999999999999",
        "COUNT(*) FROM PARTSUPP WHERE COST > 5e-324 AND COST <> 0.30000000000000004 AND COST <> -0.0",
        "NAME FROM SUPPLIER WHERE NAME <> 'it''s \"quoted\" \\n -- no comment /* nor this */'",
    ],
)
def test_odd_names_and_constants_are_written_as_they_are_read(select: str) -> None:
    view = read(f"CREATE VIEW v AS SELECT {select}")
    assert read(create_text(view)) == view


@given(st.floats(0.001, 86400))
@example(0.0015)
def test_response_times_are_written_as_they_are_read(seconds: float) -> None:
    view = read(f"CREATE VIEW v AS SELECT K FROM NATION WITH (response_time = '{seconds!r}s')")
    assert view.response_time_s == seconds
    assert read(create_text(view)).response_time_s == seconds


# -- strangers ---------------------------------------------------------------------------------------------

_SIGNS = """( ) , ; . * = < > ? ' " OR NOT NULL LEFT JOIN USING WITH AS SELECT FROM DROP VIEW CAST ||"""
_PIECES = st.sampled_from(f"{CHEAPEST} {_SIGNS}".split())


@given(st.lists(_PIECES, max_size=40).map(" ".join))
@settings(max_examples=300, deadline=None)
def test_nonsense_is_refused(text: str) -> None:
    for sql in (f"CREATE VIEW {text}", f"CREATE VIEW v AS SELECT {text} WITH (response_time = '1s')"):
        _read_or_refuse(sql)


@given(st.integers(0, len(CHEAPEST) - 1), st.integers(0, 12), st.text(string.printable, max_size=4))
@settings(max_examples=300, deadline=None)
def test_a_view_with_a_piece_exchanged_is_read_or_refused(at: int, length: int, instead: str) -> None:
    _read_or_refuse(CHEAPEST[:at] + instead + CHEAPEST[at + length :])


def _read_or_refuse(sql: str) -> None:
    try:
        statement = parse_statement(sql)
        if isinstance(statement, CreateView):
            view = bind_view(statement, {fold(table.name): table for table in TPC})
            view.check()
            assert read(create_text(view)) == view
    except HullcastError:
        pass
