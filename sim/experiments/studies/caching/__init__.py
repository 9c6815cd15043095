"""Which tuples a join of streams keeps: HEEB and its rivals.

All is simulated: a row is the same on any machine. The part `real` needs the temperatures that were given (`--data`).
As the thesis has means of 50 runs, a full run has 50 draws, and all but `live`, which is ours, is judged by means.
"""

from hullcast.sim.experiments.studies.caching import joins, live, lookahead, real, shapes, split
from hullcast.sim.experiments.studies.caching.configurations import FLOW, HEEB, RACED, WORDS
from hullcast.sim.experiments.studies.caching.real import EXACT, FILES, temperatures
from hullcast.sim.experiments.study import GridPoint, Study, StudyData, StudyPart


def _cost(point: GridPoint) -> float:
    """Seconds, more or less."""
    return {FLOW: 3.0, EXACT: 2.0, RACED: 1.5, HEEB: 0.3}.get(str(point.get("policy")), 0.1)


STUDY = Study(
    name="caching",
    title="Which tuples should a join of streams keep?",
    about="Two streams are joined, and only so many tuples can be kept for those that are still to come; or a relation "
    "is cached for a stream that refers to it. What is dropped is gone. HEEB keeps what is expected to produce most, "
    "by what is known of the streams; the claims of the thesis that it is from are judged here, and the join that a "
    "server runs is measured besides. Limits of verdicts were chosen before the study ran, after a look at single "
    "runs.",
    parts=(
        StudyPart.of(shapes, seeds=1),
        StudyPart.of(joins, cost=_cost),
        StudyPart.of(lookahead, cost=_cost),
        StudyPart.of(split, cost=_cost),
        StudyPart.of(live),
        StudyPart.of(real, cost=_cost, with_data=True, seeds=1),
    ),
    seeds=50,
    version=2,
    words=WORDS,
    data=StudyData(temperatures, tuple(FILES.values()), "real temperatures"),
)
