"""Items of Vu and Gopalkrishnan (2009): deadlines and fresh data."""

from hullcast.sim.experiments.papers.items import PaperItem as Item
from hullcast.sim.experiments.papers.items import PaperSource

_VALIDITY = "tests/sim/experiments/test_validity.py::"
_WAREHOUSE = "broker/warehouse/WAREHOUSE.md"
_CODE = "sim/experiments/studies/scheduling/validity.py"

VU = PaperSource(
    "vu",
    "Vu and Gopalkrishnan (2009)",
    "N. H. Vu and V. Gopalkrishnan, On Scheduling Data Loading and View Maintenance in Soft Real-time Data Warehouses, "
    "2009",
    (
        Item("Table 1", "Which of ten techniques respect deadlines, freshness, and what they schedule.",
             why="a survey of other work: nothing is measured"),
        Item("Figure 1", "The monitor-integrator architecture.", _WAREHOUSE, "a drawing of the setting"),
        Item("Figure 2", "The architecture of a real-time warehouse.", _WAREHOUSE, "a drawing of the setting"),
        Item("Section 2.2", "Transactions first meets deadlines with stale data; updates on demand are best.",
             "scheduling:deadlines"),
        Item("Definition 1", "The validity interval of a version: from its update until the next one.", _CODE),
        Item("Lemma 1", "The validity intervals of an object's versions leave no gap.",
             f"{_CODE} {_VALIDITY}TestOradReaders"),
        Item("Definition 2", "Versions are relatively consistent if all were valid at one moment.", _CODE),
        Item("Algorithm 1", "What an update does to versions, views and transactions.",
             f"{_CODE} {_VALIDITY}TestOradReaders"),
        Item("Algorithm 2", "How a transaction reads: the latest version that meets its interval.",
             f"{_CODE} {_VALIDITY}test_orad_takes_the_latest_version_after_one_look_where_odrtb_looks_at_all_and_takes_"
             "the_widest"),
        Item("Theorem 1", "Some version of an object that existed at a transaction's start meets its interval.",
             f"{_VALIDITY}TestOradReaders"),
        Item("Table 2", "The parameters of the simulation.",
             "sim/experiments/studies/scheduling/transactions.py "
             "tests/sim/experiments/test_deadlines.py::"
             "test_the_rates_of_table_2_make_so_many_versions_as_are_drawn",
             "places, and how views are computed, are not given: four settings are run"),
        Item("Figure 3(a)", "Deadlines missed by the cost of looking at a version: ORAD scales better than ODRTB.",
             "scheduling:deadlines"),
        Item("Figure 3(b)", "Deadlines missed by the size of the cache: under 2 % even with the smallest.",
             "scheduling:deadlines"),
        Item("Figure 4(a)", "Deadlines missed by arrival rate: ORAD always misses fewer.", "scheduling:deadlines"),
        Item("Figure 4(b)", "Deadlines met with fresh data, by arrival rate: ORAD meets more.",
             "scheduling:deadlines"),
        Item("Section 5, update bursts", "The same for every rate of update bursts.", "scheduling:deadlines"),
        Item("Figure 4(c)", "Versions kept by arrival rate: ODRTB keeps two to three times as many.",
             "scheduling:deadlines", "Table 2 has an update of an object every 13 minutes: it cannot come out of it"),
        Item("Section 5, looks", "ORAD looks at one version a read, ODRTB at three to four.", "scheduling:deadlines"),
    ),
)  # fmt: skip
