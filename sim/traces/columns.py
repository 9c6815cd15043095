"""CSV files as people have them: which column is the symbol, the date or a price, by its name.

Case, spaces and signs of a name do not matter: `EPS (ttm)` is `epsttm`, `<OPEN>` and Alpha Vantage's `1. open` are
`open`. A user who knows better says so (`CsvReading`, `--column EPS=..`), and what is not clear is refused.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO, cast

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.storage import Place, place_of

if TYPE_CHECKING:
    from pathlib import Path

#: Names of each column without case, spaces and signs. Names of one line are equals: two columns with such names are
#: ambiguous. Those of a later line count only where a file has none of an earlier one.
NAMES: dict[str, tuple[tuple[str, ...], ...]] = {
    "SYMBOL": (
        ("symbol", "ticker", "tic", "tickersymbol", "stocksymbol"),
        ("name",),  # only where it holds symbols, not companies: see `_holds_symbols`
    ),
    "DATE": (
        ("date", "tradedate", "tradingdate", "datadate", "pricedate"),
        ("datetime", "timestamp", "day", "time"),
    ),
    "OPEN": (("open", "openprice", "openingprice", "priceopen"), ("adjopen", "adjustedopen", "openadj")),
    "CLOSE": (
        ("close", "closeprice", "closingprice", "priceclose", "closelast"),
        ("adjclose", "adjustedclose", "adjcloseprice", "closeadj"),
    ),
    "EPS": (
        ("eps", "epsttm", "ttmeps", "earningsshare", "earningspershare", "trailingeps", "epstrailingtwelvemonths"),
        ("epsbasic", "basiceps", "epsdiluted", "dilutedeps", "epsbasicttm", "epsdilutedttm"),
    ),
    "RECO": (
        (
            *("reco", "recom", "analystrecom", "recommendation", "analystrecommendation", "meanrec"),
            *("meanrecommendation", "recommendationmean", "averagerecommendation"),
        ),
    ),
}
#: Of a file that is not on this machine, how much is fetched to see its header.
HEAD_BYTES = 2**16
_SYMBOL = re.compile(r"[A-Z0-9^][A-Z0-9.^=/-]{0,9}")
_MOST_SHOWN = 600
_ENCODING = "utf-8-sig"


@dataclass(frozen=True, slots=True)
class CsvReading:
    """What a user says of files that do not speak for themselves."""

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by the keys of NAMES; the first there counts
    dates: str = ""  # mdy, dmy or ymd; empty: as the files show


def reading_of(columns: Sequence[str], dates: str | None = None) -> CsvReading:
    """From the words of a command line: `EPS=Earnings/Share`, each as often as one likes."""
    found: dict[str, tuple[str, ...]] = {}
    for text in columns:
        name, sign, given = text.partition("=")
        key = name.strip().upper()
        if not sign or not given.strip():
            raise UsageError(f'--column {text}: write --column NAME=COLUMN, such as --column EPS="Earnings/Share"')
        if key not in NAMES:
            raise UsageError(f"--column {text}: there is no {name.strip()!r} to name; it is one of {', '.join(NAMES)}")
        found[key] = (*found.get(key, ()), given.strip())
    return CsvReading(found, dates or "")


def find(
    header: Sequence[str],
    key: str,
    path: Place | Path | str,
    reading: CsvReading = CsvReading(),  # noqa: B008 - frozen
    rows: Sequence[Sequence[str]] = (),
) -> int:
    """Where a column is; `rows` are some rows of the file. UsageError if it is missing, or if several may be it."""
    given = reading.columns.get(key, ())
    for name in given:
        if found := _named(header, name):
            return _only(header, found, key, path)
    if given and key != "SYMBOL":
        raise _missing(header, key, path, f"no column {' or '.join(map(repr, given))}, which --column {key} names")
    for names in NAMES[key]:
        if found := [place for place, text in enumerate(header) if plain(text) in names]:
            if names != ("name",):
                return _only(header, found, key, path)
            if symbols := [place for place in found if _holds_symbols(rows, place)]:
                return _only(header, symbols, key, path)
    raise _missing(header, key, path, f"no column for {key}")


def find_symbol(
    header: Sequence[str], path: Place | Path | str, reading: CsvReading, rows: Sequence[Sequence[str]]
) -> int | None:
    """Where the symbol is, or None if no column holds it."""
    given = names_column(header, "SYMBOL", reading)
    known = [place for place, text in enumerate(header) if plain(text) in NAMES["SYMBOL"][0]]
    named = [place for place, text in enumerate(header) if plain(text) == "name" and _holds_symbols(rows, place)]
    return find(header, "SYMBOL", path, reading, rows) if given or known or named else None


def names_column(header: Sequence[str], key: str, reading: CsvReading) -> bool:
    """Whether a name that the user gave for it is there."""
    return any(_named(header, name) for name in reading.columns.get(key, ()))


def plain(text: str) -> str:
    """A column's name without case, spaces, signs, and a number before it: `4. close` is `close`."""
    return "".join(sign for sign in re.sub(r"^\s*[0-9]+[.]\s", "", text).lower() if sign.isalnum())


