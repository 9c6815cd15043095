"""Spark sessions: started with what a simulation needs, silent, on the loopback interface, and ended without a trace.

`SparkSession.stop()` leaves the JVM running until Python exits; here the end of the `with` block is the end of
the JVM, of its temporary folders and of every socket to it, so that a session can be followed by another one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from network.wire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

LOCAL = "local[*]"
OLDEST_JAVA = 17
#: How long a JVM may take to stop before it is killed.
STOP_S = 20.0
#: How often the progress of tasks is asked for.
ASK_S = 0.25


@contextmanager
def spark_session(
    master: str | None = None, *, app: str = "hullcast", memory: str = "2g", **options: str
) -> Iterator[SparkSession]:
    """A session on `master` (default: all cores of this machine); nothing of it is left after the block.

    If this process has a session already, that one is used, as it is, and stays open: Spark allows no second.
    `options` are Spark's own with `_` for `.`, e.g. `spark_sql_shuffle_partitions="64"`; they win over ours.
    Executors of a cluster need the same Python and this package installed.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    opened = SparkSession.getActiveSession()
    if opened is not None:
        yield opened
        return
    check_java()
    conf = SparkConf(loadDefaults=False)
    settings = _settings(master or LOCAL, app, memory) | {key.replace("_", "."): text for key, text in options.items()}
    for key, text in settings.items():
        conf.set(key, text)
    with tempfile.TemporaryFile() as log, _environment(settings["spark.master"]):
        try:
            # The JVM's own words (it greets with a dozen lines) go to a file that is read only if it does not start.
            # PySpark leaves this function without types.
            gateway = launch_gateway(conf, {"stderr": log, "stdout": log})  # type: ignore[no-untyped-call]
        except Exception as error:
            raise UsageError(f"Spark did not start: {_last_words(log) or error}") from error
        try:
            try:
                context = SparkContext(conf=conf, gateway=gateway)
            except Exception as error:
                raise UsageError(f"no Spark session on {settings['spark.master']}: {_first_line(error)}") from error
            try:
                context.setLogLevel("ERROR")
                yield SparkSession(context)
            finally:
                context.stop()
        finally:
            _end(gateway)


def check_java() -> None:
    """Refuse to go on without a Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    help_text = f"install Java {OLDEST_JAVA} or newer, or let JAVA_HOME name it"
    if java is None:
        raise UsageError(f"Spark needs Java, and there is none on the PATH; {help_text}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError(f"Spark needs Java, but {java} does not run: {error}; {help_text}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', said)  # 1.8 was Java 8
    if version is not None and int(version[1]) < OLDEST_JAVA:
        raise UsageError(f"{java} is Java {version[1]}, too old for Spark; {help_text}")


@contextmanager
def watched(spark: SparkSession, tell: Callable[[int, int], None]) -> Iterator[None]:
    """Call `tell(tasks done, tasks known of)` now and then, from a thread, while the block runs Spark jobs.

    Both only grow: stages that Spark has not planned yet are not known of.
    """
    from pyspark import InheritableThread

    tracker = spark.sparkContext.statusTracker()
    finished = threading.Event()
    tasks: dict[int, tuple[int, int]] = {}  # of each stage seen: done, all

    def look() -> None:
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                tasks[stage] = (info.numCompletedTasks, info.numTasks)
        active = set(tracker.getActiveStageIds())
        done = sum(done if stage in active else total for stage, (done, total) in tasks.items())
        tell(done, sum(total for _, total in tasks.values()))

    def run() -> None:
        with suppress(Exception):  # a session that is being stopped answers with any error; the block tells of it
            while not finished.wait(ASK_S):
                look()

    # Spark pins each Python thread to one of the JVM's; this kind of thread also lets go of it.
    thread = InheritableThread(target=run, name="hullcast-spark-progress", session=spark, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def _settings(master: str, app: str, memory: str) -> dict[str, str]:
    settings = {
        "spark.master": master,
        "spark.app.name": app,
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default is a type that Parquet gave up
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # "0000" is a name, not the number 0
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
        "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "hullcast-warehouse"),  # never made: no tables
    }
    if master.startswith("local"):
        cores = os.cpu_count() or 1
        settings |= {
            "spark.driver.host": "127.0.0.1",  # ports are the system's choice
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * cores),  # the default of 200 is for clusters
            "spark.default.parallelism": str(2 * cores),
        }
    return settings


@contextmanager
def _environment(master: str) -> Iterator[None]:
    """What Spark takes from the environment only, given back afterwards."""
    wanted = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if master.startswith("local"):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    else:
        del wanted["PYSPARK_PYTHON"]  # a cluster's machines have their own
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _end(gateway: Any) -> None:
    """Close every socket to the JVM, then its standard input, which tells it to exit; wait until it has."""
    from py4j.clientserver import FinalizerWorker  # type: ignore[import-untyped]  # ships no types
    from pyspark import SparkContext

    process = gateway.proc
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(Exception):  # it may be gone already
        gateway.shutdown()
    process.stdin.close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for thread in threading.enumerate():
        if isinstance(thread, FinalizerWorker):  # told to end by the shutdown, it may sleep for a second more
            thread.join(STOP_S)


def _last_words(log: Any) -> str:
    log.seek(0)
    lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-3:])


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]
