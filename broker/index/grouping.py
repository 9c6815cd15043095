"""Groups: one number for the values of several columns, so that indexes compare one number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.tables.keys import DIVIDED, LIVE, KeyMap, divide_some, home, take_out
from hullcast.broker.tables.room import SMALLEST, with_room
from hullcast.network.compiled import borrowing, kernel
from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Sequence

SWEEP_SLACK = 4096
#: Combinations that one sweep looks at in one go: less than a millisecond.
SWEPT_AT_ONCE = 1 << 13
_SPREAD = -7046029254386353131  # 2^64 / golden ratio, as a signed number: the product wraps around


class Grouping:
    """Numbers the combinations of `width` columns of codes; NaN (in no group) where any of them is NULL.

    No column: everything is group 0. One column: its code is the number already. More: combinations are
    numbered as they are met, and forgotten by a sweep when they are no longer used. Then others get their numbers.

    Invariants (`check` tests them):
      G1  `_map` leads from the mixed codes of each combination in use, and of no other, to its number.
      G2  0.._used-1 is divided into numbers in use and `_free`, without overlap.

    Cost: O(width) a row, growth included, as in `KeyMap`. A sweep goes in parts, as that of the interner does.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._map = KeyMap()  # its keys are mixed codes; where these are equal, the codes are compared
        self._codes: Floats = np.zeros((width, SMALLEST))
        self._in_use: Booleans = np.zeros(SMALLEST, np.bool_)
        self._used = 0
        self._free: list[int] = []
        self._kept = 0
        self._marks: Booleans | None = None  # while a sweep is under way, for the numbers that there were then
        self._swept = 0

    def __len__(self) -> int:
        """The combinations known."""
        return len(self._map)

    def numbers(self, columns: Sequence[Floats], n: int) -> Floats:
        """The group of each of n rows."""
        if self.width == 0:
            return np.zeros(n)
        if self.width == 1:
            return columns[0]
        codes, found = np.array(columns), np.empty(n)
        missing = _number(self._map.table, self._codes, codes, _NONE, found, 0)
        if missing:
            self._add(codes, found, missing)
        if self._marks is not None:
            self.mark(found)
        return found

    def _add(self, codes: Floats, found: Floats, missing: int) -> None:
        """Number combinations of which so many rows are new."""
        left = max(0, len(self._free) - missing)
        fresh = self._free[left:]
        del self._free[left:]
        fresh += range(self._used, self._used + missing - len(fresh))
        room = max(self._used, max(fresh) + 1)
        self._codes, self._in_use = with_room(self._codes, room), with_room(self._in_use, room)
        self._map.make_room(missing)
        numbers = np.array(fresh, np.int64)
        taken = _number(self._map.table, self._codes, codes, numbers, found, DIVIDED * missing)
        self._in_use[numbers[:taken]] = True
        self._used = max(self._used, int(numbers[:taken].max()) + 1)
        self._free += (number for number in fresh[taken:] if number < self._used)

    def columns(self, numbers: Floats) -> list[Floats]:
        """The columns of codes behind group numbers."""
        if self.width == 0:
            return []
        if self.width == 1:
            return [numbers]
        return list(self._codes[:, numbers.astype(np.int64)])

    def known(self) -> Floats:
        """The numbers of combinations given out and not forgotten."""
        return np.flatnonzero(self._in_use[: self._used]).astype(np.float64)

    # --- what nobody needs any more ------------------------------------------------------------------------

    @property
    def wants_sweep(self) -> bool:
        """Whether so many combinations came since the last sweep that looking for dead ones pays, or one is under
        way."""
        if self.width < 2:
            return False
        return self._marks is not None or len(self) > 2 * self._kept + SWEEP_SLACK

    @property
    def sweeping(self) -> bool:
        """Whether a sweep is under way."""
        return self._marks is not None

    @property
    def forgetting(self) -> bool:
        """Whether one is under way, and has begun to forget."""
        return self._marks is not None and self._swept > 0

    def all_live(self) -> None:
        """Every combination known is in use: there is nothing to look for before many more come."""
        self._kept = len(self)

    def sweep(self, live: Floats) -> None:
        """Forget the combinations whose numbers are not among `live`; all of it now."""
        self.begin_sweep()
        self.mark(live)
        while not self.sweep_some():
            pass

    def begin_sweep(self) -> None:
        """Begin a sweep in parts: `mark` what is in use, then `sweep_some` until it is done. A number that anybody is
        given meanwhile is marked by that."""
        self._marks, self._swept = np.zeros(self._used, np.bool_), 0

    def mark(self, numbers: Floats) -> None:
        """These numbers are in use (NaN and infinities are none)."""
        assert self._marks is not None, "a sweep has begun"
        self._marks[numbers[(numbers >= 0) & (numbers < len(self._marks))].astype(np.int64)] = True

    def sweep_some(self) -> bool:
        """Forget some combinations that were not marked; returns whether that were all."""
        assert self._marks is not None, "a sweep has begun"
        start, stop = self._swept, min(self._swept + SWEPT_AT_ONCE, len(self._marks))
        dead = start + np.flatnonzero(self._in_use[start:stop] & ~self._marks[start:stop])
        _forget(self._map.table, self._codes, dead)
        self._in_use[dead] = False
        self._free += dead[::-1].tolist()
        self._swept = stop
        if stop < len(self._marks):
            return False
        self._marks, self._kept = None, len(self)
        return True

    def check(self) -> None:
        """InvariantBroken unless G1 and G2 hold."""
        known = self.known()
        combinations = self._codes[:, known.astype(np.int64)]
        if len(known) != len(self._map) or not np.array_equal(self.numbers(list(combinations), len(known)), known):
            raise InvariantBroken("G1: a combination is not found, or twice")
        if sorted([*known.tolist(), *self._free]) != list(range(self._used)):
            raise InvariantBroken("G2: numbers in use and free ones do not divide those given out")


