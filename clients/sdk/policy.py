"""What happens to events that come faster than their subscription takes them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import get_args

from hullcast.network.answers.answers import Overflow
from hullcast.network.wire.errors import BadSetting

#: A queue that blocks holds back nobody while no event of it was ever taken: whoever subscribes only for `answer` need
#: not take any. It then keeps so many times its buffer, and what the last frame brought; the oldest become a Resync.
OVERSHOOT = 8


@dataclass(frozen=True, slots=True)
class OverflowPolicy:
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
        """Events that wait at most; beyond that the oldest becomes a Resync. Only "drop_oldest" has such a limit: for
        the others, what a frame brings waits in full, and no more frames are heard (or the subscription ends)."""
        return self.buffer if self.overflow == "drop_oldest" else sys.maxsize
