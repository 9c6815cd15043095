"""Twenty thousand updates per subscription type, each one checked against every range of a small grid (of joins,
which tests/broker/engine/test_join_machine.py checks too, four thousand); in the slow tests a hundred thousand.

The truth is brute force in NumPy: the state of every row after every update, and every range's answer to it. SQLite
confirms it after each batch. Against it are held, update by update: a stateless subscriber that sees nothing but
the columns of messages and applies the predicate of the notes, and the events of real subscriptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hullcast.broker.engine.engine import Engine
from hullcast.broker.engine.subscriptions import EngineSubscriptions
from hullcast.broker.reformulate.messages import Batch, Messages
from hullcast.network.wire.arrays import Booleans, Floats
from tests.support.sqlite_oracle import Oracle

UPDATES = 100_000
many = pytest.mark.parametrize("updates", [UPDATES // 5, pytest.param(UPDATES, marks=pytest.mark.slow)])
BATCH = 1_000
ROWS = 14
XS, YS = 6, 5
PARTS = np.array(["a", "b", "c"], dtype=object)
ENDS = np.array([(a, b) for a in range(XS) for b in range(a, XS)], np.float64)
X1, X2 = ENDS[:, 0], ENDS[:, 1]
WATCHED = slice(None, None, 2)  # messages are checked for all ranges, events (which are Python's) for half of them


@dataclass
class Step:
    """One batch: the rows' state before each update and after the last, and who was updated.

    `x`, `y`, `part`: (n + 1, rows); `there`: whether the row exists.
    """

    batch: Batch
    keys: NDArray[np.int64]
    there: Booleans
    x: Floats
    y: Floats
    part: Floats

    @property
    def inside(self) -> Booleans:
        """(n + 1, ranges, rows): whether the row is in the range."""
        x = self.x[:, None, :]
        return np.asarray((X1[:, None] <= x) & (x <= X2[:, None]) & self.there[:, None, :])

    @property
    def updates(self) -> NDArray[np.int64]:
        return np.arange(len(self.keys))


class Table:
    """A table T(K, X, Y, P) under random upserts and deletes, in the engine, in SQLite and in NumPy."""

    def __init__(self, seed: int, y_type: str = "INTEGER", name: str = "T") -> None:
        self.rng = np.random.default_rng(seed)
        self.name = name
        self.real = y_type == "REAL"
        self.create = f"CREATE TABLE {name} (K INTEGER PRIMARY KEY, X REAL, Y {y_type}, P TEXT)"
        self.state = np.full((4, ROWS), np.nan)  # there, x, y, part
        self.state[0] = 0.0

    def step(self, engine: Engine, oracle: Oracle, n: int, deletes: bool) -> Step:
        """Apply n random updates in one batch."""
        keys = self.rng.integers(0, ROWS, n)
        history = np.empty((n + 1, 4, ROWS))
        history[0] = self.state
        if deletes:
            batch = engine.delete(self.name, keys)
            given = np.tile(np.array([0.0, np.nan, np.nan, np.nan]), (n, 1))
        else:
            given = np.stack((np.ones(n), *(self._column(n, high) for high in (XS, YS, len(PARTS)))), axis=1)
            if self.real:
                given[:, 2] /= 4
            kept = self.rng.random(n) < 0.4  # the update changes y only
            kept &= self.state[0, keys] > 0
            now = self.state.copy()
            for i, key in enumerate(keys.tolist()):  # resolve what is kept row by row
                if kept[i]:
                    given[i, 1], given[i, 3] = now[1, key], now[3, key]
                now[:, key] = given[i]
            texts = [None if np.isnan(code) else PARTS[int(code)] for code in given[:, 3]]
            columns = {"K": keys, "X": _nullable(given[:, 1]), "Y": _nullable(given[:, 2]), "P": texts}
            batch = engine.upsert(self.name, columns)
        last = np.full((n + 1, ROWS), -1)
        last[np.arange(1, n + 1), keys] = np.arange(n)
        last = np.maximum.accumulate(last, axis=0)
        for row in range(ROWS):
            at = last[:, row]
            history[:, :, row] = np.where((at >= 0)[:, None], given[at], self.state[:, row])
        self.state = history[-1].copy()
        for key in np.unique(keys).tolist():
            there, x, y, part = self.state[:, key].tolist()
            oracle.delete(self.name, key)
            if there:
                values = [None if value != value else value for value in (x, y)]
                text = None if part != part else PARTS[int(part)]
                oracle.upsert(self.name, {"K": key, "X": values[0], "Y": values[1], "P": text})
        assert len(batch) == n
        return Step(batch, keys, history[:, 0] > 0, history[:, 1], history[:, 2], history[:, 3])

    def _column(self, n: int, high: int) -> Floats:
        column = self.rng.integers(0, high, n).astype(float)
        column[self.rng.random(n) < 0.08] = np.nan
        return column


def _nullable(codes: Floats) -> list[float | None]:
    return [None if code != code else code for code in codes.tolist()]


def steps(table: Table, engine: Engine, oracle: Oracle, updates: int) -> Any:
    """So many updates, most of them upserts."""
    done = 0
    while done < updates:
        deletes = table.rng.random() < 0.15
        n = BATCH // 8 if deletes else BATCH
        yield table.step(engine, oracle, n, deletes)
        done += n


def started(table: Table, sql: str, *columns: Any) -> tuple[Engine, Oracle, EngineSubscriptions]:
    engine = Engine()
    engine.execute(table.create)
    subscriptions = engine.subscribe_many(sql, *columns)
    assert len(list(subscriptions)) == len(columns[0])  # made now: see test_subscriptions_may_be_looked_at_late
    return engine, Oracle(engine.tables), subscriptions


def check_with_sqlite(
    subscriptions: EngineSubscriptions, oracle: Oracle, sql: str, parameters: list[tuple[Any, ...]]
) -> None:
    assert [one.answer for one in subscriptions] == [oracle.answer(sql, *each) for each in parameters]


def only(batch: Batch) -> Messages:
    (messages,) = batch.messages.values()
    return messages


def concerned(columns: dict[str, Any], left: str = "INNER_L", right: str = "INNER_R") -> Booleans:
    """(messages, ranges): the predicate of the notes."""
    outer_l, outer_r, inner_l, inner_r = (columns[name][:, None] for name in ("OUTER_L", "OUTER_R", left, right))
    return np.asarray((outer_l < X1) & (inner_l >= X1) & (inner_r <= X2) & (outer_r > X2))


def told_by_events(
    subscriptions: EngineSubscriptions, step: Step
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Any]]:
    """(update, subscription, event) of everything that was heard of a batch."""
    who, what, events = list[int](), list[int](), list[Any]()
    for i, one in enumerate(subscriptions):
        heard = one.drain()
        events += heard
        what += [event.seq - step.batch.first_seq for event in heard]
        who += [i] * len(heard)
    return np.array(what, np.int64), np.array(who, np.int64), events


def number(answer: Any) -> float:
    return np.nan if answer is None else float(answer)


def differs(one: Floats, other: Floats) -> Booleans:
    return np.asarray((one != other) & ~(np.isnan(one) & np.isnan(other)))


# --- MIN and MAX -------------------------------------------------------------------------------------------------


@many
@pytest.mark.parametrize("function", ["MIN", "MAX"])
@pytest.mark.parametrize("by", [False, True], ids=["all", "partitioned"])
def test_each_of_many_updates_tells_just_the_ranges_whose_extremum_changed(
    function: str, by: bool, updates: int
) -> None:
    sign = 1.0 if function == "MIN" else -1.0
    parts = len(PARTS) if by else 1
    sql = f"SELECT {function}(Y) FROM T WHERE X BETWEEN ? AND ?" + (" AND P = ?" if by else "")
    parameters: list[tuple[Any, ...]] = [
        (x1, x2, *([PARTS[p]] if by else [])) for p in range(parts) for x1, x2 in ENDS.tolist()
    ]
    table = Table(1 + by)
    parameters = parameters[WATCHED]
    engine, oracle, subscriptions = started(table, sql, *map(list, zip(*parameters, strict=True)))
    known = np.full(parts * len(ENDS), sign * np.inf)  # what a stateless subscriber believes
    changes = 0
    for step in steps(table, engine, oracle, updates):
        inside = step.inside & ~np.isnan(step.y)[:, None, :]
        truth = np.concatenate(
            [
                np.where(
                    inside & (step.part == p)[:, None, :] if by else inside, sign * step.y[:, None, :], np.inf
                ).min(2)
                for p in range(parts)
            ],
            axis=1,
        )
        truth *= sign
        assert (truth[0] == known).all()
        messages = only(step.batch)
        at = messages.seqs - step.batch.first_seq
        match = np.tile(concerned(messages.columns), (1, parts))
        if by:
            match &= messages.columns["by.P"][:, None] == np.repeat(PARTS, len(ENDS))
        which, whom = np.nonzero(match)
        told = np.zeros((len(step.keys), len(known)), np.int64)
        np.add.at(told, (at[which], whom), 1)
        changed = truth[1:] != truth[:-1]
        assert (told == changed).all(), "told once if the answer changed, else not at all"
        assert (messages.columns[f"NEW{function}"][which] == truth[at[which] + 1, whom]).all()
        known = truth[-1]
        what, who, events = told_by_events(subscriptions, step)
        changed, truth = changed[:, WATCHED], truth[:, WATCHED]
        heard = np.full(changed.shape, np.inf)
        heard[what, who] = [number(event.answer) for event in events]
        assert len(events) == changed.sum()
        assert not differs(heard[changed], np.where(np.isinf(truth[1:]), np.nan, truth[1:])[changed]).any()
        check_with_sqlite(subscriptions, oracle, sql, parameters)
        changes += len(events)
    assert changes > updates // 8


# --- DISTINCT ----------------------------------------------------------------------------------------------------


@many
def test_each_of_many_updates_tells_just_the_ranges_where_a_value_appears_or_vanishes(updates: int) -> None:
    sql = "SELECT DISTINCT Y FROM T WHERE X BETWEEN ? AND ?"
    table = Table(3)
    engine, oracle, subscriptions = started(table, sql, X1[WATCHED], X2[WATCHED])
    parameters = [(x1, x2) for x1, x2 in ENDS[WATCHED].tolist()]
    changes = 0
    for step in steps(table, engine, oracle, updates):
        inside = step.inside
        y = np.where(np.isnan(step.y), YS, step.y)  # NULL is one value more
        truth = np.stack([(inside & (y == value)[:, None, :]).any(2) for value in range(YS + 1)], axis=2)
        messages = only(step.batch)
        at = messages.seqs - step.batch.first_seq
        value = np.array([YS if v is None else v for v in messages.columns["VALUE"]], np.int64)
        appears = messages.columns["APPEARS"]
        which, whom = np.nonzero(concerned(messages.columns, "X", "X"))
        told = np.zeros((*truth[1:].shape, 2), np.int64)
        np.add.at(told, (at[which], whom, value[which], appears[which].astype(int)), 1)
        assert (told[..., 1] == (truth[1:] & ~truth[:-1])).all()
        assert (told[..., 0] == (truth[:-1] & ~truth[1:])).all()
        what, who, events = told_by_events(subscriptions, step)
        told = told[:, WATCHED]
        heard = np.zeros_like(told)
        for t, r, event in zip(what.tolist(), who.tolist(), events, strict=True):
            assert not event.changed
            for v in event.entered:
                heard[t, r, YS if v is None else v, 1] += 1
            for v in event.left:
                heard[t, r, YS if v is None else v, 0] += 1
        assert (heard == told).all()
        assert len(events) == told.any(axis=(2, 3)).sum(), "one event an update, whatever came and went"
        check_with_sqlite(subscriptions, oracle, sql, parameters)
        changes += len(events)
    assert changes > updates // 8


# --- COUNT, SUM, AVG ---------------------------------------------------------------------------------------------


@many
@pytest.mark.parametrize(
    ("what", "y_type"),
    [("COUNT(*)", "INTEGER"), ("COUNT(Y)", "INTEGER"), ("SUM(Y)", "INTEGER"), ("SUM(Y)", "REAL"), ("AVG(Y)", "REAL")],
)
def test_each_of_many_updates_moves_counts_and_sums_by_just_its_part(what: str, y_type: str, updates: int) -> None:
    sql = f"SELECT {what} FROM T WHERE X BETWEEN ? AND ?"
    table = Table(4, y_type)
    engine, oracle, subscriptions = started(table, sql, X1[WATCHED], X2[WATCHED])
    parameters = [(x1, x2) for x1, x2 in ENDS[WATCHED].tolist()]
    folded = np.zeros((2, len(ENDS)))  # rows and sum, of a subscriber who sees only messages
    changes = 0
    for step in steps(table, engine, oracle, updates):
        inside = step.inside
        if what != "COUNT(*)":
            inside = inside & ~np.isnan(step.y)[:, None, :]
        count = inside.sum(2)
        total = np.where(inside, 1.0 if "COUNT" in what else step.y[:, None, :], 0.0).sum(2)
        with np.errstate(invalid="ignore"):
            empty = np.where(count == 0, np.nan, total)
            truth = total if "COUNT" in what else empty / count if "AVG" in what else empty
        columns = only(step.batch).columns
        at = columns["seq"] - step.batch.first_seq
        assert len(np.unique(at)) == len(at), "one message an update"
        delta = np.zeros((2, len(step.keys), len(ENDS)))
        for prefix, way in (("OLD", -1.0), ("NEW", 1.0)):
            x, y = columns[f"{prefix.lower()}.X"], columns[f"{prefix}_Y"]
            hit = (x[:, None] >= X1) & (x[:, None] <= X2)
            delta[0, at] += way * hit
            delta[1, at] += way * np.where(hit, y[:, None], 0.0)
        states = folded[:, None, :] + np.cumsum(delta, axis=1)
        assert (states[0] == count[1:]).all()
        assert (states[1] == total[1:]).all()
        folded = states[:, -1]
        what_, who, events = told_by_events(subscriptions, step)
        truth = truth[:, WATCHED]
        changed = differs(truth[1:], truth[:-1])
        heard = np.full(changed.shape, np.inf)
        heard[what_, who] = [number(event.answer) for event in events]
        assert len(events) == changed.sum()
        assert not differs(heard[changed], truth[1:][changed]).any()
        check_with_sqlite(subscriptions, oracle, sql, parameters)
        changes += len(events)
    assert changes > updates // 8


# --- selections --------------------------------------------------------------------------------------------------


@many
def test_each_of_many_updates_moves_a_row_into_out_of_or_within_just_the_right_boxes(updates: int) -> None:
    sql = "SELECT K, Y FROM T WHERE X BETWEEN ? AND ?"
    table = Table(5)
    engine, oracle, subscriptions = started(table, sql, X1[WATCHED], X2[WATCHED])
    parameters = [(x1, x2) for x1, x2 in ENDS[WATCHED].tolist()]
    changes = 0
    for step in steps(table, engine, oracle, updates):
        n, mine = step.updates, step.keys
        inside = step.inside
        was, now = inside[n, :, mine], inside[n + 1, :, mine]
        altered = differs(step.y[n, mine], step.y[n + 1, mine])[:, None]
        truth = np.where(now & ~was, 1, np.where(was & ~now, 3, np.where(was & now & altered, 2, 0)))
        columns = only(step.batch).columns
        at = columns["seq"] - step.batch.first_seq
        assert len(np.unique(at)) == len(at), "one message an update"
        assert columns["KEY"].tolist() == mine[at].tolist()
        there = {}
        for prefix in ("OLD", "NEW"):
            x = np.array([np.nan if v is None else v for v in columns[f"{prefix.lower()}.X"]], np.float64)[:, None]
            there[prefix] = columns[f"{prefix}_THERE"][:, None] & (x >= X1) & (x <= X2)
        shown = np.array([np.nan if v is None else v for v in columns["row.Y"]], np.float64)
        told = np.zeros_like(truth)
        changed = differs(shown, step.y[at, mine[at]])[:, None]  # a subscriber compares with the row it holds
        told[at] = np.where(
            there["NEW"] & ~there["OLD"], 1, np.where(there["OLD"] & ~there["NEW"], 3, 2 * (there["OLD"] & changed))
        )
        assert (told == truth).all()
        what, who, events = told_by_events(subscriptions, step)
        truth = truth[:, WATCHED]
        assert len(events) == (truth != 0).sum()
        for t, r, event in zip(what.tolist(), who.tolist(), events, strict=True):
            before = (int(mine[t]), _plain(step.y[t, mine[t]]))
            after = (int(mine[t]), _plain(step.y[t + 1, mine[t]]))
            expected = {1: ((after,), (), ()), 2: ((), (), ((before, after),)), 3: ((), (before,), ())}[
                int(truth[t, r])
            ]
            assert (event.entered, event.left, event.changed) == expected
        check_with_sqlite(subscriptions, oracle, sql, parameters)
        changes += len(events)
    assert changes > updates // 8


def _plain(code: float) -> int | None:
    return None if code != code else int(code)


# --- joins -------------------------------------------------------------------------------------------------------

BANDS = np.array([(0, 0), (-1, 1), (0, 2), (-6, 6), (1, 1), (-3, -2)], np.float64)


@pytest.mark.parametrize("updates", [UPDATES // 25, pytest.param(UPDATES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("band", [False, True], ids=["equality", "band"])
def test_each_of_many_updates_moves_just_the_right_pairs(band: bool, updates: int) -> None:
    """R and S meet in X (equal, or within a band); ranges lie on Y of both. The pairs of one update: all partners."""
    left, right = Table(6, name="R"), Table(7, name="S")
    engine = Engine()
    engine.execute(left.create)
    engine.execute(right.create)
    oracle = Oracle(engine.tables)
    on = "S.X - R.X BETWEEN ? AND ?" if band else "R.X = S.X"
    sql = f"SELECT R.K, S.K, R.P FROM R JOIN S ON {on} WHERE R.Y BETWEEN ? AND ? AND S.Y >= ?"
    rng = np.random.default_rng(8)
    boxes = []
    for i in range(len(BANDS)):
        y1, y2 = sorted(rng.integers(0, YS, 2).tolist())
        boxes.append((*(BANDS[i % len(BANDS)].tolist() if band else (0.0, 0.0)), y1, y2, int(rng.integers(-1, YS - 1))))
    parameters: list[tuple[Any, ...]] = [box if band else box[2:] for box in boxes]
    subscriptions = engine.subscribe_many(sql, *map(list, zip(*parameters, strict=True)))
    assert len(list(subscriptions)) == len(boxes)
    low, high, y1, y2, y3 = np.array(boxes, np.float64).T[:, :, None, None]  # (boxes, 1, 1)
    changes = done = turn = 0
    while done < updates:
        side = turn % 2
        table, other = (left, right) if side == 0 else (right, left)
        deletes = rng.random() < 0.1
        step = table.step(engine, oracle, 20 if deletes else 500, deletes)
        turn, done = turn + 1, done + len(step.keys)
        n, mine = step.updates, step.keys
        partner_x, partner_y = other.state[1][None, :], other.state[2][None, :]

        def met(at: NDArray[np.int64]) -> Booleans:
            """(boxes, updates, partners): whether the pair is in the answer."""
            x, y = step.x[at, mine][:, None], step.y[at, mine][:, None]  # noqa: B023  (called in this turn only)
            difference = partner_x - x if side == 0 else x - partner_x  # noqa: B023
            r_y, s_y = (y, partner_y) if side == 0 else (partner_y, y)  # noqa: B023
            return np.asarray((low <= difference) & (difference <= high) & (y1 <= r_y) & (r_y <= y2) & (s_y >= y3))

        was, now = met(n), met(n + 1)
        altered = np.zeros((1, len(n), 1), np.bool_)
        if side == 0:
            altered[0, :, 0] = differs(step.part[n, mine], step.part[n + 1, mine])
        truth = np.where(now & ~was, 1, np.where(was & ~now, 3, 2 * (was & now & altered)))
        columns = only(step.batch).columns
        at = columns["seq"] - step.batch.first_seq
        keys = [columns["key.R"].astype(np.int64), columns["key.S"].astype(np.int64)]
        assert (keys[side] == mine[at]).all()
        partner = keys[1 - side]
        assert len(set(zip(at.tolist(), partner.tolist(), strict=True))) == len(at), "a pair is told of once an update"
        told = np.zeros_like(truth)
        sides = {}
        for prefix in ("OLD", "NEW"):
            r_y, s_y = (_numbers(columns[f"{prefix.lower()}.{name}.Y"]) for name in "RS")
            difference = columns[f"{prefix}_DIFFERENCE"] if band else np.zeros(len(at))
            hit = (low[:, 0] <= difference) & (difference <= high[:, 0]) if band else np.True_
            sides[prefix] = columns[f"{prefix}_THERE"] & hit & (y1[:, 0] <= r_y) & (r_y <= y2[:, 0]) & (s_y >= y3[:, 0])
        old, new = sides["OLD"], sides["NEW"]
        told[:, at, partner] = np.where(new & ~old, 1, np.where(old & ~new, 3, 2 * (old & altered[0, at, 0])))
        assert (told == truth).all()
        what, who, events = told_by_events(subscriptions, step)
        assert len(events) == (truth != 0).any(axis=2).sum()
        heard = np.zeros_like(truth)
        for t, r, event in zip(what.tolist(), who.tolist(), events, strict=True):
            for how, rows in ((1, event.entered), (2, [after for _, after in event.changed]), (3, event.left)):
                for row in rows:
                    assert row[side] == mine[t]
                    assert heard[r, t, row[1 - side]] == 0
                    heard[r, t, row[1 - side]] = how
        assert (heard == truth).all()
        check_with_sqlite(subscriptions, oracle, sql, parameters)
        changes += len(events)
    assert changes > updates // 8


def _numbers(column: Any) -> Floats:
    return np.array([np.nan if value is None else value for value in column], np.float64)
