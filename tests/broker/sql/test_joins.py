"""Joins: how tables meet, what names mean in them, and the band on the right column minus the left."""

from __future__ import annotations

from datetime import timedelta
from math import inf, nextafter

import numpy as np
import pytest

from hullcast.broker.sql.query import JoinOn, Ref
from hullcast.network.answers.kinds import KINDS
from hullcast.network.wire.errors import BadParameter, SqlError, UnknownColumn, UnknownTable
from tests.broker.sql.test_subscription import parse

# r: k:I a:R b:R c:T at:D n:I          s: k:I c:T b:R d:R at:D m:I


@pytest.mark.parametrize(
    ("tail", "left", "right"),
    [
        ("r JOIN s USING (c)", 3, 1),
        ("r INNER JOIN s USING (C)", 3, 1),
        ("r JOIN s ON r.c = s.c", 3, 1),
        ("r JOIN s ON (s.c = r.c)", 3, 1),
        ("r x JOIN s AS y ON x.n = y.d", 5, 3),
        ("r, s WHERE n = m", 5, 5),
        ("r CROSS JOIN s WHERE r.at = s.at", 4, 4),
        ("r JOIN s WHERE r.b = s.m", 2, 5),
        ("r JOIN s USING (c) WHERE r.c = s.c", 3, 1),
    ],
)
def test_tables_meet_in_equal_columns(tail: str, left: int, right: int) -> None:
    query = parse(f"SELECT a, d FROM {tail}")
    assert query.shape.kind is KINDS["JOIN"]
    assert query.shape.tables == ("r", "s")
    assert query.shape.on == JoinOn(left, right, band=False)
    assert query.shape.projection == (Ref(0, 1), Ref(1, 3))
    assert query.shape.dimensions == 0


def test_a_join_has_a_box_over_both_tables_and_partitions() -> None:
    query = parse("SELECT a, d FROM r JOIN s USING (c) WHERE d < 7 AND r.a BETWEEN ? AND ? AND c = ? AND m = 3")
    assert query.shape.ranges == (Ref(0, 1), Ref(1, 3))
    assert query.shape.partition == (Ref(0, 3), Ref(1, 5))
    bound = query.bind((1, 2, "x"))
    assert bound.low.tolist() == [[1.0, -inf]]
    assert bound.high.tolist() == [[2.0, nextafter(7, -inf)]]
    assert bound.partition == (["x"], [3.0])


@pytest.mark.parametrize("tail", ["r x JOIN r y ON x.b = y.b", "r x, r AS y WHERE y.b = x.b", "r x JOIN r y USING (b)"])
def test_a_table_joined_with_itself_is_two_by_its_aliases(tail: str) -> None:
    shape = parse(f"SELECT x.a, y.a, y.c FROM {tail}").shape
    assert shape.tables == ("r", "r")
    assert shape.on == JoinOn(2, 2, band=False)
    assert shape.projection == (Ref(0, 1), Ref(1, 1), Ref(1, 3))
    turned = parse("SELECT a.a FROM r a JOIN r b ON a.b - b.b BETWEEN 1 AND 2 AND b.n > 3 AND a.c = 'v'")
    assert turned.shape.on == JoinOn(2, 2, band=True)
    assert (turned.shape.ranges, turned.shape.partition) == ((Ref(1, 5),), (Ref(0, 3),))
    assert (turned.bind().low.tolist(), turned.bind().high.tolist()) == ([[nextafter(3, inf), -2]], [[inf, -1]])


def test_stars_list_the_left_table_then_the_right_and_a_using_column_once() -> None:
    using = parse("SELECT * FROM r JOIN s USING (c)")
    assert " ".join(using.columns) == "k a b c at n k b d at m"
    on = parse("SELECT * FROM r JOIN s ON r.c = s.c")
    assert " ".join(on.columns) == "k a b c at n k c b d at m"
    query = parse("SELECT y.*, x.a FROM r x JOIN s y USING (c)")
    assert query.shape.projection == (*(Ref(1, place) for place in range(6)), Ref(0, 1))


