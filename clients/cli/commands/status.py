"""`hullcast status`: the tree of server and nodes, what goes through it, and a table of channels."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from hullcast.clients.cli.commands.arguments import seconds
from hullcast.clients.cli.commands.connection import add_connection_arguments, as_json, connected
from hullcast.clients.cli.commands.operators import missed_in_words, waiting_in_words
from hullcast.clients.cli.commands.policy import counters_in_words
from hullcast.network.wire.durations import duration_text, size_text, time_shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from rich.console import Console, RenderableType

    from hullcast.clients.sdk.client import Client


#: Nodes hear of progress now and then: one within the first is up to date, one behind by the second is in trouble.
IN_STEP_S, BEHIND_S = 0.75, 5.0
WAITING_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Shows the server and its nodes as a tree, each with its clients, subscriptions, messages sent on and "
        "filtered out, lag behind the server, and bytes waiting for its children. Then streams and joins over them, "
        "with queues, lag and missed results; how far tables are loaded for one-time queries; and the open "
        "channels, that is the different queries that the server computes."
    )
    parser.epilog = (
        "Nodes report about once a second, so their lag is at most that old. Rates come from two samples; without "
        "--watch the second one is taken after --interval."
    )
    parser.add_argument("--watch", action="store_true", help="refresh until Ctrl-C; with --json one object per line")
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="S", help="seconds between samples (default 1)"
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also show the counters of policies, and the costs of views"
    )
    add_connection_arguments(parser, "print the server's reply as one JSON object, without rates")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Ask and show; with --watch again and again."""
    try:
        asyncio.run(_run(arguments, console))
    except KeyboardInterrupt:
        if not arguments.watch:
            raise
    return 0


async def _run(arguments: argparse.Namespace, console: Console) -> None:
    interval_s = max(0.05, arguments.interval)
    async with connected(arguments) as client:
        if arguments.json:
            while True:
                console.file.write(as_json(await client.status()) + "\n")
                console.file.flush()
                if not arguments.watch:
                    return
                await asyncio.sleep(interval_s)
        before = await _sample(client)
        if not arguments.watch:
            await asyncio.sleep(arguments.interval)
            console.print(screen(await _sample(client), before, verbose=arguments.verbose))
            return
        if not console.is_terminal:
            while True:
                await asyncio.sleep(interval_s)
                now = await _sample(client)
                console.print(screen(now, before, verbose=arguments.verbose))
                before = now
        with Live(console=console, auto_refresh=False, screen=False) as live:
            live.update(screen(before, None, verbose=arguments.verbose), refresh=True)
            while True:
                await asyncio.sleep(interval_s)
                now = await _sample(client)
                live.update(screen(now, before, verbose=arguments.verbose), refresh=True)
                before = now


async def _sample(client: Client) -> StatusSample:
    status: dict[str, Any] = await client.status()
    return StatusSample(time.monotonic(), status)


@dataclass(frozen=True, slots=True)
class StatusSample:
    """The server's status at a moment."""

    at: float
    status: Mapping[str, Any]

    def node(self, number: str) -> Mapping[str, Any] | None:
        """A node's report, by its id."""
        return next((node for node in self.status["nodes"] if node["id"] == number), None)


def screen(now: StatusSample, before: StatusSample | None, *, verbose: bool = False) -> RenderableType:
    """The whole picture; rates since the sample before. `verbose`: also what policies did, and why."""
    parts: list[RenderableType] = [_tree(now, before), Text()]
    streams = now.status.get("streams", {})
    parts.append(_tables({name: rows for name, rows in now.status["tables"].items() if name not in streams}))
    parts += _streams(now, streams)
    parts += joins_shown(now, before)
    parts += _warehouse(now.status["queries"], verbose)
    parts += _conditionals(now.status.get("conditionals", {}))
    channels = now.status["channels"]
    parts += (
        [Text(), _channels(now, before)]
        if channels
        else [Text("no channel is open: there are no subscriptions", "dim")]
    )
    share = now.status.get("channels_per_client")
    if channels and share is not None:
        refused = f"; {share['refused']:,} subscriptions refused" if share["refused"] else ""
        parts.append(
            Text(f"channels of one client: {share['most']:,} at most, {share['limit']:,} allowed{refused}", "dim")
        )
    return Group(*parts)


# --- the tree --------------------------------------------------------------------------------------------------


def _tree(now: StatusSample, before: StatusSample | None) -> Tree:
    status = now.status
    nodes = sorted(status["nodes"], key=lambda node: (len(node["path"]), node["name"]))
    tree = Tree(_server(now, before), guide_style="dim")
    branches = {status["id"]: tree}
    for node in nodes:  # a parent before its children
        parent = branches.get(node["path"][-1]) if node["path"] else None
        branches[node["id"]] = (parent or tree).add(_node(node, now, before))
    if not nodes:
        tree.add(Text("no nodes; clients connect to the server", "dim"))
    return tree


