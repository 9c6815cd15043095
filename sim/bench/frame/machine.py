"""The machine that a benchmark runs on, and what processes use of it: the one place where CPU time is read."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from hullcast.network.wire.errors import UsageError

#: How long we look at what other programs use, before anything is measured.
LOOK_S = 1.0
_CPUCLOCK_SCHED = 2  # of the kernel: linux/posix-timers.h


def machine() -> dict[str, Any]:
    """Where this runs: without it a figure means nothing."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "numba": version("numba"),
        "numpy": version("numpy"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def process_of(pid: int | None = None) -> Any:
    """A process as psutil sees it, for its memory and CPU time; UsageError without psutil. None: this one."""
    try:
        import psutil
    except ImportError:
        raise UsageError("memory and CPU time need psutil; install it: pip install 'hullcast[bench]'") from None
    return psutil.Process(pid)


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process: Linux has a clock for it, psutil only counts ticks of 10 ms."""
    if sys.platform == "linux":
        with suppress(OSError):
            return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
    user, system = process_of(pid).cpu_times()[:2]
    return float(user + system)


def cpu_by_name(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU time so far of processes by name."""
    return {name: cpu_s(pid) for name, pid in pids.items()}


def below_s(pid: int) -> float:
    """CPU time of all processes below a process, those that ended included."""
    process = process_of(pid)
    own = process.cpu_times()
    below = own.children_user + own.children_system
    for child in process.children(recursive=True):
        times = child.cpu_times()
        below += sum(times[:2]) + times.children_user + times.children_system
    return float(below)


def write_and_sync(descriptor: int, size_bytes: int = 200) -> None:
    """Have some bytes more on disk, as a server does with its log."""
    os.write(descriptor, bytes(size_bytes))
    os.fdatasync(descriptor)


def busy_cores_s() -> float:
    """Seconds of CPU that everything on this machine has used so far."""
    import psutil

    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def others_cores(seconds: float) -> float:
    """Cores that other programs use now: to be asked before anything is started."""
    before, began = busy_cores_s(), monotonic()
    sleep(seconds)
    return (busy_cores_s() - before) / (monotonic() - began)
