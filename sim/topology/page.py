"""How far generated topologies resemble INET's own and the real Internet: `topology.md`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hullcast.sim.output.charts import BLUE, GREEN, GREY, ORANGE, PINK, pyplot, save
from hullcast.sim.topology.comparison import GENERATED, PROGRAM, REAL, SOURCES, MeasuredTopology, TopologyComparison
from hullcast.sim.topology.graph import Topology
from hullcast.sim.topology.measures import FITTED, Measures, ccdf, slope


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure in words: how it is read off, shown, and what difference still counts as agreement."""

    name: str
    value: Callable[[Measures], float]
    form: str
    tolerance: float
    relative: bool  # a share of the other's value, or a difference

    def show(self, measures: Measures) -> str:
        """The value as text."""
        return self.form.format(self.value(measures))

    def agrees(self, ours: Measures, other: Measures) -> bool:
        """Whether the two are as close as a reader may expect of another seed."""
        allowed = self.tolerance * (abs(self.value(other)) if self.relative else 1)
        return abs(self.value(ours) - self.value(other)) <= allowed


FIGURES = (
    Figure("mean degree", lambda m: m.mean_degree, "{:.2f}", 0.05, True),
    Figure("largest degree", lambda m: m.largest[0], "{:,.0f}", 0.1, True),
    Figure("share of degree 1", lambda m: m.degree_one_share, "{:.1%}", 0.02, False),
    Figure("degree exponent", lambda m: m.ccdf_slope, "{:.2f}", 0.05, False),
    Figure("mean path", lambda m: m.mean_path, "{:.2f}", 0.1, False),
    Figure("clustering", lambda m: m.clustering, "{:.2f}", 0.03, False),
)
COLUMNS = (
    *("topology", "nodes", "links", "mean degree", "largest degrees", "degree 1", "exponent", "mean path"),
    "clustering",
)


def write_page(comparison: TopologyComparison, folder: Path) -> list[Path]:
    """Write `topology.md` and its pictures; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    page, chart, plane = (folder / name for name in ("topology.md", "topology.png", "topology_plane.png"))
    draw_comparison(comparison, chart)
    draw_plane(comparison.ours.topology, plane)
    page.write_text(_page(comparison), encoding="utf-8")
    return [page, chart, plane]


def row(label: str, measures: Measures) -> tuple[str, ...]:
    """A topology as cells under COLUMNS."""
    largest = ", ".join(f"{degree:,}" for degree in measures.largest)
    degree, _, one, *rest = (figure.show(measures) for figure in FIGURES)
    return (label, f"{measures.nodes:,}", f"{measures.links:,}", degree, largest, one, *rest)


def verdict(ours: MeasuredTopology, other: MeasuredTopology) -> str:
    """A sentence: where the two agree, and where and how they differ."""
    told: dict[bool, list[str]] = {True: [], False: []}
    for figure in FIGURES:
        values = f"{figure.show(ours.measures)} : {figure.show(other.measures)}"
        told[figure.agrees(ours.measures, other.measures)].append(f"{figure.name} ({values})")
    parts = [
        f"they {verb} in {', '.join(told[agree])}"
        for agree, verb in ((True, "agree"), (False, "differ"))
        if told[agree]
    ]
    return f"**{ours.label} : {other.label}**: " + "; ".join(parts) + "."


def _page(comparison: TopologyComparison) -> str:
    lines = [
        "# Generated topologies, INET's own and the real Internet",
        "",
        'The generator follows the formulas of J. Winick, S. Jamin, "Inet-3.0: Internet Topology Generator" '
        f"(University of Michigan, 2002), here called INET-3.0. A network of {comparison.ours.topology.nodes:,} nodes "
        "stands beside the output of the original program and beside graphs of the Internet's autonomous systems. "
        "Each of those has a generated twin with as many nodes, since the formulas depend on that number.",
        "",
        "![degrees and paths](topology.png)",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---|" + "--:|" * (len(COLUMNS) - 1),
        *("| " + " | ".join(row(one.label, one.measures)) + " |" for one in comparison.listed()),
        "",
        "## Where they agree, and where not",
        "",
    ]
    for other, twin in zip(comparison.others, comparison.twins, strict=True):
        lines += [f"- {verdict(twin, other)}"]
    if not comparison.others:
        lines += ["- There is nothing to compare with: none of the known graphs was found."]
    lines += [f"- {_spread(comparison)}"]
    lines += [f"- {sentence}" for sentence in _meaning(comparison)]
    if comparison.missing:
        lines += [f"- Not found, hence not shown: {', '.join(comparison.missing)}."]
    lines += [
        "",
        "## How it is measured",
        "",
        f"- Degree exponent: slope of log P(degree > d) over log d, by least squares over the degrees from {FITTED[0]} "
        f"to {FITTED[1]} that occur. Degree 1 has a law of its own, and above {FITTED[1]} single hubs bend the line.",
        f"- Mean path: links between two nodes, from {SOURCES:,} random sources to all nodes. Latencies play no part.",
        "- Clustering: mean, over the nodes of degree > 1, of the share of pairs of neighbours that are linked.",
        "- Two figures agree if they differ by no more than "
        + ", ".join(f"{_allowed(figure)} ({figure.name})" for figure in FIGURES)
        + ".",
        "",
        "![the network in its plane](topology_plane.png)",
        "",
    ]
    return "\n".join(lines)


def _spread(comparison: TopologyComparison) -> str:
    def ends(figure: Figure) -> str:
        low, high = (choose(comparison.seeds, key=figure.value) for choose in (min, max))
        shown = figure.show(low), figure.show(high)
        return f"{figure.name} {shown[0]}" + (f" to {shown[1]}" if shown[1] != shown[0] else "")

    return f"Over {len(comparison.seeds)} seeds: " + ", ".join(ends(figure) for figure in FIGURES) + "."


def _meaning(comparison: TopologyComparison) -> list[str]:
    """What the differences do to a simulation, for each real graph."""
    sentences = []
    for other, twin in zip(comparison.others, comparison.twins, strict=True):
        links = twin.measures.mean_path / other.measures.mean_path
        if other.kind != PROGRAM and abs(links - 1) > 0.05:
            longer, more = ("shorter", "fewer") if links < 1 else ("longer", "more")
            sentences.append(
                f"Paths of the model are {abs(1 - links):.0%} {longer} than in {other.label}: expect about that much "
                f"{more} bytes times physical links. What brokers send does not depend on the length of paths."
            )
    return sentences


def _allowed(figure: Figure) -> str:
    if figure.relative:
        return f"{figure.tolerance:.0%}"
    return f"{figure.tolerance * 100:g} points" if "%" in figure.form else f"{figure.tolerance:g}"


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
