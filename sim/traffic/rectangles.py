"""From events to rectangles: the rows before each event, and the engine's own kernel over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hullcast.broker.reformulate.keeper import TreeKeeper
from hullcast.broker.reformulate.kernel import INNER_L, INNER_R, OUTER_L, OUTER_R, UPDATE
from hullcast.broker.tables.store import Updates
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import UsageError

MIN = 1


@dataclass(frozen=True, slots=True, eq=False)
class StartRows:
    """Rows at the start of a chunk, each key once. NaN, NaN: not there (any more), as if it were not given."""

    key: Ints
    x: Floats
    y: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Consecutive events. `key` is a small number of the row; NaN, NaN deletes it."""

    seq: Ints
    key: Ints
    x: Floats
    y: Floats

    def __len__(self) -> int:
        return len(self.seq)

    def slice(self, begin: int, end: int) -> Events:
        """Some of them."""
        part = slice(begin, end)
        return Events(self.seq[part], self.key[part], self.x[part], self.y[part])


class Rectangles(NamedTuple):
    """The rectangles of events, as kernels take them: those of event e are number starts[e] to starts[e + 1]."""

    starts: Ints  # (events + 1,)
    inner_l: Floats
    inner_r: Floats
    outer_l: Floats
    outer_r: Floats


def checked(state: StartRows, events: Events) -> tuple[StartRows, Events]:
    """Both with columns as kernels take them; UsageError where they are not what they must be."""
    _check_rows("state", state.key, state.x, state.y)
    _check_rows("events", events.key, events.x, events.y)
    if events.seq.shape != events.key.shape:
        raise UsageError(f"{len(events.seq)} sequence numbers for {len(events.key)} events")
    back = np.flatnonzero(np.diff(events.seq) <= 0)
    if len(back):
        at = int(back[0])
        raise UsageError(
            f"events must come by rising seq, but {events.seq[at + 1]} follows {events.seq[at]}; sort them"
        )
    if len(np.unique(state.key)) < len(state.key):
        raise UsageError("a key occurs twice among the rows a chunk starts from; keep the last row of each")
    return (
        StartRows(whole(state.key), real(state.x), real(state.y)),
        Events(whole(events.seq), whole(events.key), real(events.x), real(events.y)),
    )


class TableRows:
    """The rows of a table as the next event finds them; `play` moves on over events in their order.

    Memory: 16 bytes a key, and the engine's own tree of the rows (about 100 bytes a row).
    """

    def __init__(self, state: StartRows, keys: int) -> None:
        """`keys`: numbers of keys are below it."""
        self._x, self._y = np.full(keys, np.nan), np.full(keys, np.nan)
        self._x[state.key], self._y[state.key] = state.x, state.y
        self._keeper = TreeKeeper(0, 1, ())
        there = ~np.isnan(state.x)
        rows = np.stack((state.x[there], state.y[there]))
        self._keeper.update(_updates(state.key[there], np.full_like(rows, np.nan), rows))
        self._keeper.wanted = MIN

    def play(self, events: Events) -> tuple[Floats, Rectangles]:
        """The x that each event finds its row at (NaN: nowhere), and what range-MIN subscriptions must hear of it.

        Neither depends on how a trace is cut into such calls.
        """
        old_x, old_y = self._before(events)
        updates = _updates(events.key, np.stack((old_x, old_y)), np.stack((events.x, events.y)))
        fields = np.ascontiguousarray(self._keeper.update(updates)[0].T)
        starts = np.searchsorted(fields[UPDATE], np.arange(len(events) + 1))
        return old_x, Rectangles(starts, *(fields[i].copy() for i in (INNER_L, INNER_R, OUTER_L, OUTER_R)))

    def _before(self, events: Events) -> tuple[Floats, Floats]:
        """Each event's row as it finds it, x and y; what the events leave is then known.

        key      7        3        7        7             known  3: (30, 1)
        x, y     70, 2    30, 4    NaN      70, 5
        before   NaN      30, 1    70, 2    NaN
        """
        x, y = np.empty(len(events)), np.empty(len(events))
        order = np.argsort(events.key, kind="stable")
        same = np.zeros(len(events), np.bool_)  # in that order: of the same key as the one before
        same[1:] = events.key[order][1:] == events.key[order][:-1]
        later, earlier = order[same], order[np.flatnonzero(same) - 1]
        x[later], y[later] = events.x[earlier], events.y[earlier]
        first, last = order[~same], order[np.append(~same[1:], True)] if len(order) else order
        x[first], y[first] = self._x[events.key[first]], self._y[events.key[first]]
        self._x[events.key[last]], self._y[events.key[last]] = events.x[last], events.y[last]
        return x, y


def _updates(keys: Ints, old: Floats, new: Floats) -> Updates:
    return Updates(keys, ~np.isnan(old[0]), ~np.isnan(new[0]), old, new)


def keys_of(state: StartRows, events: Events) -> int:
    """One more than the largest number of a key."""
    return 1 + max(int(state.key.max(initial=-1)), int(events.key.max(initial=-1)))


def whole(column: Ints) -> Ints:
    """The column as kernels are compiled for it: contiguous, aligned and writable."""
    return np.require(column, np.int64, ["C", "A", "W"])


def real(column: Floats) -> Floats:
    """The same for floats."""
    return np.require(column, np.float64, ["C", "A", "W"])


def _check_rows(what: str, key: Ints, x: Floats, y: Floats) -> None:
    if not key.shape == x.shape == y.shape or key.ndim != 1:
        raise UsageError(f"the columns of the {what} differ in length: {key.shape}, {x.shape}, {y.shape}")
    if len(key) and key.min() < 0:
        raise UsageError(f"keys are numbers from 0 on, but the {what} have {key.min()}")
    odd = (np.isnan(x) != np.isnan(y)) | np.isinf(x) | np.isinf(y)
    if odd.any():
        at = int(odd.argmax())
        raise UsageError(
            f"row {at} of the {what} (key {key[at]}) is ({x[at]}, {y[at]}); give two finite numbers, or NaN twice"
        )
