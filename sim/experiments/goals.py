"""What the traffic experiments aim at, judged from the lines of Figure 5.10, with the gateways placed by content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.sim.bench.goals import Goal, short
from hullcast.sim.experiments.claims import (
    BY_CONTENT,
    FLAT,
    FLOODS,
    NET,
    SERVER_NET,
    UNICAST,
    curve,
    factor,
    growth,
    number,
    times,
)
from hullcast.sim.experiments.lean import lean_share
from hullcast.sim.experiments.section import bytes_along
from hullcast.sim.overlay.tree import FANOUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.sim.experiments.summary import Line

BYTES, STRESS = 100.0, 10.0
BELOW_NET, BELOW_UNICAST = 10.0, 100.0
SECONDS, MEMORY_BYTES = 600.0, 8e9
#: The size that time and memory are aimed at.
SIZE = (500_000, 300_000, 1_000)  # subscriptions, events and brokers at least


@dataclass(frozen=True, slots=True)
class TrafficGoal(Goal):
    """A goal for one workload and placement (or for neither). What holds by construction is not counted as reached."""

    aim: str = ""
    where: str = ""  # workload and placement
    construction: str = ""  # why it could not be otherwise

    @property
    def given(self) -> bool:
        """Whether it is reached, but could not be otherwise."""
        return self.passed and bool(self.construction)


def goals(lines: Sequence[Line], fanout: int = FANOUT) -> list[TrafficGoal]:
    """All aims that these lines can judge; those of time and memory only if a run was large enough."""
    found: list[TrafficGoal] = []
    for workload in dict.fromkeys(line.workload for line in lines):
        mine = [line for line in lines if line.workload == workload]
        for placement in BY_CONTENT:
            if curve(mine, placement, SERVER_NET):
                found += _of(mine, f"{workload}, {placement}", placement, fanout)
    return found + _effort(lines)


def bounded(placement: str, fanout: int, most: int) -> str:
    """Why the node stress of a placement could not be above its goal, if so."""
    if placement.startswith("tree") and most <= fanout < STRESS:
        return f"in a tree no broker sends more frames than it has children, {fanout} at most"
    return ""


def _of(lines: Sequence[Line], where: str, placement: str, fanout: int) -> list[TrafficGoal]:
    ours, net, unicast = (bytes_along(lines, placement, name) for name in (SERVER_NET, NET, UNICAST))
    costs = [line.cost for line in curve(lines, placement, SERVER_NET)]
    stress, worst = max(cost.node_stress for cost in costs), max(cost.node_stress_max for cost in costs)
    p99 = max(cost.node_stress_p99 for cost in costs)
    below_net = min(times(c, o) for o, c in zip(ours, net, strict=True))
    lean = f"{factor(below_net)} (lean {factor(lean_share() * below_net)})"
    flat = FLOODS if placement.startswith("can") else ""
    limited = bounded(placement, fanout, worst)

    def goal(aim: str, target: str, measured: str, share: float, construction: str = "") -> TrafficGoal:
        return TrafficGoal(f"{where}: {aim}", target, measured, share, aim, where, construction)

    found = [
        goal("S-CN bytes per event", f"< {BYTES:.0f}", number(max(ours)), _under(max(ours), BYTES)),
        goal("S-CN node stress, mean", f"< {STRESS:.0f}", f"{number(stress)} (p99 {p99:,})", _under(stress, STRESS),
             limited),
        goal("S-CN node stress, most", f"< {STRESS:.0f}", f"{worst:,}", _under(worst, STRESS), limited),
        goal("S-CN flat in subscriptions", f"<= {FLAT}x", f"{growth(ours):.2f}x", FLAT / growth(ours), flat),
        goal("below CN", f">= {BELOW_NET:.0f}x", lean, below_net / BELOW_NET),
    ]  # fmt: skip
    # At both ends: unicast grows with the subscriptions, so the two may be judged differently.
    points = curve(lines, placement, SERVER_NET)
    for i in dict.fromkeys((0, len(points) - 1)):
        ratio = times(unicast[i], ours[i])
        aim = f"below S-UN, {short(points[i].subscriptions)} subscriptions"
        found.append(goal(aim, f">= {BELOW_UNICAST:.0f}x", factor(ratio), ratio / BELOW_UNICAST))
    return found


def _effort(lines: Sequence[Line]) -> list[TrafficGoal]:
    large = [
        line
        for line in lines
        if line.subscriptions >= SIZE[0] and line.cost.events >= SIZE[1] and line.brokers >= SIZE[2]
    ]
    if not large:
        return []
    seconds, memory = max(line.seconds for line in large), max(line.memory_bytes for line in large)
    size = f"{short(large[0].subscriptions)} subscriptions x {short(large[0].cost.events)} events"
    cores = f"{size} on {max(line.cores for line in large)} cores"
    return [
        TrafficGoal(
            f"{cores}: time", f"< {SECONDS / 60:.0f} min", f"{seconds / 60:.1f} min", _under(seconds, SECONDS), "time",
            cores,
        ),
        TrafficGoal(
            f"{size}: memory", f"< {MEMORY_BYTES / 1e9:.0f} GB", f"{memory / 1e9:.1f} GB",
            _under(memory, MEMORY_BYTES), "memory", size,
        ),
    ]  # fmt: skip


def told(goals: Sequence[TrafficGoal]) -> str:
    """How many are reached, which are missed and which could not be, in few sentences."""
    counted = [goal for goal in goals if not goal.given]
    parts = [f"{sum(goal.passed for goal in counted)} of {len(counted)} goals are reached."]
    missed = [goal for goal in counted if not goal.passed]
    if missed:
        aims = list(dict.fromkeys(goal.aim for goal in missed))
        parts.append("Missed: " + "; ".join(_grouped(aim, missed, goals) for aim in aims) + ".")
    reasons: dict[str, list[TrafficGoal]] = {}
    for goal in goals:
        if goal.given:
            reasons.setdefault(goal.construction, []).append(goal)
    if reasons:
        parts.append(
            "By construction, and so not counted: "
            + "; ".join(
                f"{' and '.join(dict.fromkeys(goal.aim for goal in of))} ({len(of)}: {why})"
                for why, of in reasons.items()
            )
            + "."
        )
    return " ".join(parts)


def _grouped(aim: str, missed: Sequence[TrafficGoal], goals: Sequence[TrafficGoal]) -> str:
    """`below S-UN, 100k subscriptions: 31x to 56x instead of >= 100x, all 6`."""
    mine = sorted((goal for goal in missed if goal.aim == aim), key=lambda goal: goal.share)
    ends = list(dict.fromkeys((mine[0].measured, mine[-1].measured)))
    asked = sum(goal.aim == aim for goal in goals)
    who = f"all {asked}" if len(mine) == asked else ", ".join(goal.where for goal in mine)
    return f"{aim}: {' to '.join(ends)} instead of {mine[0].target}" + (f", {who}" if asked > 1 else "")


def _under(value: float, limit: float) -> float:
    """The share reached, of an aim to stay strictly below a limit."""
    return limit / value if value > 0 and value != limit else (0.999 if value == limit else float("inf"))
