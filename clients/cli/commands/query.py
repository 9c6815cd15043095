"""`hullcast query`: read rows once."""

from __future__ import annotations

import asyncio
import csv
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from hullcast.clients.cli.commands.connection import (
    add_connection_arguments,
    add_sql_arguments,
    as_json,
    connected,
    distinct,
    shown,
)

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.network.answers.named import QueryRows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Runs a SELECT once, over the current rows. It may be any SELECT that SQLite understands, not only one that "
        "you can subscribe to. The server limits its time, memory and rows (SDK.md, Limits)."
    )
    parser.epilog = "A column without AS is named by its expression."
    add_sql_arguments(parser)
    parser.add_argument("--csv", action="store_true", help="print CSV with a header; NULL is an empty cell")
    add_connection_arguments(parser, "print a JSON object a row; TIMESTAMP is ISO-8601 text")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Ask, and print."""
    rows = asyncio.run(_query(arguments))
    names = rows.columns
    if arguments.json:
        unique = distinct(names)
        for row in rows:
            console.file.write(as_json(dict(zip(unique, row, strict=True))) + "\n")
    elif arguments.csv:
        writer = csv.writer(console.file, lineterminator="\n")
        if names:
            writer.writerow(names)
        writer.writerows([_cell(value) for value in row] for row in rows)
    else:
        if names:
            console.print(_table(names, rows))
        sys.stdout.flush()
        if console.is_terminal:
            console.print(f"[dim]{len(rows):,} row{'' if len(rows) == 1 else 's'}[/]")
    return 0


async def _query(arguments: argparse.Namespace) -> QueryRows:
    async with connected(arguments) as client:
        return await client.query(arguments.sql, *arguments.parameters)


def _cell(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _table(names: tuple[str, ...], rows: list[Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for place, name in enumerate(names):
        numbers = all(isinstance(row[place], int | float | None) for row in rows)
        table.add_column(Text(name), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(value), style="dim" if value is None else "") for value in row))
    return table
