"""`hullcast bench spark`: rows into and out of a table by Spark, beside the SDK alone and Spark without a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from hullcast.clients.sdk.blocking import BlockingClient, run_in_thread
from hullcast.clients.sdk.blocking import connect as connect_blocking
from hullcast.sim.bench.frame.benchmark import Benchmark, BenchSection, Shown, Tick
from hullcast.sim.bench.frame.machine import below_s, cpu_s
from hullcast.sim.bench.frame.stage import staged
from hullcast.sim.output.goals import Goal
from hullcast.sim.output.text import plain_table

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
    from pyspark.sql import DataFrame, SparkSession


#: What we aim at, in rows a second.
AIM = 200_000
TABLE = "STOCK"
CREATE = f"CREATE TABLE {TABLE} (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK REAL, RECO REAL, PER REAL)"
PIECE = 50_000


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """How many rows are moved."""

    rows: int = 2_000_000


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One way of moving the rows."""

    name: str
    rows: int
    seconds: float
    server_cpu_s: float
    others_cpu_s: float  # this process, Spark's JVM and its Python workers

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


def measure_source(settings: SourceSettings, tick: Tick) -> tuple[SourceLine, ...]:
    """Measure each way, one after the other, on two cores of Spark and a server that syncs to disk."""
    from hullcast.clients import spark as data_source
    from hullcast.sim.spark.options import SparkOptions
    from hullcast.sim.spark.session import spark_session

    lines, rows = list[SourceLine](), settings.rows

    with (
        run_in_thread(staged([], connected=False), "bench server") as stage,
        spark_session(SparkOptions("local[2]"), app="bench spark") as spark,
        connect_blocking(stage.server, timeout=120) as db,
    ):
        url, server = stage.server, stage.cluster.server.pid

        def timed(name: str, work: Callable[[], int]) -> None:
            tick(name)
            cpu, began = _cpu_s(server), perf_counter()
            moved = work()
            took, (theirs, ours) = perf_counter() - began, _cpu_s(server)
            lines.append(SourceLine(name, moved, took, theirs - cpu[0], ours - cpu[1]))

        data_source.register(spark)
        db.execute(CREATE)
        tick("warm up")
        for _ in range(2):  # Spark compiles its own code, too, and starts its workers
            _save(_frame(spark, PIECE, 4), url, PIECE)
        assert _to_nowhere(_load(spark, url, partitions=4), PIECE)
        frame = _frame(spark, rows, 4)
        timed("Spark alone: the rows, to nowhere", lambda: _to_nowhere(frame, rows))
        ready = frame.toArrow()
        timed("in, SDK alone", lambda: _publish(db, ready))
        start = db.sync()
        timed("in, df.write", lambda: _save(frame, url, rows))
        end = db.sync()
        assert end - start == rows, "each row is one update"
        timed("out, SDK alone: a table, first read", lambda: sum(map(len, db.table_at(TABLE, end))))
        timed("out, spark.read: a table", lambda: _to_nowhere(_load(spark, url, seq=end), rows))
        timed("out, SDK alone: changes", lambda: sum(map(len, db.changes(TABLE, start, end))))
        changes = _load(spark, url, changes="true", after=start, through=end)
        timed("out, spark.read: changes", lambda: _to_nowhere(changes, rows))
        timed("out, spark.readStream: changes", lambda: _streamed(spark, url, stage.folder, start, rows))
    return tuple(lines)


def source_goals(found: tuple[SourceLine, ...]) -> Iterator[Goal]:
    """What Spark does with our source; Spark alone and the SDK stand beside it."""
    for line in found:
        if "SDK" not in line.name and "alone" not in line.name:
            yield Goal(line.name, f">= {AIM:,} rows/s", f"{line.rate:,.0f}", line.rate / AIM)


def source_tables(found: tuple[SourceLine, ...]) -> Iterator[Shown]:
    """A line for each way."""
    columns = ("what", "rows", "seconds", "rows/s", "CPU us/row, server", "others")
    table = plain_table("rows by Spark, on all cores of this host", *columns)
    for line in found:
        cpu = (f"{1e6 * used / line.rows:.2f}" for used in (line.server_cpu_s, line.others_cpu_s))
        table.add_row(line.name, f"{line.rows:,}", f"{line.seconds:.2f}", f"{line.rate:,.0f}", *cpu)
    yield table


def _cpu_s(server: int) -> tuple[float, float]:
    """CPU of the server (with the process that reads its history), and of all other processes of this run."""
    theirs, here = cpu_s(server) + below_s(server), os.getpid()
    return theirs, cpu_s(here) + below_s(here) - theirs


def _frame(spark: SparkSession, rows: int, partitions: int) -> DataFrame:
    return spark.sql(f"""
        SELECT concat('S', id) AS SYMBOL, concat('SECTOR ', id % 20) AS SECTOR, (id * 7919 % 10000) / 100 AS RISK,
               id % 5 + 1.0D AS RECO, (id * 104729 % 50000) / 1000 AS PER
        FROM range(0, {rows}, 1, {partitions})
    """)


def _to_nowhere(frame: DataFrame, rows: int) -> int:
    frame.write.format("noop").mode("overwrite").save()
    return rows


def _save(frame: DataFrame, url: str, rows: int) -> int:
    frame.write.format("hullcast").option("url", url).option("table", TABLE).mode("append").save()
    return rows


def _load(spark: SparkSession, url: str, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("hullcast").options(url=url, table=TABLE, **given).load()


def _publish(db: BlockingClient, table: pa.Table) -> int:
    """The same rows from this process: what one publisher can do that waits for each receipt."""
    for begin in range(0, table.num_rows, PIECE):
        db.publish(TABLE, table.slice(begin, PIECE))
    return int(table.num_rows)


def _streamed(spark: SparkSession, url: str, folder: Path, start: int, rows: int) -> int:
    reader = spark.readStream.format("hullcast").options(url=url, table=TABLE, changes="true", startingSeq=str(start))
    writer = reader.load().writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
    query.awaitTermination()
    return rows


SPARK = Benchmark(
    name="spark",
    about="rows a second that Spark writes to and reads from a table",
    description='Writes rows into a table with df.write.format("hullcast"), and reads the table, its changes and a '
    "stream of them; beside the SDK alone, and Spark without a server.",
    full=SourceSettings(),
    quick=SourceSettings(500_000),
    quick_about="fewer rows: about half a minute",
    sections=(
        BenchSection("spark", "rows a second by the way they are moved", measure_source, source_tables, source_goals,
                     steps=lambda settings: 9),
    ),
    needs_spark=True,
)  # fmt: skip
