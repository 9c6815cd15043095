"""Channels matched point against box: what COUNT/SUM/AVG, selections and joins have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.index.grouping import Grouping
from hullcast.broker.reformulate.channel import Booleans, Channel, Floats
from hullcast.network.matching.duality import around_points

if TYPE_CHECKING:
    from hullcast.network.wire.columns import Column

#: Columns of some rows by their position in the table: just the columns that matter.
Cells = Mapping[int, Floats]


class Places:
    """The points of messages before and after an update: one column a dimension, and the partition.

    `there` says where there is such a point at all: no row, or a NULL in a range or partition column, and it
    is in nobody's box. A place that is no float64 (a difference of large integers) lies between the one in
    `columns` and the one in `uppers`, which are neighbours; elsewhere the two are the same.
    """

    def __init__(
        self,
        columns: Sequence[Floats],
        partition: Floats | None,
        there: Booleans,
        uppers: Sequence[Floats] | None = None,
    ) -> None:
        for column in columns:
            there = there & ~np.isnan(column)
        if partition is not None:
            there = there & ~np.isnan(partition)
        self.columns, self.partition, self.there = columns, partition, there
        self.uppers = columns if uppers is None else uppers

    def take(self, rows: Booleans) -> Places:
        """Some of the points."""
        partition = None if self.partition is None else self.partition[rows]
        uppers = [column[rows] for column in self.uppers]
        return Places([column[rows] for column in self.columns], partition, self.there[rows], uppers)

    def wire(self, side: str, uppers: bool) -> dict[str, Column]:
        """The places as columns that travel; with `uppers` the last one's upper neighbours too."""
        named: dict[str, Column] = {f"{side}.there": self.there}
        for i, column in enumerate(self.columns):
            named[f"{side}.{i}"] = column
        if uppers:
            named[f"{side}.up"] = self.uppers[-1]
        if self.partition is not None:
            named[f"{side}.part"] = self.partition
        return named

    def queries(self) -> tuple[Floats, Floats]:
        """The query boxes that find the subscriptions around each point; empty boxes where there is none."""
        return around_points(self.columns, self.partition, self.there, self.uppers)


class Partitioned(Channel):
    """A channel that numbers its partitions itself."""

    _grouping: Grouping | None = None

    @property
    def grouping(self) -> Grouping:
        """Numbers of the partitions."""
        if self._grouping is None:
            self._grouping = Grouping(len(self.shape.partition))
        return self._grouping

    def partition_numbers(self, columns: Sequence[Floats], n: int) -> Floats:
        return self.grouping.numbers(columns, n)

    def codes_of(self, partitions: Floats) -> list[Floats]:
        return self.grouping.columns(partitions)

    def partitions_numbered(self) -> Floats:
        return self.grouping.known()

    @property
    def wants_sweep(self) -> bool:
        return self.grouping.wants_sweep

    def sweep(self) -> None:
        self.grouping.sweep(self.partitions_asked())  # only subscriptions hold partitions: rows pass through

    def places(
        self, cells: Sequence[Cells | Floats], there: Booleans, extra: Sequence[tuple[Floats, Floats]] = ()
    ) -> Places:
        """Where rows lie: each side's columns give the range columns; `extra` (lower, upper) follows them."""
        columns = [cells[ref.side][ref.column] for ref in self.shape.ranges]
        partition = None
        if self.shape.partition:
            partition = self.grouping.numbers(self.partition_columns(cells), len(there))
        uppers = [*columns, *(upper for _, upper in extra)]
        return Places([*columns, *(lower for lower, _ in extra)], partition, there, uppers)
