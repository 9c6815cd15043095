"""Channels opened and first answers taken while rows change: in slices, they end with what SQL says at the end."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from hullcast.broker.engine import engine as engine_module
from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.reformulate import first as first_module
from hullcast.broker.reformulate.channel import Attended
from hullcast.broker.reformulate.first import (
    Boxes,
    JoinSide,
    pairs_in_boxes,
    rows_in_boxes,
    states_in_boxes,
    values_in_boxes,
)
from hullcast.broker.scheduling.driver import finish
from hullcast.network.answers.events import Change, Resync
from hullcast.network.wire.errors import TooLarge
from tests.support.engines import attend

TABLES = (
    "CREATE TABLE R (K INTEGER PRIMARY KEY, X REAL, Y REAL, S TEXT, G INTEGER)",
    "CREATE TABLE Q (K INTEGER PRIMARY KEY, X REAL, Y REAL)",
)
QUERIES = (
    "SELECT MIN(Y) FROM R WHERE X BETWEEN ? AND ?",
    "SELECT MAX(Y) FROM R WHERE X BETWEEN ? AND ? AND S = 's1' AND G = 2",
    "SELECT DISTINCT S FROM R WHERE X BETWEEN ? AND ? AND G = 1",
    "SELECT COUNT(*) FROM R WHERE X BETWEEN ? AND ? AND S = 's1' AND G = 2",
    "SELECT SUM(Y) FROM R WHERE X BETWEEN ? AND ?",
    "SELECT K, S FROM R WHERE X BETWEEN ? AND ? AND S = 's0'",
    "SELECT R.K, Q.K FROM R JOIN Q USING (X) WHERE R.Y BETWEEN ? AND ?",
    "SELECT R.K, Q.K FROM R JOIN Q ON Q.X - R.X BETWEEN ? AND ?",
    "SELECT R.K, T.K FROM R JOIN R T ON R.X = T.Y WHERE R.Y BETWEEN ? AND ?",
    "SELECT R.K, T.K FROM R JOIN R T ON T.Y - R.Y BETWEEN ? AND ? WHERE T.S = 's1'",
)


def change(engine: ServedEngine, chance: random.Random) -> None:
    """One small batch of something."""
    table = chance.choice("RQ")
    keys = [chance.randrange(40) for _ in range(chance.randrange(1, 4))]
    if chance.random() < 0.3:
        engine.delete(table, keys)
        return
    rows: list[dict[str, Any]] = [{"K": key, "X": chance.randrange(6), "Y": chance.randrange(4)} for key in keys]
    for row in rows:
        if chance.random() < 0.1:
            row["X"] = None
        if table == "R":
            row |= {"S": f"s{chance.randrange(3)}", "G": chance.choice([1, 2, None])}
    engine.upsert(table, rows)


def expected(engine: ServedEngine, sql: str, low: int, high: int) -> Any:
    rows = engine.query(sql.replace("?", "{}").format(low, high))
    if sql.startswith(("SELECT K", "SELECT R")):
        return sorted(tuple(row) for row in rows)
    return {row[0] for row in rows} if "DISTINCT" in sql else rows[0][0]


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("seed", range(6))
def test_a_channel_opened_while_rows_change_is_as_one_opened_at_the_end(
    sql: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "LOADED_AT_ONCE", 1 + seed)
    chance = random.Random(seed)
    engine = ServedEngine()
    for table in TABLES:
        engine.execute(table)
    for _ in range(30):
        change(engine, chance)
    work = engine.attending(sql, [[0], [3]])
    attended: Attended | None = None
    while attended is None:
        try:
            next(work)
        except StopIteration as stop:
            attended = stop.value
        else:
            change(engine, chance)
    for _ in range(10):
        change(engine, chance)
    subscription = engine.subscribe(sql, 0, 3)
    for _ in range(20):
        answer = subscription.answer
        found = sorted(tuple(row) for row in answer) if isinstance(answer, list) else answer
        assert found == expected(engine, sql, 0, 3)
        change(engine, chance)
    for keeper in getattr(attended.channel, "keepers", [getattr(attended.channel, "keeper", None)]):
        if keeper is not None:
            keeper.tree.check()


def test_a_table_cannot_be_dropped_under_a_channel_that_is_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "LOADED_AT_ONCE", 1)
    engine = ServedEngine()
    engine.execute(TABLES[0])
    engine.upsert("R", [{"K": key, "X": 1, "Y": 1} for key in range(3)])
    work = engine.attending(QUERIES[0], [[0], [3]])
    next(work)
    with pytest.raises(ValueError, match="R"):
        engine.execute("DROP TABLE R")
    work.close()
    engine.execute("DROP TABLE R")


@pytest.mark.parametrize("seed", range(20))
def test_boxes_select_what_plain_loops_select(seed: int) -> None:
    chance = np.random.default_rng(seed)
    n, m = int(chance.integers(0, 60)), int(chance.integers(0, 20))
    columns = [chance.integers(0, 5, n).astype(float) for _ in range(2)]
    columns[0][chance.random(n) < 0.1] = np.nan
    y = np.where(chance.random(n) < 0.2, np.nan, chance.integers(0, 4, n))
    low = chance.integers(0, 4, (m, 2)).astype(float)
    high = low + chance.integers(0, 3, (m, 2)).astype(float)
    never = chance.random(m) < 0.1
    boxes = Boxes.of(low, high, never)
    inside = [
        [row for row in range(n) if not never[i] and all(low[i, d] <= columns[d][row] <= high[i, d] for d in range(2))]
        for i in range(m)
    ]
    of, rows = rows_in_boxes(columns, n, boxes)
    assert [sorted(rows[of == i].tolist()) for i in range(m)] == inside
    assert of.tolist() == sorted(of.tolist())
    of, values = values_in_boxes(columns, y, boxes)
    for i in range(m):
        assert {repr(float(value)) for value in values[of == i]} == {repr(float(y[row])) for row in inside[i]}
    state = states_in_boxes(columns, y, boxes)
    for i in range(m):
        present = [float(y[row]) for row in inside[i] if y[row] == y[row]]
        assert (state[i, 0], state[i, 1]) == (len(present), sum(present))


@pytest.mark.parametrize("band", [None, 2])
@pytest.mark.parametrize("seed", range(40))
def test_boxes_select_the_pairs_that_plain_loops_select(seed: int, band: int | None) -> None:
    chance = np.random.default_rng(seed)
    m = int(chance.integers(0, 20))
    sides, whole = [], bool(chance.random() < 0.5)
    for dimensions in [[0, 3], [1, 4]] if seed % 3 else [[0, 1, 3], []]:
        n = int(chance.integers(0, 40))
        columns = [chance.integers(0, 5, n).astype(float) for _ in range(1 + len(dimensions))]
        for column in columns:
            column[chance.random(n) < 0.1] = np.nan
        if whole and seed % 2:  # whole numbers whose difference is no float64
            columns[0] = columns[0] * chance.choice([2.0**53, -(2.0**53)], n) + chance.integers(-1, 1, n)
        sides.append(JoinSide(columns[1:], dimensions, columns[0]))
    low = chance.integers(0, 4, (m, 5)).astype(float)
    high = low + chance.integers(0, 3, (m, 5)).astype(float)
    low[chance.random((m, 5)) < 0.3], high[chance.random((m, 5)) < 0.3] = -np.inf, np.inf
    low[:, 2], high[:, 2] = (low[:, 2] - 3, high[:, 2] - 3) if band is not None else (0, 0)
    never = chance.random(m) < 0.1
    of, (lefts, rights) = pairs_in_boxes((sides[0], sides[1]), band, Boxes.of(low, high, never), whole=whole)
    assert of.tolist() == sorted(of.tolist())

    def inside(i: int, side: JoinSide, row: int) -> bool:
        columns = zip(side.columns, side.dimensions, strict=True)
        return all(low[i, d] <= column[row] <= high[i, d] for column, d in columns)

    def met(i: int, left: float, right: float) -> bool:
        if band is None or np.isnan([left, right]).any():
            return left == right
        difference = int(right) - int(left) if whole else right - left
        return bool(low[i, band] <= difference <= high[i, band])

    for i in range(m):
        pairs = [
            (left, right)
            for left in range(len(sides[0].join))
            for right in range(len(sides[1].join))
            if not never[i]
            and inside(i, sides[0], left)
            and inside(i, sides[1], right)
            and met(i, sides[0].join[left], sides[1].join[right])
        ]
        assert sorted(zip(lefts[of == i].tolist(), rights[of == i].tolist(), strict=True)) == pairs


def test_equal_boxes_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand equal ranges over ten thousand rows: a billion looks if each were taken by itself."""
    n = 10_000
    x = np.arange(n, dtype=float)
    boxes = Boxes.of(np.full((100_000, 1), 20.0), np.full((100_000, 1), 24.0))
    monkeypatch.setattr(first_module, "MOST_LOOKS", n)
    assert len(boxes.low) == 1
    of, rows = rows_in_boxes([x], n, boxes)
    assert len(of) == 500_000
    assert set(rows.tolist()) == set(range(20, 25))
    assert states_in_boxes([x], x, boxes)[:, 0].tolist() == [5.0] * 100_000


