"""A small synthetic stock market: listings, sector indexes, analysts, and a trace of batches.

Prices walk, now and then one spikes; companies report losses (PER is NULL then), are listed and delisted;
analysts move their targets. As in the real workload of Xie (2007), RISK and RECO are constant per stock, of few digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from hullcast.network.wire.errors import UsageError
from hullcast.sim.seeds import generator

SECTORS = ("TECH", "ENERGY", "HEALTH", "FINANCE", "RETAIL", "UTILITY", "MEDIA", "SPACE")
ANALYSTS = ("Ada", "Blaise", "Carl", "Dorothy", "Emmy", "Felix", "Grace", "Henri", "Ida", "John", "Kurt", "Lotfi")
LETTERS = "ABCDEFGHIKLMNOPRSTUVWXZ"

CREATES = (
    "CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK REAL, RECO REAL, PER REAL)",
    "CREATE TABLE SECTOR_INDEX (SECTOR TEXT PRIMARY KEY, LEVEL REAL)",
    "CREATE TABLE ANALYST (NAME TEXT PRIMARY KEY, TARGET REAL)",
)

TABLES = ("STOCK", "SECTOR_INDEX", "ANALYST")

#: One in so many updates of the trace is of this kind; the rest are walks of PER.
SPIKES, LOSSES, LISTINGS, DELISTINGS, INDEXES, TARGETS = 150, 200, 100, 110, 20, 20


@dataclass(frozen=True, slots=True)
class Upsert:
    """Rows that appear or change; a column left out keeps its value."""

    table: str
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Removal:
    """Rows that go, by key."""

    table: str
    keys: tuple[str, ...]


MarketAction = Upsert | Removal


@dataclass(frozen=True, slots=True)
class Trace:
    """What is there at first, and what happens then, in micro-batches of actions."""

    start: tuple[MarketAction, ...]
    batches: tuple[tuple[MarketAction, ...], ...]
    updates: int


def size_of(action: MarketAction) -> int:
    """How many updates an action is."""
    return len(action.rows) if isinstance(action, Upsert) else len(action.keys)


def check_market(stocks: int) -> None:
    """UsageError if there are not names enough for a market of so many stocks."""
    if not 1 <= stocks <= len(LETTERS) ** 4 // 2:
        raise UsageError(f"a market has 1 to {len(LETTERS) ** 4 // 2} stocks, got {stocks}")


def stock_trace(stocks: int = 500, updates: int = 20_000, *, batch: int = 80, root: int = 0) -> Trace:
    """A market of so many stocks and a trace of so many updates."""
    check_market(stocks)
    if updates < 0 or batch < 1:
        raise UsageError(f"a trace needs updates >= 0 and batches of 1 or more, got {updates} and {batch}")
    market = _Market(stocks, generator(root, "stocks", stocks, updates, batch))
    start: tuple[MarketAction, ...] = (
        Upsert("STOCK", tuple(market.list_stock() for _ in range(stocks))),
        Upsert("SECTOR_INDEX", tuple({"SECTOR": name, "LEVEL": level} for name, level in market.levels.items())),
        Upsert("ANALYST", tuple({"NAME": name, "TARGET": target} for name, target in market.targets.items())),
    )
    batches = []
    for first in range(0, updates, batch):
        batches.append(_merged([market.event() for _ in range(min(batch, updates - first))]))
    return Trace(start, tuple(batches), updates)


class _Market:
    """The state behind the trace: only the generator of it looks here."""

    def __init__(self, stocks: int, random: np.random.Generator) -> None:
        self._random = random
        width = 3 if stocks < len(LETTERS) ** 3 // 2 else 4
        self._names = ["".join(letters) for letters in product(LETTERS, repeat=width)]
        random.shuffle(self._names)
        self._per: dict[str, float | None] = {}
        self._listed: list[str] = []
        self._bounce: tuple[str, float | None] | None = None
        self.levels = {name: round(float(random.uniform(800, 1200)), 1) for name in SECTORS}
        self.targets = {name: round(float(random.uniform(8, 40)), 2) for name in ANALYSTS}

    def list_stock(self) -> dict[str, Any]:
        """A new listing."""
        random = self._random
        name = self._names.pop()
        self._listed.append(name)
        self._per[name] = round(float(random.lognormal(2.9, 0.45)), 2)
        return {
            "SYMBOL": name,
            "SECTOR": SECTORS[int(random.integers(len(SECTORS)))],
            "RISK": round(float(random.uniform(0, 100)), 1),
            "RECO": round(float(np.clip(random.normal(2.4, 0.7), 1, 5)), 2),
            "PER": self._per[name],
        }

    def event(self) -> MarketAction:
        """What happens next."""
        random = self._random
        if self._bounce is not None:  # the second half of a spike
            (name, per), self._bounce = self._bounce, None
            if name in self._per:
                return self._priced(name, per)
        place = int(random.integers(len(self._listed)))
        name, kind = self._listed[place], float(random.random())
        if (kind := kind - 1 / SPIKES) < 0:
            self._bounce = (name, self._per[name])
            return self._priced(name, round(float(random.uniform(0.5, 2)), 2))
        if (kind := kind - 1 / LOSSES) < 0:
            return self._priced(name, None)
        if (kind := kind - 1 / LISTINGS) < 0 and self._names:
            return Upsert("STOCK", (self.list_stock(),))
        if (kind := kind - 1 / DELISTINGS) < 0 and len(self._listed) > 1:
            self._listed[place] = self._listed[-1]
            self._listed.pop()
            del self._per[name]
            self._names.insert(0, name)
            return Removal("STOCK", (name,))
        if (kind := kind - 1 / INDEXES) < 0:
            sector = SECTORS[int(random.integers(len(SECTORS)))]
            self.levels[sector] = round(self.levels[sector] * float(random.normal(1, 0.01)), 1)
            return Upsert("SECTOR_INDEX", ({"SECTOR": sector, "LEVEL": self.levels[sector]},))
        if kind - 1 / TARGETS < 0:
            analyst = ANALYSTS[int(random.integers(len(ANALYSTS)))]
            moved = self.targets[analyst] + float(random.normal(0, 1))
            self.targets[analyst] = round(float(np.clip(moved, 2, 60)), 2)
            return Upsert("ANALYST", ({"NAME": analyst, "TARGET": self.targets[analyst]},))
        before = self._per[name]
        walked = 18.0 if before is None else before * float(random.lognormal(0, 0.03))
        return self._priced(name, round(float(np.clip(walked, 2, 400)), 2))

    def _priced(self, name: str, per: float | None) -> Upsert:
        self._per[name] = per
        return Upsert("STOCK", ({"SYMBOL": name, "PER": per},))


def _merged(events: list[MarketAction]) -> tuple[MarketAction, ...]:
    """A micro-batch as a few calls: table by table, neighbours of one kind as one action.

    Order matters within a table only: tables know nothing of each other here.
    """
    merged: list[MarketAction] = []
    for event in sorted(events, key=lambda event: TABLES.index(event.table)):
        last = merged[-1] if merged else None
        if isinstance(event, Upsert) and isinstance(last, Upsert) and last.table == event.table:
            merged[-1] = Upsert(event.table, last.rows + event.rows)
        elif isinstance(event, Removal) and isinstance(last, Removal) and last.table == event.table:
            merged[-1] = Removal(event.table, last.keys + event.keys)
        else:
            merged.append(event)
    return tuple(merged)
