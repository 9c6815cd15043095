"""What a batch of updates becomes: per channel, columns of messages that depend on no state any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from hullcast.network.wire.columns import Column as WireColumn

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Column = npt.NDArray[Any]


class Messages:
    """The messages of one channel for one batch, in the order of the updates.

    `columns` is what goes out: `seq` and, by kind of channel, the fields named in ARCHITECTURE.md. Columns of the
    user's tables have a prefix (`by.`, `old.`, `new.`, `row.`), so that no name of theirs can be taken for one of
    ours. Made when first asked for, because most batches are only matched, not looked at.

    `wire` is the same for machines: what nodes route by and subscribers elsewhere take in (network/wire/PROTOCOL.md).
    """

    def __init__(
        self,
        channel: str,
        seqs: Ints,
        columns: Callable[[], dict[str, Column]],
        wire: Callable[[], dict[str, WireColumn]],
    ) -> None:
        self.channel = channel
        self.seqs = seqs
        self.complete = True  # False: there are more than can be told, so whoever listens must begin again
        self._columns = columns
        self._wire = wire

    def __len__(self) -> int:
        return len(self.seqs)

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Name to column; all of the same length."""
        return {"seq": self.seqs, **self._columns()}

    def wire(self) -> dict[str, WireColumn]:
        """The columns as they travel: codes and partition numbers, texts with their words."""
        return {"seq": self.seqs, **self._wire()}

    def __repr__(self) -> str:
        return f"Messages({self.channel!r}, {len(self)})"


@dataclass(frozen=True, slots=True)
class Batch:
    """What `upsert` and `delete` return: update i of the batch has the sequence number first_seq + i."""

    first_seq: int
    last_seq: int  # first_seq - 1 for an empty batch
    messages: Mapping[str, Messages] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.last_seq - self.first_seq + 1
