"""Judging lines of traffic charts: which lines there are, what is said of them, and CN at its leanest.

CN at its leanest: the same statements judged again as if CN's row were packed as tightly as rectangles are. Nobody
sends such a frame; it is the least that CN could do with, so a statement that fails with it is one that hangs on the
wire format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hullcast.sim.experiments.traffic.summary import EventCost, TrafficLine
from hullcast.sim.output.claims import Claim, over_draws
from hullcast.sim.output.text import growth, middle, number, span
from hullcast.sim.traffic.sizes import wire_sizes

SERVER_NET, UNICAST, AGGREGATED, NET = "S-CN", "S-UN", "S-UN aggregated", "CN"
CITED = "Xie (2007)"
APPROACHES = (SERVER_NET, NET, UNICAST, AGGREGATED)  # in the order of tables and charts
#: Growth up to which we call something flat, and nearly flat.
FLAT, NEARLY_FLAT = 1.25, 1.5
#: How far what each more takes may vary where something is called linear.
LINEAR = 1.1
#: Gateways by content: what the goals speak of.
BY_CONTENT = ("can", "tree-content")
#: Why some statements could not fail, and why some do.
FLOODS = "a CAN sends to all zones that a message meets, whether or not a subscription there is affected"
DEAR = "a change takes many frames to reach all gateways with an affected subscription"


def by_draw(lines: Iterable[TrafficLine]) -> list[list[TrafficLine]]:
    """The lines of each drawn network."""
    found: dict[int, list[TrafficLine]] = {}
    for line in lines:
        found.setdefault(line.draw, []).append(line)
    return [found[draw] for draw in sorted(found)]


def judged(
    lines: Sequence[TrafficLine], claims: Callable[[Sequence[TrafficLine]], list[Claim]], workload: str = ""
) -> list[Claim]:
    """The statements about these lines, judged for each drawn network."""
    found = over_draws([claims(mine) for mine in by_draw(lines)])
    return [replace(claim, workload=workload) for claim in found] if workload else found


def grew(value: float) -> str:
    """A growth, such as 1.04x: two decimals, for it is compared with 1.25 and the like."""
    return f"{value:.2f}x"


def curve(lines: Iterable[TrafficLine], placement: str, approach: str) -> list[TrafficLine]:
    """One line of a chart: by what the experiment varies."""
    mine = [line for line in lines if line.cost.placement == placement and line.cost.approach == approach]
    return sorted(mine, key=lambda line: line.x)


def bytes_along(lines: Sequence[TrafficLine], placement: str, *approaches: str) -> list[list[float]]:
    """Bytes per event along the lines of the chart."""
    return [[line.cost.bytes for line in curve(lines, placement, name)] for name in approaches]


def placements_of(lines: Iterable[TrafficLine]) -> list[str]:
    """Placements in the order of the design, as far as they were measured."""
    order = ("can", "can-greedy", "tree-content", "tree-nearest", "tree-random")
    there = {line.cost.placement for line in lines}
    return [name for name in order if name in there] + sorted(there - set(order))


def spread_of(cost: EventCost) -> str:
    """What makes a placement expensive: over how many overlay edges a change goes."""
    frame = cost.bytes_changing / cost.messages_changing if cost.messages_changing else 0.0
    return f"{number(cost.messages_changing)} frames of {number(frame)} bytes"


def flat_net(placement: str, net: Sequence[float], why: str = "what CN sends depends on a row's x alone") -> Claim:
    """That CN is flat."""
    varies, because = growth(net), "more subscriptions are at more gateways"
    return Claim(placement, "CN is flat", f"varies by {grew(varies)}", varies <= FLAT, because, construction=why,
                 value=varies, form=grew, paper="flat")  # fmt: skip


def linear_unicast(placement: str, each: Sequence[float], per: str, why: str = "") -> Claim:
    """That S-UN is linear: what it takes for each of those that there are more and more of."""
    varies, told = growth(each), f"{span(each)} bytes per {per}"
    return Claim(placement, "S-UN is linear", told, varies <= LINEAR, f"the cost of one more varies by {varies:.2f}x",
                 construction=why, value=varies, form=grew, paper="linear")  # fmt: skip


def figures_of(lines: Sequence[TrafficLine], show: Callable[[TrafficLine], str]) -> list[list[str]]:
    """Bytes per event of each approach by placement, at the first point and at the last; all are in the Parquet.

    Of several draws it is the median, and in brackets from where to where they go.
    """
    rows: list[list[str]] = []
    for placement in placements_of(lines):
        points = curve(lines, placement, SERVER_NET)
        if not rows:
            ends = " and at ".join(dict.fromkeys(show(points[i]) for i in (0, -1)))
            rows.append([f"bytes at {ends}", *APPROACHES])
        cells = []
        for approach in APPROACHES:
            mine = curve(lines, placement, approach)
            ends_x = dict.fromkeys((mine[0].x, mine[-1].x))
            cells.append(", ".join(middle([line.cost.bytes for line in mine if line.x == x]) for x in ends_x))
        rows.append([placement, *cells])
    return rows


def lean_share() -> float:
    """A lean frame as a share of the real one: all frames of CN are alike, so its bytes are in proportion."""
    sizes = wire_sizes()
    return sizes.lean_row / sizes.row


def leaner(lines: Sequence[TrafficLine]) -> list[TrafficLine]:
    """The same lines, with CN's bytes as they would be; its messages and stress stay."""
    return [replace(line, cost=_lean(line.cost)) if line.cost.approach == NET else line for line in lines]


def _lean(cost: EventCost) -> EventCost:
    names = ("bytes", "byte_links", "bytes_changing", "byte_links_changing")
    return replace(cost, **{name: getattr(cost, name) * lean_share() for name in names})


def lean_note(real: Sequence[Claim], lean: Sequence[Claim]) -> str:
    """Which verdicts would be others; the two lists hold the same statements in the same order."""
    sizes = wire_sizes()
    told: dict[str, dict[str, list[str]]] = {}
    for ours, other in zip(real, lean, strict=True):
        if ours.holds != other.holds:
            verb = "would hold" if other.holds else "would **not** hold"
            told.setdefault(f"*{ours.statement}* {verb}", {}).setdefault(ours.subject, []).append(ours.workload)
    everywhere = len({claim.workload for claim in real})
    changes = "; ".join(
        f"{what} for "
        + " and ".join(
            subject if len(of) == everywhere else f"{subject} ({'; '.join(of)})" for subject, of in where.items()
        )
        for what, where in told.items()
    )
    return (
        f"CN's frame has {sizes.row} bytes, as the engine sends a changed row; packed as tightly as messages of S-CN "
        f'it would have {sizes.lean_row} ("lean" above). With that frame '
        + (f"{changes}." if changes else "every verdict here would be the same.")
    )
