"""The events of a subscription: its first answer, changes, the whole answer after a gap, and progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

#: None, a number, a timestamp, a set of values, or a list of rows: whatever the SQL gives.
Answer = Any


@dataclass(frozen=True, slots=True, repr=False)
class Change:
    """The answer changed at sequence number `seq`.

    For sets and rows `entered` and `left` say what came and went, and `changed` holds (before, after) pairs.
    `conflated` earlier changes were not told by events of their own, since too many waited: they are part of this one.
    """

    seq: int
    _answer: Callable[[], Answer]
    entered: tuple[Any, ...] = ()
    left: tuple[Any, ...] = ()
    changed: tuple[tuple[Any, Any], ...] = ()
    conflated: int = 0

    @property
    def answer(self) -> Answer:
        """The whole answer at `seq`."""
        return self._answer()

    def __reduce__(self) -> tuple[Any, ...]:  # with the answer itself: what it would be computed from stays here
        answer = partial(_same, self.answer)
        return Change, (self.seq, answer, self.entered, self.left, self.changed, self.conflated)

    def __repr__(self) -> str:
        parts = [f"seq={self.seq}"]
        if not (self.entered or self.left or self.changed):  # a single value: short enough to show
            parts.append(f"answer={self.answer!r}")
        others = ("entered", "left", "changed", "conflated")
        parts += [f"{name}={value!r}" for name in others if (value := getattr(self, name))]
        return f"Change({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class StreamTuple:
    """A tuple came in a stream: `row` is what the SELECT shows of it, `seq` its position in the stream.

    `conflated` tuples before it were left out, since too many waited (`overflow="conflate"` or `"latest"`).
    """

    seq: int
    row: Any
    conflated: int = 0

    @property
    def answer(self) -> Any:
        """The row: for code that takes any kind of event."""
        return self.row


@dataclass(frozen=True, slots=True)
class Resync:
    """Events were lost; this is the whole answer at `seq`. Of a stream, which has no answer (None), tuples up to
    `seq` may be missing, and none behind it.

    `lost` events were dropped here. `reason` is "overflow" (they were not taken in time), "gap" (the server could not
    replay what was missed while disconnected, so the number is not known) or "sum" (a sum lost precision and was
    recomputed from the rows). `conflated` events around it were not told by themselves: they are part of the answer.
    """

    seq: int
    answer: Answer
    lost: int
    reason: str = "overflow"
    conflated: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The first answer of a subscription, at `seq`."""

    seq: int
    answer: Answer
    conflated: ClassVar[int] = 0  # for code that takes any kind of event


@dataclass(frozen=True, slots=True)
class Progress:
    """No change up to `seq`: the answer is still the one of the last event."""

    seq: int


def change_to(seq: int, answer: Answer, conflated: int = 0) -> Change:
    """The change of a single value."""
    return Change(seq, partial(_same, answer), conflated=conflated)


def _same(answer: Answer) -> Answer:
    return answer


#: What a subscription hears.
Event = Change | Resync | StreamTuple
#: What the subscription of a client hears that asked for more.
AnyEvent = Event | Snapshot | Progress
