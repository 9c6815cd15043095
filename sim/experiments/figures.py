"""`hullcast sim figures`: the sections of a paper, each from its steps, and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pyspark.sql import SparkSession

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.data import RealData
from hullcast.sim.experiments.report import goals_text, write_report, write_reports
from hullcast.sim.experiments.run import ExperimentRun, StepProgress
from hullcast.sim.experiments.steps import RunFolder
from hullcast.sim.output.claims import Section
from hullcast.sim.output.goals import Goal
from hullcast.sim.spark.options import SparkOptions
from hullcast.sim.spark.session import DEFAULT, reaching
from hullcast.sim.spark.storage import Place, place_of

S = TypeVar("S")


@dataclass(frozen=True)  # without slots, which Python 3.11 cannot combine with `Paper[S](..)`
class Paper(Generic[S]):
    """A paper whose figures are reproduced. S: its settings, all that decides what is found (but not on which cores).

    Wherever `data` is asked for, it is the real data that the user gives; None: there is none.
    """

    cited: str  # in the report, such as "Xie (2007)"
    sections: Mapping[str, str]  # what `--only` takes, and what it means, in the order of the report
    full: S  # the sizes of the paper
    quick: S  # smaller ones, for a first look
    seeded: Callable[[S, int, int | None], S]  # the same settings with another seed, and so many draws (None: as many)
    plain: Callable[[S], dict[str, object]]  # the settings as names and values, to be compared and written down
    steps: Callable[[S, Sequence[str], RealData | None], int]  # how many steps the sections asked for take
    measure: Callable[[ExperimentRun, S, Sequence[str], RealData | None, bool], tuple[list[Section], list[Goal]]]
    begin: Callable[[S, RunFolder], list[str]]  # how the report begins: what was run, and its words
    effort: tuple[str, ...]  # aims of a whole run, such as its time
    no_goals: str  # said where no section that goals are judged from was asked for
    no_data: Mapping[str, str]  # what is left out without a part of the data (`RealData`'s fields)
    need_topology: tuple[str, ...] = ()  # sections that cannot do without one in a file

    def asked(self, only: Sequence[str], data: RealData | None) -> list[str]:
        """The sections asked for, in order; none asked for: all. UsageError for one that cannot be made."""
        for name in only:
            if name not in self.sections:
                raise UsageError(f"no section {name!r}; sections: {', '.join(self.sections)}")
            if name in self.need_topology and (data is None or data.topology is None):
                raise UsageError(f"{name} needs a real network; give one with --topology FILE, or --data DIR")
        return [name for name in self.sections if name in (only or self.sections)]


@dataclass(frozen=True, slots=True)
class FiguresFound:
    """What a run found, and what of it was there before."""

    sections: list[Section]
    goals: list[Goal]
    report: Place
    reused: list[str]


def run_figures(
    paper: Paper[S],
    settings: S,
    asked: Sequence[str],
    out: Place | Path,
    progress: StepProgress,
    *,
    data: RealData | None = None,
    options: SparkOptions = DEFAULT,
    resume: bool = False,
    keep: bool = False,
    spark: SparkSession | None = None,
) -> FiguresFound:
    """Make the sections asked for, and write the report about them. `keep`: per-event tables, in the steps' folders."""
    with (
        reaching([place_of(out)], options, app="hullcast sim"),
        RunFolder(out, paper.plain(settings), resume=resume) as folder,
        ExperimentRun(folder, progress, options=options, spark=spark) as run,
    ):
        sections, goals = paper.measure(run, settings, asked, data, keep)
        left_out = [f"{name}: {about} (not asked for)" for name, about in paper.sections.items() if name not in asked]
        left_out += [told for part, told in paper.no_data.items() if getattr(data, part, None) is None]
        told = goals_text(goals, paper.effort) if goals else [paper.no_goals]
        text = write_report(paper.begin(settings, folder), sections, told, left_out, paper.cited)
        write_reports(folder.folder, text, sections)
        return FiguresFound(sections, goals, folder.place / "report.md", folder.reused)
