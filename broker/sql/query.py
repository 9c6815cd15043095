"""A subscription after parsing: its shape (which channel it belongs to) and its predicate.

`Shape` is the identity of a channel: two subscriptions with equal shapes hear the same messages
and differ only in their predicate. `Predicates` are the stateless half: closed boxes over the
shape's range columns and one value per partition column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.network.wire.durations import duration_text

if TYPE_CHECKING:
    from hullcast.network.answers.kinds import SubscriptionKind
    from hullcast.network.wire.arrays import Booleans, Floats, Ints


class Ref(NamedTuple):
    """A column of one of the query's tables: side 0 is the left (or only) one, side 1 the right."""

    side: int
    column: int  # position in that table's schema


@dataclass(frozen=True, slots=True)
class JoinOn:
    """How two tables meet: equal columns, or (band) right - left within the predicate's last range."""

    left: int  # column position in the left table
    right: int  # column position in the right table
    band: bool


@dataclass(frozen=True, slots=True)
class Window:
    """The latest tuples of a stream: so many (ROWS), or those not older than that behind its time (RANGE)."""

    rows: int | None = None
    range_s: float | None = None

    @property
    def declared(self) -> str:
        """The window as SQL writes it, behind the stream's name."""
        return f"[ROWS {self.rows}]" if self.range_s is None else f"[RANGE '{duration_text(self.range_s)}']"

    @property
    def range_us(self) -> float:
        """The length of a RANGE window in microseconds, as TIMESTAMPs are coded."""
        assert self.range_s is not None, "ROWS"
        return float(round(self.range_s * 1e6))


@dataclass(frozen=True, slots=True)
class Shape:
    """The identity of a channel.

    S1  `ranges` and `partition` are sorted and disjoint; kinds whose messages are rectangles have at most one range.
    S2  `y` is set for DISTINCT and functions of a column; None for COUNT(*), SELECT, JOIN.
    S3  `projection` is set for SELECT and JOIN only; `on` for JOIN only.
    S4  `result` is set for RESULT only, which has nothing else: what is run when, in words that no other has.
    S5  `windows` has one entry for each table if some stream is read through a window; else it is empty. Kinds that
        read one table have a window exactly if it is a stream, except for TUPLES, which then has none.
    S6  TUPLES with two tables is a join that reads a stream: of a stream and a table (no window), or of two streams
        (two windows). `memory` is set there only: how many tuples it may keep in both windows together.
    S7  `nulls` are the ranges in which NULL is a place, below all numbers: those that some alternative does not
        compare. Elsewhere a row with NULL in a range is nowhere.
    """

    kind: SubscriptionKind
    tables: tuple[str, ...]  # declared spelling
    ranges: tuple[Ref, ...]
    partition: tuple[Ref, ...]
    y: Ref | None = None
    projection: tuple[Ref, ...] = ()
    on: JoinOn | None = None
    result: str = ""
    windows: tuple[Window | None, ...] = ()
    memory: int | None = None
    nulls: tuple[Ref, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """What is read: the tables, or windows of them, which are called as no table can be: with quotes."""
        if not self.windows:
            return self.tables
        named = zip(self.tables, self.windows, strict=True)
        return tuple(table if window is None else f'"{table}" {window.declared}' for table, window in named)

    @property
    def dimensions(self) -> int:
        """Width of the predicate's box: the range columns, and for a band join the difference last."""
        return len(self.ranges) + (1 if self.on is not None and self.on.band else 0)


@dataclass(frozen=True, slots=True)
class Predicates:
    """Predicates of subscriptions of one shape, as columns: a box each, or several (IN, OR, <>) that do not overlap.

    `low[i, d] <= value <= high[i, d]` must hold in every dimension d (closed; open bounds have been
    moved to the next float; a missing bound is an infinity; low > high is an empty range, and an
    empty range is always written (inf, -inf)).
    `partition[p][i]` is what partition column p must equal: the str itself for TEXT (the interner is not
    known here), the float64 code for INTEGER, REAL and TIMESTAMP.
    `never[i]`: no row can satisfy predicate i, since its equalities contradict each other or name a
    number that no float64 is; its box, if it has a dimension, is empty too. None: there is no such i.
    `of[i]` says which subscription box i is of: 0 to n - 1, in order, each at least once. None: box i is of i.
    """

    low: Floats
    high: Floats
    partition: tuple[list[object], ...]
    never: Booleans | None = None
    of: Ints | None = None

    @classmethod
    def joined(cls, parts: list[Predicates]) -> Predicates:
        """Predicates of subscriptions that follow each other, all with `of`."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(len(part) for part in parts[:-1])]).tolist()
        of = [start + part.of for start, part in zip(starts, parts, strict=True) if part.of is not None]
        never = [np.zeros(len(part.low), np.bool_) if part.never is None else part.never for part in parts]
        partitions = zip(*(part.partition for part in parts), strict=True)
        return cls(
            np.concatenate([part.low for part in parts]),
            np.concatenate([part.high for part in parts]),
            tuple(list(chain.from_iterable(values)) for values in partitions),
            np.concatenate(never) if any(part.never is not None for part in parts) else None,
            np.concatenate(of),
        )

    def __len__(self) -> int:
        """How many subscriptions."""
        return len(self.low) if self.of is None else int(self.of[-1]) + 1 if len(self.of) else 0

    def only(self, i: int) -> Predicates:
        """Subscription i by itself."""
        return self.some(slice(i, i + 1))

    def some(self, at: slice) -> Predicates:
        """Some subscriptions."""
        if self.of is None:
            return self.boxes(at)
        start, stop, _ = at.indices(len(self))
        found = self.boxes(slice(*np.searchsorted(self.of, (start, stop)).tolist()))
        assert found.of is not None, "it has several boxes"
        return replace(found, of=found.of - start)

    def boxes(self, at: slice) -> Predicates:
        """Some boxes; of which subscriptions they are does not change."""
        partition = tuple(values[at] for values in self.partition)
        never, of = None if self.never is None else self.never[at], None if self.of is None else self.of[at]
        return Predicates(self.low[at], self.high[at], partition, never, of)
