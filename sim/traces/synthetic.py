"""The synthetic workload of Xie (2007), Table 5.1, as a trace: rows at the start, then updates."""

from __future__ import annotations

from dataclasses import asdict

from hullcast.sim.traces.folders import writing
from hullcast.sim.traces.table51 import DOMAIN, Mix, Workload
from hullcast.sim.traces.trace import Columns, TraceInfo, Where, write_columns

#: Table 5.1 and the figures after it.
ROWS, UPDATES = 50_000, 200_000


def table51_trace(
    folder: Where,
    *,
    rows: int = ROWS,
    updates: int = UPDATES,
    mix: Mix | None = None,
    root: int = 0,
    force: bool = False,
) -> TraceInfo:
    """Write the trace of `Workload(rows, root=root, mix=mix)`; a folder of this machine needs no Spark.

    Rows and updates are made in memory, which takes about 200 bytes an update: ten million are 2 GB.
    """
    load = Workload(rows, root=root, mix=mix)
    changes = load.changes(updates)
    start = Columns(load.rows.ids, load.rows.x, load.rows.y)
    info = TraceInfo(
        name="table51",
        table="POINTS",
        key="ID",
        x="X",
        y="Y",
        key_type="INTEGER",
        domain=(0.0, DOMAIN),
        events=len(changes),
        start=len(start),
        source=f"Table 5.1, {rows:,} rows, seed {root}",
        notes={"mix": asdict(load.mix), "seed": root},
    )
    with writing(folder, force=force) as path:
        write_columns(path, info, Columns(changes.ids, changes.x, changes.y), start)
    return info
