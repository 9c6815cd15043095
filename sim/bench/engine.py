"""The engine's benchmark: its sections, the machine they ran on, and the goals, as one report."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.tables import RowsSection, SubscriptionsSection, by_rows, by_subscriptions
from hullcast.sim.bench.throughput import TYPES, ThroughputSection, throughput
from hullcast.sim.bench.timing import process_of
from hullcast.sim.output.goals import Goal
from hullcast.sim.output.text import short

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = 1  # of the JSON file; raised when a reader would have to change

#: Goals.
KERNEL_RATE = 2e6
ENGINE_RATE = 5e5
SINGLE_US = 60.0
GROWTH = 1.5
UNICAST = 10.0
NOISE = 1.05  # a ratio this close to 1 is no growth that this machine can show

#: The sections, in order, and what each one shows.
SECTIONS = {
    "rows": "Table 5.2, Figure 5.6: messages and time by the number of rows",
    "subscriptions": "Table 5.3, Figure 5.7: messages and time by the number of subscriptions",
    "throughput": "throughput by batch size and subscription type, latency, memory",
}


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Sizes. More rounds: steadier medians. More updates a round: steadier counts of messages (spikes are rare)."""

    rows: tuple[int, ...] = (10_000, 20_000, 40_000, 60_000, 80_000, 100_000, 1_000_000)
    subscriptions: int = 500_000  # for the sweep over rows
    fewest_rows: int = 10_000  # for the sweep over subscriptions
    sweep: tuple[int, ...] = (100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000)
    rounds: int = 15
    updates: int = 50_000  # a round, for S-CN
    unicast_updates: int = 5_000  # a round, for S-UN
    batch: int = 1_000
    batches: tuple[int, ...] = (1, 10, 100, 1_000, 10_000)
    types_rows: int = 100_000
    single_updates: int = 5_000
    curve: tuple[int, ...] = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
    curve_seconds: float = 0.4
    requeries: int = 200
    seed: int = 0


FULL = EngineSettings()
QUICK = EngineSettings(
    rows=(10_000, 100_000, 1_000_000),
    sweep=(100_000, 500_000, 1_000_000),
    rounds=5,
    updates=20_000,
    unicast_updates=3_000,
    single_updates=2_000,
    curve_seconds=0.15,
    requeries=50,
)


@dataclass(frozen=True, slots=True)
class EngineReport:
    """Everything that was measured. A section is None when it was not asked for."""

    machine: dict[str, Any]
    settings: EngineSettings
    rows: RowsSection | None
    subscriptions: SubscriptionsSection | None
    throughput: ThroughputSection | None
    goals: tuple[Goal, ...]


def run(
    settings: EngineSettings, only: Collection[str] = (), tick: Callable[[str], None] = lambda what: None
) -> EngineReport:
    """Measure the sections asked for, all if none is named."""
    unknown = set(only) - set(SECTIONS)
    if unknown:
        raise UsageError(f"no section {min(unknown)!r}; sections: {', '.join(SECTIONS)}")
    wanted = set(only) or set(SECTIONS)
    if "throughput" in wanted:
        process_of()  # or memory cannot be measured; better said before measuring than after
    here = machine()
    rows = by_rows(settings, tick) if "rows" in wanted else None
    subscriptions = by_subscriptions(settings, tick) if "subscriptions" in wanted else None
    speed = throughput(settings, tick) if "throughput" in wanted else None
    return EngineReport(here, settings, rows, subscriptions, speed, _goals(rows, subscriptions, speed))


def steps(settings: EngineSettings, only: Collection[str] = ()) -> int:
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


def to_json(report: DataclassInstance) -> dict[str, Any]:
    """The report of any benchmark as plain values, goals with their verdict."""
    goals = {"goals": [goal.plain() for goal in report.goals]} if hasattr(report, "goals") else {}
    return {"format": FORMAT, **asdict(report), **goals}


def write_json(report: DataclassInstance, path: Path) -> None:
    """Write the report of any benchmark to a file; UsageError where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(to_json(report), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _goals(
    rows: RowsSection | None, subscriptions: SubscriptionsSection | None, speed: ThroughputSection | None
) -> tuple[Goal, ...]:
    """The aims that the sections measured can judge."""
    found = _goals_of_rows(rows) if rows is not None else []
    if subscriptions is not None:
        first, last = subscriptions.lines[0], subscriptions.lines[-1]
        aim = f"S-CN time, {short(first.subscriptions)} to {short(last.subscriptions)} subscriptions"
        told = f"{last.growth.median:.2f}x, q1 {last.growth.q1:.2f}x"
        # q1, the lower quartile: growth is measurable when three rounds of four show it
        found.append(Goal(aim, f"<= {NOISE:.2f}x", told, NOISE / last.growth.q1))
    if speed is not None:
        us, target = speed.single_us, f"< {SINGLE_US:.0f} us"
        found.append(Goal("single-row upsert, median", target, f"{us:.1f} us", SINGLE_US / us))
    return tuple(found)


def _goals_of_rows(section: RowsSection) -> list[Goal]:
    middle = min(section.lines, key=lambda line: abs(line.rows - 100_000))
    first, last = section.lines[0], section.lines[-1]
    at, span = f"at {short(middle.rows)} rows", f"{short(first.rows)} to {short(last.rows)} rows"

    def fast(aim: str, us: float, target: float) -> Goal:
        return Goal(f"{aim} {at}", f">= {short(target)}/s", f"{short(1e6 / us)}/s", 1e6 / us / target)

    def flat(aim: str, growth: float) -> Goal:
        return Goal(f"S-CN time, {aim}, {span}", f"<= {GROWTH}x", f"{growth:.2f}x", GROWTH / growth)

    found = [fast("S-CN kernel", middle.kernel_us, KERNEL_RATE)] if middle.kernel_us is not None else []
    found.append(fast("Engine.upsert with columns", middle.engine_us, ENGINE_RATE))
    found.append(flat("engine", last.growth.median))
    found += [flat("kernel", last.kernel_growth.median)] if last.kernel_growth is not None else []
    dearer, subs = middle.unicast_ratio.median, short(middle.subscriptions)
    aim = f"S-UN / S-CN {at}, {subs} subs"
    return [*found, Goal(aim, f">= {UNICAST:.0f}x", f"{dearer:.1f}x", dearer / UNICAST)]
