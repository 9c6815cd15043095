"""The simple way to keep a stabbing partition, to compare with: everything is computed again."""

from __future__ import annotations

import numpy as np

from hullcast.broker.joins.partition import NO_GROUP, StabbingPartition, canonical
from hullcast.network.wire.arrays import Ints


class LazyPartition(StabbingPartition):
    """The simple lazy strategy: a rebuild sorts all n intervals.

    m is the number of intervals removed that were there at the last rebuild: each lowers tau by at most one. A
    rebuild comes at the earliest after epsilon * tau0 / (1 + epsilon) changes, so a change costs O(n log n / (epsilon
    tau)) amortised.
    """

    def _enter(self, ids: Ints, bulk: bool) -> None:
        pass

    def _exit(self, ids: Ints) -> None:
        pass

    def _rebuild(self) -> None:
        ids = np.flatnonzero(self._labels != NO_GROUP)
        runs, meets = canonical(self.lows[ids], self.highs[ids])
        labels = self._labels[ids]
        numbers = self._install(meets, np.bincount(runs, minlength=len(meets)), (labels, runs, np.ones_like(ids)))
        self._labels[ids] = numbers[runs]
        self._counted[ids] = True
        self._touched.add(ids[labels != self._labels[ids]], len(self._labels))

    def _settle(self) -> None:
        ids = self._touched.take(len(self._labels))
        self._settled[ids] = self._labels[ids]
        self._moved.add(ids, len(self._labels))
