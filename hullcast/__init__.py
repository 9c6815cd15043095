"""Hullcast: subscribe to SQL. Everything a user needs, under one name.

Names are imported when they are first used: `import hullcast` is quick, and a client does not load the engine.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hullcast.broker.engine.engine import Engine
    from hullcast.broker.engine.subscription import EngineSubscription
    from hullcast.broker.engine.subscriptions import EngineSubscriptions
    from hullcast.broker.reformulate.channel import ChannelStatistics
    from hullcast.broker.reformulate.messages import Batch, Messages
    from hullcast.broker.tables.schema import Column, ColumnType, Table
    from hullcast.clients import spark
    from hullcast.clients.sdk import blocking, testing
    from hullcast.clients.sdk.blocking import (
        BlockingClient,
        BlockingPublisher,
        BlockingSubscription,
        BlockingSubscriptions,
    )
    from hullcast.clients.sdk.blocking import connect as connect_blocking
    from hullcast.clients.sdk.client import Client, ClientStatistics, Receipt, connect
    from hullcast.clients.sdk.history import ChangePart, History, TablePart
    from hullcast.clients.sdk.publisher import Publisher, RowsRefused, WindowFull
    from hullcast.clients.sdk.publishing import PartlyPublished
    from hullcast.clients.sdk.subscription import Subscription
    from hullcast.clients.sdk.subscriptions import Changed, Subscriptions
    from hullcast.network.answers.answers import Overflow
    from hullcast.network.answers.events import Change, Event, Progress, Resync, Snapshot, StreamTuple
    from hullcast.network.answers.named import QueryRows, QueryWorth, TableWorth
    from hullcast.network.answers.result import ResultRows
    from hullcast.network.link.dialer import DialerStatistics
    from hullcast.network.link.limits import LinkLimits
    from hullcast.network.wire.errors import (
        AnswerGone,
        BadBatch,
        BadDirectory,
        BadFrame,
        BadParameter,
        BadSetting,
        BadValue,
        CheckpointFailed,
        ClientClosed,
        ConnectionLost,
        DeadlineMissed,
        DirectoryInUse,
        DiskFull,
        DuplicateTable,
        DuplicateView,
        HistoryGone,
        HullcastError,
        InvariantBroken,
        LoadFailed,
        LogBroken,
        LogDamaged,
        NoHistory,
        NotPermitted,
        OutOfTurn,
        Overloaded,
        PeerClosed,
        PeerError,
        PromiseTooShort,
        QueriesFailed,
        RetryTooOld,
        SqlError,
        SubscriptionClosed,
        SubscriptionOverflow,
        Superseded,
        TableInUse,
        TableInView,
        TimedOut,
        TooLarge,
        Unavailable,
        UnknownChannel,
        UnknownColumn,
        UnknownTable,
        UnknownView,
        UsageError,
        VersionMismatch,
    )

__version__ = "0.1.0"

__all__ = [
    "AnswerGone",
    "BadBatch",
    "BadDirectory",
    "BadFrame",
    "BadParameter",
    "BadSetting",
    "BadValue",
    "Batch",
    "BlockingClient",
    "BlockingPublisher",
    "BlockingSubscription",
    "BlockingSubscriptions",
    "Change",
    "ChangePart",
    "Changed",
    "ChannelStatistics",
    "CheckpointFailed",
    "Client",
    "ClientClosed",
    "ClientStatistics",
    "Column",
    "ColumnType",
    "ConnectionLost",
    "DeadlineMissed",
    "DialerStatistics",
    "DirectoryInUse",
    "DiskFull",
    "DuplicateTable",
    "DuplicateView",
    "Engine",
    "EngineSubscription",
    "EngineSubscriptions",
    "Event",
    "History",
    "HistoryGone",
    "HullcastError",
    "InvariantBroken",
    "LinkLimits",
    "LoadFailed",
    "LogBroken",
    "LogDamaged",
    "Messages",
    "NoHistory",
    "NotPermitted",
    "OutOfTurn",
    "Overflow",
    "Overloaded",
    "PartlyPublished",
    "PeerClosed",
    "PeerError",
    "Progress",
    "PromiseTooShort",
    "Publisher",
    "QueriesFailed",
    "QueryRows",
    "QueryWorth",
    "Receipt",
    "ResultRows",
    "Resync",
    "RetryTooOld",
    "RowsRefused",
    "Snapshot",
    "SqlError",
    "StreamTuple",
    "Subscription",
    "SubscriptionClosed",
    "SubscriptionOverflow",
    "Subscriptions",
    "Superseded",
    "Table",
    "TableInUse",
    "TableInView",
    "TablePart",
    "TableWorth",
    "TimedOut",
    "TooLarge",
    "Unavailable",
    "UnknownChannel",
    "UnknownColumn",
    "UnknownTable",
    "UnknownView",
    "UsageError",
    "VersionMismatch",
    "WindowFull",
    "__version__",
    "blocking",
    "connect",
    "connect_blocking",
    "spark",
    "testing",
]

#: Where the names are, `module:name` if it has another one there; all others are errors.
_HOMES = {
    "Batch": "broker.reformulate.messages",
    "BlockingClient": "clients.sdk.blocking",
    "BlockingPublisher": "clients.sdk.blocking",
    "BlockingSubscription": "clients.sdk.blocking",
    "BlockingSubscriptions": "clients.sdk.blocking",
    "Change": "network.answers.events",
    "ChangePart": "clients.sdk.history",
    "Changed": "clients.sdk.subscriptions",
    "ChannelStatistics": "broker.reformulate.channel",
    "Client": "clients.sdk.client",
    "ClientStatistics": "clients.sdk.client",
    "Column": "broker.tables.schema",
    "ColumnType": "broker.tables.schema",
    "DialerStatistics": "network.link.dialer",
    "Engine": "broker.engine.engine",
    "EngineSubscription": "broker.engine.subscription",
    "EngineSubscriptions": "broker.engine.subscriptions",
    "Event": "network.answers.events",
    "History": "clients.sdk.history",
    "LinkLimits": "network.link.limits",
    "Messages": "broker.reformulate.messages",
    "Overflow": "network.answers.answers",
    "PartlyPublished": "clients.sdk.publishing",
    "Progress": "network.answers.events",
    "Publisher": "clients.sdk.publisher",
    "QueryRows": "network.answers.named",
    "QueryWorth": "network.answers.named",
    "Receipt": "clients.sdk.client",
    "ResultRows": "network.answers.result",
    "Resync": "network.answers.events",
    "RowsRefused": "clients.sdk.publisher",
    "Snapshot": "network.answers.events",
    "StreamTuple": "network.answers.events",
    "Subscription": "clients.sdk.subscription",
    "Subscriptions": "clients.sdk.subscriptions",
    "Table": "broker.tables.schema",
    "TablePart": "clients.sdk.history",
    "TableWorth": "network.answers.named",
    "WindowFull": "clients.sdk.publisher",
    "blocking": "clients.sdk.blocking:",
    "connect": "clients.sdk.client",
    "connect_blocking": "clients.sdk.blocking:connect",
    "spark": "clients.spark:",
    "testing": "clients.sdk.testing:",
}

if not TYPE_CHECKING:  # a type checker would take any name at all to be there

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home, renamed, own = _HOMES.get(name, "network.wire.errors").partition(":")
        module = import_module(f"{__name__}.{home}")
        globals()[name] = found = getattr(module, own or name) if own or not renamed else module
        return found

    def __dir__() -> list[str]:
        return list(__all__)


# In a checkout the four folders beside this one are linked here, for tools that look at files. Python imports them from
# where they are, so that tracebacks and breakpoints name the files that people edit.
if (Path(__file__).parent / "broker").is_symlink():
    __path__.insert(0, str(Path(__file__).parent.parent))
elif find_spec(f"{__name__}.broker") is None:  # a copy that lost the links, or a package built from one
    raise ImportError(
        f"{Path(__file__).parent} lacks the folders broker, clients, network and sim. In the repository they are "
        "symbolic links, and this copy was made without them: clone it again with `git clone -c core.symlinks=true`, "
        "or unpack the archive with a tool that keeps links (tar, unzip), then install Hullcast again"
    )
