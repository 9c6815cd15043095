"""Pictures of topologies as PNG files: degrees, paths, the plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.sim.output.charts import BLUE, GREEN, GREY, ORANGE, PINK, pyplot, save
from hullcast.sim.topology.comparison import GENERATED, PROGRAM, REAL
from hullcast.sim.topology.measures import FITTED, ccdf, slope

if TYPE_CHECKING:
    from pathlib import Path

    from hullcast.sim.topology.comparison import MeasuredTopology, TopologyComparison
    from hullcast.sim.topology.graph import Topology

COLOURS = {GENERATED: ORANGE, PROGRAM: "#111111", REAL: BLUE}
REALS = (BLUE, GREEN, PINK)
DPI = 140
HUB = 100  # from this degree on a node stands out in the plane


def draw_comparison(comparison: TopologyComparison, path: Path) -> None:
    """Three panels: degrees beside the program's, degrees beside the real Internet's, lengths of paths."""
    figure, (left, middle, right) = pyplot().subplots(1, 3, figsize=(15, 5), dpi=DPI, layout="constrained")
    program = [one for one in comparison.others if one.kind == PROGRAM]
    real = [one for one in comparison.others if one.kind == REAL]
    for one in program:
        _dots(left, one, COLOURS[PROGRAM], "o", 26)
    _dots(left, comparison.ours, COLOURS[GENERATED], ".", 16)
    _fit(left, comparison.ours)
    left.set_title("Degrees: generated" + (" and INET's own" if program else ""))
    for one, colour in zip(real, REALS, strict=False):
        _dots(middle, one, colour, ".", 22)
    for other, twin in zip(comparison.others, comparison.twins, strict=True):
        if real and other is real[0]:
            degree, share = ccdf(twin.topology.degrees())
            middle.plot(degree[:-1], share[:-1], color=COLOURS[GENERATED], linewidth=1.6, label=twin.label)
    middle.set_title("Degrees: generated and the real Internet" if real else "Degrees: no real graph was given")
    for axes in (left, middle):
        axes.set(xscale="log", yscale="log", xlabel="degree d", ylabel="share of nodes with degree > d")
        axes.set_ylim(top=1.5)
    _paths(right, [comparison.ours, *program, *real[:1]])
    for axes in (left, middle, right):
        axes.grid(True, which="major", axis="y" if axes is right else "both", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.title.set_fontweight("bold")
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=9)
    save(figure, path)


def draw_plane(topology: Topology, path: Path) -> None:
    """The network in its plane: links as hairs, nodes as dots that grow with their degree."""
    from matplotlib.collections import LineCollection

    figure, axes = pyplot().subplots(figsize=(8, 8.5), dpi=DPI, layout="constrained")
    degrees = topology.degrees()
    places = np.stack((topology.x, topology.y), axis=1)
    ends = np.stack((places[topology.source], places[topology.target]), axis=1)
    hair = float(np.clip(2_000 / max(topology.links, 1), 0.03, 0.8))
    axes.add_collection(LineCollection(list(ends), colors="#35506b", linewidths=0.12, alpha=hair, zorder=1))
    order = np.argsort(degrees, kind="stable")  # the largest on top
    size = 0.5 + 0.12 * degrees[order]
    hub = degrees[order] >= HUB
    axes.scatter(*places[order][~hub].T, s=size[~hub], c=REALS[0], alpha=0.8, linewidths=0, zorder=2)
    axes.scatter(
        *places[order][hub].T,
        s=size[hub],
        c=COLOURS[GENERATED],
        alpha=0.9,
        edgecolors="white",
        linewidths=0.8,
        zorder=3,
    )
    title = f"{topology.name}: {topology.nodes:,} nodes, {topology.links:,} links"
    axes.set_title(f"{title}\nareas grow with degrees; orange from degree {HUB} on")
    axes.set_aspect("equal")
    axes.margins(0.01)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#cccccc")
    save(figure, path)


def _dots(axes: Any, one: MeasuredTopology, colour: str, marker: str, size: float) -> None:
    degree, share = ccdf(one.topology.degrees())
    hollow = {"facecolors": "none", "edgecolors": colour} if marker == "o" else {"color": colour}
    axes.scatter(degree[:-1], share[:-1], s=size, marker=marker, label=one.label, linewidths=0.9, **hollow)


def _fit(axes: Any, one: MeasuredTopology) -> None:
    """The line whose slope is the degree exponent, where it was fitted."""
    degree, share = ccdf(one.topology.degrees())
    exponent = slope(degree, share)
    used = (degree >= FITTED[0]) & (degree <= FITTED[1])
    if np.isnan(exponent):
        return
    middle = np.exp(np.mean(np.log(share[used][:-1])) - exponent * np.mean(np.log(degree[used][:-1])))
    ends = np.array(FITTED, np.float64)
    axes.plot(ends, 2.2 * middle * ends**exponent, color=GREY, linewidth=1.2)
    axes.annotate(f"slope {exponent:.2f}", (14, 2.6 * middle * 14**exponent), color=GREY, fontsize=10)


def _paths(axes: Any, shown: list[MeasuredTopology]) -> None:
    width = 0.8 / len(shown)
    for number, one in enumerate(shown):
        shares = one.hops[1:] / one.hops[1:].sum()
        at = np.arange(1, len(one.hops)) + (number - (len(shown) - 1) / 2) * width
        label = f"{one.label}: mean {one.measures.mean_path:.2f}"
        axes.bar(at, shares, width * 0.92, color=COLOURS[one.kind], label=label)
    axes.set(xlabel="links between two nodes", ylabel="share of pairs", title="Lengths of paths")
    longest = max(int(np.flatnonzero(one.hops >= 0.001 * one.hops.sum())[-1]) for one in shown)
    axes.set_xlim(0.4, longest + 0.6)
    axes.set_ylim(0, axes.get_ylim()[1] * (1 + 0.07 * len(shown)))  # room for the legend above the bars
