"""What every experiment stands on: the run's folder, Spark, progress, and the memory that it takes."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol, Self

import psutil
from pyspark.sql import DataFrame, SparkSession

from hullcast.sim.experiments.steps import RunFolder
from hullcast.sim.spark.needs import check_shared, is_local
from hullcast.sim.spark.options import SparkOptions
from hullcast.sim.spark.session import DEFAULT, spark_session
from hullcast.sim.spark.storage import Place

INTERVAL_S = 0.5


class StepProgress(Protocol):
    """Shows how far a run has come; `tasks` may be called from another thread."""

    def begin(self, what: str) -> None:
        """A step begins, and the one before it is done."""

    def tasks(self, done: int, known: int) -> None:
        """Spark's tasks within a step."""


class ExperimentRun:
    """For `with`. Spark starts when a step first needs it (a run whose steps are all there does not) and ends here."""

    def __init__(
        self,
        folder: RunFolder,
        progress: StepProgress,
        *,
        options: SparkOptions = DEFAULT,
        reads: Iterable[Place] = (),
        spark: SparkSession | None = None,
    ) -> None:
        """`reads`: what a cluster's workers must see beside the folder; `spark`: a session that is there, and stays."""
        self.folder, self.progress, self._options = folder, progress, options
        self._reads = tuple(reads)
        self._ends = ExitStack()
        self._spark, self._is_given = spark, spark is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.__exit__(kind, error, trace)  # the session tells in a line what went wrong inside the JVM

    @property
    def spark(self) -> SparkSession:
        """The session, started when first asked for."""
        if self._spark is None:
            spark = self._ends.enter_context(spark_session(self._options, app="hullcast sim"))
            check_shared(spark, write=[self.folder.place / "steps"], read=self._reads)
            self._spark = spark
        return self._spark

    def stop_spark(self) -> bool:
        """End our session, for what is timed without it; it starts again when somebody asks for it. False if another
        one stays: that by which --out is reached."""
        self._ends.close()
        self._ends, self._spark = ExitStack(), None
        return self._is_given or SparkSession.getActiveSession() is None

    def step(
        self, name: str, settings: Mapping[str, object], make: Callable[[Place], object], *, what: str = ""
    ) -> Place:
        """The folder of a finished step, made now unless an earlier run did; `what` is shown as progress."""
        self.progress.begin(what or name)
        return self.folder.step(name, settings, make)


def kept(table: DataFrame, place: Place) -> DataFrame:
    """A table that is in a folder from now on, and not computed again."""
    table.write.parquet(place.to_write)
    return table.sparkSession.read.schema(table.schema).parquet(place.to_read)


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at the same time. (`defaultParallelism` says of local sessions what we set it to.)"""
    local = re.fullmatch(r"local(?:\[(\d+|\*).*\])?", spark.sparkContext.master or "")
    if local is None:
        return spark.sparkContext.defaultParallelism
    return os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)


class PeakMemory:
    """The most memory that this process and all it started had at one time: `peak_bytes`, after the `with` block.

    Looks every half second. Counted is the proportional share (PSS) where the system tells it: a page that three
    workers share counts once, not three times. Elsewhere it is the resident size, which counts shared pages often and
    so says too much.

    On a cluster the executors are added: the most that each had since it started, resident sizes as Spark measures
    them every few seconds, summed over all. They may not have had it at the same time, so that it is an upper bound.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()
        spark = SparkSession.getActiveSession()
        if spark is not None and not is_local(spark.sparkContext.master or ""):
            self.peak_bytes += executors_bytes(spark)

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self._look()

    def _look(self) -> None:
        here = psutil.Process()
        self.peak_bytes = max(self.peak_bytes, sum(map(_bytes, [here, *here.children(recursive=True)])))


def executors_bytes(spark: SparkSession) -> int:
    """The most memory that each of a cluster's executors had, JVM, Python and all that they started; their sum."""
    java: Any = spark.sparkContext._jsc
    found = java.sc().statusStore().executorList(False)  # with those that are gone
    total = 0
    for number in range(found.size()):
        peak = found.apply(number).peakMemoryMetrics()
        if found.apply(number).id() != "driver" and peak.isDefined():
            total += sum(int(peak.get().getMetricValue(f"ProcessTree{part}RSSMemory")) for part in _PARTS)
    return total


_PARTS = ("JVM", "Python", "Other")


def _bytes(process: psutil.Process) -> int:
    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    except psutil.NoSuchProcess:
        return 0
    except psutil.AccessDenied:
        return int(process.memory_info().rss)
