"""The synthetic workload of Xie (2007), Table 5.1, as NumPy columns.

How we read the table: X is continuous, so that no two rows share it and
no change is ignorable; a changed Y is drawn again, uniformly (small steps give fewer messages than reported);
a negative length is drawn again; a spike is two updates, down to the bottom of the domain and back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.network.wire.errors import UsageError
from hullcast.sim.seeds import generator

#: Table 5.1.
DOMAIN = 10_000.0
MIDPOINT = (5_000.0, 1_500.0)  # mean and deviation of a range's midpoint
LENGTH = (1_000.0, 1_000.0)  # and of its length
SPIKES = 0.005

CREATE = "CREATE TABLE POINTS (ID INTEGER PRIMARY KEY, X REAL, Y REAL)"
RANGE_MIN = "SELECT MIN(Y) FROM POINTS WHERE X BETWEEN ? AND ?"


@dataclass(frozen=True, slots=True)
class PointRows:
    """Rows of POINTS as columns."""

    ids: Ints
    x: Floats
    y: Floats

    def __len__(self) -> int:
        return len(self.ids)

    def columns(self) -> dict[str, Floats | Ints]:
        """As `Engine.upsert` takes them."""
        return {"ID": self.ids, "X": self.x, "Y": self.y}


@dataclass(frozen=True, slots=True)
class RangeColumns:
    """Subscriptions: `low <= X <= high`."""

    low: Floats
    high: Floats

    def __len__(self) -> int:
        return len(self.low)


@dataclass(frozen=True, slots=True)
class Changes:
    """Updates in order. An insert brings x and y, a change y only (x repeats the row's), a delete neither (NaN)."""

    ids: Ints
    x: Floats
    y: Floats
    inserts: Booleans
    deletes: Booleans

    def __len__(self) -> int:
        return len(self.ids)

    def slice(self, start: int, stop: int) -> Changes:
        """Some of them."""
        part = slice(start, stop)
        return Changes(self.ids[part], self.x[part], self.y[part], self.inserts[part], self.deletes[part])

    def batches(self, size: int) -> Iterator[Changes]:
        """All of them, `size` at a time."""
        for start in range(0, len(self), size):
            yield self.slice(start, start + size)

    def columns(self) -> dict[str, Floats | Ints]:
        """As `Engine.upsert` takes them: the changed column only, unless there are inserts."""
        if self.deletes.any():
            raise UsageError("these changes hold deletes; split them first")
        if self.inserts.any():
            return {"ID": self.ids, "X": self.x, "Y": self.y}
        return {"ID": self.ids, "Y": self.y}


@dataclass(frozen=True, slots=True)
class Mix:
    """What updates are like. The defaults are those of Tables 5.2 and 5.3.

    `spikes`, `ignorable`, `inserts` and `deletes` are shares of the events drawn (a spike then counts as two updates).
    `step` None draws a new Y; a number makes it a random walk of that deviation, reflected at both ends.
    """

    spikes: float = SPIKES
    ignorable: float = 0.0
    inserts: float = 0.0
    deletes: float = 0.0
    step: float | None = None

    def __post_init__(self) -> None:
        shares = (self.spikes, self.ignorable, self.inserts, self.deletes)
        if min(shares) < 0 or sum(shares) > 1:
            raise UsageError(f"shares must be 0 or more and at most 1 together, got {shares}")


#: Share of the rows that stand behind another row of the same X, and of those they stand behind, if any are wanted.
SHADOWS = 0.1


class Workload:
    """Rows, subscriptions and updates that belong together, each a function of the root seed and its own name."""

    def __init__(self, rows: int, *, root: int = 0, mix: Mix | None = None) -> None:
        if rows < 1:
            raise UsageError(f"a workload needs at least one row, got {rows}")
        self.mix = mix or Mix()
        self._root = root
        random = generator(root, "table-5.1", "rows", rows)
        x = random.uniform(0.0, DOMAIN, rows)
        y = random.uniform(0.0, DOMAIN, rows)
        # Guards are never changed; a shadow has its guard's x and is never below it: whatever it does is ignorable.
        self._shadows = max(1, int(rows * SHADOWS)) if self.mix.ignorable else 0
        if 2 * self._shadows >= rows:
            raise UsageError(f"{rows} rows are too few for ignorable updates; give 4 or more")
        if self._shadows:
            guards, shadows = slice(0, self._shadows), slice(self._shadows, 2 * self._shadows)
            x[shadows] = x[guards]
            y[shadows] = random.uniform(y[guards], DOMAIN)
        self.rows = PointRows(np.arange(rows, dtype=np.int64), x, y)

    def ranges(self, count: int) -> RangeColumns:
        """Subscriptions of Table 5.1."""
        random = generator(self._root, "table-5.1", "subscriptions", count)
        middle = random.normal(*MIDPOINT, count)
        length = random.normal(*LENGTH, count)
        while (negative := length < 0).any():
            length[negative] = random.normal(*LENGTH, int(negative.sum()))
        return RangeColumns(middle - length / 2, middle + length / 2)

    def changes(self, count: int, *, name: object = 0) -> Changes:
        """`count` updates that start from `rows`; another name gives other ones."""
        random = generator(self._root, "table-5.1", "updates", len(self.rows), count, self.mix, name)
        if self.mix.inserts or self.mix.deletes:
            return self._churn(random, count)
        return self._steady(random, count)

    def _steady(self, random: np.random.Generator, count: int) -> Changes:
        """Changes of Y alone, without a Python loop."""
        n, first = len(self.rows), 2 * self._shadows
        kind = random.random(count)
        spike = kind < self.mix.spikes
        ignorable = (kind >= self.mix.spikes) & (kind < self.mix.spikes + self.mix.ignorable)
        row = random.integers(first, n, count)
        if self._shadows:
            row[ignorable] = random.integers(self._shadows, first, int(ignorable.sum()))
        value = self._values(random, row, ignorable, spike)
        before = _value_before(row, np.where(spike, np.nan, value), self.rows.y)
        # One event is one update, a spike is two: to the bottom, and back to where it was.
        at = np.repeat(np.arange(count), np.where(spike, 2, 1))[:count]
        back = np.concatenate(([False], at[1:] == at[:-1]))
        y = np.where(spike[at], np.where(back, before[at], 0.0), value[at])
        ids = row[at]
        none = np.zeros(count, np.bool_)
        return Changes(self.rows.ids[ids], self.rows.x[ids], y, none, none)

    def _values(self, random: np.random.Generator, row: Ints, ignorable: Booleans, spike: Booleans) -> Floats:
        """The new Y of each event, spikes aside."""
        count = len(row)
        if self.mix.step is None:
            value = random.uniform(0.0, DOMAIN, count)
        else:
            steps = random.normal(0.0, self.mix.step, count)
            value = _walk(row, np.where(spike, 0.0, steps), self.rows.y)  # a spike goes back to where it was
        if self._shadows:
            guard = self.rows.y[row[ignorable] - self._shadows]
            value[ignorable] = random.uniform(guard, DOMAIN)
        return value

    def _churn(self, random: np.random.Generator, count: int) -> Changes:
        """With inserts and deletes: who is there depends on what came before, so this one is a loop."""
        mix, steady = self.mix, replace(self.mix, inserts=0.0, deletes=0.0)
        first = 2 * self._shadows
        x, y = self.rows.x.tolist(), self.rows.y.tolist()
        live = list(range(first, len(x)))
        out: list[tuple[int, float, float, bool, bool]] = []
        while len(out) < count:
            kind = random.random()
            if kind < mix.inserts or not live:
                x.append(random.uniform(0.0, DOMAIN))
                y.append(random.uniform(0.0, DOMAIN))
                live.append(len(x) - 1)
                out.append((live[-1], x[-1], y[-1], True, False))
                continue
            kind -= mix.inserts
            place = int(random.integers(len(live)))
            row = live[place]
            if kind < mix.deletes:
                live[place] = live[-1]
                live.pop()
                out.append((row, np.nan, np.nan, False, True))
                continue
            kind -= mix.deletes
            if kind < steady.spikes:
                out += [(row, x[row], 0.0, False, False), (row, x[row], y[row], False, False)]
                continue
            low = 0.0
            if kind - steady.spikes < steady.ignorable:
                row = int(random.integers(self._shadows, first))
                low = y[row - self._shadows]
            if mix.step is None or low:
                y[row] = random.uniform(low, DOMAIN)
            else:
                y[row] = float(_reflected(np.array([y[row] + random.normal(0.0, mix.step)]))[0])
            out.append((row, x[row], y[row], False, False))
        ids, xs, ys, inserts, deletes = zip(*out[:count], strict=True) if count else ([], [], [], [], [])
        return Changes(
            np.array(ids, np.int64),
            np.array(xs),
            np.array(ys),
            np.array(inserts, np.bool_),
            np.array(deletes, np.bool_),
        )


def _by_row(row: Ints) -> tuple[Ints, Ints]:
    """Events ordered by row and then by time, and where in that order each one's row begins."""
    order = np.argsort(row, kind="stable").astype(np.int64)
    places = np.arange(len(row), dtype=np.int64)
    starts = np.where(np.concatenate(([True], row[order][1:] != row[order][:-1])), places, 0)
    return order, np.maximum.accumulate(starts).astype(np.int64)


def _value_before(row: Ints, value: Floats, start: Floats) -> Floats:
    """The Y each event finds: the last value given to its row (NaN gives none), at first the row's own.

    row    7    3    7    7        start 3: 30., 7: 70.
    value  1.   2.   NaN  4.
    found  70.  30.  1.   1.
    """
    if not len(row):
        return np.empty(0)
    order, begins = _by_row(row)
    places = np.arange(len(row))
    given = np.where(np.isnan(value[order]), -1, places)
    latest = np.concatenate(([-1], np.maximum.accumulate(given)[:-1]))
    found = np.where(latest >= begins, value[order][latest], start[row[order]])
    before = np.empty(len(row))
    before[order] = found
    return before


def _walk(row: Ints, steps: Floats, start: Floats) -> Floats:
    """Each row's own random walk: after every event, where its row has come to."""
    if not len(row):
        return np.empty(0)
    order, begins = _by_row(row)
    total = np.cumsum(steps[order])
    walked = total - (total - steps[order])[begins]
    value = np.empty(len(row))
    value[order] = _reflected(start[row[order]] + walked)
    return value


def _reflected(value: Floats) -> Floats:
    """Fold the line into the domain: a walk reflected at both ends is a free walk, folded."""
    around = np.mod(value, 2 * DOMAIN)
    folded: Floats = np.minimum(around, 2 * DOMAIN - around)
    return folded