@pytest.mark.parametrize(
    ("on", "low", "high"),
    [
        ("s.b - r.b BETWEEN -2 AND 3", -2, 3),
        ("(s.b - r.b) BETWEEN -2 AND (3)", -2, 3),
        ("r.b - s.b BETWEEN -2 AND 3", -3, 2),
        ("s.b - r.b <= 3", -inf, 3),
        ("s.b - r.b < 3", -inf, nextafter(3, -inf)),
        ("3 > s.b - r.b", -inf, nextafter(3, -inf)),
        ("r.b - s.b < 3", nextafter(-3, inf), inf),
        ("r.b - s.b >= 3", -inf, -3),
        ("s.b - r.b = 3", 3, 3),
        ("r.b - s.b = 3", -3, -3),
        ("ABS(s.b - r.b) <= 3", -3, 3),
        ("ABS(r.b - s.b) < 3", nextafter(-3, inf), nextafter(3, -inf)),
        ("3 >= abs(s.b - r.b)", -3, 3),
        ("ABS(s.b - r.b) <= -1", inf, -inf),
        ("s.b > r.b", nextafter(0, inf), inf),
        ("r.b > s.b", -inf, nextafter(0, -inf)),
        ("s.b - r.b > 1 AND s.b - r.b <= 5 AND r.b - s.b > -4", nextafter(1, inf), nextafter(4, -inf)),
        ("s.b - r.b BETWEEN 3 AND 2", inf, -inf),
    ],
)
@pytest.mark.parametrize("form", ["FROM r JOIN s ON {}", "FROM r JOIN s WHERE {}", "FROM r, s WHERE {}"])
def test_every_spelling_of_a_band_is_a_range_of_right_minus_left(form: str, on: str, low: float, high: float) -> None:
    query = parse("SELECT a, d " + form.format(on))
    assert query.shape.on == JoinOn(2, 2, band=True)
    assert query.shape.dimensions == 1
    bound = query.bind()
    assert (bound.low.tolist(), bound.high.tolist()) == ([[low]], [[high]])


@pytest.mark.parametrize(
    ("on", "low", "high"),
    [
        ("s.m BETWEEN r.n - 2 AND r.n + 3", -2, 3),
        ("r.n BETWEEN s.m - 2 AND s.m + 3", -3, 2),
        ("s.m <= r.n + 3", -inf, 3),
        ("s.m <= 3 + r.n", -inf, 3),
        ("r.n + 3 >= s.m", -inf, 3),
        ("s.m - 3 <= r.n", -inf, 3),
        ("s.m = r.n + 3", 3, 3),
    ],
)
def test_whole_numbers_may_be_compared_with_a_sum(on: str, low: float, high: float) -> None:
    query = parse(f"SELECT a, d FROM r JOIN s ON {on}")
    assert query.shape.on == JoinOn(5, 5, band=True)
    bound = query.bind()
    assert (bound.low.tolist(), bound.high.tolist()) == ([[low]], [[high]])


@pytest.mark.parametrize(
    "on", ["s.b <= r.b + 3", "s.b BETWEEN r.b - ? AND r.b + ?", "s.b - r.b - 1 > 0", "s.m > r.b + 1"]
)
def test_reals_are_compared_by_their_difference_only(on: str) -> None:
    with pytest.raises(SqlError, match="difference"):
        parse(f"SELECT a FROM r JOIN s ON {on}")


def test_the_difference_is_the_last_dimension_and_parameters_count_as_written() -> None:
    query = parse("SELECT a FROM r JOIN s ON r.b - s.b BETWEEN ? AND ? WHERE d > ? AND ? >= a AND r.c = ?")
    assert query.shape.ranges == (Ref(0, 1), Ref(1, 3))
    assert query.shape.dimensions == 3
    bound = query.bind((1, 2, 3.0, 4, "x"))
    assert bound.low.tolist() == [[-inf, nextafter(3, inf), -2]]
    assert bound.high.tolist() == [[4, inf, -1]]
    assert bound.partition == (["x"],)


def test_a_parameter_may_be_used_for_both_ends_or_negated() -> None:
    query = parse("SELECT a FROM r JOIN s ON ABS(s.m - r.n) < ? AND s.m >= r.n - ? AND s.m - r.n <= -?")
    assert len(query.binder.slots) == 3
    bound = query.bind((5, 2, 1))
    assert (bound.low.tolist(), bound.high.tolist()) == ([[-2]], [[-1]])
    many = query.bind_many((np.array([5, 1]), np.array([2.0, 7.0]), [1, -9]))
    assert many.low.tolist() == [[-2], [nextafter(-1, inf)]]
    assert many.high.tolist() == [[-1], [nextafter(1, -inf)]]


@pytest.mark.parametrize(
    ("parameter", "microseconds"),
    [
        (2, 2e6),
        (4.35, 4_350_000),
        (timedelta(milliseconds=3), 3000),
        (np.timedelta64(3, "ms"), 3000),
        (np.int32(2), 2e6),
        (inf, inf),
    ],
)
def test_a_band_on_timestamps_is_in_microseconds(parameter: object, microseconds: float) -> None:
    query = parse("SELECT a FROM r JOIN s ON s.at - r.at BETWEEN -1.5 AND ?")
    for bound in (query.bind([parameter]), query.bind_many([[parameter]])):
        assert bound.low.tolist() == [[-1_500_000]]
        assert bound.high[0, 0] == microseconds


@pytest.mark.parametrize("parameter", ["5", None, np.timedelta64(1, "M"), np.timedelta64("NaT"), True, float("nan")])
def test_a_duration_is_checked(parameter: object) -> None:
    query = parse("SELECT a FROM r JOIN s ON s.at - r.at < ?")
    with pytest.raises(BadParameter, match=r"s.at - r.at \(TIMESTAMP\)"):
        query.bind([parameter])


