"""The first of many keys by a rank that may change: a heap that skips outdated entries."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

K = TypeVar("K")

#: Entries that may be outdated before the heap is built anew, beside as many as there are keys.
OUTDATED = 64


class Ranking(Generic[K]):
    """Keys with ranks; the least rank is first, and of equal ranks the one that was set first.

    To set, drop and find the first is O(log n) each, spread over the calls.

    Invariant:
      R1  Every key has an entry with its present rank in the heap, and the heap has at most twice as many entries as
          keys, and OUTDATED more.
    """

    __slots__ = ("_entries", "_heap", "_ranks", "steps")

    def __init__(self) -> None:
        self._ranks: dict[K, tuple[Any, int]] = {}
        self._heap: list[tuple[Any, int, K]] = []
        self._entries = 0  # numbers them: of equal ranks keys are never compared
        self.steps = 0  # entries looked at, ever: what it costs

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, key: K) -> bool:
        return key in self._ranks

    def __iter__(self) -> Iterator[K]:
        return iter(self._ranks)

    def set(self, key: K, rank: Any) -> None:
        """Give a key this rank, whether it had one or not."""
        known = self._ranks.get(key)
        if known is not None and known[0] == rank:
            return
        self._entries += 1
        self.steps += 1
        self._ranks[key] = rank, self._entries
        heappush(self._heap, (rank, self._entries, key))
        self._tidy()

    def drop(self, key: K) -> None:
        """Forget a key, if it is known."""
        if self._ranks.pop(key, None) is not None:
            self._tidy()

    def first(self) -> K | None:
        """The key with the least rank, if there is one."""
        while self._heap:
            self.steps += 1
            rank, entry, key = self._heap[0]
            if self._ranks.get(key) == (rank, entry):
                return key
            heappop(self._heap)
        return None

    def rank(self, key: K) -> Any:
        """The rank of a key that is known."""
        return self._ranks[key][0]

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._ranks) + OUTDATED:
            self.steps += len(self._ranks)
            self._heap = [(rank, entry, key) for key, (rank, entry) in self._ranks.items()]
            heapify(self._heap)

    def check(self) -> None:
        """Raise InvariantBroken unless R1 holds."""
        entries = {(entry, key) for _, entry, key in self._heap}
        if not all((entry, key) in entries for key, (_, entry) in self._ranks.items()):
            raise InvariantBroken("R1: a key without an entry of its rank")
        if len(self._heap) > 2 * len(self._ranks) + OUTDATED:
            raise InvariantBroken(f"R1: {len(self._heap)} entries for {len(self._ranks)} keys")
