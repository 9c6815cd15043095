"""Figure 9: how far each schedule is from the one before, over time and in numbers."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any

from hullcast.sim.experiments.studies.scheduling.tradeoff.runs import FAR, STEPS, run
from hullcast.sim.experiments.study import Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, number
from hullcast.sim.traces.tradeoff import CITED

if TYPE_CHECKING:
    from pathlib import Path

POLICIES = ("knapsack", "pareto")
#: The preference of the first phase: the paper's 0 <-> 1, and one between, where all of either's plans are knapsacks.
QOS = (0.0, 0.25)
#: "Significantly" and "considerably" larger: at least so many times.
LARGER = 2.0
#: "Usually".
USUALLY = 0.9
FEW = "few schedules come right after a change, and the others barely move"
measure = run


def points(quick: bool) -> list[dict[str, Any]]:
    """More and more changes."""
    size, changes = (700, (1, 10, 50, 100)) if quick else (5_000, (1, 50, 500, 1_000))
    return grid(figure=["stable"], policy=POLICIES, qos=QOS, flips=changes, size=[size])


def sections(found: Sweep, folder: Path) -> list[Section]:
    """Figure 9a and Figure 9b."""
    part = found.where(figure="stable")
    over_time, numbers = folder / "tradeoff-distances.png", folder / "tradeoff-distance-numbers.png"
    draw_panels(
        _panels(part, _over_time), over_time, title="Distance of each schedule from the one before, over time",
        x_label="% of the run", share_y=False, y_log=False, source=f"Means over {STEPS} steps; a line for each "
        "number of changes",
    )  # fmt: skip
    draw_panels(
        _panels(part, _in_numbers), numbers, title="How many schedules are how far from the one before",
        x_label=f"rounded distance ({FAR}: or more)", source="0.5 stands for none; a line for each number of changes",
    )  # fmt: skip
    section = Section(
        "tradeoff-stability",
        "Stability of schedules",
        f"{part.rows[0]['size']:,} queries and as many updates (Gauss); preferences of all queries flip between 0 and "
        "1, as in the paper, or between 0.25 and 0.75, more and more often. Schedules are compared in which an update "
        "waits, and a query.",
        "with stable preferences schedules barely change (0 or 1 positions); the more often preferences change, the "
        "more they do.",
        part.judged(_claims),
        pictures={"Distances over time": over_time, "Rounded distances and how often each occurs": numbers},
        figures=[_table(part)],
        cited=CITED,
        items=("Figure 9(a)", "Figure 9(b)"),
    )
    return [section]


def _kind(policy: str, qos: float) -> str:
    return f"{policy}, qos {qos:g} to {1 - qos:g}"


def _panels(found: Sweep, curve: Any) -> list[list[Panel]]:
    changes = sorted(found.all_of("flips"))
    return [
        [Panel(_kind(policy, qos), [BandCurve(f"{flips:,}", curve(found.where(policy=policy, qos=qos, flips=flips)))
               for flips in changes]) for qos in QOS]
        for policy in POLICIES
    ]  # fmt: skip


def _over_time(part: Sweep) -> list[tuple[float, list[float]]]:
    curve = [((at + 1) * 100 / STEPS, part.values(f"distance {at}")) for at in range(STEPS)]
    return [(x, kept) for x, values in curve if (kept := [value for value in values if value == value])]


def _in_numbers(part: Sweep) -> list[tuple[float, list[float]]]:
    curve = [(whole, part.values(f"far {whole}")) for whole in range(FAR + 1)]
    farthest = max(whole for whole, counts in curve if any(counts))
    return [(whole, [max(0.5, count) for count in counts]) for whole, counts in curve if whole <= farthest]


def _table(found: Sweep) -> list[list[str]]:
    rows = [["scheduler", "changes", "schedules compared", "mean distance", "0", "1", "2 or more"]]
    for policy in POLICIES:
        for qos in QOS:
            for flips in sorted(found.all_of("flips")):
                part = found.where(policy=policy, qos=qos, flips=flips)
                counts = [part.middle(f"far {whole}") for whole in range(FAR + 1)]
                rows.append([_kind(policy, qos), f"{flips:,}", f"{part.middle('schedules'):,.0f}",
                             f"{part.middle('distance'):.3f}",
                             *(f"{count:,.0f}" for count in (*counts[:2], sum(counts[2:])))])  # fmt: skip
    return rows


def _claims(found: Sweep) -> list[Claim]:
    judged = []
    for policy in POLICIES:
        for qos in QOS:
            part = found.where(policy=policy, qos=qos)
            pure = "with qos = 0 or 1 pareto plans nothing between changes" if policy == "pareto" and not qos else ""
            changes = sorted(part.all_of("flips"))
            mean = [part.middle("distance", flips=flips) for flips in changes]
            near, beyond = [], []
            for flips in changes:
                counts = [part.middle(f"far {whole}", flips=flips) for whole in range(FAR + 1)]
                near.append(sum(counts[:2]) / sum(counts))
                beyond.append(sum(counts[2:]))
            times = mean[-1] / mean[0] if mean[0] else inf
            grows = all(before <= after for before, after in pairwise(beyond))
            claim = partial(Claim, _kind(policy, qos))
            judged += [
                claim("with one change the mean distance is below one position", f"{mean[0]:.3f}", mean[0] < 1,
                      "new queries move those behind them", value=mean[0], form="{:.3f}".format, construction=pure,
                      item="Figure 9(a)", paper="very small values"),
                claim("with the most changes the mean distance is at least twice that with one",
                      f"{mean[-1]:.3f} after {mean[0]:.3f}", times >= LARGER, FEW, value=times, form=factor,
                      construction=pure, item="Figure 9(a)", paper="significantly larger"),
                claim(f"with one change at least {USUALLY:.0%} of the rounded distances are 0 or 1", f"{near[0]:.1%}",
                      near[0] >= USUALLY, "new queries move those behind them", value=near[0], form="{:.1%}".format,
                      construction=pure, item="Figure 9(b)", paper="usually 0 or 1"),
                claim("the more changes, the more rounded distances of 2 or more; twice as many with the most",
                      f"{number(beyond[-1])} after {number(beyond[0])}",
                      grows and beyond[-1] > LARGER * beyond[0], FEW, value=beyond[-1] - beyond[0],
                      construction=pure, item="Figure 9(b)", paper="increase considerably"),
            ]  # fmt: skip
    return judged
