"""Earnings and recommendations of stocks from a CSV file: what turns a price into a place (RECO, PER).

Columns: the symbol, the earnings per share (EPS) and the mean recommendation of analysts from 1 to 5 (RECO), by any of
the names in `sim.traces.columns`, in any order, among any others. Every symbol that cannot be used keeps the reason
why, so that its prices can be counted by it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.errors import UsageError
from hullcast.sim.seeds import generator
from hullcast.sim.traces.columns import CsvReading, find, first_rows, lines_of, open_text

if TYPE_CHECKING:
    from pathlib import Path

    from hullcast.sim.spark.storage import Place

#: The one form of a number, here and in Spark: no words (NaN), no thousands, no suffix that only Java knows (1.5d).
NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
RECO_DOMAIN = (1.0, 5.0)
#: Width of the cells in which sources publish RECO.
RECO_CELL = 0.1

AMBIGUOUS = "ambiguous fundamentals"
TOO_WIDE = "fundamentals with more cells than columns"
NO_EPS = "EPS missing"
BAD_EPS = "EPS not positive"
NO_RECO = "RECO missing"
BAD_RECO = "RECO outside 1 to 5"

#: Rows that show whether a column `Name` holds symbols.
_SAMPLE = 50


@dataclass(frozen=True, slots=True, eq=False)
class Fundamentals:
    """One entry a symbol; `problems` is None where it can be used."""

    symbols: tuple[str, ...]
    eps: Floats
    reco: Floats
    problems: tuple[str | None, ...]
    nameless: int = 0  # rows without a symbol, to which nothing can refer

    def __len__(self) -> int:
        return len(self.symbols)


def number(text: str) -> float:
    """A finite number, or NaN."""
    text = text.strip()
    value = float(text) if re.match(NUMBER, text) else np.nan
    return value if np.isfinite(value) else np.nan


def fundamentals(
    symbols: Sequence[str],
    eps: Floats,
    reco: Floats,
    *,
    ambiguous: Collection[str] = (),
    wide: Collection[str] = (),
) -> Fundamentals:
    """Check each symbol's figures; NaN is missing. `ambiguous` and `wide` (of too many cells) are names of symbols."""
    low, high = RECO_DOMAIN
    choices = [
        (np.array([symbol in ambiguous for symbol in symbols], np.bool_), AMBIGUOUS),
        (np.array([symbol in wide for symbol in symbols], np.bool_), TOO_WIDE),
        (np.isnan(eps), NO_EPS),
        (~(eps > 0), BAD_EPS),
        (np.isnan(reco), NO_RECO),
        (~((reco >= low) & (reco <= high)), BAD_RECO),
    ]
    reasons = (*(why for _, why in choices), None)
    first = np.select([where for where, _ in choices], list(range(len(choices))), default=len(choices))
    return Fundamentals(tuple(symbols), eps, reco, tuple(reasons[place] for place in first.tolist()))


def read_fundamentals(path: Place | Path | str, reading: CsvReading = CsvReading()) -> Fundamentals:  # noqa: B008 - frozen
    """Of a `.csv` or `.csv.gz` file. A symbol that comes twice with different figures is ambiguous."""
    header, sample = first_rows(path, _SAMPLE)
    if not header:
        raise UsageError(f"{path}: empty; a line of column names is needed first, such as symbol,EPS,RECO")
    places = [find(header, key, path, reading, sample) for key in ("SYMBOL", "EPS", "RECO")]
    with open_text(path) as file:
        rows = lines_of(file, path)
        next(rows)
        figures: dict[str, tuple[float, float]] = {}
        ambiguous: set[str] = set()
        wide: set[str] = set()
        nameless = 0
        for row in rows:
            symbol, eps, reco = (row[place].strip() if place < len(row) else "" for place in places)
            if not symbol:
                nameless += 1
                continue
            found = number(eps), number(reco)
            if any(cell.strip() for cell in row[len(header) :]):  # it is not known which cell is of which column
                wide.add(symbol)
                found = np.nan, np.nan
            if repr(figures.setdefault(symbol, found)) != repr(found):  # as text, in which NaN equals itself
                ambiguous.add(symbol)
    both = np.array(list(figures.values()), np.float64).reshape(-1, 2)
    stocks = fundamentals(list(figures), both[:, 0].copy(), both[:, 1].copy(), ambiguous=ambiguous, wide=wide)
    return replace(stocks, nameless=nameless)


def spread_reco(stocks: Fundamentals, step: float, root: int = 0) -> Fundamentals:
    """Move each RECO within the cell of 0.1 it was rounded to, and round to `step`: a finer grid than was published.

    A function of the seed and the symbol alone, so that another set of stocks moves none of the others. What would
    leave 1 .. 5 is put to its end: of the stocks at 1.0, half come to lie at 1.00.
    """
    if not 0 < step <= RECO_CELL:
        raise UsageError(f"the step to spread RECO by must be above 0 and at most {RECO_CELL}, got {step}")
    shift = np.array([generator(root, "reco", symbol).uniform(-0.5, 0.5) for symbol in stocks.symbols]) * RECO_CELL
    moved = np.clip(np.round((stocks.reco + shift) / step) * step, *RECO_DOMAIN)
    usable = np.array([problem is None for problem in stocks.problems], np.bool_)
    # The last rounding makes 2.3000000000000003 the 2.3 it stands for: equal places must be equal numbers.
    return replace(stocks, reco=np.where(usable, np.round(moved, 9), stocks.reco))
