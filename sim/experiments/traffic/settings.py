"""Sizes of the traffic experiments: those of Xie (2007), and smaller ones for a first look."""

from __future__ import annotations

from dataclasses import dataclass

from hullcast.sim.bench.engine.benchmark import FULL as ENGINE
from hullcast.sim.bench.engine.benchmark import EngineSettings
from hullcast.sim.overlay.tree import FANOUT


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The simulated network."""

    nodes: int = 20_000
    brokers: int = 1_000
    fanout: int = FANOUT
    seed: int = 0
    columns: tuple[str, ...] = ()  # of a topology's file: see `sim.topology.listings.Columns`


@dataclass(frozen=True, slots=True)
class FigureSettings:
    """All that decides what the figures show."""

    network: NetworkSettings = NetworkSettings()  # the first; its seed is that of workload and subscriptions, too
    seeds: int = 5  # networks drawn: topology, brokers, server and gateways, of the seeds from the first one's on
    subscriptions: int = 500_000  # of 5.8 and 5.9
    rows: int = 50_000  # of 5.8 and 5.9
    events: int = 200_000  # of 5.8 and 5.9, each point; Table 5.1's
    ignorable: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95)
    spikes: tuple[float, ...] = (0.005, 0.01, 0.02, 0.03, 0.05)  # Table 5.1's, and more
    growing: tuple[int, ...] = (100_000, 200_000, 300_000, 400_000, 500_000)  # subscriptions of 5.10
    stocks: int = 3_053
    days: int = 60
    engine: EngineSettings = ENGINE  # of 5.2, 5.3, 5.6 and 5.7
    full: bool = True  # the sizes that goals speak of


FULL = FigureSettings()
QUICK = FigureSettings(
    network=NetworkSettings(nodes=4_000, brokers=200),
    subscriptions=50_000,
    rows=5_000,
    events=10_000,
    ignorable=(0.0, 0.5, 0.9),
    spikes=(0.005, 0.02, 0.05),
    growing=(10_000, 30_000, 50_000),
    days=4,
    seeds=3,
    engine=EngineSettings(
        rows=(10_000, 20_000, 100_000),
        sweep=(100_000, 200_000, 400_000),
        rounds=5,
        updates=10_000,
        unicast_updates=1_500,
        curve=(),
        requeries=10,
    ),
    full=False,
)
