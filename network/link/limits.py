"""How long a link waits and how much it holds."""

from __future__ import annotations

from dataclasses import dataclass

from hullcast.network.wire.errors import BadSetting

#: A receiver acknowledges after this many bytes or frames, or with the next heartbeat. They are part of the protocol:
#: a sender whose window were smaller would stand still until the heartbeat. (Even one with this window may: a frame
#: that does not fit waits for the acknowledgement of less. Twice as much is enough for frames of this size.)
ACK_BYTES = 256 << 10
ACK_FRAMES = 256

#: How often an end may ask for frames again before it is closed: in vain, since it was last heeded; and in windows,
#: beyond what it acknowledged meanwhile. Every frame counts for `RESEND_BYTES` at least.
RESENDS_IGNORED = 64
RESEND_WINDOWS = 8
RESEND_BYTES = 128

#: A child whose parent is known to be there, or the only hope, waits for its WELCOME up to this many times
#: `handshake_s`, and a parent as long for HELLO: one of them has much to do, as when thousands come at the same time.
BUSY_HANDSHAKES = 3

#: A parent exchanges so many heartbeats a second with all its clients together, at most: where they are more, each has
#: fewer. Silence is then this many heartbeats. Nodes keep the short ones: much depends on them.
HEARTBEATS_PER_S = 1000
SILENT_HEARTBEATS = 4

#: How long last words may take, in seconds.
FAREWELL_S = 0.5


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """How long a link waits and how much it holds. The parent's `heartbeat_s` and `silence_s` hold for both ends; it
    makes them longer for its clients where these are many.

    A sender holds at most `queue_bytes` and `queue_frames` not yet acknowledged; of those at most `window_bytes` and
    `window_frames` were handed to ZeroMQ, where they cannot be counted.
    """

    heartbeat_s: float = 0.5  # an end that had nothing to say for so long says so
    silence_s: float = 4.0  # an end not heard for so long is gone, and its session with it
    handshake_s: float = 3.0  # a child waits so long for the first answer of a parent before it tries the next one
    window_bytes: int = 8 << 20  # more: throughput over long distances; less: memory for each slow peer
    window_frames: int = 4096
    queue_bytes: int = 64 << 20  # more: patience with slow peers; less: memory
    queue_frames: int = 1 << 16
    message_bytes: int = 64 << 20  # the largest payload this end accepts
    peers: int = 10_000  # a parent refuses more
    strangers: int = 10_000  # connections that did not say HELLO yet; beyond it the oldest is cut
    backoff_s: float = 0.1  # a child's first pause between attempts; it doubles ..
    backoff_most_s: float = 5.0  # .. up to this

    def __post_init__(self) -> None:
        for name in ("heartbeat_s", "silence_s", "handshake_s", "backoff_s", "backoff_most_s"):
            if not 0.001 <= getattr(self, name) <= 3600:  # this way round, so that NaN is refused too
                raise BadSetting(name, getattr(self, name), "needs 0.001 to 3600 seconds")
        for name, least in (
            ("window_bytes", ACK_BYTES),
            ("window_frames", ACK_FRAMES),
            ("queue_bytes", self.window_bytes),
            ("queue_frames", self.window_frames),
            ("message_bytes", 1024),
            ("peers", 1),
            ("strangers", 1),
        ):
            if getattr(self, name) < least:
                raise BadSetting(name, getattr(self, name), f"needs at least {least}")
        if self.silence_s < 3 * self.heartbeat_s:
            raise BadSetting("silence_s", self.silence_s, "needs at least three heartbeats")
        if self.backoff_most_s < self.backoff_s:
            raise BadSetting("backoff_most_s", self.backoff_most_s, "needs at least backoff_s")
