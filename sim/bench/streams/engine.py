"""The engine alone: tuples a second through a path of three operators, and through window joins.

Beside the path, what NumPy takes for the same over whole columns that are all there from the start: no queue, no order,
no table that changes. Beside the joins, the same join row by row in Python, with a dict of values and two windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np

from hullcast.broker.streams.memory.bounded_join import KeepBy
from hullcast.broker.streams.operators.windows import StreamWindow
from hullcast.broker.streams.plan import StreamInput, StreamQuery
from hullcast.broker.streams.runner import MICRO_BATCH
from hullcast.network.wire.arrays import Floats
from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.bench.frame.timing import MeasurementFailed, Spread, in_turns, spread
from hullcast.sim.bench.streams.feeding import (
    HALF,
    ROWS,
    FedFigures,
    FedStream,
    feed,
    finish,
    opened,
    path_cells,
    path_query,
    table_cells,
)
from hullcast.sim.seeds import generator

MICRO_BATCHES = (256, MICRO_BATCH, 4_096)
ALL_KEPT, ALL_LARGE = "all kept", "all kept, windows twice as large"
#: What bounded joins keep of windows that are twice as large.
BOUNDED = tuple(policy.name for policy in (KeepBy.HEEB, KeepBy.RAND, KeepBy.LRU, KeepBy.PROB, KeepBy.LIFE))


@dataclass(frozen=True, slots=True)
class EngineLine:
    """One way, over all rounds."""

    name: str
    tuples_s: float  # median
    results: int
    deciding: float  # share of the time of steps, median
    ratio: Spread  # time of the baseline / ours, round by round


@dataclass(frozen=True, slots=True)
class EngineSection:
    """Ways in turns, and what they stand beside."""

    what: str
    tuples: int
    baseline: str
    baseline_tuples_s: float
    lines: tuple[EngineLine, ...]

    def line(self, name: str) -> EngineLine:
        """One of them."""
        return next(line for line in self.lines if line.name == name)


# -- a path ------------------------------------------------------------------------------------------------


def path(tuples: int, rounds: int, seed: int, tick: Tick) -> EngineSection:
    """A selection that half passes, a projection, and the join with a table of a thousand rows."""
    cells, table = path_cells(tuples, seed), table_cells(seed)
    streams, what = {"trades": FedStream(cells)}, "path: selection, projection, join with a table"

    def fed(size: int, turn: int) -> FedFigures:
        return feed(opened([path_query()], "chain", seed, size), streams, 0, tuples)

    ways = {micro_batch_name(size): partial(fed, size) for size in MICRO_BATCHES}
    section = _beside(what, ways, "NumPy, whole columns", lambda: plain_path(cells, table), tuples, rounds, tick)
    results = plain_path(cells, table)
    for line in section.lines:
        if line.results != results:
            raise MeasurementFailed(f"path, {line.name}: {line.results} results instead of {results}")
    return section


def _beside(
    what: str,
    ways: Mapping[str, Callable[[int], FedFigures]],
    baseline: str,
    plain: Callable[[], int],
    plain_tuples: int,
    rounds: int,
    tick: Tick,
) -> EngineSection:
    """All ways in turns, and a plain one that finds the results of so many tuples."""

    def timed(turn: int) -> FedFigures:
        began = perf_counter()
        return FedFigures(plain_tuples, plain(), perf_counter() - began, 0.0, 0.0, 0)

    found = in_turns({**ways, baseline: timed}, rounds, tick, what.partition(":")[0])
    beside = found.pop(baseline)
    lines = tuple(
        EngineLine(
            name,
            median(one.tuples_s for one in of),
            of[-1].results,
            median(one.deciding for one in of),
            spread(one.tuples_s / other.tuples_s for one, other in zip(of, beside, strict=True)),
        )
        for name, of in found.items()
    )
    return EngineSection(
        what, next(iter(found.values()))[0].tuples, baseline, median(one.tuples_s for one in beside), lines
    )


def micro_batch_name(size: int) -> str:
    """How a line is called."""
    return f"micro-batches of {size:,}" + (" (as shipped)" if size == MICRO_BATCH else "")


def plain_path(cells: Floats, table: Floats) -> int:
    """How many results the path has, by NumPy."""
    passing = cells[:, (cells[1] >= HALF[0]) & (cells[1] <= HALF[1])][[0, 1]]
    place = np.searchsorted(table[0], passing[0])
    found = np.append(table[0], np.nan)[place] == passing[0]
    return int(np.vstack([passing[:, found], table[1, place[found]]]).shape[1])


# -- window joins ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinSizes:
    """Tuples of both streams together: those that are timed, those before them that fill windows, and those that the
    join in Python is timed with; and how many a join keeps."""

    tuples: int = 400_000
    warm: int = 60_000
    plain: int = 100_000
    kept: int = 10_000


def join_query(rows: int, memory: int | None = None, policy: str = "") -> StreamQuery:
    """Two streams, each with a window of so many rows, joined by their keys."""
    size = StreamWindow(rows=rows)
    sides = (StreamInput("trades", 4, None, size), StreamInput("quotes", 4, None, size))
    return StreamQuery(*sides, ((0, 0),), ((0, 1), (1, 1)), True, memory, policy)


def join_streams(each: int, kept: int, seed: int) -> dict[str, FedStream]:
    """Two streams that come alternately; small keys are more frequent, and a tuple has one partner or so."""
    streams = {}
    for place, name in enumerate(("trades", "quotes")):
        draw = generator(seed, "bench/streams/join", name)
        cells = draw.random((4, each))
        cells[0] = np.floor(2 * kept * draw.random(each) ** 2)
        streams[name] = FedStream(cells, ROWS + 1 + place, 2)
    return streams


def joins(sizes: JoinSizes, rounds: int, seed: int, tick: Tick) -> EngineSection:
    """Windows of `kept` tuples together; and windows of twice as many, of which so many are kept, by each policy."""
    warm, stop, kept = sizes.warm // 2, (sizes.warm + sizes.tuples) // 2, sizes.kept
    streams = join_streams(stop, kept, seed)
    ways = {ALL_KEPT: join_query(kept // 2), ALL_LARGE: join_query(kept)}
    ways |= {name: join_query(kept, kept, name) for name in BOUNDED}

    def fed(query: StreamQuery, turn: int) -> FedFigures:
        runner = opened([query], "chain", seed)
        feed(runner, streams, 0, warm)
        figures = feed(runner, streams, warm, stop)
        finish(runner, streams)
        return figures

    def plain() -> int:
        return plain_join(streams, kept // 2, sizes.plain // 2)

    by_way, what = {name: partial(fed, query) for name, query in ways.items()}, f"window join: {kept:,} tuples kept"
    section = _beside(what, by_way, "row by row in Python", plain, sizes.plain, rounds, tick)
    _check(streams, sizes, seed)
    return section


def _check(streams: Mapping[str, FedStream], sizes: JoinSizes, seed: int) -> None:
    """The join must have the results of the one in Python; one with less memory a part of them."""
    each = sizes.plain // 2
    wanted = {rows: plain_join(streams, rows, each) for rows in (sizes.kept // 2, sizes.kept)}
    for rows, memory, policy in ((sizes.kept // 2, None, ""), (sizes.kept, sizes.kept, "HEEB")):
        runner = opened([join_query(rows, memory, policy)], "chain", seed)
        results = feed(runner, streams, 0, each).results + finish(runner, streams)
        counted = runner.bounded(1)
        if results != wanted[rows] if counted is None else not results == counted.produced <= wanted[rows]:
            raise MeasurementFailed(f"a join of {rows} rows has {results} results, the one in Python {wanted[rows]}")


def plain_join(streams: Mapping[str, FedStream], rows: int, each: int) -> int:
    """How many results the first `each` tuples of both streams have, in windows of so many rows: row by row."""
    keys = [stream.cells[0, :each].tolist() for stream in streams.values()]
    payloads = [stream.cells[1, :each].tolist() for stream in streams.values()]
    windows: list[deque[float]] = [deque(), deque()]
    by_key: list[dict[float, deque[float]]] = [{}, {}]
    made = 0
    for place in range(each):
        for side in (0, 1):
            key = keys[side][place]
            payload = payloads[side][place]
            made += len([(payload, other) for other in by_key[1 - side].get(key, ())])
            windows[side].append(key)
            by_key[side].setdefault(key, deque()).append(payload)
            if len(windows[side]) > rows:
                gone = windows[side].popleft()
                by_key[side][gone].popleft()
                if not by_key[side][gone]:
                    del by_key[side][gone]
    return made
