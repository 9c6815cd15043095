"""`hullcast explain`: what a subscription becomes, who shares its messages, what traffic to expect."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from hullcast.clients.cli.commands.connection import (
    add_connection_arguments,
    add_sql_arguments,
    add_trigger_arguments,
    as_json,
    connected,
    trigger_of,
)
from hullcast.clients.cli.commands.operators import UNSHOWN, derived_in_words
from hullcast.network.matching.messages import POINTS, RECTANGLES
from hullcast.network.wire.durations import duration_text, time_shown

if TYPE_CHECKING:
    import argparse

    from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Shows how a subscription would be served, without subscribing: its point or box, its channel (all "
        "subscriptions to the same query, whatever their constants), and its traffic in the recent past. If the "
        "SELECT reads a view, shows how the view is kept ready. If it is a join over streams, or reads a derived "
        "stream, shows its operators with their measured selectivity and cost, queues, and progress charts."
    )
    parser.epilog = (
        "Traffic is computed from the recent messages that the server keeps for clients that reconnect, so it is "
        "unknown while the channel has no subscription."
    )
    add_sql_arguments(parser)
    add_trigger_arguments(parser)
    add_connection_arguments(parser, "print the server's reply as one JSON object; a missing bound is null")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Ask, and put it into words."""
    facts = asyncio.run(_explain(arguments))
    if arguments.json:
        console.file.write(as_json(_without_infinities(facts)) + "\n")
        return 0
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for about, text in in_words(facts):
        table.add_row(about, Text(text))
    console.print(table)
    return 0


def _without_infinities(facts: dict[str, Any]) -> dict[str, Any]:
    """The same, a bound that is missing as None; also those of a condition."""
    told = dict(facts)
    for name in ("low", "high"):
        if name in facts:
            told[name] = [None if abs(end) == inf else end for end in facts[name]]
    if facts.get("condition") is not None:
        told["condition"] = _without_infinities(facts["condition"])
    return told


async def _explain(arguments: argparse.Namespace) -> dict[str, Any]:
    async with connected(arguments) as client:
        return await client.explain(arguments.sql, *arguments.parameters, **trigger_of(arguments))


