"""`hullcast sim trace`: what it writes, what it says of it, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hullcast.clients.cli import main as cli
from hullcast.sim.traces import yahoo
from hullcast.sim.traces.trace import TraceInfo, read_info

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
def test_a_trace_without_an_event_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prices, stocks = write_input(tmp_path)
    nothing = TraceInfo("yahoo", refused={"EPS not positive": 6})
    monkeypatch.setattr(yahoo, "yahoo_trace", lambda *_, **__: nothing)
    words = " ".join(run(capsys, "yahoo", prices, stocks, "--out", tmp_path / "trace", code=1).split())
    assert "events 0" in words
    assert "EPS not positive 6" in words


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
        (("table51", "--ignorable", "0.9", "--inserts", "0.2"), "shares"),
        (("market", "--csv", __file__), "cannot write CSV files to"),
    ],
)
def test_wrong_input_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert message in run(capsys, *words, "--out", tmp_path, code=2)


@pytest.mark.parametrize("text", ["yesterday", "20150401", "2015-02-30"])
def test_a_date_is_a_date(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit):
        cli.main(["sim", "trace", "yahoo", "p", "f", "--out", "o", "--from", text])
    assert f"{text!r} is not a date; write it as 2015-04-01" in capsys.readouterr().err


def test_only_what_a_simulation_needs_must_be_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hullcast.clients.cli.commands.sim.find_spec", lambda name: None if name == "pyspark" else name)
    run(capsys, "table51", "--rows", "5", "--updates", "0", "--inserts", "0.1", "--out", tmp_path, code=1)
    assert "sim trace market needs pyspark" in run(capsys, "market", "--out", tmp_path / "other", code=2)
