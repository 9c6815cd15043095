"""Kinds of arguments: text from the command line becomes a checked value, or argparse says why not."""

from __future__ import annotations

import argparse
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def whole(least: int) -> Callable[[str], int]:
    """A whole number, at least so large; 1_000 and 1,000 are fine."""

    def parse(text: str) -> int:
        try:
            value = int(text.replace(",", ""))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too small; at least {least}")
        return value

    return parse


def seconds(text: str) -> float:
    """A duration, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not (isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text} is no duration; 0 or more")
    return value
