"""What a batch of updates becomes: per channel, columns of messages that depend on no state any more."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from hullcast.broker.tables.travel import travelling
from hullcast.network.wire.columns import concatenate, take

if TYPE_CHECKING:
    from hullcast.broker.tables.interning import Texts
    from hullcast.broker.tables.schema import ColumnType
    from hullcast.network.wire.arrays import Floats, Ints
    from hullcast.network.wire.columns import Columns as WireColumns

ShownColumn = npt.NDArray[Any]

COLUMN_COST_S = 0.001
NO_TYPES: Mapping[str, ColumnType] = {}
NO_POSITIONS: Mapping[str, str] = {}


class Messages:
    """The messages of one channel for one batch, in the order of the updates.

    `codes` is what they say, for machines: `seq`, codes and partition numbers, by the names of
    network/wire/PROTOCOL.md. Nodes route by them, and the answers of subscriptions here and elsewhere take them in.
    Elsewhere texts need their words: `wire` has them, for the columns of `types`.

    `columns` is the same for people: `seq` and, by kind of channel, the fields named in MESSAGES.md. Columns of the
    user's tables have a prefix (`by.`, `old.`, `new.`, `row.`), so that no name of theirs can be taken for one of
    ours. Made when first asked for, because most batches are only matched, not looked at.
    """

    def __init__(
        self,
        channel: str,
        codes: WireColumns,
        columns: Callable[[], dict[str, ShownColumn]],
        types: Mapping[str, ColumnType] = NO_TYPES,
        texts: Texts | None = None,
    ) -> None:
        self.channel = channel
        self.seqs = cast("Ints", codes["seq"])
        self.codes = codes
        self.complete = True  # False: there are more than can be told, so whoever listens must begin again
        self._columns = columns
        self._types, self._texts = types, texts
        self._positions = NO_POSITIONS

    def __len__(self) -> int:
        return len(self.seqs)

    @cached_property
    def columns(self) -> dict[str, ShownColumn]:
        """Name to column; all of the same length."""
        return {"seq": self.seqs, **self._columns(), **dict.fromkeys(self._positions.values(), self.seqs)}

    def wire(self) -> WireColumns:
        """The columns as they travel."""
        return on_the_way(self.codes, self._types, self._texts)

    def advance(self, by: int, positions: Mapping[str, str] = NO_POSITIONS) -> None:
        """Give the updates later sequence numbers, which are also in columns of these names, for machines and people:
        there they are positions of tuples that came."""
        self.seqs += by
        self._positions = positions
        for name in positions:
            self.codes[name] = self.seqs.astype(np.float64)

    def nothing(self) -> Messages:
        """None of these messages."""
        none = take(self.codes, np.empty(0, np.int64))
        return Messages(
            self.channel,
            none,
            lambda: {name: column[:0] for name, column in self._columns().items()},
            self._types,
            self._texts,
        )

    @classmethod
    def joining(cls, parts: Sequence[Messages]) -> Generator[float, None, Messages]:
        """The messages of updates that follow each other, as one: work (broker/scheduling/driver.py), by columns."""

        def columns() -> dict[str, ShownColumn]:
            shown = [part._columns() for part in parts]
            return {name: np.concatenate([some[name] for some in shown]) for name in shown[0]}

        codes: WireColumns = {}
        for name in parts[0].codes:
            codes |= concatenate([{name: part.codes[name]} for part in parts])
            yield COLUMN_COST_S
        last = parts[-1]  # it knows all texts
        return cls(last.channel, codes, columns, last._types, last._texts)

    def __repr__(self) -> str:
        return f"Messages({self.channel!r}, {len(self)})"


def on_the_way(codes: WireColumns, types: Mapping[str, ColumnType], texts: Texts | None) -> WireColumns:
    """Columns of codes as they travel: those of `types` as values of that type."""
    if not types:
        return dict(codes)
    assert texts is not None, "values need their texts"
    return {
        name: travelling(types[name], cast("Floats", column), texts) if name in types else column
        for name, column in codes.items()
    }


@dataclass(frozen=True, slots=True)
class Batch:
    """What `upsert` and `delete` return: update i of the batch has the sequence number first_seq + i."""

    first_seq: int
    last_seq: int  # first_seq - 1 for an empty batch
    messages: Mapping[str, Messages] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.last_seq - self.first_seq + 1
