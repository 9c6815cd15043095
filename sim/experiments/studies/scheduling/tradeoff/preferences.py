"""Section 5.2: what a preference that stays comes to. A larger slot means fresher answers, and slower ones."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hullcast.sim.experiments.studies.scheduling.tradeoff.runs import run
from hullcast.sim.experiments.study import Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor
from hullcast.sim.traces.tradeoff import CITED, WORKLOADS

if TYPE_CHECKING:
    from pathlib import Path

PREFERENCES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
POLICIES = ("pareto", "knapsack")
WORDS = "a large bound increases the QoD and decreases the QoS"
measure = run


def points(quick: bool) -> list[dict[str, Any]]:
    """Each preference, for both schedulers."""
    size = 300 if quick else 1_000
    return grid(figure=["stay"], workload=WORKLOADS, policy=POLICIES, qos=PREFERENCES, size=[size])


def sections(found: Sweep, folder: Path) -> list[Section]:
    """By preference."""
    part, picture = found.where(figure="stay"), folder / "tradeoff-stay.png"
    rows = [
        [Panel(f"{of}: {told}", [BandCurve(name, part.along("qos", metric, workload=of, policy=name)) for name in
               POLICIES]) for of in WORKLOADS]
        for metric, told in (("response", "response time [s]"), ("freshness", "freshness"))
    ]  # fmt: skip
    draw_panels(rows, picture, title="Preferences that stay", x_label="qos (0: fresh, 1: quick)", y_log=False,
                share_y=False)  # fmt: skip
    section = Section(
        "tradeoff-stay",
        "Response time and freshness by preference",
        f"{part.rows[0]['size']:,} queries and as many updates; all queries have the same preference.",
        "a larger slot puts more updates before queries: fresher answers, longer response times.",
        part.judged(_claims),
        pictures={"Response time and freshness by qos, a line for each scheduler": picture},
        cited=CITED,
        items=("Section 5.2",),
    )
    return [section]


def _claims(found: Sweep) -> list[Claim]:
    judged = []
    for of in WORKLOADS:
        for name in POLICIES:
            part = found.where(workload=of, policy=name)
            waits, fresh = (
                [part.middle(metric, qos=qos) for qos in PREFERENCES] for metric in ("response", "freshness")
            )
            steps = sum(after < before for before, after in pairwise(fresh))
            saved, lost = waits[-1] / waits[0], fresh[-1] / fresh[0]
            claim = partial(Claim, f"{of}, {name}", item="Section 5.2", paper=WORDS)
            judged += [
                claim("each step of qos from 0 to 1 makes answers less fresh", f"{steps} of {len(fresh) - 1}",
                      steps == len(fresh) - 1, "plans are best for what waits now, not for what is to come",
                      value=steps, form="{:.0f}".format),
                claim("qos = 1 is quicker than qos = 0", factor(saved), saved < 1, "it is slower", value=saved,
                      form=factor),
                claim("qos = 1 is less fresh than qos = 0", factor(lost), lost < 1, "it is fresher", value=lost,
                      form=factor),
            ]  # fmt: skip
        updates_first, single = (found.where(workload=of, policy=name, qos=0.0) for name in POLICIES)
        share = single.middle("response") / updates_first.middle("response")
        alike = single.middle("freshness") == updates_first.middle("freshness")
        judged.append(
            Claim(of, "at qos = 0 the knapsack is as fresh as pareto, which then has all updates first, and quicker",
                  factor(share), alike and share < 1, "updates that no query reads fill gaps anyway",
                  value=share, form=factor, item="Section 5.2"))  # fmt: skip
    return judged
