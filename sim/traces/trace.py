"""A trace on disk: `trace.json`, which says what it is, and its events as partitioned Parquet.

    DIR/trace.json                  TraceInfo; written last, so a folder without it is no trace, or an unfinished one
    DIR/events/part=NAME/*.parquet  seq, at, key, x, y (SCHEMA)
    DIR/refused/*.parquet           dirty input, each with the reason it was refused (traces from prices only)

Invariants (`tests/sim/traces` checks them on every kind of trace):
  T1  seq runs 0, 1, 2 .. without holes over the events; rows that are there before the first event are negative.
  T2  x and y are both there (the row is put to that place), or both NULL (the row is deleted).
  T3  a part holds consecutive numbers, and parts in the order of `parts_of` hold rising ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.storage import Place, place_of

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
    from pyspark.sql import DataFrame, SparkSession

    from hullcast.network.wire.arrays import Floats

INFO = "trace.json"
EVENTS = "events"
REFUSED = "refused"
START = "start"
#: As Spark reads and writes the events; `part` is the name of the folder.
SCHEMA = "seq BIGINT, at TIMESTAMP, key STRING, x DOUBLE, y DOUBLE, part STRING"
COLUMNS = ("seq", "at", "key", "x", "y")
#: Events in one part, where the trace has no days.
PART_EVENTS = 65_536
VERSION = 1


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


def read_info(folder: Place | Path | str) -> TraceInfo:
    """What the trace in a folder is."""
    path = place_of(folder) / INFO
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"{folder} is not a trace: it has no {INFO}; make one with `hullcast sim trace`") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    known = {item.name for item in fields(TraceInfo)}
    if not isinstance(found, dict) or found.pop("version", None) != VERSION or not {"name", "events"} <= found.keys():
        raise UsageError(f"{path} does not belong to a trace of version {VERSION}; make the trace again")
    info = {name: value for name, value in found.items() if name in known}
    for item in fields(TraceInfo):
        if item.name in info and not _CHECKS[item.type](info[item.name]):
            raise UsageError(f"{path}: {item.name} cannot be {info[item.name]!r}; make the trace again")
    low, high = info.get("domain", (1.0, 5.0))
    return TraceInfo(**info | {"domain": (float(low), float(high))})


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


def write_info(info: TraceInfo, folder: Place | Path | str) -> None:
    """The last step of writing a trace."""
    text = json.dumps({"version": VERSION} | asdict(info), indent=2, sort_keys=False)
    (place_of(folder) / INFO).write_text(text + "\n")


def events(spark: SparkSession, folder: Place | Path | str) -> DataFrame:
    """All events, and the rows of the start with negative numbers; in no order."""
    read_info(folder)  # is it a trace?
    return spark.read.schema(SCHEMA).parquet((place_of(folder) / EVENTS).to_read)


def parts_of(folder: Path | str) -> list[tuple[str, Path]]:
    """Names and folders of the parts in the order of their events; the start first."""
    parts = {path.name.removeprefix("part="): path for path in (Path(folder) / EVENTS).glob("part=*")}
    names = sorted(parts, key=lambda name: (name != START, len(name), name))
    return [(name, parts[name]) for name in names]


def read_parts(folder: Path | str) -> Iterator[pa.Table]:
    """The events part by part, each in the order of seq; needs no Spark."""
    for _, path in parts_of(folder):
        table = read_part(path)
        if table.num_rows:
            yield table


def read_part(path: Path) -> pa.Table:
    """The events of one part in the order of seq."""
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types

    try:
        return pq.read_table(path, columns=list(COLUMNS), partitioning=None).sort_by("seq")
    except (OSError, KeyError, pa.ArrowException) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


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

    keys: Sequence[str]
    x: Floats
    y: Floats
    at: npt.NDArray[np.datetime64] | None = None

    def __len__(self) -> int:
        return len(self.x)


def as_table(columns: Columns, first: int = 0) -> pa.Table:
    """Events as `read_parts` gives them, numbered from `first`."""
    import pyarrow as pa

    gone = np.isnan(columns.x) & np.isnan(columns.y)
    at = np.full(len(columns), np.datetime64("NaT", "us")) if columns.at is None else columns.at
    return pa.table(
        {
            "seq": pa.array(np.arange(first, first + len(columns), dtype=np.int64)),
            "at": pa.array(at.astype("datetime64[us]"), pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "key": pa.array(columns.keys, pa.string()),
            "x": pa.array(columns.x, pa.float64(), mask=gone),
            "y": pa.array(columns.y, pa.float64(), mask=gone),
        }
    )


def write_columns(folder: Place | Path, start: Columns, changes: Columns) -> None:
    """Write the events of a trace that was made in memory; `write_info` comes after."""
    place = place_of(folder)
    (place / EVENTS).make()
    if len(start):
        _write_part(place, START, as_table(start, -len(start)))
    table = as_table(changes)
    for number, begin in enumerate(range(0, len(changes), PART_EVENTS)):
        _write_part(place, f"{number:04d}", table.slice(begin, PART_EVENTS))


def _write_part(folder: Place, name: str, table: pa.Table) -> None:
    (folder / EVENTS / f"part={name}" / "events.parquet").write_table(table)
