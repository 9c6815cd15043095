"""From daily prices to a trace: each price moves its stock to (RECO, PER = price / EPS).

A row is two prices, open and close. What is wrong with a row (date, symbol, fundamentals, repetition) refuses both,
what is wrong with a price only that one; so `2 x rows = events + refused`, and the first reason that applies is the one
counted (the order of REASONS). Nothing else is left out but days that were not asked for.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.storage import Place, place_of
from hullcast.sim.traces.columns import CsvReading, first_rows, names_column
from hullcast.sim.traces.folders import writing
from hullcast.sim.traces.fundamentals import (
    AMBIGUOUS,
    BAD_EPS,
    BAD_RECO,
    NO_EPS,
    NO_RECO,
    NUMBER,
    RECO_DOMAIN,
    TOO_WIDE,
    Fundamentals,
    read_fundamentals,
    spread_reco,
)
from hullcast.sim.traces.prices import check_prices, dates_of, read_prices, select_days
from hullcast.sim.traces.trace import EVENTS, PART_EVENTS, REFUSED, SCHEMA, EventFile, TraceInfo, Where, write_info

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

WIDE = "more cells than columns"
NO_DATE = "date missing or unreadable"
UNKNOWN = "unknown symbol"
CONTRADICTING = "same day twice, different"
REPEATED = "same day twice, equal"
NO_PRICE = "price missing or unreadable"
BAD_PRICE = "price not positive"
JUMP = "split-like jump"
TOO_LARGE = "PER too large"
REASONS = (
    *(WIDE, NO_DATE, UNKNOWN, AMBIGUOUS, TOO_WIDE, NO_EPS, BAD_EPS, NO_RECO, BAD_RECO, CONTRADICTING, REPEATED),
    *(NO_PRICE, BAD_PRICE, JUMP, TOO_LARGE),
)

#: A price this many times the one before, or this part of it, is a split or an error, not a change of value.
JUMP_FACTOR = 1.8
ZONE = "America/New_York"
#: When a day's prices are made, in the exchange's time.
TIMES = ("09:30:00", "16:00:00")
MOMENTS = ("open", "close")
#: The note that shows some refused prices, where more are refused than are events.
FIRST_REFUSED = "first refused"


def yahoo_trace(
    spark: SparkSession,
    prices: Place | Path | str,
    stocks: Place | Path | str,
    folder: Where,
    *,
    reading: CsvReading = CsvReading(),  # noqa: B008 - frozen
    first: datetime.date | None = None,
    days: int | None = None,
    spread: float | None = None,
    root: int = 0,
    force: bool = False,
) -> TraceInfo:
    """Make the trace of CSV files in `folder`; `spread` gives RECO a finer grid than the file has (`spread_reco`)."""
    found = check_input(prices, stocks, reading)
    read, unread = read_prices(spark, prices, reading)
    notes: dict[str, object] = {**unread}
    if found.nameless:
        notes["fundamentals without a symbol"] = found.nameless
    if spread is not None:
        found = spread_reco(found, spread, root)
        notes |= {"RECO spread by": spread, "seed": root}
    source = f"{place_of(prices).name}, {place_of(stocks).name}"
    with writing(folder, force=force) as path:
        return write_trace(spark, read, found, path, name="yahoo", source=source, first=first, days=days, notes=notes)


def check_input(
    prices: Place | Path | str,
    stocks: Place | Path | str,
    reading: CsvReading = CsvReading(),  # noqa: B008 - frozen
) -> Fundamentals:
    """Read the fundamentals, and the first lines of all files of prices; UsageError names the file and the column."""
    found = read_fundamentals(stocks, reading)
    checked = check_prices(prices, reading)
    if reading.columns.get("SYMBOL") and not checked.symbol_named:
        header, _ = first_rows(stocks, 0)
        if not names_column(header, "SYMBOL", reading):
            names = " or ".join(map(repr, reading.columns["SYMBOL"]))
            raise UsageError(f"neither {prices} nor {stocks} has a column {names}, which --column SYMBOL names")
    return found


def write_trace(
    spark: SparkSession,
    prices: DataFrame,
    stocks: Fundamentals,
    folder: Place,
    *,
    name: str,
    source: str,
    first: datetime.date | None = None,
    days: int | None = None,
    notes: dict[str, object] | None = None,
) -> TraceInfo:
    """The ETL: judge each price, number what is left, write events and refused, read both again, write trace.json.

    The driver holds a row for each day and reason and one for each file, never one for each price. UsageError if not
    all that was written can be read again.
    """
    from pyspark.sql import functions as f

    judged = judge(spark, select_days(prices, first, days), stocks).persist()
    try:
        counts = judged.groupBy("reason", "day").agg(f.count("*").alias("prices")).collect()
        refused = {reason: sum(row.prices for row in counts if row.reason == reason) for reason in REASONS}
        if first is not None and not any(row.day is not None for row in counts):
            raise UsageError(f"no prices from {first} on; {dates_of(prices)}")
        by_day = sorted((row.day, row.prices) for row in counts if row.reason is None)
        events = sum(prices for _, prices in by_day)
        good, bad = judged.where("reason IS NULL"), judged.where("reason IS NOT NULL")
        parts = _write_events(_number(spark, good, by_day), folder / EVENTS, events)
        few = first_refused(bad) if sum(refused.values()) > events else []
        bad = bad.select("symbol", "date", "moment", f.col("text").alias("price"), "source", "reason")
        dirt = _write_refused(bad, folder / REFUSED, sum(refused.values()))
        left = good.agg(f.count_distinct("symbol").alias("stocks"), f.count_distinct("reco").alias("reco")).first()
        assert left is not None
    finally:
        judged.unpersist()
    info = TraceInfo(
        name=name,
        domain=RECO_DOMAIN,
        events=events,
        source=source,
        refused={reason: count for reason, count in refused.items() if count},
        notes={
            "prices": sum(row.prices for row in counts),
            "stocks": left.stocks,
            "distinct RECO": left.reco,
            "dates with events": len(by_day),
            "first day": str(by_day[0][0]) if by_day else None,
            "last day": str(by_day[-1][0]) if by_day else None,
            **({FIRST_REFUSED: few} if few else {}),
        }
        | (notes or {}),
    )
    write_info(info, folder, parts, dirt)
    return info


def _write_events(numbered: DataFrame, place: Place, count: int) -> list[EventFile]:
    """Write `count` events, PART_EVENTS to a file, and read again what each file holds."""
    from pyspark.sql import functions as f

    files = max(1, -(-count // PART_EVENTS))
    cut = numbered.repartitionById(files, f.expr(f"cast(seq div {PART_EVENTS} as int)")).sortWithinPartitions("seq")
    names = _written(cut, place)
    numbers = [f.min("seq").alias("first"), f.max("seq").alias("last"), f.count("seq").alias("rows")]
    found = []
    if names:
        read = numbered.sparkSession.read.schema(SCHEMA).parquet(*((place / name).to_read for name in names))
        found = sorted(read.groupBy("_metadata.file_name").agg(*numbers).collect(), key=lambda row: int(row["first"]))
    there = sum(row["rows"] for row in found)
    if there != count:
        raise _incomplete(place, there, count, "events")
    following = 0
    for row in found:
        if (row["first"], row["last"]) != (following, following + row["rows"] - 1):
            raise UsageError(
                f"{place / row['file_name']} holds {row['rows']:,} events numbered {row['first']} to {row['last']}, "
                f"but {following} comes next; make the trace again"
            )
        following += row["rows"]
    return [EventFile(place / row["file_name"], row["first"], row["last"]) for row in found]


def _write_refused(bad: DataFrame, place: Place, count: int) -> list[str]:
    """Write `count` refused prices, and read again how many are there."""
    files = max(1, -(-count // PART_EVENTS))
    names = _written(bad.coalesce(files), place)
    there = 0
    if names:
        read = bad.sparkSession.read.schema(bad.schema).parquet(*((place / name).to_read for name in names))
        there = read.count()
    if there != count:
        raise _incomplete(place, there, count, "refused prices")
    return names


def _written(frame: DataFrame, place: Place) -> list[str]:
    """Write a table beside what is in a folder; the names of its files."""
    before = {found.name for found in place.entries()}
    frame.write.mode("append").parquet(place.to_write)
    new = [found.name for found in place.entries() if found.name not in before]
    return [name for name in new if name.endswith(".parquet")]


def _incomplete(place: Place, there: int, count: int, what: str) -> UsageError:
    return UsageError(
        f"{count:,} {what} were written to {place}, but {there:,} can be read there; "
        "write to a storage that this machine and all workers of the cluster share"
    )


def judge(spark: SparkSession, rows: DataFrame, stocks: Fundamentals) -> DataFrame:
    """Each row as two prices with the reason to refuse them, or NULL; and what the events need."""
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    known = pa.table(
        {
            "symbol": pa.array(stocks.symbols, pa.string()),
            "eps": pa.array(stocks.eps, pa.float64(), from_pandas=True),
            "reco": pa.array(stocks.reco, pa.float64(), from_pandas=True),
            "problem": pa.array(stocks.problems, pa.string()),
            "known": pa.array([True] * len(stocks), pa.bool_()),
        }
    )
    # One shuffle: both windows below are within a symbol.
    joined = rows.repartition("symbol").join(f.broadcast(spark.createDataFrame(known)), "symbol", "left")
    # As numbers: 10.5 and 10.50 are the same price, and what is none is no price, however it is written.
    both = f.struct(*(f.coalesce(_number_of(f.col(name)), f.lit(float("nan"))) for name in MOMENTS))
    same_day = Window.partitionBy("symbol", "day", "wide")  # what a row with too many cells says contradicts nobody
    order = [f.coalesce(f.col(name), f.lit("")) for name in ("source", "date", *MOMENTS)]
    place = f.row_number().over(same_day.orderBy(*order))
    row_reason = _first_of(
        (f.col("wide"), WIDE),
        (f.col("day").isNull(), NO_DATE),
        (f.col("known").isNull(), UNKNOWN),
        (f.col("problem").isNotNull(), f.col("problem")),
        (f.min(both).over(same_day) != f.max(both).over(same_day), CONTRADICTING),
        (place > 1, REPEATED),
    )
    moments = f.array(*(f.struct(f.lit(at).alias("at"), f.col(name).alias("text")) for at, name in enumerate(MOMENTS)))
    prices = joined.withColumn("row_reason", row_reason).withColumn("moment", f.explode(moments))
    text = f.col("moment.text")
    prices = prices.select(
        *("symbol", "date", "day", "source", "eps", "reco", "row_reason"),
        f.col("moment.at").alias("place"),
        text.alias("text"),
        _number_of(text).alias("price"),
    )
    price = f.col("price")
    usable = f.col("row_reason").isNull() & (price > 0)
    earlier = Window.partitionBy("symbol").orderBy("day", "place").rowsBetween(Window.unboundedPreceding, -1)
    ratio = price / f.last(f.when(usable, price), ignorenulls=True).over(earlier)
    reason = _first_of(
        (f.col("row_reason").isNotNull(), f.col("row_reason")),
        (price.isNull(), NO_PRICE),
        (price <= 0, BAD_PRICE),
        ((ratio >= JUMP_FACTOR) | (ratio <= 1 / JUMP_FACTOR), JUMP),
        (price / f.col("eps") == float("inf"), TOO_LARGE),
    )
    moment = f.element_at(f.array(*map(f.lit, MOMENTS)), f.col("place") + 1)
    return prices.withColumn("reason", reason).withColumn("moment", moment)


def first_refused(bad: DataFrame, most: int = 3) -> list[dict[str, str | None]]:
    """Of each reason the first prices, by file, symbol and date: they show what is wrong where most are refused."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy("reason").orderBy("source", "symbol", "date", "place")
    first = bad.withColumn("at", f.row_number().over(order)).where(f.col("at") <= most).collect()
    rows = sorted(first, key=lambda row: (REASONS.index(row.reason), row["at"]))
    return [
        {"reason": row.reason, "file": row.source, "symbol": row.symbol, "date": row.date, row.moment: row.text}
        for row in rows
    ]


