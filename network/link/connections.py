"""The TCP connections behind a listener's ROUTER, so that unwelcome ones can be cut."""

from __future__ import annotations

import os
import resource
import socket as sockets
import struct
from typing import Final

import zmq

from hullcast.network.link.socket import MOST_SOCKETS, Message
from hullcast.network.wire.logs import logger

log = logger(__name__)

_FAILED: Final = (
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
    zmq.Event.HANDSHAKE_FAILED_AUTH,
)


#: Open files that a process has for other things than connections.
_OTHER_FILES: Final = 100


class Connections:
    """Who is connected, by file descriptor, and until when it may stay without being welcome.

    A ROUTER cannot hang up on one peer, so a stranger could hold a descriptor for ever. ZeroMQ's monitor tells the
    descriptor of each connection; `shutdown` on a duplicate of it makes ZeroMQ see the connection end. Descriptors
    are used again, hence the remote address is compared on the duplicate: it cannot change under our hands.
    """

    def __init__(self, strangers_most: int, handshake_s: float) -> None:
        self._strangers_most = strangers_most
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = MOST_SOCKETS if files == resource.RLIM_INFINITY else max(1, files - _OTHER_FILES)
        self._handshake_s = handshake_s
        self._remotes: dict[int, object] = {}
        self._deadlines: dict[int, float] = {}  # oldest first; only connections that have one
        self._expelled: set[int] = set()  # those of them that were told BYE
        self._identities: dict[int, bytes] = {}
        self.failed_handshakes = 0
        self.cut = 0

    def __len__(self) -> int:
        return len(self._remotes)

    def apply(self, message: Message, now: float) -> bytes | None:
        """Take note of one monitor message; the identity of the peer whose connection ended, if it had said HELLO."""
        number, descriptor = struct.unpack("=hi", message.first.bytes)
        if number == zmq.Event.ACCEPTED:
            self._forget(descriptor)
            self._remotes[descriptor] = _remote(descriptor)
            self._deadlines[descriptor] = now + self._handshake_s
            while len(self._deadlines) > self._strangers_most:
                self._cut(next(iter(self._deadlines)))
            if len(self) > self._most and self._deadlines:  # or ZeroMQ could take in nobody, and would try on and on
                self._cut(next(iter(self._deadlines)))
        elif number == zmq.Event.DISCONNECTED:
            return self._forget(descriptor)
        elif number in _FAILED:
            self.failed_handshakes += 1
        return None

    def greet(self, descriptor: int, identity: bytes) -> None:
        """The connection said HELLO and may stay."""
        if descriptor in self._remotes:
            self._identities[descriptor] = identity
            self._deadlines.pop(descriptor, None)

    def expel(self, descriptor: int, at: float) -> None:
        """The connection was told BYE and should be gone by `at`; until then its last words may go out."""
        if descriptor in self._remotes:
            self._identities.pop(descriptor, None)
            self._deadlines[descriptor] = min(at, self._deadlines.get(descriptor, at))
            self._expelled.add(descriptor)

    def sweep(self, now: float, *, all_read: bool) -> None:
        """Cut connections whose time is over. Unless all that came was read, a stranger may have said HELLO; but those
        that were told BYE have nothing more to say, and one that never stops sending would never be cut."""
        over = [descriptor for descriptor, at in self._deadlines.items() if at <= now]
        for descriptor in over if all_read else self._expelled.intersection(over):
            self._cut(descriptor)

    def _forget(self, descriptor: int) -> bytes | None:
        self._remotes.pop(descriptor, None)
        self._deadlines.pop(descriptor, None)
        self._expelled.discard(descriptor)
        return self._identities.pop(descriptor, None)

    def _cut(self, descriptor: int) -> None:
        del self._deadlines[descriptor]
        self._expelled.discard(descriptor)
        try:
            with sockets.socket(fileno=os.dup(descriptor)) as duplicate:
                if duplicate.getpeername() == self._remotes[descriptor]:
                    duplicate.shutdown(sockets.SHUT_RDWR)
                    self.cut += 1
        except OSError:
            return  # it went by itself


def raise_open_files(children: int) -> None:
    """Let this process open as many files as the system allows; a warning where that is too few for so many children:
    each is a connection, and each connection an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError) as error:  # some systems have a lower limit beside this one
            log.debug("limit of open files not raised", extra={"why": str(error)})
    needed = children + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        log.warning(
            "too few open files for max_children: raise the limit (ulimit -n, LimitNOFILE=) or lower --max-children",
            extra={"open_files": soft, "needed": needed, "max_children": children},
        )


def descriptor_of(frame: zmq.Frame) -> int:
    """The descriptor a message came from; -1 for inproc, which has none."""
    try:
        return int(frame.get("__fd"))
    except zmq.ZMQError:
        return -1


def _remote(descriptor: int) -> object:
    try:
        with sockets.socket(fileno=os.dup(descriptor)) as duplicate:
            return duplicate.getpeername()
    except OSError:
        return None
