"""The picture of `bench peers`: CPU per update, by peer and cell, and by connections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hullcast.sim.bench.peers.report import OURS, REFERENCE, PeerFigures, crossing, sweep
from hullcast.sim.output.charts import BLUE, DPI, GREEN, GREY, INK, ORANGE, PINK, pyplot, save
from hullcast.sim.output.text import short

COLOURS = {
    "hullcast": GREEN,
    "hullcast-nodes": "#56B4E9",
    "nats": ORANGE,
    "jetstream": "#E69F00",
    "redis": BLUE,
    "redis-streams": "#332288",
    "postgres": PINK,
    "sqlite": GREY,
    "pathway": INK,
    "deephaven": "#999933",
}


def draw_peers(found: PeerFigures, path: Path) -> Path:
    """CPU by cell, and by connections."""
    cells = [cell for cell in found.settings.cells if found.summaries(cell.name)]
    curves = sweep(found)
    panels = 2 if curves else 1
    size = (2.4 + 3.6 * panels + 0.8 * len(cells), 5.4)
    widths = (2, 1)[:panels]
    figure, axes = pyplot().subplots(
        1, panels, figsize=size, dpi=DPI, layout="constrained", width_ratios=widths, squeeze=False
    )
    left = axes[0, 0]
    _bars(left, found, [cell.name for cell in cells])
    if curves:
        _curves(axes[0, 1], curves)
    figure.suptitle(f"one job by every peer: CPU of all processes per update, {found.settings.rows:,} rows")
    handles, labels = left.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return save(figure, path)


def _bars(axes: Any, figures: PeerFigures, cells: list[str]) -> None:
    peers = list(dict.fromkeys(line.peer for line in figures.lines))
    least = np.inf
    width = 0.8 / max(1, len(peers))
    for number, peer in enumerate(peers):
        found = [figures.summaries(cell).get(peer) for cell in cells]
        heights = [line.cpu_us if line and line.cpu_us else np.nan for line in found]
        least = np.nanmin([least, *heights])
        places = np.arange(len(cells)) + (number - (len(peers) - 1) / 2) * width
        bars = axes.bar(places, heights, width, color=COLOURS.get(peer, INK), label=peer)
        for bar, line in zip(bars, found, strict=True):
            if line and (line.wrong or line.kept_up is False):
                bar.set_hatch("//")  # wrong answers, or it did not keep up
                bar.set_edgecolor("white")
    axes.set_yscale("log")
    if np.isfinite(least):
        axes.set_ylim(bottom=10 ** np.floor(np.log10(least) - 0.1))  # the shortest bar has a length, too
    axes.set_xticks(np.arange(len(cells)), cells, rotation=30, ha="right")
    axes.set_ylabel("microseconds per update (log)")
    axes.set_title("hatched: fell behind, or wrong answers", fontsize=9.5)
    _plain_ticks(axes)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)


def _curves(axes: Any, curves: dict[str, list[tuple[int, float]]]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for peer, points in curves.items():
        connections, cpu = zip(*points, strict=True)
        axes.plot(connections, cpu, "o-", color=COLOURS.get(peer, INK))
        axes.set_xticks(connections, [short(x) for x in connections])
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    for ours in OURS:
        at = crossing(curves.get(ours, []), curves.get(REFERENCE, []))
        if at is not None and at > min(connections):  # else it crossed before the first point, if at all
            axes.axvline(at, ls=":", color=COLOURS[ours])
            text = f"{at:,.{int(at < 10)}f}"
            axes.annotate(text, (at, 0.02), xycoords=("data", "axes fraction"), color=COLOURS[ours])
    axes.set_xlabel("connections (log), 50 subscriptions each")
    _plain_ticks(axes)
    axes.grid(alpha=0.25)
    axes.set_title(f"single rows; dotted: from here on\nless CPU than {REFERENCE}", fontsize=9.5)


def _plain_ticks(axes: Any) -> None:
    """Label a logarithmic axis 1, 2, 5, 10, .."""
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:,g}" if f"{value:.0e}"[0] in "25" else "")
