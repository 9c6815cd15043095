"""Answers and sizes in a few words."""

from __future__ import annotations

from typing import Any

SHOWN_ROWS = 3


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
