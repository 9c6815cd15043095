"""The ETL of daily prices: each price becomes an event or is refused with its reason, as a plain reading says."""

from __future__ import annotations

import datetime
import gzip
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.seeds import generator
from hullcast.sim.spark.session import told_in_a_line
from hullcast.sim.traces import yahoo
from hullcast.sim.traces.checking import check_whole
from hullcast.sim.traces.fundamentals import fundamentals, read_fundamentals
from hullcast.sim.traces.market import market, market_columns, market_trace
from hullcast.sim.traces.prices import PRICES, price_files, read_prices, select_days, trading_days
from hullcast.sim.traces.synthetic import table51_trace
from hullcast.sim.traces.trace import TraceInfo, events, parts_of, read_info, read_parts
from hullcast.sim.traces.yahoo import REASONS, judge, yahoo_trace
from tests.support import price_oracle

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from hullcast.sim.spark.storage import Place

DIRT = (
    *("", "-", "N/A", "NaN", "nan", "Infinity", "-inf", "1e309", "1,234.5", "12.5d", "0x10", "null", "ten", "5 5"),
    *("0", "0.0", "-0", "-12.5", "1e-400", "+12.5", ".5e1", "12.", " 12.25 ", "1E1", "1e-320", "99.5", "5e300"),
)
DATES = (
    "",
    "-",
    "2015-02-30",
    "2015-4-1",
    "20150403",
    "2015/04/05",
    "2015-04/05",
    "2015.4.31",
    "150401",
    "04/01/2015",
    "2015-04-01T00:00:00",
    "2015-04-02 00:00:00-04:00",
    "0000-00-00",
)
FUNDAMENTALS = """Ticker,Company,EPS (ttm),Analyst Recom
GOOD,"A, Inc.",2,2.3
FINE,,0.5,1
ALSO,,1e-300,5.0
HUGE,,1e-308,4
TINY,,1e-9,3.3
LOSS,,-1,2
ZERO,,0,2
NOEPS,,-,2
NORECO,,1,
LOW,,1,0.99
HIGH,,1,5.01
TWICE,,1,2
TWICE,,1,3
SAME,,1,2
SAME,,1,2.0
WIDE,Wide, Inc.,1,2
,,1,2
"""


class Made(NamedTuple):
    """A trace and what a plain reading of its input gives."""

    info: TraceInfo
    folder: Path
    rows: int
    events: list[price_oracle.Event]
    refused: Counter[price_oracle.Refused]


def dirty_folder(folder: Path) -> None:
    """Files of many symbols, known and unknown, that hold every kind of dirt; different columns in different orders."""
    random = generator(0, "dirty prices")
    symbols = [line.split(",")[0] for line in FUNDAMENTALS.splitlines()[1:-1]]
    names = [*dict.fromkeys(symbols), "ALIEN", "^GSPC", "BRK.B", "A B", "[x]", "X#%41+"]
    for number, symbol in enumerate(names):
        columns = [["date", "open", "close"], ["Close", "Volume", "OPEN", " Date "]][number % 2]
        lines = [",".join(columns)]
        for day in random.permutation(np.arange(90) % 75):
            dirty = random.random() < 0.15
            date = str(datetime.date(2015, 4, 1) + datetime.timedelta(int(day)))
            cells = {
                "date": random.choice(DATES) if dirty and random.random() < 0.3 else date,
                "open": random.choice(DIRT) if dirty else f"{random.uniform(9, 13):.2f}",
                "close": random.choice(DIRT) if random.random() < 0.1 else f"{random.uniform(9, 13):.2f}",
                "volume": "1000",
            }
            row = [f'"{cell}"' if "," in (cell := cells[name.strip().lower()]) else cell for name in columns]
            lines.append(",".join(row[: len(row) - int(random.random() < 0.02)]))
            if random.random() < 0.1:
                lines.append(lines[-1])  # the same row again
            if random.random() < 0.05 and not dirty:
                lines.append(lines[-1].replace(date, f"{date} 00:00"))
            if random.random() < 0.03:
                lines.append(lines[-1] + random.choice([",", ", 7", ',""', ",234.5"]))  # cells that have no name
            if random.random() < 0.05:
                lines.append("  ")
        mark = "\ufeff" if number % 3 == 0 else ""
        end = "\r\n" if number % 4 == 0 else "\n"
        suffix = "CSV" if symbol == "FINE" else "csv"
        (folder / f"{symbol}.{suffix}").write_bytes((mark + end.join(lines) + end).encode())
    (folder / "EMPTY.csv").write_text("")
    (folder / "HEADER.csv").write_text("date,open,close\n")
    (folder / "notes.txt").write_text("not prices")
    (folder / "._GOOD.csv").write_bytes(b"\0\1\xff")  # as some systems leave beside every file


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    path = tmp_path_factory.mktemp("dirty")
    (path / "prices").mkdir()
    dirty_folder(path / "prices")
    (path / "stocks.csv").write_text(FUNDAMENTALS)
    info = yahoo_trace(spark, path / "prices", path / "stocks.csv", path / "trace")
    files = [file for file in price_files(path / "prices").files if file.name != "EMPTY.csv"]
    rows = [row for file in files for row in price_oracle.read(file.local)]
    events, refused = price_oracle.etl(rows, read_fundamentals(path / "stocks.csv"))
    return Made(info, path / "trace", len(rows), events, refused)


