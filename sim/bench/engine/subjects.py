"""What is measured on Table 5.1's workload: S-CN (its kernel, and the whole engine) and S-UN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hullcast.broker.engine.engine import Engine
from hullcast.broker.reformulate.keeper import TreeKeeper
from hullcast.broker.tables.ingest import ingest
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.store import TableStore, Updates
from hullcast.network.wire.values import rows_to_columns
from hullcast.sim.bench.frame.timing import Subject
from hullcast.sim.traces.table51 import CREATE, RANGE_MIN, Changes, PointRows, RangeColumns


def engine_of(rows: PointRows) -> Engine:
    """An engine with the workload's table."""
    engine = Engine()
    engine.execute(CREATE)
    engine.upsert("POINTS", rows.columns())
    return engine


def kernel_subject(rows: PointRows, changes: Changes, per_round: int, batch: int) -> Subject:
    """S-CN at its barest: prepared updates into the A2B-tree, rectangles out. No checking, no store, no sockets."""
    empty = Engine()
    empty.execute(CREATE)
    interner, store = Interner(), TableStore(empty.tables["POINTS"])

    def stored(part: PointRows | Changes) -> Updates:
        return store.apply(ingest(store.table, *rows_to_columns(part.columns()), interner))

    stored(rows)
    keeper = TreeKeeper(1, 2, ())
    keeper.wanted = 1
    keeper.begin_load(store)
    keeper.load(store, store.high_water)

    def apply(updates: Updates) -> tuple[int, int]:
        described, _ = keeper.update(updates)
        return len(updates), len(described)

    return Subject(_rounds(changes, per_round, batch, stored), apply)


def engine_subject(
    rows: PointRows, changes: Changes, per_round: int, batch: int, ranges: RangeColumns | None = None
) -> Subject:
    """S-CN as served: `Engine.upsert` with columns, the channel open, its subscribers elsewhere.

    With `ranges` it is S-UN: the same engine, but it knows every subscription, finds those concerned and updates each
    answer; messages are then the subscriptions told.
    """
    engine = engine_of(rows)
    channel = engine.open_channel(RANGE_MIN)
    if ranges is not None:
        engine.subscribe_many(RANGE_MIN, ranges.low, ranges.high)

    def apply(columns: dict[str, Any]) -> tuple[int, int]:
        return len(columns["ID"]), len(engine.upsert("POINTS", columns).messages[channel])

    told = None if ranges is None else lambda: engine.statistics()[channel].told
    return Subject(_rounds(changes, per_round, batch, lambda part: part.columns()), apply, told)


def _rounds(changes: Changes, per_round: int, batch: int, prepare: Callable[[Changes], Any]) -> list[list[Any]]:
    return [[prepare(part) for part in one_round.batches(batch)] for one_round in changes.batches(per_round)]
