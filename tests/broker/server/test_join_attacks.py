"""Joins over streams against those who mean harm, or cannot write SQL: rights, names, numbers, and texts."""

from __future__ import annotations

import pytest

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.sql.create import advance_text, create_text, parse_statement
from hullcast.network.security.rights import Rights
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import SqlError, UnknownTable, UsageError
from tests.broker.server.test_deciding import KEY, ME, Desk, refusal, subscribed

CREATES = (
    "CREATE STREAM R (TS TIMESTAMP, K INTEGER, A REAL)",
    "CREATE STREAM S (TS TIMESTAMP, K INTEGER, B REAL)",
    "CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL)",
)
ON = "FROM R [ROWS 10] r JOIN S [ROWS 10] s ON r.K = s.K"
JOINS = (f"SELECT r.A, s.B {ON}", "SELECT A, V FROM R JOIN T ON R.K = T.K")


def desk_with(**granted: object) -> Desk:
    """An office with streams, a table and a derived stream, asked by a key with these rights."""
    desk = Desk()

    def make_for(sql: str, owner: str) -> None:
        statement = desk.engine.catalogue.join_to_make(sql)
        if statement is not None:
            desk.engine.execute(statement)

    desk.make_for = make_for  # type: ignore[method-assign]
    for sql in (*CREATES, f"CREATE STREAM J AS SELECT r.A, s.B {ON}"):
        desk.execute(sql)
    desk.rights = Rights.parse({"key": [{"name": "somebody", "public": KEY, **granted}]})
    return desk


def subscribing(desk: Desk, sql: str, after: int | None = None) -> object:
    return desk.ask(bodies.Subscribe((bodies.Group(1, sql, (), 1, after=after),)), KEY)


@pytest.mark.parametrize("missing", [{"subscribe": ["R"]}, {"subscribe": ["S", "T", "J"]}, {"publish": ["*"]}])
def test_a_join_needs_the_right_to_both_of_its_sources(missing: dict[str, object]) -> None:
    desk = desk_with(**missing)
    tables = set(desk.engine.tables)
    for sql in JOINS:
        assert "does not have the right" in refusal(subscribing(desk, sql))  # type: ignore[arg-type]  # an Outcome
        assert "does not have the right" in refusal(desk.ask(bodies.Explain(sql, ()), KEY))
    assert set(desk.engine.tables) == tables, "nothing is made for somebody who may not read it"


def test_who_may_read_both_sources_may_read_their_join_and_not_by_its_hidden_name() -> None:
    desk = desk_with(subscribe=["R", "S", "T"])
    for sql in JOINS:
        assert subscribed(subscribing(desk, sql)).groups[0].failed is None  # type: ignore[arg-type]  # an Outcome
    hidden = [name for name in desk.engine.tables if name.startswith("(join")]
    assert len(hidden) == 2
    for name in hidden:
        assert "does not have the right" in refusal(subscribing(desk, f'SELECT * FROM "{name}"'))  # type: ignore[arg-type]
    told = refusal(subscribing(desk, "SELECT * FROM NOPE"))  # type: ignore[arg-type]  # an Outcome
    assert "(join" not in told


def test_a_derived_stream_is_read_by_its_own_right_alone_and_written_by_nobody() -> None:
    desk = desk_with(subscribe=["J"], publish=["J", "R"])
    assert subscribed(subscribing(desk, "SELECT A FROM J WHERE A > 1", after=0)).groups[0].failed is None  # type: ignore[arg-type]
    assert "does not have the right" in refusal(subscribing(desk, "SELECT A FROM R"))  # type: ignore[arg-type]
    assert "derived stream" in refusal(desk.ask(bodies.Execute(advance_text("J", 5e6), ME, 60), KEY))
    for sql in ("CREATE STREAM X AS SELECT A FROM J", "DROP STREAM J", advance_text("S", 5e6)):
        assert "does not have the right" in refusal(desk.ask(bodies.Execute(sql, ME, 61), KEY))
    assert isinstance(desk.ask(bodies.Execute(advance_text("R", 5e6), ME, 62), KEY).reply, bodies.Done)


MANY = "9" * 5000
BAD_WINDOWS = (
    *(f"ROWS {number}" for number in ("0", "-1", "1.5", "1e3", "²", "٣", MANY, "")),
    *(f"RANGE '{length}'" for length in ("-5s", "0s", "nans", "infs", f"{MANY[:400]}d", "1e999s", "")),
    *("ROWS 1; DROP STREAM R", "ROWS 1][ROWS 2", "[" * 500, "ROWS 1, 2", "RANGE 5s"),
)


@pytest.mark.parametrize("window", BAD_WINDOWS, ids=lambda window: window[:20])
def test_bad_windows_are_refused_in_words(window: str) -> None:
    engine = ServedEngine()
    for sql in CREATES:
        engine.execute(sql)
    join = f"SELECT r.A FROM R [{window}] r JOIN S [ROWS 1] s ON r.K = s.K"
    for sql in (join, f"SELECT COUNT(*) FROM R [{window}]"):
        with pytest.raises(UsageError):
            engine.catalogue.join_to_make(sql)
    with pytest.raises(UsageError):
        engine.execute(f"CREATE STREAM X AS {join}")
    assert set(engine.tables) == {"R", "S", "T"}


@pytest.mark.parametrize(
    "terms", [f"memory = {MANY}", "memory = 0", "memory = ٣", f"retain_rows = {MANY}", "retain = ''"]
)
def test_bad_terms_of_a_derived_stream_are_refused_in_words(terms: str) -> None:
    engine = ServedEngine()
    for sql in CREATES:
        engine.execute(sql)
    with pytest.raises(SqlError):
        engine.execute(f"CREATE STREAM X AS SELECT r.A {ON} WITH ({terms})")
    assert set(engine.tables) == {"R", "S", "T"}


@pytest.mark.parametrize("name", ["a b", "[ROWS 1]", "x WITH (y", "a--b", "/*", "select", "ünï", "a'b", "(joined)"])
def test_joins_over_streams_of_any_name_are_made_and_stored(name: str) -> None:
    engine = ServedEngine()
    engine.execute(f'CREATE STREAM "{name}" (TS TIMESTAMP, "{name} 2" REAL)')
    for terms in ("", " WITH (memory = 7)"):
        column = f'"{name} 2"'
        join = f'SELECT l.{column} FROM "{name}" [ROWS 5] l JOIN "{name}" [ROWS 6] r ON l.{column} = r.{column}{terms}'
        statement = engine.catalogue.join_to_make(join)
        assert statement is not None
        engine.execute(statement)
        assert engine.catalogue.join_to_make(join) is None, "it is there"
    engine.execute(advance_text(name, 5e6))
    again = ServedEngine()
    for table in engine.tables.values():
        again.execute(create_text(table))
    assert again.tables == engine.tables


@pytest.mark.parametrize(
    "name", ["R\" TO '2024-01-01T00:00:00' --", "R\" TO '2024-01-01T00:00:00'; DROP STREAM R; --", '"R"']
)
def test_no_name_of_a_heartbeat_is_read_as_anything_else(name: str) -> None:
    engine = ServedEngine()
    engine.execute(CREATES[0])
    statement = parse_statement(advance_text(name, 5e6))
    assert getattr(statement, "name", None) == name
    with pytest.raises(UnknownTable):
        engine.execute(advance_text(name, 5e6))
    assert "r" in engine.streams
