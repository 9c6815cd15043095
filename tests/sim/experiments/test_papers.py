"""The page of all papers: registries that point to what there is, rows and counts, and a study that fails."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hullcast import sim
from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.frame.benchmark import Benchmark, BenchSection
from hullcast.sim.experiments.papers import SOURCES, running
from hullcast.sim.experiments.papers.items import PaperItem, PaperSource
from hullcast.sim.experiments.papers.page import MISSING, REFUTED, PapersFound, papers_text, verdicts
from hullcast.sim.experiments.papers.running import BENCH, FIGURES, PapersRun, run_papers, runs_of, steps_of
from hullcast.sim.experiments.studies import parts, studies
from hullcast.sim.experiments.traffic import SECTIONS
from hullcast.sim.output.claims import Claim, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

CODE = Path(sim.__file__).parents[1]
ITEMS = [(source, item) for source in SOURCES.values() for item in source.items]
KINDS_OF_ITEMS = "Figure|Table|Theorem|Lemma|Corollary|Definition|Proposition|Claim|Algorithm"
NUMBERED = re.compile(rf"({KINDS_OF_ITEMS}) (?:(\d+)\.)?(\d+)(\(\w+\))?")


# -- the registries --------------------------------------------------------------------------------------------


def test_every_item_is_there_once_and_points_to_something() -> None:
    for source in SOURCES.values():
        names = [item.name for item in source.items]
        assert len(set(names)) == len(names), source.name
    for source, item in ITEMS:
        assert item.says, item
        assert item.where or item.why, f"{source.name}: {item.name} points to nothing and says not why"
        for file, name in item.tests:
            assert re.search(rf"^(?:def {name}\(|{name} = )", (CODE / file).read_text(), re.MULTILINE), (file, name)
        for file in item.files:
            assert (CODE / file).is_file(), (item.name, file)
        for run, part in item.runs:
            known = {BENCH: [""], FIGURES: list(SECTIONS)}.get(run) or parts(run)
            assert run in (BENCH, FIGURES, *studies()), (item.name, run)
            assert part in known, (item.name, run, part)


@pytest.mark.parametrize("source", SOURCES.values(), ids=lambda source: source.name)
def test_numbers_have_no_gaps(source: PaperSource) -> None:
    """Nothing between the first and the last of a kind is left out."""
    numbers: dict[tuple[str, str], set[int]] = {}
    for item in source.items:
        if match := NUMBERED.fullmatch(item.name.partition(",")[0].partition(" (chapter")[0]):
            kind = "any" if source.name == "bateni" and match[1] != "Figure" else match[1]  # they share numbers there
            numbers.setdefault((kind, match[2] or ""), set()).add(int(match[3]))
    for (kind, chapter), found in numbers.items():
        assert found == set(range(1, max(found) + 1)), f"{kind} {chapter}: {sorted(found)}"


def _named(folder: Path) -> Iterator[str]:
    """What code names as an item."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            values: list[ast.AST] = []
            if isinstance(node, ast.keyword) and node.arg in ("item", "items"):
                values = list(ast.walk(node.value))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and NUMBERED.fullmatch(node.value):
                values = [node]
            for value in values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str) and " " in value.value.strip():
                    yield value.value


def _folder(run: str) -> Path:
    experiments = CODE / "sim" / "experiments"
    return {BENCH: CODE / "sim" / "bench" / "joins", FIGURES: experiments / "traffic"}.get(
        run, experiments / "studies" / run
    )


@pytest.mark.parametrize("run", runs_of(list(SOURCES.values())))
def test_what_code_calls_an_item_is_one_and_what_it_measures_is_named_there(run: str) -> None:
    named = set(_named(_folder(run)))
    known = {item.name for source, item in ITEMS if any(name == run for of in source.items for name, _ in of.runs)}
    assert named <= known, "an item of a claim is in no registry"
    if run == BENCH:
        return  # its claims are looked at when they are there: what no claim is about, the page calls not measured
    mine = {item.name for _, item in ITEMS if any(name == run for name, _ in item.runs)}
    dynamic = {f"Figure {section}" for section in SECTIONS}
    assert mine <= named | dynamic, "an item is measured by what does not name it"


# -- the page --------------------------------------------------------------------------------------------------

TOY = PaperSource(
    "toy",
    "Toy (1999)",
    "T. Toy, Doubling, 1999",
    (
        PaperItem("Figure 1", "It doubles.", "toys:one"),
        PaperItem("Figure 2", "A curve.", "toys:one"),
        PaperItem("Figure 3", "Not asked for.", "others:two", needs="needs data"),
        PaperItem("Theorem 1", "It always doubles.", "tests/sim/experiments/test_papers.py::test_numbers_have_no_gaps"),
        PaperItem("Theorem 2", "It triples.", "tests/sim/experiments/test_papers.py::test_x", fails="it doubles"),
        PaperItem("Table 1", "Notation.", why="nothing to measure"),
    ),
)
CLAIMS = [
    Claim("a", "by 2x", "2.0x", True, item="Figure 1", paper="twice"),
    Claim("b", "by 2x", "1.5x", False, "it is slow", "at 7", item="Figure 1", paper="twice"),
    Claim("", "at all", "yes", True, construction="it cannot else", item="Figure 1", paper="yes"),
    Claim("", "(ours) gladly", "yes", True),
]


def found_in(folder: Path, *more: Claim) -> PapersFound:
    picture = folder / "toys" / "curve.png"
    picture.parent.mkdir()
    picture.touch()
    of = Section("one", "One", "", "", [*CLAIMS, *more], pictures={"a curve": picture}, cited=TOY.cited,
                 items=("Figure 1", "Figure 2"))  # fmt: skip
    return PapersFound({"toys": [of]}, {"others": "ValueError: no"})


