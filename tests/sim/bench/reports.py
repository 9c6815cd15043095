"""A report of a benchmark as its page would get it, with figures that are made up."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from hullcast.sim.bench.frame.benchmark import Benchmark, BenchReport
from hullcast.sim.bench.frame.report import show
from hullcast.sim.output.goals import Goal

HERE = {"cpu": "a CPU", "cores": 2, "load": [0.1], "python": "3.11", "numba": "1", "others_cores": 0.0}


def report_of(benchmark: Benchmark[Any], settings: Any, **found: Any) -> BenchReport:
    """As if these sections had been measured, with the goals that follow."""
    goals = [
        goal
        for section in benchmark.sections
        if section.name in found
        for goal in section.goals(found[section.name])
        if isinstance(goal, Goal)
    ]
    return BenchReport(benchmark, HERE, settings, found, tuple(goals))


def shown(report: BenchReport, width: int = 120) -> str:
    """What the terminal shows."""
    text = StringIO()
    show(report, Console(file=text, width=width))
    return text.getvalue()
