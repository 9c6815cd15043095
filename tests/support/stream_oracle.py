"""The definition of a stream: a list of tuples; what a window over it holds, and what comes of that."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import Any

BEGIN = datetime(2024, 5, 1, tzinfo=UTC)


def moment(second: float) -> datetime:
    """A time of the tests."""
    return BEGIN + timedelta(seconds=second)


@dataclass
class Arrival:
    """One tuple, and when it counts as having happened."""

    position: int
    ts: datetime
    symbol: str | None
    price: float | None
    effective: datetime

    @property
    def row(self) -> tuple[Any, ...]:
        return self.ts, self.symbol, self.price, self.position


@dataclass
class StreamModel:
    """A stream with the columns TS, SYMBOL and PRICE."""

    tuples: list[Arrival] = field(default_factory=list)  # all that ever came
    kept_from: int = 0  # those at lower places are no longer retained
    time: datetime = BEGIN - timedelta(days=1000)  # before anything

    def append(self, position: int, ts: datetime, symbol: str | None, price: float | None) -> None:
        self.time = max(self.time, ts)
        self.tuples.append(Arrival(position, ts, symbol, price, self.time))

    def advance(self, time: datetime) -> None:
        self.time = max(self.time, time)

    @property
    def retained(self) -> list[Arrival]:
        return self.tuples[self.kept_from :]

    def rows_window(self, n: int) -> list[Arrival]:
        return self.retained[-n:]

    def range_window(self, seconds: float) -> list[Arrival]:
        return [one for one in self.retained if one.effective >= self.time - timedelta(seconds=seconds)]


def aggregate(kind: str, window: list[Arrival]) -> Any:
    """An aggregate of the prices in a window, or its distinct symbols."""
    prices = [one.price for one in window if one.price is not None]
    match kind:
        case "COUNT(*)":
            return len(window)
        case "COUNT(PRICE)":
            return len(prices)
        case "SUM(PRICE)":
            return sum(prices) if prices else None
        case "AVG(PRICE)":
            return fmean(prices) if prices else None
        case "MIN(PRICE)":
            return min(prices, default=None)
        case "MAX(PRICE)":
            return max(prices, default=None)
        case "DISTINCT SYMBOL":
            return {one.symbol for one in window}
    raise ValueError(kind)


AGGREGATES = (
    "COUNT(*)",
    "COUNT(PRICE)",
    "SUM(PRICE)",
    "AVG(PRICE)",
    "MIN(PRICE)",
    "MAX(PRICE)",
    "DISTINCT SYMBOL",
)
