"""Which days of prices are taken: from a date on, so many trading days; and which there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    import datetime

    from pyspark.sql import DataFrame

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
                f"the prices have {len(found)} days{since}, {days} are wanted; leave out --days for all; "
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