def test_events_are_those_of_a_plain_reading(made: Made) -> None:
    rows = [row for table in read_parts(made.folder) for row in table.to_pylist()]
    assert [row["seq"] for row in rows] == list(range(len(made.events)))
    assert len(rows) > 400
    for row, event in zip(rows, made.events, strict=True):
        assert (row["key"], row["x"], row["y"]) == (event.symbol, event.reco, event.per)
        hour = (13, 30) if event.moment == 0 else (20, 0)  # 9:30 and 16:00 in New York's summer
        assert row["at"] == datetime.datetime.combine(event.day, datetime.time(*hour), datetime.UTC)


def test_every_refused_price_is_kept_with_its_reason(made: Made) -> None:
    kept = pq.read_table(made.folder / "refused").to_pylist()
    found = Counter(price_oracle.Refused(*(value or "" for value in row.values())) for row in kept)
    assert found == made.refused


def test_nothing_gets_lost_and_every_reason_occurs(made: Made) -> None:
    assert made.info.events + sum(made.info.refused.values()) == 2 * made.rows == made.info.notes["prices"]
    assert made.info.refused == dict(Counter(entry.reason for entry in made.refused.elements()))
    assert set(made.info.refused) == set(REASONS)
    assert made.info.notes["empty files"] == ["EMPTY.csv"]
    assert made.info.notes["skipped files"] == ["._GOOD.csv", "notes.txt"]
    assert made.info.notes["fundamentals without a symbol"] == 1
    assert made.info.notes["stocks"] == len({event.symbol for event in made.events})