def _server(now: StatusSample, before: StatusSample | None) -> Text:
    status, log = now.status, now.status["log"]
    text = Text.assemble(
        (f"server {status['name']}", "bold"),
        (f"  {status['endpoint']}", "cyan"),
        f"  up {time_shown(int(status['uptime_s']))}, seq {status['seq']:,}",
        _rate(", {} updates/s", now, before, status["seq"], None if before is None else before.status["seq"]),
    )
    text.append("\n" + _children(status["children"]))
    text.append_text(_waiting(status["children"]["queued_bytes"]))
    text.append_text(_messages(status["children"], None if before is None else before.status["children"], now, before))
    if log["memory_only"]:
        kept = "rows in memory only, no commit log"
    else:
        kept = (
            f"commit log {size_text(log['written_bytes'])} written, {size_text(log['pending_bytes'])} not yet on disk"
        )
        checkpoints = f"{log['checkpoints']} checkpoint{'' if log['checkpoints'] == 1 else 's'}"
        kept += f", {size_text(log['free_bytes'])} free on its disk, {checkpoints}"
        kept += f", history readable from update {log['readable_from']:,} on"
    retention = f"{size_text(status['retention_bytes'])} kept for clients that reconnect"
    refused = f", {status['refused']:,} requests refused" if status["refused"] else ""
    failed = f", {status['failed']:,} failed by a fault of the server" if status["failed"] else ""
    text.append(f"\n{kept}; rows take {size_text(status['memory_bytes'])}; {retention}{refused}{failed}", "dim")
    if log.get("disk_full"):
        text.append(f"\npublishes refused: {log['disk_full']}", "bold red")
    text.append(f"\nlongest pause of the event loop in the last minute {status['recent_pause_s'] * 1000:.0f} ms", "dim")
    return text


def _node(node: Mapping[str, Any], now: StatusSample, before: StatusSample | None) -> Text:
    then = before.node(node["id"]) if before is not None else None
    text = Text.assemble(
        (f"node {node['name']}", "bold"),
        (f"  {node['endpoint']}", "cyan"),
        _lag(node),
    )
    if not node["attached"]:
        text.append("  without a parent", "red")
    if node["reattached"]:
        text.append(f"  moved {node['reattached']}x", "yellow")
    text.append("\n" + _children(node))
    text.append_text(_waiting(node["queued_bytes"]))
    text.append_text(_messages(node, then, now, before))
    return text


def _lag(node: Mapping[str, Any]) -> tuple[str, str]:
    if not node["path"]:
        return "  joining", "yellow"  # it has yet to hear from its parent
    lag_s = node["lag_s"]
    if lag_s < IN_STEP_S:
        return "  in step", "green"
    return f"  {lag_s:.1f} s behind", "red" if lag_s >= BEHIND_S else "yellow"


def _children(facts: Mapping[str, Any]) -> str:
    words = [_counted(facts["clients"], "client"), _counted(facts["subscriptions"], "subscription")]
    if facts["nodes"]:
        words.append(_counted(facts["nodes"], "node") + " below")
    return ", ".join(words)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _waiting(size_bytes: int) -> Text:
    if not size_bytes:
        return Text()
    return Text(f", {size_text(size_bytes)} queued", "yellow" if size_bytes >= WAITING_BYTES else "")


def _messages(
    facts: Mapping[str, Any], then: Mapping[str, Any] | None, now: StatusSample, before: StatusSample | None
) -> Text:
    """Messages that came, those sent on, and those filtered out."""
    if not facts["messages"]:
        return Text("; no messages yet")
    text = Text(f"; {facts['messages']:,} messages")
    if facts["routed"] or facts["filtered"]:
        text.append(f": {facts['routed']:,} sent on, {facts['filtered']:,} filtered out")
    text.append(_rate(" ({} messages/s)", now, before, facts["messages"], None if then is None else then["messages"]))
    return text


def _rate(form: str, now: StatusSample, before: StatusSample | None, value: int, earlier: int | None) -> str:
    """A counter's growth in a second; empty without an earlier sample."""
    if before is None or earlier is None or now.at <= before.at:
        return ""
    rate = max(0, value - earlier) / (now.at - before.at)
    return form.format(f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}")


# --- tables and channels ---------------------------------------------------------------------------------------


def _tables(tables: Mapping[str, int]) -> Text:
    if not tables:
        return Text("no tables", "dim")
    text = Text("tables  ", "bold")
    return text.append(", ".join(f"{name} {rows:,} rows" for name, rows in tables.items()), "not bold")


