"""The benchmark's report in the terminal: tables with ours and the figures of Xie (2007) side by side."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from hullcast.sim import XIE
from hullcast.sim.bench.covers import CoversReport
from hullcast.sim.bench.engine import EngineReport
from hullcast.sim.bench.tables import (
    THESIS_GROWTH,
    THESIS_UNICAST,
    RowsSection,
    SubscriptionsSection,
    UpdateCost,
    chance,
)
from hullcast.sim.bench.throughput import ThroughputSection
from hullcast.sim.output.goals import goals_table
from hullcast.sim.output.text import number, plain_table


def show(report: EngineReport, console: Console) -> None:
    """Print everything that was measured."""
    here = report.machine
    console.print(
        f"\n{here['cpu']}, {here['cores']} cores, load {here['load'][0]}; Python {here['python']}, numba "
        f"{here['numba']}; medians of {report.settings.rounds} interleaved rounds "
        "where not said otherwise",
        style="dim",
    )
    if report.rows is not None:
        _show_rows(report.rows, chance(report.settings), console)
    if report.subscriptions is not None:
        _show_subscriptions(report.subscriptions, console)
    if report.throughput is not None:
        _show_throughput(report.throughput, console)
    if report.goals:
        console.print()
        console.print(goals_table(report.goals))


def _costs(title: str, first: str, lines: tuple[UpdateCost, ...], *, by_rows: bool) -> Table:
    kernel = ("ceiling\nus", "kernel\nus") if by_rows else ()
    counts = ("S-CN\nmsgs", "Xie\n2007", "S-UN\nmsgs", "Xie\n2007")
    table = plain_table(title, f"\n{first}", *counts, *kernel, "S-CN\nus", "\ngrowth", "S-UN\nus", "S-UN/\nS-CN")
    for line in lines:
        thesis = (f"{line.thesis[0]:.2f}", f"{line.thesis[1]:,.0f}") if line.thesis else ("", "")
        size = f"{line.rows if by_rows else line.subscriptions:,}"
        cells = (f"{line.messages:.2f}", thesis[0], f"{line.told:,.0f}", thesis[1])
        alone = (number(line.ceiling_us), number(line.kernel_us)) if by_rows else ()
        served = (number(line.engine_us), f"{line.growth.median:.2f}x", number(line.unicast_us))
        table.add_row(size, *cells, *alone, *served, f"{line.unicast_ratio.median:.1f}x")
    return table


def _show_rows(section: RowsSection, luck: float, console: Console) -> None:
    title = f"Table 5.2, Figure 5.6: per update, {section.lines[0].subscriptions:,} subscriptions"
    console.print()
    console.print(_costs(title, "rows", section.lines, by_rows=True))
    low, high = THESIS_UNICAST
    console.print(
        f"Xie 2007 is {XIE}; there S-CN takes x{THESIS_GROWTH} the time from 10k to 100k rows, and S-UN {low} to "
        f"{high} times that of S-CN. Ceiling: a static min-tree doing the same searches, writing nothing. "
        "Growth and S-UN/S-CN are medians of the ratios round by round, so on a busy machine they need not equal the "
        "ratio of the columns. S-UN's messages depend on rare "
        f"spikes: one deviation of chance is {luck:.0%} in this run.",
        style="dim",
    )
    table = plain_table(
        "without an index of subscriptions: every answer recomputed", "rows", "scan us", "search us", "all, s"
    )
    for line in section.requery:
        table.add_row(f"{line.rows:,}", number(line.scan_us), number(line.search_us), f"{line.round_s:,.1f}")
    console.print()
    console.print(table)


def _show_subscriptions(section: SubscriptionsSection, console: Console) -> None:
    title = f"Table 5.3, Figure 5.7: per update, {section.lines[0].rows:,} rows"
    console.print()
    console.print(_costs(title, "subscriptions", section.lines, by_rows=False))
    console.print(
        "S-CN knows no subscription, so its column cannot grow: what it varies by is this machine's noise. Below: one "
        "timing each, no rounds.",
        style="dim",
    )
    table = plain_table("updates/s", "subscriptions", "each by itself", "Electric (docs)", "S-UN here", "S-CN here")
    lines = {line.subscriptions: line for line in section.lines}
    flat = f"{1e6 / section.lines[0].engine_us:,.0f}"
    for point in section.curve:
        line = lines.get(point.subscriptions)
        table.add_row(
            f"{point.subscriptions:,}",
            f"{point.per_subscriber:,.0f}",
            f"{point.electric:,.0f}" if point.electric else "",
            f"{1e6 / line.unicast_us:,.0f}" if line else "",
            f"{1e6 / line.engine_us:,.0f}" if line else flat,
        )
    console.print()
    console.print(table)


def _show_throughput(section: ThroughputSection, console: Console) -> None:
    single = ("one row as a dict", f"{1e6 / section.single_us:,.0f}", number(section.single_us), "")
    for title, first, rates, more in (
        (f"throughput, {section.rows:,} rows", "range MIN", section.by_batch, [single]),
        (f"by type, batches of {section.by_type[0].batch:,}", "subscription type", section.by_type, []),
    ):
        table = plain_table(title, first, "updates/s", "us", "messages")
        for rate in rates:
            table.add_row(rate.name, f"{rate.rate:,.0f}", number(rate.us), f"{rate.messages:.2f}")
        for row in more:
            table.add_row(*row)
        console.print()
        console.print(table)
    table = plain_table("memory, one range-MIN channel", "rows", "bytes a row, counted", "resident")
    for line in section.memory:
        table.add_row(f"{line.rows:,}", f"{line.counted:,.0f}", f"{line.resident:,.0f}")
    console.print()
    console.print(table)


def show_covers(report: CoversReport, console: Console) -> None:
    """Print what covers save and let through."""
    settings = report.settings
    for form, split in dict.fromkeys((line.form, line.split) for line in report.lines):
        title = f"{form}, {settings.subscriptions:,} subscriptions over {settings.gateways} gateways by {split}"
        table = plain_table(title, "\nboxes allowed", "\nused", "bytes a\ngateway", "\nsent", "\nneedless", "\nns")
        for line in (line for line in report.lines if (line.form, line.split) == (form, split)):
            way = f"{line.way}{', one by one' if line.singly else ''}"
            shares = (f"{line.sent:.1%}", f"{line.needless:.1%}")
            table.add_row(
                way, f"{line.boxes:,.0f}" if line.boxes else "", f"{line.bytes:,.0f}", *shares, f"{line.ns:,.0f}"
            )
        console.print()
        console.print(table)
    console.print(
        "exact: every point is known, so what it sends is what is needed. sent: of all pairs of a message and a "
        "gateway. needless: of the pairs not needed, those sent. ns: a message and gateway, median of "
        f"{settings.rounds} rounds. One by one: subscriptions came singly, not all at once.",
        style="dim",
    )
