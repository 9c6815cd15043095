"""What one end of a link remembers so that nothing is lost, nothing comes twice and order holds. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hullcast.network.link.header import BUNDLE_BYTES, BUNDLE_FRAMES, Resend, encode, encode_ack, encode_data
from hullcast.network.link.limits import (
    ACK_BYTES,
    ACK_FRAMES,
    RESEND_BYTES,
    RESEND_WINDOWS,
    RESENDS_IGNORED,
    LinkLimits,
)
from hullcast.network.wire.errors import BadFrame, InvariantBroken, Overloaded, TooLarge

#: A message for the connection: its header, and, if it is data, what follows that.
LinkMessage: TypeAlias = tuple[bytes] | tuple[bytes, bytes]


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

        acknowledged | flying: handed to ZeroMQ | waiting: for the end of the turn, the window, or a connection
              acked  | acked+1 ..       flown   | flown+1 ..                                               last

    `send`, `take_..` and `tick` only note what is to be said. Their caller hands over what `outgoing` gives, once for
    all of them: so frames of one turn of the event loop leave in few messages (bundles), and one acknowledgement is
    enough.

    Invariants (`check` tests them):
      L1  acked + len(flying) + len(waiting) = last, and `flown` = acked + len(flying).
      L2  The bytes counted for flying and for waiting are theirs.
      L3  Without a connection nothing flies.
      L4  At most `queue_frames` and `queue_bytes` are held (one frame always fits).

    Go-back-N, and no buffer for frames that come early: a connection keeps order, so frames are missing only when it
    broke, and then HELLO and WELCOME say where to begin again. RESEND covers all other losses of a frame. It is a few
    bytes that make us hand a window to ZeroMQ once more, where it is not counted: so it is obeyed once in a heartbeat
    (an end that misses frames asks again then), and an end that asks for much more than it acknowledges is closed.
    """

    __slots__ = (
        "_acked", "_again_bytes", "_asked", "_bundle_bytes", "_connected", "_duplicates", "_flying", "_flying_bytes",
        "_gaps", "_heard_at", "_heartbeat_s", "_heeded_at", "_highest", "_ignored", "_last", "_leads", "_limits",
        "_message_bytes", "_must_ack", "_must_ask", "_must_tell", "_owed_bytes", "_owed_frames", "_received", "_resent",
        "_silence_s", "_spoke_at", "_unheeded", "_waiting", "_waiting_bytes",
    )  # fmt: skip

    def __init__(
        self, limits: LinkLimits, now: float, message_bytes: int | None = None, *, leads: bool = False
    ) -> None:
        """A session without a connection; `message_bytes` is what the other end accepts. The end that `leads`, the
        parent's, says how often heartbeats come."""
        self._limits = limits
        self._leads = leads
        self._heartbeat_s, self._silence_s = limits.heartbeat_s, limits.silence_s
        self._message_bytes = limits.message_bytes if message_bytes is None else message_bytes
        self._bundle_bytes = min(BUNDLE_BYTES, self._message_bytes)
        self._connected = False
        self._acked = self._last = self._highest = 0  # highest: ever handed over, so the other end may know it
        self._flying: deque[bytes] = deque()
        self._waiting: deque[bytes] = deque()
        self._flying_bytes = self._waiting_bytes = 0
        self._received = 0
        self._owed_frames = self._owed_bytes = 0  # received, not yet acknowledged
        self._must_ack = False
        self._asked = 0  # the start we asked for with RESEND, until it comes or a heartbeat passes
        self._must_ask = False  # asked, but not yet said
        self._must_tell = False  # how often heartbeats come
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
    def flown(self) -> int:
        """The number of the last frame handed over, of those that count as on their way."""
        return self._acked + len(self._flying)

    @property
    def acknowledged(self) -> int:
        """Up to which of them the other end has all."""
        return self._acked

    @property
    def heard_at(self) -> float:
        """When the other end was last heard."""
        return self._heard_at

    @property
    def heartbeat_s(self) -> float:
        """How often this end shows life."""
        return self._heartbeat_s

    @property
    def silence_s(self) -> float:
        """After how long an end not heard is gone."""
        return self._silence_s

    @property
    def due_at(self) -> float:
        """When `tick` may have something to do; later, if something is sent or heard before."""
        return min(self._spoke_at + self._heartbeat_s, self._heard_at + self._silence_s)

    @property
    def message_bytes(self) -> int:
        """The largest payload that the other end accepts."""
        return self._message_bytes

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

    @property
    def pressing(self) -> bool:
        """Whether `outgoing` would have something to say now."""
        return self._connected and (
            self._must_ack
            or self._must_ask
            or self._must_tell
            or (bool(self._waiting) and self._has_room(self._waiting[0]))
        )

    def send(self, payload: bytes) -> None:
        """Take a payload; `Overloaded` when too much is unacknowledged, `TooLarge` when the other end would not take
        it at any time; then it was not taken."""
        size, limits = len(payload), self._limits
        if size > self._message_bytes:
            raise TooLarge("bytes of a frame", size, self._message_bytes)
        held = len(self._flying) + len(self._waiting)
        if held >= limits.queue_frames:
            raise Overloaded("messages waiting for one peer (queue_frames)", limits.queue_frames)
        if held and self._flying_bytes + self._waiting_bytes + size > limits.queue_bytes:
            raise Overloaded("bytes waiting for one peer (queue_bytes)", limits.queue_bytes)
        self._last += 1
        self._waiting.append(payload)
        self._waiting_bytes += size

    def take_data(self, seq: int, ack: int, payloads: Sequence[bytes], now: float) -> Sequence[bytes]:
        """Payloads of the other end, `seq` and those that follow it; those of them that are for the application now.
        `BadFrame` when this cannot have been said in good faith."""
        self._heard_at = now
        new = payloads
        if seq == self._received + 1:
            self._owed_frames += len(new)
        elif seq > self._received:
            self._ask()
            new = ()
        else:
            had = min(len(new), self._received + 1 - seq)
            self._duplicates += had
            self._owed_frames += len(new)  # duplicates too: the other end may have missed the acknowledgement
            new = payloads[had:]
        self._received += len(new)
        self._owed_bytes += len(new[0]) if len(new) == 1 else sum(map(len, new))
        if self._owed_frames >= ACK_FRAMES or self._owed_bytes >= ACK_BYTES:
            self._must_ack = True
        if ack != self._acked:
            self._acknowledged(ack)
        return new

    def take_ack(self, ack: int, sent: int, now: float) -> None:
        """The other end has all up to `ack`, and has sent all up to `sent`; `BadFrame` when it cannot have."""
        self._heard_at = now
        self._acknowledged(ack)
        if sent > self._received:
            self._ask()
        if now - self._spoke_at >= self._heartbeat_s / 2:  # now that both ends are awake
            self._must_ack = True

    def take_resend(self, start: int, now: float) -> None:
        """The other end misses frames from `start` on; `BadFrame` when it cannot, or asks for sport."""
        self._heard_at = now
        self._acknowledged(start - 1)
        self._heed(start - 1, now)

    def tick(self, now: float) -> float:
        """Show life when it is time, which acknowledges too; how long the other end has been silent, if that is so
        long that it is gone, else 0."""
        silent = now - self._heard_at
        if silent >= self._silence_s:
            return silent
        self._asked = 0
        if now - self._spoke_at >= self._heartbeat_s:
            self._must_ack = True
        return 0.0

    def outgoing(self, now: float) -> list[LinkMessage]:
        """All that is to be said now, in this order."""
        messages: list[LinkMessage] = []
        if not self._connected:
            return messages
        if self._must_ask:
            self._must_ask = False
            messages.append((encode(Resend(self._asked)),))
        waiting, asked = self._waiting, len(messages)
        while waiting and self._has_room(waiting[0]):
            messages.append(self._bundle())
        if self._must_tell or (self._must_ack and len(messages) == asked):
            pace = (round(1000 * self._heartbeat_s), round(1000 * self._silence_s)) if self._leads else (0, 0)
            messages.append((encode_ack(self._received, self.flown, *pace),))
            self._must_tell = False
        if messages:
            self._spoke_at = now
        if len(messages) > asked:
            self._must_ack = False
            self._owed_frames = self._owed_bytes = 0
        return messages

    def attach(self, received: int, now: float) -> None:
        """A connection is there and the other end has everything up to `received`: what follows is sent (again)."""
        if received < self._acked:
            raise BadFrame(f"frame {self._acked} was acknowledged, now only {received} is said to have come")
        self._acknowledged(received)
        self._rewind(self._acked)
        self._connected = True
        self._heard_at = now
        self._forgive()
        self._must_ack = self._must_ask = self._must_tell = False  # WELCOME tells, too
        self._asked = self._owed_frames = self._owed_bytes = 0  # HELLO and WELCOME acknowledged everything

    def detach(self) -> None:
        """The connection is gone, and what flew may be gone with it."""
        self._connected = False
        self._rewind(self._acked)

    def pace(self, heartbeat_s: float, silence_s: float, now: float) -> None:
        """Heartbeats come so often from now on, and silence is so long. The leading end says so at once, or the other
        end might be taken for silent; where this asks for more, that one has from now on all the time it is to have,
        but no longer than it had before: in a crowd that vanishes, each one that goes asks the others for more."""
        if (heartbeat_s, silence_s) == (self._heartbeat_s, self._silence_s):
            return
        self._must_tell = self._leads
        if silence_s < self._silence_s:
            self._heard_at = max(self._heard_at, min(now, self._heard_at + self._silence_s - silence_s))
        self._heartbeat_s, self._silence_s = heartbeat_s, silence_s

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
        """Raise `InvariantBroken` unless L1 to L4 hold."""
        limits, held = self._limits, len(self._flying) + len(self._waiting)
        for name, holds in {
            "L1": self._acked + held == self._last and self._highest <= self._last,
            "L2": self._flying_bytes == sum(map(len, self._flying))
            and self._waiting_bytes == sum(map(len, self._waiting)),
            "L3": self._connected or not self._flying,
            "L4": held <= limits.queue_frames and (held <= 1 or self.held_bytes <= limits.queue_bytes),
        }.items():
            if not holds:
                raise InvariantBroken(f"{name}: {self.statistics()}")

    def _has_room(self, payload: bytes) -> bool:
        """Whether one more frame may fly; a frame larger than the window flies alone."""
        limits, flying = self._limits, len(self._flying)
        return not flying or (
            flying < limits.window_frames and self._flying_bytes + len(payload) <= limits.window_bytes
        )

    def _bundle(self) -> LinkMessage:
        """Let waiting frames fly, at least one, as many as the window has room for and one message may hold."""
        flying, waiting = self._flying, self._waiting
        flown = self._acked + len(flying)
        if len(waiting) == 1 and flown == self._highest:  # the common case: one frame, for the first time
            flying.append(waiting.popleft())
            self._highest += 1
            self._flying_bytes += self._waiting_bytes
            self._waiting_bytes = 0
            return encode_data(self._highest, self._received), flying[-1]
        payloads: list[bytes] = []
        lengths: list[int] = []
        total = 0
        most_frames = min(BUNDLE_FRAMES, self._limits.window_frames - len(flying))
        most_bytes = min(self._bundle_bytes, self._limits.window_bytes - self._flying_bytes)
        while waiting:
            payload = waiting[0]
            size = len(payload)
            if payloads and (total + size > most_bytes or len(payloads) >= most_frames):
                break
            flying.append(waiting.popleft())
            payloads.append(payload)
            lengths.append(size)
            total += size
        self._waiting_bytes -= total
        self._flying_bytes += total
        count = len(payloads)
        self._resent += max(0, min(flown + count, self._highest) - flown)
        self._highest = max(self._highest, flown + count)
        if count == 1:
            return encode_data(flown + 1, self._received), payloads[0]
        return encode_data(flown + 1, self._received, lengths), b"".join(payloads)

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
        if now - self._heeded_at < self._heartbeat_s:
            self._ignored += 1
            self._unheeded += 1
            if self._unheeded > RESENDS_IGNORED:
                raise BadFrame(f"resend asked for {self._unheeded} times in {self._heartbeat_s:g} s")
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

    def _ask(self) -> None:
        """Ask for the missing frames, once: everything behind the gap is missing too, and would ask again."""
        if self._asked != self._received + 1:
            self._asked = self._received + 1
            self._gaps += 1
            self._must_ask = True
