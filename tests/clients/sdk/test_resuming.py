"""Subscribing again after a break: in portions, each from where it stood, and nobody ends who could go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hullcast.clients.sdk import groups, resuming
from hullcast.clients.sdk.effects import Ended
from hullcast.clients.sdk.groups import SubscriptionGroup
from hullcast.clients.sdk.session import ClientSession
from hullcast.network.answers.events import Change, Resync
from hullcast.network.wire import bodies, frames
from hullcast.network.wire.bodies import ChannelSpec, Opened, Subscribe, Subscribed, Sync
from hullcast.network.wire.columns import Columns, TextColumn
from hullcast.network.wire.errors import BadFrame, TooLarge, UnknownTable
from hullcast.network.wire.value_columns import Mixed, Nullable, sent_bytes
from tests.clients.sdk.test_session import (
    CHANNEL,
    EPOCH,
    OTHER,
    SPEC,
    best_is,
    deliver,
    events,
    failed,
    group,
    only_request,
    reply,
    requests,
    sent,
    session_with,
    subscribed,
)

RESET = frames.encode(frames.Reset("parent", "gone"))
LARGE = failed(TooLarge("bytes of this Subscribed", 100, 10))
SUMS = ChannelSpec("SUM(Y) FROM T OVER X", "SUM", "places", 1, False, 1, "REAL", ("INTEGER",), (), ())
VALUES = ChannelSpec("DISTINCT Y FROM T OVER X", "DISTINCT", "rectangles", 1, False, 0, "REAL", ("INTEGER",), (), ())


def session_of(count: int, *, seq: int = 10, best: float = 4.0) -> tuple[ClientSession, list[SubscriptionGroup]]:
    """A session with so many groups of one subscription each."""
    session, first = session_with(seq=seq, best=best)
    found = [first]
    for _ in range(count - 1):
        found.append(group())
        _, effects = session.subscribe(found[-1])
        number, asked = only_request(effects)
        session.take(reply(number, subscribed(asked, seq, best)))
    return session, found


def answer(of: SubscriptionGroup) -> Any:
    return of.listening.answer(int(of.listeners[0]))


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "PORTION_BYTES", 1)


# --- a snapshot that is sent is taken ------------------------------------------------------------------------


def test_a_snapshot_is_taken_even_if_no_update_happened_since_for_the_table_may_be_another_one() -> None:
    session, one = session_with()
    number, asked = only_request(session.take(RESET))
    session.take(reply(number, subscribed(asked, 10, 9.0)))
    assert answer(one) == 9.0
    assert events(one) == [(Resync, 10, 9.0)]


def test_of_many_only_those_hear_of_a_snapshot_whose_answer_is_another_one() -> None:
    session, many = session_with(3)
    number, asked = only_request(session.take(RESET))
    again = subscribed(asked, 10, 4.0)
    again.groups[0].snapshot["best"][1] = 5.0  # type: ignore[index]
    session.take(reply(number, again))
    assert [events(many, member) for member in range(3)] == [[], [(Resync, 10, 5.0)], []]


def state(*sums: float) -> Columns:
    zeros = np.zeros(len(sums))
    return {"rows": np.ones(len(sums)), "high": np.array(sums), "low": zeros, "lost_bits": zeros}


def values(*of: list[float]) -> Columns:
    places = [place for place, some in enumerate(of) for _ in some]
    return {"of": np.array(places, np.int64), "value": np.array([value for some in of for value in some])}


@pytest.mark.parametrize(
    ("spec", "before", "after", "answers"),
    [
        (SUMS, state(1.0, 2.0), state(1.0, 3.0), [1.0, 3.0]),
        (VALUES, values([1.0], [2.0]), values([1.0], [2.0, 3.0]), [{1.0}, {2.0, 3.0}]),
    ],
)
@pytest.mark.parametrize("looked_at", [False, True])
def test_sums_and_sets_are_compared_as_answers(
    spec: ChannelSpec, before: Columns, after: Columns, answers: list[Any], looked_at: bool
) -> None:
    session, many = ClientSession(), group(2)
    session.link_up(fresh=True)

    def taken(asked: Subscribe, snapshot: Columns) -> Subscribed:
        points = np.tile([0.0, 10.0], (2, 1))
        opened = Opened(asked.groups[0].group, CHANNEL, ("Y",), snapshot, points=points)
        return Subscribed(10, EPOCH, (opened,), {CHANNEL: spec}, {})

    _, effects = session.subscribe(many)
    number, asked = only_request(effects)
    session.take(reply(number, taken(asked, before)))
    if looked_at:
        many.listening.column(many.listeners)
    number, asked = only_request(session.take(RESET))
    session.take(reply(number, taken(asked, after)))
    assert [events(many, member) for member in range(2)] == [[], [(Resync, 10, answers[1])]]
    assert many.listening.column(many.listeners).tolist() == answers


# --- portions ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("one_by_one")
def test_groups_come_back_portion_by_portion_and_each_hears_everything_once() -> None:
    session, (one, two) = session_of(2)
    number, asked = only_request(session.take(RESET))
    assert [of.group for of in asked.groups] == [one.number]
    session.take(deliver(11, (11, 3.5)))  # counts for nobody
    number, asked = only_request(
        session.take(reply(number, subscribed(asked, 12, None, replay=best_is((11, 3.5), (12, 3.0)))))
    )
    assert [of.group for of in asked.groups] == [two.number]
    assert (asked.since, asked.epoch) == (10, EPOCH)
    session.take(deliver(13, (13, 2.0)))  # counts for the first only
    assert (answer(one), answer(two)) == (2.0, 4.0)
    assert (session.standing(one).seq, session.standing(two).seq, session.position) == (13, 10, 10)
    assert session.resuming
    replay = best_is((11, 3.5), (12, 3.0), (13, 2.0), (14, 1.0))
    session.take(deliver(14, (14, 1.0)))
    session.take(reply(number, subscribed(asked, 14, None, replay=replay)))
    session.take(deliver(15, (15, 0.5)))
    heard = [(Change, 11, 3.5), (Change, 12, 3.0), (Change, 13, 2.0), (Change, 14, 1.0), (Change, 15, 0.5)]
    assert events(one) == heard
    assert events(two) == heard
    assert (session.position, session.resuming) == (15, False)


@pytest.mark.usefixtures("one_by_one")
def test_a_break_between_portions_leaves_each_where_it_stood() -> None:
    session, (one, two) = session_of(2)
    number, asked = only_request(session.take(RESET))
    session.take(reply(number, subscribed(asked, 12, None)))
    session.take(deliver(13, (13, 2.0)))
    number, asked = only_request(session.take(RESET))
    assert ([of.group for of in asked.groups], asked.since) == ([one.number], 13)
    number, asked = only_request(session.take(reply(number, subscribed(asked, 14, None, replay=best_is((14, 1.0))))))
    assert ([of.group for of in asked.groups], asked.since) == ([two.number], 10)
    session.take(reply(number, subscribed(asked, 14, None, replay=best_is((13, 2.0), (14, 1.0)))))
    assert events(one) == events(two) == [(Change, 13, 2.0), (Change, 14, 1.0)]
    assert session.position == 14


@pytest.mark.usefixtures("one_by_one")
def test_what_is_new_or_asks_for_sync_waits_for_the_last_portion() -> None:
    session, _ = session_of(2)
    number, asked = only_request(session.take(RESET))
    assert session.call(Sync())[1] == []
    number, asked = only_request(session.take(reply(number, subscribed(asked, 12, None))))
    assert session.subscribe(group())[1] == []
    last = [body for _, body in requests(session.take(reply(number, subscribed(asked, 12, None))))]
    assert [type(body) for body in last] == [Sync, Subscribe]


@pytest.mark.usefixtures("one_by_one")
def test_a_group_that_leaves_while_it_is_away_is_not_asked_for() -> None:
    session, (one, two, three) = session_of(3)
    number, asked = only_request(session.take(RESET))
    session.leave(three)
    number, asked = only_request(session.take(reply(number, subscribed(asked, 12, None))))
    session.leave(two)  # its reply is on the way
    (leave,) = sent(session.take(reply(number, subscribed(asked, 12, None))))
    assert isinstance(leave, frames.Leave)
    assert leave.group == two.number
    session.take(deliver(13, (13, 1.0)))
    assert (answer(one), len(one.listening.audience), session.position) == (1.0, 1, 13)


@pytest.mark.usefixtures("one_by_one")
def test_portions_that_are_answered_by_different_servers_end_the_link() -> None:
    session, _ = session_of(2)
    number, asked = only_request(session.take(RESET))
    number, asked = only_request(session.take(reply(number, subscribed(asked, 12, None))))
    with pytest.raises(BadFrame):
        session.take(reply(number, subscribed(asked, 3, 4.0, epoch=OTHER)))


def test_a_portion_has_as_many_groups_as_fit_by_the_size_of_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    session, one = session_with(1000)
    for count in (1000, 5000, 1):
        _, effects = session.subscribe(group(count))
        number, asked = only_request(effects)
        session.take(reply(number, subscribed(asked, 10, 4.0)))
    monkeypatch.setattr(resuming, "PORTION_BYTES", 40_000)  # a subscription has two parameters of 8 bytes
    effects, counts = session.take(RESET), []
    while requests(effects):
        number, asked = only_request(effects)
        counts.append([of.count for of in asked.groups])
        effects = session.take(reply(number, subscribed(asked, 10, 4.0)))
    assert counts == [[1000, 1000], [5000], [1]]
    assert events(one) == []


@pytest.mark.parametrize(
    ("limit", "most", "expected"),
    [("PORTION_SUBSCRIPTIONS", 10, [[5, 5], [6], [12], [1, 1]]), ("PORTION_GROUPS", 4, [[5, 5, 6, 12], [1, 1]])],
)
def test_a_portion_has_no_more_subscriptions_and_groups_than_one_request_may_ask_for(
    limit: str, most: int, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = session_with(5)
    for count in (5, 6, 12, 1, 1):
        _, effects = session.subscribe(group(count))
        number, asked = only_request(effects)
        session.take(reply(number, subscribed(asked, 10, 4.0)))
    monkeypatch.setattr(resuming, limit, most)
    effects, counts = session.take(RESET), []
    while requests(effects):
        number, asked = only_request(effects)
        counts.append([of.count for of in asked.groups])
        effects = session.take(reply(number, subscribed(asked, 10, 4.0)))
    assert counts == expected


@pytest.mark.parametrize(
    ("values", "size"),
    [
        (np.zeros(10), 80),
        (Nullable(np.zeros(10), np.zeros(10, np.bool_)), 90),
        (TextColumn.from_texts(["ab", "ab", "c"]), 12 + 9 + 8 + 9 + 4),
        (Mixed((1, "ab", None)), 9 + 9 + 8 + 9),
        (1.5, 9),
    ],
)
def test_the_size_of_parameters_is_not_estimated_too_low(values: Any, size: int) -> None:
    assert sent_bytes(values) == size
    assert size + 40 >= len(bodies.encode(Subscribe((bodies.Group(1, "", (values,), 1),))))


def test_who_comes_back_says_what_it_listened_to() -> None:
    session, one = session_with()
    number, asked = only_request(session.take(RESET))
    assert asked.groups[0].channel == CHANNEL
    moved = Opened(one.number, 99, ("MIN(Y)",), {"best": np.array([8.0])}, points=np.array([[0.0, 10.0]]))
    session.take(reply(number, Subscribed(1, OTHER, (moved,), {99: SPEC}, {})))
    assert only_request(session.take(RESET))[1].groups[0].channel == 99


# --- too large -----------------------------------------------------------------------------------------------


def test_groups_that_are_too_large_together_are_asked_for_in_halves() -> None:
    session, four = session_of(4)
    number, asked = only_request(session.take(RESET))
    assert len(asked.groups) == 4
    found = []
    number, asked = only_request(session.take(reply(number, LARGE)))
    while asked is not None:
        found.append([of.group for of in asked.groups])
        body: bodies.Body = LARGE if len(found) == 1 else subscribed(asked, 12, 3.0)
        again = requests(session.take(reply(number, body)))
        number, asked = again[0] if again else (0, None)
    first, second, third, fourth = (one.number for one in four)
    assert found == [[first, second], [first], [second], [third, fourth]]
    assert [events(one) for one in four] == [[(Resync, 12, 3.0)]] * 4


def test_a_group_that_missed_too_much_is_asked_for_without_and_ends_only_if_that_is_too_large_too() -> None:
    for body, ends in ((None, False), (LARGE, True)):
        session, one = session_with()
        number, asked = only_request(session.take(RESET))
        assert asked.since == 10
        number, asked = only_request(session.take(reply(number, LARGE)))
        assert (asked.since, asked.epoch) == (None, None)
        effects = session.take(reply(number, body or subscribed(asked, 12, 3.0)))
        assert [effect.group for effect in effects if isinstance(effect, Ended)] == [one] * ends
        assert len(session.groups) == 1 - ends
        assert ends or events(one) == [(Resync, 12, 3.0)]


def test_a_request_too_large_to_be_sent_is_divided_too(monkeypatch: pytest.MonkeyPatch) -> None:
    session, _ = session_of(3)
    encode = bodies.encode

    def encode_one(body: bodies.Body) -> bytes:
        if isinstance(body, Subscribe) and len(body.groups) > 1:
            raise TooLarge("bytes of this Subscribe", 2, 1)
        return encode(body)

    monkeypatch.setattr("hullcast.clients.sdk.session.bodies.encode", encode_one)
    session.link_down()
    effects = session.link_up(fresh=True)
    for _ in range(3):
        number, asked = only_request(effects)
        effects = session.take(
            reply(number, subscribed(asked, 12, 3.0)),
        )
    assert (len(session.groups), session.resuming, session.position) == (3, False, 12)


@pytest.mark.usefixtures("one_by_one")
def test_a_portion_that_is_refused_ends_and_the_others_go_on() -> None:
    session, (one, two) = session_of(2)
    number, asked = only_request(session.take(RESET))
    effects = session.take(reply(number, failed(UnknownTable("T"))))
    assert [effect.group for effect in effects if isinstance(effect, Ended)] == [one]
    number, asked = only_request(effects)
    session.take(reply(number, subscribed(asked, 12, 3.0)))
    assert answer(two) == 3.0


def test_one_group_of_several_that_is_too_large_is_asked_for_again_by_itself() -> None:
    session, (one, two) = session_of(2)
    number, asked = only_request(session.take(RESET))
    bad = Opened(one.number, 0, (), None, LARGE)
    good = subscribed(asked, 12, 3.0).groups[1]
    effects = session.take(reply(number, Subscribed(12, EPOCH, (bad, good), {CHANNEL: SPEC}, {})))
    number, asked = only_request(effects)
    session.take(deliver(13, (13, 1.0)))
    assert (answer(one), answer(two)) == (4.0, 1.0)
    session.take(reply(number, subscribed(asked, 13, 1.0)))
    assert events(one) == [(Resync, 13, 1.0)]


# --- the rest ------------------------------------------------------------------------------------------------


def test_without_subscriptions_the_numbers_are_those_of_the_server_that_is_there() -> None:
    session = ClientSession()
    for epoch, through, position in ((EPOCH, 500, 500), (EPOCH, 400, 500), (OTHER, 2, 2), (OTHER, 3, 3)):
        session.link_down()
        session.link_up(fresh=True)
        session.take(frames.encode(frames.Directory(epoch, ((b"i" * 16, "tcp://127.0.0.1:1"),), ())))
        session.take(frames.encode(frames.Advance(through)))
        assert session.position == position


def test_with_subscriptions_the_reply_says_which_server_is_there() -> None:
    session, one = session_with()
    session.link_down()
    number, asked = only_request(session.link_up(fresh=True))
    session.take(frames.encode(frames.Directory(OTHER, ((b"i" * 16, "tcp://127.0.0.1:1"),), ())))
    session.take(frames.encode(frames.Advance(2)))
    assert session.standing(one) == resuming.Standing(10, EPOCH)
    session.take(reply(number, subscribed(asked, 2, 4.0, epoch=OTHER)))
    assert session.standing(one) == resuming.Standing(2, OTHER)


def test_sums_taken_anew_need_no_room_among_the_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    session, many = session_with(3)
    monkeypatch.setattr(groups, "MOST_SUBSCRIPTIONS", 3)
    many.listening._doubt(many.listeners[1:2])
    _, asked = only_request(session.take(deliver(11)))
    assert asked.groups[0].count == 1
