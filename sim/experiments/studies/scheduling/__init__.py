"""What a warehouse should do next: policies of three papers, a part each (feeds, deadlines, tradeoff).

Each part is a module with the claims of one paper: `points`, `measure` and `sections` as a study has them, and `WORDS`.
`--only feeds` runs one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from hullcast.sim.experiments.studies.scheduling import deadlines, feeds, tradeoff
from hullcast.sim.experiments.study import PART, GridPoint, Study, Sweep
from hullcast.sim.output.claims import Section


class StudyPart(Protocol):
    """What each module of this folder offers; its points and rows need no `part`, and its sections see only its own."""

    WORDS: Mapping[str, str]

    def points(self, quick: bool) -> list[dict[str, Any]]: ...

    def measure(self, point: GridPoint, seed: int) -> Mapping[str, float]: ...

    def sections(self, found: Sweep, folder: Path) -> list[Section]: ...


PARTS: dict[str, StudyPart] = {"feeds": feeds, "deadlines": deadlines, "tradeoff": tradeoff}


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
    name="scheduling",
    title="What should a warehouse do next?",
    about="A warehouse loads feeds and answers queries, and has fewer places than there is to do. Which load or which "
    "query a free place takes next is the decision of a policy. The policies that ship run here under a simulated "
    "clock, in the settings of the papers they are from, and the papers' claims are judged by what they do.",
    grid=points,
    measure=measure,
    sections=sections,
    words={word: meaning for part in PARTS.values() for word, meaning in part.WORDS.items()},
)
