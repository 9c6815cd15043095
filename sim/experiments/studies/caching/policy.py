"""What a policy of bounded memory is: it says which tuples go, for joins and caches alike. Pure.

These work on whole steps and whole numbers, with streams that are known, as experiments and proofs do. What runs in a
server is `broker/streams/memory`, compiled, with streams that it has to guess: the part `live` measures that one.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from hullcast.broker.streams.memory.worth import alpha_of
from hullcast.sim.experiments.studies.caching.curves import worth_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.network.wire.arrays import Floats, Ints
    from hullcast.sim.experiments.studies.caching.curves import Worth
    from hullcast.sim.experiments.studies.caching.models import StreamModel

R, S = 0, 1
#: Points in each direction of surfaces for alphas that are found by racing: with five, small alphas are too coarse.
FINE = 9


class Candidates(NamedTuple):
    """The tuples that may be kept, those just arrived included; columns of one length, oldest first."""

    sides: Ints  # R or S; in a cache all are S, and the reference stream is R
    values: Ints
    arrived: Ints  # the step in which it came
    used: Ints  # the step in which it last joined or was referenced, at first that of its arrival

    def without(self, gone: Ints) -> Candidates:
        """The others."""
        stay = np.ones(len(self.values), np.bool_)
        stay[gone] = False
        return Candidates(*(column[stay] for column in self))


def no_candidates() -> Candidates:
    """None yet."""
    none = np.zeros(0, np.int64)
    return Candidates(none, none, none, none)


class MemoryPolicy:
    """Decides what is kept. It sees every value that the streams show, and the candidates."""

    name: ClassVar[str]

    def show(self, shown: Sequence[int | None], now: int) -> None:
        """The streams R and S show these values now (None: nothing); called before the decision of the step."""

    def worth(self, candidates: Candidates, now: int) -> Floats:
        """What each is worth: those of the least worth go."""
        raise NotImplementedError

    def dropped(self, candidates: Candidates, count: int, now: int) -> Ints:
        """The places of those that go; of equal ones the oldest."""
        return np.argsort(self.worth(candidates, now), kind="stable")[:count]


class Heeb(MemoryPolicy):
    """HEEB: H by what is known of the streams. `of_r` is H of tuples of R, which wait for S, and so on; a cache needs
    only `of_s`, whose tuples wait for the reference stream."""

    name: ClassVar[str] = "HEEB"

    def __init__(self, of_s: Worth | None, of_r: Worth | None = None) -> None:
        self._worth = (of_r, of_s)
        self._last = [0, 0]

    def show(self, shown: Sequence[int | None], now: int) -> None:
        for side, value in enumerate(shown):
            if value is not None:
                self._last[side] = value

    def worth(self, candidates: Candidates, now: int) -> Floats:
        found = np.zeros(len(candidates.values))
        for side, worth in enumerate(self._worth):
            mine = candidates.sides == side
            if worth is not None and mine.any():
                found[mine] = worth.of(candidates.values[mine], now, self._last[1 - side])
        return found


class ObservedHeeb(MemoryPolicy):
    """HEEB whose alpha follows the lifetimes that it observes: of all that it drops, what it does not keep at all
    included. (Xie (2007), section 3.5.3, leaves this to future work, and sets alpha by a guess.)"""

    name: ClassVar[str] = "HEEB, observed"

    def __init__(self, of_s: StreamModel, of_r: StreamModel | None, memory: int, *, caching: bool = False) -> None:
        """`of_s`: the stream that tuples of S wait for, which is R; and so on."""
        self._models, self._caching = (of_s, of_r), caching
        self._made: dict[int, Heeb] = {}
        self._lifetime, self._seen, self._last = float(max(2, memory)), 0, [0, 0]

    def show(self, shown: Sequence[int | None], now: int) -> None:
        self._last = [last if value is None else value for last, value in zip(self._last, shown, strict=True)]

    def worth(self, candidates: Candidates, now: int) -> Floats:
        rung = max(1, round(10 * log(max(self._lifetime, 1.05))))  # lifetimes a tenth apart are taken for the same
        if rung not in self._made:
            alpha = alpha_of(float(np.exp(rung / 10)))
            self._made[rung] = Heeb(
                *(None if model is None else worth_for(model, alpha, caching=self._caching) for model in self._models)
            )
        heeb = self._made[rung]
        heeb.show(self._last, now)
        return heeb.worth(candidates, now)

    def dropped(self, candidates: Candidates, count: int, now: int) -> Ints:
        gone = super().dropped(candidates, count, now)
        for lived in (now - candidates.arrived[gone]).tolist():
            self._seen += 1
            self._lifetime += (lived - self._lifetime) / min(500, self._seen + 10)
        return gone


class RacedHeeb(MemoryPolicy):
    """HEEB whose alpha is the one that would have done best lately: ours.

    For each of RACED alphas a ghost keeps what HEEB would keep by it, and counts results; decisions are made by the
    alpha of the ghost that has most of them, older ones counting less. Costs as much as so many policies.
    """

    name: ClassVar[str] = "HEEB, raced"
    RACED: ClassVar[tuple[float, ...]] = (1.0, 2.0, 4.0, 8.0, 16.0, 64.0)
    #: How far back results count, in steps.
    BACK: ClassVar[float] = 500.0

    def __init__(self, of_s: StreamModel, of_r: StreamModel | None, memory: int, *, caching: bool = False) -> None:
        """`of_s`: the stream that tuples of S wait for, which is R; and so on."""
        self._memory, self._caching = memory, caching
        self._heebs = [
            Heeb(*(None if model is None else worth_for(model, alpha, caching=caching, points=FINE)
                   for model in (of_s, of_r)))
            for alpha in self.RACED
        ]  # fmt: skip
        self._ghosts = [no_candidates() for _ in self.RACED]
        self._results = np.zeros(len(self.RACED))

    def show(self, shown: Sequence[int | None], now: int) -> None:
        self._results *= 1.0 - 1.0 / self.BACK
        came = [side for side in ((S,) if self._caching else (R, S)) if self._caching or shown[side] is not None]
        values = np.array([shown[R if self._caching else side] for side in came], np.int64)
        # what each kept tuple is compared with: in a cache the reference, in a join what came of the other stream
        partners = np.array([0 if value is None else value for value in shown], np.int64)
        for place, (heeb, ghost) in enumerate(zip(self._heebs, self._ghosts, strict=True)):
            heeb.show(shown, now)
            joins = ghost.values == partners[1 - ghost.sides]
            self._results[place] += np.count_nonzero(joins)
            if self._caching and joins.any():
                continue
            step = np.full(len(came), now)
            columns = zip(ghost, (np.array(came, np.int64), values, step, step), strict=True)
            ghost = Candidates(*(np.concatenate(pair) for pair in columns))
            over = len(ghost.values) - self._memory
            self._ghosts[place] = ghost.without(heeb.dropped(ghost, over, now)) if over > 0 else ghost

    def worth(self, candidates: Candidates, now: int) -> Floats:
        return self._heebs[int(np.argmax(self._results))].worth(candidates, now)
