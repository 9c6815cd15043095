"""Spark sessions: started with what a simulation needs, on loopback, and ended without a trace.

`SparkSession.stop()` leaves the JVM running until Python exits; here the end of the `with` block is the end of
the JVM, of its temporary folders and of every socket to it, so that a session can be followed by another one.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.needs import check_java, check_master, check_workers, is_local, worker_trouble
from hullcast.sim.spark.options import SparkOptions
from hullcast.sim.spark.shipping import shipped
from hullcast.sim.spark.storage import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
DEFAULT = SparkOptions()
#: Partitions of a shuffle for each core, before adaptive execution joins the small ones.
PARTITIONS, SHUFFLED = 2, "spark.sql.shuffle.partitions"
#: How long a JVM may take to stop before it is killed.
STOP_S = 20.0
#: How often the progress of tasks is asked for.
ASK_S = 0.25


@contextmanager
def spark_session(options: SparkOptions = DEFAULT, *, app: str = "hullcast", **settings: str) -> Iterator[SparkSession]:
    """A session where `options` say (default: all cores of this machine); nothing of it is left after the block.

    If this process has a session already, that one is used, as it is, and stays open: Spark allows no second.
    `settings` are Spark's own with `_` for `.`, e.g. `spark_sql_shuffle_partitions="64"`; they win over ours, and
    those of `options` win over them.
    Executors of a cluster get this package and what it needs (shipping.py), and are asked whether it works there.
    """
    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    wanted = options.master or LOCAL
    check_master(wanted)
    opened = SparkSession.getActiveSession()
    if opened is not None:
        with told_in_a_line():
            yield opened
        return
    check_java()
    conf = SparkConf(loadDefaults=False)
    given = {key.replace("_", "."): text for key, text in settings.items()}
    for_workers, python = ({}, sys.executable) if is_local(wanted) else shipped(options)
    for key, text in (_settings(wanted, app, options) | given | dict(options.conf) | for_workers).items():
        conf.set(key, text)
    with tempfile.TemporaryFile() as log, _environment(wanted, python), _interrupts_restored():
        gateway, interrupted = _launch(conf, log)
        try:
            if interrupted:
                raise KeyboardInterrupt
            try:
                if options.event_log is not None:
                    _make_folder(gateway.jvm, conf, options.event_log)
                context = SparkContext(conf=conf, gateway=gateway)
                context.setLogLevel("ERROR")
                session = SparkSession(context)
            except Exception as error:
                hint = "" if is_local(wanted) else f"; does Spark {pyspark.__version__} run there, the version of here?"
                told = "its master did not take us" if "stopped SparkContext" in str(error) else _cause(error)
                raise UsageError(f"no Spark session on {wanted}: {told}{hint}") from error
            if options.ui:
                print(f"Spark's pages: {context.uiWebUrl}", file=sys.stderr, flush=True)
            try:
                with told_in_a_line():
                    if not is_local(wanted):
                        check_workers(session)
                        if SHUFFLED not in options.conf:  # Spark's own 200 know nothing of this cluster
                            session.conf.set(SHUFFLED, PARTITIONS * context.defaultParallelism)
                    yield session
            finally:
                context.stop()
        finally:
            _end(gateway)


@contextmanager
def reaching(places: Iterable[Place], options: SparkOptions = DEFAULT, *, app: str = "hullcast") -> Iterator[None]:
    """Start Spark now if one of the places can only be reached through it. Others open it when they need it."""
    far = [place for place in places if not place.is_local]
    if not far:
        yield
        return
    with spark_session(options, app=app):
        for place in far:
            place.check()
        yield


@contextmanager
def told_in_a_line() -> Iterator[None]:
    """Make a UsageError of what goes wrong inside the JVM, which is in the data, on the disk or in the cluster.

    A worker that cannot import our package is such a thing too. Errors of our Python code stay what they are; of one
    that workers ran its traceback is kept, for PySpark's own error cannot be printed once the JVM has ended. An
    interrupt stays one: PySpark cancels all jobs at Ctrl-C, and the news of that may be here before the interrupt.
    """
    from py4j.protocol import Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]  # ships no types
    from pyspark.errors import AnalysisException, PythonException
    from pyspark.errors.exceptions.captured import CapturedException

    try:
        yield
    except (Py4JJavaError, CapturedException, AnalysisException) as error:
        cause, text = _cause(error), str(error)
        if "cancellation of all jobs" in cause:
            raise KeyboardInterrupt from error
        problem = worker_trouble(text)
        if problem:
            raise UsageError(problem) from error
        if ours := re.search(r"^hullcast\.network\.wire\.errors\.\w+: (.+)$", text, re.MULTILINE):
            raise UsageError(ours[1]) from error
        if isinstance(error, PythonException):
            raise RuntimeError(text) from None  # its text, taken while there is a JVM to ask for it
        raise UsageError(f"Spark cannot continue: {cause}") from error
    except Py4JNetworkError as error:
        raise UsageError("Spark's JVM has ended; it may have run out of memory, or somebody stopped it") from error


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


def _make_folder(jvm: Any, conf: Any, place: Place) -> None:
    """Make a folder before there is a session: Spark starts with an event log only where one exists."""
    path = jvm.org.apache.hadoop.fs.Path(place.to_write)
    hadoop = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf._jconf)
    path.getFileSystem(hadoop).mkdirs(path)


def _settings(master: str, app: str, options: SparkOptions) -> dict[str, str]:
    settings = {
        "spark.master": master,
        "spark.app.name": app,
        "spark.driver.memory": options.memory,
        "spark.ui.enabled": str(options.ui).lower(),
        "spark.ui.port": "0",  # the system's choice
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "true",  # partitions follow the data
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default is a type that Parquet gave up
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # "0000" is a name, not the number 0
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
        "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "hullcast-warehouse"),  # never made: no tables
    }
    if options.event_log is not None:
        settings |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": options.event_log.to_write}
    if is_local(master):
        cores = os.cpu_count() or 1
        settings |= {
            "spark.driver.host": "127.0.0.1",  # ports are the system's choice
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(PARTITIONS * cores),
            "spark.default.parallelism": str(PARTITIONS * cores),
        }
    else:
        settings |= {
            "spark.executor.processTreeMetrics.enabled": "true",  # with Python's memory, for PeakMemory
            "spark.executor.heartbeatInterval": "2s",  # which carry it
        }
    return settings


@contextmanager
def _environment(master: str, python: str) -> Iterator[None]:
    """What Spark takes from the environment only, given back afterwards; `python` is the workers'."""
    wanted = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local(master):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = dict(os.environ)
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
            del os.environ[name]  # PySpark sets some more
        os.environ.update({name: before[name] for name in before if name.startswith(("SPARK_", "PYSPARK_"))})


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


