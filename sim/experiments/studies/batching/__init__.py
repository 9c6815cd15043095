"""How to keep views almost ready: planners of batched maintenance.

All parts but `real` are simulated: a row is the same on any machine. `real` measures processor time in SQLite on the
machine that runs it: its rows differ from run to run.
"""

from hullcast.sim.experiments.studies.batching import example, limits, plans, real
from hullcast.sim.experiments.studies.batching.planning import WORDS
from hullcast.sim.experiments.study import Study, StudyPart

STUDY = Study(
    name="batching",
    title="Which tables of a view should be propagated when?",
    about="A view is kept so nearly up to date that the rest takes no longer than a promised time. Within that limit "
    "changes may wait and be propagated in batches, which is cheaper for some tables and not for others. The planners "
    "that ship decide here, step by step, under simulated and measured costs, and the claims of the thesis that they "
    "are from are judged by what they do. All limits of verdicts were chosen before the first run, "
    "those of the shapes of measured costs after a look at single batches. THRIFTY "
    "was added after a first try, and is held to the limits of the others.",
    parts=(
        StudyPart.of(example),
        StudyPart.of(plans),
        StudyPart.of(limits),
        StudyPart.of(real),
    ),
    seeds=5,
    words=WORDS,
    version=2,
)
