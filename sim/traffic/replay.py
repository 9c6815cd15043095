"""The Spark job of a replay: events in, one row per event, placement and approach out.

    events  seq   ..-2 -1 | 0 1 2 3 | 4 5 6 7 | 8 9          chunks of 4 consecutive events
                  at start|  chunk 0|  chunk 1| chunk 2

A chunk can be replayed by itself if it knows the table as it is when its first event comes. That is a question a
window answers for all chunks at once: take the last word on each key in each chunk; it holds from the next chunk on
up to and including the chunk in which the key is spoken of again (`lead`). So the result cannot depend on the number
of chunks, nor on which machine replays which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow has no types
from pyspark import Broadcast
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from hullcast.network.wire.errors import UsageError
from hullcast.sim.traffic.chunk import APPROACHES, COLUMNS, replay_chunk
from hullcast.sim.traffic.rectangles import Events, StartRows
from hullcast.sim.traffic.world import World

#: What comes back from a chunk; `placement` and `approach` are places in the world's placements and in APPROACHES.
_ARROW = pa.schema([(name, pa.from_numpy_dtype(kind)) for name, kind in COLUMNS.items()])
_SPARK = {np.int64: "long", np.int32: "int", np.int8: "byte"}
COUNTED = ", ".join(f"{name} {_SPARK[kind]}" for name, kind in COLUMNS.items())
#: The chunk of rows that are there before the first event.
BEFORE = -1


@dataclass(frozen=True, slots=True)
class SentWorld:
    """A world that Spark's workers have or can fetch."""

    names: tuple[str, ...]  # of its placements
    world: Broadcast[World]


@contextmanager
def sent(spark: SparkSession, world: World) -> Iterator[SentWorld]:
    """Give a world to the workers for as long as the block lasts: whoever replays many needs the memory back."""
    broadcast = spark.sparkContext.broadcast(world)
    try:
        yield SentWorld(world.names, broadcast)
    finally:
        broadcast.destroy()


