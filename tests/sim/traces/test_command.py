"""`hullcast sim trace`: what it writes, what it says of it, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hullcast.clients.cli import main as cli
from hullcast.sim.traces.trace import read_info

if TYPE_CHECKING:
    from pathlib import Path


def run(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    got = cli.main(["sim", "trace", *map(str, words)])
    captured = capsys.readouterr()
    assert got == code, captured.err
    return captured.err if code == 2 else captured.out


def write_input(folder: Path) -> tuple[Path, Path]:
    (folder / "prices").mkdir()
    (folder / "prices" / "A.csv").write_text("Date,Open,Close\n2015-04-01,10,11\n2015-04-02,-,12\n2015-04-06,30,31\n")
    (folder / "prices" / "B.csv").write_text("Date,Open,Close\n2015-04-01,10,11\n")
    (folder / "stocks.csv").write_text("symbol,EPS,RECO\nA,2,2.5\n")
    return folder / "prices", folder / "stocks.csv"


def stocks_as_prices(folder: Path) -> Path:
    (folder / "wrong.csv").write_text("date,open\n")
    return folder / "wrong.csv"


@pytest.mark.usefixtures("spark")  # which the command then uses
def test_a_trace_of_prices_is_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices, stocks = write_input(tmp_path)
    out = tmp_path / "trace"
    words = " ".join(run(capsys, "yahoo", prices, stocks, "--out", out, "--classify").split())
    for part in (
        *("trace yahoo: prices, stocks.csv", "events 4", "prices refused 4", "unknown symbol 2", "split-like jump 1"),
        *("price missing or unreadable 1", "not ignorable 4 (100.0%)", "last day 2015-04-06", f"written: {out}"),
    ):
        assert part in words
    forced = ("--out", out, "--force")
    assert "not empty" in run(capsys, "yahoo", prices, stocks, "--out", out, code=2)
    assert "no column for CLOSE" in run(capsys, "yahoo", stocks_as_prices(tmp_path), stocks, *forced, code=2)
    assert read_info(out).events == 4  # a wrong call costs nobody the trace that is there
    again = ("--from", "2015-04-02", "--days", "1", "--spread-reco", "0.01", "--seed", "3", "--force", "--json")
    told: dict[str, Any] = json.loads(run(capsys, "yahoo", prices, stocks, "--out", out, *again))
    assert (told["events"], told["refused"]) == (1, {"price missing or unreadable": 1})
    assert told["notes"]["RECO spread by"] == 0.01
    assert read_info(out).events == 1


@pytest.mark.usefixtures("spark")
def test_a_trace_without_an_event_is_no_success_and_shows_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.csv").write_text(
        "Date,Open,Close,Ticker\n2015-04-01,$10,11,A.N\n2015-04-02,$10,11,B\nApril 1,1,2,A\n"
    )
    (tmp_path / "f.csv").write_text("symbol,EPS,RECO\nA,2,2.5\nB,-1,2\n")
    given = ("yahoo", tmp_path / "p.csv", tmp_path / "f.csv", "--out", tmp_path / "trace")
    words = " ".join(run(capsys, *given, code=1).split())
    for part in (
        *("events 0", "EPS not positive 2", "unknown symbol 2", "Most prices are refused, such as these"),
        "date missing or unreadable: file 'p.csv', symbol 'A', date 'April 1', open '1'",
        "unknown symbol: file 'p.csv', symbol 'A.N', date '2015-04-01', open '$10' unknown symbol: file",
        "EPS not positive: file 'p.csv', symbol 'B', date '2015-04-02', close '11'",
    ):
        assert part in words
    told = json.loads(run(capsys, *given, "--force", "--json", code=1))
    assert len(told["notes"]["first refused"]) == 6
    assert told["notes"]["first refused"][0] == {
        "reason": "date missing or unreadable",
        "file": "p.csv",
        "symbol": "A",
        "date": "April 1",
        "open": "1",
    }
    (tmp_path / "p.csv").write_text("Date,Open,Close,Ticker\n2015-04-01,1,1,A\n2015-04-02,1,,A\n")
    assert "first refused" not in json.loads(run(capsys, *given, "--force", "--json"))["notes"]


@pytest.mark.usefixtures("spark")
def test_columns_and_dates_are_told_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.csv").write_text("When,Open,Last,Code\n04/01/2015,10,11,A\n04/02/2015,10,11,A\n05/03/2015,9,9,A\n")
    (tmp_path / "f.csv").write_text("symbol,EPS,Stars\nA,2,2.5\n")
    given = ("yahoo", tmp_path / "p.csv", tmp_path / "f.csv", "--out", tmp_path / "trace", "--json")
    named = ("--column", "RECO=Stars", "--column", "date=When", "--column", "CLOSE=Last", "--column", "SYMBOL=Code")
    assert "f.csv: no column for RECO" in run(capsys, *given, code=2)
    assert "p.csv: no column for DATE" in run(capsys, *given, "--column", "RECO=Stars", code=2)
    assert "say --dates mdy or --dates dmy" in run(capsys, *given, *named, code=2)
    words = (*given, *named, "--dates", "mdy", "--from", "04/02/2015")
    told = json.loads(run(capsys, *words))
    assert (told["events"], told["notes"]["first day"], told["notes"]["last day"]) == (4, "2015-04-02", "2015-05-03")


@pytest.mark.usefixtures("spark")
def test_a_market_is_made_with_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("market", "--stocks", "5", "--days", "2", "--out", tmp_path / "t", "--csv", tmp_path / "csv", "--json")
    told = json.loads(run(capsys, *words))
    assert told["events"] == told["notes"]["prices"] > 10
    assert len(list((tmp_path / "csv" / "prices").iterdir())) == 5


def test_the_synthetic_workload_needs_no_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shares = ("--ignorable", "0.5", "--spikes", "0", "--inserts", "0.1", "--deletes", "0.1", "--step", "100")
    text = run(capsys, "table51", "--rows", "200", "--updates", "1_000", *shares, "--out", tmp_path, "--classify")
    words = " ".join(text.split())
    assert "events 1,000 rows at the start 200" in words
    assert "mix ignorable 0.5, inserts 0.1, deletes 0.1, step 100" in words
    share = float(words.split("not ignorable ")[1].split("(")[1].split("%")[0])
    assert share == pytest.approx(50, abs=6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("yahoo", "gone", "gone.csv"), "cannot read gone"),
        (("yahoo", "PRICES", "STOCKS", "--from", "yesterday"), "'yesterday' is not a date; write it as 2015-04-01"),
        (("yahoo", "PRICES", "STOCKS", "--from", "04/01/2015"), "can be read in two ways"),
        (("yahoo", "PRICES", "gone.csv"), "cannot read gone.csv"),
        (("yahoo", "STOCKS", "STOCKS"), "stocks.csv: no column for DATE; say which it is with --column DATE="),
        (("yahoo", "PRICES", "PRICES/A.csv"), "A.csv: no column for SYMBOL"),
        (("yahoo", "PRICES", "STOCKS", "--column", "EPS"), "write --column NAME=COLUMN"),
        (("yahoo", "PRICES", "STOCKS", "--column", "symbol=Code"), "has a column 'Code', which --column SYMBOL names"),
        (("table51", "--ignorable", "0.9", "--inserts", "0.2"), "shares"),
        (("market", "--csv", __file__), "cannot write CSV files to"),
    ],
)
def test_wrong_input_is_told_before_spark_starts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("hullcast.sim.spark.session.spark_session", started)
    prices, stocks = map(str, write_input(tmp_path))
    given = [word.replace("PRICES", prices).replace("STOCKS", stocks) for word in words]
    assert message in run(capsys, *given, "--out", tmp_path / "out", code=2)


def test_only_what_a_simulation_needs_must_be_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hullcast.clients.cli.commands.sim.find_spec", lambda name: None if name == "pyspark" else name)
    run(capsys, "table51", "--rows", "5", "--updates", "0", "--inserts", "0.1", "--out", tmp_path, code=1)
    assert "sim trace market needs pyspark" in run(capsys, "market", "--out", tmp_path / "other", code=2)
