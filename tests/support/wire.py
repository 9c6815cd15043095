"""Strategies for the wire: columns, frames and bodies of every kind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray

from hullcast.network.wire import bodies, frames
from hullcast.network.wire.columns import Column, TextColumn
from hullcast.network.wire.packing import foreign
from hullcast.network.wire.value_columns import Mixed, Nullable, Values

numbers = st.integers(0, 2**63 - 1)
names = st.text(max_size=5)
ids = st.binary(min_size=16, max_size=16)
data = st.binary(max_size=20)
floats = st.floats(width=64)
instants = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)).map(
    lambda naive: naive.replace(tzinfo=UTC)
)
scalars: SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
    instants,
    st.timedeltas(),
    st.builds(np.datetime64, st.integers(-(2**62), 2**62), st.sampled_from(["D", "s", "us", "ns"])),
    st.builds(np.timedelta64, st.integers(-(2**62), 2**62), st.sampled_from(["D", "s", "us", "ns"])),
)


def arrays(rows: int) -> SearchStrategy[Column]:
    """Columns that messages are made of."""
    texts = st.lists(st.none() | st.text(max_size=3), min_size=rows, max_size=rows).map(TextColumn.from_texts)
    return st.one_of(_array(floats, rows, np.float64), _array(_longs, rows, np.int64), _masks(rows), texts)


def values(rows: int) -> SearchStrategy[Values]:
    """Columns that users send."""
    mixed = st.lists(scalars, min_size=rows, max_size=rows).map(tuple).map(Mixed)
    plain = st.one_of(_array(floats, rows, np.float64), _array(_longs, rows, np.int64), _masks(rows))
    stand_in = st.just(Mixed((foreign("Decimal"),) + (None,) * (rows - 1))) if rows else mixed
    instant = _array(_longs, rows, np.int64).map(lambda counts: counts.view("M8[us]"))
    return st.one_of(arrays(rows), mixed, stand_in, st.builds(Nullable, plain, _masks(rows)), instant)


_longs = st.integers(-(2**63), 2**63 - 1)


def _array(items: SearchStrategy[Any], rows: int, kind: Any) -> SearchStrategy[NDArray[Any]]:
    return st.lists(items, min_size=rows, max_size=rows).map(lambda found: np.array(found, kind))


def _masks(rows: int) -> SearchStrategy[NDArray[np.bool_]]:
    return _array(st.booleans(), rows, np.bool_)


def tables(of: Callable[[int], SearchStrategy[Any]]) -> SearchStrategy[dict[str, Any]]:
    """Columns by name, of one length."""
    return st.integers(0, 4).flatmap(lambda rows: st.dictionaries(names, of(rows), max_size=3))


@st.composite
def matrices(draw: st.DrawFn, rows: int | None = None, width: int | None = None) -> NDArray[np.float64]:
    """Points or corners of boxes."""
    n = draw(st.integers(0, 3)) if rows is None else rows
    k = draw(st.integers(1, 3)) if width is None else width
    found = draw(st.lists(st.floats(allow_nan=False), min_size=n * k, max_size=n * k))
    return np.array(found, np.float64).reshape(n, k)


@st.composite
def boxes(draw: st.DrawFn) -> frames.Interest:
    """An interest."""
    lows = draw(matrices())
    return frames.Interest(draw(numbers), draw(numbers), lows, draw(matrices(*lows.shape)))


@st.composite
def rectangles(draw: st.DrawFn) -> dict[str, Any]:
    """Messages of a MIN or MAX, partitioned or not."""
    rows, names_ = draw(st.integers(0, 3)), ["il", "ir", "ol", "or", "best", "part"]
    columns = {name: draw(_array(st.floats(allow_nan=False), rows, np.float64)) for name in names_}
    if draw(st.booleans()):
        del columns["part"]
    return {"seq": draw(_array(numbers, rows, np.int64)), **columns}


channels = st.dictionaries(numbers, tables(arrays) | rectangles(), max_size=2)
forms: SearchStrategy[Any] = st.sampled_from(["rectangles", "places"])
routes = st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple)
installs = st.builds(frames.Install, numbers, numbers, forms, st.booleans(), matrices(), st.booleans())
members = st.none() | st.lists(numbers, max_size=3).map(lambda found: np.array(found, np.int64))
nodes = st.builds(frames.NodeEntry, ids, names, names, numbers, numbers)

any_frame: SearchStrategy[frames.Frame] = st.one_of(
    st.builds(
        frames.Request,
        numbers,
        routes,
        st.none() | st.builds(frames.Origin, st.none() | names, names),
        data,
        numbers,
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(frames.Leave, numbers, members, st.booleans()),
    boxes(),
    st.builds(frames.Withdrawn, numbers, numbers, st.booleans(), matrices()),
    st.builds(frames.Reply, numbers, routes, st.lists(installs, max_size=2).map(tuple), data),
    st.builds(frames.Deliver, numbers, channels),
    st.builds(frames.Advance, numbers),
    st.builds(frames.Reset, names, names),
    st.builds(
        frames.Directory,
        ids,
        st.lists(st.tuples(ids, names), max_size=2).map(tuple),
        st.lists(nodes, max_size=2).map(tuple),
    ),
)


@st.composite
def publishes(draw: st.DrawFn) -> bodies.Publish:
    """A batch, of rows or of columns."""
    rows = draw(st.integers(0, 4))
    column = st.one_of(values(rows), scalars) if rows == 1 else values(rows)
    columns = draw(st.dictionaries(names, column, max_size=3))
    absent = draw(
        st.none() | (st.dictionaries(st.sampled_from(sorted(columns)), _masks(rows)) if columns else st.just({}))
    )
    return bodies.Publish(draw(names), columns, absent, draw(ids), draw(numbers))


@st.composite
def groups(draw: st.DrawFn) -> bodies.Group:
    """Subscriptions to one text."""
    count = draw(st.integers(0, 3))
    one = st.one_of(values(count), scalars) if count == 1 else values(count)
    trigger = draw(st.none() | triggers())
    if trigger is not None:
        count, one = 1, scalars
    parameters = tuple(draw(st.lists(one, max_size=2)))
    return bodies.Group(
        draw(numbers), draw(names), parameters, count, draw(numbers), trigger, draw(st.none() | numbers)
    )


def triggers() -> st.SearchStrategy[bodies.Trigger]:
    """What makes a subscription conditional."""
    periods = st.floats(bodies.LEAST_PERIOD_S, bodies.MOST_PERIOD_S)
    bound = st.lists(scalars, max_size=3).map(tuple)
    pauses = st.none() | st.floats(bodies.LEAST_PAUSE_S, bodies.MOST_PERIOD_S)
    tables = st.lists(names, min_size=1, max_size=3).map(tuple)
    by_condition = st.builds(bodies.Trigger, names, bound, st.none() | periods, st.just(()), pauses)
    by_tables = st.builds(bodies.Trigger, st.none(), st.just(()), st.none() | periods, tables, pauses)
    return by_condition | by_tables | st.builds(bodies.Trigger, st.none(), st.just(()), periods)


several_names = st.lists(names, max_size=3).map(tuple)
specs = st.builds(
    bodies.ChannelSpec, names, names, forms, numbers, st.booleans(), st.integers(0, 9), names,
    several_names, several_names, several_names,
)  # fmt: skip
failures = st.builds(bodies.Failed, names, st.lists(scalars | several_names, max_size=3).map(tuple))
opened = st.builds(
    bodies.Opened,
    numbers,
    numbers,
    several_names,
    st.none() | tables(arrays),
    st.none() | failures,
    st.lists(st.tuples(numbers, numbers), max_size=2).map(tuple),
)
durations = st.floats(0, 1e9)
worths = st.fixed_dictionaries(
    {
        "seq": st.none() | numbers,
        "tables": st.dictionaries(
            names,
            st.fixed_dictionaries({"seq": numbers, "staleness_s": durations, "unapplied": numbers}),
            max_size=2,
        ),
        "waited_s": durations,
        "ran_s": durations,
        "deadline_s": st.none() | durations,
        "met": st.booleans(),
        "policy": names,
    }
)
shapes = st.tuples(st.integers(0, 3), st.integers(0, 3))
answers = shapes.flatmap(
    lambda shape: st.builds(
        bodies.QueryAnswer,
        st.tuples(*[names] * shape[0]),
        st.tuples(*[values(shape[1])] * shape[0]),
        st.just(b"") | ids,
        st.none() | worths,
    )
)
portions = shapes.flatmap(
    lambda shape: st.builds(
        bodies.QueryPart, st.tuples(*[values(shape[1])] * shape[0]), st.booleans(), st.none() | worths
    )
)
maps: SearchStrategy[dict[str, Any]] = st.dictionaries(
    names, st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2))
)


@st.composite
def changed_rows(draw: st.DrawFn) -> bodies.ChangedRows:
    """Changes of a table."""
    rows = draw(st.integers(0, 3))
    columns = draw(st.dictionaries(names, values(rows), max_size=3))
    return bodies.ChangedRows(
        draw(numbers), draw(numbers), draw(_array(numbers, rows, np.int64)), draw(_masks(rows)), columns
    )


table_parts = st.integers(1, 9).flatmap(lambda parts: st.tuples(st.integers(0, parts - 1), st.just(parts)))

any_body: SearchStrategy[bodies.Body] = st.one_of(
    st.builds(bodies.AskHistory, names),
    st.builds(bodies.ReadChanges, names, st.none() | numbers, st.none() | numbers),
    st.builds(
        lambda table, seq, part, start: bodies.ReadTable(table, seq, part[0], part[1], start),
        names, st.none() | numbers, table_parts, st.none() | numbers,
    ),
    st.builds(bodies.HistorySpan, numbers, numbers, numbers),
    changed_rows(),
    st.builds(bodies.RowsAsOf, numbers, st.none() | numbers, tables(values)),
    st.builds(bodies.Execute, names, ids, numbers),
    publishes(),
    st.builds(bodies.Delete, names, st.integers(0, 3).flatmap(values), ids, numbers),
    st.builds(
        bodies.Query, names, st.lists(scalars, max_size=3).map(tuple), st.floats(0, 1), st.none() | st.floats(0, 1e6),
        st.integers(-1000, 1000), st.sampled_from(["", *bodies.READ_SETS]),
    ),
    st.builds(bodies.FetchRows, ids, st.integers(1, 9)),
    st.builds(bodies.DropRows, ids),
    st.builds(bodies.LinksGone, st.lists(numbers, max_size=4).map(tuple)),
    st.builds(
        bodies.Left, st.lists(st.tuples(names, numbers, numbers.map(lambda number: number or 1)), max_size=3).map(tuple)
    ),
    st.builds(bodies.SetPolicy, names, st.sampled_from(["warehouse", "streams"])),
    st.builds(
        bodies.Subscribe, st.lists(groups(), max_size=2).map(tuple), st.none() | numbers, st.none() | ids,
        st.none() | ids,
    ),
    st.builds(bodies.Fetch, ids, numbers),
    st.builds(bodies.Staged, ids, st.integers(1, 9)),
    st.builds(bodies.AnswerPart, st.lists(st.tuples(numbers, tables(arrays)), max_size=2).map(tuple)),
    st.sampled_from([bodies.Sync(), bodies.Status(), bodies.Describe(), bodies.GiveUp()]),
    st.builds(bodies.Explain, names, st.lists(scalars, max_size=3).map(tuple), st.none() | triggers()),
    st.builds(bodies.NodeReport, maps),
    st.builds(bodies.Done, numbers, numbers, st.none() | numbers),
    st.builds(bodies.Receipts, st.lists(st.tuples(numbers, numbers, numbers), max_size=3).map(tuple)),
    answers,
    portions,
    st.builds(
        bodies.Subscribed, numbers, ids, st.lists(opened, max_size=2).map(tuple),
        st.dictionaries(numbers, specs, max_size=2), channels,
    ),
    st.builds(bodies.Synced, numbers),
    st.builds(bodies.Information, maps),
    failures,
)  # fmt: skip
