"""Which operator of stream queries runs next: Chain and its rivals, in four parts.

Each part is a module: `points`, `measure` and `sections` as a study has them, with the packet traces that were given
(`--data`) as one more argument. `--only memory` runs one. All is simulated: a row is the same on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from hullcast.sim.experiments.steps import file_mark
from hullcast.sim.experiments.studies.streams import example, latency, memory, variations
from hullcast.sim.experiments.studies.streams.workload import TOGETHER, UDP_ALL, WORDS, Traces
from hullcast.sim.experiments.study import PART, GridPoint, Study, Sweep
from hullcast.sim.output.claims import Section
from hullcast.sim.traces.packets import ETHERNET, UDP, packet_traces


class StreamsPart(Protocol):
    """What the modules of the parts offer; points and rows need no `part`, and sections see only their own."""

    def points(self, quick: bool, traces: Traces = ()) -> list[dict[str, Any]]: ...

    def measure(self, point: GridPoint, seed: int, traces: Traces = ()) -> Mapping[str, float]: ...

    def sections(self, found: Sweep, folder: Path, traces: Traces = ()) -> list[Section]: ...


PARTS: dict[str, StreamsPart] = {"example": example, "memory": memory, "latency": latency, "variations": variations}


def points(quick: bool, traces: Traces = ()) -> list[dict[str, Any]]:
    """Those of all parts."""
    return [{PART: name, **point} for name, part in PARTS.items() for point in part.points(quick, traces)]


def measure(point: GridPoint, seed: int, traces: Traces = ()) -> Mapping[str, float]:
    """What the part of the point measures."""
    return PARTS[point[PART]].measure(point, seed, traces)


def sections(found: Sweep, folder: Path, traces: Traces = ()) -> list[Section]:
    """Those of all parts that were asked for."""
    return [
        section
        for name in found.all_of(PART)
        for section in PARTS[name].sections(found.where(part=name), folder, traces)
    ]


def with_data(folder: Path) -> Study:
    """The study with packet traces besides."""
    traces = tuple(packet_traces(folder))
    return replace(
        STUDY,
        grid=partial(points, traces=traces),
        measure=partial(measure, traces=traces),
        sections=partial(sections, traces=traces),
        data=" ".join(str(file_mark(folder / name)) for name in (ETHERNET, UDP)),
        left_out=(),
    )


def _cost(point: GridPoint) -> float:
    """Tuples that are simulated, more or less."""
    return float(point.get("tuples", 0)) * (4 if point.get("query") == TOGETHER else 1) * (
        3 if point[PART] == "latency" else 1
    ) + (1e6 if point.get("source") == UDP_ALL else 0)


STUDY = Study(
    name="streams",
    title="Which operator of stream queries should run next?",
    about="Tuples come in bursts, and wait in queues before operators. Which operator runs next decides how much "
    "memory these queues need: an operator that drops most of what it sees frees memory fast, but it may stand behind "
    "others. The policies that ship decide here by a simulated clock, and claims of the paper that Chain is from are "
    "judged by what they do. The digits of the paper's charts are lost in our copy; ours have the shapes that its text "
    "describes. Limits of verdicts were chosen after a look at single runs with other charts, that for comparing the "
    "two latency rules after a first full run.",
    grid=points,
    measure=measure,
    sections=sections,
    seeds=5,
    words=WORDS,
    cost=_cost,
    with_data=with_data,
    left_out=("real packet traces (not given; name their folder with --data)",),
)
