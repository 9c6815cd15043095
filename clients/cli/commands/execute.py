"""`hullcast execute`: create and drop tables."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.connection import add_connection_arguments, as_json, connected

if TYPE_CHECKING:
    import argparse

    from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Runs CREATE TABLE [IF NOT EXISTS] or DROP TABLE [IF EXISTS]. Rows are written with `hullcast publish`."
    )
    parser.epilog = (
        'Example: hullcast execute "CREATE TABLE IF NOT EXISTS STOCK (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK REAL, '
        'PER REAL)"'
    )
    parser.add_argument("sql", metavar="STATEMENT", help="the statement, in quotes")
    add_connection_arguments(parser, "print the receipt as JSON: seq")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run it; prints nothing, except with --json."""
    seq = asyncio.run(_execute(arguments))
    if arguments.json:
        console.file.write(as_json({"seq": seq}) + "\n")
    return 0


async def _execute(arguments: argparse.Namespace) -> int:
    async with connected(arguments) as client:
        return (await client.execute(arguments.sql)).seq