_NONE = np.empty(0, np.int64)


@borrowing
def _mixed(codes: Floats, i: int) -> int:
    """One number for a combination of codes; -1 if it has a NULL. Different ones may have the same."""
    mixed = 0
    for column in range(codes.shape[0]):
        code = codes[column, i]
        if code != code:
            return -1
        mixed = (mixed ^ int(np.float64(code).view(np.int64))) * _SPREAD
        mixed ^= (mixed >> 29) & 0x7FFFFFFFF
    return mixed & 0x7FFFFFFFFFFFFFFF


@borrowing
def _same(held: Floats, number: int, codes: Floats, i: int) -> bool:
    for column in range(codes.shape[0]):  # noqa: SIM110  (numba knows no generators here)
        if held[column, number] != codes[column, i]:
            return False
    return True


@kernel
def _number(table: Ints, held: Floats, codes: Floats, fresh: Ints, found: Floats, homes: int) -> int:
    """The number of each combination. A new one takes the next fresh number; returns how many were taken. Without fresh
    ones: how many combinations have none."""
    divide_some(table, len(fresh), homes)
    taken = 0
    for i in range(codes.shape[1]):
        mixed = _mixed(codes, i)
        found[i] = np.nan
        if mixed < 0:
            continue
        at = home(table, mixed)
        while table[at + 1] != 0 and not (table[at] == mixed and _same(held, table[at + 1] - 1, codes, i)):
            at += 2
        if table[at + 1] == 0:
            taken += 1
            if len(fresh) == 0:
                continue
            number = fresh[taken - 1]
            table[at] = mixed
            table[at + 1] = number + 1
            for column in range(codes.shape[0]):
                held[column, number] = codes[column, i]
        found[i] = table[at + 1] - 1
    if len(fresh) > 0:
        table[LIVE] += taken
    return taken


@kernel
def _forget(table: Ints, held: Floats, numbers: Ints) -> None:
    for number in numbers:
        at = home(table, _mixed(held, number))
        while table[at + 1] != number + 1:
            at += 2
        take_out(table, at)
