"""Receipts: each change is applied once, those of a publisher in order, and no key pushes out what another needs."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.log import publishers as module
from hullcast.broker.log.publishers import PUBLISHER_BYTES, Answered, KeptReceipt, Publishers, scoped
from hullcast.broker.log.record import NOBODY
from hullcast.network.wire.errors import OutOfTurn, RetryTooOld, Superseded

ANNA, BERT = scoped("anna's key", b"a" * 16), scoped("bert's key", b"b" * 16)
ONE_BYTES = PUBLISHER_BYTES + 24  # a publisher with one receipt


def restored(publishers: Publishers, **limits: int) -> Publishers:
    kept = publishers.capture()
    again = Publishers(**limits)
    again.restore(kept.entries(), kept.forgotten)
    return again


def test_a_publisher_keeps_a_window_of_receipts() -> None:
    publishers = Publishers(window=3)
    for number in (1, 2, 4, 5):
        publishers.applied(ANNA, number, number * 10, number * 10 + 1)
    assert [publishers.judge(ANNA, number) for number in (2, 4, 5, 6)] == [(20, 21), (40, 41), (50, 51), None]
    with pytest.raises(RetryTooOld, match=r"change 1 .* from 2 on"):
        publishers.judge(ANNA, 1)


def test_a_change_is_not_applied_after_a_later_one() -> None:
    publishers = Publishers()
    publishers.applied(ANNA, 4, 1, 1)
    publishers.applied(ANNA, 6, 2, 2)
    with pytest.raises(Superseded, match=r"change 5 .* later change 6"):
        publishers.judge(ANNA, 5)


def test_a_change_waits_for_the_one_before_it_that_has_no_reply() -> None:
    publishers = Publishers()
    publishers.applied(ANNA, 4, 1, 1)
    assert publishers.judge(ANNA, 6) is None  # the client has given up 5, or knows why it was refused
    with pytest.raises(OutOfTurn, match=r"change 6 .* earlier change 5"):
        publishers.judge(ANNA, 6, after=5)
    publishers.applied(ANNA, 5, 2, 2)
    assert publishers.judge(ANNA, 6, after=5) is None
    with pytest.raises(OutOfTurn):
        publishers.judge(BERT, 2, after=1)  # also where nothing is known


def test_a_change_does_not_wait_for_one_that_was_refused_for_good() -> None:
    publishers = Publishers()
    publishers.refused(ANNA, 1)
    assert publishers.judge(ANNA, 2, after=1) is None
    assert publishers.judge(ANNA, 1) is None  # nothing later was applied: it may be judged anew
    for number in range(2 * module.REFUSED):
        publishers.refused(number.to_bytes(16), 1)
    with pytest.raises(OutOfTurn):  # forgotten; the client learns of the refusal, and sends it again
        publishers.judge(ANNA, 2, after=1)


def test_nobody_has_neither_receipts_nor_an_order() -> None:
    assert scoped("a key", NOBODY) == NOBODY
    publishers = Publishers()
    publishers.applied(NOBODY, 1, 1, 1)
    assert publishers.judge(NOBODY, 1, after=7, again=True) is None
    assert len(publishers) == 0


def test_the_same_id_under_another_key_is_another_publisher() -> None:
    publishers = Publishers()
    publishers.applied(scoped("anna", b"p" * 16), 1, 1, 1)
    assert publishers.judge(scoped("bert", b"p" * 16), 1) is None


def test_made_up_ids_of_one_key_do_not_push_out_receipts_of_another() -> None:
    publishers = Publishers()
    publishers.applied(ANNA, 1, 1, 1)
    for seq in range(100_001):
        publishers.applied(scoped("mallory", os.urandom(16)), 1, seq, seq)
    publishers.check()
    assert publishers.judge(ANNA, 1, again=True) == (1, 1)
    # nor do they keep another publisher of anna's from sending its first change again
    assert publishers.judge(scoped("anna's key", b"new".ljust(16)), 1, again=True) is None


def test_a_retry_that_cannot_be_judged_is_refused_and_a_first_try_never_is() -> None:
    publishers = Publishers(key_bytes=2 * ONE_BYTES)
    mine = [scoped("mine", bytes([n]) * 16) for n in range(1, 4)]
    publishers.applied(mine[0], 1, 1, 1)
    assert publishers.judge(mine[1], 1, again=True) is None  # nobody is forgotten yet
    publishers.applied(mine[1], 1, 2, 2)
    publishers.applied(mine[2], 1, 3, 3)
    for knows in (publishers, restored(publishers, key_bytes=2 * ONE_BYTES)):
        assert len(knows) == 2
        assert knows.judge(mine[1], 1, again=True) == (2, 2)
        assert knows.judge(mine[0], 2) is None
        assert knows.judge(mine[0], 2, again=False) is None
        with pytest.raises(RetryTooOld, match="forgotten"):
            knows.judge(mine[0], 1, again=True)


def test_the_key_with_most_loses_some_when_all_have_too_much() -> None:
    publishers = Publishers(key_bytes=50 * ONE_BYTES, total_bytes=64 * ONE_BYTES)
    for key in ("a", "b", "c"):
        publishers.applied(scoped(key, b"first".ljust(16)), 1, 1, 1)
    seq = 1
    for count, key in ((20, "a"), (200, "b")):
        for _ in range(count):
            seq += 1
            publishers.applied(scoped(key, os.urandom(16)), 1, seq, seq)
            publishers.check()
    kept = [publishers.judge(scoped(key, b"first".ljust(16)), 1) for key in ("a", "b", "c")]
    assert kept == [(1, 1), None, (1, 1)]


def test_one_publisher_is_never_forgotten_for_its_own_sake() -> None:
    publishers = Publishers(key_bytes=1, total_bytes=1)
    for number in range(1, 100):
        publishers.applied(ANNA, number, number, number)
        publishers.check()
    assert publishers.judge(ANNA, 99) == (99, 99)


def test_too_many_keys_with_something_forgotten_count_as_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEYS_FORGOTTEN", 3)
    publishers = Publishers(key_bytes=ONE_BYTES)
    for key in range(4):
        for who in (b"x" * 16, b"y" * 16):
            publishers.applied(scoped(str(key), who), 1, key, key)
    for knows in (publishers, restored(publishers, key_bytes=ONE_BYTES)):
        with pytest.raises(RetryTooOld):
            knows.judge(scoped("another", b"z" * 16), 1, again=True)
        assert knows.judge(scoped("another", b"z" * 16), 1) is None


def test_a_capture_does_not_change_with_what_is_applied_later() -> None:
    publishers = Publishers(key_bytes=2 * ONE_BYTES)
    publishers.applied(ANNA, 1, 1, 1)
    kept = publishers.capture()
    publishers.applied(ANNA, 2, 2, 2)
    publishers.applied(BERT, 1, 3, 3)
    for n in range(5):
        publishers.applied(scoped("carl", bytes([n]) * 16), 1, n, n)
    assert list(kept.entries()) == [KeptReceipt(ANNA, 1, 1, 1)]
    assert kept.forgotten == frozenset()


changes = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3), st.integers(1, 12), st.booleans(), st.booleans())


@given(st.lists(changes, max_size=150), st.integers(1, 4), st.integers(1, 12), st.integers(1, 12))
def test_no_change_is_applied_twice_or_after_a_later_one(
    requests: list[tuple[str, int, int, bool, bool]], window: int, key_limit: int, total_limit: int
) -> None:
    """`refused`: for another reason; `restart`: from what was captured. The client says truly what it sent before."""
    limits = {"key_bytes": key_limit * ONE_BYTES, "total_bytes": total_limit * ONE_BYTES, "window": window}
    publishers = Publishers(**limits)
    every: dict[tuple[str, int], dict[int, Answered]] = {}
    for seq, (key, who, number, refused, restart) in enumerate(requests):
        applied = every.setdefault((key, who), {})
        publisher = scoped(key, bytes([who + 1]) * 16)
        try:
            found = publishers.judge(publisher, number, again=number in applied)
        except RetryTooOld:
            assert number in applied or number < max(applied)
        except Superseded:
            assert number not in applied
            assert number < max(applied)
        else:
            assert found == applied.get(number)
            if found is None and not refused and number > max(applied, default=0):
                publishers.applied(publisher, number, seq, seq)
                applied[number] = Answered(seq, seq)
        if restart:
            before = list(publishers.capture().entries())
            publishers = restored(publishers, **limits)
            assert list(publishers.capture().entries()) == before
        publishers.check()
