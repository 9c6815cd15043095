"""Figure 5.10: the real workload by the number of subscriptions; calibrated synthetic, and of real prices if given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.bench.goals import short
from sim.experiments.charts import draw_curves, draw_stress
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
    times,
)
from sim.experiments.goals import BY_CONTENT
from sim.experiments.inputs import Input, market_trace, real_traces
from sim.experiments.networks import WITH_GREEDY
from sim.experiments.section import Section, bytes_along, figures_of
from sim.experiments.stage import Point
from sim.experiments.subscriptions import Law
from sim.experiments.summary import write_lines, write_stress
from sim.traffic.sizes import wire_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sim.experiments.settings import FigureSettings
    from sim.experiments.stage import Stage
    from sim.experiments.summary import Line, Stress

THESIS = (
    "S-CN stays under 100 bytes per event on average and under 10 in node stress, orders of magnitude below CN and "
    "S-UN, whatever the number of subscriptions; 11.7 % of the updates are not ignorable."
)
BYTES, STRESS = 100.0, 10.0
ORDERS = 10.0  # at least one order of magnitude


@dataclass(frozen=True, slots=True)
class RealRun:
    """All lines of 5.10, and the distribution of stress in its largest runs."""

    inputs: list[Input]
    lines: list[Line]
    stress: list[Stress]  # of the first workload


def steps(settings: FigureSettings, data: Path | None) -> int:
    """How many steps it takes."""
    return (1 if data is None else 3) * (1 + len(settings.growing))


def measure(stage: Stage, settings: FigureSettings, data: Path | None) -> RealRun:
    """Replay each workload with each number of subscriptions; CAN's greedy entry with all of them as well."""
    inputs = [market_trace(stage, settings), *(real_traces(stage, settings, data) if data is not None else ())]
    lines: list[Line] = []
    stress: list[Stress] = []
    for given in inputs:
        law = Law().over(given.domain)
        for count in settings.growing:
            name = f"5.10-{given.name}-{short(count)}"
            point = Point(name, given.workload, count, given.trace, law, count, WITH_GREEDY)
            found = stage.measure(point)
            lines += found.lines
            if given is inputs[0]:
                stress = found.stress  # the last is the largest
    return RealRun(inputs, lines, stress)


def section(stage: Stage, settings: FigureSettings, found: RealRun) -> Section:
    """The figure of the traffic."""
    folder, lines = stage.folder.folder, found.lines
    table, picture, links = folder / "fig_5_10.parquet", folder / "fig_5_10.png", folder / "fig_5_10_links.png"
    write_lines(lines, table)
    rows = [(given.workload, of(lines, given.workload)) for given in found.inputs]
    common = {"x_label": "subscriptions", "goal": (BYTES, f"goal: S-CN below {BYTES:.0f}")}
    draw_curves(
        rows,
        picture,
        title="Figure 5.10: traffic of the real workload by the number of subscriptions",
        y_label="bytes per event (log)",
        value=lambda line: line.cost.bytes,
        **common,  # type: ignore[arg-type]  # two kinds of values in one dict
    )
    draw_curves(
        rows,
        links,
        title="The same in the physical network: bytes times links",
        x_label="subscriptions",
        y_label="bytes x links per event (log)",
        value=lambda line: line.cost.byte_links,
    )
    figures: list[list[str]] = []
    for given in found.inputs:
        mine = figures_of(of(lines, given.workload), "subscriptions", lambda line: f"{line.subscriptions:,}")
        figures += [["workload", *mine[0]]] if not figures else []
        figures += [[given.workload, *row] for row in mine[1:]]
    return Section(
        "5.10",
        "Figure 5.10: the real workload",
        f"{' '.join(given.about for given in found.inputs)} Subscriptions as in Table 5.1, scaled to RECO's 1 to 5.",
        THESIS,
        [claim for given in found.inputs for claim in claims(of(lines, given.workload), given.workload)],
        [table],
        [picture, links],
        figures,
        [*(note for given in found.inputs for note in given.notes), lean_note(lines)],
    )


