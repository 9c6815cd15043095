"""Each piece of Python in clients/sdk/SDK.md runs, against a real server and a node."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import hullcast
from hullcast import testing
from hullcast.broker.queries import derived, sqlite_copy
from hullcast.broker.reformulate import first, tuples
from hullcast.broker.server import evaluating, history, making, queries, streams, warehouse
from hullcast.broker.server.settings import ServerSettings
from hullcast.broker.sql import create, subscription, text, view
from hullcast.broker.streams.operators import operator
from hullcast.broker.tables.values import EXACT, LONGEST_TEXT_BYTES
from hullcast.clients.sdk import client, gathering, groups, line, publisher, publishing
from hullcast.network.link.limits import LinkLimits
from hullcast.network.link.socket import MOST_SOCKETS, SOCKETS_PER_DIALER
from hullcast.network.node.settings import NodeSettings
from hullcast.network.settings.common import LinkSettings
from hullcast.network.wire import bodies
from hullcast.network.wire.limits import DEFAULT

DOCUMENT = Path(__file__).parents[3] / "clients" / "sdk" / "SDK.md"
PIECES = re.findall(r"^## (.*?)$|^```python\n(.*?)^```$", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def pieces() -> list[Any]:
    found: list[Any] = []
    heading = ""
    for title, code in PIECES:
        heading = title or heading
        if code:
            found.append(pytest.param(code, id=f"{len(found)} {heading}"))
    return found


@pytest.mark.parametrize("code", pieces())
async def test_an_example_runs(code: str, tmp_path: Path) -> None:
    names: dict[str, Any] = {"hullcast": hullcast}
    exec(compile(f"async def example(hc):\n{textwrap.indent(code, '    ')}", str(DOCUMENT), "exec"), names)
    async with testing.cluster(nodes=1, data=tmp_path) as endpoint, hullcast.connect(endpoint) as hc:
        await hc.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK REAL, PER REAL)")
        await names["example"](hc)


SERVER = ServerSettings()
LIMITS = {
    "text in one cell, bytes of UTF-8": LONGEST_TEXT_BYTES,
    "an INTEGER, in size": EXACT,
    "columns of a table": create.MAXIMUM_COLUMNS,
    "name of a table or column, characters": text.MAXIMUM_NAME,
    "text of a statement, characters": text.MAXIMUM_CHARACTERS,
    "ranges in the WHERE of a subscription": subscription.MAXIMUM_RANGES,
    "tuples that a stream retains": create.MAXIMUM_RETAINED,
    "different windows over streams that are subscribed to": making.MOST_WINDOWS,
    "memory of all these windows, bytes": SERVER.stream_window_bytes,
    "different joins over streams that are subscribed to": streams.MOST_JOINS,
    "results of such a join that are kept for replay": derived.HIDDEN_ROWS,
    "results that one tuple may make in a join over streams": operator.MOST_RESULTS,
    "updates that joins may be behind before their publishers are refused": streams.MOST_BEHIND,
    "tables that a view joins": view.MAXIMUM_SOURCES,
    "views of a server": warehouse.MOST_VIEWS,
    "one request or reply, bytes": DEFAULT.body_bytes,
    "rows in one batch that is applied whole": SERVER.batch_rows,
    "rows in such a piece": publishing.PIECE_ROWS,
    "rows in one `publish`": DEFAULT.rows,
    "changes of a client under way at once": client.CHANGES_WAITING,
    "single rows that travel as one change": gathering.GATHERED_ROWS,
    "rows without a receipt of a publisher, bytes": publisher.WINDOW_BYTES,
    "subscriptions in one request": SERVER.subscribe_rows,
    "subscriptions in such a portion": groups.PORTION_SUBSCRIPTIONS,
    "different queries in one request": SERVER.subscribe_groups,
    "subscriptions of a client": groups.MOST_SUBSCRIPTIONS,
    "different queries open at once, whatever their values": SERVER.max_channels,
    "different queries open at once of one key": SERVER.channels_per_client,
    "different conditional subscriptions at once": SERVER.max_conditionals,
    "different conditional subscriptions of one key": SERVER.max_conditionals // 2,
    "bytes of the rows that a conditional subscription brings": evaluating.RESULT_BYTES,
    "period of a conditional subscription, seconds": bodies.MOST_PERIOD_S,
    "tables in one `when`": bodies.MOST_TABLES,
    "rows in the first answers of one `subscribe` or `subscribe_many`": first.FIRST_ROWS,
    "tuples of a stream that one `subscribe` or `subscribe_many` begins with (`after=`)": tuples.REPLAYED_TUPLES,
    "rows read for these first answers": first.MOST_LOOKS,
    "rows in the answer of a one-time query": sqlite_copy.ROW_LIMIT,
    "time of a one-time query, seconds": SERVER.query_s,
    "memory of a one-time query, bytes": SERVER.query_memory_bytes,
    "processes that load tables and run one-time queries": SERVER.warehouse_processes,
    "one-time queries that wait for their turn": queries.QUERIES.waiting,
    "one-time queries of one key that wait": queries.QUERIES.waiting_per_owner,
    "reads of the change history that wait for their turn": history.HISTORY.waiting,
    "reads of the change history of one key that wait": history.HISTORY.waiting_per_owner,
    "clients and nodes connected to one server or node": SERVER.max_children,
    "clients in one process": MOST_SOCKETS // SOCKETS_PER_DIALER,
    "what a gateway holds for a client that does not read, bytes": LinkSettings().queue_bytes,
    "read ahead for a call while a subscription blocks, bytes": line.READ_AHEAD_BYTES,
}


def test_the_limits_named_are_those_of_the_code() -> None:
    section = DOCUMENT.read_text("utf-8").split("## Limits\n")[1].split("\n## ")[0]
    named = re.findall(r"^\| (.+?) \| ([\d,]+) \| (.*?) ?\|$", section, re.MULTILINE)
    assert {what: int(number.replace(",", "")) for what, number, _ in named} == LIMITS
    remarks = {what: remark for what, _, remark in named}
    sockets = remarks["clients in one process"]
    assert f"{SOCKETS_PER_DIALER} ZeroMQ sockets ({MOST_SOCKETS:,} in all)" in sockets
    for setting in re.findall(r"`((?:max|batch|subscribe|query|stream)_(?!many)\w+)`", section):
        assert hasattr(SERVER, setting)
    assert SERVER.batch_rows == publishing.WHOLE_ROWS
    assert SERVER.subscribe_rows >= groups.PORTION_SUBSCRIPTIONS
    assert SERVER.subscribe_groups >= groups.PORTION_GROUPS
    assert NodeSettings(parent=("tcp://127.0.0.1:1",)).max_children == SERVER.max_children
    assert LinkLimits().queue_bytes == LinkSettings().queue_bytes
