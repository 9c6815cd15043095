"""Brokers among the nodes: who forwards to whom, and which of them a subscription lives at."""
