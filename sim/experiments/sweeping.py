"""Run a study on Spark: measure its points seed by seed, then let its parts draw and judge, and write the report.

The points of one seed are a step of the run, so an interrupted study continues with the next seed, and
`--resume --seeds 20` adds seeds to a study of 10. `--only PART` runs some of the parts, and with `--resume` adds them
to those that are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.report import glossary, write_report, write_reports
from hullcast.sim.experiments.run import ExperimentRun, StepProgress, cores_of
from hullcast.sim.experiments.steps import RunFolder, file_mark, read_rows, write_rows
from hullcast.sim.experiments.study import SEED, GridPoint, Study, StudyPart, Sweep
from hullcast.sim.output.claims import Section
from hullcast.sim.spark.options import SparkOptions
from hullcast.sim.spark.session import DEFAULT, reaching, watched
from hullcast.sim.spark.storage import Place, place_of

#: Rows for each core that one Spark job should have.
ENOUGH = 4


@dataclass(frozen=True, slots=True)
class StudyFound:
    """What a study found, and what of it was there before."""

    sections: list[Section]
    report: Place
    reused: list[str]


def run_study(
    study: Study,
    out: Place | Path,
    progress: StepProgress,
    *,
    quick: bool = False,
    seed: int = 0,
    seeds: int | None = None,
    only: Sequence[str] = (),
    options: SparkOptions = DEFAULT,
    resume: bool = False,
    spark: SparkSession | None = None,
) -> StudyFound:
    """Measure every point for each of the seeds `seed`, `seed + 1`, .., and write tables, charts and report.

    `only`: the parts to run; none: all. UsageError for one that the study does not have.
    """
    parts, count = parts_of(study, quick, only), seeds_of(study, quick, seeds)
    settings = {"study": study.name, "version": study.version, "quick": quick}
    if study.data is not None and study.folder is not None:
        settings["data"] = " ".join(str(file_mark(study.folder / name)) for name in study.data.files)
    with (
        reaching([place_of(out)], options, app=f"hullcast sim {study.name}"),
        RunFolder(out, settings, resume=resume) as folder,
        ExperimentRun(folder, progress, options=options, spark=spark) as run,
    ):
        sections: list[Section] = []
        for part in study.parts:
            if part.name not in parts:
                continue
            wanted = range(seed, seed + min(count, part.seeds))
            points, rows = parts[part.name], list[dict[str, Any]]()
            measured = _Rows(run, part, points, wanted)
            for each in wanted:
                name = "-".join(filter(None, (part.name, f"seed-{each}")))
                place = run.step(name, {"points": points}, partial(measured.fill, each))
                rows += read_rows(place / "rows.parquet")
            table = folder.folder / _table(study, part.name)
            write_rows(rows, table)
            found = part.sections(Sweep(rows), folder.folder)
            sections += [replace(section, tables=section.tables or [table]) for section in found]
        left_out = [f"{part} (not asked for)" for part in parts_of(study, quick) if part not in parts]
        if study.data is not None and study.folder is None:
            left_out.append(f"{study.data.called} (not given; name their folder with --data)")
        text = write_report(_begin(study, quick, parts, count), sections, [], left_out, study.cited)
        write_reports(folder.folder, text, sections)
        return StudyFound(sections, folder.place / "report.md", folder.reused)


def seeds_of(study: Study, quick: bool, asked: int | None) -> int:
    """How many seeds a run takes, of the parts that need so many."""
    return asked or (study.quick_seeds if quick else study.seeds)


def parts_of(study: Study, quick: bool, only: Sequence[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """The points of each part asked for, none: of all that have points; the only part of a study has no name."""
    parts = {part.name: points for part in study.parts if (points := part.points(quick))}
    for part in only:
        if part not in parts or not part:
            known = f"parts: {', '.join(parts)}" if "" not in parts else f"{study.name} does not have parts"
            raise UsageError(f"no part {part!r}; {known}")
    return {part: checked(points) for part, points in parts.items() if part in only or not only}


def _table(study: Study, part: str) -> str:
    return "-".join(filter(None, (study.name, part))) + ".parquet"


def checked(points: Sequence[GridPoint]) -> list[dict[str, Any]]:
    """The points of a grid, or of a part of one, as they are; a ValueError if there are none or one is there twice."""
    names = {frozenset(point) for point in points}
    if len(names) != 1:
        raise ValueError(f"all points of a grid need the same parameters, got {sorted(map(sorted, names))}")
    if SEED in points[0]:
        raise ValueError("seed is not a parameter: every point is measured for each seed")
    twice = [point for place, point in enumerate(points) if point in points[:place]]
    if twice:
        raise ValueError(f"the grid has a point twice: {twice[0]}")
    return [dict(point) for point in points]


class _Rows:
    """Measures seed by seed, but with a small grid or many cores several seeds in one job, so that no core is idle."""

    def __init__(self, run: ExperimentRun, part: StudyPart, points: Sequence[GridPoint], seeds: Sequence[int]) -> None:
        self._run, self._part, self._points, self._seeds = run, part, points, seeds
        self._ahead: dict[int, list[dict[str, Any]]] = {}

    def fill(self, seed: int, path: Place) -> None:
        """Write the rows of a seed."""
        if seed not in self._ahead:
            spark = self._run.spark
            count = -(-ENOUGH * cores_of(spark) // len(self._points))
            with watched(spark, self._run.progress.tasks):
                some = [each for each in self._seeds if each >= seed][:count]
                self._ahead |= swept(spark, self._part, self._points, some)
        write_rows(self._ahead.pop(seed), path / "rows.parquet")


def swept(
    spark: SparkSession, part: StudyPart, points: Sequence[GridPoint], seeds: Sequence[int]
) -> dict[int, list[dict[str, Any]]]:
    """By seed a row for each point, in their order: a Spark task each, the longest first, so that cores end together.

    RuntimeError if a row is missing, comes back twice, or has other metrics than the rest.
    """
    measure = part.measure

    def one(task: tuple[int, int, dict[str, Any]]) -> tuple[int, int, dict[str, float]]:
        seed, number, point = task
        try:
            return seed, number, dict(measure(point, seed))
        except Exception as error:
            error.add_note(f"measuring {point} with seed {seed}")
            raise

    tasks = [(seed, number, dict(point)) for seed in seeds for number, point in enumerate(points)]
    tasks.sort(key=lambda task: -part.cost(task[2]))
    found = spark.sparkContext.parallelize(tasks, len(tasks)).map(one).collect()
    return {
        seed: together(points, seed, [(number, metrics) for of, number, metrics in found if of == seed])
        for seed in seeds
    }


def together(
    points: Sequence[GridPoint], seed: int, found: Sequence[tuple[int, Mapping[str, float]]]
) -> list[dict[str, Any]]:
    """Points and what was measured of each, by number; RuntimeError unless there is exactly one of each, all alike."""
    measured = dict(found)
    missing, strange = set(range(len(points))) - set(measured), set(measured) - set(range(len(points)))
    if missing or strange or len(found) != len(measured):
        raise RuntimeError(
            f"seed {seed}: {len(points)} rows were asked for, and {len(found)} came back, {len(missing)} are missing "
            f"and {len(found) - len(measured)} came twice; nothing of this step is kept"
        )
    names = list(measured[0])
    for number, point in enumerate(points):
        metrics = measured[number]
        if list(metrics) != names or set(metrics) & {SEED, *point}:
            raise RuntimeError(
                f"{dict(point)} gave {list(metrics)}, and {dict(points[0])} gave {names}; give each the same"
            )
    return [
        {**point, SEED: seed, **{name: float(value) for name, value in measured[number].items()}}
        for number, point in enumerate(points)
    ]


def _listed(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else str(value)


def _begin(study: Study, quick: bool, parts: Mapping[str, Sequence[GridPoint]], seeds: int) -> list[str]:
    told = []
    most = {part.name: part.seeds for part in study.parts}
    for part, points in parts.items():
        count = min(seeds, most[part])
        size = f"{len(points):,} points, each measured for {count} seed{'s' * (count > 1)}" + (
            " (a small run, `--quick`)" if quick else ""
        )
        varied = {name: list(dict.fromkeys(point[name] for point in points)) for name in points[0]}
        listed = "; ".join(f"{name}: {', '.join(map(_listed, values))}" for name, values in varied.items())
        told.append(f"{f'- **{part}**: ' if part else ''}{size}. {listed}. All rows are in `{_table(study, part)}`.")
    return [
        f"# {study.title}",
        study.about,
        *told,
        "Figures are medians over the seeds (draws of all that is random), and in brackets from where to where the "
        "seeds go. A statement *holds* if it does for every seed. In tables of statements, **bold** is what does not "
        "hold, *italic* what could not be otherwise.",
        *(["## Words", glossary(study.words)] if study.words else []),
    ]
