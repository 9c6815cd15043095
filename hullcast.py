"""Hullcast: subscribe to SQL. Everything a user needs, under one name."""

from __future__ import annotations

from broker.engine import Engine
from broker.messages import Batch, Messages
from broker.reformulate.channel import ChannelStatistics
from broker.subscription import Subscription
from broker.subscriptions import Subscriptions
from clients.sdk import blocking, testing
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
