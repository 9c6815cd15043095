"""The synthetic workload of Xie (2007), Table 5.1, as a trace: its rows at the start, then its updates."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from hullcast.sim.traces.folders import writing
from hullcast.sim.traces.table51 import DOMAIN, Mix, Workload
from hullcast.sim.traces.trace import Columns, TraceInfo, write_columns, write_info

#: Table 5.1 and the figures after it.
ROWS, UPDATES = 50_000, 200_000


def table51_trace(
    folder: Path | str,
    *,
    rows: int = ROWS,
    updates: int = UPDATES,
    mix: Mix | None = None,
    root: int = 0,
    force: bool = False,
) -> TraceInfo:
    """Write the trace of `Workload(rows, root=root, mix=mix)`; needs no Spark."""
    load = Workload(rows, root=root, mix=mix)
    changes = load.changes(updates)
    start = Columns(_keys(load.rows.ids), load.rows.x, load.rows.y)
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
        write_columns(path, start, Columns(_keys(changes.ids), changes.x, changes.y))
        write_info(info, path)
    return info


def _keys(ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[str]:
    return list(map(str, ids.tolist()))
