"""Items of Thiele, Bader and Lehner (2009): response time against freshness."""

from hullcast.sim.experiments.papers.items import PaperItem as Item
from hullcast.sim.experiments.papers.items import PaperSource

_STUDY = "tests/sim/experiments/test_tradeoff.py::test_"
_KNAPSACK = "tests/broker/scheduling/test_knapsack.py::test_"
_PARETO = "tests/broker/warehouse/deciding/test_pareto.py::test_"

THIELE = PaperSource(
    "thiele",
    "Thiele, Bader and Lehner (2009)",
    "M. Thiele, A. Bader and W. Lehner, Multi-Objective Scheduling for Real-Time Data Warehouses, 2009",
    (
        Item("Figure 1", "All 7! schedules of 5 queries and 2 updates, with their Pareto front.",
             "scheduling:tradeoff"),
        Item("Figure 2", "The workload model: queries with preferences, updates with cost and profit.",
             "sim/traces/tradeoff.py", "a drawing of the model"),
        Item("Figure 3", "Schedules of 3 queries and 3 updates, and their dominance.", "scheduling:tradeoff"),
        Item("Definition 3.1", "A schedule: each update at a position among the queries.",
             "broker/scheduling/knapsack.py"),
        Item("Definition 3.2", "Dominance of schedules.", f"{_STUDY}every_order_comes_to_what_the_definitions_say"),
        Item("Definition 3.3", "Pareto efficiency: the schedule that is chosen has it.",
             f"scheduling:tradeoff {_PARETO}no_schedule_is_better_in_one_objective_and_not_worse_in_the_other"),
        Item("Figure 4", "The bound of the knapsack lies between queries first and updates first.",
             f"scheduling:tradeoff {_PARETO}at_the_ends_it_does_exactly_what_the_pure_policies_do"),
        Item("Figure 5", "The dependency matrix, and an update's positions as items.",
             f"{_STUDY}the_items_of_the_papers_example {_KNAPSACK}dominated_positions_are_no_items",
             "which queries depend on the update is lost with the figure"),
        Item("Algorithm 1", "UpdatePrioritizing: the most profit within the bound, by dynamic programming.",
             f"scheduling:tradeoff {_STUDY}algorithm_1_finds_the_most_profit_within_the_bound "
             f"{_KNAPSACK}it_agrees_with_the_papers_table"),
        Item("Figure 6", "The process model of dynamic scheduling.",
             "broker/warehouse/deciding/policies/pareto.py tests/broker/warehouse/deciding/test_pareto.py::"
             "TestRescheduling"),
        Item("Section 4, example", "The distance of two consecutive schedules.",
             f"{_STUDY}the_distance_of_the_papers_example"),
        Item("Section 5.2", "A larger knapsack puts more updates first: fresher and slower answers.",
             "scheduling:tradeoff"),
        Item("Figure 7(a)", "Response time and freshness while preferences flip six times, Gauss.",
             "scheduling:tradeoff"),
        Item("Figure 7(b)", "The same, Zipf.", "scheduling:tradeoff"),
        Item("Figure 8(a)", "Time and space of a plan by load: an identical increase.",
             "scheduling:tradeoff", "seconds: `hullcast bench warehouse`, section knapsack"),
        Item("Figure 8(b)", "Time and space of a plan by dependency: a steady increase.", "scheduling:tradeoff"),
        Item("Figure 9(a)", "Distances between schedules over time, by how often preferences flip.",
             "scheduling:tradeoff"),
        Item("Figure 9(b)", "How many schedules are how far from the one before.", "scheduling:tradeoff"),
    ),
)  # fmt: skip
