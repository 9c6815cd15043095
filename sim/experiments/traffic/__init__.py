"""The traffic figures of Xie (2007), chapter 5; also the replay of one workload (`hullcast sim traffic`)."""

#: What `--only` takes, and what it means. The order is the report's. (Here, because help must not wait for numba.)
SECTIONS = {
    "5.8": "traffic by the share of ignorable updates",
    "5.9": "traffic by the number of affected subscriptions",
    "5.10": "traffic of a stock market by the number of subscriptions",
    "stress": "how node stress is distributed over the events of 5.10's largest run",
    "control": "the market over the AS graph of 2006 (needs --data)",
    "scaling": "how time grows with events, subscriptions and cores",
}
