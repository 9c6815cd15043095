"""Range MIN and MAX as channels: rectangles out, one number per subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.reformulate.channel import Opening, SingleChannel
from hullcast.broker.reformulate.kernel import (
    BEST,
    INNER_L,
    INNER_R,
    OUTER_L,
    OUTER_R,
    PARTITION,
    by_field,
    rectangles,
)
from hullcast.broker.reformulate.messages import Messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.reformulate.messages import ShownColumn
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.store import Updates
    from hullcast.network.wire.arrays import Floats
    from hullcast.network.wire.columns import Columns


class ExtremumChannel(SingleChannel):
    """MIN or MAX of y over ranges of x. The two share one tree: see `TreeKeeper`."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        shape = opening.shape
        assert shape.y is not None, "S2"
        self.sign = 1.0 if shape.kind.name == "MIN" else -1.0
        x = shape.ranges[0].column if shape.ranges else None
        self.keeper = self.share(0, x, shape.y.column, tuple(ref.column for ref in shape.partition))
        self.keepers, self.grouping = (self.keeper,), self.keeper.grouping
        self.keeper.wanted |= self._bit
        self.keeper.askers.append(self.partitions_asked)

    @property
    def _bit(self) -> int:
        return 1 if self.sign > 0 else 2

    def release(self) -> None:
        self.keeper.wanted &= ~self._bit
        self.keeper.askers.remove(self.partitions_asked)

    def sweep(self) -> bool:
        return self.keeper.sweep(self.stores[0])

    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        raw, tally = self.keeper.update(updates)
        seqs, fields = by_field(raw, self.sign, first_seq)
        self.count(len(seqs), tally[:3] if self.sign > 0 else tally[3:])
        codes: Columns = {"seq": seqs, **rectangles(fields), "best": fields[BEST]}
        if self.shape.partition:
            codes["part"] = fields[PARTITION]
        return Messages(self.name, codes, self._columns(fields))

    def _columns(self, fields: Floats) -> Callable[[], dict[str, ShownColumn]]:
        """Fields named as in Xie (2007); NEWMIN (NEWMAX) is an infinity where no row is left."""
        partition = self.grouping.columns(fields[PARTITION]) if self.shape.partition else []
        texts = self.interner.texts

        def columns() -> dict[str, ShownColumn]:
            named = self.partition_columns(partition, texts)
            named["NEWMIN" if self.sign > 0 else "NEWMAX"] = fields[BEST]
            for field, name in ((INNER_L, "INNER_L"), (INNER_R, "INNER_R"), (OUTER_L, "OUTER_L"), (OUTER_R, "OUTER_R")):
                named[name] = fields[field]
            return named

        return columns

    capture_at_once = 4096

    def capture_cost(self, n: int) -> int:
        return 0  # `capture` has done it all

    def capture(self, predicates: Predicates) -> Callable[[], Columns]:
        self.check_free()
        best = self._best(self.points(predicates), predicates)  # the tree answers at once, and is not copied
        return lambda: {"best": best}

    def _best(self, points: Floats, predicates: Predicates) -> Floats:
        """The answers as of now; an infinity stands for NULL."""
        groups = points[:, 2] if self.shape.partition else np.zeros(len(points))
        low, high = np.ascontiguousarray(points[:, 0]), np.ascontiguousarray(points[:, 1])
        if not self.shape.ranges:
            low, high = np.zeros(len(points)), np.zeros(len(points))
        best = self.keeper.tree.range_best(np.ascontiguousarray(groups), low, high, self.sign)
        if predicates.never is not None:
            best[predicates.never] = self.sign * np.inf
        return best
