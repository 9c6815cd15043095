"""Which operator of stream queries runs next: Chain and its rivals.

All is simulated: a row is the same on any machine. With `--data`, packet traces are replayed besides.
"""

from hullcast.sim.experiments.studies.streams import example, latency, memory, variations
from hullcast.sim.experiments.studies.streams.workload import TOGETHER, UDP_ALL, WORDS
from hullcast.sim.experiments.study import GridPoint, Study, StudyData, StudyPart
from hullcast.sim.traces.packets import ETHERNET, UDP, packet_traces


def _cost(point: GridPoint) -> float:
    """Tuples that are simulated, more or less."""
    together = 4 if point.get("query") == TOGETHER else 1
    return float(point.get("tuples", 0)) * together + (1e6 if point.get("source") == UDP_ALL else 0)


STUDY = Study(
    name="streams",
    title="Which operator of stream queries should run next?",
    about="Tuples come in bursts, and wait in queues before operators. Which operator runs next decides how much "
    "memory these queues need: an operator that drops most of what it sees frees memory fast, but it may stand behind "
    "others. Policies decide here by a simulated clock, and claims of the paper that Chain is from are "
    "judged by what they do. The digits of the paper's charts, of its Pareto law and of its figures are lost in our "
    "copy; ours have the shapes that its text describes, so the queues themselves cannot be compared. Limits of "
    "verdicts were chosen after a look at single runs with other charts, that for comparing the two latency rules "
    "after a first full run.",
    parts=(
        StudyPart.of(example, with_data=True, cost=_cost),
        StudyPart.of(memory, with_data=True, cost=_cost),
        StudyPart.of(latency, with_data=True, cost=lambda point: 3 * _cost(point)),
        StudyPart.of(variations, with_data=True, cost=_cost),
    ),
    seeds=5,
    words=WORDS,
    version=2,
    data=StudyData(lambda folder: tuple(packet_traces(folder)), (ETHERNET, UDP), "real packet traces"),
)
