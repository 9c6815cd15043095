"""Topologies on disk: every format both ways, the variants of others, and what is refused and how."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.wire.errors import UsageError
from hullcast.sim.topology import files
from hullcast.sim.topology.files import read_topology, write_topology
from hullcast.sim.topology.graph import Topology, distances
from hullcast.sim.topology.inet import inet
from hullcast.sim.topology.listings import read_listing
from tests.support.shared_data import shared

FORMATS = ["net.graphml", "net.graphml.gz", "net.inet", "net.inet.gz", "net.txt", "net.txt.gz", "net.edges"]


def listed(topology: Topology) -> list[tuple[int, int, float]]:
    return list(zip(topology.source.tolist(), topology.target.tolist(), topology.latency.tolist(), strict=True))


def read(tmp_path: Path, content: str | bytes, name: str = "net.txt", *, largest: bool = False) -> Topology:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_topology(path, largest=largest)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_read_again_as_it_was(name: str, tmp_path: Path) -> None:
    topology = inet(200, root=5)
    write_topology(topology, tmp_path / name)
    notes: list[str] = []
    back = read_topology(tmp_path / name, root=6, tell=notes.append)
    assert listed(back) == listed(topology)
    kept = not name.startswith(
        ("net.txt", "net.edges")
    )  # edge lists have no places: they are drawn by the reader's seed
    assert np.array_equal(back.x, topology.x) == kept
    assert np.array_equal(back.y, topology.y) == kept
    assert notes == []


@pytest.mark.parametrize("name", FORMATS)
def test_places_and_latencies_that_are_not_whole_survive(name: str, tmp_path: Path) -> None:
    ends = np.array([0, 1]), np.array([1, 2])
    places = np.array([0.25, 1e-3, 1 / 3]), np.array([7.0, 8.0, 1e300])
    write_topology(Topology("odd", *places, *ends, np.array([1.1, 1e17])), tmp_path / name)
    back = read_topology(tmp_path / name)
    assert listed(back) == [(0, 1, 1.1), (1, 2, 1e17)]
    if "txt" not in name and "edges" not in name:
        assert (back.x == places[0]).all()
        assert (back.y == places[1]).all()


def test_the_same_topology_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in FORMATS:
        write_topology(inet(50), tmp_path / f"one.{name}")
        write_topology(inet(50), tmp_path / f"two.{name}")
        assert (tmp_path / f"one.{name}").read_bytes() == (tmp_path / f"two.{name}").read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "0 1\n1 2\n",
        "0 1\r\n1 2\r\n",
        "# a comment\n\n0\t1 # here too\n1   2",
        "\ufeff2 1\n0 1\n",
        "3\n0 1 1\n1 2 1\n",
        "3\r\n1 0 1\r\n0 1 1\r\n2 1 1\r\n2 2 1\r\n-1",
        "70000 701\n701 3\n",  # any ids: numbered in their order
    ],
)
def test_edge_lists_of_all_kinds_are_read(text: str, tmp_path: Path) -> None:
    topology = read(tmp_path, text)
    assert topology.nodes == 3
    assert [(a, b) for a, b, _ in listed(topology)] == ([(0, 1), (1, 2)])


def test_a_third_column_is_the_latency_unless_it_is_all_ones(tmp_path: Path) -> None:
    assert listed(read(tmp_path, "0 1 5\n1 2 1\n")) == [(0, 1, 5), (1, 2, 1)]
    topology = read(tmp_path, "0 1 1\n1 2 1\n")
    assert topology.latency.min() > 1  # from places


def test_a_latency_of_nothing_in_inets_format_counts_as_one(tmp_path: Path) -> None:
    assert listed(read(tmp_path, "2 1\n0 7 7\n1 7 7\n0 1 0\n")) == [(0, 1, 1)]


def test_what_was_left_out_is_told(tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text("0 1\n1 0\n1 1\n7 8\n2 1")
    notes: list[str] = []
    topology = read_topology(tmp_path / "net.txt", largest=True, tell=notes.append)
    assert (topology.nodes, topology.links) == (3, 2)
    assert [note.split(maxsplit=1)[0] for note in notes] == ["2", "3"]


GARBAGE = [
    ("", "net.txt: it has no links"),
    ("# only this\n\n", "net.txt: it has no links"),
    ("0 1\n1 x\n", "line 2: 'x' is not a number"),
    ("0 1\n\n# \n1 2 3\n", "line 4: 2 columns are expected here, not 3: '1 2 3'"),
    ("0 1 2 3\n", "line 1: a link is 'a b' or 'a b latency'"),
    ("0 1\n1 -2\n", "line 2: ids are whole numbers"),
    ("0 1\n1 1.5\n", "line 2: ids are whole numbers"),
    ("0 1\n1 nan\n", "line 2: ids are whole numbers"),
    ("0 1\n1 1e300\n", "line 2: ids are whole numbers"),
    ("2\n0 1\n1 2\n", "line 3: ids are whole numbers, 0 or more and below 2"),
    ("-1\n0 1\n", "line 1: '-1' is not a valid number of nodes"),
    ("99999999999999999999\n0 1\n", "line 1: '9+' is not a valid number of nodes"),
    ("3\n", "line 1: no links follow"),
    ("0 1 5\n1 2 0\n", "line 2: a latency is a number of at least 1"),
    ("0 1 5\n1 2 inf\n", "line 2: a latency is a number of at least 1"),
    ("0 1\n2 3\n", "not connected: 2 components of 2, 2 nodes"),
    ("4\n0 1\n1 2\n", "not connected: 2 components of 3, 1 nodes"),
    ("3 2\n0 5 5\n1 6 6\n2 7 7\n0 1 1\n", "line 1: 3 nodes and 2 links are announced, but 4 lines follow"),
    ("2 1\n0 5 5\n2 6 6\n0 1 1\n", "line 3: node 1 is expected here, not '2 6 6'"),
    ("2 1\n0 5 5\n1 6 nan\n0 1 1\n", "line 3: a place is two finite numbers"),
    ("2 1\n0 5 5\n1 6 6\n0 2 1\n", "line 4: ids are whole numbers, 0 or more and below 2"),
    ("2 1\n0 5 5\n1 6 6\n0 1 -4\n", "line 4: a latency is a number of at least 1"),
    ("2 1\n0 5 5\n1 6 6 6\n0 1 4\n", "line 3: 3 columns are expected here, not 4"),
    ("99999999 1\n0 5 5\n", "line 1: '99999999' is not a valid number of nodes"),
    (b"0 1\n\xff\xfe\n", "line 2: this is not text"),
    (b"\x1f\x8bnonsense", "is damaged"),
    (gzip.compress(b"0 1\n" * 1000, mtime=0)[:-12], "is damaged"),
    ("<graphml><unfinished>", "line 1: not well-formed XML"),
    ("<html></html>", "cannot read it as GraphML"),
    ("<!DOCTYPE x [<!ENTITY a 'aaa'>]><graphml/>", "DOCTYPE"),
    ('<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected"/></graphml>', "no nodes"),
    ("0 1\n" + "x" * 10_000, "line 2: 2 columns are expected here, not 1: 'x{60}..'"),
]


@pytest.mark.parametrize(("content", "message"), GARBAGE)
def test_garbage_is_refused_by_a_message_that_says_where(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, content)


def test_files_that_are_not_there_or_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_topology(tmp_path / "none.txt")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_topology(tmp_path)
    monkeypatch.setattr(files, "LARGEST", 1_000)
    with pytest.raises(UsageError, match="of text"):
        read(tmp_path, gzip.compress(b"0 1\n" * 10_000, mtime=0), "bomb.txt.gz")


def test_an_unknown_ending_or_folder_is_refused_on_writing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"written as .graphml, .inet, .txt or .edges"):
        write_topology(inet(20), tmp_path / "net.json")
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        write_topology(inet(20), tmp_path / "none" / "net.txt")


@given(st.text(alphabet="0123456789 .-\n\t#ex<", max_size=60))
def test_any_text_is_a_listing_or_refused(text: str) -> None:
    try:
        listing = read_listing(text, "fuzz")
    except UsageError:
        return
    assert len(listing.a) == len(listing.b) > 0
    assert max(listing.a.max(), listing.b.max()) < listing.nodes
    assert min(listing.a.min(), listing.b.min()) >= 0


@pytest.mark.parametrize(
    ("file", "nodes", "links"),
    [
        ("as-22july06.edges.txt", 22_963, 48_436),
        ("oregon1_010331.txt", 10_670, 22_002),
        ("as20000102.txt", 6_474, 12_572),
        ("inet3_reference_n20000_seed0.txt.gz", 20_000, 52_593),
    ],
)
def test_real_files_have_the_nodes_and_links_known_of_them(file: str, nodes: int, links: int) -> None:
    topology = read_topology(shared(file))
    assert (topology.nodes, topology.links) == (nodes, links)


def test_latencies_of_inets_output_are_the_truncated_distances_of_its_places() -> None:
    topology = read_topology(shared("inet3_reference_n20000_seed0.txt.gz"))
    distance = distances(topology.x, topology.y, topology.source, topology.target)
    # Where the distance is a whole number, or hardly more, the program's weight is 1 lower: 28 times.
    assert set((distance - topology.latency).tolist()) == {0, 1}
    assert (topology.latency != distance).sum() == 28
