"""`hullcast bench nodes`: node size of the A2B-tree, measured: copies of the package that differ in INNER alone.

INNER is a constant that the compiler folds into every address, so each size is another program: a copy in a
temporary folder, with a cache of compiled code of its own.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import hullcast
from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.engine.subjects import kernel_subject
from hullcast.sim.bench.frame.benchmark import Benchmark, BenchOption, BenchSection, Shown, Tick, quietly
from hullcast.sim.bench.frame.timing import Subject, measured_apart, measured_in_turns, us
from hullcast.sim.output.text import plain_table
from hullcast.sim.traces.table51 import Workload

PACKAGE = Path(hullcast.__file__).parent
NODES = Path("broker/index/nodes.py")
INNER = re.compile(r"^INNER = (\d+)$", re.MULTILINE)
BATCH = 1_000


@dataclass(frozen=True, slots=True)
class NodeSizeSettings:
    """Sizes. Copies are visited in turns, `visits` times."""

    sizes: tuple[int, ...] = (8, 16, 32, 48, 64)  # entries of an inner node
    rows: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    updates: int = 50_000  # a round
    rounds: int = 7
    visits: int = 2
    seed: int = 0


@dataclass(frozen=True, slots=True)
class NodeSize:
    """Nanoseconds an update, by rows, with one node size."""

    inner: int
    shipped: bool  # the size in the source as it is
    ns: dict[int, float]


def measure_nodes(settings: NodeSizeSettings, tick: Tick) -> tuple[NodeSize, ...]:
    """The median over all of a size's rounds."""
    shipped = _shipped()
    found: dict[int, dict[int, list[float]]] = {size: {n: [] for n in settings.rows} for size in settings.sizes}
    with _copies(settings.sizes) as folders:
        for visit in range(settings.visits):
            for size in settings.sizes:
                tick(f"INNER = {size}" + ("" if visit else ", compiling"))
                for n, ns in _visit(folders[size], settings).items():
                    found[size][n].append(ns)
    middle = {size: {n: median(values) for n, values in of.items()} for size, of in found.items()}
    return tuple(NodeSize(size, size == shipped, of) for size, of in middle.items())


def node_tables(found: tuple[NodeSize, ...]) -> Iterator[Shown]:
    """Sizes by rows, the best in bold."""
    rows = list(found[0].ns)
    table = plain_table("S-CN kernel, ns an update", "entries of an inner node", *(f"{n:,} rows" for n in rows))
    best = {n: min(size.ns[n] for size in found) for n in rows}
    for size in found:
        cells = [f"[bold]{size.ns[n]:,.0f}[/]" if size.ns[n] == best[n] else f"{size.ns[n]:,.0f}" for n in rows]
        table.add_row(f"{size.inner}{' (as shipped)' if size.shipped else ''}", *cells)
    yield table


def kernel_ns(rows: Sequence[int], updates: int, rounds: int, seed: int) -> dict[int, float]:
    """Nanoseconds an update of the kernel, by rows, in this process."""
    subjects: dict[str, Subject] = {}
    for n in rows:
        load = Workload(n, root=seed)
        subjects[str(n)] = kernel_subject(load.rows, load.changes((rounds + 1) * updates), updates, BATCH)
    runs = measured_in_turns(subjects, rounds, quietly, "")
    return {n: 1e3 * us(runs[str(n)]) for n in rows}


def _shipped() -> int:
    match = INNER.search((PACKAGE / NODES).read_text(encoding="utf-8"))
    if match is None:
        raise UsageError(f"{NODES} has no line `INNER = <number>`: `bench nodes` cannot vary it")
    return int(match[1])


@contextmanager
def _copies(sizes: Sequence[int]) -> Iterator[dict[int, Path]]:
    """A copy of the packages for each size."""
    with TemporaryDirectory(prefix="hullcast-nodes-") as temporary:
        folders = {}
        for size in sizes:
            folders[size] = folder = Path(temporary) / f"inner-{size}"
            shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
            source = folder / PACKAGE.name / NODES
            source.write_text(INNER.sub(f"INNER = {size}", source.read_text(encoding="utf-8")), encoding="utf-8")
        yield folders


def _visit(folder: Path, settings: NodeSizeSettings) -> dict[int, float]:
    environment = {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    argument = [list(settings.rows), settings.updates, settings.rounds, settings.seed]
    found = measured_apart(f"the copy {folder.name}", "hullcast.sim.bench.nodes", argument, environment, folder)
    return {int(n): float(ns) for n, ns in found.items()}


NODE_SIZES = Benchmark(
    name="nodes",
    about="node size of the A2B-tree",
    description="Runs the S-CN kernel with several sizes of the tree's nodes, each in a separate process with its own "
    "copy of the package.",
    full=NodeSizeSettings(),
    quick=NodeSizeSettings(sizes=(16, 32), rows=(10_000, 100_000), updates=10_000, rounds=3, visits=1),
    quick_about="two sizes of nodes and of tables: some minutes, to compile them",
    options=(
        BenchOption("sizes", "entries of an inner node", 4, many=True),
        BenchOption("rows", "table sizes", many=True),
        BenchOption("updates", "updates a round"),
    ),
    sections=(
        BenchSection("nodes", "nanoseconds an update by node size", measure_nodes, node_tables,
                     steps=lambda settings: settings.visits * len(settings.sizes)),
    ),
)  # fmt: skip

if __name__ == "__main__":
    print(json.dumps(kernel_ns(*json.loads(sys.argv[1]))))
