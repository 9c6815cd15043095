"""Settings of the server: `hullcast server`."""

# ruff: noqa: RUF009  `option` and `part` make fields, as `dataclasses.field` does

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hullcast.network.settings.common import (
    GIB,
    KIB,
    MIB,
    LinkSettings,
    LogSettings,
    SecuritySettings,
    check_advertise,
    check_listen,
    check_monitor,
    check_name,
    check_reachable,
)
from hullcast.network.settings.declaring import Settings, option, part
from hullcast.network.wire.limits import DEFAULT as WIRE


@dataclass(frozen=True, kw_only=True)
class ServerSettings(Settings):
    """Where the server listens and keeps its data, and how much of everything it keeps."""

    section: ClassVar[str] = "server"

    listen: str = option(
        "tcp://127.0.0.1:7600",
        "endpoint for nodes and clients; port 0 lets the system choose",
        metavar="ENDPOINT",
        check=check_listen,
    )
    advertise: str = option(
        "",
        "endpoint that others should connect to; empty: the one it listens on (needed when that is tcp://*)",
        metavar="ENDPOINT",
        check=check_advertise,
    )
    data: Path | None = option(
        None,
        "folder of the commit log and its checkpoints; empty: rows are in memory only, and lost when the process ends",
        metavar="DIR",
    )
    name: str = option("server", "name in logs and `hullcast status`", check=check_name)
    monitor: str = option(
        "",
        "HTTP address of /healthz, /readyz, /metrics and /status; empty: none",
        metavar="HOST:PORT",
        check=check_monitor,
    )
    prune: bool = option(
        True,
        "do not send a child messages that no subscription below it can match",
        raised="less traffic, but the server compares each message with what its children want",
    )
    retention_bytes: int = option(
        64 * MIB,
        "bytes of recent messages kept for clients that reconnect",
        raised="clients may be away longer and still get every event, but it takes that much memory",
        least=0,
        most=1024 * GIB,
    )
    retention_s: float = option(
        600.0,
        "age at which such a message is dropped",
        raised="clients may be away longer and still get every event, within retention_bytes",
        least=0,
        most=30 * 86400,
    )
    checkpoint_updates: int = option(
        1_000_000,
        "updates after which the server writes a checkpoint",
        raised="less work while running, but a restart has more of the log to replay",
        least=1,
        most=10**12,
    )
    checkpoint_s: float = option(
        300.0,
        "seconds after which it writes one, if there were updates",
        raised="less work while running, but a restart has more of the log to replay",
        least=1,
        most=30 * 86400,
    )
    segment_bytes: int = option(
        64 * MIB,
        "size at which the log starts a new file",
        raised="fewer files, but disk space is freed in larger pieces and later",
        least=64 * KIB,
        most=64 * GIB,
    )
    pending_bytes: int = option(
        64 * MIB,
        "bytes of requests that may wait for the disk; beyond it publishers get Overloaded and retry",
        raised="longer bursts are accepted, but they take memory and wait longer",
        least=64 * KIB,
        most=64 * GIB,
    )
    cover_budget: int = option(
        256,
        "boxes that describe what one child node wants of one channel",
        raised="fewer needless messages, but more memory and more time for matching",
        least=1,
        most=1_000_000,
    )
    batch_rows: int = option(
        100_000,
        "rows in one batch; larger ones are refused (the SDK sends what is beyond 100,000 in pieces of 50,000)",
        raised="more throughput for bulk loads, but all other clients wait while one is applied",
        least=1,
        most=10_000_000,
    )
    subscribe_rows: int = option(
        100_000,
        "subscriptions in one request; larger ones are refused (the SDK asks for at most 25,000 at once)",
        raised="fewer round trips, but all other clients wait while the subscriptions of one request are entered",
        least=1,
        most=10_000_000,
    )
    subscribe_groups: int = option(
        1000,
        "different queries in one request to subscribe; larger ones are refused (the SDK asks for at most 500 at once)",
        raised="fewer round trips after a lost connection, but each takes longer",
        least=1,
        most=WIRE.groups,
    )
    query_s: float = option(
        20.0,
        "seconds that a one-time query may run before it is stopped",
        raised="heavier queries finish, but each takes a processor for longer",
        least=0.01,
        most=86400,
    )
    query_memory_bytes: int = option(
        512 * MIB,
        "memory that a one-time query may use, in addition to the tables it reads",
        raised="larger sorts and answers, but this host needs memory for query_processes of them",
        least=16 * MIB,
        most=1024 * GIB,
    )
    query_processes: int = option(
        4,
        "one-time queries that run at once, each in a process of its own",
        raised="slow queries delay fewer others, but all of them share processors and memory with the server",
        least=1,
        most=1000,
    )
    channel_linger_s: float = option(
        30.0,
        "seconds that a channel stays open after its last subscription ends",
        raised="clients that return find it open, but until then the server computes messages that nobody uses",
        least=0,
        most=86400,
    )
    max_channels: int = option(
        1000,
        "channels (different queries, not counting their constants) that may be open at once; more are refused",
        raised="more different queries, but each costs memory and time per update",
        least=1,
        most=1_000_000,
    )
    max_children: int = option(
        10_000,
        "clients and nodes that may be connected at once; more are refused",
        raised="more fit on one server, but each takes memory and a socket",
        least=1,
        most=1_000_000,
    )
    link: LinkSettings = part(LinkSettings)
    security: SecuritySettings = part(SecuritySettings)
    log: LogSettings = part(LogSettings)

    def check(self) -> None:
        """Others can dial it, and nothing goes in plain text beyond loopback unless asked for."""
        check_reachable(self.listen, self.advertise)
        self.security.check_plain("listen", self.listen, listening=True)
