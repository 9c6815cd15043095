"""Hullcast: subscribe to SQL. Everything a user needs, under one name.

The embedded engine and `testing` are imported when they are first used: clients of a server do without them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from clients.sdk import blocking
from clients.sdk.blocking import BlockingClient
from clients.sdk.blocking import connect as connect_blocking
from clients.sdk.client import Client, ClientStatistics, Receipt, connect
from clients.sdk.publishing import PartlyPublished
from clients.sdk.subscription import LiveSubscription
from clients.sdk.subscriptions import Changed, LiveSubscriptions
from network.answers.events import Change, Event, Progress, Resync, Snapshot
from network.answers.named import QueryRows
from network.wire.errors import (
    BadBatch,
    BadDirectory,
    BadFrame,
    BadParameter,
    BadSetting,
    BadValue,
    CheckpointFailed,
    ClientClosed,
    ConnectionLost,
    DirectoryInUse,
    DuplicateTable,
    HullcastError,
    InvariantBroken,
    LogBroken,
    LogDamaged,
    NotPermitted,
    OutOfTurn,
    Overloaded,
    PeerClosed,
    PeerError,
    RetryTooOld,
    SqlError,
    SubscriptionClosed,
    SubscriptionOverflow,
    Superseded,
    TableInUse,
    TimedOut,
    TooLarge,
    Unavailable,
    UnknownChannel,
    UnknownColumn,
    UnknownTable,
    UsageError,
    VersionMismatch,
)

if TYPE_CHECKING:
    from broker.engine import Engine
    from broker.messages import Batch, Messages
    from broker.reformulate.channel import ChannelStatistics
    from broker.subscription import Subscription
    from broker.subscriptions import Subscriptions
    from clients.sdk import testing
else:  # what a type checker must not see: to it, any name at all would then be there

    def __getattr__(name: str) -> object:
        if name not in _WHEN_USED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(_WHEN_USED[name])
        globals()[name] = found = module if name == "testing" else getattr(module, name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_WHEN_USED})


_WHEN_USED = {
    "Batch": "broker.messages",
    "ChannelStatistics": "broker.reformulate.channel",
    "Engine": "broker.engine",
    "Messages": "broker.messages",
    "Subscription": "broker.subscription",
    "Subscriptions": "broker.subscriptions",
    "testing": "clients.sdk.testing",
}

__version__ = "0.1.0"

__all__ = [
    "BadBatch",
    "BadDirectory",
    "BadFrame",
    "BadParameter",
    "BadSetting",
    "BadValue",
    "Batch",
    "BlockingClient",
    "Change",
    "Changed",
    "ChannelStatistics",
    "CheckpointFailed",
    "Client",
    "ClientClosed",
    "ClientStatistics",
    "ConnectionLost",
    "DirectoryInUse",
    "DuplicateTable",
    "Engine",
    "Event",
    "HullcastError",
    "InvariantBroken",
    "LiveSubscription",
    "LiveSubscriptions",
    "LogBroken",
    "LogDamaged",
    "Messages",
    "NotPermitted",
    "OutOfTurn",
    "Overloaded",
    "PartlyPublished",
    "PeerClosed",
    "PeerError",
    "Progress",
    "QueryRows",
    "Receipt",
    "Resync",
    "RetryTooOld",
    "Snapshot",
    "SqlError",
    "Subscription",
    "SubscriptionClosed",
    "SubscriptionOverflow",
    "Subscriptions",
    "Superseded",
    "TableInUse",
    "TimedOut",
    "TooLarge",
    "Unavailable",
    "UnknownChannel",
    "UnknownColumn",
    "UnknownTable",
    "UsageError",
    "VersionMismatch",
    "__version__",
    "blocking",
    "connect",
    "connect_blocking",
    "testing",
]
