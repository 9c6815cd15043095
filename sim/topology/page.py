"""The page that says how far generated topologies resemble INET's own and the real Internet: `topology.md`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.sim.topology.comparison import PROGRAM, SOURCES
from hullcast.sim.topology.drawing import draw_comparison, draw_plane
from hullcast.sim.topology.measures import FITTED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hullcast.sim.topology.comparison import MeasuredTopology, TopologyComparison
    from hullcast.sim.topology.measures import Measures


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
    "topology",
    "nodes",
    "links",
    "mean degree",
    "largest degrees",
    "degree 1",
    "exponent",
    "mean path",
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
    same = [figure for figure in FIGURES if figure.agrees(ours.measures, other.measures)]
    apart = [figure for figure in FIGURES if not figure.agrees(ours.measures, other.measures)]
    agree = ", ".join(
        f"{figure.name} ({figure.show(ours.measures)} : {figure.show(other.measures)})" for figure in same
    )
    differ = ", ".join(
        f"{figure.name} ({figure.show(ours.measures)} : {figure.show(other.measures)})" for figure in apart
    )
    parts = ([f"they agree in {agree}"] if same else []) + ([f"they differ in {differ}"] if apart else [])
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
