"""Items of Babcock et al. (2003): Chain. Our copy has lost all numbers; items are counted as they come."""

from hullcast.sim.experiments.papers.items import PaperItem as Item
from hullcast.sim.experiments.papers.items import PaperSource

_TESTS = "tests/sim/experiments/test_simulated_streams.py::test_"
_CHART = "tests/broker/streams/test_chart.py::test_"
_POLICY = "tests/broker/streams/test_operator_policies.py::test_"
_TRACE = "the trace is not given: --data"

BABCOCK = PaperSource(
    "babcock",
    "Babcock et al. (2003)",
    "B. Babcock, S. Babu, M. Datar and R. Motwani, Chain: Operator Scheduling for Memory Minimization in Data Stream "
    "Systems, SIGMOD 2003",
    (
        Item("Example 1", "Two operators, seven tuples: queues under Greedy and under FIFO, in a table.",
             f"streams:example {_TESTS}queues_of_the_worked_example_are_those_of_the_paper"),
        Item("Figure 1(a)", "A progress chart and its lower envelope, no selectivity above 1.",
             f"broker/streams/CHAIN.md {_CHART}the_worked_example_has_two_chains_of_one_operator"),
        Item("Figure 1(b)", "The same with a join that makes more than it takes.",
             f"broker/streams/CHAIN.md {_CHART}a_join_that_makes_more_belongs_to_the_chain_of_what_follows"),
        Item("Proposition 1", "Slopes never increase along a lower envelope.",
             f"{_CHART}the_envelope_is_convex_and_below_every_point"),
        Item("Theorem 1", "On envelopes Chain has least memory at every moment, compared with any policy.",
             f"{_TESTS}chain_on_envelopes_needs_least_at_every_moment_of_all_schedules"),
        Item("Proposition 2", "Chain has at most one tuple in the middle of a segment.",
             f"{_POLICY}ties_go_to_the_oldest_tuple_and_then_to_the_one_that_is_farthest_on",
             "a step of Lemma 1: ties go to what is farthest on"),
        Item("Lemma 1", "On charts Chain needs at most the sum of the gaps more.",
             f"streams:memory {_TESTS}chain_is_within_the_sum_of_the_gaps_of_what_is_possible"),
        Item("Proposition 3", "Nobody needs less on a chart than Chain on its envelope.",
             f"{_TESTS}no_policy_needs_less_than_what_is_possible"),
        Item("Theorem 2", "With no selectivity above 1, Chain is within one unit per query of the optimum; this is "
             "tight.",
             f"streams:memory {_TESTS}without_joins_chain_is_within_one_unit_per_query_of_what_is_possible "
             f"{_TESTS}the_bound_of_one_unit_cannot_be_lower"),
        Item("Starvation and response times", "Chain may starve operators; FIFO is good for response times.",
             "streams:memory"),
        Item("Scheduling overhead", "A decision takes next to nothing.", "broker/streams/CHAIN.md sim/bench/STREAMS.md",
             "not measured here: `hullcast bench streams` has what decisions cost"),
        Item("Context switching overhead", "Chain changes operators less often than its rivals.", "streams:memory"),
        Item("Throughput", "All policies do the same work, so throughput is the same.",
             f"{_TESTS}what_becomes_of_tuples_does_not_depend_on_the_policy"),
        Item("Sliding-window joins", "A join takes inputs by timestamp and waits while one is empty; its chart.",
             f"{_TESTS}a_join_waits_for_the_input_that_is_empty "
             f"{_TESTS}a_join_takes_the_older_tuple_whichever_input_was_picked"),
        Item("Experiments, time quantum", "The quantum of Round-Robin does not change the nature of the results.",
             "streams:variations"),
        Item("Experiments, adaptivity", "Charts from the last window of time give similar results (not reported).",
             "broker/streams/measuring.py",
             "the server measures charts by windows; without figures there is nothing to compare with"),
        Item("Desirable properties of a strategy", "It should not be too sensitive to wrong estimates.",
             "streams:variations"),
        Item("Figure 2", "Queues over time, two operators, real data.", "streams:memory", needs=_TRACE),
        Item("Figure 3", "Queues over time, two operators, synthetic bursts.", "streams:memory"),
        Item("Figure 4", "Queues over time, four operators, real data.", "streams:memory", needs=_TRACE),
        Item("Figure 5", "Queues over time, four operators, synthetic bursts.", "streams:memory"),
        Item("Figure 6", "Queues over time, a join with a stored relation, synthetic bursts.", "streams:memory"),
        Item("Figure 7", "Queues over time, a window join, real data.", "streams:memory", needs=_TRACE),
        Item("Figure 8", "Queues over time, a window join, synthetic bursts.", "streams:memory"),
        Item("Figure 9", "Queues over time, three queries, real data.", "streams:memory", needs=_TRACE),
        Item("Figure 10", "Queues over time, three queries, synthetic bursts.", "streams:memory"),
    ),
)  # fmt: skip
