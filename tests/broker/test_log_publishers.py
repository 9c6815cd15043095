"""Receipts: a request sent again is answered as before, or applied if it never was, however late it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.log.publishers import Answered, Entry, Past, Publishers
from network.wire.errors import RetryTooOld

ANNA, BERT = b"anna".ljust(16), b"bert".ljust(16)
ALL = 41  # numbers in use: as many holes are never too many


def test_a_publisher_keeps_a_window_of_receipts() -> None:
    publishers = Publishers(window=3)
    for number in (1, 2, 4, 5, 3):
        publishers.applied(ANNA, number, number * 10, number * 10)
    assert [publishers.receipt(ANNA, number) for number in (3, 4, 5, 6)] == [(30, 30), (40, 40), (50, 50), None]
    with pytest.raises(RetryTooOld, match="request 2"):
        publishers.receipt(ANNA, 2)


def test_a_request_refused_at_first_is_taken_however_many_others_were_taken_since() -> None:
    publishers = Publishers()
    for number in [*range(1, 7), *range(8, 300)]:
        publishers.applied(ANNA, number, number, number)
    assert publishers.receipt(ANNA, 7) is None
    publishers.applied(ANNA, 7, 300, 300)
    assert publishers.receipt(ANNA, 7) == (300, 300)  # kept as long as any other: its answer may be lost as well
    with pytest.raises(RetryTooOld):
        publishers.receipt(ANNA, 6)


def test_a_jump_in_the_numbers_costs_no_more_than_the_holes_kept() -> None:
    publishers = Publishers(window=1, holes=3)
    for number in (1, 2**63 - 2, 2**63 - 1):
        publishers.applied(ANNA, number, 1, 1)
    assert publishers.pasts() == [Past(ANNA, 2**63 - 2, (2**63 - 5, 2**63 - 4, 2**63 - 3))]


@given(
    st.lists(st.tuples(st.integers(0, ALL - 1), st.booleans(), st.booleans()), max_size=120),
    st.integers(1, 6),
    st.sampled_from([2, ALL]),
)
def test_an_answer_is_what_a_list_of_all_requests_would_say(
    requests: list[tuple[int, bool, bool]], window: int, holes: int
) -> None:
    """`refused`: for another reason, as when the server is overloaded; `restart`: after a checkpoint."""
    publishers = Publishers(window=window, holes=holes)
    every: dict[int, Answered] = {}
    for seq, (number, refused, restart) in enumerate(requests):
        try:
            found = publishers.receipt(ANNA, number)
            assert found == every.get(number)
            assert found is not None or number not in every
        except RetryTooOld:
            assert number in list(every)[:-window] or holes < ALL
            continue
        if found is None and not refused:
            publishers.applied(ANNA, number, seq, seq)
            every[number] = Answered(seq, seq)
        if restart:
            entries, pasts = publishers.entries(), publishers.pasts()
            publishers = Publishers(window=window, holes=holes)
            publishers.restore(entries, pasts)
            assert (publishers.entries(), publishers.pasts()) == (entries, pasts)
    assert [entry.number for entry in publishers.entries()] == list(every)[-window:]


def test_the_publisher_heard_of_least_recently_is_forgotten_first() -> None:
    publishers = Publishers(limit=2)
    publishers.applied(ANNA, 1, 1, 1)
    publishers.applied(BERT, 1, 2, 2)
    assert publishers.receipt(ANNA, 1) == (1, 1)
    publishers.applied(b"carl".ljust(16), 1, 3, 3)
    assert len(publishers) == 2
    assert publishers.receipt(BERT, 1) is None
    assert publishers.receipt(ANNA, 1) == (1, 1)


def test_the_number_of_receipts_is_bounded_too() -> None:
    publishers = Publishers(limit=10, window=20)
    for publisher in range(5):
        for number in range(20):
            publishers.applied(bytes([publisher + 1]) * 16, number, 1, 1)
    assert len(publishers.entries()) <= 40
    assert publishers.receipt(bytes([5]) * 16, 19) == (1, 1)


def test_restored_publishers_are_forgotten_in_the_same_order() -> None:
    publishers = Publishers(limit=2)
    publishers.applied(ANNA, 1, 1, 1)
    publishers.applied(BERT, 7, 2, 2)
    publishers.receipt(ANNA, 1)
    again = Publishers(limit=2)
    again.restore(publishers.entries(), publishers.pasts())
    assert again.entries() == publishers.entries() == [Entry(BERT, 7, 2, 2), Entry(ANNA, 1, 1, 1)]
