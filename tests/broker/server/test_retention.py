"""The window of recent messages: it either has everything after a moment, or says that it has not."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.server.retention import OVERHEAD_BYTES, Retention
from hullcast.network.wire.bodies import ChannelSpec
from hullcast.network.wire.columns import Columns, size_bytes

MIN = ChannelSpec("MIN(Y) FROM T OVER X", "MIN", "rectangles", 1, False, 0, "REAL", ("TEXT",), (), ())


def messages(*seqs: int, x: float = 5.0) -> Columns:
    """Rectangles around x: whoever has x in its range hears them."""
    n = len(seqs)
    return {
        "seq": np.array(seqs, np.int64),
        "il": np.full(n, x),
        "ir": np.full(n, x),
        "ol": np.full(n, -np.inf),
        "or": np.full(n, np.inf),
        "best": np.array(seqs, np.float64),
    }


ONE = size_bytes(messages(1)) + OVERHEAD_BYTES


def test_a_channel_is_complete_after_its_opening() -> None:
    retention = Retention(10 * ONE)
    assert not retention.reaches(1, 7)
    retention.open(1, 7)
    assert not retention.reaches(1, 6)
    assert retention.reaches(1, 8)
    retention.close(1)
    assert not retention.reaches(1, 8)


def test_who_was_complete_up_to_the_opening_only_may_have_listened_to_another_channel() -> None:
    retention = Retention(10 * ONE)
    retention.open(1, 7)
    assert not retention.reaches(1, 7)


def test_what_does_not_fit_any_more_is_not_promised() -> None:
    retention = Retention(2 * ONE)
    retention.open(1, 0)
    retention.keep(1, 1, messages(1), 1.0)
    retention.keep(1, 2, messages(2), 2.0)
    assert retention.reaches(1, 1)
    retention.keep(1, 3, messages(3), 3.0)
    retention.keep(1, 4, messages(4), 4.0)
    assert not retention.reaches(1, 1)
    assert retention.reaches(1, 2)
    assert retention.size_bytes == 2 * ONE


def test_a_batch_larger_than_the_window_empties_it() -> None:
    retention = Retention(ONE)
    retention.open(1, 0)
    retention.keep(1, 5, messages(1, 2, 3, 4, 5))
    assert retention.size_bytes == 0
    assert not retention.reaches(1, 4)
    assert retention.reaches(1, 5)


def test_old_messages_expire() -> None:
    retention = Retention(100 * ONE)
    retention.open(1, 0)
    retention.keep(1, 2, messages(1, 2), 10.0)
    retention.keep(1, 3, messages(3), 20.0)
    retention.expire(15.0)
    assert not retention.reaches(1, 1)
    assert retention.reaches(1, 2)


def test_many_small_batches_take_little_more_than_their_bytes() -> None:
    retention = Retention(1 << 20)
    retention.open(1, 0)
    for seq in range(1, 10_001):
        retention.keep(1, seq, messages(seq), 1.0)
    assert retention.reaches(1, 1)
    assert retention.size_bytes < 10_000 * size_bytes(messages(1)) + 200 * OVERHEAD_BYTES
    assert [len(np.asarray(batch["seq"])) for batch in retention.after(1, 9_990)] == [10]


def test_a_batch_is_cut_to_what_came_after() -> None:
    retention = Retention(100 * ONE)
    retention.open(1, 0)
    retention.keep(1, 3, messages(1, 2, 3))
    replay = retention.replay(1, 1, MIN, np.array([[0.0, 9.0]]))
    assert replay is not None
    assert np.asarray(replay["seq"]).tolist() == [2, 3]


def test_only_messages_that_concern_a_point_are_replayed() -> None:
    retention = Retention(100 * ONE)
    retention.open(1, 0)
    retention.keep(1, 1, messages(1, x=5.0))
    retention.keep(1, 2, messages(2, x=50.0))
    replay = retention.replay(1, 0, MIN, np.array([[40.0, 60.0], [45.0, 55.0]]))
    assert replay is not None
    assert np.asarray(replay["seq"]).tolist() == [2]
    assert retention.replay(1, 0, MIN, np.array([[70.0, 80.0]])) is None


def test_forgetting_a_channel_leaves_the_others() -> None:
    retention = Retention(100 * ONE)
    for channel in (1, 2):
        retention.open(channel, 0)
        retention.keep(channel, 1, messages(1))
    retention.forget(1, 4)
    assert not retention.reaches(1, 4)
    assert retention.reaches(1, 5)
    assert retention.reaches(2, 1)
    assert retention.after(1, 0) == []


@given(
    st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3), st.sampled_from([0.0, 2.0])), max_size=20),
    st.integers(0, 8),
    st.integers(0, 40),
)
def test_what_is_promised_is_there(batches: list[tuple[int, int, float]], limit: int, since: int) -> None:
    """W1 against the plain definition: all messages after `since`, whenever the window claims to reach there."""
    retention = Retention(limit * ONE)
    everything: dict[int, list[int]] = {1: [], 2: []}
    for channel in everything:
        retention.open(channel, 0)
    seq, now = 0, 0.0
    for channel, count, pause in batches:
        now += pause
        seqs = list(range(seq + 1, seq + count + 1))
        seq += count
        retention.keep(channel, seq, messages(*seqs), now)
        everything[channel] += seqs
    for channel, seqs in everything.items():
        if retention.reaches(channel, since):
            kept = [number for batch in retention.after(channel, since) for number in np.asarray(batch["seq"]).tolist()]
            assert kept == [number for number in seqs if number > since]
    assert retention.size_bytes <= limit * ONE
