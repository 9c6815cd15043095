"""What a warehouse should do next: policies of three papers, a part each."""

from hullcast.sim.experiments.studies.scheduling import deadlines, feeds, tradeoff
from hullcast.sim.experiments.study import Study, StudyPart

STUDY = Study(
    name="scheduling",
    title="What should a warehouse do next?",
    about="A warehouse loads feeds and answers queries, and has fewer places than there is to do. Which load or which "
    "query a free place takes next is the decision of a policy. Policies run here under a simulated clock, in the "
    "settings of the papers they are from, and the papers' claims are judged by what they do.",
    parts=(StudyPart.of(feeds), StudyPart.of(deadlines), StudyPart.of(tradeoff)),
    words={**feeds.WORDS, **deadlines.WORDS, **tradeoff.WORDS},
    version=2,
)
