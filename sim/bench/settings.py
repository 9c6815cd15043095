"""How much is measured: the full benchmark, the quick one, and whatever a test asks for."""

from __future__ import annotations

from dataclasses import dataclass

#: The sections, in order, and what each one shows.
SECTIONS = {
    "rows": "Table 5.2, Figure 5.6: messages and time by the number of rows",
    "subscriptions": "Table 5.3, Figure 5.7: messages and time by the number of subscriptions",
    "throughput": "throughput by batch size and subscription type, latency, memory",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes. More rounds: steadier medians. More updates a round: steadier counts of messages (spikes are rare)."""

    rows: tuple[int, ...] = (10_000, 20_000, 40_000, 60_000, 80_000, 100_000, 1_000_000)
    subscriptions: int = 500_000  # for the sweep over rows
    fewest_rows: int = 10_000  # for the sweep over subscriptions
    sweep: tuple[int, ...] = (100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000)
    rounds: int = 15
    updates: int = 50_000  # a round, for S-CN
    unicast_updates: int = 5_000  # a round, for S-UN
    batch: int = 1_000
    batches: tuple[int, ...] = (1, 10, 100, 1_000, 10_000)
    types_rows: int = 100_000
    single_updates: int = 5_000
    curve: tuple[int, ...] = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
    curve_seconds: float = 0.4
    requeries: int = 200
    seed: int = 0


FULL = Settings()
QUICK = Settings(
    rows=(10_000, 100_000, 1_000_000),
    sweep=(100_000, 500_000, 1_000_000),
    rounds=5,
    updates=20_000,
    unicast_updates=3_000,
    single_updates=2_000,
    curve_seconds=0.15,
    requeries=50,
)
