"""`hullcast export`: tables and their change history as Parquet; run again, it continues.

    DIR/tables/STOCK/part-00000.parquet            the rows as they were when the table was first exported
    DIR/changes/STOCK/FROM-TO.parquet              the changes with these sequence numbers
    DIR/export.json                                which of them count: written after each file, whole or not at all

Files are only ever added. A file that export.json does not count was not finished; the next run removes it, and writes
it again. So killing an export at any moment loses nothing and doubles nothing.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hullcast.broker.log.private import sync_directory
from hullcast.clients.cli.commands.arguments import whole
from hullcast.clients.cli.commands.connection import add_connection_arguments, as_json, connected
from hullcast.clients.cli.commands.progress import Lines, written
from hullcast.network.wire.errors import HullcastError, NotPermitted, UnknownTable, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncGenerator, Callable, Iterator

    from rich.console import Console

    from hullcast.clients.sdk.client import Client
    from hullcast.clients.sdk.history import ChangePart, History, TablePart

    Advance = Callable[[str, int], None]

FORMAT = 1
#: Rows of one file; another is begun at the next portion.
FILE_ROWS = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Writes tables and their change history as Parquet files, while the server runs. The first run writes the "
        "rows of all tables at one sequence number, and the changes that the server keeps. Run it again with the "
        "same folder to add the changes since then; an interrupted export continues where it was."
    )
    parser.epilog = (
        "DIR/tables/TABLE/part-*.parquet are the rows at `as_of` in DIR/export.json. "
        "DIR/changes/TABLE/FROM-TO.parquet are changes: _seq is the sequence number, _deleted says that the row was "
        "deleted (then only its key is given), and the other columns are the new values of the row. Needs the right "
        "to query the tables, a server with a data folder (its setting history_bytes says how much history it "
        "keeps), and pyarrow (pip install hullcast[arrow])."
    )
    parser.add_argument("--parquet", type=Path, required=True, metavar="DIR", help="folder for the files")
    parser.add_argument(
        "--since",
        type=whole(0),
        metavar="SEQ",
        help="in the first run: only changes after this sequence number (default: all that the server keeps)",
    )
    parser.add_argument(
        "--table",
        action="append",
        metavar="T",
        dest="tables",
        help="this table only; may be repeated (default: all tables that this key may query)",
    )
    add_connection_arguments(parser, "print what was written as JSON, for programs")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Export, and say what was written."""
    try:
        import pyarrow  # type: ignore[import-untyped]  # noqa: F401  # ships no types
    except ImportError:
        raise UsageError("Parquet files need pyarrow: pip install hullcast[arrow]") from None
    with _Folder.opened(arguments.parquet) as folder, _progress(console, arguments.json) as advance:
        try:
            done = asyncio.run(_export(arguments, folder, advance))
        except OSError as error:
            if isinstance(error, HullcastError):
                raise
            raise UsageError(
                f"{arguments.parquet} cannot be written: {error}. Finished files count: correct this, and run the "
                "export again"
            ) from error
    if arguments.json:
        console.file.write(as_json(done) + "\n")
    else:
        for name, table in done["tables"].items():
            console.print(
                f"{name}: {_several(table['rows'], 'row')}, {_several(table['changes'], 'change')}", markup=False
            )
        for name in done["skipped"]:
            console.print(f"{name}: skipped; this key does not have the right to query it", markup=False)
        console.print(f"{arguments.parquet} has everything up to update {done['seq']:,}", markup=False)
    return 0


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


