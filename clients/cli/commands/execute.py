"""`hullcast execute`: create and drop tables, streams and views."""

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
        "Runs CREATE or DROP of a TABLE, STREAM or VIEW, or ADVANCE STREAM (a heartbeat). Rows and tuples are written "
        "with `hullcast publish`. Creating a view takes as long as reading its tables."
    )
    parser.epilog = (
        'Examples: hullcast execute "CREATE TABLE IF NOT EXISTS STOCK (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK '
        'REAL, PER REAL)"; hullcast execute "CREATE VIEW SECTORS AS SELECT SECTOR, COUNT(*) AS N, AVG(PER) AS PER '
        "FROM STOCK GROUP BY SECTOR WITH (response_time = '50ms')\"; hullcast execute \"CREATE STREAM HOT AS SELECT "
        "t.SYMBOL, t.PRICE, q.BID FROM TRADES [ROWS 1000] t JOIN QUOTES [RANGE '10s'] q ON t.SYMBOL = q.SYMBOL WITH "
        '(memory = 10000)"; hullcast execute "ADVANCE STREAM QUOTES TO \'2024-05-01T12:30:00\'"'
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
