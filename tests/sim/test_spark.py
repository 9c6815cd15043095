"""Spark sessions: they run our Python, tell how far they are, stay on this machine, and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from network.wire.errors import UsageError
from sim.spark import check_java, spark_session, watched

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
