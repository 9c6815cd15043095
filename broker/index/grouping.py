"""Groups: one number for the values of several columns, so that indexes compare one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hullcast.network.wire.arrays import Floats

SWEEP_SLACK = 4096


class Grouping:
    """Numbers the combinations of `width` columns of codes; NaN (in no group) where any of them is NULL.

    No column: everything is group 0. One column: its code is the number already. More: combinations are
    numbered as they are met, and forgotten by `sweep` when they are no longer used.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._numbers: dict[tuple[float, ...], float] = {}
        self._combinations: dict[float, tuple[float, ...]] = {}
        self._next = 0.0
        self._kept = 0

    def numbers(self, columns: Sequence[Floats], n: int) -> Floats:
        """The group of each of n rows."""
        if self.width == 0:
            return np.zeros(n)
        if self.width == 1:
            return columns[0]
        table = np.array(columns)
        there = ~np.isnan(table).any(axis=0)
        numbers = np.full(n, np.nan)
        present = table[:, there]
        # one whole number per combination, column by column: sorting numbers is many times quicker than sorting rows
        places = np.zeros(present.shape[1], np.int64)
        for column in present:
            distinct, which = np.unique(column, return_inverse=True)
            _, places = np.unique(places * len(distinct) + which.reshape(-1), return_inverse=True)
            places = places.reshape(-1)
        # Python sees each combination once, however many rows have it
        first = np.full(int(places.max(initial=-1)) + 1, 0)
        first[places[::-1]] = np.arange(len(places))[::-1]
        known = np.array([self._number(combination) for combination in map(tuple, present[:, first].T.tolist())])
        numbers[there] = known[places] if len(known) else []
        return numbers

    def _number(self, combination: tuple[float, ...]) -> float:
        number = self._numbers.get(combination)
        if number is None:
            number = self._next
            self._numbers[combination] = number
            self._combinations[number] = combination
            self._next += 1
        return number

    def columns(self, numbers: Floats) -> list[Floats]:
        """The columns of codes behind group numbers."""
        if self.width == 0:
            return []
        if self.width == 1:
            return [numbers]
        found = [self._combinations[number] for number in numbers.tolist()]
        return list(np.array(found, np.float64).reshape(len(found), self.width).T)

    def known(self) -> Floats:
        """The numbers of combinations given out and not forgotten."""
        return np.array(list(self._combinations), np.float64)

    @property
    def wants_sweep(self) -> bool:
        """Whether so many combinations came since the last sweep that looking for dead ones pays."""
        return len(self._combinations) > 2 * self._kept + SWEEP_SLACK

    def all_live(self) -> None:
        """Every combination known is in use: there is nothing to look for before many more come."""
        self._kept = len(self._combinations)

    def sweep(self, live: Floats) -> None:
        """Forget the combinations whose numbers are not among `live`."""
        keep = set(live.tolist())
        self._combinations = {number: held for number, held in self._combinations.items() if number in keep}
        self._numbers = {held: number for number, held in self._combinations.items()}
        self._kept = len(self._combinations)
