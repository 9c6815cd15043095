"""Throughput by batch size and by subscription type, the latency of a single row, and memory."""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.broker.engine.engine import Engine
from hullcast.clients.processes.child import environment
from hullcast.sim.bench.engine.subjects import engine_of, engine_subject
from hullcast.sim.bench.frame.machine import process_of
from hullcast.sim.bench.frame.timing import Subject, measured_apart, measured_in_turns, messages_per_update, us
from hullcast.sim.seeds import generator
from hullcast.sim.traces.table51 import DOMAIN, RANGE_MIN, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.sim.bench.engine.benchmark import EngineSettings
    from hullcast.sim.bench.frame.timing import Run


GROUPS = 10_000  # values of G, and rows of OTHER: an update meets about one partner
BAND = DOMAIN / GROUPS / 2
WARM_ROWS = 100  # loaded before memory is measured, so that compiled code and imports are not counted

#: Type to (its queries, the column that the updates change).
TYPES: dict[str, tuple[tuple[str, ...], str]] = {
    "MIN": (("SELECT MIN(Y) FROM WIDE WHERE X BETWEEN ? AND ?",), "Y"),
    "MAX": (("SELECT MAX(Y) FROM WIDE WHERE X BETWEEN ? AND ?",), "Y"),
    "MIN and MAX": (
        ("SELECT MIN(Y) FROM WIDE WHERE X BETWEEN ? AND ?", "SELECT MAX(Y) FROM WIDE WHERE X BETWEEN ? AND ?"),
        "Y",
    ),
    "DISTINCT": (("SELECT DISTINCT G FROM WIDE WHERE X BETWEEN ? AND ?",), "G"),
    "COUNT": (("SELECT COUNT(*) FROM WIDE WHERE Y BETWEEN ? AND ?",), "Y"),
    "SUM": (("SELECT SUM(Y) FROM WIDE WHERE X BETWEEN ? AND ?",), "Y"),
    "AVG": (("SELECT AVG(Y) FROM WIDE WHERE X BETWEEN ? AND ?",), "Y"),
    "selection": (("SELECT ID, Y FROM WIDE WHERE X BETWEEN ? AND ? AND Y < 5000",), "Y"),
    "equality join": (("SELECT ID, OTHER_ID FROM WIDE JOIN OTHER USING (G) WHERE Y BETWEEN ? AND ?",), "Y"),
    "band join": (("SELECT ID, OTHER_ID FROM WIDE JOIN OTHER ON B - Y BETWEEN ? AND ?",), "Y"),
}


@dataclass(frozen=True, slots=True)
class Rate:
    """Updates a second of one setting."""

    name: str
    batch: int
    rate: float
    us: float
    messages: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes a row: what the engine counts, and what the process grew by."""

    rows: int
    counted: float
    resident: float


@dataclass(frozen=True, slots=True)
class ThroughputSection:
    """What a batch, a type, a single row and a row's memory cost."""

    rows: int
    by_batch: tuple[Rate, ...]
    by_type: tuple[Rate, ...]
    single_us: float
    memory: tuple[Memory, ...]


def throughput(settings: EngineSettings, tick: Callable[[str], None]) -> ThroughputSection:
    """The whole section."""
    memory = []
    for n in settings.rows:
        tick(f"memory of {n:,} rows")
        memory.append(_measure_memory(n, settings.seed))
    batches, single = _by_batch(settings, tick)
    types = _by_type(settings, tick)
    return ThroughputSection(settings.types_rows, batches, types, single, tuple(memory))


def _by_batch(settings: EngineSettings, tick: Callable[[str], None]) -> tuple[tuple[Rate, ...], float]:
    load = Workload(settings.types_rows, root=settings.seed)
    subjects: dict[str, Subject] = {}
    for size in settings.batches:
        tick(f"batches of {size:,}")
        # as many updates for small batches as a round may take, whole batches for large ones
        per_round = max(size, min(settings.updates, settings.single_updates * max(1, size)))
        changes = load.changes((settings.rounds + 1) * per_round)
        subjects[str(size)] = engine_subject(load.rows, changes, per_round, size)
    runs = measured_in_turns(subjects, settings.rounds, tick, "by batch")
    rates = tuple(_rate(f"batches of {size:,}", size, runs[str(size)]) for size in settings.batches)
    return rates, _single_us(load, settings)


