"""Spark sessions: they run our Python, tell how far they are, stay on this machine, and leave nothing behind."""

from __future__ import annotations

import os
import pickle
import re
import socket
import subprocess
import sys
import tarfile
import textwrap
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from hullcast.clients.cli.main import main
from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.needs import Interpreter, check_java, check_master, check_workers, differences, worker_trouble
from hullcast.sim.spark.options import SparkOptions, settings_of
from hullcast.sim.spark.session import spark_session, told_in_a_line, watched
from hullcast.sim.spark.storage import Place
from tests.support.spark_cluster import SparkCluster, spark_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]


def test_workers_run_the_same_interpreter_with_the_same_packages(spark: SparkSession) -> None:
    def facts(_: int) -> tuple[str, str]:
        from hullcast.sim.spark import session

        return sys.executable, session.__file__

    expected = (sys.executable, str(ROOT / "sim" / "spark" / "session.py"))
    assert spark.sparkContext.parallelize([0], 1).map(facts).collect() == [expected]


def test_progress_is_told_and_ends_with_every_task(spark: SparkSession) -> None:
    told: list[tuple[int, int]] = []

    def slow(number: int) -> int:
        import time

        time.sleep(0.4)
        return number

    with watched(spark, lambda done, total: told.append((done, total))):
        spark.sparkContext.parallelize(range(4), 4).map(slow).collect()
    assert told
    assert told[-1][1] == 4
    assert all(done <= total for done, total in told)
    assert told == sorted(told)
    assert not [thread for thread in threading.enumerate() if thread.name == "hullcast-spark-progress"]


def test_a_session_that_is_open_is_used_and_stays_open(spark: SparkSession) -> None:
    with spark_session(SparkOptions("local[1]")) as other:
        assert other is spark
    assert spark.range(3).count() == 3


def test_without_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="Java 17 or newer"):
        check_java()


def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="is Java 8, too old"):
        check_java()


@pytest.mark.parametrize(
    ("master", "message"),
    [
        ("nonsense", "'nonsense' is not a Spark master; give local"),
        ("local[0]", "is not a Spark master"),
        ("local[", "is not a Spark master"),
        ("yarn", "yarn needs HADOOP_CONF_DIR"),
        ("spark://host", "write spark://host:7077"),
        ("spark://127.0.0.1:1", "no Spark master answers at spark://127.0.0.1:1: Connection refused"),
    ],
)
def test_a_master_that_cannot_be_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, master: str, message: str) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(UsageError, match=re.escape(message)):
        check_master(master)


def test_masters_that_can_be_are_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "somewhere")
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster = f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}"
        for master in ("local", "local[*]", "local[8]", "local[2,3]", "yarn", "k8s://https://host:443", cluster):
            check_master(master)


def test_an_error_of_the_jvm_is_told_in_a_line_and_one_of_ours_stays(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UsageError, match=r"x\.parquet.*not a Parquet file"), told_in_a_line():
        spark.read.schema("a LONG").parquet(Place(tmp_path).to_read).count()
    with pytest.raises(UsageError, match="Path does not exist"), spark_session() as same:
        same.read.parquet(Place(tmp_path / "gone").to_read)
    with pytest.raises(ZeroDivisionError), told_in_a_line():
        raise ZeroDivisionError


OURS = Interpreter(
    "",
    "",
    "3.11.7",
    {"pyspark": "4.3.0", "hullcast": "1.2.3", "numpy": "2.4.1", "numba": "0.68.0", "pyarrow": "26"},
    {},
)


