"""Policies at work on whole streams: a tuple of each stream a step, and room for k tuples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hullcast.sim.experiments.studies.caching.policy import Candidates, R, S, no_candidates

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Ints
    from hullcast.sim.experiments.studies.caching.policy import MemoryPolicy


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedJoin:
    """What came out: results by step, and the share of the memory that tuples of R had, by step."""

    results: Ints
    share_of_r: list[float]

    def after(self, warm: int) -> int:
        """Results from a step on."""
        return int(self.results[warm:].sum())


def simulate_join(policy: MemoryPolicy, r: Ints, s: Ints, memory: int) -> SimulatedJoin:
    """Join two streams of one tuple a step. Tuples that come in the same step are not joined: no policy matters there.

    In each step what came is joined with what is kept of the other stream, and then of all these at most `memory` stay.
    """
    results = np.zeros(len(r), np.int64)
    shares: list[float] = []
    kept = no_candidates()
    both = np.array([R, S])
    for now, pair in enumerate(zip(r.tolist(), s.tolist(), strict=True)):
        partners = np.array(pair)[1 - kept.sides]  # what came of the stream that each waits for
        joins = kept.values == partners
        results[now] = np.count_nonzero(joins)
        policy.show(pair, now)
        came = np.array([now, now])
        kept = Candidates(
            np.concatenate([kept.sides, both]), np.concatenate([kept.values, np.array(pair)]),
            np.concatenate([kept.arrived, came]), np.concatenate([np.where(joins, now, kept.used), came]),
        )  # fmt: skip
        over = len(kept.values) - memory
        if over > 0:
            kept = kept.without(policy.dropped(kept, over, now))
        shares.append(float(np.count_nonzero(kept.sides == R)) / max(1, len(kept.sides)))
    return SimulatedJoin(results, shares)


def simulate_cache(policy: MemoryPolicy, references: Ints, memory: int) -> Ints:
    """1 for each reference that was a hit, else 0. What is missed is fetched, and may be kept."""
    hits = np.zeros(len(references), np.int64)
    kept = no_candidates()
    for now, value in enumerate(references.tolist()):
        policy.show((value, None), now)
        found = kept.values == value
        if found.any():
            hits[now] = 1
            kept = kept._replace(used=np.where(found, now, kept.used))
            continue
        kept = Candidates(*(np.append(column, new) for column, new in zip(kept, (S, value, now, now), strict=True)))
        if len(kept.values) > memory:
            kept = kept.without(policy.dropped(kept, 1, now))
    return hits
