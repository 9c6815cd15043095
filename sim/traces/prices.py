"""Daily prices from CSV files as people have them, as a Spark table of text.

A folder with a file for each symbol, whose name says which (FILE_NAMES), or one long file with a column of symbols. The
columns date, open and close are needed, by any of the names in `sim.traces.columns`. `check_prices` looks at the first
lines of every file before Spark starts; `select_days` takes the days asked for, from a date on.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.storage import Place, place_of
from hullcast.sim.traces.columns import NAMES, CsvReading, find, find_symbol, first_rows, names_column, plain
from hullcast.sim.traces.dates import day_of, order_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SUFFIXES = (".csv", ".csv.gz", ".us.txt")
_IN_FOLDER = re.compile(r"(\.csv|\.us\.txt)(\.gz)?$", re.IGNORECASE)
_ALONE = re.compile(r"\.(csv|txt)(\.gz)?$", re.IGNORECASE)
#: What is taken off a file's name to get the symbol, one after the other; the words are those that Java and Python
#: share. AAL.csv, AAL_data.csv, AAL_2006-01-01_to_2018-01-01.csv, daily_AAL.csv, aal.us.txt (`_us` takes off the rest).
FILE_NAMES = (
    r"(?i)(\.csv|\.txt)(\.gz)?$",
    r"(?i)_[12][0-9]{3}-?[0-9]{2}-?[0-9]{2}(_to)?_[12][0-9]{3}-?[0-9]{2}-?[0-9]{2}$",
    r"(?i)_(data|daily|prices|history)$",
    r"(?i)^daily_(adjusted_)?",
)
#: Stooq's way to say that a symbol is of the United States; it writes files with small letters.
_US = r"(?i)\.us$"
NEEDED = ("DATE", "OPEN", "CLOSE")
#: Rows looked at before Spark starts, of all files together, and of each at least: they show how dates are written.
SAMPLE, LEAST_SAMPLE = 50_000, 20
#: Of the table that is read: text, NULL where the file has nothing; and whether a row has more cells than the header.
PRICES = "symbol STRING, date STRING, open STRING, close STRING, source STRING, wide BOOLEAN"


@dataclass(frozen=True, slots=True)
class PriceFiles:
    """Files that hold prices, and the names of those in the same folder that do not."""

    files: list[Place]
    skipped: list[str]


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Where in a file's rows things are; a file without a column of symbols is about the one that its name says."""

    columns: int
    date: int
    open: int
    close: int
    symbol: int | None


@dataclass(frozen=True, slots=True)
class CheckedPrices:
    """Files whose headers were found to be right."""

    by_layout: dict[RowLayout, list[Place]]
    order: str  # of day and month in dates: see `sim.traces.dates`
    unread: dict[str, list[str]]  # by reason, names of files that nothing is read from
    symbol_named: bool  # whether a column that the user named as SYMBOL is there


def read_prices(
    spark: SparkSession,
    path: Place | Path | str,
    reading: CsvReading = CsvReading(),  # noqa: B008 - frozen
) -> tuple[DataFrame, dict[str, list[str]]]:
    """The rows of all files (PRICES and `day`), and by reason the names of files that nothing was read from."""
    checked = check_prices(path, reading)
    # Spark takes one header for all files it reads at once, so files are read together only if theirs agree.
    frames = [_read(spark, layout, files, checked.order) for layout, files in checked.by_layout.items()]
    return reduce(lambda one, other: one.unionByName(other), frames), checked.unread


