"""CN at its leanest: the same statements judged again as if CN's row were packed as tightly as rectangles are.

Nobody sends such a frame; it is the least that CN could do with, so a statement that fails with it is one that hangs on
the wire format.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hullcast.sim.experiments.claims import NET
from hullcast.sim.traffic.sizes import wire_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.sim.experiments.claims import Claim
    from hullcast.sim.experiments.summary import Cost, Line


def lean_share() -> float:
    """A lean frame as a share of the real one: all frames of CN are alike, so its bytes are in proportion."""
    sizes = wire_sizes()
    return sizes.lean_row / sizes.row


def leaner(lines: Sequence[Line]) -> list[Line]:
    """The same lines, with CN's bytes as they would be; its messages and stress stay."""
    return [replace(line, cost=_lean(line.cost)) if line.cost.approach == NET else line for line in lines]


def _lean(cost: Cost) -> Cost:
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
