"""What becomes of daily prices, in plain Python: the definition that the ETL on Spark has to agree with."""

from __future__ import annotations

import csv
import datetime
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from hullcast.sim.traces.fundamentals import Fundamentals


class Event(NamedTuple):
    day: datetime.date
    moment: int
    symbol: str
    reco: float
    per: float


class Refused(NamedTuple):
    symbol: str
    date: str
    moment: str
    price: str
    source: str
    reason: str


class Row(NamedTuple):
    symbol: str
    date: str
    prices: tuple[str, str]
    source: str
    wide: bool = False


def read(path: Path) -> list[Row]:
    """A file without compression; a byte order mark is nothing, blank lines are nothing."""
    text = path.read_text(encoding="utf-8").removeprefix("\ufeff")
    lines = [line for line in text.splitlines() if line.strip()]
    header, *rows = list(csv.reader(lines, skipinitialspace=True))
    names = [name.strip().lower() for name in header]
    found = []
    for row in rows:
        cells = dict(zip(names, [cell.strip() for cell in row], strict=False))
        symbol = cells.get("symbol", "") if "symbol" in names else path.name[: -len(".csv")]
        prices = (cells.get("open", ""), cells.get("close", ""))
        wide = len(row) > len(names) and row[len(names)].strip() != ""
        found.append(Row(symbol, cells.get("date", ""), prices, path.name, wide))
    return found


def day_of(text: str) -> datetime.date | None:
    """The year first, with any of three signs between, or with none and two digits each."""
    date = text.replace("T", " ").split(" ")[0]
    parts = [date[:4], date[4:6], date[6:]] if re.fullmatch(r"\d{8}", date) else re.split("[-/.]", date)
    signs = set(re.sub(r"\d", "", date))
    if len(parts) != 3 or len(parts[0]) != 4 or len(signs) > 1 or not all(1 <= len(part) <= 2 for part in parts[1:]):
        return None
    try:
        year, month, day = map(int, parts)
        return datetime.date(year, month, day) if 1000 <= year < 3000 else None
    except ValueError:
        return None


def price_of(text: str) -> float | None:
    plain = re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", text, re.ASCII)
    value = float(text) if plain else None
    return None if value is None or abs(value) == float("inf") else value


def etl(rows: list[Row], stocks: Fundamentals) -> tuple[list[Event], Counter[Refused]]:
    """Events in their order, and what was refused."""
    known = dict(zip(stocks.symbols, zip(stocks.eps, stocks.reco, stocks.problems, strict=True), strict=True))
    same_day: defaultdict[tuple[str, datetime.date | None, bool], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.source, row.date, row.prices)):
        same_day[row.symbol, day_of(row.date), row.wide].append(row)
    refused: Counter[Refused] = Counter()
    events: list[Event] = []
    last: dict[str, float] = {}

    def refuse(row: Row, moment: int, reason: str) -> None:
        refused[Refused(row.symbol, row.date, ("open", "close")[moment], row.prices[moment], row.source, reason)] += 1

    for (symbol, day, wide), group in sorted(same_day.items(), key=lambda item: item[0][1] or datetime.date.min):
        for place, row in enumerate(group):
            reason = None
            if wide:
                reason = "more cells than columns"
            elif day is None:
                reason = "date missing or unreadable"
            elif symbol not in known:
                reason = "unknown symbol"
            elif known[symbol][2] is not None:
                reason = known[symbol][2]
            elif len({tuple(map(price_of, other.prices)) for other in group}) > 1:
                reason = "same day twice, different"
            elif place > 0:
                reason = "same day twice, equal"
            for moment in (0, 1):
                if reason is not None:
                    refuse(row, moment, reason)
                    continue
                assert day is not None
                price = price_of(row.prices[moment])
                if price is None:
                    refuse(row, moment, "price missing or unreadable")
                    continue
                if price <= 0:
                    refuse(row, moment, "price not positive")
                    continue
                before, last[symbol] = last.get(symbol), price
                eps, reco, _ = known[symbol]
                if before is not None and (price / before >= 1.8 or price / before <= 1 / 1.8):
                    refuse(row, moment, "split-like jump")
                elif price / float(eps) == float("inf"):
                    refuse(row, moment, "PER too large")
                else:
                    events.append(Event(day, moment, symbol, float(reco), price / float(eps)))
    return sorted(events, key=lambda event: event[:3]), refused
