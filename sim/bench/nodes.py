"""Node size of the A2B-tree, measured: copies of the package that differ in INNER alone.

INNER is a constant that the compiler folds into every address, so each size is another program: a copy in a
temporary folder, with a cache of compiled code of its own.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import hullcast
from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.subjects import kernel_subject
from hullcast.sim.bench.timing import Subject, in_turns, measured_apart, us
from hullcast.sim.traces.table51 import Workload

PACKAGE = Path(hullcast.__file__).parent
NODES = Path("broker/index/nodes.py")
INNER = re.compile(r"^INNER = (\d+)$", re.MULTILINE)
SIZES = (8, 16, 32, 48, 64)
ROWS = (10_000, 100_000, 1_000_000)
BATCH = 1_000


@dataclass(frozen=True, slots=True)
class NodeSize:
    """Nanoseconds an update, by rows, with one node size."""

    inner: int
    shipped: bool  # the size in the source as it is
    ns: dict[int, float]


def measure_nodes(
    sizes: Sequence[int] = SIZES,
    rows: Sequence[int] = ROWS,
    *,
    updates: int = 50_000,
    rounds: int = 7,
    visits: int = 2,
    seed: int = 0,
    tick: Callable[[str], None] = lambda what: None,
) -> tuple[NodeSize, ...]:
    """Visit every copy in turns, `visits` times; the median over all of a size's rounds."""
    shipped = _shipped()
    found: dict[int, dict[int, list[float]]] = {size: {n: [] for n in rows} for size in sizes}
    with _copies(sizes) as folders:
        for visit in range(visits):
            for size in sizes:
                tick(f"INNER = {size}" + ("" if visit else ", compiling"))
                for n, ns in _visit(folders[size], rows, updates, rounds, seed).items():
                    found[size][n].append(ns)
    return tuple(
        NodeSize(size, size == shipped, {n: median(values) for n, values in found[size].items()}) for size in sizes
    )


def kernel_ns(rows: Sequence[int], updates: int, rounds: int, seed: int) -> dict[int, float]:
    """Nanoseconds an update of the kernel, by rows, in this process."""
    subjects: dict[str, Subject] = {}
    for n in rows:
        load = Workload(n, root=seed)
        subjects[str(n)] = kernel_subject(load.rows, load.changes((rounds + 1) * updates), updates, BATCH)
    runs = in_turns(subjects, rounds, lambda what: None)
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


def _visit(folder: Path, rows: Sequence[int], updates: int, rounds: int, seed: int) -> dict[int, float]:
    environment = {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    argument = [list(rows), updates, rounds, seed]
    found = measured_apart(f"the copy {folder.name}", "hullcast.sim.bench.nodes", argument, environment, folder)
    return {int(n): float(ns) for n, ns in found.items()}


if __name__ == "__main__":
    print(json.dumps(kernel_ns(*json.loads(sys.argv[1]))))
