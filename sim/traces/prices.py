"""Daily prices from Yahoo-style CSV files, as a Spark table of text: what they mean is decided later, in one place.

A folder with a file for each symbol (its name is the symbol), or one long file with a column of symbols; `.csv` or
`.csv.gz`; columns date, open, high, low, close, adj close, volume in any order and case, of which date, open and
close are needed.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from network.wire.errors import UsageError
from sim.traces.fundamentals import column, lines_of, open_text, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUFFIXES = (".csv", ".csv.gz")
SYMBOL_NAMES = ("symbol", "ticker")
NEEDED = ("date", "open", "close")
#: Of the table that is read: all text, NULL where the file has nothing.
PRICES = "symbol STRING, date STRING, open STRING, close STRING, source STRING"


def read_prices(spark: SparkSession, path: Path | str) -> tuple[DataFrame, list[str]]:
    """The rows of all files (PRICES), and the names of files without so much as a header."""
    by_header: dict[tuple[str, ...], list[Path]] = {}
    empty: list[str] = []
    for file in price_files(Path(path)):
        header = _header(file)
        if header:
            by_header.setdefault(header, []).append(file)
        else:
            empty.append(file.name)
    if not by_header:
        raise UsageError(f"{path}: empty; a line of column names is needed first, such as date,open,close")
    # Spark takes one header for all files it reads at once, so files are read together only if theirs agree.
    frames = [_read(spark, header, files) for header, files in by_header.items()]
    return reduce(lambda one, other: one.unionByName(other), frames), empty


def price_files(path: Path) -> list[Path]:
    """The file, or those of a folder."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES) and file.is_file())
        if not files:
            raise UsageError(f"{path}: no {' or '.join(SUFFIXES)} file in this folder")
        return files
    if not path.exists():
        raise UsageError(f"cannot read {path}: there is no such file or folder")
    if not path.name.endswith(SUFFIXES):
        raise UsageError(f"{path}: prices come in files that end in {' or '.join(SUFFIXES)}")
    return [path]


def symbol_of(name: str) -> str:
    """The symbol a file is named after."""
    return name.removesuffix(".gz").removesuffix(".csv")


def _header(file: Path) -> tuple[str, ...]:
    with open_text(file) as text:
        header = next(lines_of(text, file), [])
    if header:
        for name in NEEDED:
            column(header, name, (name,), file)
        if any(plain(text) in SYMBOL_NAMES for text in header):
            column(header, "symbol", SYMBOL_NAMES, file)  # not two
    return tuple(map(plain, header))


def _read(spark: SparkSession, header: tuple[str, ...], files: list[Path]) -> DataFrame:
    from pyspark.sql import functions as f

    schema = ", ".join(f"c{place} STRING" for place in range(len(header)))
    rows = spark.read.csv(
        [_literal(file) for file in files],
        schema=schema,
        header=True,  # dropped from each file; the order of columns is the schema's
        enforceSchema=True,
        quote='"',
        escape='"',  # a quote inside quotes is written twice
        ignoreLeadingWhiteSpace=True,
        ignoreTrailingWhiteSpace=True,
        mode="PERMISSIVE",  # what a short row lacks is NULL
    )
    # Spark gives the name as a URL would have it; there a plus sign would be a space.
    name = f.url_decode(f.replace(f.col("_metadata.file_name"), f.lit("+"), f.lit("%2B")))
    symbols = [place for place, text in enumerate(header) if text in SYMBOL_NAMES]
    symbol = f.col(f"c{symbols[0]}") if symbols else f.regexp_replace(name, r"\.csv(\.gz)?$", "")
    columns = [f.col(f"c{header.index(text)}").alias(text) for text in NEEDED]
    return rows.select(symbol.alias("symbol"), *columns, name.alias("source"))


def _literal(file: Path) -> str:
    """A path in which Spark finds no pattern."""
    return "".join("\\" + sign if sign in "\\{}[]*?" else sign for sign in str(file.resolve()))
