"""Studies: a toy one from grid to report, sweeps that lack a row, the fanout study, and the page that shows how."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hullcast.clients.cli.main import _parser
from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments import studies
from hullcast.sim.experiments.steps import read_rows
from hullcast.sim.experiments.studies import fanout
from hullcast.sim.experiments.study import GridPoint, Study, StudyData, StudyPart, Sweep, grid
from hullcast.sim.experiments.sweeping import checked, parts_of, run_study, swept, together
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.overlay.tree import BrokerTree, latency_tree
from tests.support.documents import ROOT, text_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def half(point: GridPoint, seed: int) -> dict[str, float]:
    return {"half": point["n"] / 2 + seed / 10, "square": point["n"] ** 2}


def found(sweep: Sweep, folder: Path) -> list[Section]:
    def judge(draw: Sweep) -> list[Claim]:
        value = draw.middle("half", n=4)
        return [Claim("", "below 2.2", f"{value:g}", value < 2.2, "it is not", value=value)]

    assert folder.is_dir()
    return [Section("toy", "Halves", "Numbers.", "They are half as large.", sweep.judged(judge))]


HALVES = StudyPart("", lambda quick: grid(n=[2, 4, 6]), half, found)
TOY = Study("toy", "Halves", "What is a half?", (HALVES,), seeds=3, cited="Toy (1999)")


class Told:
    def __init__(self, stop_at: str = "") -> None:
        self.begun: list[str] = []
        self.stop_at = stop_at

    def begin(self, what: str) -> None:
        self.begun.append(what)
        if what == self.stop_at:
            raise KeyboardInterrupt

    def tasks(self, done: int, known: int) -> None:
        assert 0 <= done <= known


def test_a_study_goes_from_its_grid_to_a_report_and_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_study(TOY, out, Told("seed-2"), spark=spark)
    ended = run_study(TOY, out, Told(), resume=True, spark=spark)
    assert ended.reused == ["seed-0", "seed-1"]
    rows = read_rows(out / "toy.parquet")
    assert [(row["n"], row["seed"]) for row in rows] == [(n, seed) for seed in range(3) for n in (2, 4, 6)]
    assert [row["half"] for row in rows if row["seed"] == 1] == [1.1, 2.1, 3.1]
    text = ended.report.read_text()
    for part in (
        "# Halves\n\nWhat is a half?\n\n3 points, each measured for 3 seeds. n: 2, 4, 6.",
        "Toy (1999): They are half as large.",
        "Ours: 0 of 1 statements hold in all 3 draws; 1 more in some draws.",
        "| below 2.2 | 2.1 [2.00 .. 2.20] | holds in 2 of 3 draws, and not in the others, because it is not |",
    ):
        assert part in text
    assert (out / "report.html").exists()
    more = run_study(TOY, out, Told(), seeds=4, resume=True, spark=spark)
    assert more.reused == ["seed-0", "seed-1", "seed-2"], "seeds are added to those that are there"
    assert len(read_rows(out / "toy.parquet")) == 12
    with pytest.raises(UsageError, match=r"version 1 \(now 2\)"):
        run_study(replace(TOY, version=2), out, Told(), resume=True, spark=spark)


def length(point: GridPoint, seed: int, more: str = "") -> dict[str, float]:
    return {"length": float(len(point["text"] + more))}


def named(name: str) -> Callable[..., list[Section]]:
    return lambda sweep, folder, *data: [Section(name, name, "", "", [])]


PARTS = replace(TOY, seeds=2, parts=(
    replace(HALVES, name="halves", points=lambda quick: grid(n=[2, 4]), sections=named("halves")),
    StudyPart("texts", lambda quick, *more: grid(text=["a", "bc", *more]), length, named("texts"), with_data=True),
    StudyPart("real", lambda quick, *more: grid(text=more), length, named("real"), with_data=True),
), data=StudyData(lambda folder: (folder / "text").read_text(), ("text",), "real texts"))  # fmt: skip


def test_parts_of_a_study_have_parameters_of_their_own_and_can_be_added(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = run_study(PARTS, out, Told(), only=["texts"], spark=spark)
    assert [section.name for section in first.sections] == ["texts"]
    assert (
        "## Left out\n\n- halves (not asked for)\n- real texts (not given; name their folder with --data)"
        in first.report.read_text()
    )
    both = run_study(PARTS, out, Told(), resume=True, spark=spark)
    assert both.reused == ["texts-seed-0", "texts-seed-1"]
    assert [section.name for section in both.sections] == ["halves", "texts"]
    texts = [{"text": text, "seed": s, "length": n} for s in (0, 1) for text, n in (("a", 1), ("bc", 2))]
    assert read_rows(out / "toy-texts.parquet") == texts
    assert [set(row) for row in read_rows(out / "toy-halves.parquet")] == [{"n", "seed", "half", "square"}] * 4
    assert "- **texts**: 2 points, each measured for 2 seeds. text: `a`, `bc`." in both.report.read_text()
    with pytest.raises(UsageError, match="no part 'text'; parts: halves, texts"):
        run_study(PARTS, out, Told(), only=["text"], spark=spark)
    with pytest.raises(UsageError, match="no part 'n'; toy does not have parts"):
        parts_of(TOY, quick=True, only=["n"])


def test_parts_that_take_data_get_it_as_one_more_argument(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("def")
    study, out = PARTS.given(tmp_path), tmp_path / "out"
    assert list(parts_of(study, quick=True)) == ["halves", "texts", "real"]
    ended = run_study(study, out, Told(), only=["real"], spark=spark)
    assert read_rows(out / "toy-real.parquet") == [{"text": "def", "seed": s, "length": 6.0} for s in (0, 1)]
    assert "real texts" not in ended.report.read_text()
    with pytest.raises(UsageError, match="data"):  # rows of other data are not reused
        run_study(PARTS, out, Told(), resume=True, spark=spark)
    with pytest.raises(UsageError, match="toy does not use real data; leave out --data"):
        TOY.given(tmp_path)


def broken(point: GridPoint, seed: int) -> dict[str, float]:
    raise ArithmeticError("no half of that")


def test_an_error_says_at_which_point_and_seed(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"(?s)no half of that.*measuring \{'n': 2\} with seed 5"):
        swept(spark, replace(HALVES, measure=broken), grid(n=[2]), [5])


POINTS = grid(n=[1, 2])


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([(0, {"m": 1.0})], "2 rows were asked for, and 1 came back, 1 are missing and 0 came twice"),
        ([(0, {"m": 1.0}), (1, {"m": 2.0}), (1, {"m": 2.0})], "3 came back, 0 are missing and 1 came twice"),
        ([(0, {"m": 1.0}), (0, {"m": 2.0})], "1 are missing and 1 came twice"),
        ([(0, {"m": 1.0}), (7, {"m": 2.0})], "1 are missing"),
        ([(0, {"m": 1.0}), (1, {"k": 2.0})], r"'n': 2\} gave \['k'\]"),
        ([(0, {"n": 1.0}), (1, {"n": 2.0})], r"gave \['n'\]"),
    ],
)
def test_a_sweep_that_lacks_a_row_or_has_it_twice_fails(found: list[tuple[int, dict[str, float]]], told: str) -> None:
    with pytest.raises(RuntimeError, match=told):
        together(POINTS, 3, found)


def test_rows_come_in_the_order_of_the_grid_whatever_order_they_come_back_in() -> None:
    rows = together(POINTS, 3, [(1, {"m": 2.0}), (0, {"m": 1.0})])
    assert rows == [{"n": 1, "seed": 3, "m": 1.0}, {"n": 2, "seed": 3, "m": 2.0}]


@pytest.mark.parametrize(
    ("points", "told"),
    [
        (grid(n=[1, 1]), "a point twice"),
        (grid(n=[1]) + grid(k=[1]), "the same parameters"),
        (grid(seed=[1]), "seed is not a parameter"),
        ([], "the same parameters"),
    ],
)
def test_a_grid_that_cannot_be_swept_is_refused(points: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        checked(points)


def test_a_sweep_gives_curves_by_seed() -> None:
    rows = [{"n": n, "of": of, "seed": s, "m": n * 10.0 + s} for n in (2, 1) for of in "ab" for s in (1, 0)]
    sweep = Sweep(rows)
    assert sweep.along("n", "m", of="a") == [(1, [10.0, 11.0]), (2, [20.0, 21.0])]
    assert sweep.middle("m", n=1) == 10.5
    assert (sweep.seeds, sweep.all_of("n")) == ([0, 1], [2, 1])
    with pytest.raises(KeyError, match="no row has"):
        sweep.where(n=3)


# -- the fanout study ------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"brokers": 20, "events": 60}


@pytest.fixture(scope="module")
def small() -> Sweep:
    rows = [
        {**point, "seed": seed, **fanout.measure(point, seed)}
        for seed in (0, 1)
        for point in grid(placement=fanout.PLACED, fanout=fanout.FANOUTS, brokers=[20], events=[60])
    ]
    return Sweep(rows)


def test_a_row_of_the_fanout_study_depends_on_nothing_but_its_point_and_its_seed(small: Sweep) -> None:
    point = {"placement": "tree-random", "fanout": 4, **SMALL}
    again = fanout.measure(point, 1)
    (row,) = small.where(**point, seed=1).rows
    assert again == {name: row[name] for name in again}
    assert again != fanout.measure(point, 0)


def test_delay_and_depth_are_those_of_the_way_down_the_tree() -> None:
    ways = fanout.network(20, 0)
    tree = latency_tree(ways, 3)
    depth, delay = fanout.ways_down(tree, ways)
    for broker in range(20):
        at, edges, latency = broker, 0, 0.0
        while at != 0:
            above = int(tree.parent[at])
            latency, edges, at = latency + ways.latency[above, at], edges + 1, above
        assert (depth[broker], delay[broker]) == (edges, pytest.approx(latency))
    star = BrokerTree(np.array([-1, *[0] * 19], np.int32), tree.order)
    assert np.array_equal(fanout.ways_down(star, ways)[1], ways.latency[0])


def test_the_fanout_study_says_what_to_choose(small: Sweep, tmp_path: Path) -> None:
    (section,) = fanout.sections(small, tmp_path)
    assert (tmp_path / "fanout.png").read_bytes().startswith(b"\x89PNG")
    bounds = [claim for claim in section.claims if "than it has children" in claim.statement]
    assert [claim.given for claim in bounds] == [True] * 3
    assert all(claim.draws == (2, 2) for claim in bounds)
    assert re.search(r"in delay: \d+ \(by content\), \d+ \(nearest\), \d+ \(random\)\.$", section.notes[0])
    depths = {f: small.middle("depth", fanout=f) for f in fanout.FANOUTS}
    assert depths[2] >= 4 > depths[64] == 1, "20 brokers: a tree of two children each has five levels, a star one"


# -- how they are found, and the page --------------------------------------------------------------------------


def test_every_study_is_a_command_and_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for name, about in studies.studies().items():
        study = import_module(f"{studies.__name__}.{name}").STUDY
        assert study.name == name
        words = ["sim", name, "--quick", "--seeds", "2"]
        assert _parser(words)[0].parse_args(words).seeds == 2
        assert studies.parts(name) == [part.name for part in study.parts if part.name]
        with pytest.raises(SystemExit):
            _parser(["sim", "--help"])[0].parse_args(["sim", "--help"])
        shown = " ".join(capsys.readouterr().out.split())
        assert " ".join(about.split()) in shown


def test_every_snippet_of_the_page_is_in_the_study_it_shows() -> None:
    snippets = re.findall(r"^```python\n(.*?)^```$", text_of("sim/experiments/STUDIES.md"), re.DOTALL | re.MULTILINE)
    code = (ROOT / "sim" / "experiments" / "studies" / "fanout.py").read_text()
    code = " ".join(code.split())  # a snippet from within a function is indented less
    assert len(snippets) >= 4
    for snippet in snippets:
        place = 0
        for piece in re.split(r"^\s*\.\.\.$|\.\.\.\},?\n\)", snippet, flags=re.MULTILINE):
            plain = " ".join(piece.split())
            place = code.find(plain, place)
            assert place >= 0, f"STUDIES.md shows what is not in studies/fanout.py, or not in this order:\n{piece}"
