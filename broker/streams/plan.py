"""A stream query becomes operators: a branch from each stream, and the trunk they lead into.

    TRADES [ROWS 1000]   selection -> projection -.
                                                   window join -> projection -> results
    QUOTES [RANGE '10s'] selection -> projection -'

A path leads from one stream to the results: its branch, and then the trunk. Queries that are alike have one plan, and
one set of operators (`StreamQuery` can be compared and hashed).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.streams.memory.bounded_join import KeepBy
from hullcast.broker.streams.operators.bounded import BoundedStore, bounded_bytes
from hullcast.broker.streams.operators.projection import Projection
from hullcast.broker.streams.operators.selection import Selection, SelectionBoxes
from hullcast.broker.streams.operators.table_join import TableJoin, TableJoinColumns
from hullcast.broker.streams.operators.window_join import WindowJoin
from hullcast.broker.streams.operators.windows import JoinColumns, StreamWindow, WindowStore
from hullcast.broker.tables.schema import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hullcast.broker.streams.messages import QueryTerms, RangeEnd, SourceTerms
    from hullcast.broker.streams.operators.operator import Operator
    from hullcast.broker.streams.operators.window_join import JoinStore
    from hullcast.network.wire.arrays import Ints


@dataclass(frozen=True, slots=True)
class WantedRanges:
    """What subscribers want of some columns, together: closed boxes of codes, (low, high) for each column; a constant
    is a range from itself to itself."""

    columns: tuple[int, ...]
    boxes: tuple[tuple[tuple[float, float], ...], ...]

    def as_boxes(self, columns: Sequence[int]) -> SelectionBoxes:
        """The same as arrays, over cells that have these columns of the source."""
        bounds = np.array(self.boxes, np.float64).reshape(len(self.boxes), len(self.columns), 2)
        return SelectionBoxes(
            _ints([columns.index(column) for column in self.columns]), *np.moveaxis(bounds, 2, 0).copy()
        )


@dataclass(frozen=True, slots=True)
class StreamInput:
    """A stream (folded name) with so many columns; its window, if it is joined with another stream."""

    stream: str
    width: int
    ranges: WantedRanges | None = None
    window: StreamWindow | None = None


@dataclass(frozen=True, slots=True)
class TableInput:
    """A table (folded name) with so many columns, one of them its key."""

    table: str
    width: int
    key: int
    ranges: WantedRanges | None = None


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """What a query reads, what of it must be equal, and what its results have.

    `equal`: pairs of columns, of the left and of the right. `out`: (side, column), the left is side 0. `timed`: a
    window join consumes in the order of times; without it (one of the streams has no time) in the order of the log.
    `memory`: the tuples that a window join may keep, if that is bounded, by which policy.
    """

    left: StreamInput
    right: StreamInput | TableInput | None
    equal: tuple[tuple[int, int], ...]
    out: tuple[tuple[int, int], ...]
    timed: bool = True
    memory: int | None = None
    memory_policy: str = ""

    @property
    def streams(self) -> tuple[StreamInput, ...]:
        """The leaves, left first."""
        return (self.left, self.right) if isinstance(self.right, StreamInput) else (self.left,)

    @property
    def table(self) -> TableInput | None:
        """The table that the stream is joined with, if it is."""
        return self.right if isinstance(self.right, TableInput) else None


def query_of(terms: QueryTerms, code: Callable[[RangeEnd], float]) -> StreamQuery:
    """A query as the server tells it, in codes of our own."""
    left, right = terms.left, terms.right
    width = len(left.life.table.columns)
    one = StreamInput(fold(left.life.table.name), width, _ranges(left, code), left.window)
    other: StreamInput | TableInput | None = None
    if right is not None:
        table = right.life.table
        name, width = fold(table.name), len(table.columns)
        if right.is_table:
            other = TableInput(name, width, table.key, _ranges(right, code))
        else:
            other = StreamInput(name, width, _ranges(right, code), right.window)
    return StreamQuery(one, other, terms.equal, terms.out, terms.timed, terms.memory)


def _ranges(source: SourceTerms, code: Callable[[RangeEnd], float]) -> WantedRanges | None:
    if not source.columns:
        return None
    boxes = tuple(tuple((code(low), code(high)) for low, high in box) for box in source.boxes)
    return WantedRanges(source.columns, boxes)


class OperatorPlan(NamedTuple):
    """The operators of a query: those of each stream's own branch, then those of the trunk; never none at all."""

    branches: tuple[tuple[Operator, ...], ...]
    trunk: tuple[Operator, ...]
    table_columns: Ints | None  # those of the table that the join keeps

    def operators(self) -> tuple[Operator, ...]:
        """All of them, each once."""
        return (*(operator for branch in self.branches for operator in branch), *self.trunk)

    def path(self, leaf: int) -> tuple[Operator, ...]:
        """The operators from a stream to the results."""
        return (*self.branches[leaf], *self.trunk)


