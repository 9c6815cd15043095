"""How the demo looks: one frame as a rich renderable, and the same in plain lines."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING, Any

from rich import box
from rich.bar import Bar
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from clients.demo.scenario import Scenario, Traffic, Watched

SHOWN_ROWS = 3
TALL = 30  # lines of a terminal in which a frame with two-line rows has room
COLOURS = {"MIN": "cyan", "MAX": "cyan", "DISTINCT": "magenta", "COUNT": "green", "SUM": "green", "AVG": "green"}
WORDS = (
    "SELECT",
    "DISTINCT",
    "FROM",
    "WHERE",
    "BETWEEN",
    "AND",
    "JOIN",
    "USING",
    "ON",
    "MIN",
    "MAX",
    "COUNT",
    "SUM",
    "AVG",
)


def frame(scenario: Scenario, total: int, title: str, *, tall: bool) -> RenderableType:
    """The whole picture at this moment; where the terminal is tall enough, long SQL takes two lines."""
    done = Table.grid(expand=True, padding=(0, 1))
    done.add_column(ratio=1)
    done.add_column(justify="right", no_wrap=True)
    rate = scenario.updates / scenario.busy_s if scenario.busy_s else 0.0
    done.add_row(
        Bar(max(1, total), 0, scenario.updates, color="blue", bgcolor="grey23"),
        Text.assemble((f"{scenario.updates:,}", "bold"), f" of {total:,} updates"),
    )
    traffic = scenario.traffic()
    told = traffic.told / scenario.busy_s if scenario.busy_s else 0.0
    speed = Text.assemble(
        "while the engine works: ",
        (f"{rate:,.0f}", "bold"),
        " updates/s, ",
        (f"{told:,.0f}", "bold"),
        " answers changed/s",
    )
    return Panel(
        Group(_answers(scenario.watched, tall), _bars(traffic), Text(), done, speed),
        title=f"[bold]{title}[/]",
        subtitle="[dim]every answer will be checked with SQLite[/]",
        border_style="blue",
        box=box.ROUNDED,
    )


def plain_line(scenario: Scenario, total: int) -> str:
    """The same in one line."""
    traffic = scenario.traffic()
    answers = "; ".join(f"{watched.kind} {shown(watched.answer)}" for watched in scenario.watched[:6:2])
    return (
        f"{scenario.updates:>7,} of {total:,} updates | messages per update: {traffic.described:.2f}, "
        f"unicast {traffic.unicast:,.1f} | {answers}"
    )


def shown(answer: Any) -> str:
    """An answer in a few words."""
    if answer is None:
        return "NULL"
    if isinstance(answer, float):
        return f"{answer:,.2f}"
    if isinstance(answer, int):
        return f"{answer:,}"
    items = sorted(answer) if isinstance(answer, set) else [" ".join(map(_cell, row)) for row in answer]
    if not items:
        return "nothing"
    rest = f", +{len(items) - SHOWN_ROWS}" if len(items) > SHOWN_ROWS else ""
    return ", ".join(map(str, items[:SHOWN_ROWS])) + rest


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _answers(watched: list[Watched], tall: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("subscription", ratio=2, no_wrap=not tall, overflow="ellipsis")
    table.add_column("answer now", ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("changes", justify="right", no_wrap=True)
    for one in watched:
        table.add_row(_sql(one.sql), _answer(one), f"{one.changes:,}")
    return table


def _sql(sql: str) -> Text:
    text = Text(sql, style="default")
    text.highlight_words(WORDS, "bold blue")
    return text


def _answer(watched: Watched) -> Text:
    now, before = watched.answer, watched.before
    text = Text(shown(now), style=f"bold {COLOURS.get(watched.kind.split()[0], 'yellow')}")
    if isinstance(now, float | int) and isinstance(before, float | int):
        text.append(" ▲" if now > before else " ▼", style="green" if now > before else "red")
    return text


def _bars(traffic: Traffic) -> Table:
    """Messages per update, described and enumerated, as bars on a logarithmic scale."""
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(ratio=1, no_wrap=True)
    scale = log10(1 + max(traffic.unicast, 10.0))
    for name, value, style in (("Hullcast", traffic.described, "green"), ("unicast", traffic.unicast, "red")):
        share = log10(1 + value) / scale
        table.add_row(
            Text(name, style=f"bold {style}"), f"{value:,.2f}", Bar(1.0, 0, share, color=style, bgcolor="grey23")
        )
    heading = Text.assemble(
        ("messages per update ", "bold"), (f"to {traffic.subscriptions:,} range-MIN subscriptions, log scale", "dim")
    )
    grid = Table.grid(expand=True)
    grid.add_row(heading)
    grid.add_row(table)
    return grid
