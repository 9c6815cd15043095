"""Figure 5.10: a market by the number of subscriptions: a calibrated synthetic one, and real prices if given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.sim import XIE
from hullcast.sim.bench.goals import short
from hullcast.sim.experiments.charts import draw_curves, draw_stress
from hullcast.sim.experiments.claims import (
    DEAR,
    FLAT,
    FLOODS,
    NET,
    SERVER_NET,
    UNICAST,
    Claim,
    curve,
    growth,
    number,
    placements_of,
    span,
    spanned,
    spread_of,
    times,
)
from hullcast.sim.experiments.goals import BYTES, STRESS
from hullcast.sim.experiments.inputs import Input, market_trace, real_traces
from hullcast.sim.experiments.lean import lean_note, lean_share, leaner
from hullcast.sim.experiments.networks import WITH_GREEDY
from hullcast.sim.experiments.section import Picture, Section, bytes_along, figures_of
from hullcast.sim.experiments.stage import Point
from hullcast.sim.experiments.stress import stress_claim, stress_table
from hullcast.sim.experiments.subscriptions import Law
from hullcast.sim.experiments.summary import write_lines, write_stress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hullcast.sim.experiments.settings import FigureSettings
    from hullcast.sim.experiments.stage import Stage
    from hullcast.sim.experiments.summary import Line, Stress

THESIS = (
    "S-CN stays under 100 bytes per event on average and does not depend on the number of subscriptions; it is orders "
    "of magnitude below CN and S-UN."
)
EVENTS, STOCKS, NOT_IGNORABLE = 338_415, 3_053, 0.117  # of the trace of Xie (2007)
ORDERS = 100.0  # "orders of magnitude" are two at least


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
    source = f"reproduces Figure 5.10 of {XIE}, with another workload: the original one is not available"
    draw_curves(
        rows,
        picture,
        title=f"Figure 5.10: traffic by the number of subscriptions; {named(found.inputs)}",
        y_label="bytes per event (log)",
        value=lambda line: line.cost.bytes,
        x_label="subscriptions",
        goal=(BYTES, f"goal: S-CN below {BYTES:.0f}"),
        source=source,
    )
    draw_curves(
        rows,
        links,
        title=f"Figure 5.10 in the physical network: bytes times links; {named(found.inputs)}",
        x_label="subscriptions",
        source=source,
        y_label="bytes x links per event (log)",
        value=lambda line: line.cost.byte_links,
    )
    found_claims, lean_claims = (
        [claim for given in found.inputs for claim in claims(of(these, given.workload), given.workload)]
        for these in (lines, leaner(lines))
    )
    shown: list[list[str]] = []
    for given in found.inputs:
        mine = figures_of(of(lines, given.workload), lambda line: f"{short(line.subscriptions)} subscriptions")
        shown += [["workload", *mine[0]]] if not shown else []
        shown += [[given.workload, *row] for row in mine[1:]]
    return Section(
        "5.10",
        f"Figure 5.10: traffic by the number of subscriptions; {named(found.inputs)}",
        "Xie (2007) replays prices of real stocks, which are not available; the workloads here stand in for them. "
        f"{' '.join(given.about for given in found.inputs)} x is RECO, the mean recommendation of analysts (1 to "
        "5), y is PER, price / earnings. Subscriptions as in Table 5.1, scaled to RECO's 1 to 5.",
        THESIS,
        found_claims,
        [table],
        [
            Picture(picture, "Bytes per event between brokers by subscriptions, a row for each workload"),
            Picture(links, "Bytes per event times the physical links they cross, by subscriptions"),
        ],
        [workloads_table(found.inputs, lines), shown],
        [*(note for given in found.inputs for note in given.notes), lean_note(found_claims, lean_claims)],
    )


def named(inputs: Sequence[Input]) -> str:
    """Which workloads a figure shows: titles say so, for neither of them is the original one."""
    return f"workload{'s' if len(inputs) > 1 else ''}: {'; '.join(given.workload for given in inputs)}"


def workloads_table(inputs: Sequence[Input], lines: Sequence[Line]) -> list[list[str]]:
    """The trace of Xie (2007) beside ours."""
    rows = [
        ["trace", "events", "stocks", "not ignorable"],
        ["Xie (2007)", f"{EVENTS:,}", f"{STOCKS:,}", f"{NOT_IGNORABLE:.1%}"],
    ]
    for given in inputs:
        cost = of(lines, given.workload)[0].cost
        rows.append([given.workload, f"{cost.events:,}", f"{given.stocks:,}", f"{cost.changing / cost.events:.1%}"])
    return rows


def stress_section(stage: Stage, found: RealRun) -> Section:
    """The figure of node stress: the most frames that one broker sends for an event."""
    folder, given = stage.folder.folder, found.inputs[0]
    table, picture = folder / "node_stress.parquet", folder / "node_stress.png"
    write_stress(found.stress, table)
    largest = max(line.x for line in found.lines)
    title = f"Node stress: {given.workload}, {short(largest)} subscriptions"
    fanout = stage.settings.fanout
    draw_stress(found.stress, picture, title=title, goal=STRESS, fanout=fanout)
    lines = [line for line in of(found.lines, given.workload) if line.x == largest]
    return Section(
        "stress",
        "Node stress",
        f"The largest run of 5.10, {given.workload}: the most frames that one broker sends for one event (0 where an "
        "event sends none). With S-UN the server sends all frames. The Parquet has the distributions, that of 5.10 "
        "link stress.",
        "Node stress of S-CN never rises above 10.",
        [stress_claim(line, fanout) for line in lines if line.cost.approach == SERVER_NET],
        [table],
        [Picture(picture, "Share of events by node stress, a panel for each placement")],
        [stress_table(lines)],
    )


def of(lines: Sequence[Line], workload: str) -> list[Line]:
    """The lines of one workload."""
    return [line for line in lines if line.workload == workload]


def claims(lines: Sequence[Line], workload: str) -> list[Claim]:
    """The statements of Xie (2007), for each placement."""
    found = []
    for placement in placements_of(lines):
        ours, net, unicast = (bytes_along(lines, placement, name) for name in (SERVER_NET, NET, UNICAST))
        costs = [line.cost for line in curve(lines, placement, SERVER_NET)]
        most = costs[ours.index(max(ours))]
        found.append(
            Claim(
                placement,
                f"S-CN takes under {BYTES:.0f} bytes",
                spanned(ours),
                max(ours) < BYTES,
                f"{most.changing / most.events:.1%} of the events are not ignorable, and {DEAR}",
                spread_of(most),
                workload,
            )
        )
        found.append(
            Claim(
                placement,
                f"S-CN does not depend on the number of subscriptions (at most {FLAT}x)",
                f"{growth(ours):.2f}x",
                growth(ours) <= FLAT,
                "more subscriptions are at more gateways, so a change takes more frames",
                f"{number(costs[0].messages_changing)} to {number(costs[-1].messages_changing)}",
                workload,
                FLOODS if placement.startswith("can") else "",
            )
        )
        below_net, below_unicast = ([times(b, o) for o, b in zip(ours, those, strict=True)] for those in (net, unicast))
        found.append(
            Claim(
                placement,
                f"orders of magnitude below CN (at least {ORDERS:.0f}x)",
                f"{span(below_net)} (lean {span([lean_share() * ratio for ratio in below_net])})",
                min(below_net) >= ORDERS,
                DEAR,
                spread_of(most),
                workload,
            )
        )
        found.append(
            Claim(
                placement,
                f"orders of magnitude below S-UN (at least {ORDERS:.0f}x)",
                span(below_unicast),
                min(below_unicast) >= ORDERS,
                f"S-UN grows with the number of subscriptions, and {ORDERS:.0f}x needs many",
                _reached(lines, below_unicast),
                workload,
            )
        )
    return found


def _reached(lines: Sequence[Line], ratios: Sequence[float]) -> str:
    """From where on the ratio is large enough."""
    counts = sorted({line.subscriptions for line in lines})
    enough = [count for count, ratio in zip(counts, ratios, strict=True) if ratio >= ORDERS]
    return f"from {short(enough[0])} subscriptions on" if enough else f"not with {short(counts[-1])} either"
