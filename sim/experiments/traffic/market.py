"""The market: Figure 5.10 (traffic by subscriptions), node stress, and another topology as control.

The market is a calibrated synthetic one, and real prices if given. The control replays it over a real network, such as
the Internet's AS graph of 2006, instead of a generated topology.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from hullcast.sim import XIE
from hullcast.sim.experiments.data import NetworkFile, Prices
from hullcast.sim.experiments.steps import fingerprint
from hullcast.sim.experiments.traffic.charts import draw_curves, draw_stress
from hullcast.sim.experiments.traffic.goals import BYTES, STRESS, bounded
from hullcast.sim.experiments.traffic.inputs import Input, market_trace, real_traces, spreads
from hullcast.sim.experiments.traffic.judging import (
    APPROACHES,
    CITED,
    DEAR,
    FLAT,
    FLOODS,
    NET,
    SERVER_NET,
    UNICAST,
    bytes_along,
    curve,
    figures_of,
    flat_net,
    grew,
    judged,
    lean_note,
    lean_share,
    leaner,
    linear_unicast,
    placements_of,
    spread_of,
)
from hullcast.sim.experiments.traffic.networks import WITH_GREEDY, Law
from hullcast.sim.experiments.traffic.replays import Measured, Point, Replays
from hullcast.sim.experiments.traffic.settings import FigureSettings
from hullcast.sim.experiments.traffic.summary import Stress, TrafficLine, write_lines, write_stress
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, factor_span, growth, middle, number, short, span, times

EVENTS, STOCKS, NOT_IGNORABLE = 338_415, 3_053, 0.117  # of the trace of Xie (2007)
ORDERS = 100.0  # "orders of magnitude" are two at least
ALIKE = 1.5  # a ratio of two approaches may differ so much between the two topologies


@dataclass(frozen=True, slots=True)
class MarketRun:
    """All lines of 5.10, and the distribution of stress in its largest run of the first workload."""

    inputs: list[Input]
    lines: list[TrafficLine]
    stress: list[Stress]

    @property
    def named(self) -> str:
        """Which workloads a figure shows: titles say so, for none of them is the original one."""
        several = "s" if len(self.inputs) > 1 else ""
        return f"workload{several}: {'; '.join(given.workload for given in self.inputs)}"

    def of(self, given: Input, lines: Sequence[TrafficLine] | None = None) -> list[TrafficLine]:
        """The lines of one workload."""
        return [line for line in (self.lines if lines is None else lines) if line.workload == given.workload]


def market_steps(settings: FigureSettings, prices: Prices | None) -> int:
    """How many steps 5.10 takes."""
    real = 0 if prices is None else len(spreads(prices)) if prices.fundamentals.is_local else 2
    return (1 + real) * (1 + len(settings.growing))


def _replay(replays: Replays, given: Input, count: int, name: str = "", topology: Path | None = None) -> Measured:
    """A workload with so many subscriptions; without a name it is 5.10's step, which is replayed once."""
    law, name = Law().over(given.domain), name or f"5.10-{given.name}-{short(count)}"
    return replays.measure(Point(name, given.workload, count, given.trace, law, count, WITH_GREEDY, topology))


def market_inputs(replays: Replays, settings: FigureSettings, prices: Prices | None) -> list[Input]:
    """The workloads of 5.10. Real prices first: what is wrong with them is then said before anything is replayed."""
    real = real_traces(replays, settings, prices) if prices is not None else []
    return [market_trace(replays, settings), *real]


def measure_market(replays: Replays, settings: FigureSettings, inputs: list[Input]) -> MarketRun:
    """Replay each workload with each number of subscriptions; CAN's greedy entry with all of them as well."""
    found = [[_replay(replays, given, count) for count in settings.growing] for given in inputs]
    lines = [line for those in found for measured in those for line in measured.lines]
    return MarketRun(inputs, lines, found[0][-1].stress)


