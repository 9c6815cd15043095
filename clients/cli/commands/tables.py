"""`hullcast tables`: lists tables, streams and views, with their columns and definitions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from hullcast.clients.cli.commands.connection import add_connection_arguments, as_json, connected
from hullcast.clients.cli.commands.operators import UNSHOWN
from hullcast.clients.cli.commands.status import retained_in_words
from hullcast.network.wire.durations import duration_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Lists the tables, streams and views that this key has some right to: how many rows they have, their "
        "columns, and the SELECT of views and derived streams."
    )
    add_connection_arguments(parser, "print one JSON object: tables and views by name")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Ask and print."""
    tables, views = asyncio.run(_ask(arguments))
    if arguments.json:
        console.file.write(as_json({"tables": tables, "views": views}) + "\n")
        return 0
    if not tables:
        console.print("no tables")
    for part in listing(tables, views):
        console.print(part)
    return 0


async def _ask(arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    async with connected(arguments) as client:
        return await client.tables(), await client.views()


def listing(tables: Mapping[str, Any], views: Mapping[str, Any]) -> list[Table]:
    """A table for each sort of them that there is."""
    plain = {name: facts for name, facts in tables.items() if "stream" not in facts}
    streams = {name: facts for name, facts in tables.items() if "stream" in facts}
    parts = []
    if plain:
        parts.append(_listed(("table", "rows", "columns"), [_plain(name, facts) for name, facts in plain.items()]))
    if streams:
        head = ("stream", "tuples", "retains", "columns, and what it is made of")
        parts.append(_listed(head, [_stream(name, facts) for name, facts in streams.items()]))
    if views:
        rows = [
            (name, duration_text(view["response_time_s"]), Text(view["sql"] or UNSHOWN)) for name, view in views.items()
        ]
        parts.append(_listed(("view", "ready in", "made by"), rows))
    return parts


def _plain(name: str, facts: Mapping[str, Any]) -> tuple[str, str, Text]:
    return name, f"{facts['rows']:,}", Text(_columns(facts, facts["key"]))


def _stream(name: str, facts: Mapping[str, Any]) -> tuple[str, str, str, Text]:
    about = Text(_columns(facts))
    source = facts["stream"]["source"]
    if source:
        about.append(f"\n{source}", "dim")
    return name, f"{facts['rows']:,}", retained_in_words(facts["stream"]), about


def _columns(facts: Mapping[str, Any], key: str = "") -> str:
    return ", ".join(f"{name} {kind}{' key' if name == key else ''}" for name, kind in facts["columns"].items())


def _listed(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(head[0], overflow="fold")
    for name in head[1:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(head[-1], overflow="fold")
    for name, *others in rows:
        table.add_row(Text(name), *others)
    return table