@pytest.mark.parametrize(
    ("changed", "failures", "message"),
    [
        ({}, {}, ""),
        ({"numpy": "2.4.9", "pyarrow": "25"}, {}, ""),
        ({"numpy": "1.26.4"}, {}, "the Spark worker on far has numpy 1.26.4 (here: 2.4.1) in /bin/py (Python 3.11.2);"),
        ({"pyspark": "4.3.9"}, {}, ""),
        (
            {"pyspark": "4.2.0"},
            {},
            "has pyspark 4.2.0 (here: 4.3.0) in /bin/py (Python 3.11.2); driver and cluster need",
        ),
        ({"hullcast": "1.2.2"}, {}, "has hullcast 1.2.2 (here: 1.2.3)"),
        (
            {},
            {"hullcast": "No module named 'numba'", "hullcast.sim.traffic.replay": "-"},
            "hullcast (No module named 'numba') in",
        ),
        (
            {},
            {"hullcast.sim.traffic.replay": "No module named 'sim'"},
            "cannot import hullcast.sim.traffic.replay (No module named 'sim')",
        ),
    ],
)
def test_a_worker_with_other_packages_is_named_with_the_remedy(
    changed: dict[str, str], failures: dict[str, str], message: str
) -> None:
    versions = {name: version for name, version in (OURS.versions | changed).items() if name not in failures}
    found = differences([OURS, Interpreter("far", "/bin/py", "3.11.2", versions, failures)], OURS)
    assert message in found
    assert bool(found) == bool(message)
    assert not found or "with --env none they need 'hullcast[sim]==1.2.3'" in found or "need the same Spark" in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('java.io.IOException: Cannot run program "/no/python": error=2, No such file', "has no Python /no/python;"),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in driver: 3.11, PySpark",
            "runs Python 3.10, here it is 3.11;",
        ),
        ("Traceback ..\nModuleNotFoundError: No module named 'sim'\n\tat org.apache", "(No module named 'sim');"),
        ("ValueError: a module is no import", ""),
    ],
)
def test_the_text_of_a_failed_worker_becomes_a_line_with_the_remedy(text: str, message: str) -> None:
    found = worker_trouble(text)
    assert message in found
    assert ("PYSPARK_PYTHON" in found) == bool(message)


def test_workers_that_can_import_everything_are_let_through(spark: SparkSession) -> None:
    check_workers(spark)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (
            "import nothing_of_that_name",
            UsageError,
            r"a Spark worker cannot import .*'nothing_of_that_name'\); workers need",
        ),
        (
            "from hullcast.network.wire.errors import BadValue as E; raise E('T', 3, 'C', 'odd')",
            UsageError,
            "T row 3, column C",
        ),
        ("raise ZeroDivisionError('in a worker')", RuntimeError, "ZeroDivisionError: in a worker"),
    ],
)
def test_an_error_of_a_worker_can_still_be_read_when_spark_has_ended(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, body: str, kind: type[Exception], message: str
) -> None:
    from pyspark import SparkContext

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        exec(body)
        yield from batches

    with pytest.raises(kind) as caught, told_in_a_line():
        spark.range(2).mapInArrow(fail, "id LONG").collect()
    again = pickle.loads(pickle.dumps(caught.value))
    with monkeypatch.context() as ended:  # as after the end of a session: there is no JVM to ask
        ended.setattr(SparkContext, "_jvm", None)
        ended.setattr(SparkContext, "_gateway", None)
        assert re.search(message, str(caught.value))
        assert str(again) == str(caught.value)
        assert kind is RuntimeError or "\n" not in str(again)


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A cluster that shares our disk, with a Python that has nothing installed."""
    with spark_cluster(tmp_path_factory.mktemp("cluster"), workers=1, hidden=False) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "message"),
    [
        (
            "bare",
            r"the Spark worker on \S+ cannot import hullcast, numpy, numba, pyarrow \(No module named 'hullcast'\)",
        ),
        ("gone", "a Spark worker has no Python .*gone"),
        ("other", r"a Spark worker runs Python 3\.\d+, here it is 3\.\d+"),
    ],
)
def test_a_cluster_whose_workers_cannot_run_it_is_refused_in_a_line_before_anything_runs(
    one_worker: SparkCluster, python: str, message: str
) -> None:
    minor = f"python3.{sys.version_info.minor}"
    places = (Path("/usr/bin"), *Path(sys.base_prefix).parent.glob("3.1*/bin"))
    others = [path for place in places for path in place.glob("python3.1[0-9]") if path.name != minor]
    if python == "other" and not others:
        pytest.skip("no other Python here")
    used = {"bare": one_worker.python, "gone": one_worker.folder / "gone", "other": next(iter(others), Path())}[python]
    done = replace(one_worker, python=used).hullcast("traffic", "--quick", "--env", "none", "--out", "out")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert re.match(f"hullcast: {message}", last)
    assert "with --env none they need 'hullcast[sim]" in last
    assert "Traceback" not in done.stdout + done.stderr
    assert not (one_worker.folder / "out").exists(), "nothing to go on with"


@pytest.mark.slow
def test_workers_with_nothing_installed_get_what_they_need_and_their_memory_counts(one_worker: SparkCluster) -> None:
    script = """
        import sys
        from pathlib import Path
        import psutil
        from hullcast.sim.experiments.run import PeakMemory, executors_bytes
        from hullcast.sim.spark.needs import check_shared
        from hullcast.sim.spark.options import SparkOptions
        from hullcast.sim.spark.session import spark_session

        def grown(_):
            import time
            import hullcast.sim.traffic.replay, numpy
            from hullcast.network.compiled import load
            load()
            block = numpy.ones(60_000_000)  # 480 MB
            time.sleep(7)
            loaded = {name.partition(".")[0] for name in sys.modules}
            return block.sum(), hullcast.__file__, sorted(loaded & {"scipy", "pandas", "networkx"})

        conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        with spark_session(SparkOptions(sys.argv[1], conf)) as spark:
            check_shared(spark, write=[Path("new")], read=[Path("."), Path(sys.executable)])
            with PeakMemory() as memory:
                [(total, file, needless)] = spark.sparkContext.parallelize([0], 1).map(grown).collect()
            assert total == 60_000_000
            assert "hullcast-code/hullcast/__init__.py" in file, file
            assert needless == []
            assert int(spark.conf.get("spark.sql.shuffle.partitions")) == 4
            assert memory.peak_bytes > executors_bytes(spark) > 600e6, executors_bytes(spark)
        print("fine")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), one_worker.master],
        cwd=one_worker.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(one_worker.python)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout == "fine\n", done.stderr
    assert list(one_worker.folder.iterdir()) == []


