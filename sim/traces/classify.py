"""How many of a trace's events are ignorable, counted by the engine itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.broker.engine.engine import Engine
from hullcast.sim.traces.checking import check_whole
from hullcast.sim.traces.trace import create_statement, read_info, read_parts, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

    from hullcast.sim.traces.trace import TraceInfo


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


def classify(folder: Path | str, tick: Callable[[str], None] | None = None) -> Classes:
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
