"""The control: the same workload over the Internet's AS graph of 2006 instead of a generated topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.sim.bench.goals import short
from hullcast.sim.experiments.claims import (
    NET,
    SERVER_NET,
    UNICAST,
    Claim,
    cost_at,
    factor,
    number,
    placements_of,
    times,
)
from hullcast.sim.experiments.inputs import AS_GRAPH, market_trace
from hullcast.sim.experiments.networks import WITH_GREEDY
from hullcast.sim.experiments.section import Section
from hullcast.sim.experiments.stage import Point
from hullcast.sim.experiments.subscriptions import Law
from hullcast.sim.experiments.summary import write_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hullcast.sim.experiments.settings import FigureSettings
    from hullcast.sim.experiments.stage import Stage
    from hullcast.sim.experiments.summary import Line

ALIKE = 1.5  # a ratio of two approaches may differ so much between the two topologies


def steps(settings: FigureSettings) -> int:
    """How many steps it takes."""
    return 3


def run(stage: Stage, settings: FigureSettings, data: Path) -> Section:
    """Replay the calibrated market over both topologies, with the fewest subscriptions of 5.10."""
    given = market_trace(stage, settings)
    law, count = Law().over(given.domain), settings.growing[0]
    lines: list[Line] = []
    # The first is a step of 5.10 as well: the same name and settings, so it is replayed once.
    for name, topology in ((f"5.10-{given.name}-{short(count)}", None), ("control-as-2006", data / AS_GRAPH)):
        point = Point(name, given.workload, count, given.trace, law, count, WITH_GREEDY, topology)
        lines += stage.measure(point).lines
    table = stage.folder.folder / "control.parquet"
    write_lines(lines, table)
    names = list(dict.fromkeys(line.topology for line in lines))
    approaches = (SERVER_NET, NET, UNICAST)
    figures = [[f"bytes x links: {', '.join(names)}", *approaches]]
    for placement in placements_of(lines):
        costs = [[cost_at(_on(lines, name), placement, approach, count) for name in names] for approach in approaches]
        figures.append([placement, *(", ".join(number(cost.byte_links) for cost in pair) for pair in costs)])
    return Section(
        "control",
        "Control: the AS graph of 2006-07-22",
        f"{given.workload}, {short(count)} subscriptions, the same number of brokers, over both topologies. "
        "Nodes of the AS graph have no places; they are drawn in the same plane.",
        "uses INET only. What it says should not depend on the generator.",
        claims(lines, count),
        [table],
        [],
        [figures],
    )


def claims(lines: Sequence[Line], count: int) -> list[Claim]:
    """Whether ratios of bytes times links are alike on both topologies."""
    found = []
    names = list(dict.fromkeys(line.topology for line in lines))
    for placement in placements_of(lines):
        for approach in (NET, UNICAST):
            ratio = []
            for name in names:
                ours, theirs = (cost_at(_on(lines, name), placement, a, count) for a in (SERVER_NET, approach))
                ratio.append(times(theirs.byte_links, ours.byte_links))
            apart = max(ratio) / min(ratio) if min(ratio) > 0 else float("inf")
            found.append(
                Claim(
                    placement,
                    f"{approach} / S-CN in bytes x links is similar on both (at most {ALIKE}x apart)",
                    ", ".join(factor(value) for value in ratio),
                    apart <= ALIKE,
                    f"the two differ by {apart:.2f}x",
                )
            )
    return found


def _on(lines: Sequence[Line], topology: str) -> list[Line]:
    return [line for line in lines if line.topology == topology]
