"""The live benchmark's report in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.sim.bench.report import goals_table, number, plain_table

if TYPE_CHECKING:
    from rich.console import Console

    from hullcast.sim.bench.live.measure import LiveReport


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
        "update once per client that hears of it, from the call of publish to the yield of changes(); the publisher "
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
        f"nothing else would carry {1e6 * sustained.cores / cost_us:,.0f} updates/s. What is missing to "
        f"{sustained.cores}00% others used, or nobody: each process also waits for those before it.",
        style="dim",
    )


def _show_costs(report: LiveReport, console: Console) -> None:
    table = plain_table(
        f"an update, at {report.settings.paced_rate:,} updates/s in batches of {report.settings.batch:,}",
        "\nsubs",
        "CPU us:\nserver",
        "\nnodes",
        "\nclients",
        "server:\nmsgs",
        "\nbytes",
        "to clients:\nmsgs",
        "\nbytes",
        "\nunicast",
    )
    for line in report.costs:
        table.add_row(
            f"{line.subscriptions:,}",
            number(line.server_us),
            number(line.nodes_us),
            number(line.clients_us),
            f"{line.server_messages:.2f}",
            number(line.server_bytes),
            f"{line.client_messages:.2f}",
            number(line.client_bytes),
            number(line.told),
        )
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
    table = plain_table(
        f"the CN way: each update to every subscription whose range holds it ({ours.subscriptions:,} subscriptions)",
        "an update",
        "MIN, ours",
        "SUM, as CN",
        "CN/ours",
    )
    rows = (
        ("subscriptions told", ours.told, theirs.pairs),
        ("messages to client processes", ours.client_messages, theirs.client_messages),
        ("bytes to client processes", ours.client_bytes, theirs.client_bytes),
        ("clients' CPU us", ours.clients_us, theirs.clients_us),
    )
    for name, our, cn in rows:
        table.add_row(name, number(our), number(cn), f"{cn / our:.1f}x" if our else "")
    console.print(table)
