"""Hullcast: subscribe to SQL. Everything a user needs, under one name."""

from __future__ import annotations

from broker.engine import Engine
from broker.messages import Batch, Messages
from broker.reformulate.channel import ChannelStatistics
from broker.subscription import Subscription
from broker.subscriptions import Subscriptions
from network.answers.events import Change, Event, Resync
from network.wire.errors import (
    BadBatch,
    BadParameter,
    BadSetting,
    BadValue,
    DuplicateTable,
    HullcastError,
    InvariantBroken,
    SqlError,
    SubscriptionClosed,
    TableInUse,
    UnknownChannel,
    UnknownColumn,
    UnknownTable,
    UsageError,
)

__version__ = "0.1.0"

__all__ = [
    "BadBatch",
    "BadParameter",
    "BadSetting",
    "BadValue",
    "Batch",
    "Change",
    "ChannelStatistics",
    "DuplicateTable",
    "Engine",
    "Event",
    "HullcastError",
    "InvariantBroken",
    "Messages",
    "Resync",
    "SqlError",
    "Subscription",
    "SubscriptionClosed",
    "Subscriptions",
    "TableInUse",
    "UnknownChannel",
    "UnknownColumn",
    "UnknownTable",
    "UsageError",
    "__version__",
]
