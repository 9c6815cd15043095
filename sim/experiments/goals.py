"""What the traffic experiments aim at, judged from the lines of Figure 5.10, with the gateways placed by content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.bench.goals import Goal, short
from sim.experiments.claims import FLAT, NET, SERVER_NET, UNICAST, curve, growth, number, times
from sim.experiments.section import bytes_along

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.experiments.summary import Line

BY_CONTENT = ("can", "tree-content")
BYTES, STRESS = 100.0, 10.0
BELOW_NET, BELOW_UNICAST = 10.0, 100.0
SECONDS, MEMORY_BYTES = 600.0, 8e9
#: The size that time and memory are aimed at.
SIZE = (500_000, 300_000, 1_000)  # subscriptions, events and brokers at least


def goals(lines: Sequence[Line]) -> list[Goal]:
    """All aims that these lines can judge; those of time and memory only if a run was large enough."""
    found: list[Goal] = []
    for workload in dict.fromkeys(line.workload for line in lines):
        mine = [line for line in lines if line.workload == workload]
        for placement in BY_CONTENT:
            if curve(mine, placement, SERVER_NET):
                found += _of(mine, workload, placement)
    return found + _effort(lines)


def _of(lines: Sequence[Line], workload: str, placement: str) -> list[Goal]:
    ours, net, unicast = (bytes_along(lines, placement, name) for name in (SERVER_NET, NET, UNICAST))
    costs = [line.cost for line in curve(lines, placement, SERVER_NET)]
    stress, worst = max(cost.node_stress for cost in costs), max(cost.node_stress_max for cost in costs)
    p99 = max(cost.node_stress_p99 for cost in costs)
    below_net = min(times(c, o) for o, c in zip(ours, net, strict=True))
    about = f"{workload}, {placement}"
    return [
        Goal(f"{about}: S-CN bytes per event", f"< {BYTES:.0f}", number(max(ours)), _under(max(ours), BYTES)),
        Goal(
            f"{about}: S-CN node stress, mean",
            f"< {STRESS:.0f}",
            f"{number(stress)} (p99 {p99:,})",
            _under(stress, STRESS),
        ),
        Goal(f"{about}: S-CN node stress, most", f"<= {STRESS:.0f}", f"{worst:,}", STRESS / max(worst, 1)),
        Goal(f"{about}: S-CN flat", f"<= {FLAT}x", f"{growth(ours):.2f}x", FLAT / growth(ours)),
        Goal(f"{about}: below CN", f">= {BELOW_NET:.0f}x", f"{below_net:,.1f}x", below_net / BELOW_NET),
        *_below_unicast(about, curve(lines, placement, SERVER_NET), unicast),
    ]


def _below_unicast(about: str, ours: Sequence[Line], unicast: Sequence[float]) -> list[Goal]:
    """At both ends: unicast grows with the subscriptions, so the two may be judged differently."""
    found = []
    for i in dict.fromkeys((0, len(ours) - 1)):
        ratio = times(unicast[i], ours[i].cost.bytes)
        name = f"{about}: below S-UN, {short(ours[i].subscriptions)} subscriptions"
        found.append(Goal(name, f">= {BELOW_UNICAST:.0f}x", f"{ratio:,.0f}x", ratio / BELOW_UNICAST))
    return found


def _effort(lines: Sequence[Line]) -> list[Goal]:
    large = [
        line
        for line in lines
        if line.subscriptions >= SIZE[0] and line.cost.events >= SIZE[1] and line.brokers >= SIZE[2]
    ]
    if not large:
        return []
    seconds, memory = max(line.seconds for line in large), max(line.memory_bytes for line in large)
    size = f"{short(large[0].subscriptions)} subscriptions x {short(large[0].cost.events)} events"
    return [
        Goal(f"{size}: time", f"< {SECONDS / 60:.0f} min", f"{seconds / 60:.1f} min", SECONDS / seconds),
        Goal(f"{size}: memory", f"< {MEMORY_BYTES / 1e9:.0f} GB", f"{memory / 1e9:.1f} GB", MEMORY_BYTES / memory),
    ]


def _under(value: float, limit: float) -> float:
    """The share reached, of an aim to stay strictly below a limit."""
    return limit / value if value > 0 and value != limit else (0.999 if value == limit else float("inf"))
