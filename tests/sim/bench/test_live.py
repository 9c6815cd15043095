"""The live benchmark at toy sizes: real processes, every answer right, tables and file of the form readers expect."""

from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from hullcast.sim.bench.frame.answers import range_minima
from hullcast.sim.bench.frame.benchmark import BenchReport
from hullcast.sim.bench.frame.report import show, to_json, write_json
from hullcast.sim.bench.live.baselines import ChainSizes
from hullcast.sim.bench.live.benchmark import FULL_LIVE, LIVE, QUICK_LIVE, LiveFigures, LiveSettings

if TYPE_CHECKING:
    from pathlib import Path

TINY = LiveSettings(
    rows=300,
    subscriptions=400,
    clients=2,
    gateways=1,
    prepared=5_000,
    batch=100,
    in_flight=4,
    warm_s=0.1,
    sustained_s=0.3,
    paced_rate=2_000,
    latency_s=0.3,
    sizes=(100, 400),
    size_rounds=1,
    size_s=0.3,
    singles=5,
    interval_updates=200,
    unpruned_updates=500,
    chain_s=0.3,
    checked_by_sql=40,
)


@pytest.fixture(scope="module")
def report() -> BenchReport:
    ticks: list[str] = []
    report = LIVE.measure(TINY, tick=ticks.append, look_s=0)
    assert len(ticks) == LIVE.steps(TINY)
    return report


@pytest.fixture
def found(report: BenchReport) -> LiveFigures:
    figures: LiveFigures = report.found["live"]
    return figures


def test_every_answer_is_right_after_the_load(found: LiveFigures) -> None:
    assert (found.sustained.checked, found.sustained.wrong) == (400, 0)
    assert found.sustained.updates > 0
    assert found.sustained.updates % TINY.batch == 0


def test_events_are_sampled_and_publishes_timed(found: LiveFigures) -> None:
    latency, chain, single = found.latency, found.chain, found.single
    assert latency.samples > 0
    assert 0 < latency.p50_ms <= latency.p99_ms <= latency.max_ms
    assert 0 < chain.p50_ms <= chain.p99_ms <= chain.max_ms
    assert chain.updates_s > 0
    assert 0 < single.p50_ms <= single.p99_ms
    assert found.installed_s > 0


def test_costs_are_by_the_number_of_subscriptions_and_pruning_saves(found: LiveFigures) -> None:
    few, many = found.costs
    assert (few.subscriptions, many.subscriptions) == (100, 400)
    assert few.told < many.told < found.interval.told
    assert 0 < few.server_bytes < many.server_bytes < found.unpruned_bytes
    assert many.client_messages < found.interval.client_messages
    assert found.interval.client_messages <= TINY.clients


def test_the_report_is_shown_and_written(report: BenchReport, tmp_path: Path) -> None:
    text = StringIO()
    show(report, Console(file=text, width=80))
    for expected in ("bare ZeroMQ chain", "where the limit is", "the CN way", "every answer right", "PASS"):
        assert expected in text.getvalue()
    assert "…" not in text.getvalue()  # all fits in 80 columns
    path = tmp_path / "live.json"
    write_json(to_json(report), path)
    read = json.loads(path.read_text())
    assert read["settings"]["clients"] == 2
    assert {"server", "root", "gateway-1", "client-1", "client-2", "publisher"} == read["sustained"]["busy"].keys()
    assert all(goal.keys() == {"name", "target", "measured", "share", "passed"} for goal in read["goals"])


def test_range_minima_are_those_of_a_scan() -> None:
    random = np.random.default_rng(1)
    for n in (1, 2, 3, 100):
        x, y = random.uniform(0, 10, n), random.uniform(0, 10, n)
        low = random.uniform(-1, 10, 200)
        high = low + random.uniform(-0.5, 5, 200)
        expected = [
            min((b for a, b in zip(x, y, strict=True) if left <= a <= right), default=np.nan)
            for left, right in zip(low, high, strict=True)
        ]
        np.testing.assert_array_equal(range_minima(x, y, low, high), expected)


def test_the_chain_carries_as_many_bytes_as_the_live_system() -> None:
    assert ChainSizes(16, 40, 20, 0.001).of("server", FULL_LIVE) == [40, 40_000, 4_000]
    assert ChainSizes(16, 40, 20, 0.001).of("gateway", FULL_LIVE) == [1, 1, 1]


def test_the_quick_form_measures_the_same_system() -> None:
    for name in ("rows", "subscriptions", "clients", "gateways", "batch", "paced_rate", "paced_batch", "sizes"):
        assert getattr(FULL_LIVE, name) == getattr(QUICK_LIVE, name)