def _named(header: Sequence[str], name: str) -> list[int]:
    exact = [place for place, text in enumerate(header) if text.strip() == name]
    return exact or [place for place, text in enumerate(header) if plain(name) and plain(text) == plain(name)]


def _only(header: Sequence[str], found: Sequence[int], key: str, path: Place | Path | str) -> int:
    if len(found) == 1:
        return found[0]
    names = [header[place].strip() for place in found]
    if len(set(names)) == 1:
        raise UsageError(f"{path}: {len(found)} columns for {key}, all named {names[0]}; give them different names")
    raise UsageError(
        f"{path}: {len(found)} columns for {key} ({', '.join(names)}); say which with "
        f'--column {key}="{names[0]}"; columns: {shown(header)}'
    )


def _missing(header: Sequence[str], key: str, path: Place | Path | str, problem: str) -> UsageError:
    have = shown(header)
    if "\0" in have:
        return UsageError(f"{path} seems to be UTF-16; save it as UTF-8")
    if len(header) == 1 and (other := next((sign for sign in ";\t|" if sign in have), None)):
        sign = "tabs" if other == "\t" else other
        return UsageError(f"{path}: its columns seem to be separated by {sign}; commas are needed")
    like = [text.strip() for text in header if key.lower() in plain(text)]
    return UsageError(
        f'{path}: {problem}; say which it is with --column {key}="{like[0] if like else "NAME OF THE COLUMN"}"; '
        f"columns: {have}"
    )


def shown(header: Sequence[str]) -> str:
    """The names of a file's columns, for messages."""
    text = ", ".join(name.strip() or "(no name)" for name in header)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN].rpartition(",")[0] + " .."


def _holds_symbols(rows: Sequence[Sequence[str]], place: int) -> bool:
    """Whether what is in a column are symbols: `AAL`, not `American Airlines Group`."""
    cells = [row[place].strip() for row in rows if place < len(row)]
    return any(cells) and all(_SYMBOL.fullmatch(cell) for cell in cells if cell)


def open_text(path: Place | Path | str, *, head: bool = False) -> TextIO:
    """A text file, or one compressed with gzip if its name ends so; `head`: the first lines are enough."""
    place = place_of(path)
    try:
        source: Path | io.BytesIO
        if place.is_local:
            source = place.local
        else:
            source = io.BytesIO(place.read_start(HEAD_BYTES) if head else place.read_bytes())
        if str(place).lower().endswith(".gz"):
            return cast("TextIO", gzip.open(source, "rt", encoding=_ENCODING, errors="replace", newline=""))
        raw = source if isinstance(source, io.BytesIO) else source.open("rb")
        return io.TextIOWrapper(raw, encoding=_ENCODING, errors="replace", newline="")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error


def lines_of(file: TextIO, path: Place | Path | str) -> Iterator[list[str]]:
    """Rows of a CSV file as lists of text, without blank lines."""
    line = begun = 0

    def lines() -> Iterator[str]:
        nonlocal line
        for line, text in enumerate(file, 1):  # noqa: B007 - told if the file cannot be read
            if text.strip():
                yield text

    try:
        for row in csv.reader(lines(), strict=True):  # or a quote that is never closed swallows the rest of the file
            if row:
                yield row
            begun = line
    except csv.Error as error:
        raise UsageError(
            f"cannot read {path}, the row from line {begun + 1} on: {error}; is a closing quote missing?"
        ) from error
    except (OSError, EOFError, zlib.error) as error:  # a file that only pretends to be compressed shows it here
        raise UsageError(f"cannot read {path}: {error}") from error


def first_rows(path: Place | Path | str, most: int) -> tuple[list[str], list[list[str]]]:
    """The header, empty if there is none, and up to so many rows; what cannot be read after the header ends them."""
    rows: list[list[str]] = []
    with open_text(path, head=True) as file:
        read = lines_of(file, path)
        header = next(read, [])
        try:
            for row in read:
                if len(rows) >= most:
                    break
                rows.append(row)
        except UsageError:
            pass  # whoever reads the rows says what is wrong with them
    return header, rows
