"""Figures 5.8 and 5.9: Table 5.1's workload by its shares of ignorable updates and of spikes.

A spike affects many subscriptions, so the second is traffic by the number of subscriptions that an update affects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from hullcast.sim import XIE
from hullcast.sim.experiments.traffic.charts import draw_curves
from hullcast.sim.experiments.traffic.inputs import table_trace
from hullcast.sim.experiments.traffic.judging import (
    AGGREGATED,
    CITED,
    DEAR,
    NEARLY_FLAT,
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
from hullcast.sim.experiments.traffic.networks import SHORT, Law
from hullcast.sim.experiments.traffic.replays import Point, Replays
from hullcast.sim.experiments.traffic.settings import FigureSettings
from hullcast.sim.experiments.traffic.summary import TrafficLine, write_lines
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, factor_span, growth, number, short, times
from hullcast.sim.overlay import PLACEMENTS
from hullcast.sim.traces.table51 import SHADOWS, Mix
from hullcast.sim.traffic.sizes import wire_sizes

CLOSE_TO_TEN = (8.0, 12.5)
#: Steps of the random walk (their deviation), and shares of inserts and deletes among events that are not ignorable.
#: Xie (2007) gives neither: with these a change of 50,000 rows has 1.37 rectangles, and 2.09 where y is drawn anew.
STEP, INSERTS, DELETES = 500.0, 0.05, 0.05


@dataclass(frozen=True, slots=True)
class Variant:
    """A way of changing rows."""

    name: str  # in names of steps
    workload: str  # in charts and tables
    about: str
    mix: Callable[[Mix], Mix]


def _walking(mix: Mix) -> Mix:
    others = 1.0 - mix.ignorable
    return replace(mix, step=STEP, inserts=INSERTS * others, deletes=DELETES * others)


VARIANTS = (
    Variant(
        "",
        "y drawn anew (our default)",
        "a change draws a new y, uniformly, which gives the numbers of messages in Tables 5.2 and 5.3",
        lambda mix: mix,
    ),
    Variant(
        "walk-",
        "random walk (as Xie 2007 describes it)",
        f"y takes a random step of deviation {STEP:g}, and {INSERTS:.0%} of the events that are not ignorable are "
        f"inserts, {DELETES:.0%} deletes; Xie (2007) names inserts, deletes and the walk, but neither shares nor steps",
        _walking,
    ),
)


def ignorable_section(replays: Replays, settings: FigureSettings) -> Section:
    """Figure 5.8: short ranges and no spikes."""
    mixes = {share: (f"ignorable-{share:.2f}", Mix(spikes=0.0, ignorable=share)) for share in settings.ignorable}
    return _section(
        replays,
        _replayed(replays, settings, "5.8", mixes, SHORT),
        "5.8",
        subject="ignorable updates",
        workload=f"{settings.subscriptions:,} subscriptions, ranges of x with midpoint N(5000, 10000) and length "
        f"N(50, 10), {settings.rows:,} rows, {settings.events:,} events a point, no spikes. Ignorable updates need "
        f"rows that share their x: at 0 % there are none, at all other points {SHADOWS:.0%} of the rows share the x of "
        "another, which makes a step between the first two points.",
        paper="CN is flat. S-UN does poorly, improves with the share of ignorable updates and eventually beats CN, "
        "which becomes worst. S-CN is best throughout.",
        claims=ignorable_claims,
        show=lambda line: f"{1 - line.cost.changing / line.cost.events:.0%} ignorable",
        by="the share of ignorable updates",
        title="traffic by the share of ignorable updates; workload: Table 5.1 with short ranges",
        x_label="ignorable updates",
        x_format=lambda share: f"{100 * share:.0f} %",
    )


def affected_section(replays: Replays, settings: FigureSettings) -> Section:
    """Figure 5.9."""
    mixes = {share: (f"spikes-{share:.3f}", Mix(spikes=share)) for share in settings.spikes}
    return _section(
        replays,
        _replayed(replays, settings, "5.9", mixes, Law()),
        "5.9",
        subject="affected subscriptions",
        workload=f"{settings.subscriptions:,} subscriptions of Table 5.1, {settings.rows:,} rows, {settings.events:,} "
        f"events a point; {min(settings.spikes):.1%} to {max(settings.spikes):.1%} of them are spikes: a row drops to "
        "the lowest y, and returns with the next event.",
        paper="S-UN is linear, CN flat, S-CN nearly flat and close to 10x below CN.",
        claims=affected_claims,
        show=lambda line: f"{number(line.cost.affected)} affected",
        by="the number of affected subscriptions",
        title=f"traffic by affected subscriptions, of {short(settings.subscriptions)}; workload: Table 5.1",
        x_label="affected subscriptions per event (log)",
        x=lambda line: line.cost.affected,
        x_log=True,
    )


def shares_steps(points: int) -> int:
    """How many steps so many points take: a trace and a replay of each variant."""
    return 2 * len(VARIANTS) * points


def _replayed(
    replays: Replays, settings: FigureSettings, figure: str, mixes: dict[float, tuple[str, Mix]], law: Law
) -> list[TrafficLine]:
    """One trace replayed for each variant and share; `mixes` are the names of the traces, and their updates."""
    lines: list[TrafficLine] = []
    for variant in VARIANTS:
        for share, (name, mix) in mixes.items():
            given = variant.name + name
            trace = table_trace(replays, given, settings.rows, settings.events, variant.mix(mix))
            step = f"{figure}-{variant.name}{name.partition('-')[2]}"
            point = Point(step, variant.workload, share, trace, law, settings.subscriptions, PLACEMENTS)
            lines += replays.measure(point).lines
    return lines


def _section(
    replays: Replays,
    lines: list[TrafficLine],
    figure: str,
    *,
    subject: str,
    workload: str,
    paper: str,
    claims: Callable[[Sequence[TrafficLine]], list[Claim]],
    show: Callable[[TrafficLine], str],
    by: str,
    title: str,
    **chart: Any,
) -> Section:
    """Draw the lines, and judge them, each variant by itself."""
    folder, stem = replays.run.folder.folder, f"fig_{figure.replace('.', '_')}"
    table, picture = folder / f"{stem}.parquet", folder / f"{stem}.png"
    write_lines(lines, table)
    variants = {variant: [line for line in lines if line.workload == variant.workload] for variant in VARIANTS}
    draw_curves(
        [(variant.workload, mine) for variant, mine in variants.items()],
        picture,
        title=f"Figure {figure}: {title}",
        source=f"Reproduces Figure {figure} of {XIE}",
        y_label="bytes between brokers per event (log)",
        value=lambda line: line.cost.bytes,
        **chart,
    )

    def judge(leaned: bool) -> list[Claim]:
        return [
            claim
            for variant, mine in variants.items()
            for claim in judged(leaner(mine) if leaned else mine, claims, variant.workload)
        ]

    found = judge(leaned=False)
    shown: list[list[str]] = []
    for variant, mine in variants.items():
        rows = figures_of(mine, show)
        rows[0][0] = f"{variant.workload}: {rows[0][0]}"
        shown += rows if not shown else [[f"**{rows[0][0]}**", *(len(rows[0]) - 1) * [""]], *rows[1:]]
    return Section(
        figure,
        f"Figure {figure}: {subject}",
        f"{workload} In two variants. " + " ".join(f"*{v.workload}*: {v.about}." for v in VARIANTS),
        paper,
        found,
        [table],
        {f"Bytes per event by {by}, a row of panels for each variant, a panel for each placement": picture},
        [differences(variants), shown],
        [lean_note(found, judge(leaned=True))],
        CITED,
        (f"Figure {figure}",),
    )


def differences(variants: Mapping[Variant, Sequence[TrafficLine]]) -> list[list[str]]:
    """What differs between the variants, before anything is sent: at the first point and at the last."""
    rows = [["variant", "rectangles per change", "affected subscriptions per event", "not ignorable"]]
    for variant, lines in variants.items():
        ends = [line.cost for line in (lines[0], lines[-1])]
        cells = (
            [number(times(cost.rectangles * cost.events, cost.changing)) for cost in ends],
            [number(cost.affected) for cost in ends],
            [f"{cost.changing / cost.events:.0%}" for cost in ends],
        )
        rows.append([variant.workload, *(", ".join(dict.fromkeys(pair)) for pair in cells)])
    return rows


def ignorable_claims(lines: Sequence[TrafficLine]) -> list[Claim]:
    """The statements about Figure 5.8, for each placement."""
    found = []
    for placement in placements_of(lines):
        net, unicast = bytes_along(lines, placement, NET, UNICAST)
        falls = all(later <= 1.05 * former for former, later in pairwise(unicast)) and unicast[-1] < unicast[0]
        less = times(unicast[0], unicast[-1])
        told = f"by {factor(less)}, from {number(unicast[0])} to {number(unicast[-1])} bytes"
        found += [
            flat_net(placement, net),
            _crossing(lines, placement),
            Claim(placement, "S-UN improves", told, falls, "it does not fall from point to point",
                  value=less, form=factor, paper="improves"),
            *_best(lines, placement),
        ]  # fmt: skip
    return found


def _crossing(lines: Sequence[TrafficLine], placement: str) -> Claim:
    """The shape of the original figure: S-UN is above CN at first, and CN above all others at last."""
    ours, net, unicast = bytes_along(lines, placement, SERVER_NET, NET, UNICAST)
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
        value=ratio[0],
        form=factor,
        paper="eventually beats CN, which becomes worst",
    )


def _best(lines: Sequence[TrafficLine], placement: str) -> list[Claim]:
    ours, net, unicast, bundled = bytes_along(lines, placement, SERVER_NET, NET, UNICAST, AGGREGATED)
    lower = [min(pair) for pair in zip(net, unicast, strict=True)]
    found = []
    for statement, others, paper in (
        ("S-CN is best throughout, of CN and S-UN (these / S-CN)", lower, "best"),
        ("(ours) S-CN is below S-UN aggregated too (this / S-CN)", bundled, ""),
    ):
        ratios = [times(other, mine) for mine, other in zip(ours, others, strict=True)]
        at = min(range(len(ratios)), key=ratios.__getitem__)
        told, spread = f"at least {factor(ratios[at])}", spread_of(curve(lines, placement, SERVER_NET)[at].cost)
        holds, least = ratios[at] > 1.0, ratios[at]
        found.append(Claim(placement, statement, told, holds, DEAR, spread, value=least, form=factor, paper=paper))
    return found


def affected_claims(lines: Sequence[TrafficLine]) -> list[Claim]:
    """The four statements about Figure 5.9, for each placement."""
    found = []
    for placement in placements_of(lines):
        ours, net, unicast = bytes_along(lines, placement, SERVER_NET, NET, UNICAST)
        affected = [line.cost.affected for line in curve(lines, placement, UNICAST)]
        each = [times(b, a) for a, b in zip(affected, unicast, strict=True)]
        first, last = (curve(lines, placement, SERVER_NET)[i].cost for i in (0, -1))
        below = [times(c, o) for c, o in zip(net, ours, strict=True)]
        rise, grown = times(ours[-1] - ours[0], unicast[-1] - unicast[0]), times(ours[-1], ours[0])
        low, high = CLOSE_TO_TEN
        found += [
            linear_unicast(placement, each, "affected", "S-UN sends a frame of one size for each"),
            flat_net(placement, net),
            Claim(
                placement,
                f"S-CN is nearly flat (1/{NEARLY_FLAT}x to {NEARLY_FLAT}x)",
                f"grows by {grown:.2f}x, {rise:.1%} of S-UN's rise in bytes",
                1 / NEARLY_FLAT <= grown <= NEARLY_FLAT,
                "a spike to the bottom affects every range that holds its x, as every event of CN does; affected "
                f"subscriptions grow by {growth(affected):.1f}x, and so do the frames of a change",
                f"{number(first.messages_changing)} to {number(last.messages_changing)}",
                value=grown,
                form=grew,
                paper="increases very slightly",
            ),
            Claim(
                placement,
                f"S-CN is close to 10x below CN ({low:g}x to {high:g}x)",
                f"{factor_span(below)} (lean {factor_span([lean_share() * ratio for ratio in below])})",
                low <= min(below) and max(below) <= high,
                DEAR if min(below) < low else "CN costs more: each row goes to all gateways with a range around it",
                spread_of(last if min(below) < low else curve(lines, placement, NET)[0].cost),
                value=min(below) if min(below) < low else max(below),
                form=factor,
                paper="close to an order of magnitude",
            ),
        ]
    return found
