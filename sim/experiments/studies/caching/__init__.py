"""Which tuples a join of streams keeps: HEEB and its rivals, in five parts.

Each part is a module: `points`, `measure` and `sections` as a study has them; `real` needs the temperatures that were
given (`--data`). `--only joins` runs one. All is simulated: a row is the same on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from hullcast.sim.experiments.steps import file_mark
from hullcast.sim.experiments.studies.caching import joins, live, lookahead, real, split
from hullcast.sim.experiments.studies.caching.configurations import FLOW, OPT, RACED, WORDS
from hullcast.sim.experiments.studies.caching.real import FILE, Temperatures, temperatures
from hullcast.sim.experiments.study import PART, GridPoint, Study, Sweep
from hullcast.sim.output.claims import Section

REAL = "real"


class CachingPart(Protocol):
    """What the modules of the parts offer; points and rows need no `part`, and sections see only their own."""

    def points(self, quick: bool) -> list[dict[str, Any]]: ...

    def measure(self, point: GridPoint, seed: int) -> Mapping[str, float]: ...

    def sections(self, found: Sweep, folder: Path) -> list[Section]: ...


#: All but `real`, which has one more argument.
PARTS: dict[str, CachingPart] = {"joins": joins, "lookahead": lookahead, "split": split, "live": live}


def points(quick: bool, data: Temperatures = ()) -> list[dict[str, Any]]:
    """Those of all parts."""
    found = [{PART: name, **point} for name, part in PARTS.items() for point in part.points(quick)]
    return found + [{PART: REAL, **point} for point in real.points(quick, data)]


def measure(point: GridPoint, seed: int, data: Temperatures = ()) -> Mapping[str, float]:
    """What the part of the point measures."""
    return real.measure(point, seed, data) if point[PART] == REAL else PARTS[point[PART]].measure(point, seed)


def sections(found: Sweep, folder: Path, data: Temperatures = ()) -> list[Section]:
    """Those of all parts that were asked for."""
    judged = []
    for name in found.all_of(PART):
        mine = found.where(part=name)
        judged += real.sections(mine, folder, data) if name == REAL else PARTS[name].sections(mine, folder)
    return judged


def with_data(folder: Path) -> Study:
    """The study with real temperatures besides."""
    data = temperatures(folder)
    return replace(
        STUDY,
        grid=partial(points, data=data),
        measure=partial(measure, data=data),
        sections=partial(sections, data=data),
        data=str(file_mark(folder / FILE)),
        left_out=(),
    )


def _cost(point: GridPoint) -> float:
    """Seconds, more or less."""
    if point[PART] == "live":
        return 2.0
    return {FLOW: 5.0, OPT: 1.0, RACED: 4.0}.get(str(point.get("policy")), 0.3)


STUDY = Study(
    name="caching",
    title="Which tuples should a join of streams keep?",
    about="Two streams are joined, and only so many tuples can be kept for those that are still to come; or a relation "
    "is cached for a stream that refers to it. What is dropped is gone. HEEB keeps what is expected to produce most, "
    "by what is known of the streams; the claims of the thesis that it is from are judged here, and the join that a "
    "server runs is measured besides. Limits of verdicts were chosen before the study ran, after a look at single "
    "runs.",
    grid=points,
    measure=measure,
    sections=sections,
    seeds=5,
    words=WORDS,
    cost=_cost,
    with_data=with_data,
    left_out=("real temperatures (not given; name their folder with --data)",),
)
