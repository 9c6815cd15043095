"""Figure 8: what one knapsack takes, by load and by dependency."""

from __future__ import annotations

from functools import partial
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.broker.warehouse.policies.knapsack import packed
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, number
from hullcast.sim.traces.tradeoff import CITED, WORKLOADS, knapsack_of

if TYPE_CHECKING:
    from pathlib import Path

DEPENDENCY, QOS = 0.1, 0.5
#: "A few hundred transactions": queries and updates together.
HUNDREDS = 400
#: "Very close to the bound": at most this share of the slot is left.
CLOSE = 0.01
METRICS = ("items", "work", "bytes", "exact", "cells", "left")


def points(quick: bool) -> list[dict[str, Any]]:
    """All at once by size, and by dependency."""
    sizes = (50, 100, 200, 500) if quick else (50, 100, 200, 500, 1_000, 2_000)
    rates = (0.02, 0.1, 0.5) if quick else (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    usual = {"workload": WORKLOADS, "qos": [QOS]}
    by_rate = grid(figure=["rates"], **usual, size=[500 if quick else 1_000], dependency=rates)
    return grid(figure=["sizes"], **usual, size=sizes, dependency=[DEPENDENCY]) + by_rate


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
    """Figure 8a and Figure 8b."""
    parts = {"size": found.where(figure="sizes"), "dependency": found.where(figure="rates")}
    pictures = {over: folder / f"tradeoff-knapsack-{over}.png" for over in parts}
    named = {"size": "queries, and as many updates", "dependency": "dependency"}
    for over, part in parts.items():
        panels = [
            Panel(told, [BandCurve(of, part.along(over, metric, workload=of)) for of in WORKLOADS])
            for metric, told in (("work", "items and states looked at"), ("bytes", "memory [bytes]"))
        ]
        fixed = f"dependency {DEPENDENCY:.0%}" if over == "size" else f"{part.rows[0]['size']:,} queries and updates"
        draw_panels(
            [panels], pictures[over], title=f"Knapsack by {named[over]}", x_label=f"{named[over]} (log)", x_log=True,
            share_y=False, source=f"All at once, {fixed}, qos {QOS}, unit 1 ms",
            x_format=(lambda rate: f"{rate:.0%}" if rate <= 1 else "") if over == "dependency" else number,
        )  # fmt: skip
    section = Section(
        "tradeoff-knapsack",
        "What a plan takes",
        f"All queries and updates at once, costs in milliseconds, qos = {QOS}. Seconds are measured by the benchmark "
        "of the warehouse (`knapsack`).",
        "1,000 queries and 1,000 updates at once, a tenth dependent, took 16 s and 1,400 MB; time and memory grow with "
        "load and dependency.",
        Sweep([row for part in parts.values() for row in part.rows]).judged(_claims),
        pictures={f"Items and states looked at, and memory by {over}": path for over, path in pictures.items()},
        figures=[_taken(over, part) for over, part in parts.items()],
        notes=["The paper's smaller loads come over time, and its curve of dependency is of such a load; here a load "
               "is how much waits at once."],
        cited=CITED,
        items=("Figure 8(a)", "Figure 8(b)", "Figure 4", "Algorithm 1"),
    )  # fmt: skip
    return [section]


def _taken(over: str, part: Sweep) -> list[list[str]]:
    """What knapsacks took: medians, and the share of draws with an exact answer."""
    rows = [[over, "items", "items and states looked at", "cells of the paper's table", "memory", "exact",
             "slot left"]]  # fmt: skip
    for of in WORKLOADS:
        for value in part.all_of(over):
            at = part.where(**{"workload": of, over: value})
            items, work, cells, size, left = map(at.middle, ("items", "work", "cells", "bytes", "left"))
            told = f"{of} {value:,} x {value:,}" if over == "size" else f"{of} {value:.0%}"
            rows.append([told, number(items), number(work), f"{cells:.1e}", f"{size / 1e6:.2f} MB",
                         f"{np.mean(at.values('exact')):.0%}", f"{left:.2%}"])  # fmt: skip
    return rows


def _claims(found: Sweep) -> list[Claim]:
    judged = []
    for of in WORKLOADS:
        sizes, rates = found.where(figure="sizes", workload=of), found.where(figure="rates", workload=of)
        claim = partial(Claim, of)
        largest = max(size for size in sizes.all_of("size") if size <= 1_000)
        at = sizes.where(size=largest)
        memory, share = at.middle("bytes") / 1e6, at.middle("work") / at.middle("cells")
        hundreds = sizes.middle("bytes", size=HUNDREDS // 2) / 1e6
        powers = [_power(sizes, metric) for metric in ("work", "bytes")]
        alike = powers[0] / powers[1]
        left = max(sizes.middle("left", size=size) for size in sizes.all_of("size"))
        space, time = (
            [rates.middle(metric, dependency=rate) for rate in sorted(rates.all_of("dependency"))]
            for metric in ("bytes", "work")
        )
        exact, always = (float(np.mean(part.values("exact"))) for part in (sizes, rates))
        judged += [
            claim(f"{largest:,} x {largest:,} take at most 100 MB", f"{memory:.1f} MB", memory <= 100,
                  "too many states", value=memory, form="{:.1f} MB".format, item="Figure 8(a)",
                  paper="1,400 MB for 1,000 x 1,000"),
            claim(f"{HUNDREDS} queries and updates take at most 15 MB", f"{hundreds:.2f} MB", hundreds <= 15,
                  "too many states", value=hundreds, form="{:.2f} MB".format, item="Figure 8(a)",
                  paper="0.1 to 15 MB for a few dozen to a few hundred"),
            claim("1,000 x 1,000 take less than 16 s", "", False, unknown="seconds depend on the machine, and are "
                  "measured by the benchmark", item="Figure 8(a)", paper="16 s; 2.5 to 150 ms for a few dozen to a few "
                  "hundred"),
            claim("with the load time (items and states) and memory grow alike: powers of it within 1.25x",
                  "load^{:.2f} and load^{:.2f}".format(*powers), 0.8 <= alike <= 1.25, "memory has a part that does "
                  "not grow", value=alike, form=factor, item="Figure 8(a)", paper="an identical increase"),
            claim("at each step of dependency memory grows", factor(space[-1] / space[0]), space == sorted(space),
                  "it does not", value=space[-1] / space[0], form=factor, item="Figure 8(b)",
                  paper="a steady increase"),
            claim("at each step of dependency more items and states are looked at", factor(time[-1] / time[0]),
                  time == sorted(time), "how many depends more on the draw", value=time[-1] / time[0], form=factor,
                  item="Figure 8(b)", paper="a steady increase"),
            claim(f"at every size at most {CLOSE:.0%} of the slot is left", f"{left:.2%}", left <= CLOSE,
                  "all updates have found their best position, or none fits into what is left", value=left,
                  form="{:.2%}".format, item="Figure 4", paper="very close to the specified bound"),
            claim("items and states looked at are less than a millionth of the cells of the paper's table",
                  f"{share:.1g}", share < 1e-6, "too many states", value=share, form="{:.1g}".format,
                  item="Algorithm 1", paper="O(N B) time and space"),
            claim(f"with a tenth dependent every answer is exact to the millisecond, up to "
                  f"{max(sizes.all_of('size')):,} at once", f"{exact:.0%}", exact == 1.0, "the effort has a limit",
                  value=exact, form="{:.0%}".format, item="Algorithm 1", paper="the maximum data quality gain"),
            claim(f"at every dependency, up to {max(rates.all_of('dependency')):.0%}, the answer is exact",
                  f"{always:.0%}", always == 1.0, "the effort has a limit", value=always, form="{:.0%}".format,
                  item="Algorithm 1", paper="the maximum data quality gain"),
        ]  # fmt: skip
    return judged


def _power(sizes: Sweep, metric: str) -> float:
    """With which power of the load it grows, from the least to the most."""
    least, most = min(sizes.all_of("size")), max(sizes.all_of("size"))
    return log(sizes.middle(metric, size=most) / sizes.middle(metric, size=least)) / log(most / least)
