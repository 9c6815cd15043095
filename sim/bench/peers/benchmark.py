"""`hullcast bench peers`: one job, by Hullcast and by the systems a user would try first (PEERS.md)."""

from __future__ import annotations

from hullcast.sim.bench.frame.benchmark import Benchmark, BenchSection
from hullcast.sim.bench.peers.cells import FULL_PEERS, PEERS, QUICK_PEERS, PeerSettings, chosen
from hullcast.sim.bench.peers.figure import draw_peers
from hullcast.sim.bench.peers.measure import measure_peers, peer_steps
from hullcast.sim.bench.peers.report import peer_goals, peer_tables


def _head(settings: PeerSettings) -> str:
    return (
        f"{settings.rows:,} rows, MIN over ranges as in Table 5.1 of Xie (2007); medians of {settings.rounds} "
        f"round(s), {settings.measured_s:g} s each."
    )


PEERS_BENCH = Benchmark(
    name="peers",
    about="the same job done by Hullcast, NATS, Redis, PostgreSQL and others",
    description="Keeps personal MIN subscriptions up to date while rows change, with Hullcast and with each other "
    "system that is installed here: updates/s, CPU of all processes, latency, bytes and memory, every answer checked. "
    "Peers take turns.",
    full=FULL_PEERS,
    quick=QUICK_PEERS,
    quick_about="the main cells, and short: about two minutes",
    head=_head,
    choose=chosen,
    names="Peers: " + ", ".join(PEERS) + ". Cells: " + ", ".join(cell.name for cell in FULL_PEERS.cells) + ".",
    sections=(
        BenchSection(
            "peers",
            "updates/s, CPU, latency, bytes and memory by peer and cell",
            measure_peers,
            peer_tables,
            peer_goals,
            {"peers": draw_peers},
            peer_steps,
        ),
    ),
)
