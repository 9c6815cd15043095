"""What simulations print fits a terminal of 80 columns; only paths, which are there to be copied, may be longer."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from hullcast.clients.cli.commands.sim import SIMULATIONS, figures, traffic
from hullcast.clients.cli.main import main
from hullcast.sim.experiments.figures import FiguresFound
from hullcast.sim.experiments.sweeping import StudyFound
from hullcast.sim.experiments.traffic.goals import goals
from hullcast.sim.experiments.traffic.workload import TrafficFound
from hullcast.sim.output.claims import Claim, Section, over_draws
from hullcast.sim.spark.storage import Place
from tests.sim.experiments.builders import a_line, lines_of

WIDTH = 80
FAR = Place(Path("/very/long") / ("name" * 20)) / "report.md"


def check(text: str) -> None:
    assert text.strip()
    for line in text.splitlines():
        path = line.startswith(("report: ", "written: "))
        assert path or len(line.rstrip()) <= WIDTH, f"{len(line)} columns:\n{line}"
        assert "\N{HORIZONTAL ELLIPSIS}" not in line, f"cut off:\n{line}"


def shown(show: object, found: object) -> str:
    text = StringIO()
    show(found, Console(file=text, width=WIDTH))  # type: ignore[operator]  # one of the functions below
    return text.getvalue()


def a_section() -> Section:
    draws = [[Claim(f"tree-{i}", "it is small", "1x", holds=i + draw < 4) for i in range(4)] for draw in range(3)]
    title = (
        "Figure 5.10: traffic by the number of subscriptions; workloads: calibrated market; real prices, RECO to 0.1"
    )
    return Section("x", title, "A workload.", "It is so.", over_draws(draws))


def test_figures_and_studies() -> None:
    curves = {"S-CN": [500.0, 900], "CN": [900.0, 900], "S-UN": [2_000.0, 9_000]}
    lines = [
        line
        for placement in ("can", "tree-content")
        for line in lines_of(curves, [100.0, 500.0], placement, stress=12, brokers=1_000)
    ]
    for found in (
        FiguresFound([a_section()], goals(lines), FAR, ["one"]),
        StudyFound([a_section()], FAR, ["one", "two"]),
    ):
        text = shown(figures.show, found)
        check(text)
        assert f"report: {FAR}\n" in text, "in one piece, to be copied"


def test_traffic() -> None:
    names = ("can-greedy", "tree-content", "tree-nearest")
    lines = [
        a_line(500_000, name, approach, 12_345_678.9, stress=123_456, events=338_415)
        for name in names
        for approach in ("S-CN", "S-UN", "S-UN aggregated", "CN")
    ]
    check(shown(traffic.show, TrafficFound(lines, FAR, FAR, [])))


def test_topology_and_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    mixed = ("--ignorable", "0.2", "--inserts", "0.1", "--deletes", "0.1", "--step", "123.5")
    for words in (
        ("topology", "--nodes", "300", "--brokers", "20"),
        ("trace", "table51", "--rows", "50", "--updates", "100", *mixed, "--out", str(tmp_path / "trace")),
    ):
        assert main(["sim", *words]) == 0
        check(capsys.readouterr().out)


@pytest.mark.parametrize("name", [name for name, _, _ in SIMULATIONS])
def test_help(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    with pytest.raises(SystemExit):
        main(["sim", name, "--help"])
    check(capsys.readouterr().out)
