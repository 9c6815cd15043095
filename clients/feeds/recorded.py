"""Traces of `hullcast sim trace` to replay: a folder, or a made-up market without one."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clients.feeds.part import Part, seed_and_size
from clients.feeds.rows_typed import find_table
from network.wire.errors import UnknownTable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

    from clients.feeds.pacing import Floats
    from clients.sdk.client import Client
    from sim.traces.trace import TraceInfo


class RecordedTrace:
    """Events of one table in their order: the rows of the start, then upserts and deletes."""

    def __init__(self, text: str, table: str | None, *, timed: bool) -> None:
        if find_spec("pyarrow") is None:
            raise UsageError(f"{text} needs pyarrow; install it with pip install 'hullcast[arrow]'")
        self._text, self._timed, self._closed = text, timed, False
        self._market: pa.Table | None = None
        if text.split(":")[0] == "market":
            info, self._market = _market(text)
        else:
            from sim.traces.trace import read_info

            info = read_info(text)
        if timed and info.name == "table51":
            raise UsageError(f"{text} has no times; give --rate instead of --speed")
        self._info: TraceInfo = info if table is None else replace(info, table=table)

    async def prepare(self, client: Client) -> list[Part]:
        """Create the table, if it is not there; the rows with which the trace begins."""
        from sim.traces.trace import create_statement

        try:
            find_table(await client.tables(), self._info.table)
        except UnknownTable:
            await client.execute(create_statement(self._info))
        if not self._info.start:
            return []
        return [part for table in self._tables(start=True) for part in self._cut(table)]

    def parts(self) -> Iterator[Part]:
        """The events, once through."""
        for table in self._tables(start=False):
            for part in self._cut(table):
                if self._closed:
                    return
                yield part

    def close(self) -> None:
        """Read no more."""
        self._closed = True

    def _tables(self, *, start: bool) -> Iterator[pa.Table]:
        from sim.traces.trace import START, parts_of, read_part

        if self._market is not None:
            yield self._market
            return
        for name, path in parts_of(self._text):
            if (name == START) is start and not self._closed:
                yield read_part(path)

    def _cut(self, table: pa.Table) -> Iterator[Part]:
        from sim.traces.trace import runs

        seconds = self._seconds(table) if self._timed else None
        for run in runs(self._info, table):
            times = None if seconds is None else seconds[run.begin : run.begin + run.count]
            yield Part(self._info.table, run.rows, run.count, deletes=run.deletes, seconds=times)

    def _seconds(self, table: pa.Table) -> Floats:
        at = table.column("at")
        if at.null_count:
            raise UsageError(f"{self._text} has events without a time; give --rate instead of --speed")
        microseconds: Floats = at.cast("int64").to_numpy().astype(np.float64)
        return microseconds / 1e6


def is_recorded(text: str) -> bool:
    """Whether a text names such a trace."""
    return text.split(":")[0] == "market" or Path(text).is_dir()


def _market(text: str) -> tuple[TraceInfo, pa.Table]:
    from sim.traces.market import STOCKS, market, market_columns
    from sim.traces.trace import as_table

    stocks, seed = seed_and_size(text, STOCKS)
    info, columns = market_columns(market(stocks, root=seed))
    return info, as_table(columns)
