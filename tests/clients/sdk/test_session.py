"""The client's brain, fed with frames: what it says, when, and what it makes of the replies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hullcast.clients.sdk.effects import (
    CallAnswered,
    CallRefused,
    Effect,
    Ended,
    GroupOpened,
    RetryLater,
    RowRefused,
    SendFrame,
)
from hullcast.clients.sdk.groups import SubscriptionGroup
from hullcast.clients.sdk.session import ClientSession
from hullcast.network.answers.events import Change, Resync
from hullcast.network.wire import bodies, frames
from hullcast.network.wire.bodies import ChannelSpec, Failed, Group, Opened, Subscribe, Subscribed, Sync, Synced
from hullcast.network.wire.columns import Columns
from hullcast.network.wire.errors import (
    BadFrame,
    BadValue,
    ConnectionLost,
    LogBroken,
    OutOfTurn,
    Overloaded,
    UnknownTable,
    to_wire,
)
from hullcast.network.wire.value_columns import Mixed
from hullcast.network.wire.values import to_list

EPOCH, OTHER = b"e" * 16, b"f" * 16
SPEC = ChannelSpec("MIN(Y) FROM T OVER X", "MIN", "rectangles", 1, False, 0, "REAL", ("INTEGER",), (), ())
SQL = "SELECT MIN(Y) FROM T WHERE X BETWEEN ? AND ?"
CHANNEL = 7


def group(count: int = 1, overflow: Any = "block") -> SubscriptionGroup:
    parameters: tuple[Any, ...] = (0.0, 10.0) if count == 1 else (np.zeros(count), np.full(count, 10.0))
    return SubscriptionGroup(SQL, parameters, count, overflow, 8)


def sent(effects: list[Effect]) -> list[frames.Frame]:
    return [frames.decode(effect.payload) for effect in effects if isinstance(effect, SendFrame)]


def requests(effects: list[Effect]) -> list[tuple[int, bodies.Body]]:
    return [(frame.id, bodies.decode(frame.body)) for frame in sent(effects) if isinstance(frame, frames.Request)]


def only_request(effects: list[Effect]) -> tuple[int, Any]:
    (request,) = requests(effects)
    return request


def reply(number: int, body: bodies.Body) -> bytes:
    return frames.encode(frames.Reply(number, (), installs(body), bodies.encode(body)))


def installs(body: bodies.Body) -> tuple[frames.Install, ...]:
    """The points of a Subscribed, as its reply carries them."""
    groups = body.groups if isinstance(body, Subscribed) else ()
    return tuple(
        frames.Install(one.group, one.channel, "rectangles", False, one.points) for one in groups if one.failed is None
    )


def opened(of: Group, best: float | None) -> Opened:
    snapshot: Columns | None = None if best is None else {"best": np.full(of.count, best)}
    return Opened(of.group, CHANNEL, ("MIN(Y)",), snapshot, points=np.tile([0.0, 10.0], (of.count, 1)))


def subscribed(
    asked: Subscribe, seq: int, best: float | None, epoch: bytes = EPOCH, replay: Columns | None = None
) -> Subscribed:
    missed = {} if replay is None else {CHANNEL: replay}
    return Subscribed(seq, epoch, tuple(opened(of, best) for of in asked.groups), {CHANNEL: SPEC}, missed)


def best_is(*changes: tuple[int, float]) -> Columns:
    """Messages that concern every range containing 5: at these updates the minimum became these."""
    n = len(changes)
    return {
        "seq": np.array([seq for seq, _ in changes]),
        "il": np.full(n, 5.0),
        "ir": np.full(n, 5.0),
        "ol": np.full(n, -np.inf),
        "or": np.full(n, np.inf),
        "best": np.array([best for _, best in changes]),
    }


def deliver(through: int, *changes: tuple[int, float]) -> bytes:
    return frames.encode(frames.Deliver(through, {CHANNEL: best_is(*changes)} if changes else {}))


def failed(error: Any) -> Failed:
    return Failed(*to_wire(error))


def session_with(
    count: int = 1, *, seq: int = 10, best: float = 4.0, overflow: Any = "block"
) -> tuple[ClientSession, SubscriptionGroup]:
    """A session that is up, with one open group whose answers are `best` as of `seq`."""
    session = ClientSession()
    session.link_up(fresh=True)
    one = group(count, overflow)
    _, effects = session.subscribe(one)
    number, asked = only_request(effects)
    (effect,) = session.take(reply(number, subscribed(asked, seq, best)))
    assert isinstance(effect, GroupOpened)
    return session, one


def events(of: SubscriptionGroup, member: int = 0) -> list[Any]:
    found = []
    while (event := of.listening.take(int(of.listeners[member]))) is not None:
        found.append((type(event), event.seq, event.answer))
    return found


def test_a_call_made_without_a_link_is_sent_when_there_is_one() -> None:
    session = ClientSession()
    call, effects = session.call(Sync())
    assert effects == []
    number, body = only_request(session.link_up(fresh=True))
    assert body == Sync()
    assert session.take(reply(number, Synced(5))) == [CallAnswered(call, Synced(5))]
    assert session.take(reply(number, Synced(5))) == []  # nobody's any more
    assert session.position == 5


def test_answers_follow_what_is_delivered_and_the_position_what_was_gone_through() -> None:
    session, one = session_with()
    assert session.take(deliver(15, (12, 3.0), (14, 2.0))) == []
    assert session.position == 15
    assert one.listening.answer(int(one.listeners[0])) == 2.0
    assert events(one) == [(Change, 12, 3.0), (Change, 14, 2.0)]
    session.take(frames.encode(frames.Advance(20)))
    assert session.position == 20


def test_after_a_fresh_link_all_groups_are_subscribed_again_in_one_request_since_the_position() -> None:
    session, _ = session_with()
    other = group(3)
    _, effects = session.subscribe(other)
    number, asked = only_request(effects)
    session.take(reply(number, subscribed(asked, 11, 4.0)))
    session.take(deliver(15))
    session.link_down()
    number, again = only_request(session.link_up(fresh=True))
    assert [of.count for of in again.groups] == [1, 3]
    assert (again.since, again.epoch) == (15, EPOCH)


def test_a_link_that_goes_on_needs_nothing_said_again() -> None:
    session, _ = session_with()
    call, effects = session.call(Sync())
    number, _ = only_request(effects)
    session.link_down()
    assert session.link_up(fresh=False) == []
    assert session.take(reply(number, Synced(11))) == [CallAnswered(call, Synced(11))]


def test_what_was_missed_is_heard_once_even_if_some_of_it_comes_before_the_reply() -> None:
    session, one = session_with()
    number, asked = only_request(session.take(frames.encode(frames.Reset("parent", "gone"))))
    session.take(deliver(13, (12, 3.0)))  # from an install of before, or of a reply that was nobody's
    assert session.position == 10
    replay = best_is((12, 3.0), (14, 2.0))
    session.take(reply(number, subscribed(asked, 14, None, replay=replay)))
    session.take(deliver(16, (16, 1.0)))
    assert events(one) == [(Change, 12, 3.0), (Change, 14, 2.0), (Change, 16, 1.0)]
    assert session.position == 16


def test_where_nothing_can_be_replayed_a_resync_says_so_unless_nothing_happened() -> None:
    session, one = session_with()
    number, asked = only_request(session.take(frames.encode(frames.Reset("parent", "gone"))))
    session.take(reply(number, subscribed(asked, 10, 4.0)))
    assert events(one) == []
    number, asked = only_request(session.take(frames.encode(frames.Reset("parent", "gone"))))
    session.take(reply(number, subscribed(asked, 12, 3.0)))
    assert events(one) == [(Resync, 12, 3.0)]


def test_another_server_means_a_resync_and_its_own_numbers() -> None:
    session, one = session_with()
    session.link_down()
    number, asked = only_request(session.link_up(fresh=True))
    session.take(reply(number, subscribed(asked, 2, 4.0, epoch=OTHER)))
    assert events(one) == [(Resync, 2, 4.0)]
    assert session.position == 2
    session.take(deliver(3, (3, 1.0)))
    assert events(one) == [(Change, 3, 1.0)]


def test_events_queued_before_a_gap_come_before_the_resync() -> None:
    session, one = session_with()
    session.take(deliver(11, (11, 3.0)))
    number, asked = only_request(session.take(frames.encode(frames.Reset("parent", "gone"))))
    session.take(reply(number, subscribed(asked, 15, 1.0)))
    assert events(one) == [(Change, 11, 3.0), (Resync, 15, 1.0)]


def test_unanswered_requests_go_again_under_another_id_with_the_same_bytes() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    change = bodies.Execute("DROP TABLE T", b"p" * 16, 1)
    call, effects = session.call(change)
    first, _ = only_request(effects)
    session.link_down()
    second, again = only_request(session.link_up(fresh=True))
    assert again == change
    assert second != first
    done = bodies.Done(1, 0)
    assert session.take(reply(first, done)) == []
    assert session.take(reply(second, done)) == [CallAnswered(call, done)]


def change(number: int) -> bodies.Execute:
    return bodies.Execute("DROP TABLE T", b"p" * 16, number)


def changes(effects: list[Effect]) -> list[tuple[int, int, bool]]:
    """What was sent of changes: number, after, again."""
    found = [frame for frame in sent(effects) if isinstance(frame, frames.Request)]
    numbers = [bodies.decode(frame.body) for frame in found]
    assert all(isinstance(body, bodies.Execute) for body in numbers)
    return [(body.number, frame.after, frame.again) for body, frame in zip(numbers, found, strict=True)]  # type: ignore[attr-defined]  # checked above


def called(session: ClientSession, *numbers: int) -> tuple[list[int], list[Effect]]:
    """Calls that change something; the requests they went as, and all that was sent."""
    effects = [effect for number in numbers for effect in session.call(change(number))[1]]
    return [number for number, _ in requests(effects)], effects


def test_changes_go_at_once_and_each_names_the_one_before_it() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    ids, effects = called(session, 1, 2, 3)
    assert changes(effects) == [(1, 0, False), (2, 1, False), (3, 2, False)]
    session.take(reply(ids[0], bodies.Done(1, 1)))
    session.take(reply(ids[1], bodies.Done(2, 2)))
    assert changes(called(session, 4)[1]) == [(4, 3, False)]


def test_changes_behind_one_that_is_tried_again_follow_when_it_is_answered() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    ids, _ = called(session, 1, 2, 3)
    (later,) = session.take(reply(ids[0], failed(Overloaded("queue", 1))))
    assert isinstance(later, RetryLater)
    assert session.take(reply(ids[1], failed(OutOfTurn(2, 1)))) == []
    assert session.take(reply(ids[2], failed(Overloaded("queue", 1)))) == []  # one clock is enough
    assert called(session, 4)[1] == []  # nor is it worth sending more
    effects = session.retry(later.call)
    assert changes(effects) == [(1, 0, False)]
    (number, _) = only_request(effects)
    done, *others = session.take(reply(number, bodies.Done(1, 1)))
    assert done == CallAnswered(later.call, bodies.Done(1, 1))
    assert changes(others) == [(2, 0, False), (3, 2, False), (4, 3, False)]
    assert session.retries == 3


def test_a_change_given_up_is_named_no_more() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    call, effects = session.call(change(1))
    (number, _) = only_request(effects)
    ids, _ = called(session, 2)
    assert requests(session.abandon(call)) == [(number, bodies.GiveUp())]
    assert changes(session.take(reply(ids[0], failed(OutOfTurn(2, 1))))) == [(2, 0, False)]


QUERY = bodies.Query("SELECT 1", ())


def test_a_query_given_up_is_said_once_under_its_own_id() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    call, effects = session.call(QUERY)
    (number, _) = only_request(effects)
    given_up = session.abandon(call)
    assert requests(given_up) == [(number, bodies.GiveUp())]
    assert all(isinstance(effect, SendFrame) and effect.dispensable for effect in given_up)
    assert session.abandon(call) == []
    for late in (bodies.QueryAnswer((), ()), failed(Overloaded("queue", 1))):  # it crosses the reply, or is refused
        assert session.take(reply(number, late)) == []
    assert session.waiting == 0


def test_a_statement_given_up_is_said_before_the_changes_that_waited_for_it() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    call, effects = session.call(change(1))
    (number, _) = only_request(effects)
    ids, _ = called(session, 2)
    session.take(reply(ids[0], failed(OutOfTurn(2, 1))))
    first, *others = session.abandon(call)
    assert requests([first]) == [(number, bodies.GiveUp())]
    assert changes(others) == [(2, 0, False)]


def test_after_a_reset_a_statement_is_sent_again_and_not_given_up() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    called(session, 1)
    assert changes(session.take(frames.encode(frames.Reset("rights", "")))) == [(1, 0, True)]


def test_nothing_is_given_up_that_was_answered_or_not_sent_or_is_neither_query_nor_statement() -> None:
    session = ClientSession()
    unsent, effects = session.call(QUERY)
    assert effects == []
    assert session.abandon(unsent) == []
    session.link_up(fresh=True)
    answered, effects = session.call(QUERY)
    session.take(reply(only_request(effects)[0], bodies.QueryAnswer((), ())))
    assert session.abandon(answered) == []
    refused, effects = session.call(QUERY)
    session.take(reply(only_request(effects)[0], failed(Overloaded("queue", 1))))
    assert session.abandon(refused) == [], "it was to be sent again, but is not on its way"
    for other in (Sync(), bodies.Status(), bodies.Delete("T", Mixed((1,)), b"p" * 16, 1)):
        assert session.abandon(session.call(other)[0]) == []


@pytest.mark.parametrize("fresh", [False, True])
def test_a_query_given_up_without_a_connection_is_said_when_the_same_link_is_back(fresh: bool) -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    call, effects = session.call(QUERY)
    (number, _) = only_request(effects)
    session.link_down()
    assert session.abandon(call) == []
    assert session.tell(bodies.DropRows(bytes(16))) == []
    said = requests(session.link_up(fresh=fresh))
    assert said == ([] if fresh else [(number, bodies.GiveUp()), (number + 1, bodies.DropRows(bytes(16)))])


def test_after_a_reset_a_query_is_asked_again_and_the_first_one_given_up() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    _, effects = session.call(QUERY)
    (number, _) = only_request(effects)
    said = requests(session.take(frames.encode(frames.Reset("rights", ""))))
    assert said == [(number, bodies.GiveUp()), (number + 1, QUERY)]


def test_only_a_change_without_a_reply_on_a_lost_path_is_sent_as_perhaps_applied() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    ids, _ = called(session, 1, 2)
    session.take(reply(ids[0], failed(Overloaded("queue", 1))))
    session.link_down()
    assert changes(session.link_up(fresh=True)) == [(1, 0, False)]  # refused before; 2 waits for its reply
    session.link_down()
    effects = session.link_up(fresh=True)
    assert changes(effects) == [(1, 0, True)]
    (number, _) = only_request(effects)
    assert changes(session.take(reply(number, bodies.Done(1, 1)))) == [(2, 0, True)]


def test_a_new_subscription_waits_until_the_others_are_resumed() -> None:
    session, one = session_with()
    number, asked = only_request(session.take(frames.encode(frames.Reset("parent", "gone"))))
    new = group()
    _, effects = session.subscribe(new)
    assert effects == []
    effects = session.take(reply(number, subscribed(asked, 12, None)))
    number, asked = only_request(effects)
    assert asked.since is None
    session.take(reply(number, subscribed(asked, 12, 9.0)))
    assert new.listening is one.listening
    assert new.listening.answer(int(new.listeners[0])) == 9.0


def test_nothing_is_in_sync_before_all_is_resumed() -> None:
    session, _ = session_with()
    number, asked = only_request(session.take(frames.encode(frames.Reset("parent", "gone"))))
    _, effects = session.call(Sync())
    assert effects == []
    assert only_request(session.take(reply(number, subscribed(asked, 12, None))))[1] == Sync()


def test_an_unavailable_server_is_asked_again_later_and_a_broken_one_is_not() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    call, effects = session.call(Sync())
    delays = []
    for _ in range(8):
        number, _ = only_request(effects)
        (later,) = session.take(reply(number, failed(ConnectionLost("no parent"))))
        assert isinstance(later, RetryLater)
        delays.append(later.delay_s)
        effects = session.retry(later.call)
    assert delays == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert "no parent" in session.why_waiting(call)
    number, _ = only_request(effects)
    (refused,) = session.take(reply(number, failed(LogBroken("/data", "full"))))
    assert isinstance(refused, CallRefused)
    assert isinstance(refused.error, LogBroken)


def test_a_subscription_that_nobody_waits_for_any_more_is_left_when_its_reply_comes() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    call, effects = session.subscribe(group())
    number, asked = only_request(effects)
    session.abandon(call)
    (leave,) = sent(session.take(reply(number, subscribed(asked, 1, 4.0))))
    assert isinstance(leave, frames.Leave)
    assert leave.group == asked.groups[0].group


def test_a_group_that_the_server_does_not_take_again_ends_and_the_others_go_on() -> None:
    session, one = session_with()
    other = group()
    _, effects = session.subscribe(other)
    number, asked = only_request(effects)
    session.take(reply(number, subscribed(asked, 10, 4.0)))
    number, asked = only_request(session.take(frames.encode(frames.Reset("parent", "gone"))))
    bad = Opened(one.number, 0, (), None, failed(UnknownTable("T")))
    good = opened(asked.groups[1], None)
    (ended,) = session.take(reply(number, Subscribed(10, EPOCH, (bad, good), {CHANNEL: SPEC}, {})))
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, UnknownTable)
    assert ended.group is one
    session.take(deliver(11, (11, 1.0)))
    assert other.listening.answer(int(other.listeners[0])) == 1.0


def test_leaving_while_the_link_is_interrupted_is_said_when_it_is_back_and_needless_on_a_fresh_one() -> None:
    for fresh, said in ((False, 1), (True, 0)):
        session, one = session_with()
        session.link_down()
        assert session.leave(one) == []
        leaves = [frame for frame in sent(session.link_up(fresh=fresh)) if isinstance(frame, frames.Leave)]
        assert len(leaves) == said


def test_members_that_left_are_left_out_when_subscribing_again_and_those_leaving_meanwhile_leave_again() -> None:
    session, many = session_with(4, overflow="latest")
    keep = many.listeners[[1, 3]].copy()
    (leave,) = sent(session.leave(many, many.listeners[[0]]))
    assert isinstance(leave, frames.Leave)
    assert leave.members is not None
    assert leave.members.tolist() == [0]
    number, asked = only_request(session.take(frames.encode(frames.Reset("parent", "gone"))))
    assert asked.groups[0].count == 3
    session.leave(many, many.listeners[[1]])
    (leave,) = sent(session.take(reply(number, subscribed(asked, 12, 3.0))))
    assert isinstance(leave, frames.Leave)
    assert leave.members is not None
    assert leave.members.tolist() == [1]
    assert many.listeners.tolist() == [keep[0], -1, keep[1]]
    assert many.listening.column(keep).tolist() == [3.0, 3.0]


def test_partitions_numbered_anew_by_another_server_are_followed() -> None:
    session, one = session_with()
    number, asked = only_request(session.take(frames.encode(frames.Reset("parent", "gone"))))
    moved = Opened(one.number, 99, ("MIN(Y)",), {"best": np.array([8.0])}, points=np.array([[4.0, 6.0]]))
    session.take(reply(number, Subscribed(1, OTHER, (moved,), {99: SPEC}, {})))
    session.take(deliver(2, (2, 1.0)))  # the old channel's number means nothing now
    assert one.listening.answer(int(one.listeners[0])) == 8.0
    session.take(frames.encode(frames.Deliver(3, {99: best_is((3, 2.0))})))
    assert one.listening.answer(int(one.listeners[0])) == 2.0
    assert asked.groups[0].group == one.number


def test_a_group_without_its_install_is_refused() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    _, effects = session.subscribe(group())
    number, asked = only_request(effects)
    body = subscribed(asked, 10, 4.0)
    (install,) = installs(body)
    for wrong in ((), (replace(install, group=99),), (replace(install, channel=99),)):
        session._sent[number] = next(iter(session._calls.values()))
        with pytest.raises(BadFrame, match="does not install all of its groups"):
            session.take(frames.encode(frames.Reply(number, (), wrong, bodies.encode(body))))


def test_points_reach_a_client_once() -> None:
    asked = Subscribe((Group(1, "SELECT MIN(Y) FROM T WHERE X BETWEEN ? AND ?", (), 25_000),))
    body = subscribed(asked, 10, 4.0)
    (install,) = installs(body)
    size = len(reply(1, body))
    assert install.points.nbytes + 25_000 * 8 < size < install.points.nbytes + 25_000 * 8 + 1000  # and an answer each


def test_a_subscribed_that_opens_other_groups_than_asked_for_is_the_peer_s_fault_and_asked_again() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    _, effects = session.subscribe(group())
    for change in (lambda groups: (), lambda groups: groups * 2, lambda groups: (replace(groups[0], group=99),)):
        number, asked = only_request(effects)
        right = subscribed(asked, 10, 4.0)
        with pytest.raises(BadFrame, match="does not answer what was asked"):
            session.take(reply(number, replace(right, groups=change(right.groups))))
        session.link_down()
        effects = session.link_up(fresh=True)
    number, asked = only_request(effects)
    (effect,) = session.take(reply(number, subscribed(asked, 10, 4.0)))
    assert isinstance(effect, GroupOpened)
    _, effects = session.call(Sync())
    with pytest.raises(BadFrame, match="does not answer what was asked"):
        session.take(reply(only_request(effects)[0], right))


# --- rows that were published one by one ------------------------------------------------------------------------


def gathered(number: int, *keys: object) -> bodies.Publish:
    return bodies.Publish("T", {"K": Mixed(keys), "X": Mixed((1.0,) * len(keys))}, None, b"p" * 16, number)


def test_a_bad_row_is_taken_out_and_the_rest_sent_again_under_the_same_number() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    call, effects = session.call(gathered(1, 1, "no", 3), apart=True, lazy=True)
    (first,) = sent(effects)
    assert isinstance(first, frames.Request)
    assert (first.apart, first.lazy) == (True, True)
    _, effects = session.call(gathered(2, 4, 5), apart=True)
    (second,) = sent(effects)
    assert isinstance(second, frames.Request)
    assert second.after == 1
    refusal, *effects = session.take(reply(first.id, failed(BadValue("T", 1, "K", "not an integer"))))
    assert isinstance(refusal, RowRefused)
    assert (refusal.call, refusal.row, str(refusal.error)) == (call, 1, str(BadValue("T", 0, "K", "not an integer")))
    (again,) = sent(effects)
    assert isinstance(again, frames.Request)
    body = bodies.decode(again.body)
    assert isinstance(body, bodies.Publish)
    assert (body.number, to_list(body.columns["K"]), again.apart) == (1, [1, 3], True)
    effects = session.take(reply(second.id, failed(OutOfTurn(2, 1))))  # it was behind the first as it was
    (behind,) = sent(effects)
    assert isinstance(behind, frames.Request)
    assert behind.after == 1
    receipts = bodies.Receipts(((again.id, 10, 11), (behind.id, 12, 13)))
    assert session.take(reply(behind.id, receipts)) == [
        CallAnswered(call, bodies.Done(10, 11)),
        CallAnswered(call + 1, bodies.Done(12, 13)),
    ]
    assert session.waiting == 0


def test_while_a_change_loses_row_after_row_those_behind_it_wait() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    _, effects = session.call(gathered(1, *range(9)), apart=True)
    behind, more = session.call(gathered(2, 10))
    (first, _), (second, _) = requests(effects + more)
    for refusals in range(1, 4):
        effects = session.take(reply(first, failed(BadValue("T", 0, "K", "no"))))
        ((first, _),) = requests(effects)
        if second:
            effects = session.take(reply(second, failed(OutOfTurn(2, 1))))
            ((second, _),) = requests(effects) if refusals == 1 else ((0, None),)
            assert (effects == []) == (refusals > 1)
    effects = session.take(reply(first, bodies.Done(1, 6)))
    ((second, _),) = requests(effects)
    assert session.take(reply(second, bodies.Done(7, 7))) == [CallAnswered(behind, bodies.Done(7, 7))]


def test_the_last_row_left_is_refused_like_any_change_and_a_missing_column_concerns_all_rows() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    call, effects = session.call(gathered(1, "a", "b"), apart=True)
    _, *effects = session.take(reply(requests(effects)[0][0], failed(BadValue("T", 0, "K", "no"))))
    (again,) = sent(effects)
    assert isinstance(again, frames.Request)
    assert not again.apart  # the server may take its number as refused: there is no more to come of it
    (refused,) = session.take(reply(again.id, failed(BadValue("T", 0, "K", "no"))))
    assert isinstance(refused, CallRefused)
    assert (refused.call, session.waiting) == (call, 0)
    call, effects = session.call(gathered(2, 1, 2), apart=True)
    missing = BadValue("T", 0, "ID", "the primary key is missing")
    (refused,) = session.take(reply(requests(effects)[0][0], failed(missing)))
    assert isinstance(refused, CallRefused)
    assert (refused.call, str(refused.error)) == (call, str(missing))


def test_receipts_that_come_together_overtake_held_frames_though_the_last_change_was_given_up() -> None:
    session = ClientSession()
    session.link_up(fresh=True)
    first, effects = session.call(gathered(1, 1), lazy=True)
    second, more = session.call(gathered(2, 2), lazy=True)
    (one, _), (two, _) = requests(effects + more)
    session.abandon(second)
    payload = reply(two, bodies.Receipts(((one, 1, 1), (two, 2, 2))))
    assert session.urgency(payload) == "overtakes"
    assert session.take(payload) == [CallAnswered(first, bodies.Done(1, 1))]
    assert session.urgency(payload) == "waits"  # nobody's any more
    _, effects = session.call(Sync())
    with pytest.raises(BadFrame, match="not a reply to Sync"):
        session.take(reply(9, bodies.Receipts(((only_request(effects)[0], 1, 1),))))
