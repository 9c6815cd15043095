"""The queue in front of an operator: micro-batches in order, counted in tuples and bytes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hullcast.broker.streams.batch import BEGINNING, StreamMoment, TupleBatch, joined
from hullcast.broker.streams.policies.policy import OperatorQueue
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(eq=False, slots=True)
class TupleQueue(OperatorQueue):
    """Tuples that wait, as policies see them (`size` is in bytes, `arrived` that of the oldest).

    Batches without tuples are not kept: of them only `reached` is of interest. It is not bounded by itself: the runner
    says when its queues hold too much, and then nothing more comes in from outside (`Runner.full`).

    Invariants:
      Q1  `tuples` and `size` are those of the batches; `arrived` is that of the first, if there is one.
      Q2  Moments rise from batch to batch, and none is behind `reached`.
    """

    tuples: int = 0
    reached: StreamMoment = BEGINNING  # everything up to there has been put in
    _batches: deque[TupleBatch] = field(default_factory=deque)

    def __len__(self) -> int:
        return self.tuples

    def waiting(self) -> Iterable[tuple[float, float]]:
        """(arrived, bytes) of what waits, oldest first."""
        if len(self._batches) == 1:
            return ((self.arrived, self.size),)  # as is most often the case, and in a third of the time
        return ((batch.arrived, float(batch.size_bytes)) for batch in self._batches)

    def put(self, batch: TupleBatch) -> None:
        """More tuples, behind all others; or, without tuples, only how far the stream is."""
        self.reached = batch.reached
        count = len(batch.seqs)
        if count:
            if not self._batches:
                self.arrived = batch.arrived
            self._batches.append(batch)
            self.tuples += count
            self.size += batch.size_bytes

    def gather(self, least: int) -> TupleBatch:
        """The oldest tuples, which stay: at least so many, if there are; there is one. If they are all that waits, the
        stream is as far with them as it is."""
        batches = self._batches
        if len(batches) > 1 and len(batches[0].seqs) < least:
            some, count = [], 0
            while batches and count < least:
                some.append(batches.popleft())
                count += len(some[-1].seqs)
            self.size -= sum(batch.size_bytes for batch in some)
            batches.appendleft(joined(some))
            self.size += batches[0].size_bytes
        first = batches[0]
        return first if len(batches) > 1 else first._replace(reached=self.reached)

    def drop(self, count: int) -> None:
        """The oldest tuples, all of them among what was gathered last, are consumed."""
        if not count:
            return
        batch = self._batches.popleft()
        self.size -= batch.size_bytes
        self.tuples -= count
        if count < len(batch.seqs):
            self._batches.appendleft(batch.split(count)[1])
            self.size += self._batches[0].size_bytes
        elif self._batches:
            self.arrived = self._batches[0].arrived

    def first(self) -> StreamMoment:
        """The moment of the oldest tuple; there is one."""
        return self._batches[0].first

    def frontier(self) -> StreamMoment:
        """Whatever leaves this queue from now on is behind this moment, and nothing lies between."""
        if not self._batches:
            return self.reached
        time, seq = self._batches[0].first
        return StreamMoment(time, seq - 1)

    def take(self, most: int) -> TupleBatch:
        """The oldest tuples, up to `most`; there is at least one. If they are all that waits, the stream is as far with
        them as it is."""
        taken, room = [], most
        while self._batches and room:
            batch = self._batches.popleft()
            self.size -= batch.size_bytes
            if len(batch.seqs) > room:
                batch, rest = batch.split(room)
                self._batches.appendleft(rest)
                self.size += rest.size_bytes
            taken.append(batch)
            room -= len(batch.seqs)
        found = joined(taken)
        self.tuples -= len(found.seqs)
        if self._batches:
            self.arrived = self._batches[0].arrived
        elif self.reached != found.reached:
            found = found._replace(reached=self.reached)
        return found

    def put_back(self, batch: TupleBatch) -> None:
        """The last tuples of what was taken last wait again."""
        self._batches.appendleft(batch)
        self.tuples += len(batch.seqs)
        self.size += batch.size_bytes
        self.arrived = batch.arrived

    def contents(self) -> Iterator[TupleBatch]:
        """What waits, oldest first."""
        return iter(self._batches)

    def check(self) -> None:
        """Raise InvariantBroken unless Q1 and Q2 hold."""
        if self.tuples != sum(len(b.seqs) for b in self._batches) or self.size != sum(
            b.size_bytes for b in self._batches
        ):
            raise InvariantBroken(f"Q1: {self.tuples} tuples and {self.size} bytes are not what waits")
        if self._batches and self.arrived != self._batches[0].arrived:
            raise InvariantBroken("Q1: the oldest came at another time")
        before = BEGINNING
        for batch in self._batches:
            for moment in map(StreamMoment, batch.times.tolist(), batch.seqs.tolist()):
                if not before <= moment <= self.reached:  # the results of one tuple share its moment
                    raise InvariantBroken(f"Q2: {moment} comes behind {before}, the queue is at {self.reached}")
                before = moment
