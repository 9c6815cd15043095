"""What all operators have in common: queues before them, and what they make of a micro-batch."""

from __future__ import annotations

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


def too_many(results: int) -> TooLarge:
    """Why a join cannot go on: one tuple makes more results than can be handled together."""
    return TooLarge("results of one tuple in a join over streams (use smaller windows)", results, MOST_RESULTS)


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
