"""How fast changes of each table come, as far as a planner can see it from what is pending."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArrivalRates:
    """Changes by time, of each table. What came before an action counts `MEMORY` as much after it: rates follow changes
    of load within a dozen actions, whatever the unit of time is."""

    MEMORY = 0.9

    def __init__(self) -> None:
        self._known: list[int] = []  # pending changes that were counted
        self._counts: list[float] = []
        self._since: float | None = None
        self._span = 0.0

    def see(self, pending: Sequence[int], now: float) -> None:
        """So much is pending: what is more than before has come since."""
        if len(self._known) != len(pending):  # the first look; nobody knows how long it took to come
            self._known = list(pending) if self._since is None else [0] * len(pending)
            self._counts = [0.0] * len(pending)
        if self._since is not None:
            self._span += max(0.0, now - self._since)
        for table, k in enumerate(pending):
            self._counts[table] += max(0, k - self._known[table])
            self._known[table] = k
        self._since = now

    def act(self, tables: Sequence[int], left: Sequence[int], now: float) -> None:
        """Tables were emptied, and this is pending now."""
        for table in tables:
            if table < len(self._known):
                self._known[table] = 0
        self.see(left, now)
        self._counts = [self.MEMORY * count for count in self._counts]
        self._span *= self.MEMORY

    def refresh(self, now: float) -> None:
        """All tables were emptied."""
        self.act(range(len(self._known)), [0] * len(self._known), now)

    @property
    def rates(self) -> list[float]:
        """By table; 0 for all while no time has passed."""
        return [count / self._span if self._span else 0.0 for count in self._counts]
