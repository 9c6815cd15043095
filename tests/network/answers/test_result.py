"""Results of conditional subscriptions as they travel, and as users hold them."""

from __future__ import annotations

import base64
import pickle
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.answers.collection import CHANGE
from hullcast.network.answers.outbox import Taken
from hullcast.network.answers.result import (
    DeliveredResult,
    ResultCollection,
    ResultRows,
    decode_result,
    encode_result,
)
from hullcast.network.wire import bodies, packing
from hullcast.network.wire.errors import BadFrame, SqlError, UnknownTable, to_wire
from tests.support.wire import any_body

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WORTH: dict[str, Any] = {
    "seq": 7,
    "tables": {"T": {"seq": 7, "staleness_s": 0.0, "unapplied": 0}},
    "waited_s": 0.5,
    "ran_s": 0.25,
    "deadline_s": None,
    "met": True,
    "policy": "orad",
}


def answer(*numbers: int, more: bool = False) -> bytes:
    ticket, worth = (bytes(range(16)), None) if more else (b"", WORTH)
    return bodies.encode(bodies.QueryAnswer(("N",), (np.array(numbers),), ticket, worth))


def failure() -> bytes:
    return bodies.encode(bodies.Failed(*to_wire(UnknownTable("T"))))


def test_a_result_has_the_rows_and_the_worth_of_the_answer() -> None:
    names, rows, worth = decode_result(encode_result([answer(1, 2)]))
    assert (names, rows) == (("N",), [(1,), (2,)])
    assert worth is not None
    assert (worth.seq, worth.waited_s, worth.ran_s) == (7, 0.5, 0.25)


def test_portions_of_a_large_answer_are_put_together() -> None:
    middle = bodies.encode(bodies.QueryPart((np.array([3]),), True))
    last = bodies.encode(bodies.QueryPart((np.array([4]),), False, WORTH))
    _, rows, worth = decode_result(encode_result([answer(1, 2, more=True), middle, last]))
    assert rows == [(1,), (2,), (3,), (4,)]
    assert worth is not None


def test_a_failure_is_raised_as_what_it_was() -> None:
    with pytest.raises(UnknownTable, match="no table T"):
        decode_result(encode_result([failure()]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not base64!",
        "é",
        base64.b64encode(b"\xc1").decode(),
        base64.b64encode(packing.pack({})).decode(),
        encode_result([]),
        base64.b64encode(packing.pack([5])).decode(),
        encode_result([b"garbage"]),
        encode_result([bodies.encode(bodies.Sync())]),
        encode_result([answer(1), answer(2)]),
        encode_result([answer(1), bodies.encode(bodies.QueryPart((np.array([3]),) * 2, False, WORTH))]),
    ],
)
def test_what_is_no_result_is_a_bad_frame(text: str) -> None:
    with pytest.raises(BadFrame):
        decode_result(text)
    held = DeliveredResult((text, None, NOON)).rows
    assert isinstance(held.error, BadFrame)


@given(st.lists(st.one_of(st.binary(max_size=30), any_body.map(bodies.encode)), max_size=3))
def test_any_bytes_are_a_result_or_an_error(parts: list[bytes]) -> None:
    held = DeliveredResult((encode_result(parts), 3, NOON)).rows
    assert (held.fired, held.at) == (3, NOON)
    if held.error is None:
        assert list(held) == decode_result(encode_result(parts))[1]


def test_rows_that_could_not_be_computed_are_not_taken_for_none() -> None:
    error = SqlError("SELECT 1", "it went wrong")
    rows = ResultRows((), (), fired=4, at=NOON, error=error)
    for look in (list, len, bool, lambda rows: rows[0], lambda rows: rows == [], sorted):
        with pytest.raises(SqlError, match="it went wrong"):
            look(rows)
    assert repr(rows) == "<no rows: `SELECT 1`: it went wrong>"
    assert rows.error is error
    assert pickle.loads(pickle.dumps(rows)).error.reason == "it went wrong"


def test_rows_survive_a_pickle() -> None:
    rows = DeliveredResult((encode_result([answer(1, 2)]), 3, NOON)).rows
    again = pickle.loads(pickle.dumps(rows))
    assert again == rows == [(1,), (2,)]
    assert (again.fired, again.at, again.worth, again.columns) == (3, NOON, rows.worth, ("N",))
    assert again[0].N == 1


def delivered(seq: int, *numbers: int) -> tuple[int, DeliveredResult]:
    return seq, DeliveredResult((encode_result([answer(*numbers)]), None, NOON))


def hear(collection: ResultCollection, *results: tuple[int, DeliveredResult]) -> None:
    seqs = [seq for seq, _ in results]
    collection.hear(Taken(seqs, [CHANGE] * len(seqs), [0.0] * len(seqs), [(0, result) for _, result in results]))


def test_each_result_is_an_event_with_its_own_rows_whenever_it_is_looked_at() -> None:
    collection = ResultCollection({0: delivered(1, 1)[1]}, None, 10)
    assert collection.answer() == [(1,)]
    hear(collection, delivered(2, 2), delivered(5, 2), delivered(6, 3, 4))
    events = collection.take()
    hear(collection, delivered(7))
    assert [(event.seq, event.answer) for event in events] == [(2, [(2,)]), (5, [(2,)]), (6, [(3,), (4,)])]
    assert not any(event.entered or event.left or event.changed for event in events)
    assert repr(events[0]) == "Change(seq=2, answer=[Row(N=2)])"
    assert events[0].answer is events[0].answer, "read once"
    assert collection.answer() == []


def test_who_wants_the_newest_only_gets_that() -> None:
    collection = ResultCollection({0: delivered(1, 1)[1]}, None, 10, room=0)
    hear(collection, delivered(2, 2), delivered(5, 6))
    (event,) = collection.take()
    assert (event.seq, event.answer, event.conflated, collection.conflated) == (5, [(6,)], 1, 1)