def market_section(replays: Replays, found: MarketRun) -> Section:
    """Figure 5.10."""
    folder, inputs, lines = replays.run.folder.folder, found.inputs, found.lines
    table, picture, links = folder / "fig_5_10.parquet", folder / "fig_5_10.png", folder / "fig_5_10_links.png"
    write_lines(lines, table)
    rows = [(given.workload, found.of(given)) for given in inputs]
    source = f"Reproduces Figure 5.10 of {XIE}, with another workload: the original one is not available"
    draw_curves(
        rows,
        picture,
        title=f"Figure 5.10: traffic by the number of subscriptions; {found.named}",
        y_label="bytes per event (log)",
        value=lambda line: line.cost.bytes,
        x_label="subscriptions",
        goal=(BYTES, f"goal: S-CN below {BYTES:.0f}"),
        source=source,
    )
    draw_curves(
        rows,
        links,
        title=f"Figure 5.10 in the physical network: bytes times links; {found.named}",
        x_label="subscriptions",
        source=source,
        y_label="bytes x links per event (log)",
        value=lambda line: line.cost.byte_links,
    )
    real, lean = (
        [
            claim
            for given in inputs
            for claim in judged(found.of(given, those), partial(market_claims, workload=given.workload))
        ]
        for those in (lines, leaner(lines))
    )
    shown: list[list[str]] = []
    for given in inputs:
        mine = figures_of(found.of(given), lambda line: f"{short(line.subscriptions)} subscriptions")
        shown += [["workload", *mine[0]]] if not shown else []
        shown += [[given.workload, *row] for row in mine[1:]]
    return Section(
        "5.10",
        f"Figure 5.10: traffic by the number of subscriptions; {found.named}",
        "Xie (2007) replays prices of real stocks, which are not available; the workloads here stand in for them. "
        f"{' '.join(given.about for given in inputs)} x is RECO, the mean recommendation of analysts (1 to "
        "5), y is PER, price / earnings. Subscriptions as in Table 5.1, scaled to RECO's 1 to 5.",
        "S-CN stays under 100 bytes per event on average and does not depend on the number of subscriptions; it is "
        "orders of magnitude below CN and S-UN. S-UN degrades linearly; CN is constant.",
        real,
        [table],
        {
            "Bytes per event between brokers by subscriptions, a row for each workload": picture,
            "Bytes per event times the physical links they cross, by subscriptions": links,
        },
        [workloads_table(found), shown],
        [*(given.note for given in inputs if given.note), lean_note(real, lean)],
        CITED,
        ("Figure 5.10",),
    )


def workloads_table(found: MarketRun) -> list[list[str]]:
    """The trace of Xie (2007) beside ours."""
    rows = [
        ["trace", "events", "stocks", "not ignorable"],
        ["Xie (2007)", f"{EVENTS:,}", f"{STOCKS:,}", f"{NOT_IGNORABLE:.1%}"],
    ]
    for given in found.inputs:
        cost = found.of(given)[0].cost
        rows.append([given.workload, f"{cost.events:,}", f"{given.stocks:,}", f"{cost.changing / cost.events:.1%}"])
    return rows


def market_claims(lines: Sequence[TrafficLine], workload: str) -> list[Claim]:
    """The statements of Xie (2007), for each placement."""
    found = []
    for placement in placements_of(lines):
        ours, net, unicast = bytes_along(lines, placement, SERVER_NET, NET, UNICAST)
        costs = [line.cost for line in curve(lines, placement, SERVER_NET)]
        most = costs[ours.index(max(ours))]
        each = [times(b, n) for n, b in zip(sorted({line.subscriptions for line in lines}), unicast, strict=True)]
        alone = FLOODS if placement.startswith("can") else ""
        below_net, below_unicast = ([times(b, o) for o, b in zip(ours, those, strict=True)] for those in (net, unicast))
        found += [
            Claim(
                placement,
                f"S-CN takes under {BYTES:.0f} bytes",
                span(ours),
                max(ours) < BYTES,
                f"{most.changing / most.events:.1%} of the events are not ignorable, and {DEAR}",
                spread_of(most),
                workload,
                value=max(ours),
                paper="less than 100",
            ),
            Claim(
                placement,
                f"S-CN does not depend on the number of subscriptions (at most {FLAT}x)",
                grew(growth(ours)),
                growth(ours) <= FLAT,
                "more subscriptions are at more gateways, so a change takes more frames",
                f"{number(costs[0].messages_changing)} to {number(costs[-1].messages_changing)}",
                workload,
                alone,
                value=growth(ours),
                form=grew,
                paper="independent",
            ),
            Claim(
                placement,
                f"orders of magnitude below CN (at least {ORDERS:.0f}x)",
                f"{factor_span(below_net)} (lean {factor_span([lean_share() * ratio for ratio in below_net])})",
                min(below_net) >= ORDERS,
                DEAR,
                spread_of(most),
                workload,
                value=min(below_net),
                form=factor,
                paper="orders of magnitude",
            ),
            Claim(
                placement,
                f"orders of magnitude below S-UN (at least {ORDERS:.0f}x)",
                factor_span(below_unicast),
                min(below_unicast) >= ORDERS,
                f"S-UN grows with the number of subscriptions, and {ORDERS:.0f}x needs many",
                _reached(lines, below_unicast),
                workload,
                value=min(below_unicast),
                form=factor,
                paper="orders of magnitude",
            ),
            replace(flat_net(placement, net, alone), workload=workload),
            replace(linear_unicast(placement, each, "subscription"), workload=workload),
        ]
    return found


def _reached(lines: Sequence[TrafficLine], ratios: Sequence[float]) -> str:
    """From where on the ratio is large enough."""
    counts = sorted({line.subscriptions for line in lines})
    enough = [count for count, ratio in zip(counts, ratios, strict=True) if ratio >= ORDERS]
    return f"from {short(enough[0])} subscriptions on" if enough else f"not with {short(counts[-1])} either"


