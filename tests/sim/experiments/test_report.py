"""The report: goals and statements in one table each, misses in one sentence, reasons once."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hullcast.sim.bench.engine.benchmark import EngineSettings
from hullcast.sim.bench.engine.tables import TABLE_5_2, RowsSection, UpdateCost
from hullcast.sim.bench.frame.timing import Spread
from hullcast.sim.experiments.report import goals_text, write_report, write_reports
from hullcast.sim.experiments.steps import RunFolder
from hullcast.sim.experiments.traffic.figures import WORDS, begin
from hullcast.sim.experiments.traffic.goals import goals
from hullcast.sim.experiments.traffic.inputs import Input
from hullcast.sim.experiments.traffic.judging import figures_of, judged
from hullcast.sim.experiments.traffic.market import MarketRun, stress_claim, workloads_table
from hullcast.sim.experiments.traffic.server import messages_by_rows
from hullcast.sim.experiments.traffic.settings import FULL, QUICK
from hullcast.sim.experiments.traffic.shares import STEP, VARIANTS, affected_claims, differences
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.overlay import PLACEMENTS
from hullcast.sim.spark.storage import Place
from hullcast.sim.traces.table51 import Mix
from tests.sim.experiments.builders import a_line, lines_of

CURVES = {"S-CN": [50.0, 60], "CN": [9_000.0, 9_000], "S-UN": [2_000.0, 9_000], "S-UN aggregated": [900.0, 4_000]}


def a_section(claims: list[Claim]) -> Section:
    pictures = {"bytes": Path("a.png"), "links": Path("b.png")}
    return Section("x", "A figure", "A workload.", "It is so.", claims, [Path("a.parquet")], pictures)


def report(*parts: str, section: Section | None = None) -> str:
    return write_report(parts, [section or a_section([])], ["None."], [], "Xie (2007)")


def test_the_report_begins_with_its_source_and_a_glossary_and_a_small_one_with_what_it_cannot_show() -> None:
    folder = RunFolder(Path("nowhere"), {}, resume=False)
    full, small = (report(*begin(settings, folder)) for settings in (FULL, QUICK))
    for text in (full, small):
        first = text.partition("## Goals")[0]
        assert 'Junyi Xie, "Handling Resource Constraints and Scalability in Continuous Query Processing"' in first
        for word in ("S-CN", "S-UN", "CN", "can", "broker, gateway", "node stress, link stress", "ignorable"):
            assert f"\n| **{word}** | " in first
        assert set(PLACEMENTS) <= {word for entry in WORDS for word in entry.split(", ")}, (
            "every placement is explained"
        )
        assert "thesis" not in text.replace("PhD thesis", "").lower()
    assert "What this small run cannot show" not in full
    assert small.index("## What this small run cannot show") < small.index("## Words") < small.index("## Goals")
    assert "200 brokers instead of 1,000" in small


def test_goals_are_one_row_each_and_misses_one_sentence() -> None:
    lines = lines_of(CURVES, [100.0, 500.0]) + lines_of(CURVES, [100.0, 500.0], "tree-content", stress=9)
    text = "\n".join(goals_text(goals(lines, 9)))
    assert "Missed: below S-UN, 100 subscriptions: 40x instead of >= 100x, all 2." in text
    assert "| goal | target | market, can | market, tree-content |" in text
    assert "| S-CN node stress, most | < 10 | 2 | *9* |" in text, "by construction in a tree"
    assert "| below S-UN, 100 subscriptions | >= 100x | **40x** | **40x** |" in text


def test_statements_are_one_row_each_with_workloads_in_the_cells() -> None:
    def claim(subject: str, workload: str, ours: str, holds: bool) -> Claim:
        return Claim(subject, "it is small", ours, holds, "it has many frames", f"{ours} frames", workload)

    section = a_section(
        [
            claim("can", "market", "5", holds=True),
            claim("can", "real", "50", holds=False),
            claim("tree-random", "market", "70", holds=False),
            claim("tree-random", "real", "80", holds=False),
        ]
    )
    text = report(section=section)
    assert "| statement (market / real) | can | tree-random |" in text
    assert "| it is small | 5 / **50** | **70** / **80** |" in text
    assert (
        "- Does not hold: *it is small*, because it has many frames (real: can 50 frames); "
        "it has many frames (market: tree-random 70 frames)." in text
    )
    assert "Ours: 1 of 4 statements hold." in text
    assert "![bytes](a.png)" in text
    assert "![links](b.png)" in text


def test_a_section_counts_neither_what_must_hold_nor_what_cannot_be_measured() -> None:
    section = a_section(
        [
            Claim("", "one", "1x", holds=True),
            Claim("", "two", "1x", holds=True, construction="nothing else can be"),
            Claim("", "three", "1x", holds=False, unknown="rounds differ by 2x"),
        ]
    )
    assert section.told == "1 of 1 statements hold; 1 more by construction; 1 not measurable here"
    text = report(section=section)
    assert "| two | 1x | by construction: nothing else can be |" in text
    assert "| three | 1x | not measurable here: rounds differ by 2x |" in text


def test_what_cannot_be_measured_is_not_called_wrong_where_subjects_stand_side_by_side() -> None:
    claims = [
        Claim("a", "it grows", "3x", holds=False, because="it is slow", unknown="the run is too short"),
        Claim("b", "it grows", "4x", holds=False, because="it is slow"),
    ]
    text = report(section=a_section(claims))
    assert "| it grows | 3x | **4x** |" in text
    assert "- Not measurable here: *it grows* (a): the run is too short." in text
    assert "- Does not hold: *it grows*, because it is slow (b)." in text


def test_tables_of_figures_show_the_first_and_the_last_point_only() -> None:
    curves = {name: [values[0], 77.0, values[1]] for name, values in CURVES.items()}
    lines = lines_of(curves, [1.0, 2.0, 3.0])
    assert figures_of(lines, lambda line: f"{line.x:g}") == [
        ["bytes at 1 and at 3", "S-CN", "CN", "S-UN", "S-UN aggregated"],
        ["can", "50.0, 60.0", "9,000, 9,000", "2,000, 9,000", "900, 4,000"],
    ]


def test_the_title_of_figure_5_10_says_which_workload_it_shows() -> None:
    market = Input("market", "calibrated market", Place(Path("trace")), (1.0, 5.0), 3_053, "")
    prices = replace(market, workload="real prices, RECO to 0.1")
    assert MarketRun([market], [], []).named == "workload: calibrated market"
    assert MarketRun([market, prices], [], []).named == "workloads: calibrated market; real prices, RECO to 0.1"


def test_the_share_of_changes_stands_beside_the_thesis_s() -> None:
    given = Input("market", "market", Place(Path("trace")), (1.0, 5.0), 3_053, "")
    rows = workloads_table(MarketRun([given], lines_of(CURVES, [1.0, 2.0]), []))
    assert rows[1:] == [["Xie (2007)", "338,415", "3,053", "11.7%"], ["market", "1,000", "3,053", "10.0%"]]


@pytest.mark.parametrize(
    ("placement", "most", "verdict"),
    [
        ("can", 10, "holds"),
        ("can", 11, "does not hold, because one event made a broker send 11 frames"),
        ("tree-random", 9, "by construction: in a tree no broker sends more frames than it has children, 9 at most"),
    ],
)
def test_node_stress_is_never_above_10_and_in_a_tree_it_cannot_be(placement: str, most: int, verdict: str) -> None:
    line = a_line(1.0, placement, "S-CN", 50.0)
    line = replace(line, cost=replace(line.cost, node_stress_max=most))
    assert stress_claim(line, fanout=9).verdict.startswith(verdict)


def test_a_claim_that_cn_s_lean_frame_would_break_shows_both_ratios() -> None:
    found = affected_claims(lines_of(CURVES | {"CN": [900.0, 900]}, [1.0, 2.0]))
    assert found[-1].ours == "15.0x to 18.0x (lean 5.8x to 7.0x)"


VOID = ("meta", "img", "br", "hr")


class Page(HTMLParser):
    """What a page has: pictures, cells, and whatever it would fetch from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.images: list[dict[str, str | None]] = []
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "img":
            self.images.append(found)
        self.fetched += [value for name, value in attrs if name in ("src", "href") and value is not None]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_the_report_with_its_pictures_in_it_and_needs_nothing_else(tmp_path: Path) -> None:
    png = b"\x89PNG\r\n\x1a\nbytes"
    picture = tmp_path / "a.png"
    picture.write_bytes(png)
    claims = [Claim("can", "a <b> | c", "5 & more", holds=True), Claim("tree", "a <b> | c", "**", holds=False)]
    section = Section("x", "A figure", "A workload.", "It is so.", claims, [], {'what "it" shows': picture})
    write_reports(tmp_path, write_report(["# What it <costs>"], [section], [], [], "Xie (2007)"), [section])
    assert (tmp_path / "report.md").read_text().startswith("# What it <costs>\n")
    page = Page((tmp_path / "report.html").read_text())
    (image,) = page.images
    assert image["alt"] == 'what "it" shows'
    assert image["src"] == "data:image/png;base64," + b64encode(png).decode()
    assert all(target.startswith("data:") for target in page.fetched)
    assert "url(" not in page.text, "styles fetch nothing either"
    for part in ("What it <costs>", "A figure", "Xie (2007): It is so.", "a <b> | c", "5 & more"):
        assert part in page.text


