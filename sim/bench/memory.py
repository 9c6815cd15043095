"""Memory of a table with one range-MIN channel, each size in a process of its own.

A process that held a larger table before has free memory to fill, so that its growth would say too little.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from dataclasses import dataclass

from hullcast.clients.cli.processes.child import environment
from hullcast.network.wire.errors import HullcastError, UsageError
from hullcast.sim.bench.subjects import engine_of
from hullcast.sim.traces.table51 import RANGE_MIN, Workload

WARM_ROWS = 100  # loaded first, so that compiled code and imports are not counted


class MemoryNotMeasured(HullcastError):
    """The process that should have measured failed."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes a row: what the engine counts, and what the process grew by."""

    rows: int
    counted: float
    resident: float


def measure_memory(rows: int, seed: int) -> Memory:
    """What so many rows take, in a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "hullcast.sim.bench.memory", str(rows), str(seed)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MemoryNotMeasured(f"measuring the memory of {rows:,} rows failed: {last}")
    counted, resident = json.loads(done.stdout)
    return Memory(rows, counted / rows, resident / rows)


def check_psutil() -> None:
    """UsageError if memory cannot be measured."""
    _resident()


def _resident() -> int:
    try:
        import psutil
    except ImportError:
        raise UsageError("memory is measured with psutil; install it with: pip install 'hullcast[bench]'") from None
    return int(psutil.Process().memory_info().rss)


def _measure_here(rows: int, seed: int) -> tuple[int, int]:
    """(bytes the engine counts, bytes the process grew by)."""
    engine_of(Workload(WARM_ROWS, root=seed).rows).open_channel(RANGE_MIN)
    load = Workload(rows, root=seed)
    gc.collect()
    before = _resident()
    engine = engine_of(load.rows)
    engine.open_channel(RANGE_MIN)
    gc.collect()
    return engine.memory_bytes(), max(0, _resident() - before)


if __name__ == "__main__":
    print(json.dumps(_measure_here(int(sys.argv[1]), int(sys.argv[2]))))
