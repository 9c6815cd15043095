"""A trace on disk: `trace.json` describes it and names its files; its events are Parquet.

    DIR/trace.json          TraceInfo, and the names of the files; written last, so a folder without it is no trace
    DIR/events/*.parquet    seq, at, key, x, y (SCHEMA), about PART_EVENTS rows each
    DIR/refused/*.parquet   dirty input, each with the reason it was refused (traces from prices only)

DIR is a folder of this machine, or wherever else Spark can write. A file that trace.json does not name is not part of
the trace: it may be what is left of an older one, or the beginning of a newer one.

Invariants (`tests/sim/traces` checks them on every kind of trace):
  T1  seq runs 0, 1, 2 .. without holes over the events; rows that are there before the first event are negative.
  T2  x and y are both there (the row is put to that place), or both NULL (the row is deleted).
  T3  a file holds consecutive numbers, either of events or of the start; trace.json names the files in their order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.storage import Place, place_of

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
    from pyspark.sql import DataFrame, SparkSession

    from hullcast.network.wire.arrays import Floats, Ints

INFO = "trace.json"
EVENTS = "events"
REFUSED = "refused"
#: As Spark reads and writes the events.
SCHEMA = "seq BIGINT, at TIMESTAMP, key STRING, x DOUBLE, y DOUBLE"
COLUMNS = ("seq", "at", "key", "x", "y")
#: Events in one file: small enough to be read at once, large enough that a hundred million are a few hundred files.
PART_EVENTS = 262_144
VERSION = 2

#: A folder, as callers name it.
Where = Place | Path | str


@dataclass(frozen=True, slots=True)
class TraceInfo:
    """What a trace is: the table its events change, and how many there are."""

    name: str
    table: str = "STOCK"
    key: str = "SYMBOL"
    x: str = "RECO"
    y: str = "PER"
    key_type: str = "TEXT"  # or INTEGER: keys are numbers, written as text
    domain: tuple[float, float] = (1.0, 5.0)  # of x: where subscriptions may lie
    events: int = 0
    start: int = 0  # rows that are there before the first event
    source: str = ""  # files, or the generator and its seed
    refused: dict[str, int] = field(default_factory=dict)  # prices by reason
    notes: dict[str, Any] = field(default_factory=dict)


def create_statement(info: TraceInfo) -> str:
    """The table a trace's events belong to."""
    return f"CREATE TABLE {info.table} ({info.key} {info.key_type} PRIMARY KEY, {info.x} REAL, {info.y} REAL)"


def read_info(folder: Where) -> TraceInfo:
    """What the trace in a folder is."""
    path, found = _read_json(folder)
    known = {item.name for item in fields(TraceInfo)}
    info = {name: value for name, value in found.items() if name in known}
    for item in fields(TraceInfo):
        if item.name in info and not _CHECKS[item.type](info[item.name]):
            raise UsageError(f"{path}: {item.name} cannot be {info[item.name]!r}; make the trace again")
    low, high = info.get("domain", (1.0, 5.0))
    return TraceInfo(**info | {"domain": (float(low), float(high))})


def _read_json(folder: Where) -> tuple[Place, dict[str, Any]]:
    path = place_of(folder) / INFO
    try:
        if not path.exists():
            raise FileNotFoundError
        found = json.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"{folder} is not a trace: it has no {INFO}; make one with `hullcast sim trace`") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    if not isinstance(found, dict) or "version" not in found:
        raise UsageError(f"{path} does not belong to a trace; make the trace again")
    if found["version"] != VERSION:
        raise UsageError(
            f"{path} belongs to a trace of version {found['version']}, and this is version {VERSION}; "
            "make the trace again, in a new folder"
        )
    if not {"name", "events", "files"} <= found.keys() or not _are_files(found["files"]):
        raise UsageError(f"{path} is damaged: it lacks name, events or files; make the trace again")
    return path, found


