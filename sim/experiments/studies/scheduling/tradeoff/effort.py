"""Figure 8: what the knapsacks of a run take, by load and by dependency."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.sim.experiments.studies.scheduling.tradeoff.paper import PaperScheduler
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, number
from hullcast.sim.traces.tradeoff import CITED, TABLES, WORKLOADS, tradeoff_workload

if TYPE_CHECKING:
    from pathlib import Path

QOS = 0.5
#: By how much the time between arrivals is shortened: 0 is a balanced load, with 1 all is there at the beginning.
SHORTENED = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
RATES = (0.0, 0.02, 0.1, 0.2, 0.5, 1.0)
#: "Identical": one is a power of the other, within this factor of 1.
ALIKE = 1.25
METRICS = ("items", "work", "bytes", "exact")
AXES = {"shortened": "time between arrivals shortened by", "dependency": "dependency"}


def points(quick: bool) -> list[dict[str, Any]]:
    """By load, and by dependency."""
    usual = {"workload": WORKLOADS, "qos": [QOS], "size": [200 if quick else 1_000]}
    return grid(figure=["load"], **usual, shortened=SHORTENED) + grid(figure=["rates"], **usual, dependency=RATES)


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """The means over all plans of a run, and how many are exact."""
    load = tradeoff_workload(point["workload"], point["size"], seed, round(point["dependency"] * TABLES))
    span = 1.0 - point["shortened"]
    load = replace(load, asked=load.asked * span, released=load.released * span)
    scheduler = PaperScheduler(load, lambda _: QOS)
    scheduler.run()
    items, work, taken, exact = np.array(
        [(items, items + found.work, found.size_bytes, found.exact) for items, found in scheduler.plans]
    ).mean(axis=0)
    return {"items": items, "work": work, "bytes": taken, "exact": exact}


def sections(found: Sweep, folder: Path) -> list[Section]:
    """Figure 8(a) and Figure 8(b)."""
    parts = {"shortened": found.where(figure="load"), "dependency": found.where(figure="rates")}
    pictures = {over: folder / f"tradeoff-effort-{over}.png" for over in parts}
    for over, part in parts.items():
        panels = [
            Panel(told, [BandCurve(of, part.along(over, metric, workload=of)) for of in WORKLOADS])
            for metric, told in (("work", "items and states looked at"), ("bytes", "memory [bytes]"))
        ]
        draw_panels(
            [panels], pictures[over], title=f"A plan by {'load' if over == 'shortened' else over}", x_label=AXES[over],
            share_y=False, y_log=over == "shortened", x_format="{:.0%}".format,
            source="Means over the plans of a run, unit 1 ms",
        )  # fmt: skip
    size = parts["shortened"].rows[0]["size"]
    section = Section(
        "tradeoff-effort",
        "What a plan takes",
        f"{size:,} queries and as many updates, a knapsack for every event, qos = {QOS:g}; the time between arrivals "
        "is shortened step by step from a balanced load until all is there at the beginning, a tenth dependent. Or the "
        "load is balanced, and the dependency varies. Seconds are measured by the benchmark of the warehouse "
        "(`knapsack`).",
        "runtime and memory show an identical increase with increasing load, and a steady one with dependency.",
        Sweep([row for part in parts.values() for row in part.rows]).judged(_claims),
        pictures={f"Items and states looked at, and memory by {AXES[over]}": path for over, path in pictures.items()},
        figures=[_taken(over, part) for over, part in parts.items()],
        cited=CITED,
        items=("Figure 8(a)", "Figure 8(b)"),
    )
    return [section]


def _taken(over: str, part: Sweep) -> list[list[str]]:
    rows = [[AXES[over], "items", "items and states looked at", "memory", "exact"]]
    for of in WORKLOADS:
        for value in part.all_of(over):
            at = part.where(**{"workload": of, over: value})
            items, work, taken = map(at.middle, METRICS[:3])
            rows.append([f"{of} {value:.0%}", number(items), number(work), f"{taken / 1e6:.2f} MB",
                         f"{np.mean(at.values('exact')):.1%}"])  # fmt: skip
    return rows


def _claims(found: Sweep) -> list[Claim]:
    judged = []
    for of in WORKLOADS:
        part = found.where(workload=of)
        load, rates = part.where(figure="load"), part.where(figure="rates")
        memory = load.middle("bytes", shortened=0.0) / 1e6
        work, taken = ([load.middle(metric, shortened=at) for at in SHORTENED] for metric in ("work", "bytes"))
        powers = log(work[-1] / work[0]) / log(taken[-1] / taken[0])
        claim = partial(Claim, of)
        judged += [
            claim("with a balanced load a plan takes at most 15 MB", f"{memory:.2f} MB", memory <= 15,
                  "too many states", value=memory, form="{:.2f} MB".format, item="Figure 8(a)",
                  paper="0.1 to 15 MB for realistic loads"),
            claim("with a balanced load a plan takes 2.5 to 150 ms", "", False, unknown="seconds depend on the "
                  "machine, and are measured by the benchmark", item="Figure 8(a)", paper="2.5 to 150 ms"),
            claim("from the least load to the most, time (items and states) and memory grow by powers of each other "
                  f"within {ALIKE}x", f"{factor(work[-1] / work[0])} and {factor(taken[-1] / taken[0])}",
                  1 / ALIKE <= powers <= ALIKE, "memory has a part that does not grow", value=powers,
                  item="Figure 8(a)", paper="an identical increase"),
        ]  # fmt: skip
        less = [rates.middle(metric, dependency=rate) for metric in ("work", "bytes") for rate in RATES]
        steady = (
            ("load: items and states", work, "how many states there are depends more on the draw"),
            ("load: memory", taken, "how many states there are depends more on the draw"),
            ("dependency: items and states", less[: len(RATES)], "an update that more queries read waits less long"),
            ("dependency: memory", less[len(RATES) :], "updates that nobody reads wait, and take memory too"),
        )
        for told, curve, because in steady:
            steps = sum(before < after for before, after in pairwise(curve))
            judged.append(
                claim(f"more at each step of {told}", f"{steps} of {len(curve) - 1}", steps == len(curve) - 1, because,
                      value=steps, form="{:.0f}".format, paper="a steady increase",
                      item="Figure 8(a)" if told.startswith("load") else "Figure 8(b)"))  # fmt: skip
    return judged
