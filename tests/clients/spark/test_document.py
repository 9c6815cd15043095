"""SPARK.md as it is written: the page runs as a program, and its table lists the options that there are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import hullcast
from hullcast.clients.processes.child import start
from hullcast.clients.sdk.blocking import LoopThread
from hullcast.clients.spark import options
from hullcast.network.wire.errors import BadSetting, UsageError
from tests.support.cluster import PATIENCE_S
from tests.support.documents import section, text_of
from tests.support.processes import ANYWHERE

#: What a reader does next.
STREAMS = """
for name, frame in {"stream": stream, "events": events}.items():
    frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start().awaitTermination()
    print(name, spark.table(name).count())
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    thread = LoopThread("tests server")
    words = ("server", "--data", str(tmp_path / "data"), "--listen", ANYWHERE, "--json")
    child = thread.wait(start(words, name="server", limit_s=PATIENCE_S))
    try:
        yield child.endpoint
    finally:
        thread.wait(child.stop(5.0))
        thread.stop()


def python_without_hullcast(folder: Path) -> Path:
    """A `python3` without installed packages, as the PATH of many hosts has one."""
    folder.mkdir()
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


def test_the_page_runs_as_a_program_whatever_python_is_on_the_path(server: str, tmp_path: Path) -> None:
    with hullcast.connect_blocking(server, timeout=PATIENCE_S) as db:
        db.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK REAL, PER REAL)")
        db.publish("STOCK", {"SYMBOL": [f"S{i}" for i in range(200)], "RISK": [30.0] * 200, "PER": [9.0] * 200})
        pieces = re.findall(r"^```python\n(.*?)^```", text_of("SPARK.md"), re.MULTILINE | re.DOTALL)
        assert len(pieces) == 6
        job = tmp_path / "job.py"
        job.write_text("".join(pieces).replace("tcp://127.0.0.1:7600", server) + STREAMS)
        path = f"{python_without_hullcast(tmp_path / 'bin').parent}:{os.environ['PATH']}"
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
        quick = {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
        done = subprocess.run(
            (sys.executable, job), env=ours | quick, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("200 rows after update 200 and 100 rows 100 updates earlier\n")
        assert done.stdout.endswith("stream 201\nevents 1\n")
        assert db.query("SELECT PER FROM STOCK WHERE SYMBOL = 'IBM'") == [(11.5,)]


def test_a_chosen_python_that_cannot_run_the_source_is_refused_in_a_sentence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = python_without_hullcast(tmp_path / "bin")
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refused:
        hullcast.spark.register(spark)
    assert str(refused.value) == (
        f"Spark's workers run {python}, which cannot run Hullcast (ModuleNotFoundError: No module named 'hullcast'); "
        f"set PYSPARK_PYTHON={sys.executable}, or set neither PYSPARK_PYTHON nor spark.pyspark.python"
    )
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="No such file"):
        hullcast.spark.register(spark)


def test_an_unknown_option_gets_the_one_that_was_meant_and_all_there_are_once() -> None:
    with pytest.raises(BadSetting) as refused:
        options.Options({"sequ": "7"}, (*options.READ, *options.STREAM), "a read")
    said = str(refused.value)
    assert "did you mean seq? options of a read are table, seq, changes, " in said
    assert said.count("partitions") == said.count("changes") == 1


def test_the_page_lists_each_option_once_with_what_takes_it() -> None:
    uses: dict[str, tuple[str, ...]] = {
        "all": options.CONNECTION,
        "read": options.READ,
        "stream": options.STREAM,
        "subscription": options.EVENTS,
        "write": options.WRITE,
    }
    rows = re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \|", section("SPARK.md", "## Options"), re.MULTILINE)
    listed = [(use, name) for name, used in rows for use in used.split(", ")]
    assert sorted(listed) == sorted((use, options.shown(name)) for use, names in uses.items() for name in names)
    assert len({name for name, _ in rows}) == len(rows)
