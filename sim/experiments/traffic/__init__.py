"""The traffic figures of Xie (2007), chapter 5, and the replay of one workload (`sim traffic`)."""

from hullcast.sim import XIE

ABOUT = (
    "Tables 5.2 and 5.3 and Figures 5.6 and 5.7 (the server), 5.8 (ignorable updates), 5.9 (affected subscriptions) "
    f"and 5.10 (a stock market), and node stress, of {XIE}; traffic for four ways of placing subscriptions at brokers, "
    "on several networks."
)
#: What `--only` takes, and what it means. The order is the report's.
SECTIONS = {
    "5.2": "messages of the server by the number of rows",
    "5.6": "time of the server by the number of rows",
    "5.3": "messages of the server by the number of subscriptions",
    "5.7": "time of the server by the number of subscriptions",
    "networks": "where the server is in each of the networks drawn",
    "5.8": "traffic by the share of ignorable updates",
    "5.9": "traffic by the number of affected subscriptions",
    "5.10": "traffic of a stock market by the number of subscriptions",
    "stress": "how node stress is distributed over the events of 5.10's largest run",
    "control": "the market over a real network (needs --topology or --data)",
    "scaling": "how time grows with events, subscriptions and cores",
}
