"""Algorithm 1 and Figure 4: one knapsack of many queries and updates, all at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.broker.scheduling.knapsack import packed
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import number
from hullcast.sim.traces.tradeoff import CITED, WORKLOADS, knapsack_of

if TYPE_CHECKING:
    from pathlib import Path

DEPENDENCY, QOS = 0.1, 0.5
#: "Very close to the bound": at most this share of the slot is left.
CLOSE = 0.01
METRICS = ("items", "work", "bytes", "exact", "cells", "left")


def points(quick: bool) -> list[dict[str, Any]]:
    """All at once by size."""
    sizes = (50, 100, 200, 500) if quick else (50, 100, 200, 500, 1_000, 2_000)
    return grid(figure=["sizes"], workload=WORKLOADS, qos=[QOS], size=sizes, dependency=[DEPENDENCY])


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """One knapsack."""
    positions, slot = knapsack_of(point["workload"], point["size"], point["dependency"], point["qos"], seed)
    found = packed(positions, slot)
    items = len(positions.cost) - point["size"]
    return {
        "items": items,
        "work": items + found.work,
        "bytes": found.size_bytes,
        "exact": float(found.exact),
        "cells": float(items) * slot,
        "left": 1 - found.cost / slot,
    }


def sections(found: Sweep, folder: Path) -> list[Section]:
    """By size."""
    part, picture = found.where(figure="sizes"), folder / "tradeoff-knapsack.png"
    panels = [
        Panel(told, [BandCurve(of, part.along("size", metric, workload=of)) for of in WORKLOADS])
        for metric, told in (("work", "items and states looked at"), ("bytes", "memory [bytes]"))
    ]
    draw_panels(
        [panels], picture, title="One knapsack of all at once", x_label="queries, and as many updates (log)",
        x_log=True, share_y=False, source=f"Dependency {DEPENDENCY:.0%}, qos {QOS}, unit 1 ms",
    )  # fmt: skip
    section = Section(
        "tradeoff-knapsack",
        "One knapsack of many queries and updates",
        f"All queries and updates at once, a tenth dependent, costs in milliseconds, qos = {QOS}.",
        "1,000 queries and 1,000 updates at once took 16 s and 1,400 MB.",
        part.judged(_claims),
        pictures={"Items and states looked at, and memory by size": picture},
        figures=[_taken(part)],
        cited=CITED,
        items=("Figure 8(a)", "Figure 4", "Algorithm 1"),
    )
    return [section]


def _taken(part: Sweep) -> list[list[str]]:
    """What knapsacks took: medians, and the share of draws with an exact answer."""
    rows = [["queries x updates", "items", "items and states looked at", "cells of the paper's table", "memory",
             "exact", "slot left"]]  # fmt: skip
    for of in WORKLOADS:
        for value in part.all_of("size"):
            at = part.where(workload=of, size=value)
            items, work, cells, size, left = map(at.middle, ("items", "work", "cells", "bytes", "left"))
            rows.append([f"{of} {value:,} x {value:,}", number(items), number(work), f"{cells:.1e}",
                         f"{size / 1e6:.2f} MB", f"{np.mean(at.values('exact')):.0%}", f"{left:.2%}"])  # fmt: skip
    return rows


def _claims(found: Sweep) -> list[Claim]:
    judged = []
    for of in WORKLOADS:
        sizes = found.where(workload=of)
        claim = partial(Claim, of)
        largest = max(size for size in sizes.all_of("size") if size <= 1_000)
        at = sizes.where(size=largest)
        memory, share = at.middle("bytes") / 1e6, at.middle("work") / at.middle("cells")
        left = max(sizes.middle("left", size=size) for size in sizes.all_of("size"))
        exact = float(np.mean(sizes.values("exact")))
        judged += [
            claim(f"{largest:,} x {largest:,} take at most 100 MB", f"{memory:.1f} MB", memory <= 100,
                  "too many states", value=memory, form="{:.1f} MB".format, item="Figure 8(a)",
                  paper="1,400 MB for 1,000 x 1,000"),
            claim("1,000 x 1,000 take less than 16 s", "", False, unknown="seconds depend on the machine, and are "
                  "measured by the benchmark", item="Figure 8(a)", paper="16 s"),
            claim(f"at every size at most {CLOSE:.0%} of the slot is left", f"{left:.2%}", left <= CLOSE,
                  "all updates have found their best position, or none fits into what is left", value=left,
                  form="{:.2%}".format, item="Figure 4", paper="very close to the specified bound"),
            claim("items and states looked at are less than a millionth of the cells of the paper's table",
                  f"{share:.1g}", share < 1e-6, "too many states", value=share, form="{:.1g}".format,
                  item="Algorithm 1", paper="O(N B) time and space"),
            claim(f"with a tenth dependent every answer is exact to the millisecond, up to "
                  f"{max(sizes.all_of('size')):,} at once", f"{exact:.0%}", exact == 1.0, "the effort has a limit",
                  value=exact, form="{:.0%}".format, item="Algorithm 1", paper="the maximum data quality gain"),
        ]  # fmt: skip
    return judged