def stress_section(replays: Replays, found: MarketRun) -> Section:
    """Node stress: the most frames that one broker sends for an event."""
    folder, given, fanout = replays.run.folder.folder, found.inputs[0], replays.settings.fanout
    table, picture = folder / "node_stress.parquet", folder / "node_stress.png"
    write_stress(found.stress, table)
    largest = max(line.x for line in found.lines)
    title = f"Node stress: {given.workload}, {short(largest)} subscriptions"
    draw_stress(found.stress, picture, title=title, goal=STRESS, fanout=fanout)
    lines = [line for line in found.of(given) if line.x == largest]
    return Section(
        "stress",
        "Node stress",
        f"The largest run of 5.10, {given.workload}: the most frames that one broker sends for one event (0 where an "
        "event sends none). With S-UN the server sends all frames. The Parquet has the distributions, that of 5.10 "
        "link stress.",
        "Node stress of S-CN never rises above 10.",
        judged(lines, lambda mine: [stress_claim(line, fanout) for line in mine if line.cost.approach == SERVER_NET]),
        [table],
        {"Share of events by node stress, a panel for each placement": picture},
        [_stress_table(lines)],
        cited=CITED,
        items=("Figure 5.10, node stress",),
    )


def _stress_table(lines: Sequence[TrafficLine]) -> list[list[str]]:
    """Mean, p99 and most of the node stress of each approach; of S-CN and CN also the link stress.

    Of several draws: the median of the means, the greatest p99 and the most of all.
    """
    links = (SERVER_NET, NET)
    rows = [["mean / p99 / most", *APPROACHES, *(f"links: {name}" for name in links)]]
    for placement in placements_of(lines):
        cells = []
        for kind, approach in (*(("node", name) for name in APPROACHES), *(("link", name) for name in links)):
            costs = [line.cost for line in curve(lines, placement, approach)]
            mean, p99, most = ([getattr(c, f"{kind}_stress{end}") for c in costs] for end in ("", "_p99", "_max"))
            cells.append(f"{number(median(mean))} / {max(p99):,} / {max(most):,}")
        rows.append([placement, *cells])
    return rows


def stress_claim(line: TrafficLine, fanout: int) -> Claim:
    """That no event makes a broker send more frames; in a tree of a small fanout it cannot."""
    cost = line.cost
    mean, most = number(cost.node_stress), cost.node_stress_max
    once = f"one event made a broker send {most:,} frames, though the mean is {mean}"
    return Claim(
        cost.placement,
        f"node stress of S-CN never above {STRESS:.0f}",
        f"most {most:,} (mean {mean}, p99 {cost.node_stress_p99:,})",
        most <= STRESS,
        DEAR if cost.node_stress >= STRESS else once,
        spread_of(cost),
        construction=bounded(cost.placement, fanout, most),
        value=most,
        form="{:,.0f}".format,
        paper="never above 10",
    )


def control_section(replays: Replays, settings: FigureSettings, file: NetworkFile) -> Section:
    """The calibrated market over both topologies, with the fewest subscriptions of 5.10."""
    given, count = market_trace(replays, settings), settings.growing[0]
    lines = _replay(replays, given, count).lines
    # Which columns of the file are read is no setting of the run, so that a control can be added to one: the step's
    # name has it.
    name = f"control-{fingerprint({'columns': file.columns})[:8]}" if file.columns else "control"
    real = Replays(replays.run, replace(replays.settings, columns=file.columns))
    lines += _replay(real, given, count, name, file.path).lines
    table = replays.run.folder.folder / "control.parquet"
    write_lines(lines, table)
    compared = APPROACHES[:3]
    figures = [[f"bytes x links: {', '.join(dict.fromkeys(line.topology for line in lines))}", *compared]]
    for placement in placements_of(lines):
        cells = [[_byte_links(mine, placement, name) for mine in _by_topology(lines)] for name in compared]
        figures.append([placement, *(", ".join(map(middle, pair)) for pair in cells)])
    return Section(
        "control",
        f"Control: {file.label}",
        f"{given.workload}, {short(count)} subscriptions, the same number of brokers, over both topologies. "
        "Nodes without places in the file are placed at random in the same plane.",
        "uses INET only. What it says should not depend on the generator.",
        judged(lines, control_claims),
        [table],
        figures=[figures],
    )


def _by_topology(lines: Sequence[TrafficLine]) -> list[list[TrafficLine]]:
    return [
        [line for line in lines if line.topology == name] for name in dict.fromkeys(line.topology for line in lines)
    ]


def control_claims(lines: Sequence[TrafficLine]) -> list[Claim]:
    """Whether ratios of bytes times links are alike on both topologies."""
    found = []
    for placement in placements_of(lines):
        ours = _byte_links(lines, placement, SERVER_NET)
        for approach in (NET, UNICAST):
            theirs = _byte_links(lines, placement, approach)
            ratio = [times(their, our) for their, our in zip(theirs, ours, strict=True)]
            apart = growth(ratio)
            statement = f"{approach} / S-CN in bytes x links is similar on both (at most {ALIKE}x apart)"
            told = ", ".join(factor(value) for value in ratio)
            because = f"the two differ by {apart:.2f}x"
            found.append(Claim(placement, statement, told, apart <= ALIKE, because, value=apart, form=grew))
    return found


def _byte_links(lines: Sequence[TrafficLine], placement: str, approach: str) -> list[float]:
    """Of each topology, in the order of the lines."""
    mine = (line.cost for line in lines)
    return [cost.byte_links for cost in mine if (cost.placement, cost.approach) == (placement, approach)]
