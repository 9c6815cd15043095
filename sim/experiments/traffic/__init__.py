"""The traffic figures of Xie (2007), chapter 5; also the replay of one workload (`hullcast sim traffic`)."""

from hullcast.sim import XIE

ABOUT = (
    "Figures 5.8 (ignorable updates), 5.9 (affected subscriptions) and 5.10 (a stock market), and node "
    f"stress, of {XIE}, for four ways of placing subscriptions at brokers."
)
#: What `--only` takes, and what it means. The order is the report's.
SECTIONS = {
    "5.8": "traffic by the share of ignorable updates",
    "5.9": "traffic by the number of affected subscriptions",
    "5.10": "traffic of a stock market by the number of subscriptions",
    "stress": "how node stress is distributed over the events of 5.10's largest run",
    "control": "the market over a real network (needs --topology or --data)",
    "scaling": "how time grows with events, subscriptions and cores",
}
