"""The per-event table in few numbers: one `EventCost` per placement and approach, and how stress is distributed.

Spark reduces millions of rows to one per distinct pair of stresses; what is left is small, and its percentiles are
exact. The p99 is the least value that 99 % of the events do not exceed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow has no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hullcast.network.wire.errors import UsageError

_GROUPS = ("placement", "approach", "ignorable", "node_stress", "link_stress")
_SUMS = ("messages", "bytes", "byte_links", "rectangles", "affected")


@dataclass(frozen=True, slots=True)
class EventCost:
    """What an event costs on average in one approach on one placement. `_changing`: over non-ignorable events only."""

    placement: str
    approach: str
    events: int
    changing: int  # events that are not ignorable
    rectangles: float
    affected: float
    messages: float
    bytes: float
    byte_links: float
    messages_changing: float
    bytes_changing: float
    byte_links_changing: float
    node_stress: float
    node_stress_p99: int
    node_stress_max: int
    link_stress: float
    link_stress_p99: int
    link_stress_max: int


@dataclass(frozen=True, slots=True)
class TrafficLine:
    """A `EventCost`, and which workload it is of: `x` is what the experiment varies."""

    workload: str
    topology: str
    x: float
    subscriptions: int
    rows: int
    brokers: int
    seconds: float  # from subscriptions to summary; not counted are Spark's start and the making of the network
    memory_bytes: int  # peak of all processes
    cost: EventCost
    cores: int = 0  # that Spark had
    draw: int = 0  # which of the drawn networks, from 0 on


@dataclass(frozen=True, slots=True)
class Stress:
    """How many events have a certain node stress."""

    placement: str
    approach: str
    node_stress: int
    events: int
    draw: int = 0


def reduced(costs: DataFrame) -> pa.Table:
    """The per-event table as one row per placement, approach, ignorable or not, and pair of stresses."""
    grouped = costs.withColumn("ignorable", F.col("rectangles") == 0).groupBy(*_GROUPS)
    sums = [F.sum(name).alias(name) for name in _SUMS]
    return grouped.agg(F.count(F.lit(1)).alias("events"), *sums).toArrow()


def summarize(table: pa.Table) -> tuple[list[EventCost], list[Stress]]:
    """What `reduced` gave, in few numbers; placements and approaches in alphabetical order."""
    costs, stresses = [], []
    column = {name: table[name].to_numpy() for name in table.column_names}
    pairs = sorted(set(zip(column["placement"], column["approach"], strict=True)))
    for placement, approach in pairs:
        mine = (column["placement"] == placement) & (column["approach"] == approach)
        part = {name: values[mine] for name, values in column.items() if name not in _GROUPS[:2]}
        costs.append(_cost(placement, approach, part))
        values, at = np.unique(part["node_stress"], return_inverse=True)
        counts = np.bincount(at, part["events"]).astype(np.int64)
        stresses += [Stress(placement, approach, int(v), int(n)) for v, n in zip(values, counts, strict=True)]
    return costs, stresses


def _cost(placement: str, approach: str, part: dict[str, npt.NDArray[Any]]) -> EventCost:
    weight = part["events"]
    events = int(weight.sum())
    changed = ~part["ignorable"].astype(np.bool_)
    changing = int(weight[changed].sum())
    mean = {name: float(part[name].sum()) / events for name in _SUMS}
    each = {name: float(part[name][changed].sum()) / max(changing, 1) for name in _SUMS}
    values = [mean[name] for name in ("rectangles", "affected", "messages", "bytes", "byte_links")]
    values += [each[name] for name in ("messages", "bytes", "byte_links")]
    values += [*_spread(part["node_stress"], weight), *_spread(part["link_stress"], weight)]
    names = [field.name for field in fields(EventCost)][4:]
    found: dict[str, Any] = dict(zip(names, values, strict=True))
    return EventCost(placement, approach, events, changing, **found)


def _spread(values: npt.NDArray[Any], weight: npt.NDArray[Any]) -> tuple[float, int, int]:
    """Mean, p99 and maximum."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    total = int(below[-1])
    p99 = values[order][np.searchsorted(below, -(-99 * total // 100))]
    return float((values * weight).sum()) / total, int(p99), int(values.max())


def write_lines(lines: Sequence[TrafficLine], path: Path) -> None:
    """As a flat table."""
    flat = [{**{k: v for k, v in asdict(line).items() if k != "cost"}, **asdict(line.cost)} for line in lines]
    pq.write_table(pa.Table.from_pylist(flat), path)


def read_lines(path: Path) -> list[TrafficLine]:
    """What `write_lines` wrote."""
    found = []
    for row in _rows(path):
        try:
            cost = EventCost(**{field.name: row.pop(field.name) for field in fields(EventCost)})
            found.append(TrafficLine(**row, cost=cost))
        except (KeyError, TypeError) as error:
            raise _damaged(path, error) from error
    return found


def write_stress(stress: Sequence[Stress], path: Path) -> None:
    """As a flat table."""
    pq.write_table(pa.Table.from_pylist([asdict(entry) for entry in stress]), path)


def read_stress(path: Path) -> list[Stress]:
    """What `write_stress` wrote."""
    try:
        return [Stress(**row) for row in _rows(path)]
    except TypeError as error:
        raise _damaged(path, error) from error


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        return list(pq.read_table(path).to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> UsageError:
    return UsageError(f"{path} is damaged ({error}); remove the folder {path.parent} and continue with --resume")
