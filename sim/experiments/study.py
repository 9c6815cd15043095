"""What a study declares: grids of parameters, what is measured at a point, and what is shown of it.

    grid x seeds  ->  rows, one Spark task each  ->  Sweep  ->  sections: table, chart with bands, claims  ->  report

What is measured is a pure function of one point of the grid and one seed. A study may have several parts, each with
parameters, metrics and a table of its own. `sweeping.py` runs it; STUDIES.md shows how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from hullcast.network.wire.errors import UsageError
from hullcast.sim.output.claims import Claim, Section, over_draws

#: The parameters of one row: names and plain values (text, whole numbers, floats).
GridPoint = Mapping[str, Any]
SEED = "seed"


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
    folder: Path | None = None  # of the data, once it is given

    def given(self, folder: Path) -> Study:
        """The study with the real data in a folder."""
        if self.data is None:
            raise UsageError(f"{self.name} does not use real data; leave out --data")
        data = self.data.read(folder)
        return replace(self, parts=tuple(part.given(data) for part in self.parts), folder=folder)


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