def test_every_item_has_a_row_and_every_statement_of_the_paper_one_below_it(tmp_path: Path) -> None:
    found = found_in(tmp_path, Claim("", "unheard of", "1x", True, item="Figure 9", paper="1"))
    text = papers_text([TOY], found, tmp_path, ["# All"])
    for row in (
        "| **Figure 1** | It doubles. |  | holds: 1, does not hold: 1, by construction: 1 | [curve.png](toys/curve.",
        "|  | by 2x (paper: twice) | a: 2.0x; b: 1.5x | a: holds. b: **does not hold, because it is slow** |  |",
        "|  | at all (paper: yes) | yes | *by construction: it cannot else* |  |",
        "| **Figure 2** | A curve. |  | drawn | [curve.png](toys/curve.png) |",
        "| **Figure 3** | Not asked for. | needs data | not measured in this run |  |",
        "| **Theorem 2** | It triples. | it doubles | **does not hold as stated** |",
        "| **Table 1** | Notation. | nothing to measure | nothing to measure |  |",
        "- **others failed**: ValueError: no",
        "- **Not in the registry**: Toy (1999): Figure 9",
    ):
        assert row in text
    assert "| **Theorem 1** | It always doubles. |  | checked by a test | [test: numbers have no gaps](" in text
    assert "gladly" not in text
    assert verdicts(TOY, found) == {
        "holds": 1, "does not hold": 1, "by construction": 1, "drawn": 1, MISSING: 1, "checked by a test": 1,
        REFUTED: 1, "nothing to measure": 1,
    }  # fmt: skip


def test_the_paper_s_words_belong_to_an_item() -> None:
    with pytest.raises(AssertionError, match="belongs to an item"):
        Section("one", "One", "", "", [replace(CLAIMS[0], item="")], items=("Figure 1", "Figure 2"))
    alone = Section("one", "One", "", "", [replace(CLAIMS[0], item="")], items=("Figure 2",))
    assert [claim.item for claim in alone.placed] == ["Figure 2"]


# -- the run ---------------------------------------------------------------------------------------------------


class Told:
    def __init__(self) -> None:
        self.begun: list[str] = []

    def begin(self, what: str) -> None:
        self.begun.append(what)

    def tasks(self, done: int, known: int) -> None:
        """Not looked at."""


def test_a_study_that_fails_does_not_lose_the_page(tmp_path: Path) -> None:
    how, fails = PapersRun(tmp_path / "out", quick=True), [True]

    def make(how: PapersRun, name: str, asked: list[str], progress: object) -> list[Section]:
        (how.out / name).mkdir(exist_ok=True)
        if name == "others" and fails:
            raise ValueError("no way")
        return [Section(name, name, "", "", CLAIMS, cited=TOY.cited, items=("Figure 1", "Figure 2"))]

    found = run_papers([TOY], how, Told(), make=make)
    assert found.failed == {"others": "ValueError: no way"}
    assert "no way" in (how.out / "others-failure.txt").read_text()
    page = (how.out / "papers.html").read_text()
    assert "<strong>others failed</strong>" in page
    assert "by 2x (paper: twice)" in page
    assert '<a href="#toy-1999">' in page
    assert '<h2 id="toy-1999">' in page
    with pytest.raises(UsageError, match="not empty"):
        run_papers([TOY], how, Told(), make=make)
    with pytest.raises(UsageError, match="nothing could be run: others: ValueError: no way"):
        run_papers([replace(TOY, items=TOY.items[2:3])], how, Told(), make=make, resume=True)
    assert "by 2x (paper: twice)" in (how.out / "papers.md").read_text(), "the page stays"
    fails.clear()
    assert not run_papers([TOY], how, Told(), make=make, resume=True).failed
    assert not (how.out / "others-failure.txt").exists()
    assert "failed" not in (how.out / "papers.md").read_text()


def test_only_what_sources_need_is_run() -> None:
    every, how = list(SOURCES.values()), PapersRun(Path("out"), quick=True)
    assert list(runs_of(every)) == ["batching", "caching", "joins", "figures", "scheduling", "streams"]
    assert runs_of([SOURCES["vu"]]) == {"scheduling": ["deadlines"]}
    assert "limits" not in runs_of(every)["batching"], "ours"
    assert steps_of(how, runs_of([SOURCES["vu"]])) == 3
    assert steps_of(how, runs_of(every)) > 50


def test_sections_of_the_benchmark_are_steps_that_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    def measured(settings: PaperItem, tick: object) -> PaperItem:
        runs.append(settings)
        return settings

    def broken(settings: PaperItem, tick: object) -> PaperItem:
        raise KeyError("a colour")

    claim = replace(CLAIMS[1], item="Figure 4.9", draws=(1, 3))
    section: BenchSection[PaperItem, PaperItem] = BenchSection(
        "toy", "doubles", measured, lambda found: (), lambda found: [claim]
    )
    sections = (replace(section, name="broken", run=broken), section)
    toy = PaperItem("seed", "")  # any dataclass without a seed
    bench = Benchmark(name="joins", about="", description="", quick_about="", full=toy, quick=toy, sections=sections)
    monkeypatch.setattr(running, "JOINS", bench)
    for _ in range(2):
        sections_found = running._joins(tmp_path / "joins", PapersRun(tmp_path), Told())
        found = next(sections_found)
        with pytest.raises(RuntimeError, match="broken: KeyError"):
            next(sections_found)
    assert len(runs) == 1
    assert [(of.ours, of.kind, of.item) for of in found.claims] in (
        [("1.5x", "holds in some draws", "Figure 4.9")],
        [("1.5x", "not measurable here", "Figure 4.9")],  # other programs used the machine
    )
    assert found.cited == "Xie (2007)"
