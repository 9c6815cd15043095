"""Resume tokens: where a subscription stands, as a text that users can store."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hullcast.clients.sdk.listening import Stored
from hullcast.network.wire import packing
from hullcast.network.wire.errors import BadFrame, BadSetting
from hullcast.network.wire.limits import DEFAULT

if TYPE_CHECKING:
    from hullcast.network.wire.bodies import Trigger

VERSION = 4


@dataclass(frozen=True, slots=True)
class Token:
    """The answer as of `stored.seq`, and the events that were not taken yet.

    With it the server need only tell what came after that. A set or rows are stored as they were before the first
    event not taken, a single value as it is, with those events: either way the subscriber misses none.
    """

    epoch: bytes
    subject: bytes  # which subscription: a token fits no other
    kind: str
    channel: int  # as the server of that epoch numbers it: only the same channel can be resumed
    stored: Stored

    @property
    def position(self) -> int | None:
        """The events up to this sequence number were taken, and none behind it; None if some were lost before."""
        seq, _, waiting, gap, _ = self.stored
        if gap:
            return None
        return int(waiting[0][0]) - 1 if waiting else seq

    def text(self) -> str:
        """The token as users hold it."""
        seq, *stored, told = self.stored
        fields = [VERSION, self.epoch, seq, self.subject, self.kind, *stored, told, self.channel]
        return base64.urlsafe_b64encode(zlib.compress(packing.pack(fields))).decode()


def read_token(text: str, sql: str, parameters: tuple[Any, ...], trigger: Trigger | None = None) -> Token:
    """The token of a text, or BadSetting."""
    if not isinstance(text, str):
        raise BadSetting("resume", type(text).__name__, "must be a text that `Subscription.token` gave")
    token = None
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.urlsafe_b64decode(text), DEFAULT.frame_bytes)
        version, *fields = packing.unpack(data)
        if version == VERSION:
            epoch, seq, subject, kind, state, waiting, gap, told, channel = fields
            token = Token(epoch, subject, kind, channel, Stored(seq, state, waiting, gap, told))
    except (binascii.Error, zlib.error, BadFrame, TypeError, ValueError) as error:
        reason = "it is not a resume token; pass the text that `Subscription.token` gave"
        raise BadSetting("resume", text[:20], reason) from error
    if (
        token is None
        or type(token.stored.seq) is not int
        or type(token.epoch) is not bytes
        or type(token.channel) is not int
    ):
        raise BadSetting("resume", text[:20], "the token is of another version; subscribe without it")
    if token.subject != subject_of(sql, parameters, trigger):
        reason = "the token is of another subscription (text, parameters or condition differ)"
        raise BadSetting("resume", text[:20], reason)
    return token


def subject_of(sql: str, parameters: tuple[Any, ...], trigger: Trigger | None = None) -> bytes:
    """Which subscription a token belongs to."""
    told: list[Any] = [sql, list(parameters)]
    if trigger is not None:
        told += [trigger.when, list(trigger.parameters), trigger.every_s]
        if trigger.tables or trigger.at_most_every_s is not None:
            told += [sorted(set(trigger.tables)), trigger.at_most_every_s]
    return hashlib.sha256(packing.pack(told)).digest()[:12]
