"""What a subscription hears: its first answer, changes of it, its answer anew after a gap, and how far all is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

#: None, a number, a timestamp, a set of values, or a list of rows: whatever the SQL gives.
Answer = Any


@dataclass(frozen=True, slots=True, repr=False)
class Change:
    """The answer changed at sequence number `seq`.

    For sets and rows `entered` and `left` say what came and went, and `changed` holds (before, after) pairs.
    """

    seq: int
    _answer: Callable[[], Answer]
    entered: tuple[Any, ...] = ()
    left: tuple[Any, ...] = ()
    changed: tuple[tuple[Any, Any], ...] = ()

    @property
    def answer(self) -> Answer:
        """The whole answer as of `seq`."""
        return self._answer()

    def __reduce__(self) -> tuple[Any, ...]:  # with the answer itself: what it would be computed from stays here
        return Change, (self.seq, partial(_same, self.answer), self.entered, self.left, self.changed)

    def __repr__(self) -> str:
        parts = [f"seq={self.seq}"]
        if not (self.entered or self.left or self.changed):  # a single value: short enough to show
            parts.append(f"answer={self.answer!r}")
        parts += [f"{name}={value!r}" for name in ("entered", "left", "changed") if (value := getattr(self, name))]
        return f"Change({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Resync:
    """Events were lost; this is the answer as of `seq`.

    `lost` of them were dropped here. `reason` says why: "overflow" (nobody took them in time), "gap" (what was missed
    while the connection was gone could not be replayed, so nobody knows how many more), or "sum" (a sum had lost bits
    and was taken anew from the rows).
    """

    seq: int
    answer: Answer
    lost: int
    reason: str = "overflow"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The answer with which a subscription begins, as of `seq`."""

    seq: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything up to `seq` has been told: a subscription that heard nothing has the answer it had."""

    seq: int


def _same(answer: Answer) -> Answer:
    return answer


#: What the subscription of an engine hears.
LocalEvent = Change | Resync
#: What the subscription of a client hears.
Event = Snapshot | Change | Resync | Progress
Events = Sequence[LocalEvent]
