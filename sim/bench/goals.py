"""What we aim at, and whether this run reached it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hullcast.sim.bench.tables import Cost, RowsSection, SubscriptionsSection
    from hullcast.sim.bench.throughput import ThroughputSection

KERNEL_RATE = 2e6
ENGINE_RATE = 5e5
SINGLE_US = 60.0
GROWTH = 1.5
UNICAST = 10.0
NOISE = 1.05  # a ratio this close to 1 is no growth that this machine can show


@dataclass(frozen=True, slots=True)
class Goal:
    """One aim. `share` is how much of it was reached: 1 or more is a pass."""

    name: str
    target: str
    measured: str
    share: float

    @property
    def passed(self) -> bool:
        """Whether it was reached."""
        return self.share >= 1.0


def goals(
    rows: RowsSection | None, subscriptions: SubscriptionsSection | None, speed: ThroughputSection | None
) -> tuple[Goal, ...]:
    """The aims that the sections measured can judge."""
    found: list[Goal] = []
    if rows is not None:
        found += _of_rows(rows)
    if subscriptions is not None:
        first, last = subscriptions.lines[0], subscriptions.lines[-1]
        growth = last.growth
        found.append(
            Goal(
                f"S-CN time, {short(first.subscriptions)} to {short(last.subscriptions)} subscriptions",
                f"<= {NOISE:.2f}x",
                f"{growth.median:.2f}x, q1 {growth.q1:.2f}x",
                NOISE / growth.q1,  # q1, the lower quartile: growth is measurable when three rounds of four show it
            )
        )
    if speed is not None:
        found.append(
            Goal(
                "single-row upsert, median",
                f"< {SINGLE_US:.0f} us",
                f"{speed.single_us:.1f} us",
                SINGLE_US / speed.single_us,
            )
        )
    return tuple(found)


def _of_rows(section: RowsSection) -> list[Goal]:
    middle = _nearest(section.lines, 100_000)
    first, last = section.lines[0], section.lines[-1]
    found = []
    at = f"at {short(middle.rows)} rows"
    if middle.kernel_us is not None:
        rate = 1e6 / middle.kernel_us
        found.append(Goal(f"S-CN kernel {at}", f">= {short(KERNEL_RATE)}/s", f"{short(rate)}/s", rate / KERNEL_RATE))
    rate = 1e6 / middle.engine_us
    found.append(
        Goal(f"Engine.upsert with columns {at}", f">= {short(ENGINE_RATE)}/s", f"{short(rate)}/s", rate / ENGINE_RATE)
    )
    span = f"{short(first.rows)} to {short(last.rows)} rows"
    growth = last.growth.median
    found.append(Goal(f"S-CN time, engine, {span}", f"<= {GROWTH}x", f"{growth:.2f}x", GROWTH / growth))
    if last.kernel_growth is not None:
        growth = last.kernel_growth.median
        found.append(Goal(f"S-CN time, kernel, {span}", f"<= {GROWTH}x", f"{growth:.2f}x", GROWTH / growth))
    dearer = middle.unicast_ratio.median
    found.append(
        Goal(
            f"S-UN / S-CN {at}, {short(middle.subscriptions)} subs",
            f">= {UNICAST:.0f}x",
            f"{dearer:.1f}x",
            dearer / UNICAST,
        )
    )
    return found


def _nearest(lines: tuple[Cost, ...], rows: int) -> Cost:
    return min(lines, key=lambda line: abs(line.rows - rows))


def short(value: float) -> str:
    """1500000 as 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
