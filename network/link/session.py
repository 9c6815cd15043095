"""What one end of a link remembers so that nothing is lost, nothing comes twice and order holds. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from hullcast.network.link.header import Ack, Data, Resend, encode, encode_data
from hullcast.network.link.limits import (
    ACK_BYTES,
    ACK_FRAMES,
    RESEND_BYTES,
    RESEND_WINDOWS,
    RESENDS_IGNORED,
    LinkLimits,
)
from hullcast.network.wire.errors import BadFrame, InvariantBroken, Overloaded, TooLarge


class Transmit(NamedTuple):
    """Put this message on the connection, in order."""

    header: bytes
    payload: bytes | None


class Received(NamedTuple):
    """Hand this payload to the application, in order."""

    payload: bytes


class Silent(NamedTuple):
    """The other end was not heard for `seconds`: it is gone."""

    seconds: float


LinkEffect: TypeAlias = Transmit | Received | Silent


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    """Counters since the session began, and what it holds now."""

    sent: int
    received: int
    resent: int
    duplicates: int
    gaps: int
    ignored: int
    unacknowledged_frames: int
    unacknowledged_bytes: int
    waiting_frames: int


class Session:
    """Sequence numbers, acknowledgements and the frames that may have to be sent again.

    Frames from the application, the oldest on the left; each deque's numbers are consecutive::

        acknowledged | flying: handed to ZeroMQ | waiting: the window is full, or there is no connection
              acked  | acked+1 ..       flown   | flown+1 ..                                        last

    Invariants (`check` tests them):
      L1  acked + len(flying) + len(waiting) = last, and `flown` = acked + len(flying).
      L2  The bytes counted for flying and for waiting are theirs.
      L3  Without a connection nothing flies.
      L4  At most `queue_frames` and `queue_bytes` are held (one frame always fits).
      L5  Nothing waits while a connection is there and the window has room.

    Go-back-N, and no buffer for frames that come early: a connection keeps order, so frames are missing only when it
    broke, and then HELLO and WELCOME say where to begin again. RESEND covers all other losses of a frame. It is a few
    bytes that make us hand a window to ZeroMQ once more, where it is not counted: so it is obeyed once in a heartbeat
    (an end that misses frames asks again then), and an end that asks for much more than it acknowledges is closed.
    """

    __slots__ = (
        "_acked", "_again_bytes", "_asked", "_connected", "_duplicates", "_flying", "_flying_bytes", "_gaps",
        "_heard_at", "_heeded_at", "_highest", "_ignored", "_last", "_limits", "_message_bytes", "_owed_bytes",
        "_owed_frames", "_received", "_resent", "_spoke_at", "_unheeded", "_waiting", "_waiting_bytes",
    )  # fmt: skip

    def __init__(self, limits: LinkLimits, now: float, message_bytes: int | None = None) -> None:
        """A session without a connection; `message_bytes` is what the other end accepts."""
        self._limits = limits
        self._message_bytes = limits.message_bytes if message_bytes is None else message_bytes
        self._connected = False
        self._acked = self._last = self._highest = 0  # highest: ever handed over, so the other end may know it
        self._flying: deque[bytes] = deque()
        self._waiting: deque[bytes] = deque()
        self._flying_bytes = self._waiting_bytes = 0
        self._received = 0
        self._owed_frames = self._owed_bytes = 0  # received, not yet acknowledged
        self._asked = 0  # the start we asked for with RESEND, until it comes or a heartbeat passes
        self._heard_at = self._spoke_at = now
        self._resent = self._duplicates = self._gaps = self._ignored = 0
        self._heeded_at = -math.inf  # when a RESEND was last heeded
        self._unheeded = 0  # how many were not, since then
        self._again_bytes = 0  # sent again because of them, beyond what was acknowledged

    @property
    def received(self) -> int:
        """The last frame of the other end that was delivered here."""
        return self._received

    @property
    def sent(self) -> int:
        """The number of the last frame taken from the application."""
        return self._last

    @property
    def acknowledged(self) -> int:
        """Up to which of them the other end has all."""
        return self._acked

    @property
    def heard_at(self) -> float:
        """When the other end was last heard."""
        return self._heard_at

    @property
    def connected(self) -> bool:
        """Whether frames can fly."""
        return self._connected

    @property
    def held_bytes(self) -> int:
        """Bytes not yet acknowledged."""
        return self._flying_bytes + self._waiting_bytes

    @property
    def writable(self) -> bool:
        """Whether a polite sender would go on: less waits than two windows or half the queue."""
        limits = self._limits
        return (
            self.held_bytes < min(2 * limits.window_bytes, limits.queue_bytes // 2 + 1)
            and len(self._flying) + len(self._waiting) < limits.queue_frames // 2 + 1
        )

    def send(self, payload: bytes, now: float) -> list[Transmit]:
        """Take a payload; `Overloaded` when too much is unacknowledged, `TooLarge` when the other end would not take
        it at any time; then it was not taken."""
        size, limits = len(payload), self._limits
        if size > self._message_bytes:
            raise TooLarge("bytes of a frame", size, self._message_bytes)
        held = len(self._flying) + len(self._waiting)
        if held >= limits.queue_frames:
            raise Overloaded("queue_frames", limits.queue_frames)
        if held and self._flying_bytes + self._waiting_bytes + size > limits.queue_bytes:
            raise Overloaded("queue_bytes", limits.queue_bytes)
        self._last += 1
        self._waiting.append(payload)
        self._waiting_bytes += size
        return self._advance(now) if self._connected else []

    def receive(self, header: Data | Ack | Resend, payload: bytes | None, now: float) -> list[LinkEffect]:
        """Apply one message of the other end; `BadFrame` when it cannot have been sent in good faith."""
        self._heard_at = now
        effects: list[LinkEffect] = []
        if isinstance(header, Data):
            if payload is None:
                raise BadFrame("data without a payload")
            seq = header.seq
            if seq == self._received + 1:
                self._received = seq
                self._owed_frames += 1
                self._owed_bytes += len(payload)
                effects.append(Received(payload))
            elif seq <= self._received:
                self._duplicates += 1
                self._owed_frames += 1  # the other end may have missed the acknowledgement
            else:
                self._ask(effects, now)
            if header.ack != self._acked:
                self._acknowledged(header.ack)
            if self._owed_frames >= ACK_FRAMES or self._owed_bytes >= ACK_BYTES:
                effects.append(self._ack(now))
        elif isinstance(header, Ack):
            self._acknowledged(header.ack)
            if header.sent > self._received:
                self._ask(effects, now)
        else:
            self._acknowledged(header.start - 1)
            self._heed(header.start - 1, now)
        if self._waiting and self._connected:
            effects += self._advance(now)
        return effects

    def tick(self, now: float) -> list[LinkEffect]:
        """Acknowledge and show life when it is time; say `Silent` when the other end does not."""
        silent = now - self._heard_at
        if silent >= self._limits.silence_s:
            return [Silent(silent)]
        self._asked = 0
        if self._connected and (self._owed_frames or now - self._spoke_at >= self._limits.heartbeat_s):
            return [self._ack(now)]
        return []

    def attach(self, received: int, now: float) -> list[Transmit]:
        """A connection is there and the other end has everything up to `received`: send what follows."""
        if received < self._acked:
            raise BadFrame(f"frame {self._acked} was acknowledged, now only {received} is said to have come")
        self._acknowledged(received)
        self._rewind(self._acked)
        self._connected = True
        self._heard_at = now
        self._forgive()
        self._asked = self._owed_frames = self._owed_bytes = 0  # HELLO and WELCOME acknowledged everything
        return self._advance(now)

    def detach(self) -> None:
        """The connection is gone, and what flew may be gone with it."""
        self._connected = False
        self._rewind(self._acked)

    def excuse(self, seconds: float) -> None:
        """This process itself was away for `seconds`, so that much of the silence is its own."""
        self._heard_at += seconds

    def statistics(self) -> SessionStatistics:
        """Counters since the session began, and what it holds now."""
        return SessionStatistics(
            sent=self._last,
            received=self._received,
            resent=self._resent,
            duplicates=self._duplicates,
            gaps=self._gaps,
            ignored=self._ignored,
            unacknowledged_frames=len(self._flying) + len(self._waiting),
            unacknowledged_bytes=self.held_bytes,
            waiting_frames=len(self._waiting),
        )

    def check(self) -> None:
        """Raise `InvariantBroken` unless L1 to L5 hold."""
        limits, held = self._limits, len(self._flying) + len(self._waiting)
        for name, holds in {
            "L1": self._acked + held == self._last and self._highest <= self._last,
            "L2": self._flying_bytes == sum(map(len, self._flying))
            and self._waiting_bytes == sum(map(len, self._waiting)),
            "L3": self._connected or not self._flying,
            "L4": held <= limits.queue_frames and (held <= 1 or self.held_bytes <= limits.queue_bytes),
            "L5": not (self._connected and self._waiting and self._has_room()),
        }.items():
            if not holds:
                raise InvariantBroken(f"{name}: {self.statistics()}")

    def _has_room(self) -> bool:
        """Whether one more frame may fly; a frame larger than the window flies alone."""
        limits, flying = self._limits, len(self._flying)
        return not flying or (
            flying < limits.window_frames and self._flying_bytes + len(self._waiting[0]) <= limits.window_bytes
        )

    def _advance(self, now: float) -> list[Transmit]:
        """Let waiting frames fly while the window has room."""
        transmits: list[Transmit] = []
        while self._waiting and self._has_room():
            payload = self._waiting.popleft()
            size = len(payload)
            self._waiting_bytes -= size
            self._flying.append(payload)
            self._flying_bytes += size
            flown = self._acked + len(self._flying)
            if flown > self._highest:
                self._highest = flown
            else:
                self._resent += 1
            transmits.append(Transmit(encode_data(flown, self._received), payload))
        if transmits:
            self._spoke_at = now
            self._owed_frames = self._owed_bytes = 0
        return transmits

    def _acknowledged(self, ack: int) -> None:
        """Forget frames the other end has; an old acknowledgement says nothing new."""
        if ack > self._highest:
            raise BadFrame(f"frame {ack} acknowledged, {self._highest} were sent")
        while self._acked < ack:
            self._acked += 1
            if self._flying:
                size = len(self._flying.popleft())
                self._flying_bytes -= size
            else:  # rewound by RESEND, and meanwhile the first copy has come
                size = len(self._waiting.popleft())
                self._waiting_bytes -= size
            if self._again_bytes:
                self._again_bytes = max(0, self._again_bytes - size - RESEND_BYTES)

    def _heed(self, after: int, now: float) -> None:
        """The other end asks for the frames beyond `after`; `BadFrame` when it does so for sport."""
        if now - self._heeded_at < self._limits.heartbeat_s:
            self._ignored += 1
            self._unheeded += 1
            if self._unheeded > RESENDS_IGNORED:
                raise BadFrame(f"resend asked for {self._unheeded} times in {self._limits.heartbeat_s:g} s")
            return
        self._heeded_at, self._unheeded = now, 0
        before = len(self._flying), self._flying_bytes
        self._rewind(after)
        frames, size = before[0] - len(self._flying), before[1] - self._flying_bytes
        self._again_bytes += size + RESEND_BYTES * frames
        if self._again_bytes > RESEND_WINDOWS * (self._limits.window_bytes + RESEND_BYTES * self._limits.window_frames):
            raise BadFrame(f"{self._again_bytes} bytes asked for again, and next to none of them acknowledged")

    def _forgive(self) -> None:
        """A connection begins: what was asked for on another one is not in this one's pipes."""
        self._heeded_at = -math.inf
        self._unheeded = self._again_bytes = 0

    def _rewind(self, after: int) -> None:
        """Frames beyond `after` wait again."""
        while self._flying and self._acked + len(self._flying) > after:
            payload = self._flying.pop()
            self._flying_bytes -= len(payload)
            self._waiting.appendleft(payload)
            self._waiting_bytes += len(payload)

    def _ask(self, effects: list[LinkEffect], now: float) -> None:
        """Ask for the missing frames, once: everything behind the gap is missing too, and would ask again."""
        if self._asked != self._received + 1:
            self._asked = self._received + 1
            self._gaps += 1
            self._spoke_at = now
            effects.append(Transmit(encode(Resend(self._asked)), None))

    def _ack(self, now: float) -> Transmit:
        self._spoke_at = now
        self._owed_frames = self._owed_bytes = 0
        return Transmit(encode(Ack(self._received, self._acked + len(self._flying))), None)