async def _export(arguments: argparse.Namespace, folder: _Folder, advance: Advance) -> dict[str, Any]:
    """Bring the folder up to the present; what was added."""
    async with connected(arguments) as client:
        known = await client.tables()
        folded = {name.lower(): name for name in known}
        names = [folded.get(name.lower(), "") or _unknown(name, known) for name in arguments.tables or known]
        spans, skipped = {}, []
        for name in names:
            try:
                spans[name] = await client.history(name)
            except NotPermitted:
                if arguments.tables:
                    raise
                skipped.append(name)
        seq = min((span.last for span in spans.values()), default=0)
        for name, span in spans.items():
            _check(folder, name, span, arguments.since)
        done: dict[str, Any] = {"seq": seq, "tables": {}, "skipped": skipped}
        for name, span in spans.items():
            state = folder.tables.get(name)
            if state is None:
                after = span.first - 1 if arguments.since is None else max(arguments.since, span.created)
                state = {"created": span.created, "as_of": seq, "rows": None, "through": after, "changes": []}
                folder.tables[name] = state
            exporting = _Exporting(client, folder, name, state, advance)
            rows = await exporting.rows()
            done["tables"][name] = {"rows": rows, "changes": await exporting.changes(seq)}
        return done


def _unknown(name: str, known: dict[str, Any]) -> str:
    raise UnknownTable(name, tuple(known))


def _check(folder: _Folder, name: str, span: History, since: int | None) -> None:
    """UsageError if changes that belong into the export are no longer there, or are those of another table."""
    state, first = folder.tables.get(name), span.first
    if state is None:
        if since is not None and (max(since, span.created) < first - 1 or since > span.last):
            raise UsageError(
                f"--since {since}: the server has the changes of {name} from {first:,} to {span.last:,}; begin with "
                f"{first - 1} at the earliest, or leave it out to get all of them"
            )
        return
    if state["created"] != span.created:
        raise UsageError(
            f"{name} was dropped and created again since it was exported to {folder.path}; export it to another folder"
        )
    if (reached := max(state["through"], state["as_of"])) > span.last:
        raise UsageError(
            f"{folder.path} has {name} at update {reached:,}, but the server's last update is {span.last:,}: it "
            "is another server, or an older copy of it was restored. Export to another folder"
        )
    before = state["through"] if state["rows"] is not None else min(state["through"], state["as_of"])
    if before < span.first - 1:
        raise UsageError(
            f"{folder.path} has the changes of {name} up to {before:,}, but the server keeps only those from "
            f"{span.first:,} on; export to another folder, and raise the server's history_bytes or export more often"
        )


class _Exporting:
    """One table on its way to files."""

    def __init__(self, client: Client, folder: _Folder, name: str, state: dict[str, Any], advance: Advance) -> None:
        self._client, self._folder, self._name, self._state = client, folder, name, state
        self._advance = advance

    async def rows(self) -> int:
        """Write the rows, unless they have been; how many."""
        if self._state["rows"] is not None:
            return 0
        place = self._folder.place("tables", self._name, ())
        rows = parts = 0
        async with aclosing(self._client.table_at(self._name, self._state["as_of"])) as portions:
            more = True
            while more:
                with place.file() as file:
                    more = await self._fill(file, portions, "rows")
                    if file.rows or not parts:  # an empty table has a file, too: it says which columns there are
                        file.name = f"part-{parts:05}.parquet"
                        parts += 1
                rows += file.rows
        self._state["rows"], self._state["parts"] = rows, parts
        self._folder.save()
        return rows

    async def changes(self, through: int) -> int:
        """Write the changes up to `through` that are not there yet; how many."""
        state = self._state
        place = self._folder.place("changes", self._name, state["changes"])
        changes = 0
        if state["through"] >= through:
            return 0
        async with aclosing(self._client.changes(self._name, state["through"], through)) as portions:
            while state["through"] < through:
                with place.file() as file:
                    more = await self._fill(file, portions, "changes")
                    last = file.last if more else through
                    file.name = f"{state['through'] + 1:020}-{last:020}.parquet" if file.rows else ""
                if file.name:
                    state["changes"].append(file.name)
                state["through"] = last
                changes += file.rows
                self._folder.save()
        return changes

    async def _fill(
        self, file: _File, portions: AsyncGenerator[ChangePart, None] | AsyncGenerator[TablePart, None], what: str
    ) -> bool:
        """Write portions until the file has enough rows; whether there may be more."""
        async for portion in portions:
            await asyncio.to_thread(file.write, portion.to_arrow())
            file.last = getattr(portion, "last", 0)
            self._advance(f"{self._name}: {what}", len(portion))
            if file.rows >= FILE_ROWS:
                return True
        return False


