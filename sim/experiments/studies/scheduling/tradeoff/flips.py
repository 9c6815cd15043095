"""Figure 7: response time and freshness while preferences change."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.sim.experiments.studies.scheduling.tradeoff.runs import STEPS, run
from hullcast.sim.experiments.study import Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor
from hullcast.sim.traces.tradeoff import CITED, LOAD, WORKLOADS

if TYPE_CHECKING:
    from pathlib import Path

FLIPS = 6
WINDOWS = STEPS // (FLIPS + 1)  # of each phase
#: Beside each scheduler the pure policies that schedule the same updates: tables, or one by one.
PURE = {"pareto": ("queries-first", "updates-first"), "knapsack": ("single queries-first", "single updates-first")}
DRAWN = ("pareto", "knapsack", "queries-first", "updates-first")
AS_GOOD = 1.1
measure = run


def points(quick: bool) -> list[dict[str, Any]]:
    """Both schedulers, and their pure policies."""
    policies = [name for mine, pure in PURE.items() for name in (mine, *pure)]
    return grid(figure=["flips"], workload=WORKLOADS, policy=policies, flips=[FLIPS], size=[700 if quick else 5_000])


def sections(found: Sweep, folder: Path) -> list[Section]:
    """Figure 7."""
    part, picture = found.where(figure="flips"), folder / "tradeoff-flips.png"
    titles = {"response": "response time [s]", "freshness": "freshness"}
    rows = [
        [Panel(f"{of}: {told}", [BandCurve(name, _course(part, metric, of, name)) for name in DRAWN]) for of in
         WORKLOADS] for metric, told in titles.items()
    ]  # fmt: skip
    draw_panels(
        rows, picture, title="Preferences that flip six times", x_label="phases (0 to 1: qos = 0, 1 to 2: qos = 1, ..)",
        share_y=False, y_log=False, source="Means of the answers that began in each quarter of a phase",
    )  # fmt: skip
    section = Section(
        "tradeoff-flips",
        "Response time and freshness while preferences change",
        f"{part.rows[0]['size']:,} queries and as many updates on one place that is busy {LOAD:.0%} of the time; all "
        f"queries, also those that wait, change from qos = 0 (fresh) to qos = 1 (quick) or back {FLIPS} times. Queries "
        "have the same order under all policies.",
        "the schedule follows every change, and in each phase is as good as the policy that is best for it.",
        part.judged(_claims),
        pictures={"Response time and freshness over seven phases, a line for each policy": picture},
        notes=["The paper draws a moving average over 30 queries of one run; here are means over quarters of a phase."],
        cited=CITED,
        items=("Figure 7(a)", "Figure 7(b)"),
    )
    return [section]


def _course(found: Sweep, metric: str, of: str, policy: str) -> list[tuple[float, list[float]]]:
    part = found.where(workload=of, policy=policy)
    curve = [(at / WINDOWS, part.values(f"{metric} {at}")) for at in range(STEPS)]
    return [(x, kept) for x, values in curve if (kept := [value for value in values if value == value])]


def _late(found: Sweep, metric: str, qos: int) -> float:
    """The mean over the last quarters of the phases with this preference: what built up before is worked off."""
    ends = [WINDOWS * (phase + 1) - 1 for phase in range(FLIPS + 1) if phase % 2 == qos]
    return float(np.nanmean([found.middle(f"{metric} {at}") for at in ends]))


def _claims(found: Sweep) -> list[Claim]:
    judged = []
    for of, figure in zip(WORKLOADS, ("Figure 7(a)", "Figure 7(b)"), strict=True):
        for name, pure in PURE.items():
            mine, quick, fresh = (found.where(workload=of, policy=each) for each in (name, *pure))
            paper = partial(Claim, f"{of}, {name}", item=figure, paper="as good as the respective optimal scheduling")
            ours = partial(Claim, f"{of}, {name}", item=figure, form=factor)
            less = _late(mine, "freshness", 0)
            slower = _late(mine, "response", 1) / _late(quick, "response", 1)
            wait = _late(mine, "response", 0) / _late(fresh, "response", 0)
            better = mine.middle("freshness") / quick.middle("freshness")
            sooner = mine.middle("response") / fresh.middle("response")
            judged += [
                paper("at the end of phases with qos = 0 answers are as fresh as with updates-first", f"{less:.3f}",
                      abs(less - _late(fresh, "freshness", 0)) < 0.005, value=less, form="{:.3f}".format,
                      construction="with qos = 0 all that a query reads is loaded before it"),
                paper("at the end of phases with qos = 1 queries are as quick as with queries-first (within 1.1x)",
                      factor(slower), 1 / AS_GOOD <= slower <= AS_GOOD, "what queued up in the phase before is still "
                      "there", value=slower, form=factor),
                paper("at the end of phases with qos = 0 queries wait as long as with updates-first (within 1.1x)",
                      factor(wait), 1 / AS_GOOD <= wait <= AS_GOOD, "updates that no waiting query reads come later, "
                      "or loads of the phase before are still due", value=wait, form=factor),
                ours("over all phases answers are fresher than with queries-first", factor(better), better > 1,
                     "they are not", value=better),
                ours("over all phases queries are quicker than with updates-first", factor(sooner), sooner < 1,
                     "they pay for loads that queries-first phases put off", value=sooner),
            ]  # fmt: skip
    return judged
