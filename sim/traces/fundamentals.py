"""Earnings and recommendations of stocks from a CSV file: what turns a price into a place (RECO, PER).

Columns: the symbol (`symbol`, `ticker`), the earnings per share (`EPS`, `EPS (ttm)`) and the mean recommendation of
analysts from 1 to 5 (`RECO`, `Analyst Recom`), in any order and case, among any others. Every symbol that cannot be
used keeps the reason why, so that its prices can be counted by it.
"""

from __future__ import annotations

import csv
import gzip
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

import numpy as np
import numpy.typing as npt

from network.wire.errors import UsageError
from sim.seeds import generator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Floats = npt.NDArray[np.float64]

#: The one form of a number, here and in Spark: no words (NaN), no thousands, no suffix that only Java knows (1.5d).
NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
RECO_DOMAIN = (1.0, 5.0)
#: Width of the cells in which sources publish RECO.
RECO_CELL = 0.1

AMBIGUOUS = "ambiguous fundamentals"
NO_EPS = "EPS missing"
BAD_EPS = "EPS not positive"
NO_RECO = "RECO missing"
BAD_RECO = "RECO outside 1 to 5"

_NAMES = {
    "symbol": ("symbol", "ticker"),
    "EPS": ("eps", "epsttm"),
    "RECO": ("reco", "analystrecom", "recommendation"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Fundamentals:
    """One entry a symbol; `problems` is None where it can be used."""

    symbols: tuple[str, ...]
    eps: Floats
    reco: Floats
    problems: tuple[str | None, ...]

    def __len__(self) -> int:
        return len(self.symbols)


def number(text: str) -> float:
    """A finite number, or NaN."""
    text = text.strip()
    value = float(text) if re.match(NUMBER, text) else np.nan
    return value if np.isfinite(value) else np.nan


def fundamentals(symbols: Sequence[str], eps: Floats, reco: Floats, ambiguous: Sequence[str] = ()) -> Fundamentals:
    """Check each symbol's figures; NaN is missing."""
    low, high = RECO_DOMAIN
    unclear = np.isin(np.array(symbols, object), np.array(ambiguous, object)) if len(ambiguous) else False
    choices = [
        (np.broadcast_to(unclear, eps.shape), AMBIGUOUS),
        (np.isnan(eps), NO_EPS),
        (~(eps > 0), BAD_EPS),
        (np.isnan(reco), NO_RECO),
        (~((reco >= low) & (reco <= high)), BAD_RECO),
    ]
    reasons = (*(why for _, why in choices), None)
    first = np.select([where for where, _ in choices], list(range(len(choices))), default=len(choices))
    return Fundamentals(tuple(symbols), eps, reco, tuple(reasons[place] for place in first.tolist()))


def read_fundamentals(path: Path | str) -> Fundamentals:
    """Of a `.csv` or `.csv.gz` file. A symbol that comes twice with different figures is ambiguous."""
    with open_text(path) as file:
        rows = lines_of(file, path)
        header = next(rows, None)
        if header is None:
            raise UsageError(f"{path}: empty; a line of column names is needed first, such as symbol,EPS,RECO")
        places = [column(header, name, names, path) for name, names in _NAMES.items()]
        figures: dict[str, tuple[float, float]] = {}
        ambiguous: dict[str, None] = {}
        for row in rows:
            symbol, eps, reco = (row[place].strip() if place < len(row) else "" for place in places)
            if not symbol:
                continue  # nothing can refer to it
            found = number(eps), number(reco)
            if repr(figures.setdefault(symbol, found)) != repr(found):  # as text, in which NaN equals itself
                ambiguous[symbol] = None
    both = np.array(list(figures.values()), np.float64).reshape(-1, 2)
    return fundamentals(list(figures), both[:, 0].copy(), both[:, 1].copy(), list(ambiguous))


def spread_reco(stocks: Fundamentals, step: float, root: int = 0) -> Fundamentals:
    """Move each RECO within the cell of 0.1 it was rounded to, and round to `step`: a finer grid than was published.

    A function of the seed and the symbol alone, so that another set of stocks moves none of the others.
    """
    if not 0 < step <= RECO_CELL:
        raise UsageError(f"RECO is spread by steps above 0 and up to {RECO_CELL}, got {step}")
    shift = np.array([generator(root, "reco", symbol).uniform(-0.5, 0.5) for symbol in stocks.symbols]) * RECO_CELL
    moved = np.clip(np.round((stocks.reco + shift) / step) * step, *RECO_DOMAIN)
    usable = np.array([problem is None for problem in stocks.problems], np.bool_)
    # The last rounding makes 2.3000000000000003 the 2.3 it stands for: equal places must be equal numbers.
    return replace(stocks, reco=np.where(usable, np.round(moved, 9), stocks.reco))


def open_text(path: Path | str) -> TextIO:
    """A text file, or one compressed with gzip if its name ends so."""
    opener = gzip.open if str(path).endswith(".gz") else open
    try:
        return cast("TextIO", opener(path, "rt", encoding="utf-8-sig", errors="replace", newline=""))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error


def lines_of(file: TextIO, path: Path | str) -> Iterator[list[str]]:
    """Rows of a CSV file as lists of text, without blank lines."""
    try:
        yield from (row for row in csv.reader(line for line in file if line.strip()) if row)
    except (OSError, EOFError, csv.Error) as error:  # a file that only pretends to be compressed shows it here
        raise UsageError(f"cannot read {path}: {error}") from error


def column(header: Sequence[str], name: str, names: Sequence[str], path: Path | str) -> int:
    """Where a column is, by any of its names."""
    found = [place for place, text in enumerate(header) if plain(text) in names]
    if len(found) == 1:
        return found[0]
    have = ", ".join(text.strip() for text in header[:12]) + (" .." if len(header) > 12 else "")
    problem = "no column" if not found else f"{len(found)} columns"
    raise UsageError(f"{path}: {problem} for {name}; one of them must be named {' or '.join(names)}; columns: {have}")


def plain(text: str) -> str:
    """A column's name without case, spaces and signs: `EPS (ttm)` is `epsttm`, `Adj Close` is `adjclose`."""
    return "".join(sign for sign in text.lower() if sign.isalnum())
