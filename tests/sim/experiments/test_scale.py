"""`hullcast sim scale`: three replays of a trace that is made and removed, and a projection that adds up."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.traffic import scale
from hullcast.sim.experiments.traffic.scale import Replayed, ScaleFound, ScaleSettings, measure_scale, told
from hullcast.sim.experiments.traffic.settings import NetworkSettings
from hullcast.sim.spark.storage import place_of
from hullcast.sim.traces.synthetic import table51_trace
from hullcast.sim.traces.trace import read_info
from tests.sim.experiments.test_runs import Told

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TINY = NetworkSettings(nodes=50, brokers=6, fanout=3)


def test_three_sizes_are_replayed_and_the_trace_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.getActiveSession() is not None  # which is the one that is taken
    progress = Told()
    found = measure_scale(ScaleSettings(TINY, 500, 200, 30, 10), place_of(tmp_path), progress)
    assert [(each.events, each.subscriptions) for each in found.replays] == [(50, 200), (500, 20), (500, 200)]
    assert all(each.core_seconds > 0 and each.memory_bytes > 0 for each in found.replays)
    assert set(found.once) == {"network", "subscriptions", "sending"}
    assert list(tmp_path.iterdir()) == []
    assert progress.begun[-1] == "500 events, 200 subscriptions"


def test_a_worker_that_ends_meanwhile_takes_no_seconds_from_the_others() -> None:
    words = [sys.executable, "-c", "print(sum(range(10**7)), flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        before = scale._core_seconds()
        worker.communicate("\n")
    assert worker.pid in {process.pid for process in before}
    assert scale._since(before) >= 0


def test_a_trace_that_was_there_before_is_refused_and_stays(tmp_path: Path) -> None:
    table51_trace(tmp_path / "trace", rows=3, updates=4)
    progress = Told()
    with pytest.raises(UsageError, match=r"trace is not empty; give another folder"):
        measure_scale(ScaleSettings(TINY, 500, 200, 30, 10), place_of(tmp_path), progress)
    assert read_info(tmp_path / "trace").events == 4
    assert progress.begun == [], "nothing was done in vain"


def test_a_projection_shares_the_work_and_nothing_else() -> None:
    """10 us an event and 5 s whatever the number of events; 8 s are done once."""
    replays = [Replayed(n, s, 4, 1.0, 5 + n / 1e5, 10**9) for n, s in ((10**6, 10**6), (10**7, 10**5), (10**7, 10**6))]
    once = {"network": 5.0, "subscriptions": 2.0, "sending": 1.0}
    found = ScaleFound(ScaleSettings(rows=10**6, cores=100), 2, once, replays)
    assert found.work_s == pytest.approx(1e-5)
    assert found.fixed_s == pytest.approx(5)
    assert found.seconds_on(100) == pytest.approx(8 + 5 + 1)
    assert found.seconds_on(1_000) == pytest.approx(8 + 5 + 0.1)
    assert found.moved_bytes(100) == 60 * 10**7 + 30 * 10**6 * 100
    assert found.flatness == pytest.approx(10.5 / 15)
    assert "An event costs 10.0 microseconds of a core" in told(found)
    assert "100 cores like these would take about 14 s: 1.0 s of work" in told(found)


def test_too_few_events_for_a_part_of_them_are_refused() -> None:
    with pytest.raises(UsageError, match="must be 10 or more"):
        ScaleSettings(events=9)
