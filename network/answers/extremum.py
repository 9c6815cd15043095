"""MIN and MAX of a range: a message replaces the answer outright."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from hullcast.network.answers.answers import SingleAnswers
from hullcast.network.answers.newest import replace_newest

if TYPE_CHECKING:
    from hullcast.network.answers.audience import Audience
    from hullcast.network.wire.arrays import Floats, Ints
    from hullcast.network.wire.columns import Columns


class ExtremumAnswers(SingleAnswers):
    """One number a listener, the best y; an infinity stands for NULL."""

    form = "rectangles"
    columns = ("best",)

    def hear(self, audience: Audience, columns: Columns) -> int:
        seqs, best, told = cast("Ints", columns["seq"]), cast("Floats", columns["best"]), 0
        for messages, listeners in audience.inside(*self.sides(columns)):
            values = best[messages]
            self.state[:, 0][listeners] = values  # of several messages to one listener the last one stays
            audience.outbox.put(listeners, seqs[messages], values)
            told += len(listeners)
        return told

    def hear_newest(self, audience: Audience, columns: Columns, latest: Ints, fresh: Ints) -> tuple[int, Ints]:
        seqs, best = cast("Ints", columns["seq"]), cast("Floats", columns["best"])
        cells = (self.state[:, 0], latest, fresh)
        return replace_newest(audience.index.arrays, *self.sides(columns), seqs, best, *cells)

    def numbers(self, ids: Ints) -> tuple[Floats, Floats]:
        return self.state[:, 0][ids], np.zeros(len(ids))

    def read(self, value: float, rest: float) -> Any:
        return None if np.isinf(value) else self.decoder.value(self.spec.y_type, value)

    def column(self, ids: Ints) -> npt.NDArray[Any]:
        """Floats with NaN for NULL; of timestamps datetime64 with NaT."""
        values: Floats = self.state[:, 0][ids]
        empty = np.isinf(values)
        if self.spec.y_type != "TIMESTAMP":
            values[empty] = np.nan
            return values
        values[empty] = 0.0
        instants: npt.NDArray[np.datetime64] = values.astype(np.int64).astype("datetime64[us]")
        instants[empty] = np.datetime64("NaT")
        return instants
