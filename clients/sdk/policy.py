"""What happens to events that come faster than their subscription takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from network.wire.errors import BadSetting

#: latest      only the newest answer waits; what it replaced is counted in `conflated`
#: block       the link is read no further while the queue is full: the server keeps what comes, for a while
#: drop_oldest the oldest event goes, is counted in `dropped`, and a Resync stands where the gap is
#: error       the subscription ends with SubscriptionOverflow
Overflow = Literal["latest", "block", "drop_oldest", "error"]

#: A full queue that blocks takes so many times its buffer while a call of the same client waits for its reply, which
#: comes over the same link, or while nobody has begun to iterate; beyond that a Resync takes the place of the oldest.
OVERSHOOT = 8


@dataclass(frozen=True, slots=True)
class Policy:
    """A subscription's overflow policy; `buffer` is the number of events that may wait."""

    overflow: Overflow
    buffer: int = 1024

    def __post_init__(self) -> None:
        if self.overflow not in get_args(Overflow):
            raise BadSetting("overflow", self.overflow, f"it takes one of {', '.join(get_args(Overflow))}")
        given: object = self.buffer
        if type(given) is not int or given < 1:
            raise BadSetting("buffer", self.buffer, "it takes a whole number, 1 or more")

    @property
    def queues(self) -> bool:
        """Whether single events wait, rather than the newest answer."""
        return self.overflow != "latest"

    @property
    def limit(self) -> int:
        """Events that wait at most, whatever happens; beyond that the oldest becomes a Resync."""
        return self.buffer if self.overflow == "drop_oldest" else OVERSHOOT * self.buffer


def default_overflow(kind: str) -> Overflow:
    """A single value is worth no more than the newest; of sets and rows each change is told."""
    return "latest" if kind in ("MIN", "MAX", "COUNT", "SUM", "AVG") else "block"