def replay(
    spark: SparkSession,
    events: DataFrame,
    world: World | SentWorld,
    *,
    chunks: int,
    expected: tuple[int, int] | None = None,
) -> DataFrame:
    """What each event costs, for every placement of `world` and every approach, by their names.

    Columns: seq, placement, approach, messages, bytes, byte_links, node_stress, link_stress, rectangles, affected.
    An event is ignorable where rectangles is 0. The trace is checked first (UsageError); the replay itself happens
    when the result is asked for, in which case a world that was `sent` must still be.
    """
    if chunks < 1:
        raise UsageError(f"a replay needs at least 1 chunk, got {chunks}")
    count = check_trace(events, expected)
    size = -(-count // chunks)
    chunked = with_chunks(events, size)
    pieces = _pieces(chunked, -(-count // size))
    if isinstance(world, World):  # stays with the workers until the session ends
        world = SentWorld(world.names, spark.sparkContext.broadcast(world))
    costs = pieces.groupBy("chunk").applyInArrow(_replayer(world.world), COUNTED)
    names = {"placement": _name("placement", world.names), "approach": _name("approach", APPROACHES)}
    return costs.withColumns(names)


def check_trace(events: DataFrame, expected: tuple[int, int] | None = None) -> int:
    """The number of events; UsageError if the trace has holes, numbers used twice, or half a row.

    `expected` is how many events there should be, and how many rows at the start, by what the trace says of itself.
    """
    x, y, seq = F.col("x"), F.col("y"), F.col("seq")
    number = F.when(seq >= 0, seq)
    odd = (x.isNull() != y.isNull()) | ~_finite(x) | ~_finite(y) | F.col("key").isNull()
    found = events.agg(
        F.count(number).alias("events"),
        F.max(number).alias("last"),
        F.count(seq).alias("rows"),
        F.count_distinct(seq).alias("numbers"),
        F.count(F.lit(1)).alias("all"),
        F.min(F.when(odd, seq)).alias("odd"),
    ).first()
    assert found is not None
    if found["odd"] is not None:
        raise UsageError(
            f"the trace's row {found['odd']} has no key, or x without y, y without x, NaN or an infinity; "
            "both NULL means that the row is deleted, anything else needs two finite numbers"
        )
    if found["all"] > found["rows"]:
        raise UsageError(f"{found['all'] - found['rows']:,} rows of the trace have no seq; number them 0, 1, 2 ..")
    if not found["events"]:
        raise UsageError("the trace has no events: no row with seq 0 or more")
    if found["numbers"] < found["rows"] or found["last"] + 1 != found["events"]:
        raise UsageError(_first_fault(events))
    told = (found["events"], found["rows"] - found["events"])
    if expected is not None and told != expected:
        raise UsageError(
            f"the trace is incomplete: it has {told[0]:,} events and {told[1]:,} rows at the start, but its trace.json "
            f"says {expected[0]:,} and {expected[1]:,}; make the trace again"
        )
    return int(found["events"])


def with_chunks(events: DataFrame, size: int) -> DataFrame:
    """seq, key, x, y and `chunk`: `size` consecutive events each, and BEFORE for what is there at the start."""
    chunk = F.when(F.col("seq") < 0, F.lit(BEFORE)).otherwise(F.expr(f"cast(seq div {size} as int)"))
    return events.select("seq", "key", "x", "y", chunk.alias("chunk"))


def starting_states(chunked: DataFrame, chunks: int) -> DataFrame:
    """chunk, key, x, y: the rows of the table at the start of each chunk; deleted ones are left out."""
    last = chunked.groupBy("key", "chunk").agg(F.max_by(F.struct("x", "y"), "seq").alias("row"))
    again = F.lead("chunk").over(Window.partitionBy("key").orderBy("chunk"))
    held = last.withColumn("until", F.coalesce(again, F.lit(chunks - 1)))
    there = held.where(F.col("row.x").isNotNull() & (F.col("until") > F.col("chunk")))
    starts = F.explode(F.sequence(F.col("chunk") + 1, F.col("until")))
    return there.select(starts.alias("chunk"), "key", "row.x", "row.y")


def _pieces(chunked: DataFrame, chunks: int) -> DataFrame:
    """Starting rows (seq NULL) and events of all chunks, each chunk in a partition of its own."""
    states = starting_states(chunked, chunks).withColumn("seq", F.lit(None).cast("long"))
    both = states.unionByName(chunked.where(F.col("seq") >= 0))
    # By number, not by hash: hashed, two of a few chunks would often share a partition, and a core would stand idle.
    return both.repartitionById(chunks, F.col("chunk"))


def _replayer(world: Broadcast[World]) -> Callable[[pa.Table], pa.Table]:
    def replay_group(table: pa.Table) -> pa.Table:
        costs = replay_chunk(*columns(table), world.value)
        return pa.Table.from_arrays(
            [pa.array(costs[name], _ARROW.field(name).type) for name in _ARROW.names], _ARROW.names
        )

    return replay_group


def columns(table: pa.Table) -> tuple[StartRows, Events]:
    """The starting state and the events of one chunk, keys as dense numbers, in an order that nothing depends on."""
    table = table.sort_by([("seq", "ascending"), ("key", "ascending")])  # NULLs, which are the state, come last
    keys = table["key"].combine_chunks().dictionary_encode()
    key = np.array(_plain(keys.indices), np.int64)
    x, y, seq = (_plain(table[name].combine_chunks()) for name in ("x", "y", "seq"))
    events = len(table) - table["seq"].null_count
    state = StartRows(key[events:].copy(), x[events:].copy(), y[events:].copy())
    numbers = np.array(seq[:events], np.int64)
    return state, Events(numbers, key[:events].copy(), x[:events].copy(), y[:events].copy())


def _plain(array: pa.Array) -> npt.NDArray[Any]:
    """As NumPy, NULL as NaN; a chunked array of no chunks stays a chunked array."""
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _finite(value: Column) -> Column:
    return value.isNull() | (~F.isnan(value) & (F.abs(value) < F.lit(float("inf"))))


def _name(index: str, names: Sequence[str]) -> Column:
    return F.element_at(F.array(*map(F.lit, names)), F.col(index) + 1)


def _first_fault(events: DataFrame) -> str:
    """What is wrong with the numbers of a trace, said of the first place where it is."""
    twice = events.groupBy("seq").count().where("count > 1").agg(F.min("seq").alias("seq")).first()
    if twice is not None and twice["seq"] is not None:
        return f"the trace has several rows with seq {twice['seq']}; each needs a number of its own"
    before = F.lag("seq", 1, -1).over(Window.orderBy("seq"))
    numbered = events.where("seq >= 0").select("seq", before.alias("before"))
    hole = numbered.where("seq <> before + 1").orderBy("seq").first()
    assert hole is not None
    return (
        f"the trace has a gap: seq {hole['before'] + 1} is missing (the next one is {hole['seq']}); "
        "number events 0, 1, 2 .. without gaps"
    )
