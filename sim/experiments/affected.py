"""Figure 5.9: traffic by the number of subscriptions that an update affects, varied by the share of spikes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.sim import XIE
from hullcast.sim.bench.goals import short
from hullcast.sim.experiments.charts import draw_curves
from hullcast.sim.experiments.claims import (
    BY_X,
    DEAR,
    FLAT,
    NEARLY_FLAT,
    NET,
    SERVER_NET,
    UNICAST,
    Claim,
    curve,
    growth,
    number,
    placements_of,
    span,
    spread_of,
    times,
)
from hullcast.sim.experiments.inputs import table_trace
from hullcast.sim.experiments.lean import lean_note, lean_share, leaner
from hullcast.sim.experiments.section import Picture, Section, bytes_along, figures_of
from hullcast.sim.experiments.stage import Point
from hullcast.sim.experiments.subscriptions import Law
from hullcast.sim.experiments.summary import write_lines
from hullcast.sim.overlay.placement import PLACEMENTS
from hullcast.sim.traces.table51 import Mix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.sim.experiments.settings import FigureSettings
    from hullcast.sim.experiments.stage import Stage
    from hullcast.sim.experiments.summary import Line

THESIS = "S-UN is linear, CN flat, S-CN nearly flat and close to 10x below CN."
LINEAR = 1.1  # how far bytes per affected subscription may vary
CLOSE_TO_TEN = 8.0


def steps(settings: FigureSettings) -> int:
    """How many steps it takes."""
    return 2 * len(settings.spikes)


def run(stage: Stage, settings: FigureSettings) -> Section:
    """Replay one trace for each share of spikes."""
    lines: list[Line] = []
    for share in settings.spikes:
        trace = table_trace(stage, f"spikes-{share:.3f}", settings.rows, settings.events, Mix(spikes=share))
        point = Point(f"5.9-{share:.3f}", "Table 5.1", share, trace, Law(), settings.subscriptions, PLACEMENTS)
        lines += stage.measure(point).lines
    folder = stage.folder.folder
    table, picture = folder / "fig_5_9.parquet", folder / "fig_5_9.png"
    write_lines(lines, table)
    draw_curves(
        [("", lines)],
        picture,
        title=f"Figure 5.9: traffic by affected subscriptions, of {short(settings.subscriptions)}; workload: Table 5.1",
        source=f"reproduces Figure 5.9 of {XIE}",
        x_label="affected subscriptions per event (log)",
        y_label="bytes between brokers per event (log)",
        value=lambda line: line.cost.bytes,
        x=lambda line: line.cost.affected,
        x_log=True,
    )
    found = claims(lines)
    return Section(
        "5.9",
        "Figure 5.9: affected subscriptions",
        f"{settings.subscriptions:,} subscriptions of Table 5.1, {settings.rows:,} rows, {settings.events:,} events a "
        f"point; {min(settings.spikes):.1%} to {max(settings.spikes):.1%} of "
        "them are spikes: a row drops to the lowest y, and returns with the next event.",
        THESIS,
        found,
        [table],
        [Picture(picture, "Bytes per event by the number of affected subscriptions, a panel for each placement")],
        [figures_of(lines, lambda line: f"{number(line.cost.affected)} affected")],
        [lean_note(found, claims(leaner(lines)))],
    )


def claims(lines: Sequence[Line]) -> list[Claim]:
    """The four statements, for each placement."""
    found = []
    for placement in placements_of(lines):
        net, unicast = (bytes_along(lines, placement, name) for name in (NET, UNICAST))
        affected = [line.cost.affected for line in curve(lines, placement, UNICAST)]
        each = [times(b, a) for a, b in zip(affected, unicast, strict=True)]
        found.append(
            Claim(
                placement,
                "S-UN is linear",
                f"{number(min(each))} to {number(max(each))} bytes per affected",
                growth(each) <= LINEAR,
                f"the cost of one more subscription varies by {growth(each):.2f}x",
                construction="S-UN sends a frame of one size for each affected subscription",
            )
        )
        flat = growth(net)
        found.append(
            Claim(
                placement, "CN is flat", f"varies by {flat:.2f}x", flat <= FLAT, f"it varies by more than {FLAT}x",
                construction=BY_X,
            )
        )  # fmt: skip
        found += _of_us(lines, placement, growth(affected))
    return found


def _of_us(lines: Sequence[Line], placement: str, growing: float) -> list[Claim]:
    ours, net, unicast = (bytes_along(lines, placement, name) for name in (SERVER_NET, NET, UNICAST))
    first, last = (curve(lines, placement, SERVER_NET)[i].cost for i in (0, -1))
    below = [times(c, o) for c, o in zip(net, ours, strict=True)]
    rise = times(ours[-1] - ours[0], unicast[-1] - unicast[0])
    return [
        Claim(
            placement,
            f"S-CN is nearly flat (at most {NEARLY_FLAT}x)",
            f"grows by {growth(ours):.2f}x, {rise:.1%} of S-UN's rise in bytes",
            growth(ours) <= NEARLY_FLAT,
            "a spike to the bottom affects every range that holds its x, as every event of CN does; affected "
            f"subscriptions grow by {growing:.1f}x, and so do the frames of a change",
            f"{number(first.messages_changing)} to {number(last.messages_changing)}",
        ),
        Claim(
            placement,
            f"S-CN is close to 10x below CN (at least {CLOSE_TO_TEN:.0f}x)",
            f"{span(below)} (lean {span([lean_share() * ratio for ratio in below])})",
            min(below) >= CLOSE_TO_TEN,
            DEAR,
            spread_of(last),
        ),
    ]
