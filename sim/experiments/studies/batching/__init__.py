"""How to keep views almost ready: planners of batched maintenance, in four parts.

Each part is a module: `points`, `measure` and `sections` as a study has them, and `WORDS`. `--only plans` runs one.
All but `real` are simulated: a row is the same on any machine. `real` measures processor time in SQLite on the
machine that runs it: its rows differ from run to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from hullcast.sim.experiments.studies.batching import example, limits, plans, real
from hullcast.sim.experiments.studies.batching.planning import WORDS
from hullcast.sim.experiments.study import PART, GridPoint, Study, Sweep
from hullcast.sim.output.claims import Section


class BatchingPart(Protocol):
    """What the modules of the parts offer; points and rows need no `part`, and sections see only their own."""

    def points(self, quick: bool) -> list[dict[str, Any]]: ...

    def measure(self, point: GridPoint, seed: int) -> Mapping[str, float]: ...

    def sections(self, found: Sweep, folder: Path) -> list[Section]: ...


PARTS: dict[str, BatchingPart] = {"example": example, "plans": plans, "limits": limits, "real": real}


def points(quick: bool) -> list[dict[str, Any]]:
    """Those of all parts."""
    return [{PART: name, **point} for name, part in PARTS.items() for point in part.points(quick)]


def measure(point: GridPoint, seed: int) -> Mapping[str, float]:
    """What the part of the point measures."""
    return PARTS[point[PART]].measure(point, seed)


def sections(found: Sweep, folder: Path) -> list[Section]:
    """Those of all parts that were asked for."""
    return [section for name in found.all_of(PART) for section in PARTS[name].sections(found.where(part=name), folder)]


STUDY = Study(
    name="batching",
    title="Which tables of a view should be propagated when?",
    about="A view is kept so nearly up to date that the rest takes no longer than a promised time. Within that limit "
    "changes may wait and be propagated in batches, which is cheaper for some tables and not for others. The planners "
    "that ship decide here, step by step, under simulated and measured costs, and the claims of the thesis that they "
    "are from are judged by what they do. All limits of verdicts were chosen before the first run, "
    "those of the shapes of measured costs after a look at single batches. THRIFTY "
    "was added after a first try, and is held to the limits of the others.",
    grid=points,
    measure=measure,
    sections=sections,
    seeds=5,
    words=WORDS,
    cost=lambda point: 20.0 if point[PART] == "real" else 1.0,
)
