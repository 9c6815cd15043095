"""Projection: keeps some columns, in some order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.broker.streams.operators.operator import OneInput

if TYPE_CHECKING:
    from hullcast.broker.streams.batch import TupleBatch
    from hullcast.network.wire.arrays import Ints


class Projection(OneInput):
    """Tuples with these columns only."""

    name = "projection"

    def __init__(self, columns: Ints) -> None:
        self._columns = columns

    def apply(self, batch: TupleBatch) -> TupleBatch:
        return batch._replace(cells=batch.cells[self._columns])
