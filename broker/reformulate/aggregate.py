"""Range COUNT, SUM and AVG: a message is the row's own change, since nearly every update matters."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.reformulate.boxes import ColumnChannel
from hullcast.broker.reformulate.first import Boxes, states_in_boxes
from hullcast.network.answers.aggregate import AVG, COUNT, EXACT_SUM, SUM, first_answers

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints
    from hullcast.network.wire.columns import Columns


class AggregateChannel(ColumnChannel):
    """COUNT(*), COUNT(y), SUM(y) or AVG(y) over boxes. A count is the sum of ones."""

    @cached_property
    def function(self) -> int:
        exact = self.y is not None and self.tables[0].columns[self.y].type.value == "INTEGER"
        return {"COUNT": COUNT, "SUM": EXACT_SUM if exact else SUM, "AVG": AVG}[self.shape.kind.name]

    def counting(self, y: Floats) -> Floats:
        return np.where(np.isnan(y), np.nan, 1.0) if self.function == COUNT else y

    def first_in(self, columns: list[Floats], y: Floats, boxes: Boxes) -> Columns:
        return first_answers(states_in_boxes(columns, y, boxes))

    def recompute(self, listeners: Ints) -> Columns:
        """From the exact sums of the rows."""
        points, member = self.audience.points_of(listeners), self.audience.members(listeners)
        d = len(self.shape.ranges)
        equal = self.grouping.columns(points[:, -1]) if self.shape.partition else []
        low, high = (np.column_stack((points[:, side : 2 * d : 2], *equal)) for side in (0, 1))
        return first_answers(states_in_boxes(*self.captured()(), Boxes.of(low, high, member=member), exact=True))
