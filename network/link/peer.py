"""One child of a listener, as the listener's owner sees it."""

from __future__ import annotations

from typing import Protocol

from hullcast.network.link.header import Hello
from hullcast.network.link.session import Session, SessionStatistics


class PeerHandler(Protocol):
    """What a listener tells its owner; on the event loop, one call at a time, none from inside `Peer.send`."""

    def on_join(self, peer: Peer) -> None:
        """A new child; an equal one is never told twice without `on_leave` in between."""

    def on_frame(self, peer: Peer, payload: bytes) -> None:
        """The child's next payload; a `PeerError` raised here closes that child's link."""

    def on_quiet(self) -> None:
        """All that had arrived was handed to `on_frame`, or others on the loop shall have their turn: once after one or
        more frames, of one child or of many. What is sent here leaves at once, with what was sent since."""

    def on_leave(self, peer: Peer, why: str) -> None:
        """The child is gone and will not come back as this peer; once for each `on_join`."""


class _Owner(Protocol):
    def send(self, peer: Peer, payload: bytes) -> None: ...

    def close(self, peer: Peer, code: str, text: str) -> None: ...


class Peer:
    """A child and the session with it, which outlives its TCP connections.

    `number` is never used again in this process; `key` is the CURVE key (Z85) the authenticator let in.
    """

    __slots__ = (
        "closed", "descriptor", "id", "identity", "key", "listen", "name", "number", "owner", "role", "session",
    )  # fmt: skip

    def __init__(self, number: int, hello: Hello, key: str | None, session: Session, owner: _Owner) -> None:
        self.number = number
        self.role, self.name, self.id, self.listen = hello.role, hello.name, hello.id, hello.listen
        self.key = key
        self.session = session
        self.identity = b""  # ZeroMQ's name of the present connection
        self.descriptor = -1
        self.closed = False
        self.owner = owner

    def __repr__(self) -> str:
        return f"Peer({self.number}, {self.role} {self.name!r})"

    def send(self, payload: bytes) -> None:
        """Send in order, at the end of this turn of the loop or when the window allows; never blocks. Beyond the
        queue's limits the peer is closed as slow. To a closed peer nothing is sent: its owner will hear, or has heard,
        `on_leave`. `TooLarge` when the peer takes only smaller payloads; then nothing was sent, and the link is as it
        was."""
        self.owner.send(self, payload)

    def close(self, code: str, text: str = "") -> None:
        """Say BYE and forget the peer; `on_leave` follows."""
        self.owner.close(self, code, text)

    def statistics(self) -> SessionStatistics:
        """What went to and came from this peer."""
        return self.session.statistics()
