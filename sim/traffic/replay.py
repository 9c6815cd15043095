"""The Spark job of a replay: events in, rows per event, placement and approach out, or their sums.

    events  seq   ..-2 -1 | 0 1 2 3 | 4 5 6 7 | 8 9          chunks of 4 consecutive events
                  at start|  chunk 0|  chunk 1| chunk 2

A task replays a chunk, some events at a time, if it has the table as it is when the chunk's first event comes:

    1  last words   the last row of each key in each chunk                  aggregation, mostly where events are read
    2  states       for some of the keys (a bucket): what was said of each   a task a bucket, by columns; for each chunk
                    before each chunk, unless it was deleted                 a few portions of many rows (`states`)
    3  chunks       a chunk's states and events in one place                 a task a chunk (`_replayed`)

So the result cannot depend on the number of chunks, nor on which machine replays which.

What it takes, for n events of k keys in c chunks: two shuffles of at most n last words and one of n events; states of
k x c rows, about 30 bytes each, that travel as portions of STATE_ROWS. Chunks are few (`chunks_for`): some for each
core, more only to bound what a task holds. A task of step 2 holds BUCKET_ROWS last words, about 100 bytes each (a key
has one for each chunk, however often it changes, and keys are spread by hash). A task of step 3 holds its events (about
100 bytes each while they are sorted), the table (about 150 bytes a row), the world, and the costs of PIECE_EVENTS
events. A million rows and a hundred million events are 52 chunks on 2 cores, and 5e7 state rows (1.5 GB on disk, not in
memory); on 100 cores they are 100 chunks and 1e8 state rows, 30 MB for each task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow has no types
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from hullcast.network.wire.errors import UsageError
from hullcast.sim.traffic.chunk import APPROACHES, COLUMNS, GROUPS, REDUCED, SUMS, ChunkReplay, Costs
from hullcast.sim.traffic.rectangles import Events, StartRows, TableRows, checked
from hullcast.sim.traffic.sending import SentWorld

#: The chunk of rows that are there before the first event.
BEFORE = -1
#: Events that a task replays at most, unless fewer chunks are asked for.
CHUNK_EVENTS = 2_000_000
#: Events whose costs a task holds at a time: 16 rows of 62 bytes an event, with four placements.
PIECE_EVENTS = 32_768
#: Last words that a task turns into states, about.
BUCKET_ROWS = 1_000_000
#: Rows of a state that travel together: 2 MB or so.
STATE_ROWS = 65_536
_STATE = pa.schema([("chunk", pa.int32()), ("state", pa.binary())])
_SPARK = {np.int64: "long", np.int32: "int", np.int8: "byte", np.bool_: "boolean"}


def chunks_for(events: int, parallel: int) -> int:
    """Enough for every core, none larger than CHUNK_EVENTS; a multiple of what runs at the same time, so that no core
    waits for a last chunk."""
    rounds = -(-events // (parallel * CHUNK_EVENTS))
    return max(1, rounds) * parallel


def replay(
    spark: SparkSession,
    events: DataFrame,
    world: SentWorld,
    *,
    chunks: int,
    expected: tuple[int, int] | None = None,
) -> DataFrame:
    """What each event costs, for every placement of `world` and every approach, by their names.

    Columns: seq, placement, approach, messages, bytes, byte_links, node_stress, link_stress, rectangles, affected.
    An event is ignorable where rectangles is 0. The trace is checked first (UsageError); the replay itself happens
    when the result is asked for, in which case the world must still be `sent`.
    """
    return _named(_replayed(spark, events, world, chunks, expected, Costs.columns, COLUMNS), world)


def replay_sums(
    spark: SparkSession,
    events: DataFrame,
    world: SentWorld,
    *,
    chunks: int,
    expected: tuple[int, int] | None = None,
) -> DataFrame:
    """The same reduced where it is counted: a row for each of GROUPS, with the sums of SUMS, of `events` and of `seq`.

    Exactly what `sums_of` makes of the whole table, without the 16 rows an event that this would move.
    """
    parts = _replayed(spark, events, world, chunks, expected, Costs.reduced, REDUCED)
    sums = [F.sum(name).alias(name) for name in ("events", "seq", *SUMS)]
    return _named(parts.groupBy(*GROUPS).agg(*sums), world)


def sums_of(costs: DataFrame) -> DataFrame:
    """What `replay` gave (and may have been kept), as `replay_sums` gives it."""
    grouped = costs.withColumn("ignorable", F.col("rectangles") == 0).groupBy(*GROUPS)
    return grouped.agg(F.count(F.lit(1)).alias("events"), *(F.sum(name).alias(name) for name in ("seq", *SUMS)))


def check_trace(events: DataFrame, expected: tuple[int, int] | None = None) -> int:
    """The number of events; UsageError if the trace has holes, numbers used twice, or half a row.

    `expected` is how many events there should be, and how many rows at the start, by what the trace says of itself.
    """
    x, y, seq = F.col("x"), F.col("y"), F.col("seq")
    number = F.when(seq >= 0, seq)
    odd = (x.isNull() != y.isNull()) | ~_finite(x) | ~_finite(y) | F.col("key").isNull()
    # Which numbers there are, as bits, 64 to a group: a row of a shuffle for 64 events, and not one for each.
    blocks = events.groupBy(F.shiftright(seq, 6).alias("block")).agg(
        F.count(number).alias("events"),
        F.max(number).alias("last"),
        F.count(seq).alias("rows"),
        F.bit_or(F.expr("shiftleft(1L, cast(seq & 63 as int))")).alias("numbers"),
        F.count(F.lit(1)).alias("all"),
        F.min(F.when(odd, seq)).alias("odd"),
    )
    sums = [F.sum(name).alias(name) for name in ("events", "rows", "all")]
    found = blocks.agg(
        *sums, F.max("last").alias("last"), F.sum(F.bit_count("numbers")).alias("numbers"), F.min("odd").alias("odd")
    ).first()
    assert found is not None
    if found["odd"] is not None:
        raise UsageError(
            f"the trace's row {found['odd']} has no key, or x without y, y without x, NaN or an infinity; "
            "both NULL means that the row is deleted, anything else needs two finite numbers"
        )
    if not found["all"]:
        raise UsageError("the trace has no events: it is empty")
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


def last_words(chunked: DataFrame, chunks: int) -> DataFrame:
    """key, chunk, x, y: the last row of each key in each chunk but the last, which no other chunk starts from."""
    earlier = chunked.where(F.col("chunk") < chunks - 1).groupBy("key", "chunk")
    # Two columns rather than a struct: of plain numbers Spark keeps sums in hash tables, for others it sorts.
    return earlier.agg(F.max_by("x", "seq").alias("x"), F.max_by("y", "seq").alias("y"))


def states(words: pa.Table, chunks: int) -> Iterator[tuple[int, pa.Table]]:
    """From last words (`last_words`) of some keys, all of them: the rows at the start of each chunk, by portions.

    Gives (chunk, key and x and y), a chunk as often as STATE_ROWS asks for; deleted rows are left out.
    """
    keys = words["key"].combine_chunks().dictionary_encode()
    number, chunk = _plain(keys.indices), _plain(words["chunk"].combine_chunks())
    rows = np.stack([_plain(words[name].combine_chunks()).astype(np.float64) for name in ("x", "y")])
    order = np.argsort(chunk, kind="stable")
    borders = np.searchsorted(chunk[order], np.arange(BEFORE, chunks))
    table = np.full((2, len(keys.dictionary)), np.nan)
    for following in range(chunks):
        said = order[borders[following] : borders[following + 1]]  # in the chunk before, of each key once
        table[:, number[said]] = rows[:, said]
        there = np.flatnonzero(~np.isnan(table[0]))
        for begin in range(0, len(there), STATE_ROWS):
            part = there[begin : begin + STATE_ROWS]
            found = {"key": keys.dictionary.take(pa.array(part)), "x": table[0, part], "y": table[1, part]}
            yield following, pa.table(found)


def _replayed(
    spark: SparkSession,
    events: DataFrame,
    world: SentWorld,
    chunks: int,
    expected: tuple[int, int] | None,
    told: Callable[[Costs], dict[str, npt.NDArray[Any]]],
    columns: dict[str, type[np.generic]],
) -> DataFrame:
    """What is told of the costs of every PIECE_EVENTS events, as these columns."""
    if chunks < 1:
        raise UsageError(f"a replay needs at least 1 chunk, got {chunks}")
    count = check_trace(events, expected)
    size = -(-count // chunks)
    chunks = -(-count // size)
    pieces = _pieces(with_chunks(events, size), chunks, _buckets(count, spark.sparkContext.defaultParallelism))
    names = ", ".join(f"{name} {_SPARK[kind]}" for name, kind in columns.items())
    return pieces.mapInArrow(_replayer(world, count, size, told, columns), names)


def _buckets(events: int, parallel: int) -> int:
    """How many tasks make states: few for few events, and none with too many."""
    return max(1, min(parallel, events // STATE_ROWS), -(-events // BUCKET_ROWS))


def _pieces(chunked: DataFrame, chunks: int, buckets: int) -> DataFrame:
    """Portions of states (`state`) and events of all chunks, each chunk in a partition of its own."""
    bucket = F.pmod(F.hash("key"), F.lit(buckets))
    # By number, not by hash: hashed, two of a few chunks would often share a partition, and a core would stand idle.
    words = last_words(chunked, chunks).repartitionById(buckets, bucket)
    before = words.mapInArrow(_stater(chunks), "chunk int, state binary")
    both = before.unionByName(chunked.where(F.col("seq") >= 0), allowMissingColumns=True)
    return both.repartitionById(chunks, F.col("chunk"))


def _stater(chunks: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def state_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        words = list(batches)
        for chunk, rows in states(pa.Table.from_batches(words), chunks) if words else ():
            yield pa.record_batch([pa.array([chunk], pa.int32()), pa.array([_packed(rows)], pa.binary())], _STATE)

    return state_batches


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _unpacked(packed: pa.BinaryScalar) -> pa.Table:
    with pa.ipc.open_stream(packed.as_buffer()) as reader:
        return reader.read_all()


def _replayer(
    world: SentWorld,
    count: int,
    size: int,
    told: Callable[[Costs], dict[str, npt.NDArray[Any]]],
    columns: dict[str, type[np.generic]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    schema = pa.schema([(name, pa.from_numpy_dtype(kind)) for name, kind in columns.items()])

    def replay_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches, None) if (batches := list(batches)) else None
        if rows is None or not rows.num_rows:
            return
        chunk = rows["chunk"][0].as_py()
        state, events, keys = columns_of(rows)
        first, end = chunk * size, min(count, (chunk + 1) * size)
        if not np.array_equal(events.seq, np.arange(first, end)):
            raise UsageError(
                f"chunk {chunk} has {len(events):,} events, but those from {first} to {end - 1} belong to it"
            )
        del rows, batches
        replay = ChunkReplay(TableRows(state, keys), world.world())
        for begin in range(0, len(events), PIECE_EVENTS):
            found = told(replay.play(events.slice(begin, begin + PIECE_EVENTS)))
            yield pa.record_batch([pa.array(found[field.name], field.type) for field in schema], schema)

    return replay_batches


def columns_of(rows: pa.Table) -> tuple[StartRows, Events, int]:
    """The starting state and the events of one chunk in their order, keys as dense numbers, and how many keys."""
    packed = rows["state"].drop_null()
    held = pa.concat_tables([_unpacked(one) for one in packed]) if len(packed) else _ROWS.empty_table()
    rows = rows.filter(rows["state"].is_null()).drop_columns(["state", "chunk"])
    # A user's own session may have Arrow's large strings (spark.sql.execution.arrow.useLargeVarTypes).
    named = [*held["key"].cast(pa.string()).chunks, *rows["key"].cast(pa.string()).chunks]
    keys = pa.chunked_array(named, pa.string()).combine_chunks().dictionary_encode()
    number = _plain(keys.indices).astype(np.int64)
    order = np.argsort(_plain(rows["seq"].combine_chunks()), kind="stable")
    x, y, seq = (_plain(rows[name].combine_chunks())[order] for name in ("x", "y", "seq"))
    state = StartRows(number[: len(held)], *(_plain(held[name].combine_chunks()) for name in ("x", "y")))
    return *checked(state, Events(seq, number[len(held) :][order], x, y)), len(keys.dictionary)


_ROWS = pa.schema([("key", pa.string()), ("x", pa.float64()), ("y", pa.float64())])


def _named(costs: DataFrame, world: SentWorld) -> DataFrame:
    """With the names of placements and approaches in place of their numbers."""
    return costs.withColumns({"placement": _name("placement", world.names), "approach": _name("approach", APPROACHES)})


def _plain(array: pa.Array) -> npt.NDArray[Any]:
    """As NumPy, NULL as NaN."""
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
