"""What is measured on the workload of Xie (2007), Table 5.1: S-CN (its kernel, and the whole engine) and S-UN."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from hullcast.broker.engine.engine import Engine
from hullcast.broker.reformulate.keeper import TreeKeeper
from hullcast.broker.tables.ingest import ingest
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.store import TableStore
from hullcast.sim.bench.timing import Run
from hullcast.sim.traces.table51 import CREATE, RANGE_MIN

if TYPE_CHECKING:
    from hullcast.broker.tables.store import Updates
    from hullcast.sim.traces.table51 import Changes, PointRows, RangeColumns


def engine_of(rows: PointRows) -> Engine:
    """An engine with the workload's table."""
    engine = Engine()
    engine.execute(CREATE)
    engine.upsert("POINTS", rows.columns())
    return engine


class KernelSubject:
    """S-CN at its barest: prepared updates into the A2B-tree, rectangles out. No checking, no store, no sockets."""

    def __init__(self, rows: PointRows, changes: Changes, per_round: int, batch: int) -> None:
        empty = Engine()
        empty.execute(CREATE)
        interner = Interner()
        store = TableStore(empty.tables["POINTS"])
        store.apply(ingest(store.table, rows.columns(), interner))
        self._keeper = TreeKeeper(1, 2, ())
        self._keeper.wanted = 1
        self._keeper.begin_load(store)
        self._keeper.load(store, store.high_water)
        self._rounds: list[list[Updates]] = [
            [store.apply(ingest(store.table, part.columns(), interner)) for part in one_round.batches(batch)]
            for one_round in changes.batches(per_round)
        ]

    def run(self, turn: int) -> Run:
        """Update the tree and describe what changed."""
        batches = self._rounds[turn]
        messages = 0
        started = perf_counter()
        for updates in batches:
            described, _ = self._keeper.update(updates)
            messages += len(described)
        seconds = perf_counter() - started
        return Run(seconds, sum(map(len, batches)), messages)


class EngineSubject:
    """S-CN as served: `Engine.upsert` with columns, the channel open, its subscribers elsewhere."""

    def __init__(
        self, rows: PointRows, changes: Changes, per_round: int, batch: int, ranges: RangeColumns | None = None
    ) -> None:
        self.engine = engine_of(rows)
        self.channel = self.engine.open_channel(RANGE_MIN)
        if ranges is not None:
            self.engine.subscribe_many(RANGE_MIN, ranges.low, ranges.high)
        self._rounds = [
            [part.columns() for part in one_round.batches(batch)] for one_round in changes.batches(per_round)
        ]

    def run(self, turn: int) -> Run:
        """Publish, batch by batch."""
        batches = self._rounds[turn]
        messages = 0
        started = perf_counter()
        for columns in batches:
            messages += len(self.engine.upsert("POINTS", columns).messages[self.channel])
        seconds = perf_counter() - started
        return Run(seconds, sum(len(columns["ID"]) for columns in batches), messages)


class UnicastSubject:
    """S-UN: the same engine, but it knows every subscription, finds those concerned and updates each answer."""

    def __init__(self, rows: PointRows, changes: Changes, per_round: int, batch: int, ranges: RangeColumns) -> None:
        self._inner = EngineSubject(rows, changes, per_round, batch, ranges)

    def run(self, turn: int) -> Run:
        """Publish; messages are the subscriptions told."""
        before = self._told()
        run = self._inner.run(turn)
        return Run(run.seconds, run.updates, self._told() - before)

    def _told(self) -> int:
        return self._inner.engine.statistics()[self._inner.channel].told
