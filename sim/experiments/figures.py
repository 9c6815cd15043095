"""`hullcast sim figures`: all experiments in order, each from its steps, and the report."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments import affected, control, ignorable, real, scaling
from hullcast.sim.experiments.goals import goals as judge
from hullcast.sim.experiments.inputs import check_data
from hullcast.sim.experiments.networks import frame_sizes
from hullcast.sim.experiments.report import write_report
from hullcast.sim.experiments.settings import SECTIONS
from hullcast.sim.experiments.stage import Stage
from hullcast.sim.experiments.steps import RunFolder, write_text
from hullcast.sim.experiments.summary import read_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from hullcast.sim.experiments.goals import TrafficGoal
    from hullcast.sim.experiments.section import Section
    from hullcast.sim.experiments.settings import FigureSettings
    from hullcast.sim.experiments.stage import Progress


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run found, and what of it was there before."""

    sections: list[Section]
    goals: list[TrafficGoal]
    report: Path
    reused: list[str]


def steps(settings: FigureSettings, asked: Sequence[str], data: Path | None) -> int:
    """How many steps all of it takes."""
    count = {
        "5.8": ignorable.steps(settings),
        "5.9": affected.steps(settings),
        "5.10": real.steps(settings, data),
        "stress": 0 if "5.10" in asked else real.steps(settings, data),
        "control": control.steps(settings) if data is not None else 0,
        "scaling": scaling.steps(),
    }
    return 2 + sum(count[name] for name in asked)  # the network, Spark, and each section's


def run_figures(
    settings: FigureSettings,
    asked: Sequence[str],
    out: Path,
    progress: Progress,
    *,
    data: Path | None = None,
    master: str | None = None,
    resume: bool = False,
    spark: SparkSession | None = None,
) -> Figures:
    """Do what is asked for, and write the report about it."""
    if data is not None:
        check_data(data)
    with (
        RunFolder(out, settings.plain() | frame_sizes(), resume=resume) as folder,
        Stage(folder, settings.network, progress, master=master, spark=spark) as stage,
    ):
        stage.prepare()
        sections, found = _sections(stage, settings, asked, data)
        goals = judge(found.lines, settings.network.fanout) if found is not None else []
        minutes = _minutes(folder)
        left_out = [f"{name}: {SECTIONS[name]} (not asked for)" for name in SECTIONS if name not in asked]
        if data is None:
            left_out.append("Real prices, EPS and recommendations, and the AS graph of 2006: no --data was given.")
        report = out / "report.md"
        write_text(report, write_report(settings, sections, goals, left_out, minutes))
        return Figures(sections, goals, report, folder.reused)


def _sections(
    stage: Stage, settings: FigureSettings, asked: Sequence[str], data: Path | None
) -> tuple[list[Section], real.RealRun | None]:
    sections: list[Section] = []
    found: real.RealRun | None = None
    if "5.8" in asked:
        sections.append(ignorable.run(stage, settings))
    if "5.9" in asked:
        sections.append(affected.run(stage, settings))
    if "5.10" in asked or "stress" in asked:
        found = real.measure(stage, settings, data)
    if found is not None and "5.10" in asked:
        sections.append(real.section(stage, settings, found))
    if found is not None and "stress" in asked:
        sections.append(real.stress_section(stage, found))
    if "control" in asked and data is not None:
        sections.append(control.run(stage, settings, data))
    if "scaling" in asked:
        sections.append(scaling.run(stage, settings))
    return sections, found


def _minutes(folder: RunFolder) -> float:
    """Of replay, in all steps there are, whenever they were made."""
    seconds = 0.0
    for path in (place / "lines.parquet" for place in folder.finished_steps()):
        if path.is_file():
            with suppress(UsageError):  # damaged, and of a section that nobody asks for now
                seconds += sum(line.seconds for line in read_lines([path])[:1])
    return seconds / 60
