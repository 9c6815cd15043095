"""Figure 5.8: traffic by the share of ignorable updates, with short ranges and no spikes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from sim.experiments.charts import draw_curves
from sim.experiments.claims import (
    FLAT,
    NET,
    SERVER_NET,
    UNICAST,
    Claim,
    curve,
    growth,
    number,
    placements_of,
    spread_of,
)
from sim.experiments.inputs import table_trace
from sim.experiments.section import Section, bytes_along, figures_of
from sim.experiments.stage import Point
from sim.experiments.subscriptions import SHORT
from sim.experiments.summary import write_lines
from sim.overlay.placement import PLACEMENTS
from sim.workloads import Mix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.experiments.settings import FigureSettings
    from sim.experiments.stage import Stage
    from sim.experiments.summary import Line

THESIS = "CN is flat and becomes worst, S-UN improves, S-CN is best throughout."


def steps(settings: FigureSettings) -> int:
    """How many steps it takes."""
    return 2 * len(settings.ignorable)


def run(stage: Stage, settings: FigureSettings) -> Section:
    """Replay one trace for each share."""
    lines: list[Line] = []
    for share in settings.ignorable:
        mix = Mix(spikes=0.0, ignorable=share)
        trace = table_trace(stage, f"ignorable-{share:.2f}", settings.rows, settings.events, mix)
        point = Point(f"5.8-{share:.2f}", "Table 5.1", share, trace, SHORT, settings.subscriptions, PLACEMENTS)
        lines += stage.measure(point).lines
    folder = stage.folder.folder
    table, picture = folder / "fig_5_8.parquet", folder / "fig_5_8.png"
    write_lines(lines, table)
    draw_curves(
        [("", lines)],
        picture,
        title="Figure 5.8: traffic by the share of ignorable updates",
        x_label="ignorable updates",
        y_label="bytes between brokers per event (log)",
        value=lambda line: line.cost.bytes,
        x_format=lambda share: f"{100 * share:.0f} %",
    )
    return Section(
        "5.8",
        "Figure 5.8: ignorable updates",
        f"{settings.subscriptions:,} subscriptions with midpoint N(5000, 10000) and length N(50, 10), "
        f"{settings.rows:,} rows, {settings.events:,} events a point, no spikes.",
        THESIS,
        claims(lines),
        [table],
        [picture],
        figures_of(lines, "ignorable", lambda line: f"{1 - line.cost.changing / line.cost.events:.0%}"),
    )


def claims(lines: Sequence[Line]) -> list[Claim]:
    """The three statements, for each placement."""
    found = []
    for placement in placements_of(lines):
        ours, net, unicast = (bytes_along(lines, placement, name) for name in (SERVER_NET, NET, UNICAST))
        flat = growth(net)
        found.append(
            Claim(
                placement,
                "CN is flat",
                f"CN varies by {flat:.2f}x",
                flat <= FLAT,
                f"it varies by more than {FLAT}x",
            )
        )
        last = curve(lines, placement, UNICAST)[-1]
        found.append(
            Claim(
                placement,
                "CN becomes worst",
                f"at {last.x:.0%}: CN {number(net[-1])}, S-UN {number(unicast[-1])}, S-CN {number(ours[-1])} bytes",
                net[-1] > max(unicast[-1], ours[-1]),
                f"an event affects {number(last.cost.affected)} subscriptions, and S-UN tells each by itself",
            )
        )
        falls = all(later <= 1.05 * former for former, later in pairwise(unicast))
        found.append(
            Claim(
                placement,
                "S-UN improves",
                f"from {number(unicast[0])} to {number(unicast[-1])} bytes",
                falls and unicast[-1] < unicast[0],
                "it does not fall from point to point",
            )
        )
        best = [min(c, u) / o if o else float("inf") for o, c, u in zip(ours, net, unicast, strict=True)]
        at = min(range(len(best)), key=best.__getitem__)
        found.append(
            Claim(
                placement,
                "S-CN is best throughout",
                f"the next best takes {best[at]:.1f}x as much, or more",
                best[at] > 1.0,
                spread_of(curve(lines, placement, SERVER_NET)[at].cost),
            )
        )
    return found
