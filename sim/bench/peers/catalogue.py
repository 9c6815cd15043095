"""All peers by name, and the two ends of each in worker processes."""

from __future__ import annotations

from collections.abc import Callable

from hullcast.sim.bench.peers.interface import Facts, Part, Peer, Progress, Publisher, Subscriber
from hullcast.sim.bench.peers.nats_peers import Nats, NatsPublisher, NatsSubscriber
from hullcast.sim.bench.peers.ours import Hullcast, HullcastPublisher, HullcastSubscriber
from hullcast.sim.bench.peers.workload import Job

NODES = 3

PEERS: dict[str, Callable[[], Peer]] = {
    "hullcast": lambda: Hullcast(0),
    "hullcast-nodes": lambda: Hullcast(NODES),
    "nats": lambda: Nats(jetstream=False),
    "jetstream": lambda: Nats(jetstream=True),
}


def publisher_of(name: str, facts: Facts, job: Job, progress: Progress) -> Publisher:
    """The publishing end of a started peer."""
    match name:
        case "hullcast" | "hullcast-nodes":
            return HullcastPublisher(facts)
        case "nats" | "jetstream":
            return NatsPublisher(facts, progress)
    raise KeyError(name)


def subscriber_of(name: str, facts: Facts, part: Part) -> Subscriber:
    """The subscribing end: some connections."""
    match name:
        case "hullcast" | "hullcast-nodes":
            return HullcastSubscriber(facts, part)
        case "nats" | "jetstream":
            return NatsSubscriber(facts, part)
    raise KeyError(name)