def _launch(conf: Any, log: Any) -> tuple[Any, bool]:
    """Start the JVM: its gateway, and whether an interrupt came meanwhile.

    An interrupt is held back until then: PySpark would run off without the JVM, which would never learn of it.
    """
    from pyspark.java_gateway import launch_gateway

    came: list[int] = []
    main = threading.current_thread() is threading.main_thread()  # no other may set handlers, or gets interrupts
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if main else None
    try:
        # The JVM's own words (it greets with a dozen lines) go to a file that is read only if it does not start.
        # PySpark leaves this function without types.
        gateway = launch_gateway(conf, {"stderr": log, "stdout": log})  # type: ignore[no-untyped-call]
    except Exception as error:
        raise UsageError(f"Spark did not start: {_last_words(log) or error}") from error
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    return gateway, bool(came)


@contextmanager
def _interrupts_restored() -> Iterator[None]:
    """Take back PySpark's handler of interrupts at the end, and keep py4j from printing a traceback at each."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    logging.getLogger().addFilter(_not_of_py4j)  # it logs some to the root, some to its own
    py4j = logging.getLogger("py4j")
    level = py4j.level
    py4j.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        py4j.setLevel(level)
        logging.getLogger().removeFilter(_not_of_py4j)
        if main and before is not None:
            signal.signal(signal.SIGINT, before)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _last_words(log: Any) -> str:
    """What a JVM that does not start has to say, without stack frames."""
    log.seek(0)
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
    lines = [line for line in lines if line and not re.match(r"at |\.\.\. \d+ more|WARNING: |Using ", line)]
    telling = [line for line in lines if re.search(r"(Exception|Error)(: |\b.*: )", line)]
    return " / ".join(telling[-1:] or lines[-3:])


def _cause(error: Exception) -> str:
    """An error of the JVM in a line: what Spark says, and what was behind it."""
    found = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    said: list[str] = []
    while found is not None and len(said) < 20:
        text = str(found.getMessage() or found.getClass().getSimpleName()).strip().split("\n")[0]
        # Spark's own form: [NAME.OF.ERROR] text SQLSTATE: KD001
        said.append(re.sub(r"^\[[A-Z0-9_.]+\] | *SQLSTATE: \w+$", "", text).strip())
        found = found.getCause()
    said = said or [str(error).strip().split("\n")[0]]
    return ": ".join(dict.fromkeys((said[0][:300], said[-1][:300])))
