"""`hullcast query`: read rows once, and say what they are worth."""

from __future__ import annotations

import argparse
import asyncio
import csv
import sys
from contextlib import aclosing
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hullcast.clients.cli.commands.arguments import seconds
from hullcast.clients.cli.commands.connection import (
    add_connection_arguments,
    add_sql_arguments,
    as_json,
    connected,
    distinct,
    shown,
)
from hullcast.network.wire.durations import time_shown
from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from hullcast.clients.sdk.client import Client
    from hullcast.network.answers.named import QueryRows, QueryWorth, TableWorth

T = TypeVar("T")

#: Whoever waits for longer sees that something is done.
QUIET_S = 1.0
#: Rows of a table that is fitted to the width of the terminal; that takes 40 times as long, so larger ones are not.
MOST_FITTED = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Runs a SELECT once. It may be any SELECT that SQLite understands, not only one that you can subscribe to. The "
        "server limits its time, memory and rows (SDK.md, Limits)."
    )
    parser.epilog = (
        "A column without AS is named by its expression. With --json and --csv rows are printed as they arrive, a "
        "portion at a time; otherwise a table is printed when all have arrived. A table of more than 1,000 rows is "
        "not fitted to the terminal."
    )
    add_sql_arguments(parser)
    parser.add_argument(
        "--deadline", type=seconds, metavar="T", help="abort the query after this time: seconds, or e.g. 200ms, 1m"
    )
    parser.add_argument(
        "--freshness",
        type=_share,
        default=1.0,
        metavar="F",
        help="1: all changes acknowledged so far (default); 0: what is loaded, without waiting; between: a preference",
    )
    parser.add_argument(
        "--priority", type=int, default=0, metavar="N", help="among waiting queries, higher ones go first (default 0)"
    )
    parser.add_argument(
        "--consistent", action="store_true", help="read all tables at one sequence number, whatever the freshness"
    )
    parser.add_argument(
        "--csv", action="store_true", help="print CSV with a header; NULL is an empty cell (not with --json)"
    )
    parser.add_argument(
        "--worth",
        action="store_true",
        help="with --json or --csv: print on stderr how current the rows are and how long they took (with --json, "
        "as JSON). A table always prints that: below it, or on stderr if the output is not a terminal",
    )
    add_connection_arguments(parser, "print a JSON object a row; TIMESTAMP is ISO-8601 text")


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Ask, and print."""
    if arguments.json and arguments.csv:
        raise UsageError("--json and --csv cannot be combined; choose one")
    count, worth = asyncio.run(_run(arguments, console))
    console.file.flush()
    table = not (arguments.json or arguments.csv)
    lines = [_counted(count)] if worth is None else in_words(count, worth)
    if table and console.is_terminal:
        console.print(Text("\n".join(lines), "dim"))
    elif table or (arguments.worth and worth is not None):  # not among rows that another program reads
        lines = [as_json(asdict(worth))] if arguments.json and worth is not None else lines
        sys.stderr.write("\n".join(lines) + "\n")
    return 0


async def _run(arguments: argparse.Namespace, console: Console) -> tuple[int, QueryWorth | None]:
    """Print the rows; how many there were, and their worth."""
    async with connected(arguments) as client:
        if arguments.json or arguments.csv:
            return await _print_portions(client, arguments, console)
        rows = await _with_patience(client.query(arguments.sql, *arguments.parameters, **_terms(arguments)))
    if len(rows) > MOST_FITTED:
        console.file.writelines(line + "\n" for line in _plain_table(rows.columns, rows))
    elif rows.columns:
        console.print(_table(rows.columns, rows))
    return len(rows), rows.worth


async def _print_portions(
    client: Client, arguments: argparse.Namespace, console: Console
) -> tuple[int, QueryWorth | None]:
    """Print rows as they come, and keep none."""
    count, worth, write = 0, None, None
    async with aclosing(client.query_portions(arguments.sql, *arguments.parameters, **_terms(arguments))) as portions:
        portion: QueryRows | None = await _with_patience(anext(portions))
        while portion is not None:
            write = write or _writer(arguments, console, portion.columns)
            write(portion)
            console.file.flush()
            count, worth = count + len(portion), portion.worth
            portion = await anext(portions, None)
    return count, worth


def _writer(arguments: argparse.Namespace, console: Console, names: tuple[str, ...]) -> Callable[[QueryRows], object]:
    if arguments.json:
        unique = distinct(names)
        return lambda rows: console.file.writelines(as_json(dict(zip(unique, row, strict=True))) + "\n" for row in rows)
    writer = csv.writer(console.file, lineterminator="\n")
    if names:
        writer.writerow(names)
    return lambda rows: writer.writerows([_cell(value) for value in row] for row in rows)


def _terms(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "deadline": arguments.deadline,
        "freshness": arguments.freshness,
        "priority": arguments.priority,
        "read_set": "consistent" if arguments.consistent else None,
    }


async def _with_patience(work: Coroutine[Any, Any, T]) -> T:
    """Wait for the first rows; on a terminal, show after a second that the query is under way."""
    errors = Console(stderr=True)
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=QUIET_S)
        if not done and errors.is_terminal:
            with errors.status("the query is waiting or running; Ctrl-C gives it up"):
                return await task
        return await task
    finally:
        task.cancel()


def in_words(count: int, worth: QueryWorth) -> list[str]:
    """How current rows are, and how long they took: a line each."""
    if worth.seq is not None:
        rows = f"{_counted(count)} at update {worth.seq:,}"
    elif worth.tables:
        moments = ", ".join(f"{name} at update {table.seq:,}" for name, table in worth.tables.items())
        rows = f"{_counted(count)}: {moments}"
    else:
        rows = _counted(count)
    missing = [f"{name} lacks {_counted(t.unapplied, 'change')}" for name, t in worth.tables.items() if t.unapplied]
    if missing:
        rows += f"; {', '.join(missing)}, the oldest {time_shown(worth.staleness_s)} old"
    elif worth.tables:
        rows += ", current"
    took = f"waited {time_shown(worth.waited_s)}, ran {time_shown(worth.ran_s)}"
    if worth.deadline_s is not None:
        took += f", deadline of {time_shown(worth.deadline_s)} {'met' if worth.deadline_met else 'missed'}"
    views = [_view_in_words(name, one) for name, one in worth.tables.items() if one.promise_s is not None]
    return [rows, *views, f"{took} (policy {worth.policy})"]


def _view_in_words(name: str, worth: TableWorth) -> str:
    assert worth.promise_s is not None
    took_s = worth.refresh_s or 0.0
    if not took_s:
        return f"view {name} was up to date already"
    kept = "within" if took_s <= worth.promise_s else "later than"
    return f"view {name} was up to date after {time_shown(took_s)}, {kept} the promised {time_shown(worth.promise_s)}"


def _counted(count: int, what: str = "row") -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _cell(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _plain_table(names: tuple[str, ...], rows: list[Any]) -> Iterator[str]:
    """The lines of a table that looks like a small one, but is as wide as its cells."""
    columns = [[name, *(shown(row[place]) for row in rows)] for place, name in enumerate(names)]
    widths = [max(map(cell_len, column)) for column in columns]
    right = [_are_numbers(rows, place) for place in range(len(names))]
    rule = " " + "─" * (sum(widths) + 3 * len(widths) - 1)
    for number, cells in enumerate(zip(*columns, strict=True)):
        padded = [(cell, " " * (width - cell_len(cell))) for cell, width in zip(cells, widths, strict=True)]
        line = "   ".join(
            pad + cell if number_like else cell + pad for (cell, pad), number_like in zip(padded, right, strict=True)
        )
        yield f"  {line}".rstrip()
        if number == 0:
            yield rule


def _are_numbers(rows: list[Any], place: int) -> bool:
    return all(isinstance(row[place], int | float | None) for row in rows)


def _table(names: tuple[str, ...], rows: list[Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for place, name in enumerate(names):
        table.add_column(Text(name), justify="right" if _are_numbers(rows, place) else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(value), style="dim" if value is None else "") for value in row))
    return table
