"""What the report tells of node stress: a table of all approaches, and the claim about S-CN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.sim.experiments.claims import (
    AGGREGATED,
    DEAR,
    NET,
    SERVER_NET,
    UNICAST,
    Claim,
    number,
    placements_of,
    spread_of,
)
from hullcast.sim.experiments.goals import STRESS, bounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.sim.experiments.summary import Line


def stress_table(lines: Sequence[Line]) -> list[list[str]]:
    """Mean, p99 and most of the node stress of each approach; of S-CN and CN also the link stress."""
    approaches, links = (SERVER_NET, NET, UNICAST, AGGREGATED), (SERVER_NET, NET)
    rows = [["mean / p99 / most", *approaches, *(f"links: {name}" for name in links)]]
    for placement in placements_of(lines):
        cost = {line.cost.approach: line.cost for line in lines if line.cost.placement == placement}
        node = [
            f"{number(one.node_stress)} / {one.node_stress_p99:,} / {one.node_stress_max:,}"
            for one in (cost[name] for name in approaches)
        ]
        link = [
            f"{number(one.link_stress)} / {one.link_stress_p99:,} / {one.link_stress_max:,}"
            for one in (cost[name] for name in links)
        ]
        rows.append([placement, *node, *link])
    return rows


def stress_claim(line: Line, fanout: int) -> Claim:
    """That no event makes a broker send so many frames; in a tree of a small fanout it cannot."""
    cost = line.cost
    return Claim(
        cost.placement,
        f"node stress of S-CN below {STRESS:.0f}",
        f"most {cost.node_stress_max:,} (mean {number(cost.node_stress)}, p99 {cost.node_stress_p99:,})",
        cost.node_stress_max < STRESS,
        f"one event made a broker send {cost.node_stress_max:,} frames, though the mean is {number(cost.node_stress)}"
        if cost.node_stress < STRESS
        else DEAR,
        spread_of(cost),
        construction=bounded(cost.placement, fanout, cost.node_stress_max),
    )
