"""Traces of `hullcast sim trace` to replay: a folder, or a made-up market without one."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.cli.feeds.piece import Piece, size_and_seed
from hullcast.clients.cli.feeds.rows_typed import find_table
from hullcast.network.wire.errors import UnknownTable, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

    from hullcast.clients.sdk.client import Client
    from hullcast.network.wire.arrays import Floats
    from hullcast.sim.traces.trace import TraceInfo


MARKET = "market"


class RecordedTrace:
    """Events of one table in their order: the rows of the start, then upserts and deletes."""

    def __init__(self, text: str, table: str | None, *, timed: bool) -> None:
        if find_spec("pyarrow") is None:
            raise UsageError(f"{text} needs pyarrow; install it with pip install 'hullcast[arrow]'")
        self._text, self._timed, self._closed = text, timed, False
        self._market: pa.Table | None = None
        if text.split(":")[0] == MARKET:
            info, self._market = _market(text)
        else:
            from hullcast.sim.traces.checking import check_whole
            from hullcast.sim.traces.trace import read_info

            info = read_info(text)
            check_whole(text, info)  # rather than to play half of it
        self._info: TraceInfo = info if table is None else replace(info, table=table)
        self._left: set[Any] | None = None  # keys in the table after the pass before
        self._begins: Floats | None = None  # when the first event happens
        if timed:  # better said before the table is there than after
            first = next(self._tables(start=False), None)
            self._begins = None if first is None else self._seconds(first)[:1]

    async def prepare(self, client: Client) -> list[Piece]:
        """Create the table, if it is not there; the rows with which the trace begins."""
        from hullcast.sim.traces.trace import create_statement

        try:
            find_table(await client.tables(), self._info.table)
        except UnknownTable:
            await client.execute(create_statement(self._info))
        return list(self._start())

    def parts(self) -> Iterator[Piece]:
        """The events, once through; from the second time on the rows of the start are put back first, and others go."""
        begun = {key for piece in self._start() for key in piece.rows[self._info.key]} if self._info.start else set()
        if self._left is not None and begun:
            strange = sorted(self._left - begun)
            if strange:
                yield self._now(Piece(self._info.table, strange, len(strange), deletes=True))
            yield from map(self._now, self._start())
        self._left = set(begun)
        for table in self._tables(start=False):
            for piece in self._cut(table, timed=self._timed):
                if self._closed:
                    return
                if begun and piece.deletes:
                    self._left.difference_update(piece.rows)
                elif begun:
                    self._left.update(piece.rows[self._info.key])
                yield piece

    def close(self) -> None:
        """Read no more."""
        self._closed = True

    def _tables(self, *, start: bool) -> Iterator[pa.Table]:
        from hullcast.sim.traces.trace import parts_of, read_part

        if self._market is not None:
            yield self._market
            return
        for part in parts_of(self._text):
            if part.is_start is start and not self._closed:
                yield read_part(part)

    def _start(self) -> Iterator[Piece]:
        if self._info.start:
            for table in self._tables(start=True):
                yield from self._cut(table, timed=False)

    def _now(self, piece: Piece) -> Piece:
        """A piece that is due with the first event."""
        return piece if self._begins is None else replace(piece, seconds=np.repeat(self._begins, piece.count))

    def _cut(self, table: pa.Table, *, timed: bool) -> Iterator[Piece]:
        from hullcast.sim.traces.trace import runs

        seconds = self._seconds(table) if timed else None
        for run in runs(self._info, table):
            times = None if seconds is None else seconds[run.begin : run.begin + run.count]
            yield Piece(self._info.table, run.rows, run.count, deletes=run.deletes, seconds=times)

    def _seconds(self, table: pa.Table) -> Floats:
        at = table.column("at")
        if at.null_count:
            raise UsageError(f"{self._text} has events without a time; give --rate instead of --speed")
        microseconds: Floats = at.cast("int64").to_numpy().astype(np.float64)
        return microseconds / 1e6


def is_recorded(text: str, generators: Collection[str]) -> bool:
    """Whether a text names such a trace. A folder of the name of a generator must be named by its path."""
    if text.split(":")[0] not in generators:
        return Path(text).is_dir()
    if (Path(text) / "trace.json").is_file():
        raise UsageError(f"is {text} the folder, or the generator of that name? give ./{text} for the folder")
    return text.split(":")[0] == MARKET


def _market(text: str) -> tuple[TraceInfo, pa.Table]:
    from hullcast.sim.traces.market import STOCKS, market, market_columns
    from hullcast.sim.traces.trace import as_table

    stocks, seed = size_and_seed(text, STOCKS)
    info, columns = market_columns(market(stocks, root=seed))
    return info, as_table(columns)