class _File:
    """A Parquet file that is being written; it gets its name when it is whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self.name = ""
        self.rows = self.last = 0

    def write(self, rows: Any) -> None:
        """Add rows of a pyarrow Table; the first may have none, and only tell the columns."""
        from pyarrow import parquet

        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._path, rows.schema)
        if rows.num_rows:
            self._writer.write_table(rows)
            self.rows += rows.num_rows

    def discard(self) -> None:
        """Remove it."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def finish(self) -> None:
        """Give it its name, if it has one; it is on disk then."""
        if self._writer is not None:
            self._writer.close()
        if not self.name:
            self._path.unlink(missing_ok=True)
            return
        _rename(self._path, self._path.with_name(self.name))


class _Files:
    """A folder of files, of which those that were not finished have been removed."""

    def __init__(self, path: Path, finished: frozenset[str]) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True)
        for left in path.iterdir():
            if left.name not in finished and left.name.endswith((".parquet", ".tmp")):
                left.unlink()

    @contextmanager
    def file(self) -> Iterator[_File]:
        """One more file."""
        file = _File(self._path / "unfinished.tmp")
        try:
            yield file
            file.finish()
        except BaseException:
            file.discard()  # if the disk is full, it shall not stay so for this
            raise


class _Folder:
    """An export: its files, and export.json, which says what of it counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._record = path / "export.json"
        self.tables: dict[str, dict[str, Any]] = {}
        if self._record.exists():
            try:
                found = json.loads(self._record.read_text(encoding="utf-8"))
                if found["format"] != FORMAT:
                    raise UsageError(f"{self._record} has format {found['format']}, this program knows {FORMAT}")
                self.tables = found["tables"]
            except (ValueError, KeyError, TypeError) as error:
                if isinstance(error, UsageError):
                    raise
                raise UsageError(f"{self._record} was not written by an export; export to another folder") from None

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[_Folder]:
        """The export in a folder, made if need be; no other export runs there."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(f"{path} cannot be used: {error.strerror or error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield cls(path)
        except BlockingIOError:
            raise UsageError(f"another export to {path} is running; wait for it, or use another folder") from None
        finally:
            os.close(descriptor)

    def place(self, kind: str, table: str, finished: list[str] | tuple[()]) -> _Files:
        """Where the files of a table go."""
        return _Files(self.path / kind / _folder_name(table), frozenset(finished))

    def save(self) -> None:
        """Say what counts by now."""
        temporary = self._record.with_suffix(".tmp")
        temporary.write_text(json.dumps({"format": FORMAT, "tables": self.tables}, indent=1), encoding="utf-8")
        _rename(temporary, self._record)


def _rename(path: Path, final: Path) -> None:
    """Give a file its name when it is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(path, final)
    sync_directory(final.parent)


def _folder_name(table: str) -> str:
    """A table's name as a folder's: readable, and never another folder than its own."""
    name = "".join(letter if ord(letter) > 127 else quote(letter, safe=" ") for letter in table)
    return name if name.strip(".") else name.replace(".", "%2E")


@contextmanager
def _progress(console: Console, quiet: bool) -> Iterator[Advance]:
    """`advance(what, rows)` says that so many more rows are written."""
    counts: dict[str, int] = {}
    if quiet or not console.is_terminal:
        lines = Lines(None, monotonic())

        def count(what: str, rows: int) -> None:
            counts[what] = counts.get(what, 0) + rows
            lines.begin(f"{what} {counts[what]:,}")

        with written(lines):
            yield count
        return
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)

        def show(what: str, rows: int) -> None:
            counts[what] = counts.get(what, 0) + rows
            progress.update(task, description=f"{what} {counts[what]:,}")

        yield show