def test_tables_give_the_median_of_the_draws_and_where_they_go() -> None:
    lines = [
        replace(line, draw=draw)
        for draw, more in enumerate((0.0, 5.0, 20.0))
        for line in lines_of(CURVES | {"S-CN": [50.0 + more, 60.0]}, [1.0, 2.0])
    ]
    assert figures_of(lines, lambda line: f"{line.x:g}")[1][:3] == [
        "can",
        "55.0 [50.0 .. 70.0], 60.0",
        "9,000, 9,000",
    ]


def test_statements_of_several_networks_are_judged_for_each() -> None:
    lines = [
        replace(line, draw=draw)
        for draw, net in enumerate((600.0, 300.0, 550.0))
        for line in lines_of(CURVES | {"CN": [net, net]}, [1.0, 2.0])
    ]
    found = judged(lines, affected_claims, "a workload")
    close = next(claim for claim in found if "close to 10x" in claim.statement)
    assert (close.draws, close.holds, close.workload) == ((2, 3), False, "a workload")
    assert close.ours == "9.2x to 11.0x (lean 3.5x to 4.2x) [5.0x .. 12.0x]"
    text = report(section=a_section(found))
    assert "**9.2x to 11.0x (lean 3.5x to 4.2x) [5.0x .. 12.0x]** (2 of 3)" in text
    assert "- Holds in some draws only: *S-CN is close to 10x below CN (8x to 12.5x)*, because" in text


