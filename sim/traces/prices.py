"""Daily prices from Yahoo-style CSV files, as a Spark table of text: what they mean is decided later, in one place.

A folder with a file for each symbol (its name is the symbol), or one long file with a column of symbols; `.csv` or
`.csv.gz`; columns date, open, high, low, close, adj close, volume in any order and case, of which date, open and
close are needed. `select_days` takes the days asked for, from a date on.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.session import path_to_read
from hullcast.sim.traces.fundamentals import column, lines_of, open_text, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUFFIXES = (".csv", ".csv.gz")
_SUFFIX = re.compile(r"\.csv(\.gz)?$", re.IGNORECASE)
SYMBOL_NAMES = ("symbol", "ticker")
NEEDED = ("date", "open", "close")
#: Of the table that is read: text, NULL where the file has nothing; and whether a row has more cells than the header.
PRICES = "symbol STRING, date STRING, open STRING, close STRING, source STRING, wide BOOLEAN"


@dataclass(frozen=True, slots=True)
class PriceFiles:
    """Files that hold prices, and the names of those in the same folder that do not."""

    files: list[Path]
    skipped: list[str]


def read_prices(spark: SparkSession, path: Path | str) -> tuple[DataFrame, dict[str, list[str]]]:
    """The rows of all files (PRICES), and by reason the names of files that nothing was read from."""
    by_header: dict[tuple[str, ...], list[Path]] = {}
    empty: list[str] = []
    found = price_files(Path(path))
    for file in found.files:
        header = _header(file)
        if header:
            by_header.setdefault(header, []).append(file)
        else:
            empty.append(file.name)
    if not by_header:
        raise UsageError(f"{path}: empty; a line of column names is needed first, such as date,open,close")
    # Spark takes one header for all files it reads at once, so files are read together only if theirs agree.
    frames = [_read(spark, header, files) for header, files in by_header.items()]
    unread = {"empty files": empty, "skipped files": found.skipped}
    return reduce(lambda one, other: one.unionByName(other), frames), {
        why: names for why, names in unread.items() if names
    }


def price_files(path: Path) -> PriceFiles:
    """The file, or those of a folder; hidden ones are none (some systems put their own notes beside every file)."""
    if not path.exists():
        raise UsageError(f"cannot read {path}: no such file or folder")
    there = sorted(path.iterdir()) if path.is_dir() else [path]
    files = [file for file in there if _SUFFIX.search(file.name) and file.is_file() and not file.name.startswith(".")]
    if not files and path.is_dir():
        raise UsageError(f"{path}: no {' or '.join(SUFFIXES)} file in this folder")
    if not files:
        raise UsageError(
            f"{path}: the name of a file with prices must end in {' or '.join(SUFFIXES)} and not begin with a dot"
        )
    for file in files:
        if file.name.startswith("_") or ":" in file.name:
            raise UsageError(f"{file}: Spark cannot read files whose name begins with _ or has a colon; rename it")
        if file.name.endswith((".GZ", ".Gz", ".gZ")):
            raise UsageError(f"{file}: Spark unpacks only files whose names end in .gz; rename it")
    return PriceFiles(files, [item.name for item in there if item not in files])


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

    # One column more than there are: what comes to lie in it shows that cells are not below their names.
    schema = ", ".join(f"c{place} STRING" for place in range(len(header) + 1))
    rows = spark.read.csv(
        [path_to_read(file) for file in files],
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
    symbol = f.col(f"c{symbols[0]}") if symbols else f.regexp_replace(name, r"(?i)\.csv(\.gz)?$", "")
    columns = [f.col(f"c{header.index(text)}").alias(text) for text in NEEDED]
    wide = f.coalesce(f.col(f"c{len(header)}"), f.lit("")) != ""
    return rows.select(symbol.alias("symbol"), *columns, name.alias("source"), wide.alias("wide"))


#: A date, alone or before a time of day.
DATE = r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}([T ].*)?$"
#: A date with a smaller share of the rows than this, beside the busiest of the ten dates around it, is no trading day.
STRAY = 0.1


def select_days(prices: DataFrame, first: datetime.date | None, days: int | None) -> DataFrame:
    """Rows from `first` until `days` trading days are over; rows without a date stay, to be refused."""
    from pyspark.sql import functions as f

    dated = _dated(prices)
    after = f.lit(True) if first is None else f.col("day") >= f.lit(first)
    if days is not None:
        counts = dated.where(after).dropna(subset=["day"]).groupBy("day").count().collect()
        found = trading_days({row["day"]: row["count"] for row in counts})
        if len(found) < days:
            since = f" from {first}" if first is not None else ""
            raise UsageError(
                f"the prices have {len(found)} days{since}, but {days} were asked for; leave out --days for all; "
                f"{dates_of(prices)}"
            )
        after &= f.col("day") <= f.lit(found[days - 1])
    return dated.where(f.col("day").isNull() | after)


def _dated(prices: DataFrame) -> DataFrame:
    """With the column `day`, NULL where the date cannot be read."""
    from pyspark.sql import functions as f

    text = f.col("date")
    return prices.withColumn("day", f.when(text.rlike(DATE), f.substring(text, 1, 10).try_cast("date")))


def dates_of(prices: DataFrame) -> str:
    """Which dates there are, for whoever asked for others."""
    from pyspark.sql import functions as f

    unread = f.col("day").isNull()
    found = (
        _dated(prices)
        .agg(
            f.min("day").alias("low"),
            f.max("day").alias("high"),
            f.count_if(unread).alias("unread"),
            f.min(f.when(unread, f.col("date"))).alias("such"),
        )
        .first()
    )
    assert found is not None
    said = "there is no date" if found.low is None else f"the data goes from {found.low} to {found.high}"
    if found.unread:
        said += f"; {found.unread:,} rows have no date as 2015-04-01 ({(found.such or '')[:20]!r})"
    return said


def trading_days(rows: dict[datetime.date, int]) -> list[datetime.date]:
    """Dates that count as days: on holidays real data has a few stray rows, which stay but make no day of it."""
    dates = sorted(rows)
    around = [max(rows[date] for date in dates[max(0, i - 5) : i + 6]) for i in range(len(dates))]
    return [date for date, busiest in zip(dates, around, strict=True) if rows[date] >= STRAY * busiest]
