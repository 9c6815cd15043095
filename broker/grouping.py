"""Groups: one number for the values of several columns, so that an index and a match compare one number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SWEEP_SLACK = 4096


class Grouping:
    """Numbers the combinations of `width` columns of codes; NaN (in no group) where any of them is NULL.

    No column: everything is group 0. One column: its code is the number already. More: combinations are
    numbered as they are met, and forgotten by `sweep` when nobody holds them any more.
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
        null = np.isnan(columns[0])
        for column in columns[1:]:
            null = null | np.isnan(column)
        combinations = list(zip(*(column.tolist() for column in columns), strict=True))
        if null.any():
            for i in np.flatnonzero(null).tolist():
                combinations[i] = ()  # NaN is no key: it does not equal itself
        self._numbers.setdefault((), np.nan)
        numbers = np.fromiter(map(self._numbers.get, combinations, repeat(-1.0)), np.float64, n)
        if (numbers < 0).any():
            for combination in dict.fromkeys(combinations):
                if combination not in self._numbers:
                    self._numbers[combination] = self._next
                    self._combinations[self._next] = combination
                    self._next += 1
            numbers = np.fromiter(map(self._numbers.__getitem__, combinations), np.float64, n)
        return numbers

    def columns(self, numbers: Floats) -> list[Floats]:
        """The columns of codes behind group numbers."""
        if self.width == 0:
            return []
        if self.width == 1:
            return [numbers]
        found = [self._combinations[number] for number in numbers.tolist()]
        return list(np.array(found, np.float64).reshape(len(found), self.width).T)

    @property
    def wants_sweep(self) -> bool:
        """Whether so many combinations came since the last sweep that looking for dead ones pays."""
        return len(self._combinations) > 2 * self._kept + SWEEP_SLACK

    def sweep(self, live: Floats) -> None:
        """Forget the combinations whose numbers are not among `live`."""
        keep = set(live.tolist())
        self._combinations = {number: held for number, held in self._combinations.items() if number in keep}
        self._numbers = {held: number for number, held in self._combinations.items()}
        self._kept = len(self._combinations)
