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
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too small; it must be at least {least}")
        return value

    return parse


def seconds(text: str) -> float:
    """A duration, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not (isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text} is not a duration; it must be 0 or more")
    return value


def add_process_arguments(parser: argparse.ArgumentParser) -> None:
    """What commands that serve have in common, besides their settings."""
    parser.add_argument("--json", action="store_true", help="print the ready line as JSON, for programs")
    parser.add_argument(
        "--until-input-ends",
        action="store_true",
        help="stop, as by SIGTERM, when standard input is closed, for instance because the parent process ended",
    )


def number(text: str) -> float:
    """A finite number, 0 or more; 1_000 and 1,000 are fine."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not (isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text} must be 0 or more")
    return value
