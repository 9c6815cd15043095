"""Pacing, with a clock that the test holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.clients.cli.feeds.pacing import TICK_S, Latencies, Pacer, Send, Times, Wait
from hullcast.network.wire.errors import UsageError


def play(pacer: Pacer, count: int, took_s: float = 0.0) -> list[tuple[float, int]]:
    """(moment, updates) of each batch, when sending takes so long."""
    now, done, sent = 0.0, 0, []
    due = pacer.due(count)
    while done < count:
        match pacer.decide(now, due[done:]):
            case Send(number):
                sent.append((now, number))
                done += number
                now += took_s
            case Wait(seconds):
                assert seconds > 0
                now += seconds
    return sent


def test_an_even_rate_sends_a_batch_a_tick() -> None:
    sent = play(Pacer(1000), 1000)
    assert sum(number for _, number in sent) == 1000
    assert {number for _, number in sent[1:-1]} <= {4, 5, 6}
    assert sent[-1][0] == pytest.approx(1.0, abs=2 * TICK_S)


def test_a_slow_rate_sends_one_at_a_time() -> None:
    sent = play(Pacer(10), 5)
    assert [number for _, number in sent] == [1] * 5
    assert [moment for moment, _ in sent] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])


def test_rate_0_sends_full_batches_without_waiting() -> None:
    assert play(Pacer(0, most=300), 1000) == [(0.0, 300), (0.0, 300), (0.0, 300), (0.0, 100)]


def test_who_is_late_catches_up_and_leaves_nothing_out() -> None:
    pacer = Pacer(1000, most=100)
    due = pacer.due(1000)
    assert pacer.decide(0.0, due) == Send(1, 0.0)
    late = pacer.decide(0.5, due[1:])
    assert late == Send(100, 0.1)
    assert pacer.decide(0.5, due[101:]) == Send(100, 0.2)


@given(st.floats(1, 1e6), st.integers(1, 2000), st.integers(1, 500), st.sampled_from([0.0, 0.001, 0.02]))
def test_no_update_goes_before_it_is_due(rate: float, count: int, most: int, took_s: float) -> None:
    done = 0
    for moment, number in play(Pacer(rate, most), count, took_s):
        done += number
        assert number <= most
        assert (done - 1) / rate <= moment + 1e-9
    assert done == count


def test_parts_follow_one_another_at_the_same_rate() -> None:
    pacer = Pacer(100)
    assert isinstance(pacer.decide(10.0, pacer.due(50)), Send)
    assert pacer.due(1).tolist() == [0.5]


def test_a_traces_own_times_are_played_faster_and_in_order() -> None:
    times = Times(speed=10)
    assert times.due(np.array([100.0, 110.0, 105.0, 120.0])).tolist() == [0.0, 1.0, 1.0, 2.0]
    assert times.due(np.array([119.0, 130.0])).tolist() == [2.0, 3.0]
    times.restart()
    assert times.due(np.array([100.0, 110.0])).tolist() == [3.0, 4.0]


def test_nonsense_is_refused() -> None:
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError):
            Pacer(wrong)
        with pytest.raises(UsageError):
            Times(wrong)
    with pytest.raises(UsageError):
        Pacer(None).due(3)


@given(st.lists(st.floats(2e-5, 900), min_size=1))
def test_a_quantile_is_within_its_bucket(durations: list[float]) -> None:
    latencies = Latencies()
    for duration in durations:
        latencies.add(duration)
    assert len(latencies) == len(durations)
    ordered = sorted(durations)
    for share in (0.5, 0.99):
        exact = ordered[max(1, int(np.ceil(share * len(ordered)))) - 1]
        assert latencies.quantile(share) == pytest.approx(exact, rel=0.021)


def test_no_durations_have_no_quantile() -> None:
    assert Latencies().quantile(0.5) == 0.0


def test_parts_of_one_update_each_keep_the_rate() -> None:
    pacer, now, sends = Pacer(1000), 0.0, 0
    while sends < 500:  # upserts and deletes that take turns come as parts of one
        match pacer.decide(now, pacer.due(1)):
            case Send():
                sends += 1
            case Wait(seconds):
                now += seconds
    assert now == pytest.approx(0.5, abs=2 * TICK_S)
