"""Resume tokens: where a subscription stands, as a text that users can store."""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.sdk.backlog import CollectionBacklog, ScalarBacklog
from hullcast.network.answers.aggregate import STATE
from hullcast.network.wire import packing
from hullcast.network.wire.errors import BadFrame, BadSetting
from hullcast.network.wire.limits import DEFAULT

if TYPE_CHECKING:
    from hullcast.clients.sdk.listening import Listening
    from hullcast.network.wire.bodies import ChannelSpec
    from hullcast.network.wire.columns import Columns

VERSION = 3

#: The answer last taken, where that is not kept: equal to none.
UNKNOWN = (math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class Token:
    """The answer as of `seq`, and the events that were not taken yet.

    With it the server need only tell what came after `seq`. A set or rows are stored as they were before the first
    event not taken, a single value as it is, with those events: either way the subscriber misses none.
    """

    epoch: bytes
    seq: int
    subject: bytes  # which subscription: a token fits no other
    kind: str
    state: list[Any]  # numbers, or [key, row] pairs
    waiting: list[list[Any]]  # of single values: [seq, value, rest]
    gap: bool  # events were lost before, and the subscriber was not told yet
    told: tuple[float, float]  # of single values that wait: the one taken before them, as (value, rest)
    channel: int  # as the server of that epoch numbers it: only the same channel can be resumed

    def text(self) -> str:
        """The token as users hold it."""
        fields = [VERSION, self.epoch, self.seq, self.subject, self.kind, self.state, self.waiting, self.gap]
        fields += [self.told, self.channel]
        return base64.urlsafe_b64encode(zlib.compress(packing.pack(fields))).decode()

    def snapshot(self, spec: ChannelSpec) -> Columns:
        """The stored answer in the form in which a server sends first answers; of collections see `restore`."""
        if spec.kind != self.kind:
            raise BadSetting("resume", "..", f"the token is of a {self.kind} subscription, this is a {spec.kind}")
        if spec.kind in ("MIN", "MAX"):
            return {"best": np.array(self.state, np.float64)}
        if self.kind in ("DISTINCT", "SELECT", "JOIN"):
            return {"of": np.empty(0, np.int64)}
        return {name: np.array([value], np.float64) for name, value in zip(STATE, self.state, strict=True)}

    def restore(self, listening: Listening, listener: int) -> None:
        """Give a listener just admitted what it had not taken yet."""
        if listening.is_scalar:
            waiting = [(int(seq), value, rest) for seq, value, rest in self.waiting]
            listening.put_back(listener, waiting, self.told, gap=self.gap)
        else:
            keyed = len(listening.spec.key_types) > 1 and self.kind != "DISTINCT"
            contents = {
                tuple(key) if keyed else key: row if self.kind == "DISTINCT" else tuple(row) for key, row in self.state
            }
            listening.put_contents(listener, contents, self.seq if self.gap else None)


def read_token(text: str, sql: str, parameters: tuple[Any, ...]) -> Token:
    """The token of a text, or BadSetting."""
    if not isinstance(text, str):
        raise BadSetting("resume", type(text).__name__, "it takes a text that `Subscription.token` gave")
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.urlsafe_b64decode(text), DEFAULT.frame_bytes)
        version, *fields = packing.unpack(data)
        token = Token(*fields) if version == VERSION else None
    except (binascii.Error, zlib.error, BadFrame, TypeError, ValueError) as error:
        reason = "it is not a resume token; pass the text that `Subscription.token` gave"
        raise BadSetting("resume", text[:20], reason) from error
    if token is None or type(token.seq) is not int or type(token.epoch) is not bytes or type(token.channel) is not int:
        raise BadSetting("resume", text[:20], "the token is of another version; subscribe without it")
    if token.subject != subject_of(sql, parameters):
        raise BadSetting("resume", text[:20], "the token is of another subscription (text or parameters differ)")
    return token


def make_token(
    listening: Listening,
    listener: int,
    position: int,
    epoch: bytes,
    channel: int,
    sql: str,
    parameters: tuple[Any, ...],
) -> Token:
    """Where one subscription stands."""
    subject, kind = subject_of(sql, parameters), listening.spec.kind
    if listening.is_scalar:
        mailbox, state = listening.mailbox, listening.state(listener)
        backlog = mailbox.backlogs.get(listener)
        if isinstance(backlog, ScalarBacklog):
            waiting = [list(event) for event in backlog.waiting()]
            return Token(epoch, position, subject, kind, state, waiting, False, UNKNOWN, channel)
        newest = (int(mailbox.seqs[listener]), *listening.numbers(listener))
        waiting = [list(newest)] if listening.pending(listener) else []
        told = float(mailbox.told[listener]), float(mailbox.told_rests[listener])
        return Token(epoch, position, subject, kind, state, waiting, bool(mailbox.gaps[listener]), told, channel)
    listening.answer(listener)  # makes its collection, if nobody did
    collected = listening.mailbox.backlogs[listener]
    assert isinstance(collected, CollectionBacklog), "not a single value"
    collection, first = collected.collection, collected.collection.first_seq
    seq = position if first is None else first - 1
    pairs = [[key, row] for key, row in collection.settled().items()]
    return Token(epoch, seq, subject, kind, pairs, [], collected.has_gap, UNKNOWN, channel)


def subject_of(sql: str, parameters: tuple[Any, ...]) -> bytes:
    """Which subscription a token belongs to."""
    return hashlib.sha256(packing.pack([sql, list(parameters)])).digest()[:12]
