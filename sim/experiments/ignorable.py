"""Figure 5.8: traffic by the share of ignorable updates, with short ranges and no spikes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hullcast.sim import XIE
from hullcast.sim.experiments.charts import draw_curves
from hullcast.sim.experiments.claims import (
    AGGREGATED,
    BY_X,
    DEAR,
    FLAT,
    NET,
    SERVER_NET,
    UNICAST,
    Claim,
    curve,
    factor,
    growth,
    number,
    placements_of,
    spread_of,
    times,
)
from hullcast.sim.experiments.inputs import table_trace
from hullcast.sim.experiments.lean import lean_note, lean_share, leaner
from hullcast.sim.experiments.section import Picture, Section, bytes_along, figures_of
from hullcast.sim.experiments.stage import Point
from hullcast.sim.experiments.subscriptions import SHORT
from hullcast.sim.experiments.summary import write_lines
from hullcast.sim.overlay.placement import PLACEMENTS
from hullcast.sim.traces.table51 import SHADOWS, Mix
from hullcast.sim.traffic.sizes import wire_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.sim.experiments.settings import FigureSettings
    from hullcast.sim.experiments.stage import Stage
    from hullcast.sim.experiments.summary import Line

THESIS = (
    "CN is flat. S-UN does poorly, improves with the share of ignorable updates and eventually beats CN, which becomes "
    "worst. S-CN is best throughout."
)


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
        title="Figure 5.8: traffic by the share of ignorable updates; workload: Table 5.1 with short ranges",
        source=f"reproduces Figure 5.8 of {XIE}",
        x_label="ignorable updates",
        y_label="bytes between brokers per event (log)",
        value=lambda line: line.cost.bytes,
        x_format=lambda share: f"{100 * share:.0f} %",
    )
    found = claims(lines)
    return Section(
        "5.8",
        "Figure 5.8: ignorable updates",
        f"{settings.subscriptions:,} subscriptions, ranges of x with midpoint N(5000, 10000) and length N(50, 10), "
        f"{settings.rows:,} rows, {settings.events:,} events a point, no spikes. Ignorable updates need rows that "
        f"share their x: at 0 % there are none, at all other points {SHADOWS:.0%} of the rows share the x of another, "
        "which makes a step between the first two points.",
        THESIS,
        found,
        [table],
        [Picture(picture, "Bytes per event by the share of ignorable updates, a panel for each placement")],
        [figures_of(lines, lambda line: f"{1 - line.cost.changing / line.cost.events:.0%} ignorable")],
        [lean_note(found, claims(leaner(lines)))],
    )


def claims(lines: Sequence[Line]) -> list[Claim]:
    """The statements, for each placement."""
    return [
        claim for placement in placements_of(lines) for claim in (*_of_net(lines, placement), *_of_us(lines, placement))
    ]


def _of_net(lines: Sequence[Line], placement: str) -> list[Claim]:
    net, unicast = (bytes_along(lines, placement, name) for name in (NET, UNICAST))
    flat = growth(net)
    falls = all(later <= 1.05 * former for former, later in pairwise(unicast))
    return [
        Claim(
            placement, "CN is flat", f"varies by {flat:.2f}x", flat <= FLAT, f"it varies by more than {FLAT}x",
            construction=BY_X,
        ),
        _crossing(lines, placement),
        Claim(
            placement,
            "S-UN improves",
            f"{number(unicast[0])} to {number(unicast[-1])} bytes",
            falls and unicast[-1] < unicast[0],
            "it does not fall from point to point",
        ),
    ]  # fmt: skip


def _crossing(lines: Sequence[Line], placement: str) -> Claim:
    """The shape of the original figure: S-UN is above CN at first, and CN above all others at last."""
    ours, net, unicast = (bytes_along(lines, placement, name) for name in (SERVER_NET, NET, UNICAST))
    first, last = (curve(lines, placement, UNICAST)[i] for i in (0, -1))
    above, worst = unicast[0] >= net[0], net[-1] > max(unicast[-1], ours[-1])
    ratio = [times(net[i], unicast[i]) for i in (0, -1)]
    sizes, frames = wire_sizes(), curve(lines, placement, NET)[0].cost.messages
    if not above:
        because = (
            f"CN is worst from the start: an update affects {number(first.cost.affected)} subscriptions only, for "
            f"which S-UN needs {number(unicast[0])} bytes, and CN's frame has {sizes.row} bytes (lean {sizes.lean_row})"
        )
    else:
        because = (
            f"at {last.x:.0%} an event still affects {number(last.cost.affected)} subscriptions, and S-UN sends "
            "a frame to each"
        )
    return Claim(
        placement,
        "CN becomes worst: S-UN above it at first, below at last",
        f"CN / S-UN: {factor(ratio[0])}, then {factor(ratio[1])} "
        f"(lean {factor(lean_share() * ratio[0])}, then {factor(lean_share() * ratio[1])})",
        above and worst,
        because,
        f"{number(frames)} frames" if not above else "",
    )


def _of_us(lines: Sequence[Line], placement: str) -> list[Claim]:
    ours, net, unicast, bundled = (
        bytes_along(lines, placement, name) for name in (SERVER_NET, NET, UNICAST, AGGREGATED)
    )
    found = []
    for statement, others in (
        (
            "S-CN is best throughout, of CN and S-UN (these / S-CN)",
            [min(pair) for pair in zip(net, unicast, strict=True)],
        ),
        ("(ours) S-CN is below S-UN aggregated too (this / S-CN)", bundled),
    ):
        ratios = [times(other, mine) for mine, other in zip(ours, others, strict=True)]
        at = min(range(len(ratios)), key=ratios.__getitem__)
        cost = curve(lines, placement, SERVER_NET)[at].cost
        found.append(
            Claim(placement, statement, f"at least {factor(ratios[at])}", ratios[at] > 1.0, DEAR, spread_of(cost))
        )
    return found
