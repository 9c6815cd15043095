"""What the live system aims at, and whether this run reached it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.sim.bench.goals import Goal, short

if TYPE_CHECKING:
    from hullcast.sim.bench.live.measure import CostLine, Installed, Latency, Single, Sustained
    from hullcast.sim.bench.live.settings import LiveSettings

UPDATES_S = 100_000.0
P99_MS = 20.0
GROWTH = 1.3
INSTALL_S = 10.0
SINGLE_MS = 5.0


def live_goals(
    settings: LiveSettings,
    installed: Installed,
    latency: Latency,
    sustained: Sustained,
    costs: tuple[CostLine, ...],
    single: Single,
) -> tuple[Goal, ...]:
    """All aims."""
    all_right = sustained.checked == settings.subscriptions and not sustained.wrong
    right = f"all {short(sustained.checked)}" if all_right else f"{sustained.wrong:,} wrong"
    first, last = costs[0], costs[-1]
    span = f"{short(first.subscriptions)} to {short(last.subscriptions)} subs"
    server = last.server_us / first.server_us
    all_us = [line.server_us + line.nodes_us for line in (first, last)]
    growth = all_us[1] / all_us[0]
    return (
        Goal(
            "updates/s, sustained",
            f">= {short(UPDATES_S)}",
            short(sustained.updates_s),
            sustained.updates_s / UPDATES_S,
        ),
        Goal("every answer right", "all", right, float(all_right)),
        Goal(
            f"publish to event, p99, {short(latency.rate)}/s",
            f"< {P99_MS:.0f} ms",
            f"{latency.p99_ms:.1f} ms",
            P99_MS / latency.p99_ms,
        ),
        Goal(f"CPU, server, {span}", f"<= {GROWTH}x", f"{server:.2f}x", GROWTH / server),
        Goal(f"CPU, server and nodes, {span}", f"<= {GROWTH}x", f"{growth:.2f}x", GROWTH / growth),
        Goal(
            f"{short(installed.subscriptions)} subs with snapshots",
            f"< {INSTALL_S:.0f} s",
            f"{installed.seconds:.1f} s",
            INSTALL_S / installed.seconds,
        ),
        Goal(
            "durable publish of one row, p50",
            f"< {SINGLE_MS:.0f} ms",
            f"{single.p50_ms:.1f} ms",
            SINGLE_MS / single.p50_ms,
        ),
    )