@pytest.mark.slow
def test_a_cluster_with_nothing_to_give_is_refused(one_worker: SparkCluster) -> None:
    words = ("traffic", "--quick", "--env", "none", "--out", "out", "--conf", "spark.executor.memory=99g")
    done = one_worker.hullcast(*words)
    assert done.returncode == 2
    assert "has given us no executor within" in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["while Spark starts", "in a job"])
def test_an_interrupt_leaves_no_process_and_no_words(tmp_path: Path, when: str) -> None:
    script = """
        import signal, sys, threading, time, psutil
        from hullcast.sim.spark.options import SparkOptions
        from hullcast.sim.spark.session import spark_session

        me = psutil.Process()

        def interrupt() -> None:
            while not any("java" in child.name() for child in me.children(recursive=True)):
                time.sleep(0.01)
            if sys.argv[1] == "in a job":
                started.wait()
                time.sleep(1.5)
            me.send_signal(signal.SIGINT)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        started = threading.Event()
        threading.Thread(target=interrupt).start()
        try:
            with spark_session(SparkOptions("local[1]", memory="512m")) as spark:
                started.set()
                spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("time").sleep(30)).collect()
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted")
        assert not me.children(recursive=True)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), when],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
    left = [process for process in psutil.process_iter() if _environment_of(process).get("TMPDIR") == str(tmp_path)]
    assert left == []
    assert list(tmp_path.iterdir()) == []


def _environment_of(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


@pytest.mark.slow
def test_nothing_is_left_of_a_session_and_another_can_follow(tmp_path: Path) -> None:
    script = """
        import gc, os, threading, psutil
        from hullcast.sim.spark.options import SparkOptions
        from hullcast.sim.spark.session import spark_session

        for _ in range(2):
            before = dict(os.environ)
            with spark_session(SparkOptions("local[1]", memory="512m")) as spark:
                assert spark.range(5).count() == 5
                for process in psutil.Process().children(recursive=True):
                    for link in process.net_connections("tcp"):
                        assert link.laddr.ip in ("127.0.0.1", "::ffff:127.0.0.1", "::1"), link
            gc.collect()
            assert not psutil.Process().children(recursive=True)
            assert [thread.name for thread in threading.enumerate()] == ["MainThread"], threading.enumerate()
            assert dict(os.environ) == before
        print("clean")
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("clean\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--conf", "spark.executor.memory"], "--conf 'spark.executor.memory' is not KEY=VALUE"),
        (["--conf", "=4g"], "is not KEY=VALUE"),
        (["--conf", "executor.memory=4g"], "'executor.memory' is not a setting of Spark"),
        (["--conf", "spark.master=local"], "spark.master has an option of its own: --master"),
        (["--conf", "spark.sql.session.timeZone=CET"], "decides what is found"),
        (["--driver-memory", "lots"], "'lots' is not an amount of memory; write it as 800m or 4g"),
        (["--env", "environment"], "--env environment is not an archive (.tar.gz"),
        (["--env", "gone.tar.gz"], "--env gone.tar.gz: no such file"),
    ],
)
@pytest.mark.parametrize("command", [["traffic"], ["figures"], ["trace", "market", "--stocks", "3", "--days", "1"]])
def test_options_that_cannot_be_are_refused_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")  # no Java: whoever came as far as Spark would say so
    assert main(["sim", *command, "--out", "out", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [".zip", ".tar.gz"])
def test_an_environment_that_workers_could_not_run_is_refused(tmp_path: Path, ending: str) -> None:
    env = tmp_path / f"env{ending}"
    env.write_bytes(b"no archive")
    with pytest.raises(UsageError, match=r"env\S* cannot be unpacked: "):
        SparkOptions(env=str(env))
    for inside, fits in (("env/bin/python", False), ("bin/python", True)):
        if ending == ".zip":
            with zipfile.ZipFile(env, "w") as archive:
                archive.writestr(inside, "")
        else:
            with tarfile.open(env, "w:gz") as tar:
                tar.addfile(tarfile.TarInfo(inside))
        if fits:
            assert SparkOptions(env=str(env)).env == str(env)
        else:
            with pytest.raises(UsageError, match=r"env\S* has no bin/python"):
                SparkOptions(env=str(env))


def test_settings_may_hold_signs_of_equality_and_the_last_one_counts() -> None:
    given = ["spark.executor.extraJavaOptions=-Da=b", "spark.cores.max=1", "spark.cores.max=2"]
    assert settings_of(given) == {"spark.executor.extraJavaOptions": "-Da=b", "spark.cores.max": "2"}
    mount = "spark.hadoop.fs.viewfs.mounttable.c.link./x"
    assert SparkOptions(conf={mount: "file:/x"}).conf[mount] == "file:/x"


@pytest.mark.slow
def test_settings_pages_and_event_log_are_as_asked_for(tmp_path: Path) -> None:
    script = """
        from pathlib import Path
        from urllib.request import urlopen
        from hullcast.sim.spark.options import SparkOptions
        from hullcast.sim.spark.session import spark_session
        from hullcast.sim.spark.storage import place_of

        conf = {"spark.sql.shuffle.partitions": "7"}
        options = SparkOptions("local[1]", conf, memory="600m", ui=True, event_log=place_of("new/log"))
        with spark_session(options, spark_sql_shuffle_partitions="5") as spark:
            assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
            assert spark.range(5).count() == 5
            address = spark.sparkContext.uiWebUrl
            assert "127.0.0.1" in address
            assert b"Spark" in urlopen(address).read()
        assert any("SparkListenerApplicationEnd" in file.read_text(errors="replace") or file.stat().st_size > 1000
                   for file in Path("new/log").rglob("*") if file.is_file())
        print(address)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == f"Spark's pages: {done.stdout}"
