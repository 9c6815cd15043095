"""Kinds of arguments: text from the command line becomes a checked value, or argparse says why not."""

from __future__ import annotations

import argparse
from math import isfinite
from typing import TYPE_CHECKING

from hullcast.network.wire.durations import seconds_of
from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.sim.spark.storage import Place


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


def number(text: str) -> float:
    """A finite number, 0 or more; 1_000 and 1,000 are fine."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not (isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text} is not a number of 0 or more")
    return value


def place(text: str) -> Place:
    """A folder of this machine, or a URL of a storage that Spark can reach."""
    from hullcast.sim.spark.storage import place_of

    try:
        return place_of(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(text: str) -> float:
    """A duration, 0 or more: seconds, or with units as in 200ms or 1h 30m; 1,000 is fine."""
    try:
        value = seconds_of(text.replace(",", ""))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not a duration of 0 or more")
    return value
