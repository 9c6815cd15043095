"""Processes of the live part of `bench joins`: a client with many joins, or the publisher."""

from __future__ import annotations

from typing import Any

import numpy as np

from hullcast.sim.bench.frame.worker import Batch, BenchWorker, main
from hullcast.sim.traces.merchants import JOIN, Merchants


class JoinWorker(BenchWorker):
    """A client that subscribes to one part of the merchants' joins, or publishes their changes."""

    def __init__(self) -> None:
        super().__init__()
        self._batches: list[Batch] = []

    async def subscribe(self, load: dict[str, Any], part: int, parts: int) -> dict[str, Any]:
        """Subscribe to our part, and take what changes from then on."""
        return await self._subscribe(JOIN, *Merchants(**load).ranges(part, parts))

    async def answers(self, path: str) -> dict[str, Any]:
        """Write all answers to a file: the pairs of all merchants, and how many each has."""
        assert self._many is not None, "subscribe comes first"
        held = [sorted(tuple(row) for row in answer) for answer in self._many.answers]
        pairs = np.array([pair for rows in held for pair in rows], np.int64).reshape(-1, 2)
        np.savez(path, pairs=pairs, counts=np.array([len(rows) for rows in held], np.int64))
        return {"seq": self._many.seq}

    async def prepare(self, load: dict[str, Any], changes: int, batch: int) -> dict[str, Any]:
        """Draw the changes."""
        self._batches = Merchants(**load).changes(changes, batch)
        return {}

    async def publish(self, first: int, count: int, in_flight: int) -> dict[str, Any]:
        """Publish batches from `first` on, as fast as receipts come."""
        return await self._publish_all(iter(self._batches[first : first + count]), in_flight)


if __name__ == "__main__":
    main(JoinWorker)