def test_the_time_of_a_pass_is_shared_by_its_networks() -> None:
    curves = {"S-CN": [50.0], "CN": [900.0], "S-UN": [9_000.0]}
    lines = lines_of(curves, [500_000.0], events=338_415, brokers=1_000, seconds=900.0)
    lines += [replace(line, draw=1) for line in lines]
    (time,) = (goal for goal in goals(lines) if goal.aim == "time")
    assert (time.measured, time.passed) == ("7.5 min for each of 2 networks", True)


def test_both_variants_of_the_workload_are_valid_at_every_share_and_the_report_says_what_differs() -> None:
    ours, walk = VARIANTS
    for share in FULL.ignorable:
        mix = Mix(spikes=0.0, ignorable=share)
        assert ours.mix(mix) == mix
        walking = walk.mix(mix)
        assert (walking.ignorable, walking.step) == (share, STEP)
        assert walking.inserts == pytest.approx(0.05 * (1 - share))
    lines = lines_of(CURVES, [1.0, 2.0])
    fewer = [replace(line, cost=replace(line.cost, rectangles=0.1, affected=7.0)) for line in lines]
    assert [row[1:] for row in differences({ours: lines, walk: fewer})[1:]] == [
        ["2.00", "50.0", "10%"],
        ["1.00", "7.00", "10%"],
    ]


def test_the_tables_of_the_server_stand_beside_the_published_ones(tmp_path: Path) -> None:
    even = Spread(1.0, 1.0, 1.0)

    def line(rows: int, messages: float, told: float, grown: Spread = even) -> UpdateCost:
        ratio = Spread(3.0, 3.1, 3.2)
        return UpdateCost(rows, 500_000, messages, told, None, None, 1.0, 3.1, ratio, grown, None, TABLE_5_2.get(rows))

    settings = EngineSettings()
    good = RowsSection((line(20_000, 2.08, 700), line(100_000, 2.2, 660)), ())
    section = messages_by_rows(good, settings, tmp_path)
    assert [claim.verdict for claim in section.claims] == ["holds"] * 3
    assert section.figures[0][1:] == [
        ["20,000", "2.08", "2.10", "700", "726"],
        ["100,000", "2.20", "2.22", "660", "654"],
    ]
    bad = RowsSection((line(20_000, 1.0, 90), line(100_000, 2.2, 660)), ())
    assert not any(claim.holds for claim in messages_by_rows(bad, settings, tmp_path).claims)
    few = messages_by_rows(good, replace(settings, subscriptions=1_000), tmp_path).claims[1]
    assert few.verdict.startswith("not measurable here: the table has 500,000, and this run 1,000")
