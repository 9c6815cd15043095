"""Queries of the SDK: terms are checked before anything is sent, portions put together, lost ones asked for again."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hullcast
from hullcast import AnswerGone, BadFrame, BadSetting, DeadlineMissed, QueryRows, QueryWorth, TableWorth
from hullcast.clients.sdk.querying import ATTEMPTS, checked_query, read_portions, read_whole
from hullcast.network.wire.bodies import Body, Done, DropRows, FetchRows, Query, QueryAnswer, QueryPart
from hullcast.network.wire.values import from_user

WORTH: dict[str, Any] = {
    "seq": None,
    "tables": {
        "T": {"seq": 7, "staleness_s": 0.5, "unapplied": 2},
        "U": {"seq": 9, "staleness_s": 0.25, "unapplied": 1},
    },
    "waited_s": 0.125,
    "ran_s": 0.5,
    "deadline_s": 2.0,
    "met": True,
    "policy": "fifo",
}
QUERY = Query("SELECT K FROM T", ())


def checked(**terms: object) -> Query:
    usual: dict[str, object] = {"deadline": None, "freshness": 1.0, "priority": 0, "read_set": None}
    return checked_query("SELECT 1", (), **(usual | terms))


class Portions:
    """Answers as a server with these portions does. Some fetches find the rest gone: `lost` says of which part, and how
    often."""

    def __init__(self, *portions: list[int], lost: dict[int, int] | None = None) -> None:
        self.portions, self.lost, self.asked = portions, dict(lost or {}), list[Body]()
        self.told: list[DropRows] = []

    def tell(self, body: DropRows) -> None:
        self.told.append(body)

    async def ask(self, body: Body, what: str, timeout_s: float | None) -> Body:
        self.asked.append(body)
        await asyncio.sleep(0)
        more = len(self.portions) > 1
        if isinstance(body, Query):
            ticket = bytes(range(16)) if more else b""
            return QueryAnswer(("K",), (from_user(self.portions[0]),), ticket, None if more else WORTH)
        assert isinstance(body, FetchRows)
        if self.lost.get(body.part, 0):
            self.lost[body.part] -= 1
            raise AnswerGone(body.part, "the server was restarted")
        last = body.part == len(self.portions) - 1
        return QueryPart((from_user(self.portions[body.part]),), not last, WORTH if last else None)

    @property
    def parts(self) -> list[int]:
        """Which portions were asked for; 0 is the query itself."""
        return [body.part if isinstance(body, FetchRows) else 0 for body in self.asked]


async def some_turns() -> None:
    """Let other tasks do what they have to do."""
    for _ in range(9):
        await asyncio.sleep(0)


def test_terms_are_checked_and_durations_may_be_texts() -> None:
    assert checked() == Query("SELECT 1", (), 1.0, None, 0, "")
    full = checked(deadline="200ms", freshness=np.float32(0.5), priority=np.int64(-3), read_set="consistent")
    assert full == Query("SELECT 1", (), 0.5, 0.2, -3, "consistent")
    assert checked(deadline=2, freshness=0).deadline_s == 2.0


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"deadline": "soon"}, "deadline = 'soon': must be a number of seconds, or a text such as '200ms'"),
        ({"deadline": 0}, "deadline = 0: must be a positive number of seconds"),
        ({"deadline": float("nan")}, "deadline = nan: must be"),
        ({"deadline": 1e12}, "deadline = 1000000000000.0: must be at most 31,622,400 seconds"),
        (
            {"freshness": 1.5},
            "freshness = 1.5: must be a number from 0 .rows as loaded. to 1 .everything acknowledged.",
        ),
        ({"freshness": float("nan")}, "freshness = nan"),
        ({"freshness": True}, "freshness = True"),
        ({"freshness": "1"}, "freshness = '1'"),
        ({"freshness": None}, "freshness = None"),
        ({"priority": 1.0}, "priority = 1.0: must be a whole number from -1000000 to 1000000"),
        ({"priority": 10**9}, "priority = 1000000000: must be a whole number"),
        ({"read_set": "any"}, "read_set = 'any': must be None or 'consistent'"),
        ({"read_set": []}, "read_set = .*: must be None or 'consistent'"),
    ],
)
def test_a_term_that_makes_no_sense_is_refused_in_plain_words(terms: dict[str, object], says: str) -> None:
    with pytest.raises(BadSetting, match=says):
        checked(**terms)


async def test_nothing_is_sent_for_a_bad_term() -> None:
    client = hullcast.connect("tcp://127.0.0.1:1")  # never opened: whatever is sent would be ClientClosed
    with pytest.raises(BadSetting, match="deadline"):
        await client.query("SELECT 1", deadline="soon")
    with pytest.raises(BadSetting, match="freshness"):
        client.query_portions("SELECT 1", freshness=2)
    with pytest.raises(BadSetting, match=r"policy\(\) without a name lists them"):
        await client.policy("")


async def test_an_answer_of_one_portion_needs_one_request() -> None:
    server = Portions([1, 2, 3])
    rows = await read_whole(server.ask, server.tell, QUERY, None)
    assert (rows, rows.columns, server.parts) == ([(1,), (2,), (3,)], ("K",), [0])
    assert rows.worth is not None
    assert (rows.worth.staleness_s, rows.worth.unapplied, rows.worth.deadline_met) == (0.5, 3, True)
    assert rows.worth.tables["U"] == TableWorth(9, 0.25, 1)


async def test_portions_are_put_together_and_the_worth_is_that_of_the_last() -> None:
    server = Portions([1, 2], [3], [], [4])
    rows = await read_whole(server.ask, server.tell, QUERY, None)
    assert (rows, rows.worth) == ([(1,), (2,), (3,), (4,)], QueryWorth.of(WORTH))
    assert server.parts == [0, 1, 2, 3]
    assert rows[0].K == 1


async def test_portions_come_one_by_one_one_is_asked_for_ahead_and_none_after_the_end() -> None:
    server = Portions([1], [2], [3], [4])
    portions = read_portions(server.ask, server.tell, QUERY, None)
    first = await anext(portions)
    assert (first, first.worth, first.columns) == ([(1,)], None, ("K",))
    await some_turns()
    assert server.parts == [0, 1]
    second = await anext(portions)
    assert second == [(2,)]
    await portions.aclose()  # nobody wants the others
    await some_turns()
    assert server.parts[:2] == [0, 1]
    assert 3 not in server.parts
    found = [portion async for portion in read_portions(server.ask, server.tell, QUERY, None)]
    assert [portion.worth is not None for portion in found] == [False, False, False, True]


async def test_an_answer_is_dropped_once_when_it_was_read_or_the_reader_stops_before() -> None:
    dropped = [DropRows(bytes(range(16)))]
    server = Portions([1], [2], [3])
    await read_whole(server.ask, server.tell, QUERY, None)
    assert server.told == dropped
    server = Portions([1], [2], [3])
    portions = read_portions(server.ask, server.tell, QUERY, None)
    await anext(portions)
    assert server.told == []
    await portions.aclose()
    assert server.told == dropped
    server = Portions([1])
    await read_whole(server.ask, server.tell, QUERY, None)
    assert server.told == [], "nothing was kept of it"
    server = Portions([1], [2], lost={1: 99})
    with pytest.raises(AnswerGone):
        await read_whole(server.ask, server.tell, QUERY, None)
    assert server.told == [], "nothing is kept of it any more"


async def test_an_answer_is_dropped_when_its_reader_is_cancelled_while_it_waits() -> None:
    server = Portions([1], [2])

    async def ask(body: Body, what: str, timeout_s: float | None) -> Body:
        if isinstance(body, FetchRows):
            await asyncio.Event().wait()
        return await server.ask(body, what, timeout_s)

    reading = asyncio.create_task(read_whole(ask, server.tell, QUERY, None))
    await some_turns()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert server.told == [DropRows(bytes(range(16)))]


async def test_a_query_whose_rest_was_lost_is_run_again() -> None:
    server = Portions([1], [2], [3], lost={2: 1})
    assert await read_whole(server.ask, server.tell, QUERY, None) == [(1,), (2,), (3,)]
    assert server.parts == [0, 1, 2, 0, 1, 2]


async def test_a_query_whose_rest_is_lost_each_time_says_so() -> None:
    server = Portions([1], [2], lost={1: 99})
    with pytest.raises(AnswerGone, match=r"portion 1 .* \(the server was restarted\); run the query again"):
        await read_whole(server.ask, server.tell, QUERY, None)
    assert server.parts == [0, 1] * ATTEMPTS


async def test_a_query_that_is_run_again_has_what_is_left_of_its_deadline() -> None:
    server = Portions([1], [2], lost={1: 1})
    await read_whole(server.ask, server.tell, Query("SELECT 1", (), deadline_s=60.0), None)
    first, again = (body.deadline_s for body in server.asked if isinstance(body, Query))
    assert first == 60.0
    assert again is not None
    assert 0 < again < 60
    server = Portions([1], [2], lost={1: 1})
    with pytest.raises(DeadlineMissed):
        await read_whole(server.ask, server.tell, Query("SELECT 1", (), deadline_s=1e-9), None)


async def test_portions_that_were_given_already_are_not_asked_for_again() -> None:
    server = Portions([1], [2], [3], lost={2: 1})
    portions = read_portions(server.ask, server.tell, QUERY, None)
    assert [await anext(portions), await anext(portions)] == [[(1,)], [(2,)]]
    with pytest.raises(AnswerGone):
        await anext(portions)


@pytest.mark.parametrize("reply", [lambda: Done(1, 1), lambda: QueryPart((), False, WORTH)])
async def test_another_reply_is_a_bad_frame(reply: Callable[[], Body]) -> None:
    server = Portions([1], [2])

    async def ask(body: Body, what: str, timeout_s: float | None) -> Body:
        return reply() if isinstance(body, FetchRows) else await server.ask(body, what, timeout_s)

    with pytest.raises(BadFrame, match="is not a portion of this answer"):
        await read_whole(ask, server.tell, QUERY, None)

    async def wrong(body: Body, what: str, timeout_s: float | None) -> Body:
        return reply()

    with pytest.raises(BadFrame, match="is not a reply to a query"):
        await read_whole(wrong, server.tell, QUERY, None)


def test_rows_keep_their_worth_when_they_are_pickled() -> None:
    rows = QueryRows(("K",), [(1,)], QueryWorth.of(WORTH))
    copy = pickle.loads(pickle.dumps(rows))
    assert (copy, copy.columns, copy.worth) == (rows, rows.columns, rows.worth)


def test_a_query_without_tables_is_worth_nothing_less() -> None:
    worth = QueryWorth.of({**WORTH, "tables": {}})
    assert (worth.staleness_s, worth.unapplied) == (0.0, 0)