def test_a_band_leaves_equalities_as_partitions() -> None:
    shape = parse("SELECT a FROM r JOIN s ON s.b > r.b WHERE n = 3").shape
    assert (shape.ranges, shape.partition, shape.dimensions) == ((), (Ref(0, 5),), 1)


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        (
            "SELECT a FROM r JOIN s",
            "no condition joins the tables",
        ),
        (
            "SELECT a FROM r, s WHERE a > 5",
            "no condition joins the tables",
        ),
        ("SELECT a FROM r NATURAL JOIN s", "NATURAL JOIN is not supported"),
        ("SELECT a FROM r LEFT JOIN s USING (c)", "LEFT JOIN is not supported.*ON s.b - r.b BETWEEN lo AND hi"),
        ("SELECT a FROM r FULL OUTER JOIN s USING (c)", "FULL OUTER JOIN is not supported"),
        ("SELECT a FROM r JOIN s USING (c, k)", "one column"),
        ("SELECT a FROM r JOIN s USING (c) JOIN Stock ON 1 = 1", "at most two tables"),
        ("SELECT a FROM r, s, Stock", "at most two tables"),
        ("SELECT a FROM r JOIN r USING (c)", "own alias"),
        ("SELECT x.a FROM r x JOIN r x USING (c)", "own alias"),
        ("SELECT a FROM r x JOIN r y USING (c)", r"x\.a or y\.a"),
        ("SELECT x.a FROM r x JOIN r y ON x.a = x.b", "one table"),
        ("SELECT a FROM r x JOIN s x USING (c)", "own alias"),
        ("SELECT a FROM r JOIN (SELECT * FROM s) z USING (c)", "plain tables"),
        ("SELECT b FROM r JOIN s USING (c)", r"r\.b or s\.b"),
        ("SELECT c FROM r JOIN s ON r.c = s.c", r"r\.c or s\.c"),
        ("SELECT a FROM r JOIN s USING (c) WHERE k > 3", r"r\.k or s\.k"),
        ("SELECT a FROM r JOIN s ON r.c = s.b", "cannot be joined"),
        ("SELECT a FROM r JOIN s ON r.at = s.b", "cannot be joined"),
        ("SELECT a FROM r JOIN s ON r.at - s.b < 3", "two numbers or two TIMESTAMPs"),
        ("SELECT a FROM r JOIN s ON r.c < s.c", "two numbers or two TIMESTAMPs"),
        ("SELECT a FROM r JOIN s USING (c) WHERE r.k = s.k", "another way"),
        ("SELECT a FROM r JOIN s USING (c) WHERE s.b > r.b", "another way"),
        ("SELECT a FROM r JOIN s ON s.b > r.b AND s.d > r.b", "another way"),
        ("SELECT a FROM r JOIN s ON r.c = s.c OR r.b = s.b", "inside of OR or NOT"),
        ("SELECT a FROM r JOIN s ON s.b + r.b > 3", "arithmetic"),
        ("SELECT a FROM r JOIN s ON s.b - r.b > 3 + 1", "more than one value"),
        ("SELECT a FROM r JOIN s ON s.b * 2 > r.b", "arithmetic"),
        ("SELECT a FROM r JOIN s ON ABS(s.b - r.b) > 3", "upper bound"),
        ("SELECT a FROM r JOIN s ON ABS(s.b - r.b) = 3", "upper bound"),
        ("SELECT a FROM r JOIN s ON ABS(s.b) < 3", "arithmetic"),
        ("SELECT a FROM r JOIN s ON ABS(s.b - r.b) < r.a", "two columns and is compared with one value"),
        ("SELECT a FROM r JOIN s ON ABS(s.b - r.b) BETWEEN 0 AND 3", "one bound"),
        ("SELECT a FROM r JOIN s ON s.at - r.at < INTERVAL '5' SECOND", "number of seconds"),
        ("SELECT a FROM r JOIN s ON s.at - r.at < '5'", "number of seconds"),
        ("SELECT a FROM r JOIN s ON r.b - r.a < 3", "one table"),
        ("SELECT MIN(a) FROM r JOIN s USING (c)", "over a join are not supported"),
        ("SELECT DISTINCT a FROM r JOIN s USING (c)", "over a join are not supported"),
    ],
)
def test_other_joins_are_refused_with_what_would_help(sql: str, hint: str) -> None:
    with pytest.raises(SqlError, match=hint):
        parse(sql)


def test_unknown_names_in_joins_are_named() -> None:
    with pytest.raises(UnknownColumn, match="no column d in r"):
        parse("SELECT a FROM r JOIN s USING (d)")
    with pytest.raises(UnknownColumn, match="no column zz in r, s"):
        parse("SELECT zz FROM r JOIN s USING (c)")
    with pytest.raises(UnknownTable, match="no table q; tables: r, s"):
        parse("SELECT q.a FROM r JOIN s USING (c)")