def _single_us(load: Workload, settings: EngineSettings) -> float:
    """Median time of an upsert of one row given as a dict."""
    engine = engine_of(load.rows)
    engine.open_channel(RANGE_MIN)
    changes = load.changes(settings.single_updates, name="single")
    rows = [{"ID": i, "Y": y} for i, y in zip(changes.ids.tolist(), changes.y.tolist(), strict=True)]
    times = []
    for row in rows:
        started = perf_counter()
        engine.upsert("POINTS", row)
        times.append(perf_counter() - started)
    return 1e6 * median(times)


def _type_subject(kind: str, settings: EngineSettings) -> Subject:
    """An engine with the channels of one type open, and batches that change its column."""
    queries, column = TYPES[kind]
    n, size = settings.types_rows, settings.batch
    random = generator(settings.seed, "types", n)
    engine = Engine()
    engine.execute("CREATE TABLE WIDE (ID INTEGER PRIMARY KEY, X REAL, Y REAL, G INTEGER)")
    engine.execute("CREATE TABLE OTHER (OTHER_ID INTEGER PRIMARY KEY, G INTEGER, B REAL)")
    x, y, g = random.uniform(0, DOMAIN, n), random.uniform(0, DOMAIN, n), random.integers(0, GROUPS, n)
    engine.upsert("WIDE", {"ID": np.arange(n), "X": x, "Y": y, "G": g})
    other = np.arange(GROUPS)
    engine.upsert("OTHER", {"OTHER_ID": other, "G": other, "B": random.uniform(0, DOMAIN, GROUPS)})
    widths = (-BAND, BAND) if kind == "band join" else ()  # of an equality join all pairs are described
    channels = [engine.open_channel(query, *widths) for query in queries]

    def drawn() -> dict[str, Any]:
        ids = random.integers(0, n, size)
        values = random.integers(0, GROUPS, size) if column == "G" else random.uniform(0, DOMAIN, size)
        return {"ID": ids, column: values}

    def apply(columns: dict[str, Any]) -> tuple[int, int]:
        batch = engine.upsert("WIDE", columns)
        return len(batch), sum(len(batch.messages[channel]) for channel in channels)

    rounds = [[drawn() for _ in range(0, settings.updates, size)] for _ in range(settings.rounds + 1)]
    return Subject(rounds, apply)


def _by_type(settings: EngineSettings, tick: Callable[[str], None]) -> tuple[Rate, ...]:
    subjects: dict[str, Subject] = {}
    for kind in TYPES:
        tick(f"subscription type {kind}")
        subjects[kind] = _type_subject(kind, settings)
    runs = measured_in_turns(subjects, settings.rounds, tick, "by type")
    return tuple(_rate(kind, settings.batch, runs[kind]) for kind in TYPES)


def _rate(name: str, batch: int, runs: list[Run]) -> Rate:
    return Rate(name, batch, 1e6 / us(runs), us(runs), messages_per_update(runs))


def _measure_memory(rows: int, seed: int) -> Memory:
    """In a new process: one that held a larger table before has free memory to fill, so it would grow by too little."""
    what = f"measuring the memory of {rows:,} rows"
    counted, resident = measured_apart(what, "hullcast.sim.bench.engine.throughput", [rows, seed], environment())
    return Memory(rows, counted / rows, resident / rows)


def _memory_here(rows: int, seed: int) -> tuple[int, int]:
    """(bytes the engine counts, bytes the process grew by)."""
    engine_of(Workload(WARM_ROWS, root=seed).rows).open_channel(RANGE_MIN)
    load = Workload(rows, root=seed)
    gc.collect()
    before = process_of().memory_info().rss
    engine = engine_of(load.rows)
    engine.open_channel(RANGE_MIN)
    gc.collect()
    return engine.memory_bytes(), max(0, process_of().memory_info().rss - before)


if __name__ == "__main__":
    print(json.dumps(_memory_here(*json.loads(sys.argv[1]))))