def _streams(now: StatusSample, streams: Mapping[str, Any]) -> list[RenderableType]:
    """What is kept of each stream, and how far its time has come; nothing if there are none."""
    if not streams:
        return []
    table = _figures("stream", "tuples", "from position", "to", "time", "retains")
    table.add_column("windows", overflow="fold")
    for name, facts in sorted(streams.items()):
        table.add_row(
            Text(name),
            f"{now.status['tables'][name]:,}",
            "-" if facts["first_position"] is None else f"{facts['first_position']:,}",
            "-" if facts["last_position"] is None else f"{facts['last_position']:,}",
            stream_time(facts),
            retained_in_words(facts),
            ", ".join(f"{window} {held:,}" for window, held in facts["windows"].items()) or "-",
        )
    return [table]


def stream_time(facts: Mapping[str, Any]) -> str:
    """How far the time of a stream has come."""
    if facts["time_us"] is None:
        return "-"
    reached = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=facts["time_us"])
    return reached.isoformat(sep=" ", timespec="seconds")[:19]


def retained_in_words(facts: Mapping[str, Any]) -> str:
    """How much of a stream is kept."""
    rows = f"{facts['retain_rows']:,}"
    return rows if facts["retain_s"] is None else f"{rows}, {duration_text(facts['retain_s'])}"


def joins_shown(now: StatusSample, before: StatusSample | None) -> list[RenderableType]:
    """Derived streams and the joins of subscriptions; nothing if there are none."""
    known = now.status.get("operators", {})
    shown = _named_joins(known)
    if not shown:
        return []
    earlier = {} if before is None else _named_joins(before.status["operators"])
    table = _figures("join over streams", "results", "per second", "waiting", "behind", "missed", "gaps")
    for name, one in shown.items():
        then = earlier.get(name)
        table.add_row(
            _join_named(name, one),
            f"{one['results']:,}",
            _rate("{}", now, before, one["results"], None if then is None else then["results"]) or "-",
            f"{one['waiting']:,}",
            "-" if one["behind_s"] is None else time_shown(one["behind_s"]),
            "-" if one["memory"] is None else missed_in_words(one["memory"]["missed_share"]),
            f"{one['gaps']:,}",
        )
    return [_operators(known), table]


