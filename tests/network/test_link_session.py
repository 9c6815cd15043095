"""The link session against its definition: what was sent comes out, in order, exactly once."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hullcast.network.link.header import Ack, Data, Header, Resend, decode
from hullcast.network.link.limits import ACK_BYTES, ACK_FRAMES, RESEND_WINDOWS, RESENDS_IGNORED, LinkLimits
from hullcast.network.link.session import LinkEffect, Received, Session, Silent, Transmit
from hullcast.network.wire.errors import BadFrame, BadSetting, Overloaded, TooLarge

LIMITS = LinkLimits(
    window_bytes=ACK_BYTES, window_frames=ACK_FRAMES, queue_bytes=2 * ACK_BYTES, queue_frames=3 * ACK_FRAMES
)


class End:
    """A session, what it was given, what it gave, and the messages on their way from it."""

    def __init__(self) -> None:
        self.session = Session(LIMITS, 0.0)
        self.sent: list[bytes] = []
        self.delivered: list[bytes] = []
        self.wire: deque[Transmit] = deque()

    def perform(self, effects: list[LinkEffect] | list[Transmit]) -> None:
        for effect in effects:
            if isinstance(effect, Transmit):
                self.wire.append(effect)
            elif isinstance(effect, Received):
                self.delivered.append(effect.payload)

    def take(self, message: Transmit, now: float) -> None:
        header = decode(message.header)
        assert isinstance(header, Data | Ack | Resend)
        self.perform(self.session.receive(header, message.payload, now))


ends = st.integers(0, 1)


class FaultPlan(RuleBasedStateMachine):
    """Two ends and a network that delivers, drops, doubles, holds back, and cuts."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = (End(), End())
        self.now = 0.0
        self.connected = False
        self.number = 0

    @rule(end=ends, count=st.integers(1, 40), size=st.sampled_from([0, 3, 1000, ACK_BYTES // 3, ACK_BYTES]))
    def send(self, end: int, count: int, size: int) -> None:
        for _ in range(count):
            payload = self.number.to_bytes(4, "big") + bytes(size)
            self.number += 1
            try:
                self.ends[end].perform(self.ends[end].session.send(payload, self.now))
            except Overloaded:
                return
            self.ends[end].sent.append(payload)

    @rule(end=ends, count=st.integers(1, 100))
    def deliver(self, end: int, count: int) -> None:
        for _ in range(min(count, len(self.ends[end].wire))):
            self.ends[1 - end].take(self.ends[end].wire.popleft(), self.now)

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
            effects = end.session.tick(self.now)
            if any(isinstance(effect, Silent) for effect in effects):
                end.session.excuse(self.now - end.session.heard_at)  # another test is about silence
            else:
                end.perform(effects)

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
        parent.perform(parent.session.attach(child.session.received, self.now))
        child.perform(child.session.attach(parent.session.received, self.now))
        self.connected = True

    @invariant()
    def sound(self) -> None:
        for end, other in (self.ends, self.ends[::-1]):
            end.session.check()
            assert end.delivered == other.sent[: len(end.delivered)]

    def teardown(self) -> None:
        """On a healthy connection everything arrives, and everything is acknowledged."""
        self.connect()
        for _ in range(100):
            while self.ends[0].wire or self.ends[1].wire:
                self.deliver(0, 1)
                self.deliver(1, 1)
            self.tick(0.5)
        for end, other in (self.ends, self.ends[::-1]):
            assert end.delivered == other.sent
            assert end.session.held_bytes == 0


TestFaultPlan = FaultPlan.TestCase


def attached() -> Session:
    session = Session(LIMITS, 0.0)
    assert session.attach(0, 0.0) == []
    return session


def headers(effects: list[LinkEffect] | list[Transmit]) -> list[Header]:
    return [decode(effect.header) for effect in effects if isinstance(effect, Transmit)]


def test_a_frame_goes_out_at_once() -> None:
    assert headers(attached().send(b"a", 0.0)) == [Data(1, 0)]


def test_beyond_the_window_frames_wait_for_acknowledgements() -> None:
    session = attached()
    transmits = [transmit for _ in range(ACK_FRAMES + 5) for transmit in session.send(b"a", 0.0)]
    assert len(transmits) == ACK_FRAMES
    assert len(headers(session.receive(Ack(3, 0), None, 0.0))) == 3


def test_a_full_queue_refuses_and_stays_as_it_was() -> None:
    session = attached()
    for _ in range(LIMITS.queue_frames):
        session.send(b"", 0.0)
    with pytest.raises(Overloaded) as caught:
        session.send(b"", 0.0)
    assert (caught.value.queue, caught.value.limit) == ("queue_frames", LIMITS.queue_frames)
    session.check()
    session = attached()
    session.send(bytes(ACK_BYTES), 0.0)
    session.send(bytes(ACK_BYTES), 0.0)
    with pytest.raises(Overloaded):
        session.send(b"a", 0.0)


def test_a_frame_the_other_end_would_not_take_is_refused() -> None:
    with pytest.raises(TooLarge) as caught:
        Session(LIMITS, 0.0, message_bytes=1024).send(bytes(1025), 0.0)
    assert (caught.value.size, caught.value.limit) == (1025, 1024)


def test_acknowledgements_come_in_bulk_and_with_the_heartbeat() -> None:
    session = attached()
    said = [headers(session.receive(Data(n, 0), b"a", 0.0)) for n in range(1, 2 * ACK_FRAMES + 2)]
    assert [n for n, header in enumerate(said, 1) if header] == [ACK_FRAMES, 2 * ACK_FRAMES]
    assert headers(session.tick(0.1)) == [Ack(2 * ACK_FRAMES + 1, 0)]
    assert headers(session.tick(0.2)) == []
    assert headers(session.tick(0.6)) == [Ack(2 * ACK_FRAMES + 1, 0)]


def test_large_frames_are_acknowledged_by_their_bytes() -> None:
    assert headers(attached().receive(Data(1, 0), bytes(ACK_BYTES), 0.0)) == [Ack(1, 0)]


def test_a_gap_asks_once_until_a_heartbeat_passed() -> None:
    session = attached()
    assert headers(session.receive(Data(3, 0), b"c", 0.0)) == [Resend(1)]
    assert headers(session.receive(Data(4, 0), b"d", 0.0)) == []
    session.tick(0.5)
    assert headers(session.receive(Ack(0, 4), None, 0.6)) == [Resend(1)]


def flying() -> Session:
    """A session with a whole window handed over."""
    session = attached()
    for _ in range(ACK_FRAMES):
        session.send(bytes(ACK_BYTES // ACK_FRAMES), 0.0)
    return session


def test_asking_again_and_again_is_heeded_once_in_a_heartbeat() -> None:
    session = flying()
    assert len(session.receive(Resend(1), None, 0.0)) == ACK_FRAMES
    for _ in range(RESENDS_IGNORED):
        assert session.receive(Resend(1), None, 0.4) == []
    assert session.statistics().ignored == RESENDS_IGNORED
    session.check()
    assert len(session.receive(Resend(1), None, 0.5)) == ACK_FRAMES


def test_what_an_ignored_one_acknowledges_is_acknowledged() -> None:
    session = flying()
    session.receive(Resend(1), None, 0.0)
    assert session.receive(Resend(11), None, 0.1) == []
    assert session.statistics().unacknowledged_frames == ACK_FRAMES - 10


def test_who_asks_for_frames_for_sport_breaks_the_protocol() -> None:
    session = flying()
    for _ in range(1 + RESENDS_IGNORED):
        session.receive(Resend(1), None, 0.0)
    with pytest.raises(BadFrame, match="resend asked for"):
        session.receive(Resend(1), None, 0.0)
    assert session.statistics().resent == ACK_FRAMES


def test_who_has_more_and_more_sent_again_and_acknowledges_next_to_nothing_breaks_the_protocol() -> None:
    session = flying()

    def ask_for_ever() -> None:
        for n in range(ACK_FRAMES):  # each time one frame fewer
            session.receive(Resend(n + 1), None, float(n))

    with pytest.raises(BadFrame, match="asked for again"):
        ask_for_ever()
    assert session.statistics().resent <= RESEND_WINDOWS * ACK_FRAMES


def test_losses_are_mended_for_ever_when_frames_are_acknowledged_in_between() -> None:
    session = flying()
    for n in range(10 * RESEND_WINDOWS):
        assert len(session.receive(Resend(n * ACK_FRAMES + 1), None, float(n))) == ACK_FRAMES
        session.receive(Ack((n + 1) * ACK_FRAMES, 0), None, n + 0.5)
        for _ in range(ACK_FRAMES):
            session.send(bytes(ACK_BYTES // ACK_FRAMES), n + 0.5)
    session.check()


def test_silence_is_noticed_and_excused_when_this_process_stood_still() -> None:
    session = attached()
    assert session.tick(LIMITS.silence_s) == [Silent(LIMITS.silence_s)]
    session.excuse(1.0)
    assert headers(session.tick(LIMITS.silence_s)) == [Ack(0, 0)]


def test_what_cannot_be_true_is_a_bad_frame() -> None:
    session = attached()
    session.send(b"a", 0.0)
    for header in (Ack(2, 0), Data(1, 2), Resend(3)):
        with pytest.raises(BadFrame):
            session.receive(header, b"", 0.0)
    with pytest.raises(BadFrame):
        attached().receive(Data(1, 0), None, 0.0)
    session.receive(Ack(1, 0), None, 0.0)
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
