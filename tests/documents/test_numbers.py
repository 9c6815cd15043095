"""A number that stands in a document and in the code is the same in both.

To add one: the file, a regular expression with one group around the number, and where the code has it
(`module:name.attribute`, or a function). To change one: change it in the code, then where this test points.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any

import pytest

from hullcast.broker.server.settings import ServerSettings
from hullcast.network.settings.common import LinkSettings
from tests.support.documents import ROOT, section, text_of

MIB, KIB = 1 << 20, 1 << 10
WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "ten": 10, "a dozen": 12,
    "a minute": 60, "half": 0.5, "half a minute": 30, "a quarter": 0.25, "half a million": 500_000, "a tenth": 0.1,
}  # fmt: skip
UNITS = {"GiB": 1024 * MIB, "MiB": MIB, "KiB": KIB, "%": 0.01}

#: There is another page of this name.
STREAMS = "broker/streams/STREAMS.md"

#: Where the code has it: a path into a module, or a function that asks.
Source = str | Callable[[], Any]


def setting(name: str) -> Source:
    """The default of a setting of the server or of links."""
    return lambda: getattr(ServerSettings(), name, None) or getattr(LinkSettings(), name)


def years() -> tuple[int, int]:
    """The first and the last year of which every moment is a TIMESTAMP."""
    from hullcast.broker.tables.values import EXACT

    of_a_year = 365.2425 * 86_400e6
    return int(1970 - EXACT / of_a_year), int(1970 + EXACT / of_a_year)


def fields(of: str) -> Source:
    """How many bytes the table of LOG.md gives to a header, field by field."""

    def added() -> int:
        table = text_of("LOG.md").split(of)[1].split("\n\n")[1]
        return sum(int(size) for size in re.findall(r"^\| (\d+) \|", table, re.MULTILINE))

    return added


def get(path: str) -> Any:
    """What stands at `module:name.attribute` in the package."""
    module, _, names = path.partition(":")
    found: Any = import_module(f"hullcast.{module}")
    return reduce(lambda at, name: at[int(name)] if name.isdigit() else getattr(at, name), names.split("."), found)


def seconds_by_default() -> float:
    from hullcast.clients.sdk.connecting import seconds

    return seconds(None)


def buffer_by_default() -> Any:
    import inspect

    import hullcast

    return inspect.signature(hullcast.Client.subscribe).parameters["buffer"].default


def sizes() -> Any:
    return get("sim.traffic.sizes:wire_sizes")()


def window_frames() -> Any:
    return get("network.link.limits:LinkLimits")().window_frames


def handshake(times: str = "") -> Source:
    def seconds() -> float:
        return float(get("network.link.limits:LinkLimits")().handshake_s * (get(times) if times else 1))

    return seconds


def few_clients() -> float:
    return float(get("network.link.limits:LinkLimits")().heartbeat_s * get("network.link.limits:HEARTBEATS_PER_S"))


def ahead() -> Any:
    return 3 * get("broker.reformulate.kernel:AHEAD")  # its docstring: three times over


def fewest() -> float:
    return float(get("broker.index.nodes:FEW_LEAF") / get("broker.index.nodes:LEAF"))


def further(kind: str) -> Source:
    """Bytes that one more row adds to a frame."""
    return lambda: getattr(sizes(), kind)[2] - getattr(sizes(), kind)[1]


PORTION = "clients.sdk.groups:PORTION_SUBSCRIPTIONS"
PORTION_GROUPS = "clients.sdk.groups:PORTION_GROUPS"
FULL = "sim.experiments.traffic.settings:FULL"

NUMBERS: list[tuple[str, str, Source]] = [
    ("OPERATING.md", r"\*protocol version\*: (\d+) in this release", "network.link.header:VERSION"),
    ("OPERATING.md", r"`checkpoint_s` \(([\d,]+) updates", setting("checkpoint_updates")),
    ("OPERATING.md", r"`checkpoint_s` \([\d,]+ updates or (\d+) s\)", setting("checkpoint_s")),
    ("FIRST_STEPS.md", r"`connect` waits for one, (\d+) seconds by default", seconds_by_default),
    ("SQL.md", r"ranges on up to (\d+) columns", "broker.sql.subscription:MAXIMUM_RANGES"),
    ("SQL.md", r"INTEGER \(exact to (2\^53)\)", "broker.tables.values:EXACT"),
    ("SQL.md", r"from (\d+) to \d+\.$", lambda: years()[0]),
    ("SQL.md", r"from \d+ to (\d+)\.$", lambda: years()[1]),
    ("FIRST_STEPS.md", r"a small stock market: ([\d,]+) updates a second", "clients.cli.commands.replay:RATE"),
    ("README.md", r"Java (\d+) or newer", "sim.spark.needs:OLDEST_JAVA"),
    ("ARCHITECTURE.md", r"too large for one reply \(above (\d+ MiB)\)", "broker.server.subscribing:PART_BYTES"),
    ("DECISIONS.md", r"asks for the leaf of an update (a dozen) updates", ahead),
    ("DECISIONS.md", r"pairs are held in memory, (half a million) at most", "broker.reformulate.join:MOST_PAIRS"),
    ("DECISIONS.md", r"in portions of at most ([\d,]+) subscriptions", PORTION),
    ("DECISIONS.md", r"in portions of at most [\d,]+ subscriptions and (\d+) groups", PORTION_GROUPS),
    ("DECISIONS.md", r"with (\d+) of them under way", "clients.sdk.client:CHANGES_WAITING"),
    ("DECISIONS.md", r"\*\*27\. Fanout (\d+)\.\*\*", "sim.overlay.tree:FANOUT"),
    ("DECISIONS.md", r"INTEGER is exact to (2\^53)", "broker.tables.values:EXACT"),
    ("SDK.md", r"and for the first connection, (\d+) by default", seconds_by_default),
    ("SDK.md", r"more than ([\d,]+) rows is sent in\s+pieces", "clients.sdk.publishing:WHOLE_ROWS"),
    ("SDK.md", r"pieces of ([\d,]+), and each piece", "clients.sdk.publishing:PIECE_ROWS"),
    ("SDK.md", r"Up to (\d+) changes of a client", "clients.sdk.client:CHANGES_WAITING"),
    ("SDK.md", r"the gateway's queue \((\d+ MiB)\)", setting("queue_bytes")),
    ("SDK.md", r"keeps up to (\d+ MiB) of what arrives", "clients.sdk.line:READ_AHEAD_BYTES"),
    ("SDK.md", r"It keeps (\d+) times `buffer` events", "clients.sdk.mailbox:OVERSHOOT"),
    ("SDK.md", r"A call with up to ([\d,]+) ranges is one request", PORTION),
    ("SDK.md", r"`buffer` is ([\d,]+) unless", buffer_by_default),
    ("SDK.md", r"so slowly that ([\d,]+) wait", buffer_by_default),
    ("FIRST_STEPS.md", r"([\d,]+) events wait for it", buffer_by_default),
    ("SDK.md", r"take `window_bytes` \((\d+ MiB) by default\)", "clients.sdk.publisher:WINDOW_BYTES"),
    ("SDK.md", r"the first (\d+) refused rows", "clients.sdk.publisher:REFUSALS_KEPT"),
    ("SDK.md", r"\| (\d+ MiB) less room for the frame", "network.wire.limits:DEFAULT.frame_bytes"),
    ("SDK.md", r"one batch of rows changes more than ([\d,]+) such pairs", "broker.reformulate.join:MOST_PAIRS"),
    ("ARCHITECTURE.md", r"up to ([\d,]+) tuples as columns", "broker.streams.runner:MICRO_BATCH"),
    ("DECISIONS.md", r"a hidden join keeps only its last ([\d,]+) results", "broker.queries.derived:HIDDEN_ROWS"),
    ("OPERATING.md", r"at ([\d,]+) updates publishers of their streams get", "broker.server.streams:MOST_BEHIND"),
    ("OPERATING.md", r"because it was killed or hung for (\d+) s;", "broker.server.streams:STREAMS.silence_s"),
    ("OPERATING.md", r"it begins again after (\d+) s, with new tuples", "broker.server.streams:AGAIN_S"),
    (STREAMS, r"when it may have to compile, (\d+) s", "broker.server.streams:STREAMS.first_word_s"),
    (STREAMS, r"its last ([\d,]+) results are kept for clients", "broker.queries.derived:HIDDEN_ROWS"),
    (STREAMS, r"There may be (\d+) different ones", "broker.server.making:MOST_JOINS"),
    (STREAMS, r"there may be (\d+) different windows", "broker.server.making:MOST_WINDOWS"),
    (STREAMS, r"or ([\d,]+) if that is more", "broker.server.changing:SETTLED_AT_ONCE"),
    (STREAMS, r"in portions of ([\d,]+), a million", "broker.tables.windows:MOVED_AT_ONCE"),
    ("OPERATING.md", r"There may be (\d+) different ones, half of them", "broker.server.making:MOST_WINDOWS"),
    (STREAMS, r"one tuple makes more than ([\d,]+) results", "broker.streams.operators.operator:MOST_RESULTS"),
    (STREAMS, r"or hangs for (\d+) s", "broker.server.streams:STREAMS.silence_s"),
    (STREAMS, r"is stopped \(SIGSTOP\) for (\d+) s", "broker.processes.heartbeat:STOPPED_S"),
    ("OPERATING.md", r"\(SIGSTOP\) \| after (\d+) s it is killed", "broker.processes.heartbeat:STOPPED_S"),
    ("OPERATING.md", r"saves replaying ([\d,]+) updates or more", "broker.server.storage:STOP_UPDATES"),
    (STREAMS, r"\(also: ([\d,]+) updates not read\)", "broker.server.streams:MOST_BEHIND"),
    ("OPERATING.md", r"closed when it sends a frame above (\d+ KiB)", "network.node.children:POWERLESS_FRAME_BYTES"),
    ("OPERATING.md", r"or leaves (\d+ MiB) of replies unread", "network.node.children:POWERLESS_HELD_BYTES"),
    ("OPERATING.md", r"`hullcast_feed_bytes` \| near (\d+ MiB)", "broker.tables.feed:LIMIT_BYTES"),
    ("OPERATING.md", r"`hullcast_staged_bytes` \| near (\d+ MiB)", "broker.server.subscribing:HELD_BYTES"),
    ("OPERATING.md", r"At (\d+ MiB) \(\d+ MiB for one key\)", "broker.server.subscribing:HELD_BYTES"),
    ("OPERATING.md", r"\((\d+ MiB) for one key\)", "broker.server.subscribing:HELD_BYTES_PER_OWNER"),
    ("OPERATING.md", r"each is dropped after (a minute) without use", "broker.server.subscribing:STAGED_S"),
    ("OPERATING.md", r"for the commit log alone \((\d+ GiB),", setting("reserve_bytes")),
    ("OPERATING.md", r"up to three more within (\d+ GiB)", "broker.log.history:_TABLES_KEPT_BYTES"),
    ("WAREHOUSE.md", r"`warehouse_file_bytes` \((\d+ GiB)\)", setting("warehouse_file_bytes")),
    ("OPERATING.md", r"`hullcast_queries_kept_bytes` \| near (\d+ GiB)", "broker.server.queries:KEPT_BYTES"),
    ("OPERATING.md", r"At (\d+ GiB) \(\d+ GiB for one key\)", "broker.server.queries:KEPT_BYTES"),
    ("OPERATING.md", r"\((\d+ GiB) for one key\)", "broker.server.queries:KEPT_BYTES_PER_OWNER"),
    ("OPERATING.md", r"each is dropped after (half a minute) without use", "broker.server.queries:KEPT_S"),
    ("PROTOCOL.md", r"A ticket is good for (\d+) seconds", "broker.server.queries:KEPT_S"),
    ("SDK.md", r"nothing was fetched for (\d+) seconds", "broker.server.queries:KEPT_S"),
    ("broker/warehouse/WAREHOUSE.md", r"What is not fetched for (\d+) seconds", "broker.server.queries:KEPT_S"),
    ("PROTOCOL.md", r"in one portion \(about (\d+ KiB)\)", "broker.warehouse.process.answering:PORTION_BYTES"),
    ("OPERATING.md", r"its address \((ten) a minute at most\)", "network.security.authenticator:LOGGED_MOST"),
    ("OPERATING.md", r"With more than (\d+) clients at one parent", few_clients),
    ("OPERATING.md", r"\(([\d,]+) a second in all", "network.link.limits:HEARTBEATS_PER_S"),
    ("OPERATING.md", r"is then at least (four) of them", "network.link.limits:SILENT_HEARTBEATS"),
    ("OPERATING.md", r"The SDK asks for ([\d,]+) at once", PORTION),
    ("LOG.md", r"The header \((\d+) bytes\)", "broker.log.segment:HEADER_BYTES"),
    ("LOG.md", r"The header \((\d+) bytes\)", fields("The header (")),
    ("LOG.md", r"header of (\d+) bytes, then the payload", "broker.log.record:HEADER_BYTES"),
    ("LOG.md", r"header of (\d+) bytes, then the payload", fields("Then come records")),
    ("LOG.md", r"^\| 4 \| version \| (\d+) \|", "broker.log.segment:VERSION"),
    ("LOG.md", r"and (seven) tables of Hullcast", lambda: len(get("broker.log.checkpoint:_OWN_TABLES"))),
    ("LOG.md", r"all but (two) checkpoints", "broker.log.recovery:CHECKPOINTS_KEPT"),
    ("LOG.md", r"(\d) mark, \d batch, \d statement", "broker.log.record:RecordKind.MARK"),
    ("LOG.md", r"\d mark, (\d) batch, \d statement", "broker.log.record:RecordKind.BATCH"),
    ("LOG.md", r"\d mark, \d batch, (\d) statement", "broker.log.record:RecordKind.STATEMENT"),
    ("PROTOCOL.md", r"acknowledges after\s+(\d+ KiB) or \d+ payloads", "network.link.limits:ACK_BYTES"),
    ("PROTOCOL.md", r"acknowledges after\s+\d+ KiB or (\d+) payloads", "network.link.limits:ACK_FRAMES"),
    ("PROTOCOL.md", r"ours gives up after (\d+) seconds", handshake()),
    ("PROTOCOL.md", r"ours gives up after \d+ seconds \((\d+) if", handshake("network.link.limits:BUSY_HANDSHAKES")),
    ("PROTOCOL.md", r"say hello within (\d+) seconds", handshake("network.link.limits:BUSY_HANDSHAKES")),
    ("PROTOCOL.md", r"\(ours: (\d+ MiB) and \d+ payloads\)", setting("window_bytes")),
    ("PROTOCOL.md", r"\(ours: \d+ MiB and (\d+) payloads\)", window_frames),
    ("PROTOCOL.md", r"asks more than (\d+) times in between", "network.link.limits:RESENDS_IGNORED"),
    ("PROTOCOL.md", r"in between, or has (eight) windows", "network.link.limits:RESEND_WINDOWS"),
    ("PROTOCOL.md", r"\((a quarter) from a client, half", "network.node.node:CLIENT_SHARE"),
    ("PROTOCOL.md", r"\(a quarter from a client, (half)\s+from a node", "network.node.node:NODE_SHARE"),
    ("SDK.md", r"less often where a gateway has more than (\d+) clients", "network.node.children:TOLD_AT_ONCE"),
    ("PROTOCOL.md", r"Up to (\d+) such rows may travel", "broker.server.changing:APART_ROWS"),
    ("PROTOCOL.md", r"keep it for a moment \((\d+) ms", lambda: round(1e3 * get("broker.server.releases:LAZY_S"))),
    ("PROTOCOL.md", r"until it has (\d+) for this client", "broker.server.releases:LAZY_MOST"),
    ("PROTOCOL.md", r"that has passed (\d+) links", "network.wire.frames:LONGEST_ROUTE"),
    ("PROTOCOL.md", r"a publisher's last (\d+) changes", "broker.log.publishers:WINDOW"),
    ("SDK.md", r"portions of up to ([\d,]+) rows", "broker.log.history_process:PORTION_ROWS"),
    ("PROTOCOL.md", r"float, 0 to ([\d,]+), or nil", "network.wire.bodies:MOST_DEADLINE_S"),
    ("PROTOCOL.md", r"integer, at most ±([\d,]+)", "network.wire.bodies:MOST_PRIORITY"),
    ("PROTOCOL.md", r"divided into `parts` \(1 to ([\d,]+)\)", "network.wire.bodies:MOST_TABLE_PARTS"),
    ("PROTOCOL.md", r"by default ([\d,]+) subscriptions and", setting("subscribe_rows")),
    ("PROTOCOL.md", r"by default [\d,]+ subscriptions and ([\d,]+) groups", setting("subscribe_groups")),
    ("PROTOCOL.md", r"asks for at most ([\d,]+) subscriptions and", PORTION),
    ("PROTOCOL.md", r"asks for at most [\d,]+ subscriptions and (\d+) groups", PORTION_GROUPS),
    ("PROTOCOL.md", r"A ticket is good for (a minute)", "broker.server.subscribing:STAGED_S"),
    ("PROTOCOL.md", r"\| every_s \| float, ([\d.]+) to", "network.wire.bodies:LEAST_PERIOD_S"),
    ("PROTOCOL.md", r"\| every_s \| float, [\d.]+ to ([\d,]+), or nil", "network.wire.bodies:MOST_PERIOD_S"),
    ("PROTOCOL.md", r"at_most_every_s \| float, ([\d.]+) to", "network.wire.bodies:LEAST_PAUSE_S"),
    ("PROTOCOL.md", r"at_most_every_s \| float, [\d.]+ to ([\d,]+), or nil", "network.wire.bodies:MOST_PERIOD_S"),
    ("PROTOCOL.md", r"\| tables \| array of texts, at most (\d+)", "network.wire.bodies:MOST_TABLES"),
    ("SDK.md", r"its rows take more than (\d+ KiB)", "broker.server.evaluating:RESULT_BYTES"),
    ("DECISIONS.md", r"what one text may be \((\d+ KiB) before base64", "broker.server.evaluating:RESULT_BYTES"),
    ("PROTOCOL.md", r"its rows take more than (\d+ KiB)", "broker.server.evaluating:RESULT_BYTES"),
    ("PROTOCOL.md", r"^\| point \| (\d+) \|", "network.wire.fields:_WIDEST"),
    ("PROTOCOL.md", r"the name of its type, 1 to (\d+) bytes", "network.wire.packing:_NAME_BYTES"),
    ("PROTOCOL.md", r"an id\s+is (\d+) bytes", "network.wire.fields:ID_BYTES"),
    ("PROTOCOL.md", r"`session` \((\d+) random bytes", "network.link.header:SESSION_BYTES"),
    ("A2BTREE.md", r"A node is a block of (\d+) numbers", "broker.index.nodes:WIDTH"),
    ("A2BTREE.md", r"\| group x (\d+) \| x x 72", "broker.index.nodes:LEAF"),
    ("A2BTREE.md", r"\| group x (\d+) \| x x 48", "broker.index.nodes:INNER"),
    ("A2BTREE.md", r"beyond (\d+) there is no gain", "broker.index.nodes:INNER"),
    ("A2BTREE.md", r"a node below (a quarter) full", fewest),
    ("SIMULATION.md", r"simulated network of ([\d,]+) nodes", f"{FULL}.network.nodes"),
    ("SIMULATION.md", r"of [\d,]+ nodes and ([\d,]+) brokers", f"{FULL}.network.brokers"),
    ("SIMULATION.md", r"brokers, ([\d,]+) subscriptions, [\d,]+ prices", f"{FULL}.subscriptions"),
    ("SIMULATION.md", r"grows by at most ([\d.]+)x", "sim.experiments.traffic.judging:FLAT"),
    ("SIMULATION.md", r'"nearly flat": ([\d.]+)x', "sim.experiments.traffic.judging:NEARLY_FLAT"),
    ("SIMULATION.md", r"affected subscription vary by at most ([\d.]+)x", "sim.experiments.traffic.judging:LINEAR"),
    ("SIMULATION.md", r'"close to 10x" \(5.9\) \| ([\d.]+)x', "sim.experiments.traffic.shares:CLOSE_TO_TEN.0"),
    ("SIMULATION.md", r'"close to 10x" \(5.9\) \| .*to ([\d.]+)x', "sim.experiments.traffic.shares:CLOSE_TO_TEN.1"),
    ("SIMULATION.md", r"two: at least (\d+)x at every number", "sim.experiments.traffic.market:ORDERS"),
    ("SIMULATION.md", r"the most of all events is (\d+) or less", "sim.experiments.traffic.goals:STRESS"),
    ("SIMULATION.md", r"rounds of one size differ by at most ([\d.]+)x", "sim.experiments.traffic.scaling:NOISE"),
    ("SIMULATION.md", r"with room \((\d+) children\)", "sim.overlay.tree:FANOUT"),
    ("SIMULATION.md", r"covers of at most (\d+) boxes", setting("cover_budget")),
    ("SIMULATION.md", r"the frame that the engine sends \((\d+) bytes\)", lambda: sizes().row),
    ("SIMULATION.md", r"the smallest frame that CN could use \((\d+) bytes\)", lambda: sizes().lean_row),
    ("SIMULATION.md", r"^\| CN, a row \| (\d+):", lambda: sizes().row),
    ("SIMULATION.md", r"^\| CN, lean \| (\d+):", lambda: sizes().lean_row),
    ("SIMULATION.md", r"CN's bytes scale by (\d+)/", lambda: sizes().lean_row),
    ("SIMULATION.md", r"CN's bytes scale by \d+/(\d+)", lambda: sizes().row),
    ("SIMULATION.md", r"^\| S-CN, k rectangles \| (\d+),", lambda: sizes().rectangles[1]),
    ("SIMULATION.md", r"^\| S-CN, k rectangles \| \d+, and (\d+)", further("rectangles")),
    ("SIMULATION.md", r"^\| S-UN, k answers \| (\d+),", lambda: sizes().unicast[1]),
    ("SIMULATION.md", r"^\| S-UN, k answers \| \d+, and (\d+)", further("unicast")),
    ("SIMULATION.md", r"the events, ([\d,]+) to a file", "sim.traces.trace:PART_EVENTS"),
    ("SIMULATION.md", r"in a ([\d,]+) x [\d,]+ plane", "sim.topology.graph:PLANE"),
    ("SIMULATION.md", r"The factor ([\d.]+) finds every", "sim.traces.yahoo:JUMP_FACTOR"),
    ("SIMULATION.md", r"split-like jump \| price \| ([\d.]+) times", "sim.traces.yahoo:JUMP_FACTOR"),
    ("SIMULATION.md", r"the same ETL: ([\d,]+) stocks", "sim.traces.market:STOCKS"),
    ("SIMULATION.md", r"the same ETL: [\d,]+ stocks, (\d+) days", "sim.traces.market:DAYS"),
    ("SIMULATION.md", r"at random by night \(([\d.]+ %)\)", "sim.traces.market:NIGHT"),
    ("SIMULATION.md", r"by day \(([\d.]+ %)\)", "sim.traces.market:DAY"),
    ("SIMULATION.md", r"with the market \(([\d.]+ %)\)", "sim.traces.market:WHOLE"),
    ("SIMULATION.md", r"PER log-normal around (\d+)\.", "sim.traces.market:PER.0"),
    ("SIMULATION.md", r"is normal around ([\d.]+), cut", "sim.traces.market:RECO.0"),
    ("SIMULATION.md", r"its deviation of ([\d.]+) gives", "sim.traces.market:RECO.1"),
    ("SIMULATION.md", r"\(midpoint N\((\d+), \d+\)", "sim.traces.table51:MIDPOINT.0"),
    ("SIMULATION.md", r"\(midpoint N\(\d+, (\d+)\)", "sim.traces.table51:MIDPOINT.1"),
    ("SIMULATION.md", r"length N\((\d+), \d+\)", "sim.traces.table51:LENGTH.0"),
    ("SIMULATION.md", r"(a tenth) of the rows stand\s+behind", "sim.traces.table51:SHADOWS"),
    ("SIMULATION.md", r"less than (a tenth) of the rows of the busiest", "sim.traces.prices:STRAY"),
    ("SIMULATION.md", r"above ([\d,]+) nodes the slope", "sim.topology.inet:LAST"),
    ("SIMULATION.md", r"below (\d+) nodes it is a star", "sim.topology.inet:FEWEST"),
    ("broker/server/settings.py", r"the SDK sends what is beyond ([\d,]+) in", "clients.sdk.publishing:WHOLE_ROWS"),
    ("broker/server/settings.py", r"in pieces of ([\d,]+)\)", "clients.sdk.publishing:PIECE_ROWS"),
    ("broker/server/settings.py", r"subscriptions in one request; .*at most ([\d,]+) at once", PORTION),
    ("broker/server/settings.py", r"to subscribe; .*at most (\d+) at once", PORTION_GROUPS),
    ("clients/sdk/client.py", r"for up to\s+([\d,]+) rows", "clients.sdk.publishing:WHOLE_ROWS"),
    ("clients/sdk/client.py", r"pieces of ([\d,]+)", "clients.sdk.publishing:PIECE_ROWS"),
    ("clients/sdk/client.py", r"More than ([\d,]+) go in several requests", PORTION),
]  # fmt: skip


def number(text: str) -> float:
    """The number that a text says, also if a line ends in it."""
    text = " ".join(text.split())
    digits, _, unit = text.partition(" ")
    if text in WORDS:
        return WORDS[text]
    if "^" in text:
        base, power = text.split("^")
        return float(int(base) ** int(power))
    return float(digits.replace(",", "")) * (UNITS[unit] if unit else 1)


def spaced(pattern: str) -> str:
    """The same where a line ends between two words."""
    return pattern.replace(" ", r"\s+")


def read(file: str) -> str:
    return text_of(file) if file.endswith(".md") else (ROOT / file).read_text("utf-8")


@pytest.mark.parametrize(("file", "pattern", "source"), NUMBERS, ids=lambda part: part if isinstance(part, str) else "")
def test_a_number_is_that_of_the_code(file: str, pattern: str, source: Source) -> None:
    said = re.search(spaced(pattern), read(file), re.MULTILINE)
    assert said is not None, (
        f"{file} no longer says what the expression {pattern} looks for: change NUMBERS in this test"
    )
    meant = get(source) if isinstance(source, str) else source()
    assert number(said[1]) == pytest.approx(float(meant)), f"{file} says {said[1]}, the code {meant}" + (
        f" ({source})" if isinstance(source, str) else ""
    )


def test_defaults_that_stand_twice_in_the_code_are_equal() -> None:
    from hullcast.network.link.limits import LinkLimits
    from hullcast.network.node.settings import NodeSettings
    from hullcast.network.routing.router import BUDGET

    node, server = NodeSettings(), ServerSettings()
    assert BUDGET == node.cover_budget == server.cover_budget
    assert node.max_children == server.max_children == LinkLimits().peers
    assert get("broker.log.commit_log:SEGMENT_BYTES") == server.segment_bytes
    assert get("broker.warehouse.files.table_file:MOST_BYTES") == server.warehouse_file_bytes


# -- numbers that no entry covers --------------------------------------------------------------------------

#: Measured, examples, or of other software: not in the code.
ELSEWHERE = {
    "ARCHITECTURE.md": [],
    "DECISIONS.md": [
        "1,000 zones are 32 kB",
        "100,000 subscriptions resumed",
        "in 6,000 single-row updates",
        "10 MB for 100,000 ranges",
    ],
    "OPERATING.md": [
        "50,000 rows took 20 ms a channel",
        "and 200,000 rows; yours will differ",
        "in batches of 1,000 | 40 bytes: 1.5 GB an hour at 10,000 rows a second",
        "without rows | 250 MB |",
        "`64MiB`",
        "150 ms for 50,000",
    ],
    "PROTOCOL.md": [],
    "A2BTREE.md": [],
    "LOG.md": [],
    "SDK.md": [],
}
#: Tables that a test compares row by row.
CHECKED = {
    "SDK.md": ["## Limits"],
    "PROTOCOL.md": ["## 2 Limits", "### 6.3 All fields"],  # tests/documents/test_protocol_tables.py: the fields
    "A2BTREE.md": ["## Node size"],
}


@pytest.mark.parametrize("document", ELSEWHERE)
def test_no_size_stands_in_a_reference_without_being_checked(document: str) -> None:
    text = re.sub(r"^```.*?^```$", "", text_of(document), flags=re.DOTALL | re.MULTILINE)
    for heading in CHECKED.get(document, []):
        text = text.replace(section(document, heading), "")
    for said in ELSEWHERE[document]:
        text, found = re.subn(spaced(re.escape(said).replace("\\ ", " ")), "", text)
        assert found, f"{document} no longer says {said!r}: remove it from ELSEWHERE in this test"
    covered = {
        hit.span(1)
        for file, pattern, _ in NUMBERS
        if file == document
        for hit in re.finditer(spaced(pattern), text, re.MULTILINE)
    }
    for size in re.finditer(r"\b\d{1,3}(?:,\d{3})+\b|\b\d+ ?(?:[KMG]i?B|kB)\b", text):
        inside = any(start <= size.start() and size.end() <= end for start, end in covered)
        assert inside, f"{document} says {size[0]}; add it to NUMBERS (or to ELSEWHERE, if the code does not have it)"
