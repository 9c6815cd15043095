"""Columns by the names that people give them, symbols by the names of files, dates by their forms."""

from __future__ import annotations

import datetime
import gzip
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.wire.errors import UsageError
from hullcast.sim.traces.columns import HEAD_BYTES, NAMES, CsvReading, find, plain, reading_of
from hullcast.sim.traces.dates import asked_date, date_of, day_of, order_of
from hullcast.sim.traces.fundamentals import read_fundamentals
from hullcast.sim.traces.prices import check_prices, read_prices, symbol_of
from hullcast.sim.traces.yahoo import yahoo_trace
from tests.support.shared_data import shared

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

OTHERS = ("high", "Low", "Volume", "Company", "<PER>", "Price/Earnings", "EPS growth this year", "52 Week Low", "")
#: As it stands in files that many people have.
WRITTEN = {
    "SYMBOL": ("symbol", "Ticker", "<TICKER>", "tic", "Stock Symbol"),
    "DATE": ("Date", "<DATE>", "timestamp", "Datetime", "day", "TradeDate", "Trade Date"),
    "OPEN": ("open", "<OPEN>", "1. open", "Open Price", "OPENING_PRICE"),
    "CLOSE": ("Close", "<CLOSE>", "4. close", "Close/Last", "closing price"),
    "EPS": ("EPS", "EPS (ttm)", "Earnings/Share", "earnings per share", "eps_diluted", "Basic EPS", "trailingEps"),
    "RECO": ("RECO", "Analyst Recom", "recommendation", "Mean Recommendation", "recommendationMean", "MEANREC"),
}


@st.composite
def headers(draw: st.DrawFn) -> tuple[list[str], dict[str, int]]:
    """A header with every column once, in any order and case, with spaces and signs; and where each is."""
    names = {key: draw(st.sampled_from(those)) for key, those in WRITTEN.items()}
    cells: list[tuple[str, str]] = list(names.items())
    cells += [("", name) for name in draw(st.lists(st.sampled_from(OTHERS), unique=True))]
    cells = draw(st.permutations(cells))
    change = st.sampled_from((str, str.lower, str.upper, str.title, lambda text: f" {text} ", lambda text: f"[{text}]"))
    header = [name if name[:1].isdigit() else draw(change)(name) for _, name in cells]
    return header, {key: place for place, (key, _) in enumerate(cells) if key}


@given(headers())
def test_columns_are_found_in_any_order_and_case(made: tuple[list[str], dict[str, int]]) -> None:
    header, places = made
    assert {key: find(header, key, "f.csv") for key in NAMES} == places


@given(headers(), st.sampled_from(sorted(NAMES)), st.data())
def test_a_column_that_the_user_names_is_taken(
    made: tuple[list[str], dict[str, int]], key: str, data: st.DataObject
) -> None:
    header, _ = made
    place = data.draw(st.sampled_from([place for place, name in enumerate(header) if name.strip()]))
    reading = reading_of([f"{key.lower()} = {header[place].strip()}"])
    same = [other for other, name in enumerate(header) if plain(name) == plain(header[place])]
    assert len(same) == 1
    assert find(header, key, "f.csv", reading) == place


def test_no_name_stands_for_two_columns() -> None:
    names = [name for tiers in NAMES.values() for tier in tiers for name in tier]
    assert len(names) == len(set(names))
    assert all(plain(name) == name for name in names)


