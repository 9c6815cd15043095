"""The changes of one client are applied in the order of their calls and once each, whatever happens on the way; and so
are rows that were published one by one and travel together, of which bad ones are refused alone.

Here the client's session meets the server's receipts over a made-up network: paths that keep the order of what they
carry, as links do, but may break with anything on them. A path that the client has left may still bring the server
what was on it, at any later time; its replies reach nobody.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hullcast.broker.log.publishers import Publishers, scoped
from hullcast.clients.sdk.effects import CallAnswered, CallRefused, Effect, RetryLater, RowRefused, SendFrame
from hullcast.clients.sdk.session import ClientSession
from hullcast.network.wire import bodies, frames
from hullcast.network.wire.errors import (
    BadValue,
    ConnectionLost,
    HullcastError,
    Overloaded,
    Superseded,
    Unavailable,
    to_wire,
)
from hullcast.network.wire.value_columns import Mixed
from hullcast.network.wire.values import to_list

PUBLISHER = b"p" * 16
MOST = 12  # changes without a reply; a client has such a limit too, below the number of receipts kept
BUSY = Overloaded("a queue", 1)


@dataclass
class Path:
    """What is on the way between a client and the server."""

    up: deque[frames.Request] = field(default_factory=deque)
    down: deque[bytes] = field(default_factory=deque)


class Order(RuleBasedStateMachine):
    """Each change has rows, numbered in the order they were published; one that is no Publish counts as one row."""

    def __init__(self) -> None:
        super().__init__()
        self.session = ClientSession()
        self.path = Path()
        self.left: list[Path] = []  # paths the client is not on any more, with what they may still bring
        self.publishers = Publishers()
        self.applied: list[int] = []  # rows, by the server, in this order
        self.changes: list[tuple[int, int, int]] = []  # applied: number, first and last update
        self.synced = 0  # so many of these a restart does not take
        self.unsynced: list[tuple[Path, int, bodies.Body]] = []  # replies that wait for the disk, with their requests
        self.rows = 0  # published
        self.calls: dict[int, list[int]] = {}  # by call that somebody waits for: the rows still in it
        self.next_change = 1
        self.given_up: set[int] = set()  # rows
        self.timers: set[int] = set()
        self.answered: dict[int, int] = {}  # sequence number by row
        self.refused: dict[int, HullcastError] = {}
        self.bad: set[int] = set()  # rows that the server refuses for good, always

    @initialize()
    def connect(self) -> None:
        self.perform(self.session.link_up(fresh=True))

    # --- the user --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.session.waiting < MOST)
    @rule(good=st.sampled_from([True, True, True, False]))
    def call(self, good: bool) -> None:
        (row,) = self.publish([good])
        self.made(self.session.call(bodies.Execute(str(row), PUBLISHER, self.next_change)), [row])

    @precondition(lambda self: self.session.waiting < MOST)
    @rule(good=st.lists(st.sampled_from([True, True, False]), min_size=1, max_size=4), lazy=st.booleans())
    def gathered(self, good: list[bool], lazy: bool) -> None:
        rows = self.publish(good)
        body = bodies.Publish(
            "T", {"K": Mixed(tuple(rows)), "X": Mixed((1.0,) * len(rows))}, None, PUBLISHER, self.next_change
        )
        self.made(self.session.call(body, apart=len(rows) > 1, lazy=lazy), rows)

    def publish(self, good: list[bool]) -> list[int]:
        rows = list(range(self.rows + 1, self.rows + 1 + len(good)))
        self.rows += len(rows)
        self.bad |= {row for row, fine in zip(rows, good, strict=True) if not fine}
        return rows

    def made(self, call: tuple[int, list[Effect]], rows: list[int]) -> None:
        self.next_change += 1
        self.calls[call[0]] = rows
        self.perform(call[1])

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(sorted(self.calls)))
        self.given_up |= set(self.calls.pop(call))
        self.perform(self.session.abandon(call))

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def timer(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(sorted(self.timers)))
        self.timers.remove(call)
        self.perform(self.session.retry(call))

    # --- the way ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.path.up)
    @rule(node=st.sampled_from([None, None, None, BUSY, ConnectionLost("no parent")]), busy=st.booleans())
    def up(self, node: HullcastError | None, busy: bool) -> None:
        """The next request: refused by a node, by a server that is busy, or handled."""
        self.arrive(self.path, node, busy)

    @precondition(lambda self: any(path.up for path in self.left))
    @rule(data=st.data(), busy=st.booleans())
    def up_late(self, data: st.DataObject, busy: bool) -> None:
        """The next request on a path that the client has left."""
        self.arrive(data.draw(st.sampled_from([path for path in self.left if path.up])), None, busy)

    @precondition(lambda self: self.path.down)
    @rule()
    def down(self) -> None:
        self.perform(self.session.take(self.path.down.popleft()))

    @rule(quiet=st.booleans())
    def move(self, quiet: bool) -> None:
        """The client loses its path and takes another, at once or after a while; or a node tells it to begin anew."""
        self.left.append(self.path)
        self.path = Path()
        if quiet:
            self.perform(self.session.take(frames.encode(frames.Reset("moved", "another way"))))
        else:
            self.perform(self.session.link_down())
            self.perform(self.session.link_up(fresh=True))

    # --- the server ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.unsynced)
    @rule(together=st.booleans())
    def sync(self, together: bool) -> None:
        """The replies leave; receipts that follow one another on a path may travel together."""
        self.synced = len(self.changes)
        receipts: list[tuple[int, int, int]] = []
        for (path, request, body), (next_path, _, follows) in pairwise([*self.unsynced, (Path(), 0, bodies.Sync())]):
            if together and isinstance(body, bodies.Done):
                receipts.append((request, body.first, body.last))
                if path is next_path and isinstance(follows, bodies.Done):
                    continue
                body = bodies.Receipts(tuple(receipts))
                receipts = []
            path.down.append(frames.encode(frames.Reply(request, (), (), bodies.encode(body))))
        self.unsynced = []

    @rule(whole=st.booleans())
    def restart(self, whole: bool) -> None:
        """What was not synced may be gone; replies that waited for it are."""
        if not whole:
            del self.changes[self.synced :]
            del self.applied[self.changes[-1][2] if self.changes else 0 :]
        self.synced = len(self.changes)
        self.unsynced = []
        again = Publishers()
        for change in self.changes:
            again.applied(scoped("", PUBLISHER), *change)
        self.publishers = again
        self.left.clear()  # the server's links end with it, and the nodes' queues with these
        self.path.up.clear()
        self.move(quiet=True)

    def arrive(self, path: Path, node: HullcastError | None, busy: bool) -> None:
        request = path.up.popleft()
        if node is not None:
            failed = bodies.encode(bodies.Failed(*to_wire(node)))
            path.down.append(frames.encode(frames.Reply(request.id, (), (), failed)))
        elif not isinstance(bodies.decode(request.body), bodies.GiveUp):  # this makes nothing, and has no reply
            self.unsynced.append((path, request.id, bodies.Failed(*to_wire(BUSY)) if busy else self.handle(request)))

    def handle(self, request: frames.Request) -> bodies.Body:
        """As the server does it."""
        body = bodies.decode(request.body)
        assert isinstance(body, bodies.Execute | bodies.Publish)
        publisher = scoped("", body.publisher)
        try:
            done = self.publishers.judge(publisher, body.number, request.after, request.again)
        except HullcastError as error:
            return bodies.Failed(*to_wire(error))
        if done is not None:
            return bodies.Done(*done)
        rows = [int(body.sql)] if isinstance(body, bodies.Execute) else to_list(body.columns["K"])
        bad = [row for row in rows if row in self.bad]
        if bad:
            if not request.apart:
                self.publishers.refused(publisher, body.number)
            return bodies.Failed(*to_wire(BadValue("T", rows.index(bad[-1]), "K", f"row {bad[-1]}")))
        first, last = len(self.applied) + 1, len(self.applied) + len(rows)
        self.applied += rows
        self.changes.append((body.number, first, last))
        self.publishers.applied(publisher, body.number, first, last)
        return bodies.Done(first, last)

    # --- what the session wants --------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendFrame(payload):
                    request = frames.decode(payload)
                    assert isinstance(request, frames.Request)
                    self.path.up.append(request)
                case RetryLater(call):
                    self.timers.add(call)
                case CallAnswered(call, done):
                    assert isinstance(done, bodies.Done)
                    rows = self.calls.pop(call)
                    assert len(rows) == done.last - done.first + 1
                    self.answered |= dict(zip(rows, range(done.first, done.last + 1), strict=True))
                case CallRefused(call, error):
                    self.refused |= dict.fromkeys(self.calls.pop(call), error)
                case RowRefused(call, at, error):
                    assert isinstance(error, BadValue)
                    row = self.calls[call].pop(at)
                    assert (error.row, error.reason) == (0, f"row {row}")
                    self.refused[row] = error
                case _:
                    raise AssertionError(effect)

    # --- what must hold ----------------------------------------------------------------------------------------

    @invariant()
    def rows_are_applied_in_order_and_once(self) -> None:
        assert self.applied == sorted(set(self.applied))

    @invariant()
    def replies_are_true(self) -> None:
        for row, seq in self.answered.items():
            assert self.applied[seq - 1] == row
        for row, error in self.refused.items():
            assert not isinstance(error, Unavailable)
            # good ones are never refused; of a bad one the reply may be lost, and a later one be applied
            assert row in self.bad
            assert isinstance(error, BadValue | Superseded)
        assert not self.bad & set(self.applied)

    def teardown(self) -> None:
        """When nothing goes wrong any more, everything that somebody waits for is answered."""
        for _ in range(100 * (self.rows + 1)):
            if not self.calls:
                break
            while self.path.up:
                self.arrive(self.path, None, busy=False)
            self.sync(together=True)
            while self.path.down:
                self.down()
            for call in sorted(self.timers):
                self.timers.remove(call)
                self.perform(self.session.retry(call))
        assert not self.calls
        self.rows_are_applied_in_order_and_once()
        self.replies_are_true()
        assert set(self.answered) | set(self.refused) | self.given_up == set(range(1, self.rows + 1))


TestOrder = Order.TestCase
TestOrder.settings = settings(stateful_step_count=60)
