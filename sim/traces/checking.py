"""Checks a trace: whether it is whole, and how many of its events are ignorable.

Whole: every file that `trace.json` names is there and holds the numbers it should, and they run on from file to file.
Only the ends of the Parquet files are read (how many rows, and the least and the greatest number), so that it costs
nothing to look first. This is for folders of this machine; elsewhere Spark looks (`sim.traffic.replay.check_trace`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.broker.engine.engine import Engine
from hullcast.network.wire.errors import UsageError
from hullcast.sim.traces.trace import (
    COLUMNS,
    EVENTS,
    EventFile,
    TraceInfo,
    Where,
    create_statement,
    parts_of,
    read_info,
    read_parts,
    runs,
)

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types


def check_whole(folder: Where, info: TraceInfo) -> None:
    """UsageError if part of a trace is missing, comes twice, or cannot be read."""
    help_text = "make the trace again"
    expected = -info.start
    for part in parts_of(folder):
        low, high, rows = _numbers(part)
        whole = (low, high, rows) == (part.first, part.last, part.rows)
        if not whole or low != expected or part.is_start != (high < 0):
            raise UsageError(
                f"{folder} is incomplete: {part.place.name} has {rows:,} rows numbered {low} to {high}, but "
                f"{expected} to {part.last} come next; {help_text}"
            )
        expected = high + 1
    if expected != info.events:
        raise UsageError(
            f"{folder} is incomplete: {EVENTS} holds {max(0, expected):,} events, its trace.json says "
            f"{info.events:,}; {help_text}"
        )


def _numbers(part: EventFile) -> tuple[int, int, int]:
    """The least and the greatest number in a file, and how many rows it has."""
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types

    lows, highs, rows, file = [], [], 0, part.place
    try:
        opened = pq.read_metadata(file.local)
    except FileNotFoundError:
        raise UsageError(f"{file.parent.parent} is incomplete: {file} is missing; make the trace again") from None
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    names = opened.schema.to_arrow_schema().names
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise UsageError(f"{file} is not part of a trace: it has no column {', '.join(missing)}")
    place = names.index("seq")
    for group in range(opened.num_row_groups):
        found = opened.row_group(group).column(place).statistics
        if not opened.row_group(group).num_rows:
            continue
        if found is None or not found.has_min_max:
            raise UsageError(f"{file} does not say which numbers it holds (statistics of seq); write it with them")
        lows.append(found.min)
        highs.append(found.max)
        rows += opened.row_group(group).num_rows
    return (min(lows), max(highs), rows) if rows else (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Classes:
    """Events of a trace by what they mean to range-min subscriptions."""

    events: int
    ignorable: int
    messages: int

    @property
    def share(self) -> float:
        """Ignorable events of all."""
        return self.ignorable / self.events if self.events else 0.0


def classify(folder: Where, tick: Callable[[str], None] | None = None) -> Classes:
    """Play a trace to an engine of our own; rows of the start are there before and are not counted.

    `tick(what)` is called as each part of the trace begins.
    """
    info = read_info(folder)
    check_whole(folder, info)
    tables = read_parts(folder)
    return classify_tables(info, tables if tick is None else _counted(tables, tick))


def _counted(tables: Iterable[pa.Table], tick: Callable[[str], None]) -> Iterator[pa.Table]:
    for table in tables:
        tick(f"counting ignorable events, from {max(0, table.column('seq')[0].as_py()):,}")
        yield table


def classify_tables(info: TraceInfo, tables: Iterable[pa.Table]) -> Classes:
    """The same for events in memory, in order, each table as `read_parts` gives it."""
    engine = Engine()
    engine.execute(create_statement(info))
    sql = f"SELECT MIN({info.y}) FROM {info.table} WHERE {info.x} BETWEEN ? AND ?"
    channel = None if info.start else engine.open_channel(sql)
    for table in tables:
        if channel is None and table.column("seq")[0].as_py() >= 0:
            channel = engine.open_channel(sql)
        for run in runs(info, table):
            if run.deletes:
                engine.delete(info.table, run.rows)
            else:
                engine.upsert(info.table, run.rows)
    if channel is None:
        return Classes(0, 0, 0)
    seen = engine.statistics()[channel]
    return Classes(seen.updates, seen.ignorable, seen.messages)
