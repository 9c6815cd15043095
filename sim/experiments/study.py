"""A study: a grid of parameters, measured for several seeds on Spark, then drawn, judged and reported.

    grid x seeds  ->  rows, one Spark task each  ->  Sweep  ->  sections: table, chart with bands, claims  ->  report

What is measured is a pure function of one point of the grid and one seed. The points of one seed are a step of the run,
so an interrupted study continues with the next seed, and `--resume --seeds 20` adds seeds to a study of 10.

A study may have several parts, each with parameters, metrics, steps and a table of its own; `--only PART` runs some of
them, and with `--resume` adds them to those that are there.
STUDIES.md shows how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from pyspark.sql import SparkSession

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.report import glossary, write_report, write_reports
from hullcast.sim.experiments.run import ExperimentRun, StepProgress, cores_of
from hullcast.sim.experiments.steps import RunFolder, file_mark, read_rows, write_rows
from hullcast.sim.output.claims import Claim, Section, over_draws
from hullcast.sim.spark.options import SparkOptions
from hullcast.sim.spark.session import DEFAULT, reaching, watched
from hullcast.sim.spark.storage import Place, place_of

#: The parameters of one row: names and plain values (text, whole numbers, floats).
GridPoint = Mapping[str, Any]
SEED = "seed"
#: Rows for each core that one Spark job should have.
ENOUGH = 4


def grid(**values: Iterable[Any]) -> list[dict[str, Any]]:
    """All combinations; a study whose parts vary different parameters adds several grids."""
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


class PartModule(Protocol):
    """What a file offers that is a part of a study, or all of it."""

    def points(self, quick: bool, /) -> Sequence[GridPoint]:
        """Of the grid; True: few and small, for --quick."""

    def measure(self, point: GridPoint, seed: int, /) -> Mapping[str, float]:
        """A point and a seed: numbers by name."""

    def sections(self, found: Sweep, folder: Path, /) -> list[Section]:
        """What was found; charts go to the folder."""


@dataclass(frozen=True, slots=True)
class StudyPart:
    """One question of a study. Its functions are those of a `PartModule`.

    `measure` must be a function of a module, not a lambda: Spark's workers import it. What several points have in
    common (a network, a trace) is best made by a function with `functools.lru_cache`: workers stay from row to row.
    """

    name: str  # empty if there is no other
    points: Callable[..., Sequence[GridPoint]]
    measure: Callable[..., Mapping[str, float]]
    sections: Callable[..., list[Section]]
    cost: Callable[[GridPoint], float] = lambda point: 1.0  # how long a row takes, in any unit: the longest begin first
    with_data: bool = False  # whether the functions take the data that was given as one more argument
    seeds: int = 1 << 30  # at most so many: more of a part in which chance has no share show the same again

    @classmethod
    def of(cls, module: PartModule, **more: Any) -> StudyPart:
        """The part that is a module, by its name."""
        name = str(module.__name__).rpartition(".")[2]  # type: ignore[attr-defined]  # a module
        return cls(name, module.points, module.measure, module.sections, **more)

    def given(self, data: object) -> StudyPart:
        """The part with this data, if it takes any."""
        if not self.with_data:
            return self
        points, measure, sections = (_with(each, data) for each in (self.points, self.measure, self.sections))
        return replace(self, points=points, measure=measure, sections=sections)


def _with(function: Callable[..., Any], data: object) -> Callable[..., Any]:
    return lambda *arguments: function(*arguments, data)


@dataclass(frozen=True, slots=True)
class StudyData:
    """What `--data` may give to a study."""

    read: Callable[[Path], object]  # from a folder; UsageError if it is not there
    files: tuple[str, ...]  # their digest: rows of other data are not reused
    called: str


@dataclass(frozen=True, slots=True)
class Study:
    """What a file or folder in `studies/` offers as `STUDY`."""

    name: str
    title: str
    about: str  # a paragraph: the question, and who asks it
    parts: tuple[StudyPart, ...]
    seeds: int = 10
    quick_seeds: int = 3
    cited: str = ""  # the paper whose claims are judged, as the report names it
    words: Mapping[str, str] = field(default_factory=dict)  # of the report, for readers who have seen nothing else
    version: int = 1  # raised when a part measures something else: rows of another version are not reused
    data: StudyData | None = None
    mark: str = ""  # a digest of the data, once it is given

    def given(self, folder: Path) -> Study:
        """The study with the real data in a folder."""
        if self.data is None:
            raise UsageError(f"{self.name} does not use real data; leave out --data")
        data = self.data.read(folder)
        mark = " ".join(str(file_mark(folder / name)) for name in self.data.files)
        return replace(self, parts=tuple(part.given(data) for part in self.parts), mark=mark)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was measured: a row for each point and seed, with the parameters, `seed` and all that `measure` gave."""

    rows: Sequence[Mapping[str, Any]]

    @property
    def seeds(self) -> list[int]:
        """All that occur."""
        return sorted({row[SEED] for row in self.rows})

    def where(self, **point: Any) -> Sweep:
        """The rows with these parameters, or of this seed."""
        found = [row for row in self.rows if all(row[name] == value for name, value in point.items())]
        if not found:
            raise KeyError(f"no row has {point}")
        return Sweep(found)

    def all_of(self, name: str) -> list[Any]:
        """The values of a parameter, each once, in the order of the grid."""
        return list(dict.fromkeys(row[name] for row in self.rows))

    def values(self, metric: str, **point: Any) -> list[float]:
        """By seed, if the point is given completely."""
        return [row[metric] for row in sorted(self.where(**point).rows, key=lambda row: row[SEED])]

    def middle(self, metric: str, **point: Any) -> float:
        """The median over all such rows."""
        return median(self.values(metric, **point))

    def along(self, parameter: str, metric: str, **point: Any) -> list[tuple[float, list[float]]]:
        """A curve: for each value of the parameter those of the metric, by seed."""
        part = self.where(**point)
        return [(value, part.values(metric, **{parameter: value})) for value in sorted(part.all_of(parameter))]

    def judged(self, judge: Callable[[Sweep], list[Claim]]) -> list[Claim]:
        """Each statement judged for every seed by itself: its verdict says in how many of them it holds."""
        return over_draws([judge(self.where(**{SEED: seed})) for seed in self.seeds])


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
    if study.mark:
        settings["data"] = study.mark
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
            write_rows(rows, folder.folder / _table(study, part.name))
            sections += part.sections(Sweep(rows), folder.folder)
        left_out = [f"{part} (not asked for)" for part in parts_of(study, quick) if part not in parts]
        if study.data is not None and not study.mark:
            left_out.append(f"{study.data.called} (not given; name their folder with --data)")
        text = write_report(_begin(study, quick, parts, count), sections, [], left_out, study.cited)
        write_reports(folder.folder, text, sections)
        return StudyFound(sections, folder.place / "report.md", folder.reused)


def seeds_of(study: Study, quick: bool, asked: int | None) -> int:
    """How many seeds a run takes."""
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
