"""Items of Bateni et al. (2009): staleness and stretch of feeds."""

from hullcast.sim.experiments.papers.items import PaperItem as Item
from hullcast.sim.experiments.papers.items import PaperSource

_TESTS = "tests/sim/experiments/test_feeds.py::test_"
_PROOF = "a step of the proof of Theorem 3.1, which is checked as a whole; nothing is computed by it"

BATENI = PaperSource(
    "bateni",
    "Bateni et al. (2009)",
    "M. Bateni, L. Golab, M. Hajiaghayi and H. Karloff, Scheduling to Minimize Staleness and Stretch in Real-Time Data "
    "Warehouses, SPAA 2009",
    (
        Item("Figure 1", "Staleness of a table over time, with the triangles of LOW and of the penalty.",
             f"scheduling:feeds {_TESTS}staleness_stretch_penalty_and_the_lower_bound_are_those_of_brute_force"),
        Item("Section 2.2", "LOW/2 bounds the staleness of any run from below, half of the penalty from above.",
             f"scheduling:feeds {_TESTS}no_schedule_has_less_staleness_than_half_of_low_nor_more_than_the_best"),
        Item("Theorem 3.1", "Below a load, the penalty of every eager policy is at most a constant times LOW.",
             f"scheduling:feeds {_TESTS}the_penalty_of_eager_schedules_is_within_the_constant_of_theorem_3_1",
             "the proof takes all places to be busy while a batch waits, which is not so where its own table is being "
             "loaded (POLICIES.md)"),
        Item("Corollary 3.2", "Any eager policy does for alpha t/p < 0.366; the constant approaches 1 as alpha falls.",
             f"scheduling:feeds {_TESTS}the_constant_of_theorem_3_1_approaches_1_for_fast_loads_and_ends_at_corollary_"
             "3_2s_limit"),
        Item("Lemma 3.3", "A charging scheme bounds the penalty.", why=_PROOF),
        Item("Lemma 3.4", "Each batch receives a sufficient budget.", why=_PROOF),
        Item("Claim 3.5", "The batches that block a tardy one are long enough.", why=_PROOF),
        Item("Lemma 3.6", "No budget is spent more than lambda times.", why=_PROOF),
        Item("Claim 3.7", "Wait intervals of one table are disjoint.", why=_PROOF),
        Item("Figure 2", "The algorithm GroupAndRun.",
             "sim/experiments/studies/scheduling/baselines.py "
             f"{_TESTS}groups_are_periods_within_a_factor_of_two_and_share_the_places_as_the_paper_says"),
        Item("Section 4", "Without periods, no policy has a constant stretch: a tiny update waits for a huge one.",
             f"scheduling:feeds {_TESTS}a_tiny_update_behind_a_huge_one_has_any_stretch_one_likes"),
        Item("Definition 4.1", "A tight interval: all places of a group are busy.",
             "sim/experiments/studies/scheduling/feeds.py"),
        Item("Lemma 4.2", "With alpha <= p/(8 t) and <= 1/8 no update waits, and no tight interval lasts, over B/6.",
             "scheduling:feeds tests/sim/experiments/test_scheduling_waits.py::"
             "test_no_update_waits_and_no_tight_interval_lasts_longer_than_a_sixth_of_the_period"),
        Item("Theorem 4.3", "GroupAndRun keeps the stretch below 3 if alpha <= (p - g)/(8 t) and <= 1/8.",
             f"scheduling:feeds {_TESTS}group_and_run_keeps_stretch_below_3_and_weighted_staleness_below_four_and_a_"
             "half_times_the_least"),
        Item("Theorem 5.1", "Then its weighted staleness is at most 4.5 times the least possible.",
             f"scheduling:feeds {_TESTS}group_and_run_is_within_four_and_a_half_times_the_best_schedule",
             "the last step of the proof takes LOW for LOW/2 and shows 9; Lemma 4.2 gives 2.64"),
        Item("Section 6", "If tables take more than p/t, but not on average, the warehouse may keep up.",
             "scheduling:feeds"),
    ),
)  # fmt: skip
