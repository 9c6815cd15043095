"""Text from strangers: limits hold before parsing, and nothing but a UsageError ever comes out."""

from __future__ import annotations

import logging
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.sql.create import parse_statement
from hullcast.network.wire.errors import SqlError, UsageError
from tests.broker.sql.test_subscription import parse

VALID = [
    "SELECT MIN(PER) AS m FROM Stock s WHERE s.RISK BETWEEN ? AND -5e3 AND (SECTOR = 'TECH')",
    "SELECT DISTINCT SECTOR FROM Stock WHERE AT > TIMESTAMP '2024-01-01 00:00:00' AND ? >= AT",
    "SELECT COUNT(*) FROM Stock WHERE VOLUME = 3 AND PER < 1.5",
    "SELECT r.*, s.d FROM r JOIN s USING (c) WHERE r.a >= ? AND d < 7",
    "SELECT a FROM r JOIN s ON ABS(s.b - r.b) <= ? WHERE a BETWEEN 1 AND 2",
    "SELECT a FROM r, s WHERE s.at BETWEEN r.at - 5 AND r.at + ?",
    "CREATE TABLE t (k TEXT NOT NULL, v VARCHAR(10), at TIMESTAMP, PRIMARY KEY (k))",
    "DROP TABLE t",
]
OTHER_WORDS = """
    ( ) , ; . * ? - + / % = < > <> || :: -> [ ] { } ' " ` -- /* */ :a @a $1 ?1 0x1F 1e999 NULL TRUE NOT OR IN
    IS LIKE CASE WHEN THEN END CAST AS GROUP BY HAVING ORDER LIMIT OFFSET UNION ALL WITH RECURSIVE OVER FILTER
    EXISTS VALUES INTERVAL LEFT NATURAL LATERAL UNNEST PIVOT INSERT UPDATE DELETE DEFAULT CHECK REFERENCES
    COLLATE ESCAPE MATCH GLOB REGEXP STRUCT MAP ARRAY DECIMAL
"""
WORDS = sorted({word for sql in VALID for word in sql.split()}) + OTHER_WORDS.split()


def check(sql: str) -> None:
    """Both parsers either read the text or raise a UsageError with a message of one line."""
    for read in (parse, parse_statement):
        message = ""
        try:
            read(sql)
        except UsageError as error:
            message = str(error)
        assert "\n" not in message
        assert "sqlglot" not in message or "sqlglot" in sql  # the names of its classes help nobody


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT MIN(PER) FROM Stock WHERE RISK BETWEEN 20", "`20`: something is missing here (line 1, column 48)"),
        ("SELECT MIN(PER) FROM Stock WHERE RISK <", "`<`: something is missing here (line 1, column 39)"),
        ("SELECT MIN(PER) FROM Stock WHERE RISK > 3 4", "`4`: this was not expected here (line 1, column 43)"),
    ],
)
def test_what_does_not_parse_is_refused_in_words_and_with_its_place(sql: str, says: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(sql)
    assert str(caught.value).startswith(says)


@given(st.text(max_size=200))
def test_arbitrary_text_is_refused_politely(text: str) -> None:
    check(text)
    check("SELECT " + text)
    check("SELECT PER FROM Stock WHERE " + text)
    check("CREATE TABLE t (" + text)


@settings(max_examples=400)
@given(st.lists(st.sampled_from(WORDS), max_size=25), st.sampled_from(["", "SELECT", "CREATE TABLE t (", "DROP"]))
def test_words_in_any_order_are_read_or_refused_politely(words: list[str], start: str) -> None:
    check(" ".join([start, *words]))


@settings(max_examples=400)
@given(st.data(), st.sampled_from(VALID))
def test_mutated_sql_is_read_or_refused_politely(data: st.DataObject, sql: str) -> None:
    words = sql.replace("(", " ( ").replace(")", " ) ").split()
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(words) - 1))
        words[place : place + data.draw(st.integers(0, 2))] = data.draw(st.lists(st.sampled_from(WORDS), max_size=2))
        words = words or ["SELECT"]
    check(" ".join(words))


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT PER FROM Stock" + " " * 4096, "characters; at most 4,096"),
        ("SELECT " + "PER," * 300 + "PER FROM Stock", "words and signs; at most 512"),
        ("SELECT PER FROM Stock WHERE " + "(" * 17 + "PER > 1" + ")" * 17, "more than 16 deep"),
        ("SELECT PER FROM Stock WHERE " + "f(" * 200, "more than 16 deep"),
        ("SELECT PER FROM Stock WHERE " + "NOT " * 400 + "PER > 1", "nested too deeply|turn the comparison"),
        ("SELECT PER FROM Stock WHERE PER > " + "- " * 450 + "1 + 1", "nested too deeply|arithmetic"),
        ("SELECT PER FROM Stock WHERE " + "CASE WHEN " * 200, "accepted: SELECT|nested too deeply"),
        ("SELECT " + "1 + " * 250 + "1 FROM Stock", "expressions are not supported"),
        ("SELECT PER FROM Stock WHERE PER > " + "1 + " * 240 + "1", "arithmetic"),
        ("SELECT PER FROM Stock WHERE " + "PER > 1 OR " * 120 + "PER", "not supported"),
        ("SELECT " + "a." * 240 + "a FROM Stock", "accepted|table.column"),
        ("", "empty"),
        (" ; ;", "empty"),
        ("-- nothing", "empty"),
        ("SELECT 'open FROM Stock", "close every quote"),
        ("SELECT PER FROM Stock /* open", "close every quote"),
        ("SELECT PER\0 FROM Stock", "NUL"),
        ("SELECT PER FROM Stock WHERE SECTOR = '\ud800'", "surrogate"),
        ("SELECT PER FROM Stock WHERE", "accepted: SELECT"),
        ("SELECT PER FROM Stock WHERE PER > ?1", r"are written as \?"),
    ],
)
def test_limits_hold_and_errors_say_so(sql: str, reason: str) -> None:
    started = time.perf_counter()
    with pytest.raises(SqlError, match=reason) as caught:
        parse(sql)
    assert time.perf_counter() - started < 2  # generous: the point is that nothing is exponential
    assert len(str(caught.value)) < 600


def test_a_long_conjunction_within_the_limits_is_read() -> None:
    sql = "SELECT PER FROM Stock WHERE " + " AND ".join(f"PER > {n}" for n in range(120))
    assert parse(sql).bind().low[0, 0] > 119
    nested = "SELECT PER FROM Stock WHERE " + "(" * 16 + "PER >= 1" + ")" * 16
    assert parse(nested).bind().low.tolist() == [[1.0]]


def test_sql_that_is_no_text_is_refused() -> None:
    with pytest.raises(SqlError, match="must be a str"):
        parse(b"SELECT PER FROM Stock")  # type: ignore[arg-type]  # what an untyped caller may do


def test_nothing_a_stranger_writes_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for sql in (
            "EXPLAIN SELECT 1",
            "SELECT PER FROM Stock WHERE PER -> '[1.5]' > 1",
            "CREATE STREAM x",
            "SELECT PER FROM Stock FOR UPDATE",
            "CREATE TEMP TABLE t (a)",
        ):
            check(sql)
    assert not caplog.records