def check_prices(path: Place | Path | str, reading: CsvReading = CsvReading()) -> CheckedPrices:  # noqa: B008 - frozen
    """Look at the header and the first rows of every file; UsageError names the file and the column."""
    found = price_files(path)
    by_layout: dict[RowLayout, list[Place]] = {}
    empty: list[str] = []
    dates: list[str] = []
    wrong: list[UsageError] = []
    symbol_named = False
    most = max(LEAST_SAMPLE, SAMPLE // len(found.files))
    for file in found.files:
        try:
            header, rows = first_rows(file, most)
            if not header:
                empty.append(file.name)
                continue
            layout = _layout(header, rows, file, reading)
        except UsageError as error:
            wrong.append(error)
            continue
        symbol_named |= names_column(header, "SYMBOL", reading)
        by_layout.setdefault(layout, []).append(file)
        dates += [row[layout.date].strip() for row in rows if layout.date < len(row)]
    if wrong:
        others = f" ({len(wrong)} of {len(found.files)} files have such a problem)" if len(wrong) > 1 else ""
        raise UsageError(f"{wrong[0]}{others}")
    if not by_layout:
        raise UsageError(f"{path}: empty; a line of column names is needed first, such as date,open,close")
    order = reading.dates or order_of(dates, str(path))
    unread = {"empty files": empty, "skipped files": found.skipped}
    return CheckedPrices(by_layout, order, {why: names for why, names in unread.items() if names}, symbol_named)


def price_files(path: Place | Path | str) -> PriceFiles:
    """The file, or those of a folder; hidden ones are none (some systems put their own notes beside every file)."""
    place = place_of(path)
    try:
        if not place.exists():
            raise UsageError(f"cannot read {place}: no such file or folder")
        if not place.is_folder():
            if not _ALONE.search(place.name) or place.name.startswith("."):
                raise UsageError(
                    f"{place}: the name of a file with prices must end in .csv or .txt, or these and .gz, and not "
                    "begin with a dot"
                )
            files, skipped = [place], []
        else:
            there = place.entries()
            names = [
                item.name
                for item in there
                if _IN_FOLDER.search(item.name) and not item.is_folder and not item.name.startswith(".")
            ]
            files, skipped = [place / name for name in names], [item.name for item in there if item.name not in names]
            if not files:
                raise _no_files(place, [item.name for item in there if item.is_folder])
    except OSError as error:
        raise UsageError(f"cannot read {place}: {error.strerror or error}") from error
    for file in files:
        if file.name.startswith("_") or ":" in file.name:
            raise UsageError(f"{file}: Spark cannot read files whose name begins with _ or has a colon; rename it")
        if file.name.endswith((".GZ", ".Gz", ".gZ")):
            raise UsageError(f"{file}: Spark unpacks only files whose names end in .gz; rename it")
    return PriceFiles(files, skipped)


def _no_files(place: Place, folders: list[str]) -> UsageError:
    """What to say of a folder without prices; those in it may have some."""
    inside = [name for name in folders if any(_IN_FOLDER.search(item.name) for item in (place / name).entries())]
    ends = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
    if not inside:
        deeper = f", only folders ({', '.join(folders[:3])}{' ..' if len(folders) > 3 else ''})" if folders else ""
        return UsageError(f"{place}: no {ends} file in this folder{deeper}")
    names = ", ".join(inside[:5]) + (" .." if len(inside) > 5 else "")
    return UsageError(
        f"{place}: no {ends} file in this folder, but in {len(inside)} folders below it ({names}); give one of them, "
        "or put all files in one folder"
    )


def symbol_of(name: str) -> str:
    """The symbol that the name of a file says."""
    for pattern in FILE_NAMES:
        name = re.sub(pattern, "", name)
    return re.sub(_US, "", name).upper() if re.search(_US, name) else name


def _layout(header: list[str], rows: list[list[str]], file: Place, reading: CsvReading) -> RowLayout:
    date, opening, close = (find(header, key, file, reading) for key in NEEDED)
    adjusted = [plain(header[place]) in NAMES[key][1] for key, place in (("OPEN", opening), ("CLOSE", close))]
    if adjusted[0] != adjusted[1] and not reading.columns.get("CLOSE") and not reading.columns.get("OPEN"):
        key, place = ("OPEN", opening) if adjusted[0] else ("CLOSE", close)
        raise UsageError(
            f"{file}: no column for {key} beside {header[place].strip()}, which is adjusted for splits and dividends "
            f'while the other price is not; --column {key}="{header[place].strip()}" uses it all the same'
        )
    return RowLayout(len(header), date, opening, close, find_symbol(header, file, reading, rows))


def _read(spark: SparkSession, layout: RowLayout, files: list[Place], order: str) -> DataFrame:
    from pyspark.sql import functions as f

    # One column more than there are: what comes to lie in it shows that cells are not below their names.
    schema = ", ".join(f"c{place} STRING" for place in range(layout.columns + 1))
    rows = spark.read.csv(
        [file.to_read for file in files],
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
    symbol = _symbol_in(name) if layout.symbol is None else _without_market(f.col(f"c{layout.symbol}"))
    columns = {"date": layout.date, "open": layout.open, "close": layout.close}
    wide = f.coalesce(f.col(f"c{layout.columns}"), f.lit("")) != ""
    return rows.select(
        symbol.alias("symbol"),
        *(f.col(f"c{place}").alias(key) for key, place in columns.items()),
        name.alias("source"),
        wide.alias("wide"),
        day_of(f.col(f"c{layout.date}"), order).alias("day"),
    )


def _symbol_in(name: Column) -> Column:
    """As `symbol_of`."""
    from pyspark.sql import functions as f

    for pattern in FILE_NAMES:
        name = f.regexp_replace(name, pattern, "")
    return _without_market(name)


def _without_market(symbol: Column) -> Column:
    from pyspark.sql import functions as f

    return f.when(symbol.rlike(_US), f.upper(f.regexp_replace(symbol, _US, ""))).otherwise(symbol)


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
                f"the prices have {len(found)} days{since}, but {days} were asked for; give --days {len(found)} or "
                f"fewer; {dates_of(prices)}"
            )
        after &= f.col("day") <= f.lit(found[days - 1])
    return dated.where(f.col("day").isNull() | after)


def _dated(prices: DataFrame) -> DataFrame:
    """With the column `day`, NULL where the date cannot be read. Of files `read_prices` has found it already, in their
    order of month and day; prices made here are written with the year first."""
    from pyspark.sql import functions as f

    return prices if "day" in prices.columns else prices.withColumn("day", day_of(f.col("date")))


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
        said += f"; {found.unread:,} rows have no readable date ({(found.such or '')[:20]!r})"
    return said


def trading_days(rows: dict[datetime.date, int]) -> list[datetime.date]:
    """Dates that count as days: on holidays real data has a few stray rows, which stay but make no day of it."""
    dates = sorted(rows)
    around = [max(rows[date] for date in dates[max(0, i - 5) : i + 6]) for i in range(len(dates))]
    return [date for date, busiest in zip(dates, around, strict=True) if rows[date] >= STRAY * busiest]
