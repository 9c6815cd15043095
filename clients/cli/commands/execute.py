"""`hullcast execute`: create and drop tables, streams and views."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.connection import add_connection_arguments, as_json, connected

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.clients.sdk.client import Client


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
    add_connection_arguments(parser, "print the receipt as JSON: seq, and did, what was done")


_STATEMENT = re.compile(
    r'\s*(CREATE|DROP)\s+(TABLE|STREAM|VIEW)\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?("[^"]+"|\w+)', re.IGNORECASE
)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run it, and say what was done."""
    seq, did = asyncio.run(_execute(arguments))
    console.file.write((as_json({"seq": seq, "did": did}) if arguments.json else did) + "\n")
    return 0


async def _execute(arguments: argparse.Namespace) -> tuple[int, str]:
    statement = _STATEMENT.match(arguments.sql)
    async with connected(arguments) as client:
        if statement is None:
            return (await client.execute(arguments.sql)).seq, "done"
        verb, kind, name = (word.strip('"') for word in statement.groups())
        before = await _found(client, kind, name)
        seq = (await client.execute(arguments.sql)).seq
        after = await _found(client, kind, name) if verb.upper() == "CREATE" else None
    return seq, _did(verb.upper(), kind.lower(), name, before, after)


async def _found(client: Client, kind: str, name: str) -> tuple[str, int] | None:
    """The table, stream or view of that name as it was declared, and how many columns were; None if there is none, or
    we may not know."""
    known = await (client.views() if kind.upper() == "VIEW" else client.tables())
    for declared, facts in known.items():
        if declared.casefold() == name.casefold():
            return declared, len(facts["columns"]) - ("stream" in facts)  # of a stream the server adds one
    return None


def _did(verb: str, kind: str, name: str, before: tuple[str, int] | None, after: tuple[str, int] | None) -> str:
    if verb == "DROP":
        return f"there is no {kind} {name}" if before is None else f"dropped {kind} {before[0]}"
    if before is not None:
        return f"{kind} {before[0]} exists already"
    return f"created {kind} {name}" if after is None else f"created {kind} {after[0]} ({after[1]} columns)"
