"""`hullcast policy`: shows or sets the scheduling policy of queries, or of joins over streams."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from hullcast.clients.cli.commands.connection import add_connection_arguments, as_json, connected

if TYPE_CHECKING:
    import argparse

    from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Shows the policy that decides what the server does next for one-time queries: load changes of a table, or "
        "answer a query. With a name, switches to that policy; nothing is lost, and waiting queries keep waiting. "
        "With --streams: the policy that decides which operator of a join over streams runs next. It affects the "
        "length of queues and delays, never the results."
    )
    parser.epilog = (
        "Examples: hullcast policy queries-first; hullcast policy --streams chain. Switching needs the right `admin`. "
        "After a restart the policies are again those of the settings warehouse_policy and stream_policy."
    )
    parser.add_argument("policy", nargs="?", metavar="NAME", help="the policy to switch to")
    parser.add_argument(
        "--streams", action="store_true", help="the policy of joins over streams, not of one-time queries"
    )
    add_connection_arguments(parser, "print the policy in force, its counters and all policies as one JSON object")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Ask or switch, and print."""
    facts = asyncio.run(_ask(arguments))
    if arguments.json:
        console.file.write(as_json(facts) + "\n")
        return 0
    if arguments.policy is not None:
        console.print(f"switched to {facts['policy']}")
    console.print(listed(facts))
    if facts["counters"]:
        console.print("\n" + counters_in_words(facts["counters"]))
    return 0


async def _ask(arguments: argparse.Namespace) -> dict[str, Any]:
    async with connected(arguments) as client:
        return await client.policy(arguments.policy, of="streams" if arguments.streams else "warehouse")


def listed(facts: dict[str, Any]) -> Table:
    """All policies, that in force with a mark."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, about in facts["policies"].items():
        chosen = name == facts["policy"]
        table.add_row("*" if chosen else "", Text(name, "bold" if chosen else ""), Text(about))
    return table


def counters_in_words(counters: dict[str, float]) -> str:
    """A policy's counters in a line."""
    return ", ".join(f"{name.replace('_', ' ')} {value:,.6g}" for name, value in counters.items())
