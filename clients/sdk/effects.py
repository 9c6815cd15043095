"""What the client's brain wants to happen, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from hullcast.clients.sdk.groups import SubscriptionGroup
    from hullcast.network.wire import bodies, frames
    from hullcast.network.wire.errors import HullcastError


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Hand this to the link. If its queue is full, what is `dispensable` is left out."""

    payload: bytes
    dispensable: bool = False


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """A call has its reply."""

    call: int
    reply: bodies.Body


@dataclass(frozen=True, slots=True)
class GroupOpened:
    """A call to subscribe has succeeded."""

    call: int
    group: SubscriptionGroup


@dataclass(frozen=True, slots=True)
class CallRefused:
    """A call has failed."""

    call: int
    error: HullcastError


@dataclass(frozen=True, slots=True)
class RowRefused:
    """Of a change whose rows stand apart, this row was refused, counted among those still in it; the others go on."""

    call: int
    row: int
    error: HullcastError


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Call `ClientSession.retry` after so many seconds, give or take some."""

    call: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A group's subscriptions are over: the server does not take them again."""

    group: SubscriptionGroup
    error: HullcastError


@dataclass(frozen=True, slots=True)
class Failover:
    """The other ways to the server that were told last."""

    directory: frames.Directory


Effect: TypeAlias = SendFrame | CallAnswered | GroupOpened | CallRefused | RowRefused | RetryLater | Ended | Failover
