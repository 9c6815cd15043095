"""Range MIN and MAX as channels: rectangles out, one number per subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hullcast.broker.reformulate.channel import Floats, Ints, Opening, ScalarChannel
from hullcast.broker.reformulate.kernel import BEST, INNER_L, INNER_R, OUTER_L, OUTER_R, PARTITION, SIGN, UPDATE
from hullcast.broker.reformulate.messages import Messages
from hullcast.broker.sql.query import Kind
from hullcast.broker.tables.schema import ColumnType
from hullcast.broker.tables.values import decode, decode_column
from hullcast.network.answers.extremum import ExtremumAnswers, heard
from hullcast.network.matching.duality import NO_PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hullcast.broker.reformulate.keeper import TreeKeeper
    from hullcast.broker.reformulate.messages import Column
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.store import TableStore, Updates
    from hullcast.network.wire.columns import Columns


class ExtremumChannel(ScalarChannel):
    """MIN or MAX of y over ranges of x. The two share one tree: see `TreeKeeper`."""

    def __init__(self, opening: Opening, keeper: TreeKeeper) -> None:
        super().__init__(opening)
        shape = opening.shape
        assert shape.y is not None, "S2"
        self.sign = 1.0 if shape.kind is Kind.MIN else -1.0
        self.keeper = keeper
        keeper.wanted |= self._bit
        keeper.askers.append(self.partitions_asked)
        self.answers = ExtremumAnswers()
        self._y_type = self.tables[0].columns[shape.y.column].type
        self._fields: Floats = np.empty((0, 0))

    @property
    def _bit(self) -> int:
        return 1 if self.sign > 0 else 2

    def release(self) -> None:
        self.keeper.wanted &= ~self._bit
        self.keeper.askers.remove(self.partitions_asked)

    def memory_bytes(self) -> int:
        return super().memory_bytes() + self.answers.values.nbytes

    @property
    def wants_sweep(self) -> bool:
        return self.keeper.grouping.wants_sweep

    def sweep(self) -> None:
        self.keeper.sweep(self.stores[0])

    def partition_numbers(self, columns: Sequence[Floats], n: int) -> Floats:
        return self.keeper.grouping.numbers(columns, n)

    def codes_of(self, partitions: Floats) -> list[Floats]:
        return self.keeper.grouping.columns(partitions)

    def partitions_numbered(self) -> Floats:
        return self.keeper.grouping.known()

    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        raw, tally = self.keeper.update(updates)
        if self.keeper.wanted == 3:
            raw = raw[raw[:, SIGN] == self.sign]
        self._fields = np.ascontiguousarray(raw.T)
        self.count(len(raw), tally[:3] if self.sign > 0 else tally[3:])
        seqs = self._fields[UPDATE].astype(np.int64) + first_seq
        return Messages(self.name, seqs, self._columns(self._fields), self._wire(self._fields))

    def _columns(self, fields: Floats) -> Callable[[], dict[str, Column]]:
        """Fields named as in Xie (2007); NEWMIN (NEWMAX) is an infinity where no row is left."""
        partition = self.codes_of(fields[PARTITION]) if self.shape.partition else []
        texts = self.interner.texts

        def columns() -> dict[str, Column]:
            named: dict[str, Column] = {}
            for ref, codes in zip(self.shape.partition, partition, strict=True):
                column = self.tables[0].columns[ref.column]
                named[f"by.{column.name}"] = np.array(decode_column(column.type, codes, texts), dtype=object)
            named["NEWMIN" if self.sign > 0 else "NEWMAX"] = fields[BEST]
            for field, name in ((INNER_L, "INNER_L"), (INNER_R, "INNER_R"), (OUTER_L, "OUTER_L"), (OUTER_R, "OUTER_R")):
                named[name] = fields[field]
            return named

        return columns

    def _wire(self, fields: Floats) -> Callable[[], Columns]:
        names = {"il": INNER_L, "ir": INNER_R, "ol": OUTER_L, "or": OUTER_R, "best": BEST}
        if self.shape.partition:
            names["part"] = PARTITION
        return lambda: {name: fields[field] for name, field in names.items()}

    def tell(self, messages: Messages) -> None:
        if not len(self.audience) or not len(messages):
            return
        f = self._fields
        partitions = f[PARTITION] if self.shape.partition else NO_PARTITIONS
        for what, who in heard(self.audience, f[INNER_L], f[INNER_R], f[OUTER_L], f[OUTER_R], partitions):
            self.answers.hear(self.audience, what, who, messages.seqs, f[BEST])
            self._told += len(who)

    def admit(self, predicates: Predicates) -> Ints:
        points = self.points(predicates)
        best = self._best(points, predicates)
        ids = self.audience.admit(points, predicates.never)
        self.answers.start(ids, best)
        return ids

    capture_at_once = 4096

    def capture_cost(self, n: int) -> int:
        return 0  # `capture` has done it all

    def capture(self, predicates: Predicates) -> Callable[[], Columns]:
        best = self._best(self.points(predicates), predicates)  # the tree answers at once, and is not copied
        return lambda: {"best": best}

    def loading(self) -> list[tuple[TreeKeeper, TableStore]]:
        return [] if self.keeper.loaded else [(self.keeper, self.stores[0])]

    def absorb(self, side: int, updates: Updates) -> None:
        self.keeper.update(updates)

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

    def answer_column(self, listeners: Ints) -> npt.NDArray[Any]:
        """Many answers at once: floats with NaN, or for timestamps datetime64 with NaT, for NULL."""
        values = self.answers.values[listeners]
        empty = np.isinf(values)
        if self._y_type is not ColumnType.TIMESTAMP:
            values[empty] = np.nan
            return values
        values[empty] = 0.0
        instants = values.astype(np.int64).astype("datetime64[us]")
        instants[empty] = np.datetime64("NaT")
        return instants

    def answer(self, listener: int) -> Any:
        return self.read(float(self.answers.values[listener]), 0.0)

    def read(self, value: float, rest: float) -> Any:
        return None if np.isinf(value) else decode(self._y_type, value, self.interner)
