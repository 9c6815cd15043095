"""All peers by name, and the two ends of each in worker processes."""

from __future__ import annotations

from collections.abc import Callable

from hullcast.sim.bench.peers.deephaven_peer import Deephaven, DeephavenEngine
from hullcast.sim.bench.peers.engines import InProcessEngine
from hullcast.sim.bench.peers.interface import BenchPeer, Facts, Part, PeerPublisher, Seen, Subscriber
from hullcast.sim.bench.peers.nats_peers import Nats, NatsPublisher, NatsSubscriber
from hullcast.sim.bench.peers.ours import Hullcast, HullcastPublisher, HullcastSubscriber
from hullcast.sim.bench.peers.pathway_peer import Pathway, PathwayEngine
from hullcast.sim.bench.peers.postgres_peer import Postgres, PostgresPublisher, PostgresSubscriber
from hullcast.sim.bench.peers.redis_peers import Redis, RedisPublisher, RedisSubscriber
from hullcast.sim.bench.peers.sqlite_peer import Sqlite, SqliteEngine

NODES = 3

PEERS: dict[str, Callable[[], BenchPeer]] = {
    "hullcast": lambda: Hullcast(0),
    "hullcast-nodes": lambda: Hullcast(NODES),
    "nats": lambda: Nats(jetstream=False),
    "jetstream": lambda: Nats(jetstream=True),
    "redis": lambda: Redis(streams=False),
    "redis-streams": lambda: Redis(streams=True),
    "postgres": Postgres,
    "sqlite": Sqlite,
    "pathway": Pathway,
    "deephaven": Deephaven,
}


def publisher_of(name: str, facts: Facts, progress: Seen, here: Subscriber | None) -> PeerPublisher:
    """The publishing end of a started peer; `here` is the other end, if it is in this process."""
    match name:
        case "hullcast" | "hullcast-nodes":
            return HullcastPublisher(facts)
        case "nats" | "jetstream":
            return NatsPublisher(facts, progress)
        case "redis" | "redis-streams":
            return RedisPublisher(facts, progress)
        case "postgres":
            return PostgresPublisher(facts)
    assert isinstance(here, SqliteEngine | InProcessEngine), "both ends are one"
    return here


def subscriber_of(name: str, facts: Facts, part: Part) -> Subscriber:
    """The subscribing end: some connections."""
    match name:
        case "hullcast" | "hullcast-nodes":
            return HullcastSubscriber(facts, part)
        case "nats" | "jetstream":
            return NatsSubscriber(facts, part)
        case "redis" | "redis-streams":
            return RedisSubscriber(facts, part)
        case "postgres":
            return PostgresSubscriber(facts, part)
        case "pathway":
            return PathwayEngine(facts, part)
        case "deephaven":
            return DeephavenEngine(facts, part)
    return SqliteEngine(facts, part)
