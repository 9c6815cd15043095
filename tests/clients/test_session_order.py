"""The changes of one client are applied in the order of their calls and once each, whatever happens on the way.

Here the client's session meets the server's receipts over a made-up network: paths that keep the order of what they
carry, as links do, but may break with anything on them. A path that the client has left may still bring the server
what was on it, at any later time; its replies reach nobody.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hullcast.broker.log.publishers import Publishers, scoped
from hullcast.clients.sdk.effects import CallAnswered, CallRefused, Effect, RetryLater, SendFrame
from hullcast.clients.sdk.session import ClientSession
from hullcast.network.wire import bodies, frames
from hullcast.network.wire.errors import (
    ConnectionLost,
    HullcastError,
    Overloaded,
    Superseded,
    Unavailable,
    UnknownTable,
    to_wire,
)

PUBLISHER = b"p" * 16
MOST = 12  # changes without a reply; a client has such a limit too, below the number of receipts kept
BUSY = Overloaded("a queue", 1)


@dataclass
class Path:
    """What is on the way between a client and the server."""

    up: deque[frames.Request] = field(default_factory=deque)
    down: deque[bytes] = field(default_factory=deque)


class Order(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.session = ClientSession()
        self.path = Path()
        self.left: list[Path] = []  # paths the client is not on any more, with what they may still bring
        self.publishers = Publishers()
        self.applied: list[int] = []  # by the server, in this order
        self.synced = 0  # so many of these a restart does not take
        self.unsynced: list[tuple[Path, bytes]] = []  # replies that wait for the disk
        self.calls: dict[int, int] = {}  # number of a change by its call
        self.waiting: set[int] = set()  # numbers that the user waits for
        self.given_up: set[int] = set()
        self.timers: set[int] = set()
        self.answered: dict[int, int] = {}  # sequence number by change
        self.refused: dict[int, HullcastError] = {}
        self.bad: set[int] = set()  # the server refuses these for good, always

    @initialize()
    def connect(self) -> None:
        self.perform(self.session.link_up(fresh=True))

    # --- the user --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.session.waiting < MOST)
    @rule(good=st.sampled_from([True, True, True, False]))
    def call(self, good: bool) -> None:
        number = len(self.calls) + 1
        if not good:
            self.bad.add(number)
        call, effects = self.session.call(bodies.Execute("DROP TABLE T", PUBLISHER, number))
        self.calls[call] = number
        self.waiting.add(number)
        self.perform(effects)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.waiting)))
        self.waiting.remove(number)
        self.given_up.add(number)
        self.perform(self.session.abandon(next(call for call, given in self.calls.items() if given == number)))

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
    @rule()
    def sync(self) -> None:
        self.synced = len(self.applied)
        for path, reply in self.unsynced:
            path.down.append(reply)
        self.unsynced = []

    @rule(whole=st.booleans())
    def restart(self, whole: bool) -> None:
        """What was not synced may be gone; replies that waited for it are."""
        if not whole:
            del self.applied[self.synced :]
        self.synced = len(self.applied)
        self.unsynced = []
        again = Publishers()
        for seq, number in enumerate(self.applied, 1):
            again.applied(scoped("", PUBLISHER), number, seq, seq)
        self.publishers = again
        self.left.clear()  # the server's links end with it, and the nodes' queues with these
        self.path.up.clear()
        self.move(quiet=True)

    def arrive(self, path: Path, node: HullcastError | None, busy: bool) -> None:
        request = path.up.popleft()
        if node is not None:
            path.down.append(reply(request, bodies.Failed(*to_wire(node))))
        elif busy:
            self.unsynced.append((path, reply(request, bodies.Failed(*to_wire(BUSY)))))
        else:
            self.unsynced.append((path, reply(request, self.handle(request))))

    def handle(self, request: frames.Request) -> bodies.Body:
        """As the server's brain does it."""
        body = bodies.decode(request.body)
        assert isinstance(body, bodies.Execute)
        publisher = scoped("", body.publisher)
        try:
            done = self.publishers.judge(publisher, body.number, request.after, request.again)
        except HullcastError as error:
            return bodies.Failed(*to_wire(error))
        if done is not None:
            return bodies.Done(*done)
        if body.number in self.bad:
            self.publishers.refused(publisher, body.number)
            return bodies.Failed(*to_wire(UnknownTable("T")))
        self.applied.append(body.number)
        seq = len(self.applied)
        self.publishers.applied(publisher, body.number, seq, seq)
        return bodies.Done(seq, seq)

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
                    self.answered[self.calls[call]] = done.last
                    self.waiting.remove(self.calls[call])
                case CallRefused(call, error):
                    self.refused[self.calls[call]] = error
                    self.waiting.remove(self.calls[call])
                case _:
                    raise AssertionError(effect)

    # --- what must hold ----------------------------------------------------------------------------------------

    @invariant()
    def changes_are_applied_in_order_and_once(self) -> None:
        assert self.applied == sorted(set(self.applied))

    @invariant()
    def replies_are_true(self) -> None:
        for number, seq in self.answered.items():
            assert self.applied[seq - 1] == number
        for number, error in self.refused.items():
            assert not isinstance(error, Unavailable)
            # good ones are never refused; of a bad one the reply may be lost, and a later one be applied
            assert number in self.bad
            assert isinstance(error, UnknownTable | Superseded)
        assert not self.bad & set(self.applied)

    def teardown(self) -> None:
        """When nothing goes wrong any more, everything that somebody waits for is answered."""
        for _ in range(100 * (len(self.waiting) + 1)):
            if not self.waiting:
                break
            while self.path.up:
                self.arrive(self.path, None, busy=False)
            self.sync()
            while self.path.down:
                self.down()
            for call in sorted(self.timers):
                self.timers.remove(call)
                self.perform(self.session.retry(call))
        assert not self.waiting
        self.changes_are_applied_in_order_and_once()
        self.replies_are_true()
        answered = set(self.answered) | set(self.refused) | self.given_up
        assert answered == set(self.calls.values())


def reply(request: frames.Request, body: bodies.Body) -> bytes:
    return frames.encode(frames.Reply(request.id, (), (), bodies.encode(body)))


TestOrder = Order.TestCase
TestOrder.settings = settings(stateful_step_count=60)
