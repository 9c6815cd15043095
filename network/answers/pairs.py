"""Two columns of pairs (message, listener), merged by message: who a row was, and is, in the range of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hullcast.network.compiled import inlined

Ints = npt.NDArray[np.int64]


@inlined
def next_message(old_messages: Ints, a: int, new_messages: Ints, b: int) -> int:
    """The message that comes next, with old pairs taken up to a and new ones up to b; -1 at the end."""
    if a == len(old_messages) and b == len(new_messages):
        return -1
    if b == len(new_messages) or (a < len(old_messages) and old_messages[a] <= new_messages[b]):
        return int(old_messages[a])
    return int(new_messages[b])


@inlined
def end_of(messages: Ints, start: int, message: int) -> int:
    """Where the pairs of a message end that begin at `start`."""
    while start < len(messages) and messages[start] == message:
        start += 1
    return start
