"""Simulations and benchmarks: topologies, traces, replays on Spark, and the figures of Xie (2007).

Numbers of tables, figures and sections that name no other source are those of XIE, chapter 5.
"""

#: The work whose method this project builds and whose figures it reproduces: cited so at first, as "Xie (2007)" later.
XIE = (
    'Junyi Xie, "Handling Resource Constraints and Scalability in Continuous Query Processing" '
    "(PhD thesis, Duke University, 2007)"
)
