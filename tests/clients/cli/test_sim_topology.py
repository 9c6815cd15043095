"""`hullcast sim topology`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import argparse
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from hullcast.clients.cli.commands.sim import topology
from hullcast.network.wire.errors import UsageError
from hullcast.sim.topology.files import read_topology
from hullcast.sim.topology.inet import inet

if TYPE_CHECKING:
    from pathlib import Path


def ran(*words: str | Path) -> str:
    """The text a run prints for people; it must end well."""
    parser = argparse.ArgumentParser()
    topology.add_arguments(parser)
    console = Console(file=io.StringIO(), width=160)
    assert topology.run(parser.parse_args(list(map(str, words))), console) == 0
    printed: str = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    return printed


def test_a_network_is_made_measured_and_shown() -> None:
    printed = ran("--nodes", "1_000", "--seed", "3")
    topology = inet(1_000, root=3)
    assert "INET 1,000 seed 3" in printed
    assert f"{topology.links:,}" in printed
    assert str(topology.degrees().max()) in printed


def test_json_has_the_figures_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("--nodes", "300", "--degree-one", "0.5", "--json") == ""
    figures: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert figures["measures"]["nodes"] == 300
    assert figures["measures"]["degree_one_share"] == 0.5
    ran("--nodes", "1", "--json")
    assert json.loads(capsys.readouterr().out)["measures"]["mean_path"] is None


@pytest.mark.parametrize("name", ["net.graphml", "net.txt.gz", "net.inet"])
def test_a_network_is_written_and_read_again(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = ran("--nodes", "200", "--out", tmp_path / name)
    assert f"written: {tmp_path / name} (200 nodes" in printed
    assert "clustering" not in printed  # measured only if asked for
    assert read_topology(tmp_path / name).nodes == 200
    ran("--read", tmp_path / name, "--measure", "--json")
    assert json.loads(capsys.readouterr().out)["measures"]["links"] == inet(200).links


def test_what_was_left_out_of_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text("0 1\n1 0\n5 6\n2 1\n")
    with pytest.raises(UsageError, match="--largest"):
        ran("--read", tmp_path / "net.txt")
    printed = ran("--read", tmp_path / "net.txt", "--largest")
    assert "2 nodes outside the largest component are left out" in printed
    assert "2 lines are left out" in printed


def test_columns_of_a_list_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.txt").write_text("x 0 1 7\nx 1 2_5 8\n")
    printed = ran("--read", tmp_path / "net.txt", "--columns", "2,3,4", "--out", tmp_path / "out.txt")
    assert "1 ends name several systems, such as 2_5; the first of each is taken" in printed
    assert (tmp_path / "out.txt").read_text().splitlines()[1:] == ["0\t1\t7", "1\t2\t8"]
    ran("--read", tmp_path / "net.txt", "--columns", "2,3", "--json")
    assert json.loads(capsys.readouterr().out)["notes"][0].startswith("1 ends name several systems")


def test_paths_between_brokers_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert "paths between 30 brokers" in ran("--nodes", "200", "--brokers", "30")
    ran("--nodes", "200", "--brokers", "30", "--json")
    paths = json.loads(capsys.readouterr().out)["paths"]
    assert paths["brokers"] == 30
    assert 1 < paths["mean_links"] < 10
    assert paths["total_links"] == round(paths["mean_links"] * 30 * 29)


def test_a_page_is_written_beside_the_graphs_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "as20000102.txt").write_text("0\t1\r\n1\t2\r\n2\t0\r\n2\t3\r\n")
    printed = ran("--compare", "--nodes", "100", "--data", tmp_path, "--out", tmp_path / "page")
    assert "Internet, January 2000" in printed
    assert f"not found in {tmp_path}: as-22july06.edges.txt" in printed
    assert {path.name for path in (tmp_path / "page").iterdir()} == {
        "topology.md",
        "topology.png",
        "topology_plane.png",
    }
    ran("--compare", "--nodes", "100", "--data", tmp_path, "--out", tmp_path / "page", "--json")
    assert json.loads(capsys.readouterr().out)["measures"]["Internet, January 2000"]["links"] == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--read", "x", "--nodes", "5"], "--nodes is for making one"),
        (["--read", "x", "--compare", "--data", ".", "--out", "."], "--compare is for making one"),
        (["--largest"], "--read FILE"),
        (["--columns", "1,2"], "--read FILE"),
        (["--compare", "--data", "."], "--out DIR"),
        (["--compare", "--out", "x"], "--data DIR"),
        (["--compare", "--out", "x", "--data", "no-such-folder"], "is not a folder"),
        (["--compare", "--out", "x", "--data", ".", "--brokers", "3"], "one after the other"),
        (["--compare", "--out", "x", "--data", ".", "--plane", "3"], "leave out --plane"),
        (["--data", "."], "--data is for --compare"),
        (["--degree-one", "1.5"], "below 1, got 1.5"),
        (["--nodes", "20", "--brokers", "21"], "20"),
        (["--nodes", "20", "--out", "net.json"], "net.json"),
    ],
)
def test_what_does_not_go_together_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ran(*words)
