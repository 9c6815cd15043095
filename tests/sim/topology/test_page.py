"""The page: what is compared with what, what it says of it, and that its pictures are there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.topology.comparison import KNOWN, STEPS, TopologyComparison, compare
from hullcast.sim.topology.files import write_topology
from hullcast.sim.topology.inet import inet
from hullcast.sim.topology.page import FIGURES, verdict, write_page

if TYPE_CHECKING:
    from pathlib import Path

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two of the known files, small ones: the program's as large as ours, an Internet smaller."""
    folder = tmp_path_factory.mktemp("data")
    for (file, _, _), nodes in zip(KNOWN, (600, 200), strict=False):
        written = folder / ("net.inet" + (".gz" if file.endswith(".gz") else ""))
        write_topology(inet(nodes, root=9), written)
        written.rename(folder / file)
    return folder


@pytest.fixture(scope="module")
def comparison(data: Path) -> TopologyComparison:
    ticks: list[str] = []
    compared = compare(data, ticks.append, nodes=600)
    assert len(ticks) == STEPS
    return compared


def test_each_graph_is_compared_with_a_generated_one_as_large(comparison: TopologyComparison) -> None:
    assert [one.topology.nodes for one in comparison.others] == [600, 200]
    assert [one.topology.nodes for one in comparison.twins] == [600, 200]
    assert comparison.twins[0] is comparison.ours
    assert [one.label for one in comparison.listed()] == [
        "generated, 600 nodes",
        "INET-3.0, the program",
        "Internet, July 2006",
        "generated, 200 nodes",
    ]
    assert comparison.missing == ("oregon1_010331.txt", "as20000102.txt")


def test_the_page_has_all_figures_both_pictures_and_what_is_missing(
    comparison: TopologyComparison, tmp_path: Path
) -> None:
    page, *pictures = write_page(comparison, tmp_path / "new" / "folder")
    text = page.read_text(encoding="utf-8")
    for one in comparison.listed():
        line = next(line for line in text.splitlines() if line.startswith(f"| {one.label} |"))
        assert f"| {one.measures.links:,} |" in line
        assert line.endswith(f"| {one.measures.mean_path:.2f} | {one.measures.clustering:.2f} |")
    for picture in pictures:
        assert picture.read_bytes()[:4] == PNG
        assert f"({picture.name})" in text
    assert "Not found, hence not shown: oregon1_010331.txt, as20000102.txt." in text


def test_a_verdict_says_what_agrees_and_what_differs(comparison: TopologyComparison) -> None:
    ours = comparison.ours
    other = replace(ours, label="other", measures=replace(ours.measures, mean_path=9.0, clustering=0.9))
    agree, _, differ = verdict(ours, other).partition("they differ in ")
    assert "mean degree" in agree
    assert differ.startswith(f"mean path ({ours.measures.mean_path:.2f} : 9.00), clustering (")
    assert "differ" not in verdict(ours, ours)


def test_figures_agree_up_to_their_tolerance_and_no_further(comparison: TopologyComparison) -> None:
    measures = comparison.ours.measures
    largest = next(figure for figure in FIGURES if figure.name == "largest degree")
    top = measures.largest[0]
    assert largest.agrees(measures, replace(measures, largest=(round(top * 1.05),)))
    assert not largest.agrees(measures, replace(measures, largest=(round(top * 1.3),)))


def test_without_any_graph_the_page_says_so(tmp_path: Path) -> None:
    alone = compare(tmp_path, lambda _: None, nodes=50)
    page = write_page(alone, tmp_path)[0]
    assert "There is nothing to compare with" in page.read_text(encoding="utf-8")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        compare(tmp_path / "none", lambda _: None)
