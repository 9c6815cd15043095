"""The engine's benchmark: its sections, the machine they ran on, and the goals, as one report."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.goals import goals
from hullcast.sim.bench.settings import SECTIONS
from hullcast.sim.bench.tables import by_rows, by_subscriptions
from hullcast.sim.bench.throughput import TYPES, throughput

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from hullcast.sim.bench.goals import Goal
    from hullcast.sim.bench.settings import Settings
    from hullcast.sim.bench.tables import RowsSection, SubscriptionsSection
    from hullcast.sim.bench.throughput import ThroughputSection

FORMAT = 1  # of the JSON file; raised when a reader would have to change


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was measured. A section is None when it was not asked for."""

    machine: dict[str, Any]
    settings: Settings
    rows: RowsSection | None
    subscriptions: SubscriptionsSection | None
    throughput: ThroughputSection | None
    goals: tuple[Goal, ...]


def run(settings: Settings, only: Collection[str] = (), tick: Callable[[str], None] = lambda what: None) -> Report:
    """Measure the sections asked for, all if none is named."""
    unknown = set(only) - set(SECTIONS)
    if unknown:
        raise UsageError(f"no section {min(unknown)!r}; sections: {', '.join(SECTIONS)}")
    wanted = set(only) or set(SECTIONS)
    here = machine()
    rows = by_rows(settings, tick) if "rows" in wanted else None
    subscriptions = by_subscriptions(settings, tick) if "subscriptions" in wanted else None
    speed = throughput(settings, tick) if "throughput" in wanted else None
    return Report(here, settings, rows, subscriptions, speed, goals(rows, subscriptions, speed))


def steps(settings: Settings, only: Collection[str] = ()) -> int:
    """How many times `run` will tick."""
    rounds = settings.rounds + 1
    counts = {
        "rows": len(settings.rows) + rounds,
        "subscriptions": len(settings.sweep) + rounds + len(settings.curve),
        "throughput": len(settings.rows) + len(settings.batches) + rounds + len(TYPES) + rounds,
    }
    return sum(counts[name] for name in (only or SECTIONS))


def machine() -> dict[str, Any]:
    """Where this runs: without it a figure means nothing."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def to_json(report: Report) -> dict[str, Any]:
    """The report as plain values, goals with their verdict."""
    plain = asdict(report)
    for goal, judged in zip(plain["goals"], report.goals, strict=True):
        goal["passed"] = judged.passed
    return {"format": FORMAT, **plain}


def write_json(report: Report, path: Path) -> None:
    """Write the report to a file; UsageError where that cannot be."""
    write_plain(to_json(report), path)


def write_plain(plain: dict[str, Any], path: Path) -> None:
    """Write plain values to a file as JSON; UsageError where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
