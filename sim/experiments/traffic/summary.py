"""A replay in few numbers: one `EventCost` per placement and approach, and how stress is distributed.

Spark's workers reduce millions of events to one row per distinct pair of stresses; what is left is small, and its
percentiles are exact. The p99 is the least value that 99 % of the events do not exceed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow has no types

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.steps import damaged, read_rows, write_rows
from hullcast.sim.spark.storage import Place
from hullcast.sim.traffic.chunk import APPROACHES, GROUPS, SUMS


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


def verified(sums: pa.Table, names: Sequence[str], events: int) -> pa.Table:
    """What `replay_sums` or `sums_of` found, if every event is in it once for each placement and approach; else
    UsageError. By their number and the sum of their numbers: a chunk twice in place of another is found, too."""
    pairs = list(itertools.product(names, APPROACHES))
    found = sums.group_by(["placement", "approach"]).aggregate([("events", "sum"), ("seq", "sum")]).to_pylist()
    counts = {(row["placement"], row["approach"]): (row["events_sum"], row["seq_sum"]) for row in found}
    for pair in pairs:
        count, numbers = counts.get(pair, (0, 0))
        if (count, numbers) != (events, events * (events - 1) // 2):
            other = f"{count:,}" if count != events else "other"
            raise UsageError(
                f"the replay has {other} events for {', '.join(pair)}, but the trace has {events:,}: results are lost; "
                "write to a storage that this machine and all workers of the cluster share, and run it again"
            )
    if strange := sorted(counts.keys() - set(pairs)):
        raise UsageError(f"the replay has results for {', '.join(strange[0])}, which was not asked for")
    return sums


def summarize(table: pa.Table) -> tuple[list[EventCost], list[Stress]]:
    """What `verified` let pass, in few numbers; placements and approaches in alphabetical order."""
    costs, stresses = [], []
    column = {name: table[name].to_numpy() for name in table.column_names}
    pairs = sorted(set(zip(column["placement"], column["approach"], strict=True)))
    for placement, approach in pairs:
        mine = (column["placement"] == placement) & (column["approach"] == approach)
        part = {name: values[mine] for name, values in column.items() if name not in GROUPS[:2]}
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
    mean = {name: float(part[name].sum()) / events for name in SUMS}
    each = {name: float(part[name][changed].sum()) / max(changing, 1) for name in SUMS}
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


def write_lines(lines: Sequence[TrafficLine], path: Place | Path) -> None:
    """As a flat table."""
    flat = [{**{k: v for k, v in asdict(line).items() if k != "cost"}, **asdict(line.cost)} for line in lines]
    write_rows(flat, path)


def read_lines(path: Place | Path) -> list[TrafficLine]:
    """What `write_lines` wrote."""
    found = []
    for row in read_rows(path):
        try:
            cost = EventCost(**{field.name: row.pop(field.name) for field in fields(EventCost)})
            found.append(TrafficLine(**row, cost=cost))
        except (KeyError, TypeError) as error:
            raise damaged(path, error) from error
    return found


def write_stress(stress: Sequence[Stress], path: Place | Path) -> None:
    """As a flat table."""
    write_rows(map(asdict, stress), path)


def read_stress(path: Place | Path) -> list[Stress]:
    """What `write_stress` wrote."""
    try:
        return [Stress(**row) for row in read_rows(path)]
    except TypeError as error:
        raise damaged(path, error) from error
