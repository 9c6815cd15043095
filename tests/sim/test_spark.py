"""Spark sessions: they run our Python, tell how far they are, stay on this machine, and leave nothing behind."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from network.wire.errors import UsageError
from sim.spark import path_to_read, spark_session, told_in_a_line, watched
from sim.spark_needs import check_java, check_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def test_workers_run_the_same_interpreter_with_the_same_packages(spark: SparkSession) -> None:
    def facts(_: int) -> tuple[str, str]:
        import sim.spark

        return sys.executable, sim.spark.__file__

    assert spark.sparkContext.parallelize([0], 1).map(facts).collect() == [(sys.executable, str(ROOT / "sim/spark.py"))]


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
    with spark_session("local[1]") as other:
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
        ("nonsense", "'nonsense' is no Spark master; give local"),
        ("local[0]", "is no Spark master"),
        ("local[", "is no Spark master"),
        ("yarn", "yarn needs HADOOP_CONF_DIR"),
        ("spark://host", "as spark://host:7077"),
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
        spark.read.schema("a LONG").parquet(path_to_read(tmp_path)).count()
    with pytest.raises(UsageError, match="Path does not exist"), spark_session() as same:
        same.read.parquet(path_to_read(tmp_path / "gone"))
    with pytest.raises(ZeroDivisionError), told_in_a_line():
        raise ZeroDivisionError


@pytest.mark.slow
@pytest.mark.parametrize("when", ["while Spark starts", "in a job"])
def test_an_interrupt_leaves_no_process_and_no_words(tmp_path: Path, when: str) -> None:
    script = """
        import signal, sys, threading, time, psutil
        from sim.spark import spark_session

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
            with spark_session("local[1]", memory="512m") as spark:
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
        from sim.spark import spark_session

        for _ in range(2):
            before = dict(os.environ)
            with spark_session("local[1]", memory="512m") as spark:
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
