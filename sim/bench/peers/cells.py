"""What is measured: peers by name, and cells by name, in groups that share a started peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.peers.deephaven_peer import Deephaven
from hullcast.sim.bench.peers.interface import BenchPeer
from hullcast.sim.bench.peers.nats_peers import Nats
from hullcast.sim.bench.peers.ours import Hullcast
from hullcast.sim.bench.peers.pathway_peer import Pathway
from hullcast.sim.bench.peers.postgres_peer import Postgres
from hullcast.sim.bench.peers.redis_peers import Redis
from hullcast.sim.bench.peers.sqlite_peer import Sqlite

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

ROWS = 10_000
PROCESSES = 4  # that hold the connections
#: Peers that every quick cell has; others take part where they are asked for by name, or in the full run.
FIRST = ("hullcast", "hullcast-nodes", "nats")


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement of each peer. `rate` None: as fast as it goes; else updates/s, offered whatever happens."""

    name: str
    subscriptions: int
    connections: int
    rows: int  # of a call
    rate: int | None = None
    durable: bool = True

    @property
    def setup(self) -> tuple[int, int, bool]:
        """Cells with the same one run one after the other on one started peer."""
        return self.subscriptions, self.connections, self.durable

    @property
    def about(self) -> str:
        """In words."""
        calls = "single rows" if self.rows == 1 else f"calls of {self.rows:,} rows"
        speed = "as fast as it goes" if self.rate is None else f"{self.rate:,} updates/s offered"
        disk = "" if self.durable else ", in memory"
        return f"{self.subscriptions:,} subscriptions, {self.connections} connections, {calls}, {speed}{disk}"


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Sizes and times. Figures get steadier with longer phases and more rounds."""

    cells: tuple[Cell, ...]
    rows: int = ROWS
    updates: int = 200_000  # drawn beforehand; then they are published again
    rounds: int = 2  # in each of them all peers have their turn
    warm_s: float = 1.0
    measured_s: float = 5.0
    peers: tuple[str, ...] = ()  # empty: all
    seed: int = 0


def _sweep(connections: int) -> Cell:
    return Cell(f"connections-{connections}", 50 * connections, connections, 1)


_SINGLE = Cell("single", 10_000, 4, 1)
_GOALS = (
    _SINGLE,
    Cell("single-200", 10_000, 4, 1, 200),
    Cell("single-2000", 10_000, 4, 1, 2_000),
    Cell("hundred-20000", 10_000, 4, 100, 20_000),
    Cell("thousand", 10_000, 4, 1_000),
)
_CALM = Cell("connections-200-50", 10_000, 200, 1, 50)  # a rate that all keep up with
_SIZES = tuple(
    Cell(f"{name}-{short}", subscriptions, 4, rows)
    for short, subscriptions in (("10subs", 10), ("1ksubs", 1_000), ("100ksubs", 100_000))
    for name, rows in (("single", 1), ("thousand", 1_000))
)
_MEMORY = tuple(
    Cell(f"{name}-memory", 10_000, 4, rows, durable=False) for name, rows in (("single", 1), ("thousand", 1_000))
)
FULL_PEERS = PeerSettings((
    *_GOALS, Cell("ten", 10_000, 4, 10), *_MEMORY, *_SIZES, *map(_sweep, (1, 4, 16, 50, 200)), _CALM,
))  # fmt: skip
QUICK_PEERS = PeerSettings(
    (*_GOALS, *map(_sweep, (1, 4, 16, 200)), _CALM), rounds=1, warm_s=0.4, measured_s=1.5, updates=100_000, peers=FIRST
)


def chosen(settings: PeerSettings, only: Sequence[str]) -> PeerSettings:
    """With the peers and cells that `--only` names; none of a kind named: all of the settings'. A cell of the full run
    may be named with `--quick` too."""
    cells = {cell.name: cell for cell in (*FULL_PEERS.cells, *settings.cells)}
    unknown = [name for name in only if name not in PEERS and name not in cells]
    if unknown:
        raise UsageError(
            f"--only {unknown[0]}: no such peer or cell; peers: {', '.join(PEERS)}; cells: {', '.join(cells)}"
        )
    some_peers = tuple(name for name in PEERS if name in only) or settings.peers or tuple(PEERS)
    some_cells = tuple(cell for name, cell in cells.items() if name in only) or settings.cells
    return replace(settings, peers=some_peers, cells=some_cells)


def groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that share a setup, together."""
    return [list(some) for _, some in groupby(sorted(cells, key=lambda cell: cell.setup), key=lambda cell: cell.setup)]