def stress_section(stage: Stage, found: RealRun) -> Section:
    """The figure of node stress: the most frames that one broker sends for an event."""
    folder, given = stage.folder.folder, found.inputs[0]
    table, picture = folder / "node_stress.parquet", folder / "node_stress.png"
    write_stress(found.stress, table)
    largest = max(line.x for line in found.lines)
    title = f"Node stress: {given.workload}, {short(largest)} subscriptions"
    draw_stress(found.stress, picture, title=title, goal=STRESS)
    lines = [line for line in of(found.lines, given.workload) if line.x == largest]
    figures = [["placement", "approach", "mean", "p99", "max", "link stress: mean", "p99", "max"]]
    for placement in placements_of(lines):
        for line in lines:
            cost = line.cost
            if cost.placement == placement:
                node = [number(cost.node_stress), f"{cost.node_stress_p99:,}", f"{cost.node_stress_max:,}"]
                link = [number(cost.link_stress), f"{cost.link_stress_p99:,}", f"{cost.link_stress_max:,}"]
                figures.append([placement, cost.approach, *node, *link])
    return Section(
        "stress",
        "Node stress",
        f"The largest run of 5.10, {given.workload}: the most frames that one broker sends for one event (0 where an "
        "event sends none). S-UN's are all sent by the server. In a tree no broker sends more frames than it has "
        f"children: with a fanout of {stage.settings.fanout} the most is bounded by construction, whatever the "
        "gateways, so the means and the CAN say more.",
        "Node stress of S-CN stays under 10, never rising above it.",
        [_stress_claim(line) for line in lines if line.cost.approach == SERVER_NET],
        [table],
        [picture],
        figures,
    )


def of(lines: Sequence[Line], workload: str) -> list[Line]:
    """The lines of one workload."""
    return [line for line in lines if line.workload == workload]


def claims(lines: Sequence[Line], workload: str) -> list[Claim]:
    """The statements of the thesis, for each placement."""
    found = []
    for placement in placements_of(lines):
        about = f"{workload}, {placement}"
        ours, net, unicast = (bytes_along(lines, placement, name) for name in (SERVER_NET, NET, UNICAST))
        costs = [line.cost for line in curve(lines, placement, SERVER_NET)]
        most = costs[ours.index(max(ours))]
        found.append(
            Claim(
                about,
                f"S-CN under {BYTES:.0f} bytes per event",
                f"{number(min(ours))} to {number(max(ours))} bytes",
                max(ours) < BYTES,
                f"{most.changing / most.events:.1%} of the events are not ignorable, and of these {spread_of(most)}",
            )
        )
        found.append(
            Claim(
                about,
                "S-CN does not depend on the number of subscriptions",
                f"grows by {growth(ours):.2f}x from {costs_span(lines)} subscriptions",
                growth(ours) <= FLAT,
                f"more subscriptions have more gateways: from {number(costs[0].messages_changing)} to "
                f"{number(costs[-1].messages_changing)} frames a change",
            )
        )
        ratios = [times(min(c, u), o) for o, c, u in zip(ours, net, unicast, strict=True)]
        found.append(
            Claim(
                about,
                "orders of magnitude below CN and S-UN",
                f"CN takes {_span([times(c, o) for o, c in zip(ours, net, strict=True)])}, "
                f"S-UN {_span([times(u, o) for o, u in zip(ours, unicast, strict=True)])} as much",
                min(ratios) >= ORDERS,
                spread_of(most),
            )
        )
    return found


def costs_span(lines: Sequence[Line]) -> str:
    """From which to which number of subscriptions."""
    counts = sorted({line.subscriptions for line in lines})
    return f"{short(counts[0])} to {short(counts[-1])}"


def lean_note(lines: Sequence[Line]) -> str:
    """What CN would cost with the leanest frames our format could give it: its bytes are in proportion to one size."""
    sizes = wire_sizes()
    share = sizes.lean_row / sizes.row
    ratios = [
        share * times(net.cost.bytes, ours.cost.bytes)
        for name in BY_CONTENT
        for ours, net in zip(curve(lines, name, SERVER_NET), curve(lines, name, NET), strict=True)
    ]
    return (
        f"A frame of CN has {sizes.row} bytes, as the engine sends a changed row; packed as tightly as rectangles are "
        f"it would have {sizes.lean_row}. CN by content would then take {_span(ratios)} as much as S-CN."
    )


def _span(ratios: Sequence[float]) -> str:
    return f"{min(ratios):,.0f}x to {max(ratios):,.0f}x"


def _stress_claim(line: Line) -> Claim:
    cost = line.cost
    return Claim(
        cost.placement,
        f"node stress of S-CN never above {STRESS:.0f}",
        f"mean {number(cost.node_stress)}, p99 {cost.node_stress_p99:,}, most {cost.node_stress_max:,}",
        cost.node_stress_max <= STRESS,
        f"one event made a broker send {cost.node_stress_max:,} frames, though the mean is {number(cost.node_stress)}"
        if cost.node_stress < STRESS
        else spread_of(cost),
    )