def _named_joins(known: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """All joins by name; those of subscriptions have names that nobody sees."""
    return {**known.get("derived", {}), **{one["name"]: one for one in known.get("joins", [])}}


def _join_named(name: str, one: Mapping[str, Any]) -> Text:
    text = Text(one["source"] if "name" in one else f"{name}: {one['source']}")
    if one["failed"]:
        return text.append(f"  stopped, begins again soon: {one['failed']}", "red")
    if not one["opened"]:
        return text.append("  not begun yet", "yellow")
    if one["waits_for"] is not None:
        text.append(f"  {waiting_in_words(one)}", "yellow")
    return text


def _operators(known: Mapping[str, Any]) -> Text:
    """The streams process: its queues, how far it is behind, whom it refuses."""
    text = Text("joins   ", "bold")
    if not known["running"]:
        return text.append("the streams process is not running; it is being started", "not bold red")
    held, limit = known.get("waiting_bytes", 0), known["limit_bytes"]
    most = size_text(known.get("most_waiting_bytes", 0))
    said = [f"queues hold {size_text(held)} of {size_text(limit)}, at most {most} so far"]
    if "memory_bytes" in known:
        kept = size_text(known.get("kept_bytes", 0))
        said.append(f"windows and tables take {kept} of {size_text(known['memory_bytes'])}")
    said.append(f"{_counted(known['behind'], 'update')} behind the log")
    said.append(f"policy {known['policy']}")
    if known["processes"] > 1:
        said.append(f"the process was started {known['processes']} times")
    if known["refused"]:
        said.append(f"{known['refused']:,} publishes refused so far")
    text.append("; ".join(said), "not bold")
    if known["full"]:
        names = ", ".join(known["full"])
        text.append(f"\n        full: no more tuples of {names} are taken until joins have caught up", "not bold red")
    return text


def _warehouse(queries: Mapping[str, Any], verbose: bool) -> list[RenderableType]:
    """One-time queries, and how far the tables they read are loaded; nothing if there were none."""
    tables = queries["tables"]
    if not (tables or queries["answered"] or queries["running"]):
        return []
    answered = queries["answered"]
    said = [f"{answered:,} answered", f"{queries['running']} running", f"{queries['waiting']} waiting"]
    said += [f"{queries['failed']:,} failed"] if queries["failed"] else []
    said += [f"{given_up:,} given up by their clients"] if (given_up := queries.get("given_up")) else []
    said += [f"{queries['missed']:,} past their deadline"] if queries["missed"] else []
    text = Text("queries ", "bold").append(", ".join(said), "not bold")
    text.append(f"; policy {queries['policy']}", "not bold")
    if verbose and queries["counters"]:
        text.append(f" ({counters_in_words(queries['counters'])})", "dim not bold")
    shown: list[RenderableType] = [text]
    if tables:
        shown.append(_loaded(tables))
    if queries.get("views"):
        shown.append(_views(queries["views"], verbose))
    return shown


def _loaded(tables: Mapping[str, Any]) -> Table:
    table = _figures(
        "loaded for queries", "up to update", "not loaded", "oldest", "largest stretch", "period", "weight", "size"
    )
    for name, facts in sorted(tables.items()):
        period_s = facts["period_s"]
        table.add_row(
            Text(name),
            f"{facts['loaded']:,}",
            f"{facts['unapplied']:,}",
            time_shown(facts["staleness_s"]) if facts["unapplied"] else "-",
            f"{facts['stretch']:.2f}" if facts["stretch"] else "-",
            "-" if period_s is None else duration_text(period_s),
            f"{facts['weight']:g}",
            size_text(facts["bytes"]),
        )
    return table


def _views(views: Mapping[str, Any], verbose: bool) -> Table:
    table = _figures(
        "view",
        "promise",
        "a refresh now",
        "pending",
        "asked",
        "beyond promise",
        "longest",
        *(("us per change",) if verbose else ()),
    )
    for name, facts in sorted(views.items()):
        pending = [f"{source} {rows:,}" for source, rows in facts["pending"].items() if rows]
        asked, changes = facts["within"] + facts["beyond"], facts["changes"]
        spent = f"{1e6 * facts['spent_s'] / changes:,.1f}" if changes else "-"
        table.add_row(
            Text(name),
            duration_text(facts["response_time_s"]),
            time_shown(facts["refresh_s"]),
            ", ".join(pending) or "-",
            f"{asked:,}",
            f"{facts['beyond']:,}",
            time_shown(facts["longest_refresh_s"]) if asked else "-",
            *((spent,) if verbose else ()),
        )
    return table


def _conditionals(known: Mapping[str, Any]) -> list[RenderableType]:
    """Conditional subscriptions, those that took most time first; nothing if there are none."""
    if not known.get("each"):
        return []
    table = _figures("conditional subscription", "fired", "runs", "failed", "a run", "delivered", "at update", "bytes")
    for one in sorted(known["each"], key=lambda one: -one["runs"] * one["mean_s"]):
        last = one["last"]
        note = f"  last run failed: {last['error']}" if "error" in last else ""
        table.add_row(
            Text(one["name"].rpartition(" #")[0].removeprefix("RESULT OF ")).append(note, "red"),
            f"{one['fired']:,}",
            f"{one['runs']:,}",
            f"{one['failed']:,}" if one["failed"] else "-",
            time_shown(one["mean_s"]) if one["runs"] else "-",
            f"{one['delivered']:,}",
            f"{last['as_of']:,}" if last.get("as_of") is not None else "-",
            size_text(last["bytes"]) if last else "-",
        )
    return [Text(), table]


def _channels(now: StatusSample, before: StatusSample | None) -> Table:
    then = {channel["number"]: channel for channel in before.status["channels"]} if before is not None else {}
    table = _figures("channel", "updates", "messages", "per update", "per second", "change nothing")
    for channel in sorted(now.status["channels"], key=lambda channel: -channel["messages"]):
        updates, messages = channel["updates"], channel["messages"]
        earlier = then.get(channel["number"])
        note = "  no subscriptions now" if channel["deserted"] else ""
        if (ranges := channel.get("ranges")) is not None:
            note += f"  {ranges['wanted']:,} ranges, {ranges['distinct']:,} different ones"
            note += f", {ranges['lingering']:,} of lost clients" if ranges["lingering"] else ""
        table.add_row(
            Text(channel["name"].partition(" #")[0]).append(note, "dim"),
            f"{updates:,}",
            f"{messages:,}",
            f"{messages / updates:.2f}" if updates else "-",
            _rate("{}", now, before, messages, earlier and earlier["messages"]) or "-",
            f"{channel['ignorable'] / updates:.0%}" if updates else "-",
        )
    return table


def _figures(what: str, *names: str) -> Table:
    """A table of figures. Its headings are narrow, so that texts before them keep room to wrap at words."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(what, overflow="fold", ratio=1)
    for name in names:
        table.add_column("\n".join(wrap(name, 8, break_long_words=False)), justify="right", no_wrap=True)
    return table
