"""How much `hullcast bench live` measures: the full form, the quick one, and whatever a test asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """Sizes and times. Rates, the latencies' quantiles and CPU times get steadier with longer phases."""

    rows: int = 10_000
    subscriptions: int = 100_000  # in total
    clients: int = 4
    gateways: int = 2
    prepared: int = 400_000  # updates drawn beforehand; then they are published again from the first on
    batch: int = 1_000  # rows of a publish, when as many updates as possible are wanted
    in_flight: int = 8  # publishes without a receipt then
    warm_s: float = 2.0  # of each kind of load, before anything is counted
    sustained_s: float = 12.0
    paced_rate: int = 20_000  # updates/s, for latencies and the cost of an update
    paced_batch: int = 100
    latency_s: float = 10.0
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)  # subscriptions, for the cost of an update
    size_rounds: int = 3
    size_s: float = 3.0
    singles: int = 500  # publishes of one row, one after the other
    interval_updates: int = 4_000  # each to every subscription whose range holds it
    unpruned_updates: int = 40_000
    chain_s: float = 4.0
    checked_by_sql: int = 200  # answers that SQLite computes too; NumPy computes all
    seed: int = 0


FULL_LIVE = LiveSettings()
QUICK_LIVE = LiveSettings(
    prepared=150_000,
    warm_s=0.5,
    sustained_s=3.0,
    latency_s=2.5,
    size_rounds=1,
    size_s=1.0,
    singles=100,
    interval_updates=1_000,
    unpruned_updates=10_000,
    chain_s=1.0,
    checked_by_sql=50,
)