def in_words(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """What the server tells, as headings and sentences."""
    views = _views(facts.get("views", {}))
    if "conditional" in facts:
        return _conditional(facts) + views
    if views:
        return views
    derived = facts.get("derived", {})
    rows = "tuples" if facts["form"] == POINTS and len(facts["tables"]) == 1 else "rows"
    tables = ", ".join(f"{name} ({count:,} {rows})" for name, count in zip(facts["tables"], facts["rows"], strict=True))
    lines = [("answer", f"{', '.join(facts['answer'])} from {tables}, at seq {facts['seq']}")]
    lines.append(("becomes", _becomes(facts)))
    lines.append(("channel", facts["channel"]))
    lines.append(("shared", _shared(facts)))
    lines += _traffic(facts)
    lines += [(f"query {name}", _loaded(known)) for name, known in facts["loaded"].items()]
    if "join" in facts:
        lines += _join(facts["join"], facts["tables"])
    for name, known in derived.items():
        lines += derived_in_words(name, known, is_hidden=name not in facts["tables"])
    return lines


def _views(views: dict[str, Any]) -> list[tuple[str, str]]:
    """What views are, and how they are kept ready."""
    lines = []
    for name, view in views.items():
        lines.append((f"view {name}", view["sql"] or UNSHOWN))
        kept = view["upkeep"]
        if not kept:
            lines.append(("upkeep", "not begun yet"))
            continue
        pending = [f"{_many(rows, 'change')} of {table}" for table, rows in kept["pending"].items() if rows]
        refresh = f"about {time_shown(kept['refresh_s'])}" if pending else "nothing to do"
        lines.append(("a refresh now", f"{refresh}: {' and '.join(pending) or 'it is up to date'}"))
        promise = f"{time_shown(kept['response_time_s'])}; work for {time_shown(kept['limit_s'])} may be pending"
        lines.append(("promise", f"{promise} (planner {kept['planner']})"))
        asked = kept["within"] + kept["beyond"]
        if asked:
            longest = time_shown(kept["longest_refresh_s"])
            lines.append(("kept", f"{kept['within']:,} of {asked:,} times; the longest refresh took {longest}"))
        for table, cost in kept["costs"].items():
            each = f"{time_shown(cost['batch_s'])} a batch and {time_shown(cost['row_s'])} a change"
            lines.append((f"cost of {table}", each))
        if kept["changes"]:
            lines.append(("so far", f"{1e6 * kept['spent_s'] / kept['changes']:,.1f} us a change"))
    return lines


def _conditional(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """A conditional subscription: what is run when, and what came of it."""
    known = facts["conditional"]
    lines = [("runs", f"{known['query']}: once for all its subscribers, who get all rows in one message")]
    if known["every_s"] is not None:
        lines.append(("every", f"{duration_text(known['every_s'])}, at multiples of it by the server's clock"))
    if known["tables"]:
        lines.append(("when", f"anything in {' or '.join(known['tables'])} changes"))
    if known["at_most_every_s"] is not None:
        lines.append(("at most every", f"{duration_text(known['at_most_every_s'])}: changes meanwhile share a run"))
    if known["when"] is not None:
        lines.append(("when", f"the answer of {known['when']} changes:"))
        lines += [(f"  {about}", text) for about, text in in_words(facts["condition"])]
    if known["made"]:
        last = known["last"]
        state = (
            f"fired {_many(known['fired'], 'time')}, {_many(known['runs'], 'run')} ({time_shown(known['mean_s'])} each"
        )
        state += f", {known['failed']:,} failed)" if known["failed"] else ")"
        state += f", {_many(known['delivered'], 'result')} delivered"
        if last.get("as_of") is not None:
            state += f"; the last one is at update {last['as_of']:,} and takes {last['bytes']:,} bytes"
        lines.append(("so far", state + (f"; the last run failed: {last['error']}" if "error" in last else "")))
    else:
        lines.append(("so far", "nobody subscribes to it now; the first one has it run"))
    return lines + [(f"query {name}", _loaded(table)) for name, table in facts["loaded"].items()]


def _loaded(known: dict[str, Any]) -> str:
    """How current a one-time query of a table would be without waiting."""
    behind = "current"
    if known["unapplied"]:
        behind = f"{_many(known['unapplied'], 'change')} behind, the oldest {time_shown(known['staleness_s'])} old"
    return f"a one-time query finds it loaded up to update {known['loaded']:,}: {behind}"


def _becomes(facts: dict[str, Any]) -> str:
    if facts["never"] or any(low > high for low, high in zip(facts["low"], facts["high"], strict=True)):
        return "nothing: no row can satisfy its conditions, so there will never be an event"
    ranges = [*facts["ranges"]]
    ranges += ["the difference"] * (len(facts["low"]) - len(ranges))  # the band of a join has no column of its own
    partition = f", among rows of the same {', '.join(facts['partitions'])}" if facts["partitions"] else ""
    if facts.get("boxes", 1) > 1:
        columns = f" over {', '.join(ranges)}" if ranges else ""
        thing = "tuple" if facts["form"] == POINTS else "row before and after"
        return (
            f"{facts['boxes']} boxes{columns}{partition}, which do not overlap; a message is a {thing}, and "
            "concerns it if it is in one of them"
        )
    if not ranges:
        whole = "join" if len(facts["tables"]) > 1 else "stream" if facts["form"] == POINTS else "table"
        return f"the whole {whole}{partition}: every message of the channel concerns it"
    if facts["form"] == RECTANGLES and len(ranges) == 1:
        return (
            f"the point ({_number(facts['low'][0])}, {_number(facts['high'][0])}) in the plane of all ranges of "
            f"{ranges[0]}{partition}; a message is a rectangle of ranges, and concerns it if the point is inside"
        )
    sides = [
        f"{name} NULL" if high == -inf else f"{name} {_number(low)} .. {_number(high)}"
        for name, low, high in zip(ranges, facts["low"], facts["high"], strict=True)
    ]
    if facts["form"] == POINTS:
        tuple_ = "result" if len(facts["tables"]) > 1 else "tuple"
        return f"the box {' x '.join(sides)}{partition}; a message is a {tuple_}, and concerns it if it is inside"
    what = "pair" if len(facts["tables"]) > 1 else "row"
    return (
        f"the box {' x '.join(sides)}{partition}; a message is a {what}'s place before and after an update, and "
        "concerns it if one of them is inside"
    )


#: What the plans for finding wanted pairs do with a row that arrives (broker/joins).
_PLANS = {
    "Hotspot": "one look-up for each group of ranges",
    "SelectFirst": "first the ranges that let the row pass, then its partners in each",
    "JoinFirst-E": "first the rows that it joins, then whether a range wants each",
}


def _join(known: dict[str, Any], tables: list[str]) -> list[tuple[str, str]]:
    """How the server finds the pairs that somebody wants, for rows that arrive on each side."""
    asked = f"{_many(known['ranges'], 'different range')}, asked for by {_many(known['wanted by'], 'subscription')}"
    lines = [("ranges", f"{asked}; pairs of rows that none of them wants cost nothing")]
    sides = {table: known[side] for side, table in zip(("left", "right"), tables, strict=True) if side in known}
    used = [plan for plan in _PLANS if any(side.get("chosen lately", {}).get(plan) for side in sides.values())]
    if used:
        lines.append(("plans", "; ".join(f"{plan}: {_PLANS[plan]}" for plan in used)))
    for table, side in sides.items():
        lines.append((f"rows in {table}", "; ".join(_side(side))))
    return lines


def _side(known: dict[str, Any]) -> list[str]:
    """How partners of rows that arrive in one table are found, in sentences."""
    said = []
    one_by_one = known.get("looked at one by one", 0)
    if one_by_one:
        said.append(f"for {_many(one_by_one, 'row')} each range was looked at, because there were few")
    unplanned = known.get("without a plan", 0)
    if unplanned:
        said.append(f"for {_many(unplanned, 'row')} there was no plan yet, because many ranges had just come or gone")
    lately = {plan: share for plan, share in known.get("chosen lately", {}).items() if share}
    if lately:
        most = sorted(lately, key=lambda plan: -lately[plan])
        shares = (f"{plan} {_share(lately[plan])} ({known['chosen'][plan]:,} in all)" for plan in most)
        said.append(f"plans chosen lately: {', '.join(shares)}")
    if "joining rows" in known:
        joins, passing = known["joining rows"], known["ranges that hold x"]
        said.append(f"a row joins about {joins:,.1f} others, and about {passing:,.1f} ranges let it pass")
    if "groups" in known:
        said.append(
            f"the ranges form {_many(known['groups'], 'group')}, each with a point in common, large ones "
            f"(hotspots): {known['hot groups']:,}, with {known['hot share']:.0%} of all ranges"
        )
    return said or ["none has arrived since the channel was opened"]


def _share(share: float) -> str:
    return "under 1%" if share < 0.005 else f"{share:.0%}"


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _number(end: float) -> str:
    return {inf: "∞", -inf: "-∞"}.get(end, f"{end:.10g}")


def _shared(facts: dict[str, Any]) -> str:
    over = f" over {', '.join(facts['ranges'])}" if facts["ranges"] else ""
    by = f" by {', '.join(facts['partitions'])}" if facts["partitions"] else ""
    state = "it is open" if facts["channel_open"] else "it has no subscription now; the first one opens it"
    return (
        f"with every {facts['kind']} of {' and '.join(facts['tables'])}{over}{by}, whatever its bounds: one set of "
        f"messages for all of them; {state}"
    )


def _traffic(facts: dict[str, Any]) -> list[tuple[str, str]]:
    lines = []
    if "messages_per_update" in facts:
        text = f"{facts['messages_per_update']:.2f} messages an update, for all subscribers together"
        seen = f"over {facts['updates_seen']:,} updates; {facts['ignorable_share']:.0%} of these change no answer"
        lines.append(("messages", f"{text} ({seen})"))
    if "range_is_new" in facts:
        lines.append(("expect", "not known: the server makes messages of a join for ranges that are subscribed to"))
        return lines
    if "recent_messages" not in facts:
        lines.append(("expect", "not known: the server keeps no messages of this channel yet"))
        return lines
    matching, kept, span = facts["recent_messages_matching"], facts["recent_messages"], facts["recent_span_updates"]
    telling = facts["recent_updates_telling"]
    lines.append(
        (
            "expect",
            f"an event in {telling:,} of the last {span:,} updates ({telling / span:.1%}): {matching:,} of the "
            f"{kept:,} messages kept concern this one",
        )
    )
    each = facts["bytes_per_message"]
    lines.append(
        ("bytes", f"about {each:.0f} a message, {matching * each / span:.1f} an update on the way to this subscriber")
    )
    return lines
