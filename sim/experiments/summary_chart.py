"""The chart of one replay: bytes and node stress of each approach, by placement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.sim.bench.goals import short
from hullcast.sim.experiments.charts import DPI, INK, STYLES, TITLES, pyplot, save
from hullcast.sim.experiments.claims import SERVER_NET, UNICAST, placements_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Any

    from hullcast.sim.experiments.summary import Line


#: Whose figures stand above the dots; the others' stand below, so that neighbours do not overlap.
ABOVE = (SERVER_NET, UNICAST)


def draw_summary(lines: Sequence[Line], path: Path) -> Path:
    """Dots on logarithmic scales, one row a placement: bytes per event on the left, node stress on the right."""
    plot = pyplot()
    placements = placements_of(lines)[::-1]
    size = (11.0, 1.5 + 0.62 * len(placements))
    figure, (left, right) = plot.subplots(1, 2, figsize=size, dpi=DPI, sharey=True, layout="constrained")
    _dots(left, lines, placements, lambda line: line.cost.bytes)
    _dots(right, lines, placements, lambda line: line.cost.node_stress)
    left.set_xlabel("bytes between brokers per event (log)")
    right.set_xlabel("mean node stress: frames of the busiest broker (log)")
    left.set_yticks(range(len(placements)), [TITLES.get(name, name) for name in placements])
    left.set_ylim(-0.6, len(placements) - 0.4)
    figure.legend(handles=_handles(plot, lines), loc="outside upper center", ncols=4, frameon=False)
    return save(plot, figure, path)


def _dots(axes: Any, lines: Sequence[Line], placements: Sequence[str], value: Callable[[Line], float]) -> None:
    for row, placement in enumerate(placements):
        mine = [line for line in lines if line.cost.placement == placement]
        values = [value(line) for line in mine if value(line) > 0]
        if values:
            axes.plot((min(values), max(values)), (row, row), color="#dddddd", lw=2, zorder=1)
        for line in mine:
            if value(line) > 0:
                colour, mark, _ = STYLES[line.cost.approach]
                axes.plot(value(line), row, mark, color=colour, ms=8, zorder=2)
                axes.annotate(
                    short(value(line)), (value(line), row), xytext=(0, 8 if line.cost.approach in ABOVE else -14),
                    textcoords="offset points", ha="center", fontsize=8, color=colour,
                )  # fmt: skip
    if axes.lines:
        axes.set_xscale("log")
    else:  # a logarithmic scale has no place for 0
        axes.set_xlim(0, 1)
        axes.text(0.5, 0.5, "0 everywhere", transform=axes.transAxes, ha="center", va="center", color=INK)
    axes.margins(x=0.1)
    axes.xaxis.set_major_formatter(lambda at, _: short(at))
    axes.grid(alpha=0.22, axis="x")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(colors=INK, length=0)


def _handles(plot: Any, lines: Sequence[Line]) -> list[Any]:
    """Of every approach that was replayed, also of one that costs nothing and so has no dot."""
    replayed = {line.cost.approach for line in lines}
    styles = [style for approach, style in STYLES.items() if approach in replayed]
    return [plot.Line2D([], [], color=colour, marker=mark, ls="", ms=8, label=name) for colour, mark, name in styles]
