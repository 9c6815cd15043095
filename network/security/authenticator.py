"""Answers ZeroMQ's question whether a CURVE key may come in (ZAP, RFC 27), on the event loop."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final

import zmq
from zmq.utils import z85

from hullcast.network.link.socket import Context, EventSocket, Message, open_zap, release_zap
from hullcast.network.wire.logs import logger

log = logger(__name__)

#: Refused keys that are logged in a minute, each once: a stranger can make keys and dial as fast as it likes.
LOGGED_MOST: Final = 10
LOGGED_EACH_S: Final = 60.0

#: Says whether the holder of this public key (Z85) may open a link.
Allow = Callable[[str], bool]


@dataclass(slots=True)
class Entrance:
    """One listener's door: its rule, and how many it let in or sent away."""

    domain: str
    allow: Allow
    admitted: int = 0
    refused: int = 0
    _logged: set[str] = field(default_factory=set)
    _logged_since: float = float("-inf")
    _unlogged: int = 0

    def refuse(self, key: str, address: str, now: float) -> None:
        """Count a refused key, and log it unless that was done a moment ago."""
        self.refused += 1
        if now - self._logged_since >= LOGGED_EACH_S:
            if self._unlogged:
                log.warning("more keys refused", extra={"attempts": self._unlogged, "seconds": LOGGED_EACH_S})
            self._logged, self._logged_since, self._unlogged = set(), now, 0
        if key in self._logged or len(self._logged) >= LOGGED_MOST:
            self._unlogged += 1
            return
        self._logged.add(key)
        why = "it is not in the allow list"
        log.warning("key refused", extra={"key": fingerprint(key), "address": address, "why": why})


class Authenticator:
    """One for each ZeroMQ context, shared by its listeners; each has a domain of its own.

    A key that is let in travels with every message of its connection as `User-Id`, so a link knows which key it serves.
    """

    _of_context: ClassVar[weakref.WeakKeyDictionary[Context, Authenticator]] = weakref.WeakKeyDictionary()
    _numbers = itertools.count(1)

    def __init__(self, context: Context) -> None:
        self._entrances: dict[str, Entrance] = {}
        self._raw = open_zap(context)
        self._socket = EventSocket(self._raw, self._answer)

    @classmethod
    def open(cls, context: Context, allow: Allow) -> Entrance:
        """A new entrance, to be closed with `close`; the context's first one begins to answer."""
        authenticator = cls._of_context.get(context)
        if authenticator is None:
            authenticator = cls._of_context[context] = cls(context)
        entrance = Entrance(f"hullcast-{next(cls._numbers)}", allow)
        authenticator._entrances[entrance.domain] = entrance
        return entrance

    @classmethod
    def close(cls, context: Context, entrance: Entrance) -> None:
        """Close an entrance; with the context's last one the answering ends."""
        authenticator = cls._of_context.get(context)
        if authenticator is None:
            return
        authenticator._entrances.pop(entrance.domain, None)
        if not authenticator._entrances:
            release_zap(authenticator._raw)
            authenticator._socket.close()
            del cls._of_context[context]

    def _answer(self, message: Message) -> None:
        """Version, request, domain, address, identity, mechanism, credentials: yes with the key as `User-Id`, or no."""
        fields = [message.first.bytes, *message.rest]
        request = fields[1] if len(fields) > 1 else b""
        if len(fields) != 7 or fields[0] != b"1.0" or fields[5] != b"CURVE" or len(fields[6]) != 32:
            self._reply(request, "400", "CURVE is needed", "")
            return
        entrance = self._entrances.get(fields[2].decode("utf-8", "replace"))
        key = z85.encode(fields[6]).decode()
        try:
            allowed = entrance is not None and entrance.allow(key)
        except Exception:
            self._reply(request, "500", "the rule failed", "")  # REP needs its answer before the error goes on
            raise
        if entrance is not None and allowed:
            entrance.admitted += 1
        elif entrance is not None:
            entrance.refuse(key, fields[3].decode("utf-8", "replace"), asyncio.get_running_loop().time())
        self._reply(request, "200" if allowed else "400", "OK" if allowed else "no access", key if allowed else "")

    def _reply(self, request: bytes, status: str, text: str, user: str) -> None:
        self._socket.send(b"1.0", request, status.encode(), text.encode(), user.encode(), b"")


def fingerprint(key: str) -> str:
    """The beginning of a public key: enough to find it in a .pub file, too little to take for the whole."""
    return f"{key[:10]}.."


def user_of(frame: zmq.Frame) -> str | None:
    """The key the authenticator let in for the connection a message came from."""
    try:
        user = frame.get("User-Id")
    except zmq.ZMQError:
        return None
    return str(user) or None
