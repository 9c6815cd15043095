"""`hullcast publish`: rows from a file or a pipe into a table."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hullcast.clients.cli.commands.arguments import whole
from hullcast.clients.cli.commands.connection import add_connection_arguments, as_json, connected
from hullcast.clients.cli.feeds.feeding import Account, Stopped, read_ahead, send_all
from hullcast.clients.cli.feeds.rows_in import Source, read_rows
from hullcast.clients.cli.feeds.rows_typed import create_statement, find_table, typed
from hullcast.network.wire.errors import BadValue, HullcastError, UnknownTable, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Iterator

    from rich.console import Console

    from hullcast.clients.cli.feeds.rows_in import FileForm, ReadRows
    from hullcast.clients.cli.feeds.rows_typed import TableShape
    from hullcast.clients.sdk.client import Client, Receipt

    Rows = tuple[ReadRows, Any]  # as read, and as the table takes them

FORMS: tuple[FileForm, ...] = ("csv", "jsonl", "parquet")
PROGRESS_S = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Inserts or changes rows by primary key, batch by batch. Each batch is applied as a whole or not at all, and "
        "counts as published when it is on the server's disk. Rows from a pipe are sent as they arrive."
    )
    parser.epilog = (
        "CSV needs a header; cells are read as the table's column types say, TIMESTAMP as ISO-8601; an empty cell is "
        "NULL, also in a TEXT column. In JSON lines, a column that is left out keeps its value. A bad row ends the "
        "command: the error names its line and column, and how many rows are durable. Exit code 0 if all rows were "
        "published, 2 if not."
    )
    parser.add_argument("table", metavar="TABLE", help="the table; upper and lower case are the same")
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--csv", metavar="FILE", help="comma-separated values; `-` is standard input")
    form.add_argument("--jsonl", metavar="FILE", help="one JSON object per line; `-` is standard input")
    form.add_argument("--parquet", metavar="FILE", help="a Parquet file (needs hullcast[arrow]); `-` is standard input")
    parser.add_argument("--batch", type=whole(1), default=1000, metavar="N", help="rows in a batch (default 1000)")
    parser.add_argument(
        "--delimiter", type=_character, default=",", metavar="C", help="separator of CSV cells (default ,)"
    )
    parser.add_argument(
        "--create", action="store_true", help="create the table if it does not exist; the first batch decides the types"
    )
    parser.add_argument("--primary-key", metavar="COLUMN", help="with --create: the key (default: the first column)")
    parser.add_argument(
        "--nan",
        choices=("refuse", "null"),
        default="refuse",
        help="NaN in CSV and Parquet is an error, or NULL (default refuse)",
    )
    add_connection_arguments(parser, "print the summary as JSON: table, rows, batches, seconds, seq")


def _character(text: str) -> str:
    text = {"\\t": "\t", "tab": "\t"}.get(text, text)
    if len(text) != 1 or text in '"\r\n':
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"{text!r} is not a single character")
    return text


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Publish, and sum up."""
    form = next(form for form in FORMS if getattr(arguments, form) is not None)
    source = Source(getattr(arguments, form))  # before connecting: a wrong name is reported at once
    begun = time.perf_counter()
    account = Account()
    try:
        batches = read_rows(source, form, arguments.batch, arguments.delimiter)
        with _progress(account):
            table = asyncio.run(_publish(arguments, batches, account))
    except UsageError as error:  # found while reading; what was read before is published
        raise UsageError(f"{error}; {_durable(account.rows)}") from error
    finally:
        source.close()
    seconds = time.perf_counter() - begun
    if arguments.json:
        facts = {"table": table, "rows": account.rows, "batches": account.batches, "seconds": round(seconds, 3)}
        console.file.write(as_json(facts | {"seq": account.seq if account.batches else None}) + "\n")
        return 0
    count = "1 batch" if account.batches == 1 else f"{account.batches:,} batches"
    last = f", last seq {account.seq}" if account.batches else ""
    rate = f" ({account.rows / seconds:,.0f} rows/s)" if account.rows else ""
    rows = "1 row" if account.rows == 1 else f"{account.rows:,} rows"
    console.file.write(f"{table}: {rows} in {count}, {seconds:.2f} s{rate}{last}\n")
    return 0


async def _publish(arguments: argparse.Namespace, batches: Iterator[ReadRows], account: Account) -> str:
    async with connected(arguments) as client:
        table, first = await _table(client, arguments, batches)

        def rows() -> Iterator[Rows]:
            if first is not None:
                yield first, typed(first, table)
            for batch in batches:
                yield batch, typed(batch, table)

        async def send(item: Rows) -> Receipt:
            return await client.publish(table.name, item[1], nan=arguments.nan)

        try:
            await send_all(read_ahead(rows()), send, lambda item: len(item[0]), account)
        except Stopped as stopped:
            raise _refusal(stopped) from stopped.__cause__
    return table.name


async def _table(
    client: Client, arguments: argparse.Namespace, batches: Iterator[ReadRows]
) -> tuple[TableShape, ReadRows | None]:
    """The table; and the first batch, if it had to be read to know what table to create."""
    try:
        return find_table(await client.tables(), arguments.table), None
    except UnknownTable:
        if not arguments.create:
            raise
    first = None
    async for first in _one(batches):
        await client.execute(create_statement(arguments.table, first, arguments.primary_key))
    if first is None:
        raise UsageError("there are no rows, so the columns of the table to create are unknown")
    return find_table(await client.tables(), arguments.table), first


async def _one(batches: Iterator[ReadRows]) -> AsyncIterator[ReadRows]:
    """The first batch, if there is one."""

    def first() -> Iterator[ReadRows]:
        batch = next(batches, None)
        if batch is not None:
            yield batch

    async for batch in read_ahead(first()):
        yield batch


def _refusal(stopped: Stopped) -> HullcastError:
    """The server's refusal with the place in the file, and what is durable nevertheless."""
    batch: ReadRows = stopped.item[0]
    error = stopped.__cause__
    if isinstance(error, BadValue) and 0 <= error.row < len(batch):
        what = f"{batch.place(error.row, error.column)}: {error.reason}"
    elif isinstance(error, HullcastError):
        last = f" to {batch.lines[-1]}" if len(batch) > 1 else ""
        what = f"{batch.place(0)}{last}: {error}"
    else:
        raise stopped
    text = f"{what}; {_durable(stopped.before)}"
    if stopped.after:
        text += f" before that batch (it begins on {'row' if batch.form == 'parquet' else 'line'} {batch.lines[0]})"
        text += f", and {stopped.after:,} after it, which were on their way"
    return HullcastError(text)


def _durable(rows: int) -> str:
    return f"{rows:,} rows are durable" if rows else "no row was published"


@contextmanager
def _progress(account: Account) -> Iterator[None]:
    """Rows and rate on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    begun = time.perf_counter()

    class Rows(Progress):
        def get_renderables(self) -> Any:
            rate = account.rows / max(1e-9, time.perf_counter() - begun)
            self.update(task, description=f"{account.rows:,} rows durable, {rate:,.0f} rows/s")
            yield from super().get_renderables()

    shown = Rows(*columns, console=Console(stderr=True), transient=True, refresh_per_second=1 / PROGRESS_S)
    task = shown.add_task("connecting", total=None)
    with shown:
        yield
