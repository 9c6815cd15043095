"""`hullcast delete`: rows out of a table, by primary key."""

from __future__ import annotations

import asyncio
import csv
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from hullcast.clients.cli.commands.arguments import whole
from hullcast.clients.cli.commands.connection import add_connection_arguments, as_json, connected
from hullcast.clients.cli.feeds.feeding import Account, Stopped, read_ahead, send_all
from hullcast.clients.cli.feeds.rows_in import Source
from hullcast.clients.cli.feeds.rows_typed import TYPE_WORDS, find_table, text_value
from hullcast.clients.sdk.client import Receipt
from hullcast.network.wire.errors import HullcastError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import Console

    from hullcast.clients.cli.feeds.rows_typed import TableShape


_FILE = (
    "keys, one per line; `-` is standard input. A first line that is the key column's name is skipped: "
    '`hullcast query "SELECT key FROM t WHERE .." --csv | hullcast delete t --file -` deletes by a condition'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Deletes rows by primary key, and says how many. A key that does not exist is not an error. Keys are read as "
        "the key column's type says."
    )
    parser.epilog = "Exit code 0 if all deletes were durable, 2 if not. Put a key that begins with a minus after `--`."
    parser.add_argument("table", metavar="TABLE", help="the table; upper and lower case are the same")
    parser.add_argument("keys", nargs="*", metavar="KEY", help="a primary key")
    parser.add_argument("--file", metavar="FILE", help=_FILE)
    parser.add_argument("--batch", type=whole(1), default=1000, metavar="N", help="keys in a batch (default 1000)")
    add_connection_arguments(parser, "print the summary as JSON: table, keys, rows, seq")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Delete, and sum up."""
    if bool(arguments.keys) == (arguments.file is not None):
        raise UsageError("give keys, or a --file of keys")
    source = Source(arguments.file) if arguments.file is not None else None
    account, receipts = Account(), list[Receipt]()
    try:
        table = asyncio.run(_delete(arguments, source, account, receipts))
    except UsageError as error:
        raise (
            UsageError(f"{error}; {account.rows:,} keys were deleted before that") if account.rows else error
        ) from None
    finally:
        if source is not None:
            source.close()
    counts = [receipt.deleted for receipt in receipts]
    rows = None if None in counts else sum(count or 0 for count in counts)
    if arguments.json:
        facts = {"table": table, "keys": account.rows, "rows": rows, "seq": account.seq or None}
        console.file.write(as_json(facts) + "\n")
    else:
        last = f", last seq {account.seq}" if account.rows else ""
        console.file.write(f"{table}: {_deleted(account.rows, rows)}{last}\n")
    return 0


def _deleted(keys: int, rows: int | None) -> str:
    if rows is None:
        return f"deleted at most {keys:,} rows; a reply was lost, so the number is not known"
    absent = f" ({keys - rows:,} of {keys:,} keys not found)" if rows < keys else ""
    return f"deleted {rows:,} row{'' if rows == 1 else 's'}{absent}"


async def _delete(
    arguments: argparse.Namespace, source: Source | None, account: Account, receipts: list[Receipt]
) -> str:
    async with connected(arguments) as client:
        table = find_table(await client.tables(), arguments.table)
        texts = _texts(arguments.keys) if source is None else _lines(source, table.key)

        async def send(keys: list[Any]) -> Receipt:
            receipts.append(await client.delete(table.name, keys))
            return receipts[-1]

        try:
            await send_all(read_ahead(_batches(table, texts, arguments.batch)), send, len, account)
        except Stopped as stopped:
            if not isinstance(stopped.__cause__, HullcastError):
                raise
            raise stopped.__cause__ from None
    return table.name


def _texts(keys: list[str]) -> Iterator[tuple[str, str]]:
    for number, key in enumerate(keys, 1):
        yield f"key {number}", key


def _lines(source: Source, column: str) -> Iterator[tuple[str, str]]:
    """Each line that is not empty, and where it is; of a CSV of the key column with its header, each value."""
    first = next(source, "")
    if first.strip().casefold() == column.casefold():
        keys = (row[0] for row in csv.reader(source) if row)
    else:
        keys = (line.rstrip("\r\n") for line in chain((first,), source))
    for key in keys:
        if key:
            yield f"{source.name} line {source.line}", key


def _batches(table: TableShape, texts: Iterator[tuple[str, str]], size: int) -> Iterator[list[Any]]:
    kind = table.types[table.key]
    while part := list(islice(texts, size)):
        keys = []
        for place, text in part:
            try:
                keys.append(text_value(kind, text))
            except ValueError:
                raise UsageError(
                    f"{place}: key column {table.key} is {kind}; {text[:40]!r} is not {TYPE_WORDS[kind]}"
                ) from None
        yield keys
