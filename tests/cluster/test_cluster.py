"""A cluster whose machines share no disk: refused where that cannot work, and where it can the results are the same.

Run by `make test-cluster`; it takes some minutes.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow has no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from tests.support.spark_cluster import LIMIT_S, SparkCluster, private_mounts, spark_cluster

pytestmark = pytest.mark.cluster

#: What depends on the machine and not on what is simulated.
MEASURED = {"seconds", "memory_bytes", "cores"}
SMALL = (
    "--keep-events",
    "--nodes",
    "300",
    "--brokers",
    "20",
    "--subscriptions",
    "2000",
    "--placement",
    "can",
    "--seed",
    "3",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    why = private_mounts()
    if why:
        pytest.skip(why)
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def prices(cluster: SparkCluster) -> Path:
    """A folder of CSV files, as `trace yahoo` reads them, and the trace of it that this machine makes alone."""
    words = ("trace", "market", "--stocks", "40", "--days", "8", "--seed", "5", "--csv", "csv", "--out", "made")
    fine(cluster.hullcast(*words, cluster=False))
    fine(cluster.hullcast("trace", "yahoo", "csv/prices", "csv/fundamentals.csv", "--out", "trace", cluster=False))
    return cluster.folder / "csv"


def fine(done: Any) -> Any:
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    return done


def last_line(done: Any) -> str:
    """What a refused command says: one line, after those of progress."""
    assert done.returncode == 2, done.stderr[-3000:]
    assert "Traceback" not in done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("hullcast: ")]
    assert len(lines) == 1
    return str(lines[0])


def rows(folder: Path) -> list[dict[str, Any]]:
    """All rows of all Parquet files below a folder, in an order of their own."""
    files = sorted(folder.rglob("*.parquet"))
    tables = [pq.read_table(file, partitioning=None) for file in files]
    table = pa.concat_tables(tables)
    names = sorted(set(table.column_names) - MEASURED)
    found = table.select(names).to_pylist()
    return sorted(found, key=lambda row: json.dumps(row, default=str))


def test_a_folder_that_workers_do_not_see_is_refused_before_anything_runs(cluster: SparkCluster, prices: Path) -> None:
    remedy = r".*; give a folder that all machines share, or a URL that all can reach, such as hdfs://host/folder"
    said = last_line(cluster.hullcast("traffic", "--quick", *SMALL, "--out", "refused"))
    assert re.match(rf"hullcast: the Spark worker on \S+ does not see {cluster.folder}/refused\S* {remedy}", said), said
    assert not (cluster.folder / "refused").exists(), "nothing to go on with"
    out = f"{cluster.storage}/refused"
    said = last_line(cluster.hullcast("traffic", str(cluster.folder / "trace"), *SMALL, "--out", out))
    assert re.match(rf"hullcast: the Spark worker on \S+ does not see {cluster.folder}/trace {remedy}", said), said
    words = ("trace", "yahoo", "csv/prices", "csv/fundamentals.csv")
    said = last_line(cluster.hullcast(*words, "--out", f"{cluster.storage}/refused-trace"))
    assert re.match(rf"hullcast: the Spark worker on \S+ does not see {cluster.folder}/csv/prices {remedy}", said), said
    assert not list(cluster.stored.rglob("*.parquet"))
    assert not list(cluster.folder.rglob(".hullcast-*"))


def test_a_trace_from_prices_is_the_same(cluster: SparkCluster, prices: Path) -> None:
    _copy(prices, cluster.shared / "csv")
    names = [str(cluster.shared / "csv" / name) for name in ("prices", "fundamentals.csv")]
    fine(cluster.hullcast("trace", "yahoo", *names, "--out", f"{cluster.storage}/trace"))
    assert rows(cluster.stored / "trace" / "events") == rows(cluster.folder / "trace" / "events")


def test_a_replay_is_the_same(cluster: SparkCluster, prices: Path) -> None:
    fine(cluster.hullcast("traffic", "trace", *SMALL, "--out", "traffic", cluster=False))
    _copy(cluster.folder / "trace", cluster.stored / "given")
    out = f"{cluster.storage}/traffic"
    done = fine(cluster.hullcast("traffic", f"{cluster.storage}/given", *SMALL, "--out", out))
    assert f"{out}/steps/replay/events" in done.stdout
    _same_traffic(cluster, "traffic")
    assert (cluster.stored / "traffic" / "summary.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_is_the_same(cluster: SparkCluster) -> None:
    words = ("figures", "--quick", "--only", "5.8")
    fine(cluster.hullcast(*words, "--out", "figures", cluster=False, timeout=2 * LIMIT_S))
    fine(cluster.hullcast(*words, "--out", f"{cluster.storage}/figures", timeout=2 * LIMIT_S))
    mine, other = (
        sorted(folder.glob("*.parquet")) for folder in (cluster.stored / "figures", cluster.folder / "figures")
    )
    assert [file.name for file in mine] == [file.name for file in other]
    assert mine
    for one, two in zip(mine, other, strict=True):
        assert rows_of(one) == rows_of(two)
    assert (cluster.stored / "figures" / "report.md").exists()


def rows_of(file: Path) -> list[dict[str, Any]]:
    table = pq.read_table(file)
    return list(table.select(sorted(set(table.column_names) - MEASURED)).to_pylist())


def test_a_worker_killed_in_the_middle_changes_nothing(cluster: SparkCluster) -> None:
    words = ("traffic", "--quick", *SMALL, "--subscriptions", "20000", "--chunks", "48")
    fine(cluster.hullcast(*words, "--out", "whole", cluster=False, timeout=2 * LIMIT_S))
    process = cluster.start(*words, "--out", f"{cluster.storage}/whole", "--ui")
    assert process.stderr is not None
    said: list[str] = []
    reading = threading.Thread(target=lambda: said.extend(process.stderr or ()))
    reading.start()
    try:
        done = _wait_until_replaying(process, said)
        cluster.kill_worker(1)
        process.wait(2 * LIMIT_S)
    finally:
        process.kill()
        process.communicate()
        reading.join()
    assert process.returncode == 0, "".join(said)[-3000:]
    assert 0 < done < 48, "it was in the middle"
    _same_traffic(cluster, "whole")


def _wait_until_replaying(process: Any, said: list[str]) -> int:
    """Wait until some chunks are replayed and others are under way: how many are. `said` is what it wrote to stderr."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"it ended before it could be disturbed: {''.join(said)[-3000:]}"
        address = next((found[1] for line in said if (found := re.match(r"Spark's pages: (\S+)", line))), None)
        with suppress(OSError):  # it may be starting, or ending
            for stage in _stages(address) if address else ():
                if stage["numTasks"] == 48 and stage["numCompleteTasks"] >= 4 and stage["numActiveTasks"] >= 1:
                    return int(stage["numCompleteTasks"])
        time.sleep(0.02)
    raise AssertionError("no replay began")


def _stages(address: str) -> list[dict[str, Any]]:
    """Spark's active stages, by its own REST interface."""
    with urlopen(f"{address}/api/v1/applications") as answer:
        name = json.load(answer)[0]["id"]
    with urlopen(f"{address}/api/v1/applications/{name}/stages?status=active") as answer:
        return list(json.load(answer))


def _same_traffic(cluster: SparkCluster, name: str) -> None:
    mine, other = cluster.stored / name, cluster.folder / name
    assert rows_of(mine / "summary.parquet") == rows_of(other / "summary.parquet")
    assert rows(mine / "steps" / "replay" / "events") == rows(other / "steps" / "replay" / "events")


def _copy(here: Path, there: Path) -> None:
    shutil.copytree(here, there, ignore=shutil.ignore_patterns(".*.crc"))
