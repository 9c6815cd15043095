"""From the statement of a derived stream to what the streams process is told: its terms, and where it begins."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.streams.batch import StreamMoment, stretches
from hullcast.broker.streams.definition import start_of, terms_of
from hullcast.broker.streams.messages import QueryTerms, TimeWord
from hullcast.broker.streams.operators.windows import StreamWindow
from tests.support.stream_oracle import moment

SECOND = 1_000_000.0


def engine() -> ServedEngine:
    made = ServedEngine()
    made.execute("CREATE STREAM TRADES (TS TIMESTAMP, SYMBOL TEXT, PRICE REAL)")
    made.execute("CREATE STREAM QUOTES (TS TIMESTAMP, SYMBOL TEXT, BID REAL)")
    made.execute("CREATE STREAM PLAIN (SYMBOL TEXT, N INTEGER)")
    made.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, RISK REAL)")
    return made


def derived(made: ServedEngine, select: str) -> QueryTerms:
    made.execute(f"CREATE STREAM D AS {select}")
    return terms_of(made.tables["D"], made.catalogue.stores)


def test_a_window_join_is_told_with_its_constants() -> None:
    terms = derived(
        engine(),
        "SELECT q.BID, t.TS FROM TRADES [ROWS 1000] t JOIN QUOTES [RANGE '10s'] q ON t.SYMBOL = q.SYMBOL "
        "WHERE t.PRICE BETWEEN 1 AND 2 AND q.BID >= 3 AND t.SYMBOL = 'IBM' WITH (memory = 50)",
    )
    assert terms.right is not None
    assert (terms.left.life.table.name, terms.left.time, terms.left.window) == ("TRADES", 0, StreamWindow(rows=1000.0))
    assert (terms.left.columns, terms.left.boxes) == ((1, 2), ((("IBM", "IBM"), (1.0, 2.0)),))
    assert (terms.right.life.table.name, terms.right.window) == ("QUOTES", StreamWindow(range=10 * SECOND))
    assert (terms.right.columns, terms.right.boxes) == ((2,), (((3.0, inf),),))
    assert (terms.equal, terms.out, terms.memory) == (((1, 1),), ((1, 2), (0, 0)), 50)


def test_a_table_is_the_right_side_wherever_it_stands() -> None:
    terms = derived(
        engine(), "SELECT s.RISK, p.N FROM STOCK s JOIN PLAIN p ON s.SYMBOL = p.SYMBOL WHERE RISK > 1 AND N = 4"
    )
    assert terms.right is not None
    assert (terms.left.life.table.name, terms.left.columns, terms.left.boxes) == ("PLAIN", (1,), (((4.0, 4.0),),))
    assert (terms.right.life.table.name, terms.right.is_table) == ("STOCK", True)
    assert (terms.equal, terms.out) == (((0, 0),), ((1, 1), (0, 1)))


def test_a_condition_that_nothing_meets_lets_nothing_pass() -> None:
    terms = derived(engine(), "SELECT N FROM PLAIN WHERE SYMBOL = 'a' AND SYMBOL = 'b'")
    assert (inf, -inf) in terms.left.boxes[0]


def test_a_new_join_begins_where_it_was_created_with_its_windows_as_of_the_slower_stream() -> None:
    made = engine()
    made.upsert("TRADES", [{"TS": moment(at), "SYMBOL": "a"} for at in (1, 5, 12)])  # 1 to 3
    made.upsert("QUOTES", [{"TS": moment(at), "SYMBOL": "a"} for at in (4, 10)])  # 4, 5
    made.upsert("TRADES", [{"TS": moment(at), "SYMBOL": "a"} for at in (12, 20)])  # 6, 7
    terms = derived(made, "SELECT t.TS FROM TRADES [ROWS 2] t JOIN QUOTES [RANGE '10s'] q ON t.SYMBOL = q.SYMBOL")
    start = start_of(terms, made.streams, None, 7, 7)
    assert (start.seq, start.after) == (7, None)
    assert start.bases == (
        StreamMoment(-inf, 0),
        StreamMoment(-inf, 3),
    )  # of TRADES 1 and 2 are consumed, of QUOTES 4 and 5


def test_a_join_with_results_goes_on_behind_the_tuple_that_made_the_last_one() -> None:
    made = engine()
    made.upsert("TRADES", [{"TS": moment(at), "SYMBOL": "a"} for at in (1, 5, 12)])  # 1 to 3
    made.upsert("QUOTES", [{"TS": moment(at), "SYMBOL": "a"} for at in (4, 10, 30)])  # 4 to 6
    made.progress("TRADES", moment(40))
    terms = derived(made, "SELECT t.TS FROM TRADES [ROWS 1] t JOIN QUOTES [RANGE '7s'] q ON t.SYMBOL = q.SYMBOL")
    trades, quotes = made.streams["trades"].order, made.streams["quotes"].order
    start = start_of(terms, made.streams, 3, 0, 6)
    assert (start.seq, start.after) == (6, StreamMoment(trades.times[2], 3))
    assert start.bases == (StreamMoment(trades.times[1], 2), StreamMoment(quotes.times[0], 4))
    assert start.words == ((TimeWord(6, trades.time),), ())


def test_a_stream_without_time_goes_on_by_position() -> None:
    made = engine()
    made.upsert("PLAIN", [{"N": n} for n in range(5)])
    terms = derived(made, "SELECT x.N FROM PLAIN [ROWS 2] x JOIN TRADES [ROWS 3] y ON x.SYMBOL = y.SYMBOL")
    start = start_of(terms, made.streams, 4, 0, 5)
    assert (start.after, start.bases) == (StreamMoment(0.0, 4), (StreamMoment(0.0, 2), StreamMoment(0.0, 0)))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(1, 10))
def test_results_are_cut_between_those_of_different_tuples_only(sizes: list[int], at_once: int) -> None:
    at = np.repeat(np.arange(len(sizes)), sizes)
    found = stretches(at, at_once)
    assert [one for rows in found for one in at[rows].tolist()] == at.tolist()
    assert all(at[before.stop - 1] != at[rows.start] for before, rows in pairwise(found))
    for rows in found:
        assert rows.stop - rows.start <= at_once or len(set(at[rows].tolist())) == 1
