"""Standing joins over a cluster: with the server's knowledge of ranges, and with all pairs described.

Both run one after the other: the same rows, the same merchants in four client processes, the same changes. "Probe" is
a server that knows no ranges (probe.py): it describes every pair that joins, and passes on what the covers of its
children let through.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.bench.frame.stage import PUBLISHER, BenchStage, staged
from hullcast.sim.traces.merchants import CREATES, JOIN, TABLES, Merchants, answers

WORKERS = "hullcast.sim.bench.joins.worker"
SERVERS = {"ranges": "hullcast", "probe": "hullcast.sim.bench.joins.probe"}


@dataclass(frozen=True, slots=True)
class LiveJoinSettings:
    """Sizes."""

    rows: int = 100_000  # of each table
    meeting: int = 1_000
    merchants: int = 100_000
    width: float = 1.0  # of ranges, of 10,000: a pair is wanted by 1 in 100 merchants' worth of area
    clients: int = 4
    gateways: int = 2
    batch: int = 100
    in_flight: int = 2
    warm: int = 10  # batches before anything is counted
    batches: int = 400
    probe_batches: int = 20  # all pairs are described then: fewer will do
    checked_by_sql: int = 100
    seed: int = 0

    @property
    def load(self) -> Merchants:
        """The workload."""
        return Merchants(self.rows, self.meeting, self.merchants, self.width, self.seed)


QUICK_LIVE_JOINS = LiveJoinSettings(rows=20_000, merchants=20_000, width=2.0, batches=60, probe_batches=8, meeting=500)


@dataclass(frozen=True, slots=True)
class LiveJoinLine:
    """One way, per change."""

    way: str
    changes: int
    install_s: float
    changes_s: float
    server_us: float  # of CPU
    nodes_us: float
    clients_us: float
    server_messages: float
    server_bytes: float
    client_bytes: float
    told: float  # new answers taken, over all merchants
    pairs: int  # in all answers, in the end
    checked: int
    checked_by_sql: int
    wrong: int


@dataclass(frozen=True, slots=True)
class LiveJoinSection:
    """Both ways."""

    settings: LiveJoinSettings
    ranges: LiveJoinLine
    probe: LiveJoinLine


async def live(settings: LiveJoinSettings, tick: Tick) -> LiveJoinSection:
    """Measure both ways."""
    lines, names = [], [PUBLISHER, *(f"client-{number + 1}" for number in range(settings.clients))]
    for way, batches in (("ranges", settings.batches), ("probe", settings.probe_batches)):
        tick(f"live, {way}")
        layout: dict[str, Any] = {"nodes": 1 + settings.gateways, "at_gateways": True, "server_module": SERVERS[way]}
        async with staged(names, WORKERS, **layout) as stage:
            lines.append(await _measure(settings, way, batches, stage))
    ranges, probe = lines
    return LiveJoinSection(settings, ranges, probe)


async def _measure(settings: LiveJoinSettings, way: str, batches: int, stage: BenchStage) -> LiveJoinLine:
    publisher, load = stage.workers[PUBLISHER], asdict(settings.load)
    for create in CREATES:
        await stage.control.execute(create)
    for table in TABLES:
        await stage.control.publish(table, settings.load.table(table))
    await publisher.ask("prepare", load=load, changes=(settings.warm + batches) * settings.batch, batch=settings.batch)
    installed = await stage.ask_subscribers("subscribe", load=load)
    await publisher.ask("publish", first=0, count=settings.warm, in_flight=settings.in_flight)
    traffic, before, start = await stage.traffic(), stage.cpu_by_kind(), await stage.heard()
    said = await publisher.ask("publish", first=settings.warm, count=batches, in_flight=settings.in_flight)
    _, finished = await stage.synced()
    after, heard = stage.cpu_by_kind(), await stage.heard()
    n = said["updates"]
    sent = (await stage.traffic()).since(traffic)
    pairs, checked, by_sql, wrong = await _check(settings, stage)
    used = {name: 1e6 * (after[name] - before[name]) / n for name in before}
    return LiveJoinLine(
        way,
        n,
        max(reply["seconds"] for reply in installed),
        1e9 * n / (finished - said["began"]),
        used["server"],
        used["nodes"],
        used["clients"],
        sent.server_messages / n,
        sent.server_bytes / n,
        sent.client_bytes / n,
        (heard["events"] - start["events"]) / n,
        pairs,
        checked,
        by_sql,
        wrong,
    )


async def _check(settings: LiveJoinSettings, stage: BenchStage) -> tuple[int, int, int, int]:
    """(pairs, answers compared, those by SQLite too, wrong ones): every answer with what the rows give now."""
    tables: dict[str, dict[str, Any]] = {}
    for table in TABLES:
        rows = await stage.control.query(f"SELECT ID, PRODUCT, QUANTITY FROM {table}")
        ids, products, quantities = zip(*rows, strict=True)
        tables[table] = {"ID": np.array(ids), "PRODUCT": np.array(products), "QUANTITY": np.array(quantities)}
    total = checked = by_sql = wrong = 0
    with closing(_sqlite(tables)) as database:
        for part, client in enumerate(stage.subscribers):
            path = stage.folder / f"answers-{part}.npz"
            await client.ask("answers", path=str(path))
            ranges = settings.load.ranges(part, settings.clients)
            with np.load(path) as held:
                ends = [0, *np.cumsum(held["counts"]).tolist()]
                pairs = [tuple(pair) for pair in held["pairs"].tolist()]
            mine = [pairs[start:end] for start, end in pairwise(ends)]
            right = answers(tables, ranges)
            bad = {i for i, (ours, theirs) in enumerate(zip(mine, right, strict=True)) if ours != theirs}
            for i in np.linspace(0, len(mine) - 1, settings.checked_by_sql // settings.clients).astype(int).tolist():
                asked = tuple(float(column[i]) for column in ranges)
                bad |= {i} if sorted(database.execute(JOIN, asked).fetchall()) != mine[i] else set()
                by_sql += 1
            total, checked, wrong = total + len(pairs), checked + len(mine), wrong + len(bad)
    return total, checked, by_sql, wrong


def _sqlite(tables: dict[str, dict[str, Any]]) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    for create, (table, columns) in zip(CREATES, tables.items(), strict=True):
        database.execute(create)
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
        database.execute(f"CREATE INDEX {table}_Q ON {table} (QUANTITY)")
    return database
