"""Bursty arrivals, and traces of packets."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.seeds import generator
from hullcast.sim.traces.bursts import pareto_bursts
from hullcast.sim.traces.packets import ETHERNET, UDP, ethernet_trace, packet_traces, udp_trace
from tests.support.shared_data import shared


def test_bursts_are_as_many_as_asked_for_in_order_and_the_same_for_a_seed() -> None:
    times = pareto_bursts(5_000, generator(0, "bursts"))
    assert len(times) == 5_000
    assert times[0] == 0
    assert (np.diff(times) >= 0).all()
    assert times.tolist() == pareto_bursts(5_000, generator(0, "bursts")).tolist()


def test_a_flow_sends_one_tuple_in_each_unit_of_time() -> None:
    times = pareto_bursts(400, generator(1, "bursts"), between=1e6)  # flows that do not meet
    gaps = np.diff(times)
    assert (np.isclose(gaps, 1.0, atol=1e-6) | (gaps > 10)).all()


def test_flows_last_as_the_pareto_distribution_says() -> None:
    times = pareto_bursts(200_000, generator(2, "bursts"), between=1e7)
    lasted = np.diff(np.flatnonzero(np.concatenate([[True], np.diff(times) > 100])))
    for least in (2, 4, 8):  # of durations x >= 1: P(x >= least) = least^-1.5, and a flow sends floor(x)
        assert np.mean(lasted >= least) == pytest.approx(least**-1.5, rel=0.05)


def test_bursts_are_burstier_than_a_poisson_process_at_every_scale() -> None:
    times = pareto_bursts(100_000, generator(3, "bursts"))
    for bins in (100, 1_000):
        counts = np.histogram(times, bins)[0]
        assert counts.var() > 5 * counts.mean()


@pytest.mark.parametrize("wrong", [{"alpha": 1.0}, {"between": 0.0}, {"shortest": -1.0}])
def test_bursts_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above"):
        pareto_bursts(10, generator(0), **wrong)


def test_frames_are_read_with_times_from_0_and_sizes_by_their_mean(tmp_path: Path) -> None:
    path = tmp_path / ETHERNET
    path.write_bytes(gzip.compress(b" 1.5 100\n 2.0 300\n 2.0 200\n"))
    trace = ethernet_trace(path)
    assert trace.times.tolist() == [0.0, 0.5, 0.5]
    assert trace.sizes is not None
    assert trace.sizes.tolist() == [0.5, 1.5, 1.0]
    part = trace.stretch(1, 2)
    assert part.times.tolist() == [0.0, 0.0]
    assert part.sizes is not None
    assert part.sizes.tolist() == [1.5, 1.0]


@pytest.mark.parametrize("content", [b"", b"1.5\n", b"2.0 100\n1.0 100\n", b"one 100\n"])
def test_files_that_are_not_traces_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ETHERNET
    path.write_bytes(gzip.compress(content))
    with pytest.raises(UsageError, match="BC-pAug89"):
        ethernet_trace(path)
    path.write_bytes(content + b"not compressed")
    with pytest.raises(UsageError, match="cannot be read"):
        ethernet_trace(path)
    with pytest.raises(UsageError, match="cannot be read"):
        udp_trace(path)


def test_the_real_traces_are_read() -> None:
    folder = shared(ETHERNET).parent
    shared(UDP)
    ethernet, udp = packet_traces(folder)
    assert (len(ethernet), len(udp)) == (100_001, 829_757)
    assert ethernet.times[-1] == pytest.approx(252.08, abs=0.01)
    assert udp.times[-1] == pytest.approx(3_600, abs=1)
    assert udp.sizes is None
