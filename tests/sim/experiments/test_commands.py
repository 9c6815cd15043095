"""The two commands: help without heavy imports, defaults, and settings from arguments."""

from __future__ import annotations

import argparse
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow has no types
import pytest
from rich.console import Console

from hullcast import sim
from hullcast.clients.cli.commands.sim import traffic
from hullcast.clients.cli.main import FAILED, INTERRUPTED, _parser, main
from hullcast.sim.experiments.steps import RunFolder
from hullcast.sim.experiments.traffic.settings import FULL, QUICK
from hullcast.sim.experiments.traffic.workload import TrafficFound
from hullcast.sim.overlay import PLACEMENTS
from hullcast.sim.spark.storage import Place
from hullcast.sim.traces.synthetic import table51_trace
from tests.sim.experiments.builders import a_line

if TYPE_CHECKING:
    from collections.abc import Callable


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    traffic.add_arguments(parser)
    return parser.parse_args(words)


def _error(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that says what is wrong; before it there may be progress, if the machine is slow."""
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("hullcast: ") for line in lines] == [False] * (len(lines) - 1) + [True]
    assert all(re.search(r", \d+ s$", line) for line in lines[:-1])
    return lines[-1]


def test_help_needs_neither_numba_nor_spark() -> None:
    program = "import sys; from hullcast.clients.cli.commands.sim import traffic, figures; import argparse\n"
    program += "for m in (traffic, figures): p = argparse.ArgumentParser(); m.add_arguments(p); p.format_help()\n"
    program += "print([n for n in ('numba', 'pyspark', 'pandas', 'matplotlib', 'scipy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_sizes_are_the_thesis_s_unless_quick_or_given() -> None:
    full, quick = traffic.settings_of(parsed()), traffic.settings_of(parsed("--quick", "--brokers", "9"))
    assert (full.subscriptions, full.network) == (500_000, FULL.network)
    assert (quick.subscriptions, quick.network.nodes, quick.network.brokers) == (50_000, QUICK.network.nodes, 9)


def test_greedy_entry_is_the_can_s_own() -> None:
    settings = traffic.settings_of(parsed("--entry", "greedy", "--placement", "can", "--placement", "tree-random"))
    assert settings.placements == ("can-greedy", "tree-random")
    assert traffic.settings_of(parsed()).placements == PLACEMENTS


def test_a_trace_may_follow_a_placement() -> None:
    arguments = parsed("--placement", "can", "trace")
    assert (arguments.placement, arguments.trace) == (["can"], Place(Path("trace")))


def test_the_summary_fits_a_terminal_of_80_columns() -> None:
    """At the largest figures of the full size, and more."""
    approaches = ("S-CN", "S-UN", "S-UN aggregated", "CN")
    lines = [
        a_line(500_000, placement, approach, 123_456.0, stress=99_999)
        for placement in (*PLACEMENTS, "can-greedy")
        for approach in approaches
    ]
    out = io.StringIO()
    traffic.show(
        TrafficFound(lines, Place(Path("out/events")), Place(Path("out/summary.md")), []), Console(file=out, width=80)
    )
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text, "no cell is cut"
    assert text.count("S-UN aggregated") == 2 * 5
    assert "S-CN is the way of Hullcast." in text
    assert text.count("tree-nearest") == 2, "the name of a placement stands once in each table"
    assert text.count("370,368") == 20, "bytes x links"
    assert text.count("99,999") == 3 * 20


def test_what_cannot_be_run_is_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pieces, whole, out = tmp_path / "pieces.txt", tmp_path / "whole.txt", tmp_path / "out"
    pieces.write_text("0 1\n2 3\n")
    whole.write_text("0 1\n1 2\n")
    prices, stocks = tmp_path / "p.csv", tmp_path / "f.csv"
    prices.write_text("symbol,date,open\nA,2015-04-01,1\n")
    stocks.write_text("symbol,EPS,RECO\nA,1,2\n")
    refused = {
        "traffic --topology reads a network": ("traffic", "--topology", str(whole), "--nodes", "50"),
        "--read FILE --largest --out FILE": ("traffic", "--topology", str(pieces)),
        "whole has 3 nodes, so it can have 1 to 3 brokers": ("traffic", "--topology", str(whole), "--brokers", "4"),
        "line 1: it has no column 3": ("traffic", "--topology", str(whole), "--columns", "1,3"),
        "--columns needs the file of a network": ("traffic", "--columns", "1,3"),
        "99,999,999,999 subscriptions are more": ("traffic", "--subscriptions", "99999999999"),
        "'nonsense' is not a Spark master": ("traffic", "--nodes", "20", "--brokers", "3", "--master", "nonsense"),
        "control needs a real network; give one with --topology FILE, or --data DIR": ("figures", "--only", "control"),
        "no column for CLOSE": ("figures", "--prices", str(prices), "--fundamentals", str(stocks), "--only", "5.10"),
        "no column for EPS": ("figures", "--prices", str(prices), "--fundamentals", str(prices), "--only", "stress"),
        "give both --prices and --fundamentals": ("figures", "--prices", str(prices)),
        "--days is about real prices": ("figures", "--days", "3"),
        "--from is about real prices": ("figures", "--from", "2015-04-01", "--topology", str(whole)),
        "give either it or your own files": ("figures", "--data", str(tmp_path), "--topology", str(whole)),
        "not found; leave out --data": ("figures", "--data", str(tmp_path)),
        "figures whole has 3 nodes, so it can have": ("figures", "--topology", str(whole), "--only", "control"),
        "figures line 1: it has no column 9": ("figures", "--topology", str(whole), "--columns", "1,9"),
        "figures --columns needs the file of a network": ("figures", "--columns", "1,9"),
        "no section '5.5'; sections: 5.2, 5.6, 5.3, 5.7": ("figures", "--only", "5.5"),
    }
    for told, words in refused.items():
        assert main(["sim", *words, "--out", str(out)]) == FAILED
        error = _error(capsys)
        assert told.removeprefix("traffic ").removeprefix("figures ") in error
        assert not out.exists(), "so that the right command can have it"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda events, file: file.write_bytes(file.read_bytes()[:-20]), "cannot read"),
        (lambda events, file: shutil.rmtree(events), "00000.parquet is missing"),
        (lambda events, file: pq.write_table(pq.read_table(file).drop_columns("y"), file), "has no column y"),
    ],
)
def test_a_damaged_trace_is_told_in_a_line_and_nothing_is_left(
    damage: Callable[[Path, Path], object], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, out = tmp_path / "trace", tmp_path / "out"
    table51_trace(trace, rows=5, updates=10, root=1)
    damage(trace / "events", trace / "events" / "00001.parquet")
    assert main(["sim", "traffic", str(trace), "--out", str(out)]) == FAILED
    error = _error(capsys)
    assert told in error
    assert not out.exists()


@pytest.mark.parametrize(("finished", "told"), [(True, "with --resume to continue"), (False, "nothing is left")])
def test_an_interrupt_is_told_in_a_line(
    finished: bool, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(settings: object, out: Path, *_: object, **__: object) -> None:
        with RunFolder(out, {}, resume=False) as folder:
            if finished:
                folder.step("one", {}, lambda path: None)
            raise KeyboardInterrupt

    monkeypatch.setattr("hullcast.sim.experiments.traffic.workload.run_traffic", interrupted)
    assert main(["sim", "traffic", "--out", str(tmp_path / "out")]) == INTERRUPTED
    error = _error(capsys)
    assert told in error


def test_every_command_in_the_document_is_understood() -> None:
    text = (Path(sim.__path__[0]) / "SIMULATION.md").read_text()
    commands = re.findall(r"^    hullcast (sim .*?)(?:\s+#.*)?$", text, re.MULTILINE)
    assert len(commands) >= 7
    for command in commands:
        words = shlex.split(command)
        parser, _ = _parser(words)
        parser.parse_args(words)
