"""Generated topologies beside INET's own and the real Internet: which ones, and measured how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hullcast.network.wire.arrays import Ints
from hullcast.network.wire.errors import UsageError
from hullcast.sim.topology.files import read_topology
from hullcast.sim.topology.graph import Topology
from hullcast.sim.topology.inet import inet
from hullcast.sim.topology.measures import Measures, hop_counts, measure

GENERATED, PROGRAM, REAL = "generated", "program", "real"

#: What is looked for in the folder of real data: file, name on the page, kind.
KNOWN = (
    ("inet3_reference_n20000_seed0.txt.gz", "INET-3.0, the program", PROGRAM),
    ("as-22july06.edges.txt", "Internet, July 2006", REAL),
    ("oregon1_010331.txt", "Internet, March 2001", REAL),
    ("as20000102.txt", "Internet, January 2000", REAL),
)
STEPS = 1 + 2 * len(KNOWN)  # how often `compare` ticks
SEEDS = 5  # networks over which the generator's own spread is shown
SOURCES = 1_000  # nodes from which paths are measured


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredTopology:
    """One topology, measured."""

    label: str
    kind: str
    topology: Topology
    measures: Measures
    hops: Ints  # sampled pairs of nodes by their distance in links: 0, 1, 2 ..


@dataclass(frozen=True, slots=True, eq=False)
class TopologyComparison:
    """All that the page shows."""

    ours: MeasuredTopology  # as large as asked for
    seeds: tuple[Measures, ...]  # ours, and the same with the next seeds
    others: tuple[MeasuredTopology, ...]
    twins: tuple[MeasuredTopology, ...]  # to each of `others`, ours of the same size
    missing: tuple[str, ...]  # known files that are not there

    def listed(self) -> list[MeasuredTopology]:
        """Each subject once, twins after those they are compared with."""
        listed = [self.ours]
        for other, twin in zip(self.others, self.twins, strict=True):
            listed += [other] if twin is self.ours else [other, twin]
        return listed


def compare(
    data: Path | None,
    tick: Callable[[str], None],
    *,
    nodes: int = 20_000,
    root: int = 0,
    degree_one: float | None = None,
) -> TopologyComparison:
    """Generate, read what there is in the folder `data`, and measure all."""
    if data is not None and not data.is_dir():
        raise UsageError(f"{data} is not a folder; give the folder with the real graphs as --data")

    def generated(size: int) -> MeasuredTopology:
        return _measured(f"generated, {size:,} nodes", GENERATED, inet(size, root=root, degree_one=degree_one))

    tick(f"{SEEDS} networks of {nodes:,} nodes")
    ours = generated(nodes)
    more = (inet(nodes, root=root + seed, degree_one=degree_one) for seed in range(1, SEEDS))
    seeds = (ours.measures, *(measure(network, sources=SOURCES) for network in more))
    others: list[MeasuredTopology] = []
    twins: list[MeasuredTopology] = []
    for file, label, kind in KNOWN:
        tick(label)
        if data is not None and (data / file).exists():
            others.append(_measured(label, kind, read_topology(data / file, root=root, largest=True)))
        tick(f"{label}: a generated one as large")
        if len(others) > len(twins):
            size = others[-1].topology.nodes
            twins.append(ours if size == nodes else generated(size))
    missing = tuple(file for file, _, _ in KNOWN if data is None or not (data / file).exists())
    return TopologyComparison(ours, seeds, tuple(others), tuple(twins), missing)


def _measured(label: str, kind: str, topology: Topology) -> MeasuredTopology:
    measures = measure(topology, sources=SOURCES)
    return MeasuredTopology(label, kind, topology, measures, hop_counts(topology, sources=SOURCES))
