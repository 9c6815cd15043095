"""The frame of all benchmarks, with a toy one: what follows from a declaration, and when goals are not judged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from hullcast.clients.cli import main as cli
from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.catalogue import BENCHMARKS
from hullcast.sim.bench.frame.benchmark import Benchmark, BenchOption, BenchReport, BenchSection, Shown, Tick
from hullcast.sim.bench.frame.charts import Bars, draw_bars
from hullcast.sim.bench.frame.machine import cpu_s, others_cores
from hullcast.sim.bench.frame.report import draw, to_json, write_page
from hullcast.sim.bench.frame.timing import MeasurementFailed, in_turns, medians
from hullcast.sim.output.claims import Claim
from hullcast.sim.output.goals import Goal
from hullcast.sim.output.text import plain_table
from tests.sim.bench.reports import shown


@dataclass(frozen=True)
class ToyPart:
    seed: int = 0


@dataclass(frozen=True)
class ToySettings:
    sizes: tuple[int, ...] = (1, 2, 3)
    part: ToyPart = field(default_factory=ToyPart)
    seed: int = 0


@dataclass(frozen=True)
class ToyFigures:
    doubled: tuple[int, ...]


async def doubled(settings: ToySettings, tick: Tick) -> ToyFigures:
    for size in settings.sizes:
        tick(f"doubling {size}")
    return ToyFigures(tuple(2 * size for size in settings.sizes))


def tables(found: ToyFigures) -> Iterator[Shown]:
    table = plain_table("doubles", "", "of <b>", "verdict")
    for size in found.doubled:
        table.add_row(f"{size}", "[red]no[/]", "")
    yield table
    yield "a remark"


def goals(found: ToyFigures) -> Iterator[Goal | Claim]:
    yield Goal("fast", "< 1 s", "0.5 s", 2.0)
    yield Goal.fact("right", "all", "all", holds=True)
    yield Claim("", "it doubles", "2x", holds=True, item="1", paper="2x")


def picture(found: ToyFigures, path: Path) -> Path:
    return draw_bars(path, "doubles", ["a", "b"], [Bars("x", [1.0, float("nan")], goal=3.0)])


TOY = Benchmark(
    name="toy",
    about="doubles numbers",
    description="Doubles numbers.",
    quick_about="one number",
    full=ToySettings(),
    quick=ToySettings(sizes=(1,)),
    options=(BenchOption("sizes", "what is doubled", many=True),),
    sections=(
        BenchSection("first", "doubles", doubled, tables, goals, {"toy": picture}, lambda s: len(s.sizes)),
        BenchSection("second", "doubles again", doubled, tables, steps=lambda s: len(s.sizes)),
    ),
)


def busy(cores: float, monkeypatch: pytest.MonkeyPatch) -> BenchReport:
    monkeypatch.setattr("hullcast.sim.bench.frame.benchmark.others_cores", lambda seconds: cores)
    return TOY.measure(TOY.quick, look_s=1.0)


def test_a_seed_reaches_all_parts_of_the_settings_and_options_change_them() -> None:
    settings = TOY.settings(quick=True, seed=7, sizes=(5, 6))
    assert settings == ToySettings((5, 6), ToyPart(7), 7)
    assert TOY.settings(sizes=None) == TOY.full


def test_sections_that_are_asked_for_are_measured_and_counted() -> None:
    ticks: list[str] = []
    report = TOY.measure(TOY.full, ["second"], ticks.append, look_s=0)
    assert list(report.found) == ["second"]
    assert len(ticks) == TOY.steps(TOY.full, ["second"]) == 3
    assert to_json(report)["first"] is None
    assert to_json(report)["second"] == {"doubled": (2, 4, 6)}
    with pytest.raises(UsageError, match="no section 'third'; sections: first, second"):
        TOY.measure(TOY.full, ["third"])


def test_on_a_busy_machine_times_are_shown_and_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    report = busy(0.7, monkeypatch)
    assert report.machine["others_cores"] == 0.7
    fast, right = to_json(report)["goals"]
    assert (fast["passed"], fast["measured"], right["passed"]) == (None, "0.5 s", True)
    text = shown(report)
    assert "not judged: other programs used 0.7 cores" in text
    assert "PASS" in text  # a fact holds on any machine
    assert "AS THERE" not in text
    quiet = busy(0.1, monkeypatch)
    assert "not judged" not in shown(quiet)
    assert [goal["passed"] for goal in to_json(quiet)["goals"]] == [True, True]


def test_of_a_benchmark_with_one_section_the_file_has_the_figures_themselves() -> None:
    one = Benchmark(
        name="one", about="", description="", quick_about="", full=ToySettings(), quick=ToySettings(),
        sections=TOY.sections[1:],
    )  # fmt: skip
    assert to_json(one.measure(one.full, look_s=0))["doubled"] == (2, 4, 6)


def test_the_page_holds_tables_remarks_verdicts_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = write_page([busy(0.5, monkeypatch)], {"other": "it needs <more>"}, tmp_path / "new" / "page.html")
    text = page.read_text(encoding="utf-8")
    for expected in (
        *("<h2 id='toy'>", "<caption>doubles</caption>", "of &lt;b&gt;", "<td class='red'>no</td>", "a remark"),
        *(
            "src='data:image/png;base64,",
            "not judged: other programs used 0.5 cores",
            "left out: it needs &lt;more&gt;",
            "1 of 1 goals reached, 1 not",
        ),
    ):
        assert expected in text
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]


def test_a_picture_that_cannot_be_drawn_costs_the_page_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(found: ToyFigures, path: Path) -> Path:
        raise KeyError("no <style>")

    faulty = replace(TOY, sections=(replace(TOY.sections[0], pictures={"x": broken}), *TOY.sections[1:]))
    reports = [benchmark.measure(TOY.quick, look_s=0) for benchmark in (faulty, TOY)]
    text = write_page(reports, {}, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "picture not drawn: KeyError(&#x27;no &lt;style&gt;&#x27;)" in text
    assert (text.count("<caption>doubles</caption>"), text.count("<img ")) == (4, 1)
    assert "picture not drawn" in caplog.text


def test_a_picture_with_the_name_of_the_benchmark_is_named_as_its_file(tmp_path: Path) -> None:
    report = TOY.measure(TOY.quick, look_s=0)
    assert [path.name for path in draw(report, tmp_path, "mine")] == ["mine.png"]
    assert [path.name for path in draw(report, tmp_path)] == ["toy.png"]


@dataclass(frozen=True)
class ToyLine:
    name: str
    us: float
    cores: dict[str, float]
    wrong: int


def test_rounds_take_turns_and_the_first_is_not_counted() -> None:
    told: list[str] = []
    taken: list[tuple[str, int]] = []

    def way(name: str, turn: int) -> int:
        taken.append((name, turn))
        return turn

    found = in_turns({name: partial(way, name) for name in "ab"}, 2, told.append, "toys")
    assert taken == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert found == {"a": [1, 2], "b": [1, 2]}
    assert told == ["toys, first round, not counted", "toys, round 1 of 2", "toys, round 2 of 2"]


def test_of_rounds_each_figure_has_its_median() -> None:
    rounds = [ToyLine("a", us, {"server": us / 10}, 1) for us in (3.0, 1.0, 2.0)]
    assert medians(rounds, wrong=3) == ToyLine("a", 2.0, {"server": 0.2}, 3)
    assert medians(rounds[:1]) == rounds[0]


def test_others_are_measured_before_anything_is_started() -> None:
    assert others_cores(0.01) >= 0
    before = cpu_s(0)
    assert cpu_s(0) >= before > 0


def refuse(settings: ToySettings, tick: Tick) -> ToyFigures:
    raise MeasurementFailed("lame cannot run here")


@pytest.fixture
def only_toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    lame = Benchmark(
        name="lame", about="needs what is not there", description="", quick_about="", full=ToySettings(),
        quick=ToySettings(), sections=(BenchSection("x", "", refuse, tables),),
    )  # fmt: skip
    kept = dict(BENCHMARKS)
    BENCHMARKS.clear()
    BENCHMARKS.update({"toy": TOY, "lame": lame})
    monkeypatch.setattr("hullcast.sim.bench.frame.benchmark.others_cores", lambda seconds: 0.0)
    monkeypatch.setattr("hullcast.clients.cli.commands.bench.warm_with_bar", lambda console: None)
    yield
    BENCHMARKS.clear()
    BENCHMARKS.update(kept)


@pytest.mark.usefixtures("only_toys")
def test_all_leaves_one_page_and_one_file_and_says_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, file = tmp_path / "all.html", tmp_path / "all.json"
    assert cli.main(["bench", "all", "--quick", "--html", str(page), "--json", str(file)]) == 0
    assert "left out: lame cannot run here" in capsys.readouterr().out
    assert json.loads(file.read_text())["toy"]["first"] == {"doubled": [2]}
    assert "lame: left out" in page.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"all.html", "all.json"}


@pytest.mark.usefixtures("only_toys")
def test_the_command_follows_from_the_declaration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "toy", "--only", "first", "second", "--only", "first", "--sizes", "4", "5", "--seed", "3"]
    assert cli.main([*words, "--json", str(tmp_path / "t.json"), "--html", str(tmp_path / "t.html")]) == 0
    written = json.loads((tmp_path / "t.json").read_text())
    assert written["settings"] == {"sizes": [4, 5], "part": {"seed": 3}, "seed": 3}
    assert written["first"] == written["second"] == {"doubled": [8, 10]}
    assert {path.name for path in tmp_path.iterdir()} == {"t.json", "t.html", "t.png"}
    capsys.readouterr()
    with pytest.raises(SystemExit):
        cli.main(["bench", "toy", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for expected in ("--quick one number", "(default 1 2 3, quick: 1)", "first (doubles)", "--html FILE"):
        assert expected in said
    with pytest.raises(SystemExit):
        cli.main(["bench", "--help"])
    assert "doubles numbers" in capsys.readouterr().out


def test_every_benchmark_has_a_quick_form_and_names_of_its_own() -> None:
    for name, benchmark in BENCHMARKS.items():
        assert benchmark.name == name
        assert benchmark.full != benchmark.quick
        assert benchmark.steps(benchmark.quick) <= benchmark.steps(benchmark.full)
        sections = [section.name for section in benchmark.sections]
        assert len(set(sections)) == len(sections)
        assert type(benchmark.quick) is type(benchmark.full)
        for option in benchmark.options:
            assert hasattr(benchmark.full, option.name)
    pictures = [name for one in BENCHMARKS.values() for section in one.sections for name in section.pictures]
    assert len(set(pictures)) == len(pictures)