@dataclass(frozen=True, slots=True)
class EventFile:
    """One file of events, and the numbers it holds."""

    place: Place
    first: int
    last: int

    @property
    def is_start(self) -> bool:
        """Whether it holds rows that are there before the first event."""
        return self.first < 0

    @property
    def rows(self) -> int:
        """How many."""
        return self.last - self.first + 1


def _are_files(value: object) -> bool:
    """The names of files of events with their first and last number, and the names of files of refused prices."""
    if not isinstance(value, dict) or not isinstance(value.get(REFUSED, []), list):
        return False
    named = value.get(EVENTS)
    return isinstance(named, list) and all(
        isinstance(one, list) and len(one) == 3 and isinstance(one[0], str) and type(one[1]) is type(one[2]) is int
        for one in named
    )


def _is_range(value: object) -> bool:
    numbers = isinstance(value, list) and len(value) == 2 and all(type(one) in (int, float) for one in value)
    return numbers and -math.inf < value[0] < value[1] < math.inf  # type: ignore[index]  # it is a list


#: Whether a value read from JSON can be a field of such a type.
_CHECKS: dict[Any, Callable[[object], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int": lambda value: type(value) is int and value >= 0,
    "tuple[float, float]": _is_range,
    "dict[str, int]": lambda value: isinstance(value, dict),
    "dict[str, Any]": lambda value: isinstance(value, dict),
}


def write_info(info: TraceInfo, folder: Where, parts: Iterable[EventFile], refused: Sequence[str] = ()) -> None:
    """The last step of writing a trace: from now on these files are it."""
    files: dict[str, object] = {
        EVENTS: [[part.place.name, part.first, part.last] for part in sorted(parts, key=lambda part: part.first)]
    }
    if refused:
        files[REFUSED] = sorted(refused)
    text = json.dumps({"version": VERSION} | asdict(info) | {"files": files}, indent=2)
    (place_of(folder) / INFO).write_text(text + "\n")


def parts_of(folder: Where) -> list[EventFile]:
    """The files of events in the order of their numbers; the start first."""
    place = place_of(folder) / EVENTS
    return [EventFile(place / name, first, last) for name, first, last in _read_json(folder)[1]["files"][EVENTS]]


def files_of(folder: Where) -> dict[str, set[str]]:
    """The names of the files that belong to a trace, by the folder they are in."""
    files = _read_json(folder)[1]["files"]
    return {EVENTS: {name for name, _, _ in files[EVENTS]}, REFUSED: set(files.get(REFUSED, ()))}


def contents_mark(folder: Where) -> str:
    """A digest that a trace with other events would not have (`Place.mark`), whatever its files are called."""
    try:
        told = "\n".join(part.place.mark() for part in parts_of(folder))
    except OSError as error:
        raise UsageError(f"{folder} is incomplete: a file of {EVENTS} cannot be read; make the trace again") from error
    return blake2b(told.encode(), digest_size=16).hexdigest()


def events(spark: SparkSession, folder: Where) -> DataFrame:
    """All events, and the rows of the start with negative numbers; in no order. UsageError if a file is missing."""
    parts, place = parts_of(folder), place_of(folder) / EVENTS
    named = {part.place.name for part in parts}
    there = {found.name for found in place.entries() if not found.name.startswith((".", "_"))}  # which Spark leaves out
    if missing := sorted(named - there):
        raise UsageError(f"{folder} is incomplete: {EVENTS}/{missing[0]} is missing; make the trace again")
    if not parts:
        return spark.createDataFrame([], SCHEMA)
    # The folder rather than its files, if there is nothing else in it: Spark looks up many files by a job of its own.
    paths = [place.to_read] if named == there else [part.place.to_read for part in parts]
    return spark.read.schema(SCHEMA).parquet(*paths)


def read_parts(folder: Where) -> Iterator[pa.Table]:
    """The events file by file, each in the order of seq; a folder of this machine needs no Spark."""
    return map(read_part, parts_of(folder))


def read_part(part: EventFile) -> pa.Table:
    """The events of one file in the order of seq."""
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types

    try:
        file = part.place.local if part.place.is_local else pa.BufferReader(part.place.read_bytes())
        return pq.read_table(file, columns=list(COLUMNS), partitioning=None).sort_by("seq")
    except (OSError, KeyError, pa.ArrowException) as error:
        raise UsageError(f"cannot read {part.place}: {error}") from error


@dataclass(frozen=True, slots=True)
class EventRun:
    """Consecutive events of one kind: rows to upsert, as columns, or keys to delete."""

    deletes: bool
    rows: Any
    begin: int  # in the table it is cut from
    count: int


def runs(info: TraceInfo, table: pa.Table) -> Iterator[EventRun]:
    """Events in order, cut where upserts and deletes follow each other; as an engine or a client takes them."""
    gone = table.column("x").is_null().to_numpy(zero_copy_only=False)
    borders = (np.flatnonzero(gone[1:] != gone[:-1]) + 1).tolist()
    keys: Any = table.column("key").to_pylist()
    if info.key_type == "INTEGER":
        keys = np.array(keys, dtype=np.int64)  # from text, by NumPy
    x, y = (table.column(name).to_numpy() for name in ("x", "y"))
    for begin, end in zip([0, *borders], [*borders, len(gone)], strict=True):
        if end == begin:
            continue
        part = slice(begin, end)
        deletes = bool(gone[begin])
        rows = list(keys[part]) if deletes else {info.key: keys[part], info.x: x[part], info.y: y[part]}
        yield EventRun(deletes, rows, begin, end - begin)


@dataclass(frozen=True, slots=True)
class Columns:
    """Events in order, as arrays: NaN for x and y deletes; without `at` the trace has no times."""

    keys: Sequence[str] | Ints
    x: Floats
    y: Floats
    at: npt.NDArray[np.datetime64] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def slice(self, begin: int, end: int) -> Columns:
        """Some of them."""
        at = None if self.at is None else self.at[begin:end]
        return Columns(self.keys[begin:end], self.x[begin:end], self.y[begin:end], at)


def as_table(columns: Columns, first: int = 0) -> pa.Table:
    """Events as `read_parts` gives them, numbered from `first`."""
    import pyarrow as pa

    gone = np.isnan(columns.x) & np.isnan(columns.y)
    at = np.full(len(columns), np.datetime64("NaT", "us")) if columns.at is None else columns.at
    return pa.table(
        {
            "seq": pa.array(np.arange(first, first + len(columns), dtype=np.int64)),
            "at": pa.array(at.astype("datetime64[us]"), pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "key": pa.array(columns.keys).cast(pa.string()),
            "x": pa.array(columns.x, pa.float64(), mask=gone),
            "y": pa.array(columns.y, pa.float64(), mask=gone),
        }
    )


def write_columns(folder: Where, info: TraceInfo, changes: Columns, start: Columns | None = None) -> None:
    """Write a trace that was made in memory, trace.json last; beyond the columns it needs the memory of one file."""
    place, parts = place_of(folder) / EVENTS, []
    place.make()
    taken = [name for found in place.entries() if (name := found.name.removesuffix(".parquet")).isdecimal()]
    number = 1 + max(map(int, taken), default=-1)  # of an older trace, which is one until trace.json is replaced
    for columns, first in ((start, -len(start)) if start is not None else (None, 0), (changes, 0)):
        for begin in range(0, len(columns) if columns is not None else 0, PART_EVENTS):
            assert columns is not None
            table = as_table(columns.slice(begin, begin + PART_EVENTS), first + begin)
            part = EventFile(place / f"{number:05d}.parquet", first + begin, first + begin + len(table) - 1)
            part.place.write_table(table)
            parts.append(part)
            number += 1
    write_info(info, folder, parts)
