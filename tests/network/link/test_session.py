"""The link session against its definition: what was sent comes out, in order, exactly once."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hullcast.network.link.header import (
    BUNDLE_BYTES,
    BUNDLE_FRAMES,
    DATA,
    Ack,
    Data,
    Header,
    Resend,
    decode,
    encode,
    read_data,
)
from hullcast.network.link.limits import ACK_BYTES, ACK_FRAMES, RESEND_WINDOWS, RESENDS_IGNORED, LinkLimits
from hullcast.network.link.session import LinkMessage, Session
from hullcast.network.wire.errors import BadFrame, BadSetting, Overloaded, TooLarge

LIMITS = LinkLimits(
    window_bytes=ACK_BYTES, window_frames=ACK_FRAMES, queue_bytes=2 * ACK_BYTES, queue_frames=3 * ACK_FRAMES
)


def take(session: Session, message: LinkMessage, now: float) -> list[bytes]:
    """Give a session a message as a listener or dialer does; the payloads that it hands over."""
    if message[0][:1] == DATA:
        return list(session.take_data(*read_data(message, LIMITS.message_bytes), now))
    header = decode(message[0])
    if isinstance(header, Ack):
        session.take_ack(header.ack, header.sent, now)
        if header.heartbeat_ms:
            session.pace(header.heartbeat_ms / 1000, header.silence_ms / 1000, now)
    else:
        assert isinstance(header, Resend)
        session.take_resend(header.start, now)
    return []


class End:
    """A session, what it was given, what it gave, and the messages on their way from it."""

    def __init__(self, leads: bool) -> None:
        self.session = Session(LIMITS, 0.0, leads=leads)
        self.sent: list[bytes] = []
        self.delivered: list[bytes] = []
        self.wire: deque[LinkMessage] = deque()

    def flush(self, now: float) -> None:
        """The end of a turn."""
        self.wire.extend(self.session.outgoing(now))
        assert not self.session.pressing
        assert self.session.outgoing(now) == []


ends = st.integers(0, 1)


class FaultPlan(RuleBasedStateMachine):
    """Two ends and a network that delivers, drops, doubles, holds back, and cuts."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = (End(leads=False), End(leads=True))
        self.now = 0.0
        self.connected = False
        self.number = 0

    @rule(
        end=ends,
        count=st.integers(1, 2 * BUNDLE_FRAMES),
        size=st.sampled_from([0, 3, 1000, BUNDLE_BYTES // 3, BUNDLE_BYTES, ACK_BYTES // 3, ACK_BYTES]),
        turns=st.booleans(),
    )
    def send(self, end: int, count: int, size: int, turns: bool) -> None:
        """Frames that leave together, or each in a turn of its own."""
        for _ in range(count):
            payload = self.number.to_bytes(4, "big") + bytes(size)
            self.number += 1
            try:
                self.ends[end].session.send(payload)
            except Overloaded:
                break
            self.ends[end].sent.append(payload)
            if turns:
                self.ends[end].flush(self.now)
        self.ends[end].flush(self.now)

    @rule(end=ends, count=st.integers(1, 100))
    def deliver(self, end: int, count: int) -> None:
        """Messages that arrive in one turn."""
        other = self.ends[1 - end]
        for _ in range(min(count, len(self.ends[end].wire))):
            other.delivered += take(other.session, self.ends[end].wire.popleft(), self.now)
        other.flush(self.now)

    @precondition(lambda self: self.ends[0].wire or self.ends[1].wire)
    @rule(end=ends, kind=st.sampled_from(["drop", "duplicate", "hold"]))
    def disturb(self, end: int, kind: str) -> None:
        wire = self.ends[end].wire
        if not wire:
            return
        if kind == "drop":
            wire.popleft()
        elif kind == "duplicate":
            wire.append(wire[0])
        else:
            wire.append(wire.popleft())

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        for end in self.ends:
            if end.session.tick(self.now):
                end.session.excuse(self.now - end.session.heard_at)  # another test is about silence
            end.flush(self.now)

    @rule(heartbeat_s=st.sampled_from([0.1, 0.5, 2.0]))
    def pace(self, heartbeat_s: float) -> None:
        _, parent = self.ends
        parent.session.pace(heartbeat_s, 8 * heartbeat_s, self.now)
        parent.flush(self.now)

    @rule(noticed=ends)
    def cut(self, noticed: int) -> None:
        """The connection and all on it are gone; one end notices, the other not before the next HELLO."""
        for end in self.ends:
            end.wire.clear()
        self.ends[noticed].session.detach()
        self.connected = False

    @rule()
    def connect(self) -> None:
        child, parent = self.ends
        for end in self.ends:
            end.wire.clear()
        child.session.detach()
        parent.session.attach(child.session.received, self.now)
        parent.flush(self.now)
        child.session.attach(parent.session.received, self.now)
        child.flush(self.now)
        self.connected = True

    @invariant()
    def sound(self) -> None:
        for end, other in (self.ends, self.ends[::-1]):
            end.session.check()
            assert end.delivered == other.sent[: len(end.delivered)]

    def teardown(self) -> None:
        """On a healthy connection everything arrives, and everything is acknowledged."""
        self.connect()
        for _ in range(200):
            while self.ends[0].wire or self.ends[1].wire:
                self.deliver(0, 1)
                self.deliver(1, 1)
            self.tick(0.5)
        for end, other in (self.ends, self.ends[::-1]):
            assert end.delivered == other.sent
            assert end.session.held_bytes == 0


TestFaultPlan = FaultPlan.TestCase


def attached(message_bytes: int | None = None) -> Session:
    session = Session(LIMITS, 0.0, message_bytes)
    session.attach(0, 0.0)
    assert session.outgoing(0.0) == []
    return session


def said(session: Session, now: float = 0.0) -> list[Header]:
    """The headers of all that it has to say."""
    return [decode(message[0]) for message in session.outgoing(now)]


def data(seq: int, *payloads: bytes, ack: int = 0) -> LinkMessage:
    """A message with these payloads."""
    lengths = tuple(map(len, payloads)) if len(payloads) > 1 else ()
    return encode(Data(seq, ack, lengths)), b"".join(payloads)


def test_frames_of_one_turn_leave_in_one_message() -> None:
    session = attached()
    session.send(b"a")
    assert session.outgoing(0.0) == [data(1, b"a")]
    for payload in (b"b", b"", b"cd"):
        session.send(payload)
    assert session.outgoing(0.0) == [data(2, b"b", b"", b"cd")]


def test_a_message_holds_so_many_frames_and_so_many_bytes() -> None:
    session = attached()
    for _ in range(BUNDLE_FRAMES + 2):
        session.send(b"a")
    assert [len(header.lengths) for header in said(session) if isinstance(header, Data)] == [BUNDLE_FRAMES, 2]
    session, half = attached(), bytes(BUNDLE_BYTES // 2)
    for payload in (half, half, half, bytes(2 * BUNDLE_BYTES), b"a", b"b"):
        session.send(payload)
    sizes = (BUNDLE_BYTES // 2, BUNDLE_BYTES // 2)
    assert said(session) == [Data(1, 0, sizes), Data(3, 0), Data(4, 0), Data(5, 0, (1, 1))]


def test_a_message_is_not_more_than_the_other_end_takes() -> None:
    session = attached(message_bytes=1024)
    for _ in range(3):
        session.send(bytes(400))
    assert said(session) == [Data(1, 0, (400, 400)), Data(3, 0)]


def test_beyond_the_window_frames_wait_for_acknowledgements() -> None:
    session = attached()
    for _ in range(ACK_FRAMES + 5):
        session.send(b"a")
    headers = said(session)
    assert sum(len(header.lengths) for header in headers if isinstance(header, Data)) == ACK_FRAMES
    assert not session.pressing
    session.take_ack(3, 0, 0.0)
    assert said(session) == [Data(ACK_FRAMES + 1, 0, (1, 1, 1))]
    session, third = attached(), bytes(ACK_BYTES // 3)  # and by their bytes
    for _ in range(4):
        session.send(third)
    assert said(session) == [Data(1, 0), Data(2, 0), Data(3, 0)]


def test_a_full_queue_refuses_and_stays_as_it_was() -> None:
    session = attached()
    for _ in range(LIMITS.queue_frames):
        session.send(b"")
    with pytest.raises(Overloaded) as caught:
        session.send(b"")
    assert (caught.value.queue, caught.value.limit) == (
        "messages waiting for one peer (queue_frames)",
        LIMITS.queue_frames,
    )
    session.check()
    session = attached()
    session.send(bytes(ACK_BYTES))
    session.send(bytes(ACK_BYTES))
    with pytest.raises(Overloaded):
        session.send(b"a")


def test_a_frame_the_other_end_would_not_take_is_refused() -> None:
    with pytest.raises(TooLarge) as caught:
        Session(LIMITS, 0.0, message_bytes=1024).send(bytes(1025))
    assert (caught.value.size, caught.value.limit) == (1025, 1024)


def test_acknowledgements_come_in_bulk_and_with_the_heartbeat() -> None:
    session = attached()
    acks = []
    for n in range(1, 2 * ACK_FRAMES + 2):
        take(session, data(n, b"a"), 0.0)
        if said(session):
            acks.append(n)
    assert acks == [ACK_FRAMES, 2 * ACK_FRAMES]
    session.tick(0.4)
    assert said(session, 0.4) == []  # it waits for the heartbeat, and with it for something to send
    session.tick(0.5)
    assert said(session, 0.5) == [Ack(2 * ACK_FRAMES + 1, 0)]
    session.tick(0.9)
    assert said(session, 0.9) == []
    session.tick(1.0)
    assert said(session, 1.0) == [Ack(2 * ACK_FRAMES + 1, 0)]


def test_what_is_sent_acknowledges_too() -> None:
    session = attached()
    for n in range(1, ACK_FRAMES + 1):
        take(session, data(n, b"a"), 0.0)
    session.send(b"b")
    assert said(session) == [Data(1, ACK_FRAMES)]
    assert not session.pressing


def test_large_frames_are_acknowledged_by_their_bytes() -> None:
    session = attached()
    assert take(session, data(1, bytes(ACK_BYTES)), 0.0) == [bytes(ACK_BYTES)]
    assert said(session) == [Ack(1, 0)]


def test_of_a_bundle_that_was_partly_there_the_rest_is_taken() -> None:
    session = attached()
    assert take(session, data(1, b"a", b"b"), 0.0) == [b"a", b"b"]
    assert take(session, data(1, b"a", b"b"), 0.0) == []
    assert take(session, data(2, b"b", b"c", b"d"), 0.0) == [b"c", b"d"]
    assert (session.received, session.statistics().duplicates) == (4, 3)


def test_a_gap_asks_once_until_a_heartbeat_passed() -> None:
    session = attached()
    assert take(session, data(3, b"c"), 0.0) == []
    assert said(session) == [Resend(1)]
    assert take(session, data(4, b"d", b"e"), 0.0) == []
    assert said(session) == []
    session.tick(0.5)
    session.outgoing(0.5)
    session.take_ack(0, 5, 0.6)
    assert said(session, 0.6) == [Resend(1)]


def test_a_heartbeat_is_answered_while_both_ends_are_awake() -> None:
    session = attached()
    session.take_ack(0, 0, 0.2)
    assert said(session, 0.2) == []  # too early: it would answer back
    session.take_ack(0, 0, 0.25)
    assert said(session, 0.25) == [Ack(0, 0)]
    assert session.due_at == 0.75


def test_the_parent_sets_the_pace() -> None:
    parent, child = Session(LIMITS, 0.0, leads=True), attached()
    parent.pace(10.0, 40.0, 0.0)
    parent.attach(0, 0.0)
    assert not parent.pressing  # WELCOME has said so
    assert parent.tick(5.0) == 0
    assert said(parent, 5.0) == []
    assert parent.tick(10.0) == 0
    assert said(parent, 10.0) == [Ack(0, 0, 10_000, 40_000)]
    assert parent.tick(39.0) == 0
    child.pace(10.0, 40.0, 0.0)
    assert child.tick(39.9) == 0
    assert said(child, 39.9) == [Ack(0, 0)]
    parent.pace(0.5, 4.0, 30.0)  # the child has not heard of that yet, and gets the time it takes
    parent.send(b"a")
    assert said(parent, 30.0) == [Data(1, 0), Ack(0, 1, 500, 4000)]  # also where it has other things to say
    parent.pace(0.5, 4.0, 31.0)
    assert not parent.pressing
    assert parent.tick(33.9) == 0
    assert said(parent, 33.9) == [Ack(0, 1, 500, 4000)]
    assert parent.tick(34.0) == 4.0


def test_a_pace_that_grows_step_by_step_gives_no_more_time_than_there_was() -> None:
    parent = Session(LIMITS, 0.0, leads=True)
    parent.pace(10.0, 40.0, 0.0)
    parent.attach(0, 0.0)
    silence_s = 40.0
    for now in range(1, 40):
        silence_s -= 0.1
        parent.pace(10.0, silence_s, float(now))
        assert parent.tick(float(now)) == 0
    assert parent.tick(40.0) > 0


def flying() -> Session:
    """A session with a whole window handed over."""
    session = attached()
    for _ in range(ACK_FRAMES):
        session.send(bytes(ACK_BYTES // ACK_FRAMES))
    assert frames(session, 0.0) == ACK_FRAMES
    return session


def frames(session: Session, now: float) -> int:
    """How many frames are in all that it has to say."""
    return sum(len(header.lengths) or 1 for header in said(session, now) if isinstance(header, Data))


def test_asking_again_and_again_is_heeded_once_in_a_heartbeat() -> None:
    session = flying()
    session.take_resend(1, 0.0)
    assert frames(session, 0.0) == ACK_FRAMES
    for _ in range(RESENDS_IGNORED):
        session.take_resend(1, 0.4)
        assert not session.pressing
    assert session.statistics().ignored == RESENDS_IGNORED
    session.check()
    session.take_resend(1, 0.5)
    assert frames(session, 0.5) == ACK_FRAMES


def test_what_an_ignored_one_acknowledges_is_acknowledged() -> None:
    session = flying()
    session.take_resend(1, 0.0)
    session.outgoing(0.0)
    session.take_resend(11, 0.1)
    assert not session.pressing
    assert session.statistics().unacknowledged_frames == ACK_FRAMES - 10


def test_who_asks_for_frames_for_sport_breaks_the_protocol() -> None:
    session = flying()
    for _ in range(1 + RESENDS_IGNORED):
        session.take_resend(1, 0.0)
        session.outgoing(0.0)
    with pytest.raises(BadFrame, match="resend asked for"):
        session.take_resend(1, 0.0)
    assert session.statistics().resent == ACK_FRAMES


def test_who_has_more_and_more_sent_again_and_acknowledges_next_to_nothing_breaks_the_protocol() -> None:
    session = flying()

    def ask_for_ever() -> None:
        for n in range(ACK_FRAMES):  # each time one frame fewer
            session.take_resend(n + 1, float(n))
            session.outgoing(float(n))

    with pytest.raises(BadFrame, match="asked for again"):
        ask_for_ever()
    assert session.statistics().resent <= RESEND_WINDOWS * ACK_FRAMES


def test_losses_are_mended_for_ever_when_frames_are_acknowledged_in_between() -> None:
    session = flying()
    for n in range(10 * RESEND_WINDOWS):
        session.take_resend(n * ACK_FRAMES + 1, float(n))
        assert frames(session, float(n)) == ACK_FRAMES
        session.take_ack((n + 1) * ACK_FRAMES, 0, n + 0.5)
        for _ in range(ACK_FRAMES):
            session.send(bytes(ACK_BYTES // ACK_FRAMES))
        session.outgoing(n + 0.5)
    session.check()


def test_silence_is_noticed_and_excused_when_this_process_stood_still() -> None:
    session = attached()
    assert session.tick(LIMITS.silence_s) == LIMITS.silence_s
    session.excuse(1.0)
    assert session.tick(LIMITS.silence_s) == 0
    assert said(session, LIMITS.silence_s) == [Ack(0, 0)]


def test_what_cannot_be_true_is_a_bad_frame() -> None:
    session = attached()
    session.send(b"a")
    session.outgoing(0.0)
    for message in ((encode(Ack(2, 0)),), data(1, b"", ack=2), (encode(Resend(3)),)):
        with pytest.raises(BadFrame):
            take(session, message, 0.0)
    session.take_ack(1, 0, 0.0)
    with pytest.raises(BadFrame):
        session.attach(0, 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"heartbeat_s": 0.0},
        {"heartbeat_s": float("nan")},
        {"silence_s": 1.0},
        {"window_bytes": 1},
        {"queue_bytes": 1 << 20},
        {"peers": 0},
        {"backoff_most_s": 0.01},
    ],
)
def test_limits_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadSetting):
        LinkLimits(**wrong)  # type: ignore[arg-type]  # names are checked by the call
