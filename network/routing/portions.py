"""Messages too many for one frame, cut between updates: a subscriber must not see half of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.wire.columns import size_bytes, take

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hullcast.network.wire.columns import Columns


def portions(
    through: int, channels: Mapping[int, Columns], most_bytes: int
) -> Iterator[tuple[int, dict[int, Columns]]]:
    """(through, messages) in order, each of about `most_bytes` at most, unless a single update makes more."""
    if sum(map(size_bytes, channels.values())) <= most_bytes:
        yield through, dict(channels)
        return
    seqs = np.concatenate([np.asarray(columns["seq"]) for columns in channels.values()])
    first, last = int(seqs.min()), int(seqs.max())
    if first == last:
        yield through, dict(channels)
        return
    middle = min(int(np.median(seqs)), last - 1)
    yield from portions(middle, _between(channels, first, middle), most_bytes)
    yield from portions(through, _between(channels, middle + 1, last), most_bytes)


def _between(channels: Mapping[int, Columns], first: int, last: int) -> dict[int, Columns]:
    """The messages of some updates; channels without any are left out."""
    found = {}
    for channel, columns in channels.items():
        seqs = np.asarray(columns["seq"])
        wanted = (first <= seqs) & (seqs <= last)
        if wanted.any():
            found[channel] = take(columns, wanted)
    return found
