"""What the traffic experiments aim at, judged from Figure 5.10 with gateways placed by content."""

from __future__ import annotations

from collections.abc import Sequence

from hullcast.sim.experiments.traffic.judging import (
    BY_CONTENT,
    FLAT,
    FLOODS,
    NET,
    SERVER_NET,
    UNICAST,
    by_draw,
    bytes_along,
    curve,
    lean_share,
)
from hullcast.sim.experiments.traffic.summary import TrafficLine
from hullcast.sim.output.goals import Goal, goals_over_draws, share_under
from hullcast.sim.output.text import factor, growth, number, short, times
from hullcast.sim.overlay.tree import FANOUT

BYTES, STRESS = 100.0, 10.0
BELOW_NET, BELOW_UNICAST = 10.0, 100.0
SECONDS, MEMORY_BYTES = 600.0, 8e9
#: The size that time and memory are aimed at.
SIZE = (500_000, 300_000, 1_000)  # subscriptions, events and brokers at least
#: Goals of a whole run, not of a placement.
EFFORT = ("time", "memory")


def goals(lines: Sequence[TrafficLine], fanout: int = FANOUT) -> list[Goal]:
    """All aims that these lines can judge; those of time and memory only if a run was large enough."""
    return goals_over_draws([_of_draw(mine, fanout) for mine in by_draw(lines)]) + _effort(lines)


def _of_draw(lines: Sequence[TrafficLine], fanout: int) -> list[Goal]:
    found: list[Goal] = []
    for workload in dict.fromkeys(line.workload for line in lines):
        mine = [line for line in lines if line.workload == workload]
        for placement in BY_CONTENT:
            if curve(mine, placement, SERVER_NET):
                found += _of(mine, f"{workload}, {placement}", placement, fanout)
    return found


def bounded(placement: str, fanout: int, most: int) -> str:
    """Why the node stress of a placement could not be above its goal, if so."""
    if placement.startswith("tree") and most <= fanout < STRESS:
        return f"in a tree no broker sends more frames than it has children, {fanout} at most"
    return ""


def _of(lines: Sequence[TrafficLine], where: str, placement: str, fanout: int) -> list[Goal]:
    ours, net, unicast = bytes_along(lines, placement, SERVER_NET, NET, UNICAST)
    costs = [line.cost for line in curve(lines, placement, SERVER_NET)]
    stress, worst = max(cost.node_stress for cost in costs), max(cost.node_stress_max for cost in costs)
    mean = f"{number(stress)} (p99 {max(cost.node_stress_p99 for cost in costs):,})"
    below_net = min(times(c, o) for o, c in zip(ours, net, strict=True))
    lean = f"{factor(below_net)} (lean {factor(lean_share() * below_net)})"
    flat = FLOODS if placement.startswith("can") else ""
    limited = bounded(placement, fanout, worst)

    def goal(aim: str, target: str, measured: str, share: float, construction: str = "") -> Goal:
        return Goal(aim, target, measured, share, where, construction)

    found = [
        goal("S-CN bytes per event", f"< {BYTES:.0f}", number(max(ours)), share_under(max(ours), BYTES)),
        goal("S-CN node stress, mean", f"< {STRESS:.0f}", mean, share_under(stress, STRESS), limited),
        goal("S-CN node stress, most", f"< {STRESS:.0f}", f"{worst:,}", share_under(worst, STRESS), limited),
        goal("S-CN flat in subscriptions", f"<= {FLAT}x", f"{growth(ours):.2f}x", FLAT / growth(ours), flat),
        goal("below CN", f">= {BELOW_NET:.0f}x", lean, below_net / BELOW_NET),
    ]
    # At both ends: unicast grows with the subscriptions, so the two may be judged differently.
    points = curve(lines, placement, SERVER_NET)
    for i in dict.fromkeys((0, len(points) - 1)):
        ratio = times(unicast[i], ours[i])
        aim = f"below S-UN, {short(points[i].subscriptions)} subscriptions"
        found.append(goal(aim, f">= {BELOW_UNICAST:.0f}x", factor(ratio), ratio / BELOW_UNICAST))
    return found


def _effort(lines: Sequence[TrafficLine]) -> list[Goal]:
    large = [
        line
        for line in lines
        if line.subscriptions >= SIZE[0] and line.cost.events >= SIZE[1] and line.brokers >= SIZE[2]
    ]
    if not large:
        return []
    draws = len({line.draw for line in large})  # replayed in one pass, of which each has its part
    seconds, memory = max(line.seconds for line in large) / draws, max(line.memory_bytes for line in large)
    size = f"{short(large[0].subscriptions)} subscriptions x {short(large[0].cost.events)} events"
    cores = f"{size} on {max(line.cores for line in large)} cores"
    each = f" for each of {draws} networks" if draws > 1 else ""
    minutes, limit = f"{seconds / 60:.1f} min{each}", f"< {SECONDS / 60:.0f} min"
    gigabytes, most = f"{memory / 1e9:.1f} GB", f"< {MEMORY_BYTES / 1e9:.0f} GB"
    return [
        Goal("time", limit, minutes, share_under(seconds, SECONDS), cores),
        Goal("memory", most, gigabytes, share_under(memory, MEMORY_BYTES), size),
    ]
