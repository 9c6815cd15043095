"""`hullcast log`: verify a data directory, show its records, or copy it, without changing it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from hullcast.broker.log.record import NOBODY, Record, RecordKind
from hullcast.broker.log.verify import copy, show, verify
from hullcast.clients.cli.commands.arguments import whole

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.broker.log.record import PlacedRecord
    from hullcast.broker.log.verify import Verified

FINE, NO = 0, 1
_LONGEST_SQL = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of each."""
    which = parser.add_subparsers(metavar="verify|show|copy", dest="which", required=True)
    verifying = which.add_parser(
        "verify",
        help="read all files and check whether they are whole",
        description="Reads all checkpoints and segments of a data directory and checks every record. Changes nothing, "
        "and may run beside a server. The log alone cannot show whether its end was lost, so the command says where "
        "it ends. Exit code 0: all files are whole; 1: something is damaged or missing; 2: it could not be checked.",
    )
    verifying.add_argument("directory", type=Path, metavar="DIR", help="the server's data directory")
    verifying.add_argument("--json", action="store_true", help="print the report as one JSON object")
    showing = which.add_parser(
        "show",
        help="list the records",
        description="Lists the records of the commit log: batches of rows, and CREATE and DROP TABLE. Records "
        "that a checkpoint made unnecessary have been removed.",
    )
    showing.add_argument("directory", type=Path, metavar="DIR", help="the server's data directory")
    showing.add_argument(
        "--from", type=whole(0), default=0, metavar="SEQ", dest="from_seq", help="start at this update"
    )
    showing.add_argument("--json", action="store_true", help="print one JSON object per line")
    copying = which.add_parser(
        "copy",
        help="copy it, also beside a running server, and verify the copy",
        description="Copies a data directory in the right order (identity, checkpoints, log) and verifies the copy. "
        "May run beside a server; a server starts from the copy as after a crash. Exit codes are those of `verify`.",
    )
    copying.add_argument("directory", type=Path, metavar="DIR", help="the server's data directory")
    copying.add_argument("target", type=Path, metavar="TARGET", help="a new folder, or an empty one")
    copying.add_argument("--json", action="store_true", help="print the report on the copy as one JSON object")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Do the one that is asked for."""
    if arguments.which == "verify":
        return _verify(arguments.directory, arguments.json, console)
    if arguments.which == "copy":
        copy(arguments.directory, arguments.target)
        return _verify(arguments.target, arguments.json, console)
    return _show(arguments.directory, arguments.from_seq, arguments.json, console)


def _verify(directory: Path, as_json: bool, console: Console) -> int:
    found = verify(directory)
    if as_json:
        console.file.write(json.dumps(_facts(found)) + "\n")
    else:
        _print(directory, found, console)
    return NO if found.problems else FINE


def _facts(found: Verified) -> dict[str, Any]:
    last = found.last
    return {
        "identity": found.identity.hex(),
        "checkpoints": [
            {"file": seen.path.name, "bytes": seen.size_bytes, "record": seen.number, "problem": seen.problem}
            for seen in found.checkpoints
        ],
        "segments": [
            {
                "file": seen.path.name,
                "bytes": seen.size_bytes,
                "records": seen.records,
                "first_seq": seen.first_seq,
                "last_seq": seen.last_seq,
                "problem": seen.problem,
            }
            for seen in found.segments
        ],
        "unfinished_bytes": found.cut.size_bytes if found.cut else 0,
        "last": {"record": last.last_record, "seq": last.last_seq, "file": last.path.name, "end": last.end}
        if last
        else None,
        "problems": list(found.problems),
    }


def _print(directory: Path, found: Verified, console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("file", "bytes", "records", "updates", ""):
        table.add_column(name, justify="left" if name in ("file", "") else "right")
    for checkpoint in found.checkpoints:
        verdict = "damaged" if checkpoint.problem else "whole"
        table.add_row(checkpoint.path.name, f"{checkpoint.size_bytes:,}", f"to {checkpoint.number:,}", "", verdict)
    for segment in found.segments:
        updates = f"{segment.first_seq:,} to {segment.last_seq:,}" if segment.last_seq >= segment.first_seq else "none"
        verdict = "damaged" if segment.problem else "whole"
        table.add_row(segment.path.name, f"{segment.size_bytes:,}", f"{segment.records:,}", updates, verdict)
    console.print(f"data directory {directory}, identity {found.identity.hex()}", markup=False, soft_wrap=True)
    console.print(table)
    lines = [f"problem: {problem}" for problem in found.problems]
    if found.cut is not None:
        text = f"at its end: {found.cut}; the log does not say that it was ever acknowledged, the next start removes it"
        lines.insert(0, text)
    for line in (*lines, _verdict(found)):
        console.print(line, markup=False, soft_wrap=True)


def _verdict(found: Verified) -> str:
    """What is known, and no more: a log whose end was cut off between two records looks like one that ended there."""
    last = found.last
    if last is None:
        reached = "the log has no records"
    else:
        where = f"in {last.path.name} to byte {last.end}"
        reached = f"the last good record is {last.last_record} (update {last.last_seq}), {where}"
    if found.problems:
        return f"not whole; {reached}"
    return f"whole as far as it goes: {reached}. The log alone cannot show whether there was anything after that"


def _show(directory: Path, from_seq: int, as_json: bool, console: Console) -> int:
    empty = True
    for path, placed in show(directory, from_seq):
        empty = False
        line = json.dumps(_fields(path, placed)) if as_json else _line(placed.record)
        console.file.write(line + "\n")
    if empty and not as_json:
        console.file.write("no records\n")
    return FINE


def _fields(path: Path, placed: PlacedRecord) -> dict[str, Any]:
    record = placed.record
    fields: dict[str, Any] = {
        "record": record.number,
        "kind": record.kind.name.lower(),
        "first_seq": record.first,
        "last_seq": record.last,
        "publisher": record.publisher.hex() if record.publisher != NOBODY else None,
        "number": record.publisher_number,
        "bytes": len(record.payload),
        "file": path.name,
        "offset": placed.offset,
    }
    return fields | ({"sql": _text(record)} if record.kind is RecordKind.STATEMENT else {})


def _line(record: Record) -> str:
    sender = f"  from {record.publisher.hex()[:8]} #{record.publisher_number}" if record.publisher != NOBODY else ""
    if record.kind is RecordKind.STATEMENT:
        text = _text(record)
        shown = json.dumps(text if len(text) <= _LONGEST_SQL else text[: _LONGEST_SQL - 3] + "...")
        return f"{record.number:>10}  statement  {shown}{sender}"
    if record.kind in (RecordKind.RESULT, RecordKind.GAP, RecordKind.CONSUMED):
        return f"{record.number:>10}  {record.kind.name.lower():<9}  {record.first}  {_text(record)}"
    return f"{record.number:>10}  batch      {record.first} to {record.last}  {len(record.payload)} bytes{sender}"


def _text(record: Record) -> str:
    return record.payload.decode("utf-8", "replace")
