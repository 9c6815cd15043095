"""Figures and sizes as text, short enough for a table, and tables in Markdown and in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from rich import box
from rich.table import Table


def short(value: float) -> str:
    """1500000 as 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def number(value: float | None) -> str:
    """Three digits or so: 0.42, 8.10, 97.2, 12,345; nothing for None."""
    if value is None:
        return ""
    size = abs(value)
    if size >= 99.95 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def factor(ratio: float) -> str:
    """How many times: 0.72x, 8.2x, 31x, 1,087x."""
    if ratio >= 1.095:
        return f"{ratio:,.0f}x" if ratio >= 19.95 else f"{ratio:.1f}x"
    return f"{ratio:.3g}x" if ratio > 0.9 else f"{ratio:.2g}x"  # near 1 it matters on which side


def span(values: Sequence[float]) -> str:
    """From the smallest to the largest, or the one value that all have."""
    return _ends(number(min(values)), number(max(values)))


def factor_span(ratios: Sequence[float]) -> str:
    """The same for factors."""
    return _ends(factor(min(ratios)), factor(max(ratios)))


def middle(values: Sequence[float], form: Callable[[float], str] = number) -> str:
    """The median, and where values differ from where to where they go: `50.0 [45.1 .. 52.0]`."""
    ends = [form(min(values)), form(max(values))]
    return form(median(values)) + (f" [{ends[0]} .. {ends[1]}]" if ends[0] != ends[1] else "")


def _ends(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def growth(values: Sequence[float]) -> float:
    """From the smallest to the largest, as a factor."""
    return times(max(values), min(values))


def times(above: float, below: float) -> float:
    """How many times as much; anything above nothing is infinitely so."""
    return above / below if below > 0 else (1.0 if above == 0 else float("inf"))


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first row names the columns."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def plain_table(title: str, *columns: str) -> Table:
    """A table for the terminal, without lines; the first column is left-aligned, all others right-aligned."""
    style = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}
    table = Table(title=title, show_edge=False, pad_edge=False, **style)  # type: ignore[arg-type]  # one dict of all
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    return table