def test_files_hold_consecutive_numbers_and_are_as_many_as_the_data_needs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yahoo, "PART_EVENTS", 100)
    made = market(20, 12)
    info = market_trace(spark, made, tmp_path)
    parts = parts_of(tmp_path)
    assert [(part.first, part.rows) for part in parts[:-1]] == [(100 * i, 100) for i in range(info.events // 100)]
    check_whole(tmp_path, info)
    _, columns = market_columns(made)
    assert [key for table in read_parts(tmp_path) for key in table["key"].to_pylist()] == list(columns.keys)


@pytest.mark.parametrize(("lost", "what"), [("events", "events"), ("refused", "refused prices")])
def test_a_file_that_is_lost_on_the_way_is_an_error_and_no_trace(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, what: str
) -> None:
    """As with a worker that writes to a disk of its own."""
    written = yahoo._written

    def losing(frame: DataFrame, place: Place) -> list[str]:
        names = written(frame, place)
        if place.name != lost:
            return names
        gone = max(names, key=lambda name: (place / name).size_bytes())
        (place / gone).remove()
        return [name for name in names if name != gone]

    monkeypatch.setattr(yahoo, "_written", losing)
    (tmp_path / "f.csv").write_text("symbol,EPS,RECO\nA,1,2\n")
    (tmp_path / "p.csv").write_text("symbol,date,open,close\nA,2015-04-01,1,2\nA,2015-04-02,x,1.6\n")
    told = rf"[1-9] {what} were written to .*{lost}, but 0 can be read there; write to a storage that .* share"
    with pytest.raises(UsageError, match=told):
        yahoo_trace(spark, tmp_path / "p.csv", tmp_path / "f.csv", tmp_path / "trace")
    assert not (tmp_path / "trace").exists()


def test_one_long_compressed_file_is_read_from_a_day_for_some_days(spark: SparkSession, tmp_path: Path) -> None:
    lines = ["\ufeffSymbol,Date,Open,High,Low,Close,Adj Close,Volume"]
    for day in range(1, 9):
        for symbol in "ABCDEFGHIJKL"[: 1 if day == 4 else 12]:  # the fourth is a holiday with a stray row
            lines.append(f'"{symbol}",2015-04-0{day},{10 + day},20,5,{10.5 + day},7,1')
    lines.append("A,nonsense,1,1,1,1,1,1")
    path = tmp_path / "prices.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    prices, unread = read_prices(spark, path)
    assert unread == {}
    stocks = fundamentals(tuple("ABCDEFGHIJKL"), np.full(12, 0.5), np.full(12, 2.5))
    rows = judge(spark, select_days(prices, datetime.date(2015, 4, 2), 4), stocks).collect()
    good = [row for row in rows if row.reason is None]
    assert {row.day.day for row in good} == {2, 3, 4, 5, 6}
    assert len(good) == 2 * (4 * 12 + 1)
    assert [(row.date, row.reason) for row in rows if row.reason] == [("nonsense", "date missing or unreadable")] * 2
    assert {row.price for row in good if row.place == 1} == {12.5, 13.5, 14.5, 15.5, 16.5}
    with pytest.raises(
        UsageError, match=r"have 7 days, but 8 were .* from 2015-04-01 to 2015-04-08; 1 rows .*'nonsense'"
    ):
        select_days(prices, None, 8)


def test_a_split_costs_one_price_and_a_wrong_tick_two(spark: SparkSession) -> None:
    prices = {"SPLIT": (10, 10.5, 5.2, 5.3), "TICK": (10, 100, 10, 11), "STEEP": (10, 17.99, 10.0, 5.56)}
    rows = [
        (symbol, f"2015-04-0{day + 1}", str(values[2 * day]), str(values[2 * day + 1]), "", False)
        for symbol, values in prices.items()
        for day in (0, 1)
    ]
    frame = spark.createDataFrame(rows, PRICES)
    stocks = fundamentals(tuple(prices), np.ones(3), np.full(3, 2.0))
    judged = judge(spark, select_days(frame, None, None), stocks).sort("symbol", "day", "place").collect()
    left = {symbol: [row.price for row in judged if (row.symbol, row.reason) == (symbol, None)] for symbol in prices}
    assert left == {"SPLIT": [10, 10.5, 5.3], "TICK": [10, 11], "STEEP": [10, 17.99, 10.0, 5.56]}


def test_a_date_with_few_rows_is_no_trading_day() -> None:
    first = datetime.date(2015, 4, 1)
    counts = [100, 9, 10, 100, 3, 1000] + [1000] * 10 + [20]
    days = trading_days({first + datetime.timedelta(i): count for i, count in enumerate(counts)})
    kept = [(day - first).days for day in days]
    assert kept == [0, 3, *range(5, 16)]  # beside the thousand that is near, ten are few too
    assert trading_days({}) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.csv", "", "a line of column names is needed"),
        ("p.csv", "\n  \n", "a line of column names is needed"),
        ("p.csv", "date,open\n2015-04-01,1\n", "no column for CLOSE; .* columns: date, open"),
        ("p.csv", "date,open,close,Open\n", r'2 columns for OPEN \(open, Open\); say which with --column OPEN="open"'),
        ("p.csv", "date,open,close,symbol,ticker\n", "2 columns for SYMBOL"),
        ("p.csv.gz", "date,open,close\n", "cannot read .*p.csv.gz"),
        ("p.xls", "date,open,close\n", "end in .csv or .txt, or these and .gz"),
        ("_p.csv", "date,open,close\n", "begins with _ or has a colon; rename"),
        ("a:b.csv", "date,open,close\n", "begins with _ or has a colon; rename"),
        ("p.csv.GZ", "date,open,close\n", "end in .gz; rename"),
        ("p.csv", "date;open;close\n", "separated by ;; commas are needed"),
        ("p.csv", "\0d\0a\0t\0e\0,\0o\0p\0e\0n", "seems to be UTF-16; save it as UTF-8"),
    ],
)
def test_files_that_are_no_prices_are_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        read_prices(None, path)  # type: ignore[arg-type]  # Spark is not asked


