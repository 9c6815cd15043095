"""The router sends each client exactly its messages, and each node all of them, however commands interleave."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hullcast.broker.server.settings import ServerSettings
from hullcast.network.matching.messages import unreachable
from hullcast.network.node.settings import NodeSettings
from hullcast.network.routing import carve, cover, table
from hullcast.network.routing.router import BUDGET, Router
from hullcast.network.routing.table import MANY
from hullcast.network.wire.columns import take
from hullcast.network.wire.errors import BadFrame
from hullcast.network.wire.frames import Install, Interest, Withdrawn
from tests.support.routes import QUESTIONS, Question

FORMS = {question.channel: question for question in QUESTIONS}
seeds = st.integers(0, 2**32 - 1)
channels = st.sampled_from(sorted(FORMS))
Points = np.ndarray[Any, np.dtype[np.float64]]
Rows = np.ndarray[Any, np.dtype[np.int64]]


def install(question: Question, group: int, points: Points, counted: bool = False) -> Install:
    return Install(group, question.channel, question.form, question.partitioned, points, counted)


def multiset(points: Points) -> Counter[tuple[float, ...]]:
    return Counter(map(tuple, points.tolist()))


MESSAGES = 66  # at a time: much of what can be said on the grid, and more than one word of bits


class Wanted:
    """What clients want, as plain dicts: (channel, points) by (client, group); a withdrawn member is NaN."""

    def __init__(self) -> None:
        self.groups: dict[tuple[int, int], tuple[int, Points]] = {}

    def of(self, client: int, channel: int) -> Points:
        found = [points for (who, _), (what, points) in self.groups.items() if (who, what) == (client, channel)]
        width = FORMS[channel].coordinates
        points: Points = np.concatenate([np.empty((0, width)), *found])
        return points[~np.isnan(points).any(axis=1)]

    def forget(self, client: int) -> None:
        for key in [key for key in self.groups if key[0] == client]:
            del self.groups[key]


class Chain(RuleBasedStateMachine):
    """Three routers in a chain, clients at each, and links that keep order but take their time.

    A message is judged where and when it arrives: it must have come if it concerns anything that lives there, since
    that was installed above before the message was sent. All interleavings of replies, messages, interests,
    withdrawals, resets and losses of the path are drawn; few clients, groups and channels, so that they meet.

    Where points are counted, the server knows them from the moment it installs them until they are withdrawn: never
    fewer than clients have, and exactly those when all is quiet.
    """

    LEVELS = 3
    CLIENTS = (1, 2)
    levels, clients, groups = st.sampled_from([2, 1, 0]), st.sampled_from(CLIENTS), st.integers(0, 1)
    sizes = st.sampled_from([1, 2, 3, 0, MANY, 2 * MANY])

    @initialize(budget=st.sampled_from([2, 8, 64]), channel=channels, counted=st.booleans())
    def start(self, budget: int, channel: int, counted: bool = False) -> None:
        self.channel, self.counted = channel, counted
        self.known: Counter[tuple[float, ...]] = (
            Counter()
        )  # what the server knows to be wanted, where points are counted
        self.routers = [Router(budget, tells=level > 0) for level in range(self.LEVELS)]
        self.wanted = [Wanted() for _ in self.routers]
        self.node = [100] * self.LEVELS  # the number of the node below, as each level knows it
        self.peers = [dict.fromkeys(self.CLIENTS, 0) for _ in self.routers]  # client -> its peer number
        self.down: list[deque[tuple[Any, ...]]] = [deque() for _ in self.routers]  # to the level below
        self.up: list[deque[Interest | Withdrawn]] = [deque() for _ in self.routers]  # from the level below
        self.numbers = 1_000
        for level, router in enumerate(self.routers):
            if level + 1 < self.LEVELS:
                router.join(self.node[level], exact=False)
            for client in self.CLIENTS:
                self.connect(level, client)

    def connect(self, level: int, client: int) -> None:
        self.numbers += 1
        self.peers[level][client] = self.numbers
        self.routers[level].join(self.numbers, exact=True)

    # --- what users do -----------------------------------------------------------------------------------------

    @rule(level=levels, client=clients, group=groups, n=sizes, seed=seeds, at_once=st.booleans())
    def subscribe(self, level: int, client: int, group: int, n: int, seed: int, at_once: bool) -> None:
        question = FORMS[self.channel]
        points = question.points(np.random.default_rng(seed), n)
        self.known += multiset(self.loud(points))
        self.reply(0, level, self.peers[level][client], (install(question, group, points, self.counted),))
        if at_once:
            self.frames_arrive_below(0, 99)

    @rule(level=levels, client=clients, group=groups, seed=seeds, all_of_it=st.booleans(), tells=st.booleans())
    def withdraw(self, level: int, client: int, group: int, seed: int, all_of_it: bool, tells: bool) -> None:
        peer = self.peers[level][client]
        members = np.random.default_rng(seed).integers(0, 2 * MANY, MANY)
        self.routers[level].withdraw(peer, group, None if all_of_it else members)
        if (peer, group) in self.wanted[level].groups:
            points = self.wanted[level].groups[peer, group][1]
            points[slice(None) if all_of_it else members[members < len(points)]] = np.nan
        if tells:
            self.node_tells_its_parent(level)

    @rule(level=levels, client=clients, tells=st.booleans())
    def a_client_leaves_and_another_joins(self, level: int, client: int, tells: bool) -> None:
        self.routers[level].leave(self.peers[level][client])
        self.wanted[level].forget(self.peers[level][client])
        self.connect(level, client)
        if tells:
            self.node_tells_its_parent(level)

    @rule(seed=seeds)
    def publish(self, seed: int) -> None:
        columns = FORMS[self.channel].messages(np.random.default_rng(seed), MESSAGES)
        self.deliver(0, self.channel, columns, np.arange(MESSAGES, dtype=np.int64))

    # --- what links do -----------------------------------------------------------------------------------------

    @rule(level=st.integers(0, LEVELS - 2), count=st.integers(1, 3))
    def frames_arrive_below(self, level: int, count: int) -> None:
        for below in range(level, self.LEVELS - 1):
            for _ in range(min(count, len(self.down[below]))):
                action, *arguments = self.down[below].popleft()
                action(below + 1, *arguments)

    @rule(level=st.integers(0, LEVELS - 2), tells=st.booleans())
    def a_frame_arrives_above(self, level: int, tells: bool) -> None:
        if self.up[level]:
            self.hear_from_below(level)
            if tells:
                self.node_tells_its_parent(level)

    def hear_from_below(self, level: int) -> None:
        frame = self.up[level].popleft()
        if isinstance(frame, Interest):
            self.routers[level].interest(self.node[level], frame)
        else:
            self.routers[level].withdrawn(self.node[level], frame)

    @rule(level=levels, most=st.sampled_from([1, 100, 9_999]))
    def node_tells_its_parent(self, level: int, most: int = 100) -> None:
        """At level 0 it is the server, and what went goes to its channel. A link may not take all at once."""
        router = self.routers[level]
        if level:
            self.up[level - 1].extend(router.interests())
        while router.withdrawals and most:
            most -= 1
            channel, lost, points = router.withdrawals.take(8 * 16)
            assert channel == self.channel
            if level:
                self.up[level - 1].append(Withdrawn(channel, router.resets, lost, points))
            else:
                self.known.subtract(multiset(points))
                assert min(self.known.values()) >= 0, "a point was withdrawn twice"
        assert not (self.counted and router.interests()), "an Interest where points are counted"

    @rule(level=levels, luck=st.integers(0, 3))
    def installs_become_void(self, level: int, luck: int) -> None:
        """An update is too large for the node below; at the server, the allow list was read again."""
        if luck:
            return
        if level == 0:
            self.reset(0)
        elif level + 1 < self.LEVELS:
            self.routers[level].void(self.node[level])
            self.down[level].append((self.reset,))

    @rule(level=st.integers(1, LEVELS - 1), luck=st.integers(0, 7))
    def a_node_loses_its_parent_and_comes_back(self, level: int, luck: int) -> None:
        if luck:
            return  # rarely: it makes all begin anew
        self.down[level - 1].clear()
        self.up[level - 1].clear()
        self.routers[level - 1].leave(self.node[level - 1])
        self.node[level - 1] += 1
        self.routers[level - 1].join(self.node[level - 1], exact=False)
        self.reset(level, fresh_link=True)

    def teardown(self) -> None:
        """When all is quiet, nobody up the chain believes in interest that is not there; where points are counted, all
        know exactly what there is."""
        if not hasattr(self, "routers"):
            return
        self.frames_arrive_below(0, 9_999)
        for level in reversed(range(self.LEVELS)):
            while self.up[level]:
                self.hear_from_below(level)
            self.node_tells_its_parent(level, 1 << 60)
        if self.counted:
            assert +self.known == multiset(self.living(0))
            probe = FORMS[self.channel].messages(np.random.default_rng(self.numbers), MESSAGES)
            for level in range(self.LEVELS - 1):
                rows = routed_rows(self.routers[level], self.channel, probe).get(self.node[level], [])
                assert rows == np.flatnonzero(FORMS[self.channel].concerned(self.living(level + 1), probe)).tolist()
        for level, router in enumerate(self.routers):
            groups = [group for wanted in self.wanted[level:] for group in wanted.groups.values()]
            below = {what for what, points in groups if not unreachable(points, FORMS[what].dimensions).all()}
            assert set(router.channels()) <= below

    def loud(self, points: Points) -> Points:
        """Those that a message can concern: no others are counted."""
        return points[~unreachable(points, FORMS[self.channel].dimensions)]

    def living(self, level: int) -> Points:
        """The points that clients have at this level and below."""
        return self.loud(
            np.concatenate(
                [
                    wanted.of(peer, self.channel)
                    for wanted, peers in zip(self.wanted[level:], self.peers[level:], strict=True)
                    for peer in peers.values()
                ]
            )
        )

    # --- the frames --------------------------------------------------------------------------------------------

    def reply(self, level: int, target: int, peer: int, installs: tuple[Install, ...]) -> None:
        if level < target:
            self.routers[level].install(self.node[level], *installs)
            self.down[level].append((self.reply, target, peer, installs))
            return
        self.routers[level].install(peer, *installs)
        if peer in self.peers[level].values():
            for one in installs:
                self.wanted[level].groups[peer, one.group] = one.channel, one.points.copy()

    def deliver(self, level: int, channel: int, columns: dict[str, Any], rows: Rows) -> None:
        routed = dict(self.routers[level].route(channel, take(columns, rows)))
        for peer in self.peers[level].values():
            expected = np.flatnonzero(FORMS[channel].concerned(self.wanted[level].of(peer, channel), columns))
            assert set(expected.tolist()) <= set(rows.tolist()), "a message was lost above"
            got = routed.pop(peer, rows[:0])
            assert (rows if got is None else rows[got]).tolist() == expected.tolist()
        if self.node[level] in routed and level + 1 < self.LEVELS:
            got = routed.pop(self.node[level])
            self.down[level].append((self.deliver, channel, columns, rows if got is None else rows[got]))
        elif level + 1 < self.LEVELS:
            self.down[level].append((self.deliver, channel, columns, rows[:0]))
        assert not routed, "somebody unknown gets messages"

    def reset(self, level: int, *, fresh_link: bool = False) -> None:
        self.routers[level].clear(fresh_link=fresh_link)
        self.wanted[level].groups.clear()
        if level + 1 < self.LEVELS:
            self.down[level].append((self.reset,))

    @invariant()
    def structures_are_sound(self) -> None:
        for router in getattr(self, "routers", ()):
            router.check()

    @invariant()
    def what_lives_below_or_is_on_its_way_would_be_reached_now(self) -> None:
        """The same promise, at every moment: a message sent now arrives after all that is under way."""
        if not hasattr(self, "routers"):
            return
        question = FORMS[self.channel]
        probe = question.messages(np.random.default_rng(self.numbers), MESSAGES)
        for level in range(self.LEVELS - 1):
            under_way = [frame for queue in self.down[level:] for frame in queue]
            if any(frame[0] == self.reset for frame in under_way):
                continue  # what lives below is void
            points = [one.points for frame in under_way if frame[0] == self.reply for one in frame[3]]
            points += [group for wanted in self.wanted[level + 1 :] for _, group in wanted.groups.values()]
            needed = question.concerned(np.concatenate([np.empty((0, question.coordinates)), *points]), probe)
            rows = routed_rows(self.routers[level], self.channel, probe).get(self.node[level], [])
            assert set(np.flatnonzero(needed).tolist()) <= set(rows), "a message would be lost"

    @invariant()
    def the_server_knows_every_range_that_somebody_has(self) -> None:
        if not getattr(self, "counted", False) or any(frame[0] == self.reset for queue in self.down for frame in queue):
            return
        assert multiset(self.living(0)) <= self.known


Chain.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestChain = Chain.TestCase


@pytest.mark.parametrize(
    ("question", "counted"), [*((question, False) for question in QUESTIONS[:4]), (QUESTIONS[3], True)], ids=str
)
def test_long_histories_lose_nothing(question: Question, counted: bool) -> None:
    """The same chain, driven through hundreds of interests or withdrawals that cross installs and resets."""
    random = np.random.default_rng(question.channel)
    chain = Chain()
    chain.start([2, 8, 64][question.channel % 3], question.channel, counted)
    for step in range(1_200):
        seed, level, client = int(random.integers(2**32)), int(random.choice([0, 1, 2, 2])), int(random.choice([1, 2]))
        match int(random.integers(12)):
            case 0 | 1 | 2:
                n = int(random.choice([1, 1, 2, 3, MANY, 2 * MANY]))
                chain.subscribe(level, client, int(random.integers(2)), n, seed, bool(random.random() < 0.3))
            case 3 | 4:
                chain.withdraw(level, client, int(random.integers(2)), seed, bool(random.random() < 0.7), True)
            case 5:
                chain.a_client_leaves_and_another_joins(level, client, True)
            case 6:
                chain.publish(seed)
            case 7 | 8:
                chain.frames_arrive_below(int(random.integers(2)), int(random.integers(1, 4)))
            case _:
                chain.a_frame_arrives_above(int(random.integers(2)), True)
        if random.random() < 0.01:
            chain.a_node_loses_its_parent_and_comes_back(int(random.integers(1, 3)), 0)
        if random.random() < 0.02:
            chain.installs_become_void(int(random.choice([0, 1, 1])), 0)
        chain.the_server_knows_every_range_that_somebody_has()
        chain.what_lives_below_or_is_on_its_way_would_be_reached_now()
        if step % 20 == 0:
            chain.structures_are_sound()
    chain.teardown()


def routed_rows(router: Router, channel: int, columns: dict[str, Any]) -> dict[int, list[int]]:
    n = len(columns["seq"])
    return {peer: list(range(n)) if rows is None else rows.tolist() for peer, rows in router.route(channel, columns)}


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_small_and_large_clients_get_exactly_their_messages(question: Question) -> None:
    random = np.random.default_rng(7)
    router, wanted = Router(), {}
    for peer in range(60):
        router.join(peer, exact=True)
        wanted[peer] = question.points(random, 500 if peer < 3 else int(random.integers(1, 4)))
        router.install(peer, install(question, 0, wanted[peer]))
    router.check()
    columns = question.messages(random, 300)
    found = routed_rows(router, question.channel, columns)
    for peer, points in wanted.items():
        assert found.get(peer, []) == np.flatnonzero(question.concerned(points, columns)).tolist()
    statistics = router.statistics()
    assert statistics.messages == 300
    assert statistics.routed == sum(statistics.routed_to.values()) == sum(map(len, found.values()))
    assert statistics.filtered == len(statistics.held) * 300 - statistics.routed


def test_all_rows_are_given_as_none_and_nobody_is_listed_for_nothing() -> None:
    question = FORMS[5]
    router = Router()
    for peer in (1, 2, 3):
        router.join(peer, exact=peer < 3)
    router.install(1, install(question, 0, np.zeros((1, 1))))
    router.install(2, install(question, 0, np.zeros((2 * MANY, 1))))
    there = np.ones(70, np.bool_)
    columns: dict[str, Any] = {"seq": np.arange(70), "old.there": there, "new.there": ~there}
    assert sorted(router.route(5, columns)) == [(1, None), (2, None)]
    assert router.route(5, {name: column[:0] for name, column in columns.items()}) == []
    assert router.route(9, columns) == []
    assert router.statistics().unknown == 70


def test_without_pruning_nodes_get_everything_and_clients_theirs() -> None:
    question = FORMS[1]
    router = Router(everything=True)
    router.join(1, exact=True)
    router.join(2, exact=False)
    router.join(3, exact=False)
    far = np.array([[1e6, 1e6]])
    router.install(1, install(question, 0, far))
    router.install(2, install(question, 0, far))
    assert router.route(1, question.messages(np.random.default_rng(0), 9)) == [(2, None)]


def test_a_group_is_replaced_by_another_of_the_same_number() -> None:
    router = Router()
    router.join(1, exact=True)
    router.install(1, install(FORMS[1], 7, np.array([[0.0, 1.0], [0.0, 2.0]])))
    router.install(1, install(FORMS[3], 7, np.array([[0.0, 1.0]])))
    assert router.channels() == (3,)
    assert router.statistics().held[0].points == 1


def test_a_channel_keeps_the_form_of_its_first_install() -> None:
    router = Router()
    router.join(1, exact=True)
    router.join(2, exact=False)
    router.install(1, install(FORMS[1], 0, np.zeros((1, 2))))
    with pytest.raises(BadFrame, match="another form"):
        router.install(1, Install(1, 1, "places", False, np.zeros((1, 2))))
    with pytest.raises(BadFrame, match="from a client"):
        router.interest(1, Interest(1, 0, np.zeros((1, 2)), np.zeros((1, 2))))
    for lows, highs in ((np.zeros((1, 3)), np.ones((1, 3))), (np.ones((1, 2)), np.zeros((1, 2)))):
        with pytest.raises(BadFrame, match="boxes"):
            router.interest(2, Interest(1, 0, lows, highs))


def test_the_parent_is_told_of_half_and_of_nothing() -> None:
    question, router = FORMS[1], Router(8)
    router.join(1, exact=True)
    router.join(2, exact=False)
    x = np.arange(100.0)
    router.install(1, install(question, 0, np.column_stack((x, x))))
    router.install(2, install(question, 0, np.array([[-7.0, -7.0]])))
    assert router.interests() == []
    router.withdraw(1, 0, np.arange(50))
    assert router.interests() == []
    router.withdraw(1, 0, np.arange(52))
    (told,) = router.interests()
    assert (told.channel, told.heard) == (1, 2)
    assert len(told.lows) <= 8
    assert told.lows.min() == -7
    assert told.highs.max() == 99
    assert not ((told.lows <= 40) & (told.highs >= 10)).all(axis=1).any()
    assert router.interests() == []
    router.leave(1)
    router.interest(2, Interest(1, 1, np.empty((0, 2)), np.empty((0, 2))))
    (told,) = router.interests()
    assert (told.channel, told.heard, len(told.lows)) == (1, 2, 0)
    assert router.interests() == []
    assert router.channels() == ()


def place(*numbers: float) -> Points:
    return np.array([numbers])


def gone(router: Router) -> list[tuple[int, bool, list[list[float]]]]:
    """What went, all of it."""
    found = []
    while router.withdrawals:
        channel, lost, points = router.withdrawals.take(1 << 20)
        found.append((channel, lost, sorted(points.tolist())))
    return found


def counted_router(*, tells: bool = True) -> Router:
    """A client 1 with the ranges 0 to 1 and 0 to 2 (a group each), and a node 2 with 0 to 1 twice."""
    router = Router(8, tells=tells)
    router.join(1, exact=True)
    router.join(2, exact=False)
    router.install(1, install(FORMS[3], 1, place(0, 1), True), install(FORMS[3], 2, place(0, 2), True))
    router.install(2, install(FORMS[3], 1, np.array([[0.0, 1.0], [0.0, 1.0], [np.inf, -np.inf]]), True))
    return router


def test_counted_points_go_up_once_each_and_say_whether_they_were_lost() -> None:
    router = counted_router()
    router.withdraw(1, 1)
    router.withdrawn(2, Withdrawn(3, 0, False, place(0, 1)))
    router.withdrawn(2, Withdrawn(3, 0, True, np.array([[0.0, 1.0]] * 3 + [[5.0, 6.0]])))  # more than it has
    assert gone(router) == [(3, False, [[0, 1], [0, 1]]), (3, True, [[0, 1]])]
    router.install(1, install(FORMS[3], 2, place(7, 8), True))  # another group under its number
    assert gone(router) == [(3, False, [[0, 2]])]
    router.leave(1)
    router.install(1, install(FORMS[3], 1, np.array([[3.0, 4.0], [np.inf, -np.inf]]), True))  # it has gone meanwhile
    assert gone(router) == [(3, True, [[3, 4], [7, 8]])]
    assert router.channels() == ()
    assert router.interests() == router.unwanted() == []


def test_withdrawals_from_before_a_reset_do_not_touch_what_was_installed_after_it() -> None:
    router = counted_router()
    router.void(2)
    assert gone(router) == [(3, True, [[0, 1], [0, 1]])]
    router.install(2, install(FORMS[3], 1, place(0, 1), True))
    router.withdrawn(2, Withdrawn(3, 0, False, place(0, 1)))
    assert gone(router) == []
    router.withdrawn(2, Withdrawn(3, 1, False, place(0, 1)))
    assert gone(router) == [(3, False, [[0, 1]])]
    router.leave(2)
    router.join(3, exact=False)  # the same node on a fresh link
    router.install(3, install(FORMS[3], 1, place(0, 1), True))
    router.withdrawn(2, Withdrawn(3, 1, False, place(0, 1)))
    assert gone(router) == []
    router.withdrawn(3, Withdrawn(3, 0, False, place(0, 1)))
    assert gone(router) == [(3, False, [[0, 1]])]


@pytest.mark.parametrize("fresh_link", [True, False])
def test_a_node_whose_installs_its_parent_voids_withdraws_nothing_of_them(fresh_link: bool) -> None:
    router = counted_router()
    router.withdraw(1, 1)
    router.clear(fresh_link=fresh_link)
    assert router.resets == (0 if fresh_link else 1)
    assert gone(router) == []
    router.leave(1)
    router.withdrawn(2, Withdrawn(3, 1, False, place(0, 1)))
    assert gone(router) == []


def test_at_the_server_installs_that_become_void_are_lost() -> None:
    router = counted_router(tells=False)
    router.withdraw(1, 1)
    router.clear(fresh_link=False)
    assert gone(router) == [(3, False, [[0, 1]]), (3, True, [[0, 1], [0, 1], [0, 2]])]
    router.withdrawn(2, Withdrawn(3, 0, False, place(0, 1)))
    assert gone(router) == []


def test_a_withdrawn_that_makes_no_sense_is_refused_or_passed_over() -> None:
    router = counted_router()
    router.install(2, install(FORMS[1], 1, place(0, 1)))
    for peer, frame, why in (
        (1, Withdrawn(3, 0, False, place(0, 1)), "from a client"),
        (2, Withdrawn(3, 1, False, place(0, 1)), "1 resets, of which 0"),
        (2, Withdrawn(3, 0, False, place(0, 1, 2)), "do not fit"),
        (2, Withdrawn(1, 0, False, place(0, 1)), "do not fit"),
    ):
        with pytest.raises(BadFrame, match=why):
            router.withdrawn(peer, frame)
    with pytest.raises(BadFrame, match="are counted"):
        router.interest(2, Interest(3, 1, place(0, 1), place(0, 1)))
    with pytest.raises(BadFrame, match="another form"):
        router.install(2, install(FORMS[3], 1, place(0, 1)))
    router.withdrawn(9, Withdrawn(3, 0, False, place(0, 1)))
    router.withdrawn(2, Withdrawn(99, 0, False, place(0, 1)))
    router.withdrawn(2, Withdrawn(3, 0, False, place(0, 2)))  # the client's, not the node's
    router.withdrawn(2, Withdrawn(3, 0, False, np.empty((0, 2))))
    assert gone(router) == []
    router.check()


def test_many_counted_points_cost_little_memory_and_go_in_portions() -> None:
    random = np.random.default_rng(1)
    low = np.round(random.random((50_000, 2)) * 1e6)
    points = np.column_stack((low[:, 0], low[:, 0] + 5, low[:, 1], low[:, 1] + 5))
    router = Router()
    router.join(1, exact=False)
    router.install(1, Install(1, 7, "places", False, points, True))
    router.install(1, Install(2, 7, "places", False, points[:20_000], True))
    (held,) = router.statistics().held
    assert held.points == 70_000
    assert held.bytes < 150 * 50_000
    router.withdrawn(1, Withdrawn(7, 0, True, points[:30_000]))
    assert router.statistics().held[0].points == 40_000
    assert len(gone(router)[0][2]) == 30_000
    router.withdrawn(1, Withdrawn(7, 0, True, points[:20_000]))
    router.withdrawn(1, Withdrawn(7, 0, True, points[30_000:]))
    assert router.channels() == ()


def test_a_reply_for_a_client_that_has_gone_is_counted_and_its_channel_called_off() -> None:
    router = Router()
    router.install(5, install(FORMS[1], 0, np.zeros((3, 2))))
    assert router.heard == 1
    (told,) = router.interests()
    assert (told.channel, told.heard, len(told.lows)) == (1, 1, 0)


def test_an_interest_keeps_installs_that_are_younger() -> None:
    question, router = FORMS[1], Router()
    router.join(1, exact=False)
    for group in range(5):
        router.install(1, install(question, group, np.full((1, 2), float(group))))
    router.interest(1, Interest(1, 3, np.array([[9.0, 9.0]]), np.array([[9.0, 9.0]])))
    x = np.arange(10.0)
    columns = {"seq": np.arange(10), "il": x, "ir": x, "ol": x - 0.5, "or": x + 0.5}
    assert routed_rows(router, 1, columns) == {1: [3, 4, 9]}


@pytest.mark.parametrize("heard", range(13))
def test_installs_that_became_boxes_for_want_of_room_are_kept_as_long_as_any_of_them_is_young(heard: int) -> None:
    question, router = FORMS[1], Router(2)
    router.join(1, exact=False)
    for group in range(12):
        router.install(1, install(question, group, np.full((1, 2), float(group))))
    nothing = np.empty((0, 2))
    router.interest(1, Interest(1, heard, nothing, nothing))
    x = np.arange(12.0)
    columns = {"seq": np.arange(12), "il": x, "ir": x, "ol": x - 0.5, "or": x + 0.5}
    assert set(routed_rows(router, 1, columns).get(1, [])) >= set(range(heard, 12))
    assert router.channels() == ((1,) if heard < 12 else ())


def test_partitions_are_held_while_somebody_may_ask_for_them() -> None:
    question, router = FORMS[6], Router(2, tells=False)
    router.join(1, exact=True)
    router.join(2, exact=False)
    numbers = np.arange(10.0)
    assert not router.partitions_held(6, numbers).any()
    router.install(1, install(question, 0, np.array([[2.0], [4.0]])))
    assert np.flatnonzero(router.partitions_held(6, numbers)).tolist() == [2, 4]
    router.install(2, install(question, 0, np.array([[7.0], [8.0]])))
    assert np.flatnonzero(router.partitions_held(6, numbers)).tolist() == [2, 4, 7, 8]
    router.withdraw(1, 0)
    router.interest(2, Interest(6, 1, np.array([[8.0]]), np.array([[9.0]])))
    assert np.flatnonzero(router.partitions_held(6, numbers)).tolist() == [8, 9]


def test_memory_returns_after_ten_thousand_clients_have_come_and_gone() -> None:
    question, random = FORMS[2], np.random.default_rng(3)
    router = Router(tells=False)
    router.join(0, exact=True)
    router.install(0, install(question, 0, question.points(random, 3)))
    before = size_of(router)
    peers = list(range(1, 10_001))
    for peer in peers:
        router.join(peer, exact=True)
        router.install(peer, install(question, 0, question.points(random, 200 if peer % 500 == 0 else 2)))
    full = size_of(router)
    assert full > 10 * before
    for turn in range(3):  # a steady coming and going
        for peer in random.permutation(peers)[:1_000].tolist():
            router.leave(peer)
            router.join(peer, exact=True)
            router.install(peer, install(question, turn, question.points(random, 2)))
    assert size_of(router) < 2 * full
    router.check()
    for peer in random.permutation(peers).tolist():
        router.leave(peer)
    router.check()
    assert size_of(router) < 4 * before
    assert router.channels() == (2,)
    router.leave(0)
    assert router.channels() == ()
    assert router.statistics().held == ()


def size_of(router: Router) -> int:
    """Bytes, and objects that could leak."""
    return sum(held.bytes for held in router.statistics().held)


def test_a_node_that_never_tells_anything_costs_no_more_than_its_budget() -> None:
    question, random, router = FORMS[1], np.random.default_rng(3), Router(16)
    router.join(1, exact=False)
    for group in range(2_000):
        router.install(1, install(question, group, question.points(random, 1)))
    (held,) = router.statistics().held
    assert held.boxes <= 16
    assert held.bytes <= 3 * 16 * 2 * 2 * 8


def test_every_kernel_of_routing_is_compiled_once() -> None:
    random = np.random.default_rng(0)
    for question in QUESTIONS:
        router = Router(4)
        for peer in range(4):
            router.join(peer, exact=peer < 2)
            for group, n in enumerate((1, 3, 2 * MANY, 5, 1)):
                points = question.points(random, n)
                points.setflags(write=peer % 2 == 0)
                router.install(peer, install(question, group, points))
        router.route(question.channel, question.messages(random, 20))
        router.leave(0)
        for interest in router.interests():
            router.interest(2, interest)
    for module in (carve, cover, table):
        for value in vars(module).values():
            assert len(getattr(value, "signatures", ())) <= 1, value


def test_the_budget_that_is_measured_is_the_one_that_servers_and_nodes_have() -> None:
    assert ServerSettings().cover_budget == NodeSettings(parent=("tcp://127.0.0.1:1",)).cover_budget == BUDGET


def test_groups_of_clients_are_counted_when_they_go_however_they_go() -> None:
    router = Router()
    for peer, owner in ((1, "ann"), (2, "ann"), (3, "bob")):
        router.join(peer, exact=True, owner=owner)
    router.join(9, exact=False)
    never = np.array([[np.inf, -np.inf]])
    for peer in (1, 2, 3, 9):
        router.install(peer, *(Install(group, 5, "rectangles", False, np.array([[0.0, 1.0]])) for group in (1, 2)))
    assert not router.left
    router.withdraw(1, 1)
    router.withdraw(1, 1)  # which it does not have
    router.withdraw(9, 1)
    assert router.left == {("ann", 5): 1}
    router.install(1, Install(2, 6, "rectangles", False, np.array([[0.0, 1.0]])))  # in place of the other
    assert router.left == {("ann", 5): 2}
    router.install(3, Install(3, 5, "rectangles", False, never))
    assert router.left[("bob", 5)] == 1
    router.install(3, Install(4, 5, "rectangles", False, np.array([[0.0, 1.0]])), taken=False)
    assert router.left[("bob", 5)] == 2
    router.leave(2)
    assert router.left == {("ann", 5): 4, ("bob", 5): 2}
    router.install(2, Install(7, 6, "rectangles", False, np.array([[0.0, 1.0]])))  # the reply comes too late
    assert router.left[("ann", 6)] == 1
    router.void(3)
    assert router.left[("bob", 5)] == 4
    router.clear(fresh_link=False)
    assert router.left[("ann", 6)] == 2
    router.clear()
    assert not router.left


def test_an_interest_of_very_many_boxes_is_one_around_them() -> None:
    router, n = Router(8, tells=False), 50_000
    router.join(1, exact=False)
    router.install(1, Install(1, 5, "places", False, np.zeros((1, 16))))
    lows = np.random.default_rng(1).random((n, 16))
    router.interest(1, Interest(5, 1, lows, lows + 1))
    assert router.statistics().held[0].boxes == 1
    router.check()
    low, high = router._tables[5].boxes()
    assert (low[0] <= lows.min(axis=0)).all()
    assert (high[0] >= (lows + 1).max(axis=0)).all()
