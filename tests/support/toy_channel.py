"""A toy kind, the server's side: first answers of BIT_XOR(y). Its messages are those of every function of a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.reformulate.boxes import ColumnChannel
from hullcast.broker.reformulate.first import Boxes, rows_in_boxes

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats
    from hullcast.network.wire.columns import Columns


class XorChannel(ColumnChannel):
    """BIT_XOR(y) over boxes."""

    def first_in(self, columns: list[Floats], y: Floats, boxes: Boxes) -> Columns:
        of, rows = rows_in_boxes(columns, len(y), boxes)
        of, values = of[~np.isnan(y[rows])], y[rows][~np.isnan(y[rows])].astype(np.int64)
        bits = np.zeros(len(boxes.which), np.int64)
        np.bitwise_xor.at(bits, of, values)
        return {"rows": np.bincount(of, minlength=len(bits)).astype(np.float64), "bits": bits.astype(np.float64)}
