"""Which tuples a join of streams keeps: HEEB and its rivals.

All is simulated: a row is the same on any machine. The part `real` needs the temperatures that were given (`--data`).
"""

from hullcast.sim.experiments.studies.caching import joins, live, lookahead, real, split
from hullcast.sim.experiments.studies.caching.configurations import FLOW, OPT, RACED, WORDS
from hullcast.sim.experiments.studies.caching.real import FILE, temperatures
from hullcast.sim.experiments.study import GridPoint, Study, StudyData, StudyPart


def _cost(point: GridPoint) -> float:
    """Seconds, more or less."""
    return {FLOW: 5.0, OPT: 1.0, RACED: 4.0}.get(str(point.get("policy")), 0.3)


STUDY = Study(
    name="caching",
    title="Which tuples should a join of streams keep?",
    about="Two streams are joined, and only so many tuples can be kept for those that are still to come; or a relation "
    "is cached for a stream that refers to it. What is dropped is gone. HEEB keeps what is expected to produce most, "
    "by what is known of the streams; the claims of the thesis that it is from are judged here, and the join that a "
    "server runs is measured besides. Limits of verdicts were chosen before the study ran, after a look at single "
    "runs.",
    parts=(
        StudyPart.of(joins, cost=_cost),
        StudyPart.of(lookahead, cost=_cost),
        StudyPart.of(split, cost=_cost),
        StudyPart.of(live, cost=lambda point: 2.0),
        StudyPart.of(real, cost=_cost, with_data=True),
    ),
    seeds=5,
    words=WORDS,
    data=StudyData(temperatures, (FILE,), "real temperatures"),
)
