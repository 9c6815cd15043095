"""The synthetic workload of Xie (2007), Table 4.1: rows of R and S, and standing joins over them.

How we read the table. A, B and C are whole numbers from 0 to 10,000. For select-joins B is discretised so coarsely
that a row of R, whose B is uniform, meets `joining` rows of S on average: S.B is rounded down to multiples of
`joining * 10,000 / rows`, and R.B is a multiple too. For band joins B is discretised to whole numbers. A negative
length is drawn again. Means and deviations of lengths, which the table leaves open, are such that the numbers of the
text come out: with lengths of N(1000, 210) there are about 30 groups at 100,000 queries, and a row's A is in a tenth of
the ranges; with N(1000, 240) there are about 10 groups at 50 bands and 60 at 500,000.

Rectangles are (n, 4): x_low, x_high, y_low, y_high. For select-joins x is A and y is C; for bands x is open, and y is
S.B - R.B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import UsageError
from hullcast.sim.seeds import generator

#: Table 4.1.
DOMAIN = 10_000
SIZE = 100_000
PARTNER_B = (5_000.0, 1_000.0)  # mean and deviation of S.B
JOINING = 1_000  # rows of S that a row of R meets, on average
#: Of arrivals, in A and in B: powers of 1 / 1.3247.., the root of x ** 3 = x + 1.
STEPS: Floats = 1.324717957244746 ** -np.array([1.0, 2.0])


class Normal(NamedTuple):
    """A normal distribution."""

    mean: float
    deviation: float

    def scaled(self, by: float) -> Normal:
        """The same shape, wider or narrower."""
        return Normal(self.mean * by, self.deviation * by)


#: Midpoints and lengths that give what the text says; see above.
MIDPOINT_A = Normal(5_000.0, 1_500.0)
LENGTH = Normal(1_000.0, 210.0)
LENGTH_BAND = Normal(1_000.0, 240.0)
LENGTH_60 = Normal(1_000.0, 275.0)  # 60 groups at 100,000 bands
#: Section 4.6.6 writes Normal(5000, 1500) and Normal(1000, 2000), and counts 18 groups. With 2,000 as a deviation there
#: are 350, with 2,000 as a variance 11 (and with 1,500 as a variance, too, one). With this deviation there are 18.
HISTOGRAM_MIDPOINT, HISTOGRAM_LENGTH = Normal(5_000.0, 1_500.0), Normal(1_000.0, 165.0)


class RowsOfR(NamedTuple):
    """Rows that arrive."""

    a: Floats
    b: Floats


class RowsOfS(NamedTuple):
    """Rows that are there."""

    b: Floats
    c: Floats


@dataclass(frozen=True, slots=True)
class Table41:
    """One workload. Everything is a function of the seed and of what is asked for."""

    rows: int = SIZE
    joining: int | None = JOINING  # None: B as whole numbers, for band joins
    seed: int = 0

    def __post_init__(self) -> None:
        if self.joining is not None and not 1 <= self.joining <= self.rows:
            raise UsageError(f"a row can meet 1 to {self.rows} of {self.rows} rows, not {self.joining}")

    @property
    def grain(self) -> float:
        """What B is a multiple of."""
        return 1.0 if self.joining is None else self.joining * DOMAIN / self.rows

    def partners(self) -> RowsOfS:
        """The rows of S."""
        random = generator(self.seed, "table-4.1", "S", self.rows, self.joining)
        b = random.normal(*PARTNER_B, self.rows)
        while (outside := (b < 0) | (b > DOMAIN)).any():
            b[outside] = random.normal(*PARTNER_B, int(outside.sum()))
        c = random.integers(0, DOMAIN + 1, self.rows).astype(np.float64)
        return RowsOfS(np.floor(b / self.grain) * self.grain, c)

    def arrivals(self, count: int, *, name: object = 0) -> RowsOfR:
        """Rows of R, in order; another name gives other ones.

        A and B are uniform, and spread so evenly that the first few rows are like all of them (Kronecker's sequence):
        plans that are too slow to process many can be compared on few.
        """
        random = generator(self.seed, "table-4.1", "R", self.rows, self.joining, name)
        a, b = np.mod(random.random(2)[:, None] + STEPS[:, None] * np.arange(count), 1.0)
        return RowsOfR(np.floor(a * (DOMAIN + 1)), np.floor(b * DOMAIN / self.grain) * self.grain)

    def select_joins(
        self,
        count: int,
        *,
        a: Normal = LENGTH,
        c: Normal = LENGTH,
        midpoint_a: Normal = MIDPOINT_A,
        name: object = 0,
    ) -> Floats:
        """Queries with a range of A and a range of C; `a` and `c` are how long those are."""
        random = generator(self.seed, "table-4.1", "select-joins", count, a, c, midpoint_a, name)
        lows, highs = _ranges(random, random.normal(*midpoint_a, count), a)
        return np.column_stack((lows, highs, *_ranges(random, random.uniform(0.0, DOMAIN, count), c)))

    def bands(self, count: int, length: Normal = LENGTH_BAND, *, name: object = 0) -> Floats:
        """Queries with a range of S.B - R.B."""
        random = generator(self.seed, "table-4.1", "bands", count, length, name)
        lows, highs = _ranges(random, random.uniform(0.0, DOMAIN, count), length)
        return np.column_stack((np.full(count, -np.inf), np.full(count, np.inf), lows, highs))

    def clustered(
        self,
        count: int,
        *,
        hot: float,
        groups: int,
        a: Normal,
        midpoint_a: Normal = MIDPOINT_A,
    ) -> Floats:
        """Select-joins of which a share `hot` has ranges of C around one of `groups` points, evenly spaced.

        Hot ranges reach up to a quarter of the way to the next point. The others lie halfway between two points, and
        are so short that few of them meet: among the hot ones they would break up groups.
        """
        random = generator(self.seed, "table-4.1", "clustered", count, hot, groups, a, midpoint_a)
        lows_a, highs_a = _ranges(random, random.normal(*midpoint_a, count), a)
        space = DOMAIN / groups
        cell = random.integers(0, groups, count)
        left, right = random.uniform(0.0, space / 4, (2, count))
        middle = (cell + random.uniform(-0.2, 0.2, count)) * space
        half = random.uniform(0.0, 400.0 / count, count)
        is_hot = random.permutation(count) < round(hot * count)
        low = np.where(is_hot, (cell + 0.5) * space - left, middle - half)
        high = np.where(is_hot, (cell + 0.5) * space + right, middle + half)
        found: Floats = np.column_stack((lows_a, highs_a, low, high))
        return found

    def intervals(self, count: int) -> tuple[Floats, Floats]:
        """Lows and highs of the intervals that histograms are made of (section 4.6.6): those that lie in the range."""
        random = generator(self.seed, "table-4.1", "intervals", count)
        found = np.empty((0, 2))
        while len(found) < count:
            drawn = np.column_stack(_ranges(random, random.normal(*HISTOGRAM_MIDPOINT, 2 * count), HISTOGRAM_LENGTH))
            found = np.concatenate((found, drawn[(drawn[:, 0] >= 0) & (drawn[:, 1] <= DOMAIN)]))
        return found[:count, 0].copy(), found[:count, 1].copy()


def _ranges(random: np.random.Generator, middle: Floats, length: Normal) -> tuple[Floats, Floats]:
    lengths = random.normal(*length, len(middle))
    while (negative := lengths < 0).any():
        lengths[negative] = random.normal(*length, int(negative.sum()))
    return middle - lengths / 2, middle + lengths / 2


def stabbing_number(low: Floats, high: Floats) -> int:
    """tau: how few points stab all intervals. The next one is the least high of those that begin behind the last."""
    order = np.argsort(low)
    starts = low[order]
    least = np.minimum.accumulate(high[order][::-1])[::-1]
    found = at = 0
    while at < len(starts):
        at = int(np.searchsorted(starts, least[at], "right"))
        found += 1
    return found


def length_for(groups: int, count: int, *, shape: float = 0.1) -> Normal:
    """Lengths with which `count` uniformly placed intervals make about so many groups; `shape` is deviation by mean.

    Found by halving: tau falls as intervals get longer.
    """
    random = generator(0, "table-4.1", "lengths", count, shape)
    middle, unit = random.uniform(0.0, DOMAIN, count), random.normal(1.0, shape, count)
    unit = np.abs(unit)
    least, most = 0.01 * DOMAIN / groups, 4.0 * DOMAIN / groups
    for _ in range(12):
        mean = (least * most) ** 0.5
        if stabbing_number(middle - unit * mean / 2, middle + unit * mean / 2) > groups:
            least = mean
        else:
            most = mean
    return Normal(mean, shape * mean)


def joining_rows(partners: RowsOfS, b: Floats) -> Ints:
    """How many rows of S each of these values of B meets."""
    values = np.sort(partners.b)
    found: Ints = np.searchsorted(values, b, "right") - np.searchsorted(values, b, "left")
    return found
