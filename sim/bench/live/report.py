"""The live benchmark's report: what was measured, the goals, and all of it in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from hullcast.sim.bench.live.baselines import Chain
from hullcast.sim.bench.live.cluster import LiveSettings
from hullcast.sim.output.goals import Goal, goals_table
from hullcast.sim.output.text import number, plain_table, short, times

#: Goals.
UPDATES_S = 100_000.0
P99_MS = 20.0
GROWTH = 1.3
INSTALL_S = 10.0
SINGLE_MS = 5.0


@dataclass(frozen=True, slots=True)
class Installed:
    """All clients subscribe at once, to a channel that is not there yet; until the last has its answers."""

    subscriptions: int
    seconds: float
    slowest_client_s: float


@dataclass(frozen=True, slots=True)
class Latency:
    """From the call of `publish` to the yield of `changes()`, each update once per client that receives it."""

    rate: float  # updates/s, as they went
    batch: int
    samples: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    receipt_p50_ms: float  # to the publisher's receipt
    late_p99_ms: float  # how late the publisher itself was


@dataclass(frozen=True, slots=True)
class Sustained:
    """As fast as acknowledged; the clock stops when the last client has heard everything."""

    updates: int
    seconds: float
    updates_s: float
    drain_s: float  # of these, after the last receipt
    checked: int  # answers compared, all of them
    checked_by_sql: int
    wrong: int
    busy: Mapping[str, float]  # process to its share of one core
    cores: int


@dataclass(frozen=True, slots=True)
class CostLine:
    """One update, by the number of subscriptions, paced; medians of the rounds. Microseconds of CPU, and counts."""

    subscriptions: int
    server_us: float
    nodes_us: float
    clients_us: float
    server_messages: float
    server_bytes: float
    client_messages: float
    client_bytes: float
    told: float  # pairs of an update and a subscription whose answer it changes: what unicast would send


@dataclass(frozen=True, slots=True)
class Interval:
    """The CN way, per update: the same ranges as SUM, whose messages are the updates."""

    updates: int
    pairs: float  # an update and a subscription whose range holds it
    client_messages: float
    client_bytes: float
    clients_us: float


@dataclass(frozen=True, slots=True)
class Single:
    """Publishes of one row, one after the other, each durable; and the least that could take."""

    count: int
    p50_ms: float
    p99_ms: float
    disk_p50_ms: float


@dataclass(frozen=True, slots=True)
class LiveReport:
    """Everything that was measured."""

    machine: dict[str, Any]
    settings: LiveSettings
    installed: Installed
    latency: Latency
    sustained: Sustained
    costs: tuple[CostLine, ...]
    interval: Interval
    single: Single
    unpruned_bytes: float  # an update, from a server that prunes nothing
    chain: Chain
    goals: tuple[Goal, ...]


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
    # The system counts processor time in hundredths of a second: a short round may have none.
    server = times(last.server_us, first.server_us)
    growth = times(last.server_us + last.nodes_us, first.server_us + first.nodes_us)

    def below(aim: str, limit: float, value: float, unit: str) -> Goal:
        return Goal(aim, f"< {limit:.0f} {unit}", f"{value:.1f} {unit}", limit / value)

    rate = sustained.updates_s
    return (
        Goal("updates/s, sustained", f">= {short(UPDATES_S)}", short(rate), rate / UPDATES_S),
        Goal("every answer right", "all", right, float(all_right)),
        below(f"publish to event, p99, {short(latency.rate)}/s", P99_MS, latency.p99_ms, "ms"),
        Goal(f"CPU, server, {span}", f"<= {GROWTH}x", f"{server:.2f}x", times(GROWTH, server)),
        Goal(f"CPU, server and nodes, {span}", f"<= {GROWTH}x", f"{growth:.2f}x", times(GROWTH, growth)),
        below(f"{short(installed.subscriptions)} subs with snapshots", INSTALL_S, installed.seconds, "s"),
        below("durable publish of one row, p50", SINGLE_MS, single.p50_ms, "ms"),
    )


def show_live(report: LiveReport, console: Console) -> None:
    """Print everything that was measured."""
    here, settings = report.machine, report.settings
    console.print(
        f"\n{here['cpu']}, {here['cores']} cores, load {here['load'][0]}; Python {here['python']}; one server with a "
        f"synced log, one root, {settings.gateways} gateways, {settings.clients} clients, one publisher: a process "
        f"each; {settings.rows:,} rows, Table 5.1's ranges and updates",
        style="dim",
    )
    for show in (_show_speed, _show_limit, _show_costs, _show_ways):
        console.print()
        show(report, console)
    console.print()
    console.print(goals_table(report.goals))


def _show_speed(report: LiveReport, console: Console) -> None:
    sustained, latency, single, chain = report.sustained, report.latency, report.single, report.chain
    table = plain_table("beside a bare ZeroMQ chain of the same hops and frames", "", "live", "chain", "live/chain")
    rows = (
        ("updates/s, as fast as acknowledged", sustained.updates_s, chain.updates_s),
        ("publish to event, p50 ms", latency.p50_ms, chain.p50_ms),
        ("publish to event, p99 ms", latency.p99_ms, chain.p99_ms),
        ("publish to event, max ms", latency.max_ms, chain.max_ms),
        ("receipt of one row, p50 ms", single.p50_ms, chain.single_p50_ms),
    )
    for name, ours, bare in rows:
        table.add_row(name, number(ours), number(bare), f"{ours / bare:.2f}x")
    console.print(table)
    console.print(
        f"As fast as acknowledged: {sustained.updates:,} updates in batches of {report.settings.batch:,}, "
        f"{report.settings.in_flight} on the way, {sustained.seconds:.1f} s until the last client had heard all "
        f"({sustained.drain_s:.2f} s of it after the last receipt). Answers compared afterwards: {sustained.checked:,} "
        f"with NumPy, {sustained.checked_by_sql} of them with SQLite too; wrong: {sustained.wrong}. "
        f"Events: {latency.samples:,} samples at {latency.rate:,.0f} updates/s in batches of {latency.batch}, each "
        "update once per client that receives it, from the call of publish to the yield of changes(); the publisher "
        f"itself was up to {latency.late_p99_ms:.1f} ms late (p99), its receipts took {latency.receipt_p50_ms:.1f} ms "
        f"(p50). One row, durable: p99 {single.p99_ms:.1f} ms; a bare write and sync here {single.disk_p50_ms:.2f} ms "
        f"(p50). Installing {report.installed.subscriptions:,} subscriptions took {report.installed.seconds:.2f} s.",
        style="dim",
    )


def _show_limit(report: LiveReport, console: Console) -> None:
    sustained = report.sustained
    table = plain_table("where the limit is: CPU while as fast as acknowledged", "process", "of a core")
    for name, share in sorted(sustained.busy.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{share:.0%}")
    total = sum(sustained.busy.values())
    table.add_row("all", f"{total:.0%} of {sustained.cores}00%")
    console.print(table)
    cost_us = 1e6 * total / sustained.updates_s
    console.print(
        f"{cost_us:.1f} us of CPU an update in all processes together: at that, {sustained.cores} cores that do "
        f"nothing else would carry {1e6 * sustained.cores / cost_us:,.0f} updates/s. The rest of "
        f"{sustained.cores}00% was used by other processes or idle: each process also waits for those before it.",
        style="dim",
    )


def _show_costs(report: LiveReport, console: Console) -> None:
    title = f"an update, at {report.settings.paced_rate:,} updates/s in batches of {report.settings.batch:,}"
    cpu, sent = (
        ("CPU us:\nserver", "\nnodes", "\nclients"),
        ("server:\nmsgs", "\nbytes", "to clients:\nmsgs", "\nbytes"),
    )
    table = plain_table(title, "\nsubs", *cpu, *sent, "\nunicast")
    for line in report.costs:
        used = map(number, (line.server_us, line.nodes_us, line.clients_us))
        server = (f"{line.server_messages:.2f}", number(line.server_bytes))
        clients = (f"{line.client_messages:.2f}", number(line.client_bytes))
        table.add_row(f"{line.subscriptions:,}", *used, *server, *clients, number(line.told))
    console.print(table)
    most = report.costs[-1]
    console.print(
        f"Without pruning {report.unpruned_bytes:,.0f} bytes leave the server for an update, with it "
        f"{most.server_bytes / report.unpruned_bytes:.0%} of them at {most.subscriptions:,} subscriptions and "
        f"{report.costs[0].server_bytes / report.unpruned_bytes:.0%} at {report.costs[0].subscriptions:,}. Unicast: "
        "pairs of an update and a subscription whose answer it changes.",
        style="dim",
    )


def _show_ways(report: LiveReport, console: Console) -> None:
    ours, theirs = report.costs[-1], report.interval
    title = f"the CN way: each update to every subscription whose range holds it ({ours.subscriptions:,} subscriptions)"
    table = plain_table(title, "an update", "MIN, ours", "SUM, as CN", "CN/ours")
    rows = (
        ("subscriptions notified", ours.told, theirs.pairs),
        ("messages to client processes", ours.client_messages, theirs.client_messages),
        ("bytes to client processes", ours.client_bytes, theirs.client_bytes),
        ("clients' CPU us", ours.clients_us, theirs.clients_us),
    )
    for name, our, cn in rows:
        table.add_row(name, number(our), number(cn), f"{cn / our:.1f}x" if our else "")
    console.print(table)
