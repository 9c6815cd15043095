"""OR, IN, NOT and <>: boxes of a subscription that never overlap, and hold just the rows that SQL selects."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given

from hullcast.broker.sql.query import Predicates
from hullcast.broker.sql.subscription import ParsedQuery, parse_subscription
from hullcast.broker.tables.schema import Column, ColumnType, Table
from hullcast.network.wire.errors import SqlError, TooLarge
from tests.support import queries
from tests.support.sqlite_oracle import Oracle

T = Table(
    "R",
    tuple(
        Column(name, kind)
        for name, kind in (
            ("K", ColumnType.INTEGER),
            ("A", ColumnType.INTEGER),
            ("B", ColumnType.REAL),
            ("C", ColumnType.TEXT),
            ("D", ColumnType.INTEGER),
            ("T", ColumnType.TIMESTAMP),
        )
    ),
    0,
)


def parse(where: str) -> ParsedQuery:
    return parse_subscription(f"SELECT K FROM R WHERE {where}", {"r": T})


def held(query: ParsedQuery, parameters: tuple[object, ...], row: dict[str, object]) -> int:
    """How many boxes of a subscription hold a row of numbers and texts."""
    found = query.bind(parameters)
    names = [column.name for column in T.columns]
    inside = 0
    for i in range(len(found.low)):
        values = [
            -np.inf if ref in query.shape.nulls and row[names[ref.column]] is None else row[names[ref.column]]
            for ref in query.shape.ranges
        ]
        equal = [row[names[ref.column]] == found.partition[p][i] for p, ref in enumerate(query.shape.partition)]
        within = [value is not None and found.low[i, d] <= value <= found.high[i, d] for d, value in enumerate(values)]
        inside += all(equal) and all(within) and not (found.never is not None and found.never[i])
    return inside


@given(queries.SEEDS)
def test_a_row_that_sql_selects_is_in_one_box_and_any_other_in_none(seed: int) -> None:
    rng = Random(seed)
    named = rng.sample("ABD", rng.randint(1, 2))
    text, parameters = queries.tree(rng, "R", named, "", rng.randint(0, 2))
    if rng.random() < 0.5:
        text, parameters = (
            f"C IN (?, ?) AND ({text})",
            [rng.choice(queries.TEXTS), rng.choice(queries.TEXTS), *parameters],
        )
    query, oracle = parse(text), Oracle({"R": T})
    for key in range(12):
        row = {name: rng.choice([*queries.GRIDS[name], None]) for name in "ABCD"} | {"K": key, "T": None}
        oracle.upsert("R", row)
        wanted = bool(oracle.contents(f"SELECT K FROM R WHERE K = {key} AND ({text})", *parameters))
        assert held(query, tuple(parameters), row) == wanted, (text, parameters, row)


@given(queries.SEEDS)
def test_many_are_bound_as_each_by_itself(seed: int) -> None:
    rng = Random(seed)
    text, parameters = queries.tree(rng, "R", rng.sample("ABD", 2), "", 2)
    query, n = parse(text), rng.randint(0, 4)
    columns = [[rng.choice([0, 1, 2, 0.5]) for _ in range(n)] for _ in parameters]
    many = query.bind_many(columns, n)
    if not columns:
        return
    assert len(many) == n
    for i in range(n):
        mine, alone = many.only(i), query.bind([column[i] for column in columns])
        assert boxes_of(mine) == boxes_of(alone)


def boxes_of(found: Predicates) -> list[tuple[float, ...]]:
    return sorted(map(tuple, np.hstack((found.low, found.high)).tolist()))


@pytest.mark.parametrize(
    ("where", "boxes"),
    [
        ("A IN (1, 1, 2)", [(1, 1), (2, 2)]),
        ("A <> 2", [(-np.inf, np.nextafter(2, 1)), (np.nextafter(2, 3), np.inf)]),
        ("A < 3 OR A > 1", [(-np.inf, np.nextafter(3, 2)), (3, np.inf)]),
        ("NOT (A < 3 OR A > 5)", [(3, 5)]),
        ("A > 5 AND A < 3 OR A = 9 AND A <> 9", [(np.inf, -np.inf)]),
    ],
)
def test_boxes_are_as_few_as_they_can_be(where: str, boxes: list[tuple[float, float]]) -> None:
    found = parse(where).bind()
    assert sorted(zip(found.low[:, 0].tolist(), found.high[:, 0].tolist(), strict=True)) == boxes


def test_values_in_a_list_are_partitions_and_share_the_channel_of_one_value() -> None:
    assert parse("C IN ('a', 'b') AND B > 1").shape == parse("C = 'a' AND B > 1").shape
    assert parse("C = 'a' AND B > 1 OR C = 'b' AND B < 0").bind().partition == (["a", "b"],)


def test_ors_that_multiply_are_refused() -> None:
    with pytest.raises(SqlError, match="more than 1000 alternatives"):
        parse(" AND ".join(["(A > 1 OR A > 2)"] * 10))


def test_alternatives_that_cut_each_other_into_too_many_are_refused() -> None:
    crosses = " OR ".join(f"A = {i} OR B = {i}" for i in range(60))
    with pytest.raises(TooLarge, match="alternatives that do not overlap"):
        parse(crosses).bind()