def store_of(query: StreamQuery, columns: JoinColumns, widths: tuple[int, int]) -> JoinStore:
    """What a window join keeps its tuples in: all of its windows, or as many tuples as it may."""
    left, right = (stream.window or StreamWindow() for stream in query.streams)
    if query.memory is None:
        return WindowStore(columns, widths, (left, right))
    policy = KeepBy[query.memory_policy.upper()] if query.memory_policy else KeepBy.HEEB
    return BoundedStore(columns, widths, (left, right), query.memory, policy)


def kept_bytes(query: StreamQuery, counts: Sequence[int]) -> int:
    """What the join of a query keeps in memory if its two windows, or its table, have so many tuples or rows."""
    if query.memory is not None:
        return bounded_bytes(query.memory, max(len(_needed(query, side)) for side in (0, 1)))
    for operator in plan_of(query).trunk:
        if isinstance(operator, WindowJoin):
            return operator.store.bytes_for(*counts)
        if isinstance(operator, TableJoin):
            return operator.bytes_for(*counts)
    return 0


def plan_of(query: StreamQuery) -> OperatorPlan:
    """The operators of a query, none of them run yet."""
    if query.table is not None:
        return _with_table(query, query.table)
    if query.right is None:
        wanted = [column for _, column in query.out]
        branch = (*_selection(query.left, ghosts=False), Projection(_ints(wanted)))
        return OperatorPlan((branch,), (), None)
    needed = [_needed(query, side) for side in (0, 1)]
    branches = tuple(
        _branch(stream, columns, ghosts=stream.window is not None and stream.window.rows != _ALL)
        for stream, columns in zip(query.streams, needed, strict=True)
    )
    outs = [[column for side, column in query.out if side == which] for which in (0, 1)]
    columns = JoinColumns(
        *(_places(needed[side], [pair[side] for pair in query.equal]) for side in (0, 1)),
        *(_places(needed[side], outs[side]) for side in (0, 1)),
    )
    join = WindowJoin(store_of(query, columns, (len(needed[0]), len(needed[1]))))
    return OperatorPlan(branches, (join, *_in_order(query)), None)


_ALL = float("inf")


def _with_table(query: StreamQuery, table: TableInput) -> OperatorPlan:
    needed = _needed(query, 0)
    ranges = () if table.ranges is None else table.ranges.columns
    kept = sorted({table.key, *_needed(query, 1), *ranges})
    columns = TableJoinColumns(
        kept.index(table.key),
        _ints([kept.index(table.key)]),
        _places(needed, [pair[0] for pair in query.equal]),
        _places(kept, [pair[1] for pair in query.equal]),
        _places(needed, [column for side, column in query.out if side == 0]),
        _places(kept, [column for side, column in query.out if side == 1]),
    )
    boxes = None if table.ranges is None else table.ranges.as_boxes(kept)
    branch = _branch(query.left, needed, ghosts=False)
    return OperatorPlan((branch,), (TableJoin(columns, len(kept), boxes), *_in_order(query)), _ints(kept))


def _needed(query: StreamQuery, which: int) -> list[int]:
    """The columns of a side that its join needs, and so what it is given of them."""
    return sorted({pair[which] for pair in query.equal} | {column for side, column in query.out if side == which})


def _branch(stream: StreamInput, columns: list[int], ghosts: bool) -> tuple[Operator, ...]:
    narrow = () if columns == list(range(stream.width)) else (Projection(_ints(columns)),)
    return (*_selection(stream, ghosts), *narrow)


def _selection(stream: StreamInput, ghosts: bool) -> tuple[Operator, ...]:
    if stream.ranges is None:
        return ()
    return (Selection(stream.ranges.as_boxes(range(stream.width)), ghosts),)


def _in_order(query: StreamQuery) -> tuple[Operator, ...]:
    """A join gives the columns of the left first: bring them into the order of the query, if that is another."""
    given = [at for which in (0, 1) for at, (side, _) in enumerate(query.out) if side == which]
    if given == list(range(len(given))):
        return ()
    return (Projection(_ints([given.index(at) for at in range(len(given))])),)


def _places(among: list[int], columns: list[int]) -> Ints:
    return _ints([among.index(column) for column in columns])


def _ints(numbers: Sequence[int]) -> Ints:
    return np.array(numbers, np.int64)
