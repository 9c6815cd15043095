"""A made-up stock market like that of Xie (2007): prices and fundamentals as a vendor sends them.

The real workload of Xie (2007) is 3,053 stocks, 60 days, 338,415 events of which 11.7 % are not ignorable. Two knobs
meet these figures: the share of days a stock has a price, and how widely recommendations are spread. An event is
ignorable unless it concerns the lowest PER among the stocks of its RECO, so the share of the others is near to
(distinct RECO) / (stocks); RECO has two decimals.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hullcast.network.wire.errors import UsageError
from hullcast.sim.seeds import generator
from hullcast.sim.traces.folders import writing
from hullcast.sim.traces.fundamentals import RECO_DOMAIN, Fundamentals, fundamentals
from hullcast.sim.traces.trace import Columns, TraceInfo, Where
from hullcast.sim.traces.yahoo import TIMES, write_trace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from hullcast.network.wire.arrays import Booleans, Ints

#: Figures of Xie (2007).
STOCKS, DAYS, PRICES_MADE, NOT_IGNORABLE = 3_053, 60, 338_415, 0.117
FIRST = date(2015, 4, 1)
#: Share of its days on which a stock has a row: 338,415 of 2 x 60 x 3,053.
PRESENT = PRICES_MADE / (2 * DAYS * STOCKS)
#: Mean and deviation of RECO before it is cut to 1 .. 5; the deviation is what gives 11.7 % (measured by the engine).
RECO = (2.6, 0.79)
PRICE = (25.0, 0.9)  # median, and deviation of the logarithm
PER = (18.0, 0.6)
#: Deviations of the logarithm of the price: of a stock overnight and over the day, and of the whole market.
NIGHT, DAY, WHOLE = 0.008, 0.018, 0.006
LETTERS = 26
#: The year from which New York has had the summer time of today.
SUMMER_TIME_SINCE = 2007


@dataclass(frozen=True, slots=True, eq=False)
class Market:
    """Stocks and their prices in cents; a stock without a row on a day is not `present`."""

    symbols: tuple[str, ...]
    eps: Ints  # cents
    reco: Ints  # hundredths
    days: npt.NDArray[np.datetime64]
    open: Ints  # (stocks, days)
    close: Ints
    present: Booleans
    root: int

    def fundamentals(self) -> Fundamentals:
        """Earnings and recommendations of all stocks."""
        return fundamentals(self.symbols, self.eps / 100, self.reco / 100)


def market(stocks: int = STOCKS, days: int = DAYS, *, first: date = FIRST, root: int = 0) -> Market:
    """A market of its own for every seed; prices walk, from night to day and from day to night."""
    if stocks < 1 or days < 1:
        raise UsageError(f"a market needs at least one stock and one day, got {stocks} and {days}")
    if first.year < SUMMER_TIME_SINCE:
        raise UsageError(f"a market begins in {SUMMER_TIME_SINCE} or later, got {first}")
    random = generator(root, "market", stocks, days)
    size = (stocks, days)
    level = np.log(PRICE[0]) + PRICE[1] * random.standard_normal(stocks)
    nights = NIGHT * random.standard_normal(size) + WHOLE * random.standard_normal(days)
    daytimes = DAY * random.standard_normal(size) + WHOLE * random.standard_normal(days)
    steps = np.stack((nights, daytimes), axis=2).reshape(stocks, 2 * days)
    # In whole cents, 50 at least, so that rounding makes no jump of a penny stock.
    prices = np.maximum(50, np.rint(100 * np.exp(level[:, None] + np.cumsum(steps, axis=1)))).astype(np.int64)
    per = PER[0] * np.exp(PER[1] * random.standard_normal(stocks))
    eps = np.maximum(1, np.rint(100 * np.exp(level) / per)).astype(np.int64)
    calendar = np.busday_offset(np.datetime64(first, "D"), np.arange(days), roll="forward")
    return Market(
        symbols=_symbols(random, stocks),
        eps=eps,
        reco=_recommendations(random, stocks),
        days=calendar,
        open=prices[:, 0::2],
        close=prices[:, 1::2],
        present=random.random(size) < PRESENT,
        root=root,
    )


def market_trace(spark: SparkSession, made: Market, folder: Where, *, force: bool = False) -> TraceInfo:
    """The market as a trace, by the same way that real prices take."""
    source = f"market of {len(made.symbols):,} stocks, seed {made.root}"
    with writing(folder, force=force) as path:
        return write_trace(spark, market_prices(spark, made), made.fundamentals(), path, name="market", source=source)


def market_prices(spark: SparkSession, made: Market) -> DataFrame:
    """Its rows as if they had been read from files (`sim.traces.prices.PRICES`)."""
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

    stock, day = np.nonzero(made.present)
    rows = {
        "symbol": np.array(made.symbols, object)[stock],
        "date": np.datetime_as_string(made.days)[day].astype(object),
        "open": _money(made.open[stock, day]),
        "close": _money(made.close[stock, day]),
        "source": np.full(len(stock), "market", object),
    }
    columns = {name: pa.array(column, pa.string()) for name, column in rows.items()}
    return spark.createDataFrame(pa.table(columns | {"wide": pa.array(np.zeros(len(stock), np.bool_))}))


def market_columns(made: Market) -> tuple[TraceInfo, Columns]:
    """The events of its trace without Spark: for a replay that needs no file, and as a check of the ETL."""
    rank = np.argsort(np.array(made.symbols, object))  # by code points, as Spark orders
    there = made.present[rank].T  # (days, stocks by symbol)
    shape = (len(made.days), 2, len(rank))
    which = np.broadcast_to(there[:, None, :], shape)
    day, moment, place = np.nonzero(which)
    stock = rank[place]
    cents = np.where(moment == 0, made.open[stock, day], made.close[stock, day])
    symbols = np.array(made.symbols, object)[stock].tolist()
    columns = Columns(symbols, made.reco[stock] / 100, cents / 100 / (made.eps[stock] / 100), _times(made)[day, moment])
    return TraceInfo(name="market", events=len(columns), source=f"seed {made.root}"), columns


def write_csv(made: Market, folder: Path | str) -> tuple[Path, Path]:
    """The market as files: a folder with one file a symbol in the columns Yahoo has, and the fundamentals."""
    prices, stocks = Path(folder) / "prices", Path(folder) / "fundamentals.csv"
    try:
        if Path(folder).exists() and any(Path(folder).iterdir()):
            # Not by --force either: real prices would look the same.
            raise UsageError(f"{folder} is not empty; give another folder for the CSV files, or remove it first")
        prices.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"cannot write CSV files to {folder}: {error.strerror or error}") from error
    dates = np.datetime_as_string(made.days)
    volume = generator(made.root, "market", "volume").integers(1_000, 1_000_000, made.open.shape)
    for row, symbol in enumerate(made.symbols):
        there = made.present[row]
        low, high = np.minimum(made.open[row], made.close[row]), np.maximum(made.open[row], made.close[row])
        cells = [_money(column[there]) for column in (made.open[row], high, low, made.close[row], made.close[row])]
        with (prices / f"{symbol}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("Date", "Open", "High", "Low", "Close", "Adj Close", "Volume"))
            writer.writerows(zip(dates[there], *cells, volume[row][there].tolist(), strict=True))
    with stocks.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("symbol", "EPS", "RECO"))
        writer.writerows(zip(made.symbols, _money(made.eps), _money(made.reco), strict=True))
    return prices, stocks


def _symbols(random: np.random.Generator, count: int) -> tuple[str, ...]:
    """Different words of four capital letters, or more where there are not enough."""
    length = 4
    while LETTERS**length < 2 * count:
        length += 1
    numbers = random.choice(LETTERS**length, count, replace=False)
    digits = numbers[:, None] // LETTERS ** np.arange(length - 1, -1, -1) % LETTERS
    letters = (digits + ord("A")).astype(np.uint32)
    return tuple(np.ascontiguousarray(letters).view(f"<U{length}").ravel().tolist())


def _recommendations(random: np.random.Generator, count: int) -> Ints:
    """In hundredths, from 1.00 to 5.00; what falls outside is drawn again."""
    low, high = RECO_DOMAIN
    reco = random.normal(*RECO, count)
    while (outside := (reco < low) | (reco > high)).any():
        reco[outside] = random.normal(*RECO, int(outside.sum()))
    return np.rint(100 * reco).astype(np.int64)


def _money(cents: Ints) -> list[str]:
    return [f"{value // 100}.{value % 100:02d}" for value in cents.tolist()]


def _times(made: Market) -> npt.NDArray[np.datetime64]:
    """When each day opens and closes, in UTC."""
    moments = [
        [datetime.combine(day, time.fromisoformat(text), UTC) for text in TIMES] for day in made.days.astype(object)
    ]
    behind = [timedelta(hours=hours_behind(day)) for day in made.days.astype(object)]
    seconds = [[(at + late).timestamp() for at in day] for day, late in zip(moments, behind, strict=True)]
    return np.array(seconds).astype("datetime64[s]").astype("datetime64[us]")


def hours_behind(day: date) -> int:
    """By how much New York is behind UTC at noon: 4 hours in summer, from the second Sunday of March to the first of
    November, else 5. Not every machine has a database of time zones to ask."""
    summer, winter = (_sunday_from(date(day.year, month, first)) for month, first in ((3, 8), (11, 1)))
    return 4 if summer <= day < winter else 5


def _sunday_from(day: date) -> date:
    return day + timedelta((6 - day.weekday()) % 7)
