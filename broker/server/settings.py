"""Settings of the server: `hullcast server`."""

# ruff: noqa: RUF009  `option` makes a field, as `dataclasses.field` does

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hullcast.broker.streams.policies import OPERATOR_POLICIES
from hullcast.broker.warehouse.deciding.policies import POLICIES
from hullcast.network.settings.common import GIB, KIB, MIB, ProcessSettings, listen_option, name_option
from hullcast.network.settings.declaring import option
from hullcast.network.wire.limits import DEFAULT as WIRE


@dataclass(frozen=True, kw_only=True)
class ServerSettings(ProcessSettings):
    """Where the server listens and keeps its data, and how much of everything it keeps."""

    section: ClassVar[str] = "server"

    # fmt: off
    listen: str = listen_option("tcp://127.0.0.1:7600", "nodes and clients")
    name: str = name_option("server")
    data: Path | None = option(None, metavar="DIR",
        about="folder of the commit log and its checkpoints; empty: in memory only, lost when the process ends")
    prune: bool = option(True,
        about="drop messages that no subscription can match, before they leave",
        raised="less traffic, but the server compares each message with the interests of its children")
    retention_bytes: int = option(64 * MIB, least=0, most=1024 * GIB,
        about="recent messages kept for clients that reconnect, over all channels",
        raised="clients may be away longer without a new snapshot, but it takes that much memory")
    retention_s: float = option(600.0, least=0, most=30 * 86400,
        about="age at which such a message (retention_bytes) is dropped",
        raised="clients may be away longer without a new snapshot, within retention_bytes")
    checkpoint_updates: int = option(1_000_000, least=1, most=10**12,
        about="updates after which a checkpoint is made",
        raised="less work while running, but a restart has more of the log to replay")
    checkpoint_s: float = option(300.0, least=1, most=30 * 86400,
        about="time after which a checkpoint is made, if there were updates",
        raised="less work while running, but a restart has more of the log to replay")
    segment_bytes: int = option(64 * MIB, least=64 * KIB, most=64 * GIB,
        about="size at which the log begins a new file",
        raised="fewer files, but disk space is freed later and in larger pieces")
    history_bytes: int = option(0, least=0, most=1024 * 1024 * GIB,
        about="size of the log kept for readers of the change history, with at most ten checkpoints; the log that a "
        "restart needs is always kept",
        raised="older changes and tables can be read, but it takes that much disk")
    reserve_bytes: int = option(GIB, least=0, most=1024 * GIB,
        about="room on the disk of `data` that only the log may use, at most a tenth of the disk: loads, large "
        "answers, kept history and checkpoints stop before it; publishes are refused when an eighth of it is "
        "left",
        raised="the log can grow longer when the disk fills up, but there is less room for everything else")
    pending_bytes: int = option(64 * MIB, least=64 * KIB, most=64 * GIB,
        about="bytes of requests that may wait for the disk; then publishers get Overloaded",
        raised="longer bursts are accepted, but they take memory and wait longer")
    batch_rows: int = option(100_000, least=1, most=10_000_000,
        about="most rows in one batch; larger ones are refused "
        "(the SDK sends what is beyond 100,000 in pieces of 50,000)",
        raised="more throughput for bulk loads, but all other clients wait while one is applied")
    subscribe_rows: int = option(100_000, least=1, most=10_000_000,
        about="most subscriptions in one request; larger ones are refused (the SDK asks for at most 25,000 at once)",
        raised="fewer round trips, but all other clients wait while they are entered")
    subscribe_groups: int = option(1000, least=1, most=WIRE.groups,
        about="most different queries in one "
        "request to subscribe; more are refused (the SDK asks for at most 500 at once)",
        raised="fewer round trips after a lost connection, but each reply takes longer")
    query_s: float = option(20.0, least=0.01, most=86400,
        about="time that a one-time query may run; then it is stopped",
        raised="heavier queries finish, but each takes a processor for longer")
    query_memory_bytes: int = option(512 * MIB, least=16 * MIB, most=1024 * GIB,
        about="memory that a one-time query may take, beside the tables it reads",
        raised="larger sorts and answers, but warehouse_processes of them must fit on this host")
    warehouse_processes: int = option(4, least=1, most=1000,
        about="processes that load tables and run one-time queries; if two or more, one never loads and one never "
        "queries",
        raised="slow queries and loads delay fewer others, but they share processors and memory with the server")
    warehouse_policy: str = option("orad", choices=tuple(POLICIES),
        about="policy that decides which query runs or which table is loaded next; `hullcast policy` shows and "
        "switches it")
    warehouse_file_bytes: int = option(16 * GIB, least=MIB, most=1024 * GIB,
        about="most bytes in the file of one table or view for queries, where a text counts once for every row that "
        "has it; a larger one cannot be queried",
        raised="larger tables can be queried, but one may take that much disk, and load longer")
    stream_policy: str = option("bounded-chain", choices=tuple(OPERATOR_POLICIES),
        about="policy that decides which operator of a join over streams runs next")
    stream_queue_bytes: int = option(64 * MIB, least=64 * KIB, most=64 * GIB,
        about="bytes of tuples that may wait in joins over streams; then publishers of their streams get Overloaded",
        raised="longer bursts are accepted, but they take memory, and results come later")
    stream_window_bytes: int = option(GIB, least=64 * KIB, most=1024 * GIB,
        about="memory of all windows over streams together; then subscriptions that need another one get "
        "Overloaded. [ROWS n] counts n tuples, [RANGE ..] those it has",
        raised="more and larger windows, but they take that much memory")
    stream_memory_bytes: int = option(GIB, least=MIB, most=1024 * GIB,
        about="memory of all joins over streams together (windows, copies of tables); one join may have half of it",
        raised="more and larger joins, but they take that much memory")
    channel_linger_s: float = option(30.0, least=0, most=86400,
        about="time a channel stays open after its last subscription, and ranges of joins are kept for lost clients",
        raised="clients that reconnect can resume longer, but the server computes results that no client uses")
    max_channels: int = option(1000, least=1, most=1_000_000,
        about="channels (different queries, whatever their constants) that may be open at once; more are refused",
        raised="more different queries, but each costs memory and time per update")
    channels_per_client: int = option(50, least=1, most=1_000_000,
        about="channels that one key (without keys: one connection) may have open, including conditions; more are "
        "refused",
        raised="more different queries for one client, but each makes every update cost more")
    max_conditionals: int = option(500, least=1, most=1_000_000,
        about="different conditional subscriptions at once (a shared one counts once); half of them for one key",
        raised="more different ones, but each is a channel, and runs its query whenever it fires")
