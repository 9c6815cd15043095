"""What all operators have in common: queues before them, and what they make of a micro-batch."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from hullcast.network.wire.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hullcast.broker.streams.batch import TupleBatch
    from hullcast.broker.streams.queue import TupleQueue
    from hullcast.network.wire.arrays import Floats


#: Results after which a join leaves the other tuples of its micro-batch for the next run: it may be that every tuple
#: meets every other one.
RESULTS_AT_ONCE: Final = 1 << 15
#: Results of one tuple, at most: they stay together, in one record of the log.
MOST_RESULTS: Final = 1 << 14


#: What helps if joins keep too much.
KEPT_REMEDY: Final = "(use WITH (memory = n) or smaller windows, or ask the operator to raise stream_memory_bytes)"


def too_many(results: int) -> TooLarge:
    """Why a join cannot go on: one tuple makes more results than can be handled together."""
    return TooLarge("results of one tuple in a join over streams (use smaller windows)", results, MOST_RESULTS)


class KeptMemory:
    """What all joins keep in memory (windows, copies of tables), and how much that may be."""

    def __init__(self, limit_bytes: float = inf) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def grow(self, held: int, more: int) -> None:
        """A join that holds so many bytes is about to take more. TooLarge if all together would have too much, or this
        one more than half of what there is: the join cannot go on."""
        if more > 0:
            check_kept(self.used_bytes - held, held + more, self.limit_bytes)
        self.used_bytes += more


def check_kept(others: int, needed: int, limit: float) -> None:
    """TooLarge if there is no room for a join beside the others: it may have half of all, and what they leave."""
    if needed > limit / 2:
        raise TooLarge(f"bytes that one join over streams keeps {KEPT_REMEDY}", needed, int(limit // 2))
    if others + needed > limit:
        what = f"bytes that all joins over streams keep, with {needed:,} for this one {KEPT_REMEDY}"
        raise TooLarge(what, others + needed, int(limit))


class Ran(NamedTuple):
    """What one run took from the queues (in tuples and bytes), and what it made."""

    tuples: int
    size_bytes: float
    made: TupleBatch


class Operator(Protocol):
    """One step of a path. It owns no clock and no queue: the runner says when it runs, and on what."""

    name: str

    def can_run(self, inputs: Sequence[TupleQueue]) -> bool:
        """Whether there is something that it may consume now."""

    def run(self, inputs: Sequence[TupleQueue], most: int) -> Ran:
        """Consume up to `most` tuples (or, where tuples belong together, a few more). It can run."""

    def held(self) -> Iterable[Floats]:
        """The codes that it keeps between runs: no text may lose its code while it is among them."""

    @property
    def size_bytes(self) -> int:
        """What it keeps between runs, in memory."""

    def keep_in(self, memory: KeptMemory) -> None:
        """From now on ask there before keeping more; what it keeps now is counted there already."""


class OneInput:
    """An operator that makes of each tuple what does not depend on other tuples."""

    def can_run(self, inputs: Sequence[TupleQueue]) -> bool:
        return inputs[0].tuples > 0

    def run(self, inputs: Sequence[TupleQueue], most: int) -> Ran:
        batch = inputs[0].take(most)
        return Ran(len(batch.seqs), batch.size_bytes, self.apply(batch))

    def apply(self, batch: TupleBatch) -> TupleBatch:
        """What becomes of a micro-batch."""
        raise NotImplementedError

    def held(self) -> Iterable[Floats]:
        return ()

    @property
    def size_bytes(self) -> int:
        return 0

    def keep_in(self, memory: KeptMemory) -> None:
        """Nothing is kept."""