def _number_of(text: Column) -> Column:
    """A finite number, or NULL: as `sim.traces.fundamentals.number`."""
    from pyspark.sql import functions as f

    value = f.when(text.rlike(NUMBER), text.try_cast("double"))
    return f.when(f.abs(value) < float("inf"), value)


def _number(spark: SparkSession, good: DataFrame, by_day: list[tuple[datetime.date, int]]) -> DataFrame:
    """Events in their order: by day, opens before closes, then by symbol. A day's first number is known from the
    counts, so that days are numbered side by side and none needs the others."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    offsets, total = [], 0
    for day, count in by_day:
        offsets.append((day, total))
        total += count
    firsts = spark.createDataFrame(offsets, "day DATE, first BIGINT")
    place = f.row_number().over(Window.partitionBy("day").orderBy("place", "symbol"))
    time = f.element_at(f.array(*map(f.lit, TIMES)), f.col("place") + 1)
    at = f.concat_ws(" ", f.col("day").cast("string"), time, f.lit(ZONE))  # with its zone, or the session's would count
    return good.join(f.broadcast(firsts), "day").select(
        (f.col("first") + place - 1).cast("long").alias("seq"),
        at.cast("timestamp").alias("at"),
        f.col("symbol").alias("key"),
        f.col("reco").alias("x"),
        (f.col("price") / f.col("eps")).alias("y"),
    )


def _first_of(*cases: tuple[Column, str | Column]) -> Column:
    """The reason of the first case that is true; NULL if none is."""
    from pyspark.sql import functions as f

    return f.coalesce(*(f.when(where, f.lit(why) if isinstance(why, str) else why) for where, why in cases))