def test_empty_ranges_do_not_hide_the_work_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are counted before they are bounded: an empty range must not count for less than nothing."""
    n = 1000
    x = np.arange(n, dtype=float)
    some = np.arange(20, dtype=float)
    low = np.column_stack((np.where(some % 2, -np.inf, np.inf), -some))
    high = np.column_stack((-low[:, 0], np.full(20, np.inf)))
    boxes = Boxes.of(low, high)
    monkeypatch.setattr(first_module, "MOST_LOOKS", 5 * n)
    for look in (
        lambda: rows_in_boxes([x, x], n, boxes),
        lambda: values_in_boxes([x, x], x, boxes),
        lambda: states_in_boxes([x, x], x, boxes),
    ):
        with pytest.raises(TooLarge, match="rows to look at"):
            look()


@pytest.mark.parametrize("sql", [QUERIES[4], QUERIES[5], QUERIES[6]])
def test_many_wide_ranges_over_a_small_table_are_known_to_be_much_work(sql: str) -> None:
    """A thousand ranges that each hold all of nine hundred rows took a fifth of a second, and were held for little."""
    engine = ServedEngine()
    for table in TABLES:
        engine.execute(table)
    engine.upsert("R", {"K": np.arange(900)})
    engine.upsert("Q", {"K": [0]})
    attended: Attended = finish(engine.attending(sql, [np.arange(1000.0), np.arange(1000.0)], 1000))
    assert attended.channel.capture_cost(1000) >= 900_000


def test_first_answers_end_before_they_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ServedEngine()
    for table in TABLES:
        engine.execute(table)
    keys = np.arange(3000)
    for table in "RQ":
        engine.upsert(table, {"K": keys, "X": keys.astype(float), "Y": keys.astype(float)})
    wide: Attended = finish(engine.attending(QUERIES[7], [[-1e9], [1e9]]))  # nine million pairs
    with pytest.raises(TooLarge, match="rows in first answers"):
        wide.channel.first(wide.predicates)
    narrow: Attended = finish(engine.attending(QUERIES[7], [[0], [0]]))
    assert len(np.asarray(narrow.channel.first(narrow.predicates)["of"])) == 3000
    monkeypatch.setattr(first_module, "MOST_LOOKS", 5000)
    with pytest.raises(TooLarge, match="rows to look at"):
        narrow.channel.first(narrow.predicates)


def test_a_band_that_was_refused_is_no_longer_described() -> None:
    engine = ServedEngine()
    for table in TABLES:
        engine.execute(table)
    narrow: Attended = attend(engine, QUERIES[7], [[0], [1]])
    wide: Attended = finish(engine.attending(QUERIES[7], [[-1e9], [1e9]]))
    engine.upsert("Q", [{"K": 1, "X": 1.0}, {"K": 5, "X": 5.0}])
    points = narrow.channel.points_elsewhere(wide.predicates)
    narrow.channel.want(points)
    assert len(engine.upsert("R", {"K": 0, "X": 0.0}).messages[narrow.channel.name]) == 2
    narrow.channel.forgo(points)
    assert len(engine.upsert("R", {"K": 2, "X": 0.0}).messages[narrow.channel.name]) == 1


def test_a_batch_that_meets_too_many_rows_makes_everybody_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hullcast.broker.reformulate.join.MOST_PAIRS", 50)
    engine = ServedEngine()
    for table in TABLES:
        engine.execute(table)
    subscription = engine.subscribe(QUERIES[7], -1e9, 1e9)
    other = engine.subscribe(QUERIES[7], 0, 0)
    engine.upsert("R", {"K": np.arange(10), "X": np.arange(10.0)})
    engine.upsert("Q", {"K": np.arange(5), "X": np.arange(5.0)})
    assert [type(event).__name__ for event in subscription.drain()] == ["Change"] * 5
    engine.upsert("Q", {"K": np.arange(10, 20), "X": np.arange(10.0)})  # a hundred pairs
    (event,) = subscription.drain()
    assert isinstance(event, Resync)
    assert len(event.answer) == len(subscription.answer) == 150
    assert len(other.answer) == 15
    engine.upsert("Q", [{"K": 3, "X": None}])
    (change,) = subscription.drain()
    assert isinstance(change, Change)
    assert len(change.left) == 10
