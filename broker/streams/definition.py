"""What the streams process is told about a derived stream: its SELECT, and where it begins.

The server knows the statement, the streams and how far they are; the process knows none of that, and has texts under
codes of its own: constants travel as they are.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.log.history import Life
from hullcast.broker.queries.derived import source_of
from hullcast.broker.streams.batch import StreamMoment
from hullcast.broker.streams.messages import QueryStart, QueryTerms, SourceTerms, TimeWord
from hullcast.broker.streams.operators.windows import StreamWindow
from hullcast.broker.tables.schema import ColumnType, fold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hullcast.broker.engine.stream import Stream
    from hullcast.broker.sql import query as sql
    from hullcast.broker.sql.subscription import ParsedQuery
    from hullcast.broker.streams.messages import RangeEnd
    from hullcast.broker.tables.schema import Table
    from hullcast.broker.tables.store import TableStore
    from hullcast.broker.tables.stream import StreamOrder

    Bounds = dict[int, tuple[RangeEnd, RangeEnd]]


def terms_of(stream: Table, stores: Mapping[str, TableStore]) -> QueryTerms:
    """What makes a derived stream; `stores` has its sources, by folded name. A table is the right side, wherever it
    stands in the statement."""
    parsed = source_of(stream, {name: store.table for name, store in stores.items()})
    shape = parsed.shape
    turned = len(parsed.tables) == 2 and parsed.tables[0].stream is None
    bounds = _constants(parsed)
    windows = shape.windows or (None,) * len(parsed.tables)
    sources = []
    for table, window, wanted in zip(parsed.tables, windows, bounds, strict=False):
        store = stores[fold(table.name)]
        columns = tuple(sorted(wanted))
        boxes = (tuple(wanted[column] for column in columns),) if columns else ()
        is_table = table.stream is None
        time = None if is_table else table.time
        sources.append(SourceTerms(Life(table, store.created), time, _window(window), columns, boxes, is_table))
    equal: tuple[tuple[int, int], ...] = () if shape.on is None else ((shape.on.left, shape.on.right),)
    out = tuple((ref.side, ref.column) for ref in shape.projection)
    if turned:
        sources.reverse()
        equal = tuple((right, left) for left, right in equal)
        out = tuple((1 - side, column) for side, column in out)
    return QueryTerms(sources[0], sources[1] if len(sources) > 1 else None, equal, out, shape.memory)


def _constants(parsed: ParsedQuery) -> list[Bounds]:
    """By side, the bounds of columns that are compared with constants."""
    shape, predicate = parsed.shape, parsed.bind()
    bounds: list[Bounds] = [{}, {}]
    for place, ref in enumerate(shape.ranges):
        bounds[ref.side][ref.column] = (float(predicate.low[0, place]), float(predicate.high[0, place]))
    for ref, (value,) in zip(shape.partition, predicate.partition, strict=True):
        is_text = parsed.tables[ref.side].columns[ref.column].type is ColumnType.TEXT
        end: RangeEnd = str(value) if is_text else float(value)  # type: ignore[arg-type]  # the code of a number
        bounds[ref.side][ref.column] = (end, end)
    if predicate.never is not None and predicate.never[0]:  # no tuple can meet the conditions
        bounds[0][0] = (inf, -inf)
    return bounds


def _window(window: sql.Window | None) -> StreamWindow | None:
    if window is None:
        return None
    return StreamWindow(range=window.range_us) if window.rows is None else StreamWindow(rows=float(window.rows))


def start_of(
    terms: QueryTerms,
    streams: Mapping[str, Stream],
    at: int | None,
    created: int,
    through: int,
    consumed: tuple[float, int] | None = None,
) -> QueryStart:
    """Where a derived stream goes on: behind `at`, the last tuple whose results are in it, or behind the moment up to
    which it is known to have `consumed`; or, if there are none, from where its sources were when it was `created`. All
    up to `through` was released. Windows are filled with the tuples before that which they may still hold.

    Created at 40, when TRADES had come to time 12 and QUOTES to time 10, a join has consumed all up to (10, 40): a
    tuple of QUOTES that comes then, of time 11, is before those of TRADES that wait for it.
    """
    orders, timed = _orders(terms, streams), terms.timed
    after = _moment(timed, orders, at, created)
    if consumed is not None:
        after = max(after, StreamMoment(*consumed)) if at is not None else StreamMoment(*consumed)
    bases = [_base(order, side.window, after, timed) for order, side in zip(orders, terms.streams, strict=True)]
    words = tuple(
        tuple(TimeWord(mark.position, mark.time) for mark in order.marks if mark.position >= base.seq)
        for order, base in zip(orders, bases, strict=True)
    )
    if at is None and consumed is None:
        return QueryStart(created, tuple(bases), words)
    return QueryStart(through, tuple(bases), words, after)


def kept_counts(terms: QueryTerms, streams: Mapping[str, Stream], stores: Mapping[str, TableStore]) -> list[int]:
    """How many tuples the windows of a join hold, or how many rows its table has: of windows of rows when they are
    full, of others as of now."""
    if terms.right is None:
        return []
    if terms.right.is_table:
        return [len(stores[fold(terms.right.life.table.name)])]
    orders = _orders(terms, streams)
    now, found = min(order.time for order in orders), []  # the time up to which both are consumed
    for order, window in zip(orders, (side.window or StreamWindow() for side in terms.streams), strict=True):
        first, last = np.searchsorted(order.times, (now - window.range, np.nextafter(now, inf)))
        found.append(int(last - first) if window.rows == inf else int(window.rows))
    return found


def begins_behind(terms: QueryTerms, streams: Mapping[str, Stream], created: int) -> StreamMoment:
    """The moment up to which a derived stream has consumed its sources when it is created: results are behind it."""
    return _moment(terms.timed, _orders(terms, streams), None, created)


def is_torn(terms: QueryTerms, streams: Mapping[str, Stream], created: int, start: QueryStart) -> bool:
    """Whether tuples are gone that a derived stream has not consumed: some of its results are missing."""
    for order in _orders(terms, streams):
        if order.removed and start.after is None and order.removed > created:
            return True
        if order.removed and start.after is not None:
            reached = _reached(order, 0, order.removed) if terms.timed else 0.0
            if StreamMoment(reached, order.removed) > start.after:
                return True
    return False


def _orders(terms: QueryTerms, streams: Mapping[str, Stream]) -> list[StreamOrder]:
    return [streams[fold(side.life.table.name)].order for side in terms.streams]


def _moment(timed: bool, orders: Sequence[StreamOrder], at: int | None, created: int) -> StreamMoment:
    """The place of a tuple in the order in which a query consumes; without one, how far it had consumed then."""
    seq = created if at is None else at
    if not timed:
        return StreamMoment(0.0, seq)
    reached = []
    for order in orders:
        count = int(np.searchsorted(order.positions, seq, "right"))
        if at is not None and count and int(order.positions[count - 1]) == at:
            return StreamMoment(float(order.times[count - 1]), at)
        reached.append(_reached(order, count, seq))
    return StreamMoment(min(reached), seq)


def _reached(order: StreamOrder, count: int, seq: int) -> float:
    """The time that a stream had reached with its first `count` tuples and what was said of its time up to `seq`."""
    marks = [mark.time for mark in order.marks if mark.position <= seq]
    return max([*marks, *([float(order.times[count - 1])] if count else [])], default=-inf)


def _base(order: StreamOrder, window: StreamWindow | None, after: StreamMoment, timed: bool) -> StreamMoment:
    """The moment behind which a stream must be read, so that its window is filled as of `after`."""
    if window is None:
        return after
    positions, times = order.positions, order.times
    if timed:
        first, last = (int(np.searchsorted(times, after.time, side)) for side in ("left", "right"))
        end = first + int(np.searchsorted(positions[first:last], after.seq, "right"))
    else:
        end = int(np.searchsorted(positions, after.seq, "right"))
    if window.rows != inf:
        start = max(0, end - int(window.rows))
    else:
        start = int(np.searchsorted(times[:end], after.time - window.range, "left"))
    before = int(positions[start - 1]) if start else (int(positions[0]) - 1 if len(positions) else order.removed)
    return StreamMoment(_reached(order, start, before) if timed else 0.0, before)
