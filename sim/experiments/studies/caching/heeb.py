"""HEEB, the heuristic of estimated expected benefit: what a tuple should produce while it is kept.

    H_x = sum over dt >= 1 of (B_x(dt) - B_x(dt - 1)) L(dt),    L(dt) = exp(-dt / alpha)

L estimates the chance that x is still kept dt steps from now. alpha is such that the mean lifetime by this estimate,
1 / (1 - exp(-1 / alpha)), is the one observed. The tuple of smallest H is dropped. As L is the same for all tuples and
never rises, H_x >= H_y wherever B_x dominates B_y: HEEB makes every decision that dominance makes (Xie (2007),
section 3.4.3). Here are the direct sum and the incremental forms; curves.py has the precomputed ones.
"""

from __future__ import annotations

from math import exp, inf, log
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints


def alpha_for(lifetime: float) -> float:
    """The alpha whose mean lifetime is this one, in steps (more than 1)."""
    return -1.0 / log(1.0 - 1.0 / lifetime) if lifetime > 1.0 else 0.0


def lifetime_for(alpha: float) -> float:
    """The mean lifetime by exp(-dt / alpha)."""
    return 1.0 / (1.0 - exp(-1.0 / alpha)) if alpha < inf else inf


def survival(alpha: float, steps: int, left: Ints | None = None) -> Floats:
    """L(1) .. L(steps); where tuples leave their windows after so many more steps, a row for each, 0 from then on."""
    dt = np.arange(1, steps + 1)
    kept = np.exp(-dt / alpha)
    return kept if left is None else np.where(dt <= left[:, None], kept, 0.0)


def estimated(benefit: Floats, alpha: float, left: Ints | None = None) -> Floats:
    """H by the direct sum, for ECBs in rows. Steps beyond the last are left out: take enough of them."""
    each = np.diff(benefit, axis=1, prepend=0.0)
    return np.asarray((each * survival(alpha, benefit.shape[1], left)).sum(axis=1))


def steps_for(alpha: float, exactly: float = 1e-10) -> int:
    """How many steps matter: what comes later adds less than `exactly` to any H."""
    return max(1, int(np.ceil(-alpha * log(exactly * (1.0 - exp(-1.0 / alpha))))))


def next_joining(before: Floats, shown: Floats, alpha: float) -> Floats:
    """H one step later, from H and Pr{the other stream shows the value in that step}; for independent streams
    (Corollary 3): what was expected of this step is taken away, and the rest is a step nearer."""
    return exp(1.0 / alpha) * before - shown


def next_caching(before: Floats, shown: Floats, alpha: float) -> Floats:
    """The same for cached tuples (Corollary 4), of values that can fail to be shown."""
    return (exp(1.0 / alpha) * before - shown) / (1.0 - shown)


def windowed_joining(now: Floats, at_end: Floats, left: Ints, alpha: float) -> Floats:
    """H of tuples that leave their windows after so many more steps: from H without windows, now and of the step in
    which they leave, as that is what is taken away. For independent streams."""
    return now - np.exp(-left / alpha) * at_end