@pytest.mark.parametrize(
    ("header", "key", "columns", "message"),
    [
        ("Symbol,eps_basic,eps_diluted", "EPS", [], r'2 columns for EPS \(eps_basic, eps_diluted\); .*"eps_basic"'),
        (
            "Symbol,My EPS of 2012,x",
            "EPS",
            [],
            r'no column for EPS; .* --column EPS="My EPS of 2012"; columns: Symbol, My',
        ),
        ("Symbol,Profit", "EPS", ["EPS=Gain"], "f.csv: no column 'Gain', which --column EPS names; .*: Symbol, Profit"),
        ("Date,Date,Open", "DATE", [], "2 columns for DATE, all named Date; give them different names"),
        (",".join(f"column number {n}" for n in range(500)), "EPS", [], "column number 3, .* \\.\\.$"),
    ],
)
def test_what_is_not_clear_is_refused_with_the_way_out(header: str, key: str, columns: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find(header.split(","), key, "f.csv", reading_of(columns))


@pytest.mark.parametrize(
    ("text", "message"),
    [("EPS", "write --column NAME=COLUMN"), ("EPS=", "write --column"), ("PER=x", "one of SYMBOL, DATE, OPEN")],
)
def test_a_wrong_word_about_columns_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        reading_of([text])


def test_a_name_is_a_symbol_only_where_it_holds_symbols() -> None:
    header = ["date", "Name", "close"]
    assert find(header, "SYMBOL", "f", rows=[["2015-04-01", "AAL", "1"], ["2015-04-02", "BRK.B", "2"]]) == 1
    for rows in ([["", "American Airlines", ""]], [["", "AAL", ""], ["", "Apple", ""]], [["", "", ""]], []):
        with pytest.raises(UsageError, match="no column for SYMBOL"):
            find(header, "SYMBOL", "f", rows=rows)
    assert find([*header, "Symbol"], "SYMBOL", "f", rows=[["", "AAL", "", "AAL"]]) == 3


def test_constituents_have_a_symbol_and_a_company(tmp_path: Path) -> None:
    """As the list of the S&P 500's companies that many have; it has no recommendations, so they are another column."""
    path = tmp_path / "constituents-financials.csv"
    path.write_text(
        "Symbol,Name,Sector,Price,Price/Earnings,Dividend Yield,Earnings/Share,52 Week Low,SEC Filings,Rating\n"
        "MMM,3M Company,Industrials,222.89,24.31,2.33,7.92,259.77,http://x,2.1\n"
    )
    with pytest.raises(UsageError, match=r"no column for RECO; .*columns: Symbol, Name, .*Earnings/Share, .*, Rating"):
        read_fundamentals(path)
    stocks = read_fundamentals(path, reading_of(["reco=Rating"]))
    assert (stocks.symbols, stocks.eps.tolist(), stocks.reco.tolist()) == (("MMM",), [7.92], [2.1])


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        *(("AAL.csv", "AAL"), ("AAL.CSV", "AAL"), ("AAL.csv.gz", "AAL"), ("BRK.B.csv", "BRK.B"), ("A_B.csv", "A_B")),
        *(("AAL_data.csv", "AAL"), ("AAL_2006-01-01_to_2018-01-01.csv", "AAL"), ("AAL_20060101_20180101.csv", "AAL")),
        *(("aal.us.txt", "AAL"), ("brk-b.us.txt", "BRK-B"), ("aal.csv", "aal"), ("daily_adjusted_AAL.csv", "AAL")),
        *(("AAL_daily.csv", "AAL"), ("DATA.csv", "DATA"), ("^GSPC.csv", "^GSPC"), ("US.csv", "US")),
    ],
)
def test_the_name_of_a_file_says_its_symbol(name: str, symbol: str) -> None:
    assert symbol_of(name) == symbol