def test_a_folder_without_prices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no \.csv, \.csv\.gz or \.us\.txt file in this folder$"):
        price_files(tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        price_files(tmp_path / "gone")


def test_thousands_without_quotes_make_no_price(spark: SparkSession, tmp_path: Path) -> None:
    """`1,234.5` is two cells: neither of the numbers that come to lie below open and close is one."""
    (tmp_path / "A.csv").write_text("date,open,close\n2015-04-01,1,234.5,1,250.0\n2015-04-02,1234.5,1250.0,\n")
    prices, _ = read_prices(spark, tmp_path)
    stocks = fundamentals(("A",), np.ones(1), np.ones(1))
    judged = judge(spark, select_days(prices, None, None), stocks).collect()
    found = sorted((row.date, row.price, row.reason) for row in judged)
    assert found == [
        ("2015-04-01", 1.0, "more cells than columns"),
        ("2015-04-01", 234.5, "more cells than columns"),
        ("2015-04-02", 1234.5, None),
        ("2015-04-02", 1250.0, None),
    ]


def test_the_zone_of_a_user_s_own_session_does_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    # Summer time begins between the two days.
    (tmp_path / "A.csv").write_text("date,open,close\n2015-03-06,10,11\n2015-03-09,12,13\n")
    (tmp_path / "stocks.txt").write_text("symbol,EPS,RECO\nA,1,2\n")
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone == "UTC"
    try:
        spark.conf.set("spark.sql.session.timeZone", "Pacific/Apia")
        yahoo_trace(spark, tmp_path / "A.csv", tmp_path / "stocks.txt", tmp_path / "trace")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    (found,) = read_parts(tmp_path / "trace")
    moments = ["2015-03-06 14:30", "2015-03-06 21:00", "2015-03-09 13:30", "2015-03-09 20:00"]
    assert [f"{at:%Y-%m-%d %H:%M}" for at in found["at"].to_pylist()] == moments


def test_files_and_folders_with_signs_of_patterns_are_read_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """`o[1]` is a name; as a pattern it would be `o1`, which is there too."""
    for name, close in (("o[1]", "2"), ("o1", "3")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "A*.csv").write_text(f"date,open,close\n2015-04-01,1,{close}\n")
        (tmp_path / name / "AB.csv").write_text(f"date,open,close\n2015-04-01,1,{close}\n")
    prices, _ = read_prices(spark, tmp_path / "o[1]")
    assert sorted(map(tuple, prices.select("symbol", "close").collect())) == [("A*", "2"), ("AB", "2")]
    for name, updates in (("t[1]", 3), ("t1", 4)):
        table51_trace(tmp_path / name, rows=5, updates=updates)
    assert events(spark, tmp_path / "t[1]").count() == 8


def test_an_error_in_the_middle_leaves_the_trace_that_is_there(spark: SparkSession, tmp_path: Path) -> None:
    table51_trace(tmp_path / "a:b", rows=5, updates=5)
    (tmp_path / "f.csv").write_text("symbol,EPS,RECO\nA,1,2\n")
    rows = "".join(f"A,2015-04-0{1 + day % 9},{day},{day}\n" for day in range(5_000))
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress(f"symbol,date,open,close\n{rows}".encode())[:-500])
    with pytest.raises(UsageError, match=r"p\.csv\.gz.*: Unexpected end of input stream"), told_in_a_line():
        yahoo_trace(spark, tmp_path / "p.csv.gz", tmp_path / "f.csv", tmp_path / "a:b", force=True)
    (tmp_path / "p.csv").write_text("symbol,date,open,close\nA,2015-04-01,1,2\n")
    made = (spark, tmp_path / "p.csv", tmp_path / "f.csv", tmp_path / "a:b")
    with pytest.raises(UsageError, match="have 1 days, but 2 were asked for"):
        yahoo_trace(*made, days=2, force=True)
    with pytest.raises(UsageError, match="no prices from 2016-01-01 on; the data goes from 2015-04-01 to 2015-04-01"):
        yahoo_trace(*made, first=datetime.date(2016, 1, 1), force=True)
    assert read_info(tmp_path / "a:b").name == "table51"
    check_whole(tmp_path / "a:b", read_info(tmp_path / "a:b"))
    yahoo_trace(*made, force=True)
    assert sorted(path.name for path in (tmp_path / "a:b").iterdir()) == ["events", "refused", "trace.json"]
    assert [row.y for row in events(spark, tmp_path / "a:b").sort("seq").collect()] == [1.0]
