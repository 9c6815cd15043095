"""A toy kind, the subscriber's side: BIT_XOR(y), the exclusive or of whole numbers; NULL where there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hullcast.network.answers.answers import SingleAnswers

if TYPE_CHECKING:
    from hullcast.network.answers.audience import Audience
    from hullcast.network.wire.arrays import Floats, Ints
    from hullcast.network.wire.columns import Columns


class XorAnswers(SingleAnswers):
    """Per listener how many rows are in its range, and their bits."""

    form = "places"
    columns = ("rows", "bits")

    def hear(self, audience: Audience, columns: Columns) -> int:
        seqs, told = cast("Ints", columns["seq"]), 0
        y = {step: cast("Floats", columns[name]) for step, name in ((-1, "old.y"), (1, "new.y"))}
        for was, now in audience.around(*self.boxes(columns)):
            moves = [(message, listener, -1) for message, listener in zip(*was, strict=True)]
            moves += [(message, listener, 1) for message, listener in zip(*now, strict=True)]
            before: dict[tuple[Any, Any], tuple[float, float]] = {}
            after: dict[tuple[Any, Any], tuple[float, float]] = {}
            for message, listener, step in sorted(moves):
                before.setdefault((message, listener), self.number(listener))
                rows, bits = self.state[listener]
                self.state[listener] = rows + step, int(bits) ^ int(y[step][message])
                after[message, listener] = self.number(listener)
            events = [(pair, value) for pair, value in after.items() if repr(value) != repr(before[pair])]
            who, what = np.array([(who, what) for (what, who), _ in events], np.int64).reshape(-1, 2).T
            audience.outbox.put(who, seqs[what], np.array([value for _, (value, _) in events], np.float64))
            told += len(events)
        return told

    def numbers(self, ids: Ints) -> tuple[Floats, Floats]:
        rows, bits = self.state[ids].T
        return np.where(rows == 0, np.nan, bits), np.zeros(len(ids))

    def read(self, value: float, rest: float) -> int | None:
        return None if np.isnan(value) else int(value)