FORMS = {
    "one": ("AAL_data.csv", "date,open,high,low,close,volume,Name\n2015-04-01,10,12,9,11,7,AAL\n"),
    "two": ("aal.us.txt", "<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>\nAAL.US,D,20150401,0,10,12,9,11\n"),
    "three": ("AAL_2006-01-01_to_2018-01-01.csv", "Date,Open,Close,Name\n2015-04-01,10,11,American Airlines\n"),
    "four": ("AAL.csv", "Date,Close/Last,Volume,Open\n04/01/2015,11,7,10\n04/13/2015,,,\n"),
    "five": ("daily_AAL.csv", "timestamp,1. open,4. close,5. adjusted close\n2015-04-01T09:30:00-04:00,10,11,9\n"),
    "six": ("all.txt", "tic;x,datadate,Adj. Open,Adj. Close,tic\nx,2015/4/1,10,11,AAL\n"),
    "seven": ("aal.us.txt", "Date,Open,High,Low,Close,Volume,OpenInt\n2015-04-01,10,12,9,11,1,0\n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_prices_are_read_as_people_have_them(spark: SparkSession, tmp_path: Path, form: str) -> None:
    name, content = FORMS[form]
    (tmp_path / name).write_text(content)
    place = tmp_path / name if form == "six" else tmp_path
    prices, unread = read_prices(spark, place)
    found = prices.select("symbol", "day", "open", "close").where("open IS NOT NULL").collect()
    assert [tuple(row) for row in found] == [("AAL", datetime.date(2015, 4, 1), "10", "11")]
    assert unread == {}


def test_one_long_file_of_names_makes_a_trace(spark: SparkSession, tmp_path: Path) -> None:
    """As the prices of all stocks of the S&P 500 over five years that many have, and a screener's export."""
    rows = [f"2013-02-{day:02d},15,16,14,15.{day},100,{name}" for name in ("AAL", "BRK.B") for day in range(8, 13)]
    (tmp_path / "all_stocks_5yr.csv").write_text("\n".join(["date,open,high,low,close,volume,Name", *rows]) + "\n")
    (tmp_path / "f.csv").write_text(
        "Ticker,Company,EPS (ttm),Analyst Recom\nAAL,American,2,2.3\nBRK.B,Berkshire,3,1.9\n"
    )
    info = yahoo_trace(spark, tmp_path / "all_stocks_5yr.csv", tmp_path / "f.csv", tmp_path / "trace")
    assert (info.events, info.refused, info.notes["stocks"]) == (20, {}, 2)


def test_an_adjusted_close_beside_an_unadjusted_open_is_not_taken_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "A.csv"
    path.write_text("Date,Open,Adj Close\n2015-04-01,10,11\n")
    with pytest.raises(
        UsageError, match=r'no column for CLOSE beside Adj Close, .* --column CLOSE="Adj Close" uses it'
    ):
        check_prices(path)
    assert next(iter(check_prices(path, reading_of(["CLOSE=Adj Close"])).by_layout)).close == 2


@pytest.mark.parametrize("order", ["mdy", "dmy"])
def test_dates_are_read_in_python_and_in_spark_alike(spark: SparkSession, order: str) -> None:
    texts = [
        *("2015-04-01", "2015-4-1", "20150401", "2015/04/01", "2015.04.01", "04/01/2015", "4/1/2015", "01.04.2015"),
        *("2015-04-01T09:30:00Z", "2015-04-01 00:00:00-04:00", "20150401 1600", "13/04/2015", "04/13/2015", "4/1/15"),
        *("2015-04/01", "2015-02-30", "31/02/2015", "150401", "1427846400", "April 1, 2015", "", "0000-00-00", "2015"),
    ]
    frame = spark.createDataFrame([(text,) for text in texts], "text STRING")
    for told in ("", order):
        found = {row.text: row.day for row in frame.select("text", day_of(frame.text, told).alias("day")).collect()}
        assert found == {text: date_of(text, told) for text in texts}
        assert all(found[text] == datetime.date(2015, 4, 1) for text in texts[:5])
    assert date_of("04/01/2015", order) == datetime.date(2015, *((4, 1) if order == "mdy" else (1, 4)))
    assert date_of("04/01/2015") is None


@given(st.lists(st.dates(datetime.date(1990, 1, 1), datetime.date(2030, 1, 1)), min_size=1), st.booleans())
def test_days_after_the_12th_show_the_order(days: list[datetime.date], month_first: bool) -> None:
    texts = [day.strftime("%m/%d/%Y" if month_first else "%d/%m/%Y") for day in days]
    if all(day.day <= 12 for day in days):
        with pytest.raises(UsageError, match=r"not clear whether the month or the day comes first .* --dates mdy"):
            order_of(texts, "f.csv")
    else:
        order = order_of(texts, "f.csv")
        assert [date_of(text, order) for text in texts] == days


def test_odd_dates_among_clear_ones_decide_nothing() -> None:
    assert order_of(["2015-04-01", "2015-04-02", "13/04/2015"], "f") == ""
    with pytest.raises(UsageError, match="some dates have the month first and some the day"):
        order_of(["13/04/2015", "04/13/2015"], "f")


def test_a_date_that_is_asked_for_is_clear() -> None:
    day = datetime.date(2015, 4, 13)
    for text in ("2015-04-13", "20150413", "4/13/2015", "13.4.2015", "2015-04-13T00:00Z"):
        assert asked_date(text) == day
    assert asked_date("04/05/2015", "dmy") == datetime.date(2015, 5, 4)
    with pytest.raises(UsageError, match="04/05/2015 can be read in two ways; write it as 2015-04-01"):
        asked_date("04/05/2015")
    for text in ("yesterday", "2015-02-30", "150401"):
        with pytest.raises(UsageError, match="is not a date; write it as 2015-04-01"):
            asked_date(text)
    with pytest.raises(UsageError, match="is not a date with --dates mdy"):
        asked_date("13/04/2015", "mdy")


def test_folders_of_folders_are_refused_with_those_that_have_prices(tmp_path: Path) -> None:
    for name in ("nasdaq", "nyse", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "nasdaq" / "aal.us.txt").write_text("Date,Open,Close\n")
    (tmp_path / "nyse" / "A.csv").write_text("Date,Open,Close\n")
    with pytest.raises(UsageError, match=r"but in 2 folders below it \(nasdaq, nyse\); give one of them"):
        check_prices(tmp_path)
    with pytest.raises(UsageError, match=r"file in this folder$"):
        check_prices(tmp_path / "notes")


def test_a_thousand_headers_are_looked_at_and_the_wrong_ones_counted(tmp_path: Path) -> None:
    rows = "".join(f"2015-{1 + n % 12:02d}-{1 + n % 28:02d},1,2\n" for n in range(1_000))
    for n in range(1_000):
        (tmp_path / f"S{n}_data.csv").write_text("Date,Open,Close\n" + rows)
    whole = gzip.compress(("Date,Open,Close\n" + 100 * rows).encode())
    (tmp_path / "CUT.csv.gz").write_bytes(whole[: len(whole) // 2])  # the first lines are enough
    checked = check_prices(tmp_path)
    assert sum(map(len, checked.by_layout.values())) == 1_001
    for n in (3, 7):
        (tmp_path / f"S{n}_data.csv").write_text("Date,Open\n")
    with pytest.raises(UsageError, match=r"S3_data\.csv: no column for CLOSE; .*Date, Open \(2 of 1001 files"):
        check_prices(tmp_path)


def test_files_in_another_storage_are_checked_and_read_there(spark: SparkSession, tmp_path: Path) -> None:
    """Through Hadoop's own file systems: viewfs shows a folder of this machine under another name."""
    configuration: Any = cast("Any", spark.sparkContext._jsc).sc().hadoopConfiguration()
    configuration.set("fs.viewfs.mounttable.away.link./data", f"file://{tmp_path}")
    (tmp_path / "prices").mkdir()
    days = "".join(f"04/{day:02d}/2015,10,11\n" for day in range(1, 31))
    packed = gzip.compress(("Date,Open,Close\n" + 1_000 * days).encode(), 0)
    assert len(packed) > 2 * HEAD_BYTES, "only the first part is fetched to see the header"
    (tmp_path / "prices" / "AAL_data.csv.gz").write_bytes(packed)
    (tmp_path / "prices" / "B.csv").write_text("Date,Open,Close\n04/13/2015,5,6\n")
    (tmp_path / "f.csv").write_text("Name,Earnings/Share,RECO\nAAL,1,2\nB,1,2\n")
    place = "viewfs://away/data"
    info = yahoo_trace(spark, f"{place}/prices", f"{place}/f.csv", tmp_path / "trace")
    assert (info.events, info.notes["stocks"], info.source) == (62, 2, "prices, f.csv")
    (tmp_path / "prices" / "C.csv").write_text("Date,Open\n")
    with pytest.raises(UsageError, match=r"viewfs://away/data/prices/C.csv: no column for CLOSE"):
        check_prices(f"{place}/prices")
    with pytest.raises(UsageError, match=r"cannot read viewfs://away/data/gone.csv: "):
        read_fundamentals(f"{place}/gone.csv")


def test_a_symbol_s_column_may_be_named_for_each_file(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("Date,Open,Close,Code\n2015-04-01,1,2,A\n")
    (tmp_path / "f.csv").write_text("Key,EPS,RECO\nA,1,2\n")
    reading = reading_of(["SYMBOL=Code", "SYMBOL=Key"])
    assert next(iter(check_prices(tmp_path / "p.csv", reading).by_layout)).symbol == 3
    assert read_fundamentals(tmp_path / "f.csv", reading).symbols == ("A",)


def test_real_files_need_no_word_about_columns() -> None:
    stocks = read_fundamentals(shared("finviz_20130128.csv.gz"))
    assert (len(stocks), stocks.symbols[0], float(stocks.eps[0]), float(stocks.reco[0])) == (6_587, "A", 3.27, 1.6)
    with pytest.raises(UsageError, match=r"2 columns for EPS \(eps_basic, eps_diluted\)"):
        read_fundamentals(shared("pystock_reports_20150323_20170331.csv.gz"))
    checked = check_prices(shared("pystock_open_close_20150320_20170331.csv.gz"), CsvReading())
    assert checked.order == ""
