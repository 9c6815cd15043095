"""Topologies on disk: every format both ways, the variants of others, and what is refused and how."""

from __future__ import annotations

import bz2
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
from hullcast.sim.topology.listings import columns_of, read_listing
from tests.support.processes import limited_files
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


AS_LINKS = """# format: direct AS links (CAIDA)
T\t1427846400\t1427932800
M\t192.0.2.1\t701\t0
D\t701\t7018\t0\t5\t9
D\t7018\t3356_209,174\t1
I\t701\t1299\t1\t0
D\t{3356,1}\t701\t2
"""


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("1|2|-1\n2|3|0\n3|1|0\n", ["the third column"]),
        (
            "# source: topology\n# <a>|<b>|<relationship>|<source>\n1|2|-1|bgp\n2|3|0|mlp\n3|1|0|bgp\n",
            ["the third column"],
        ),
        ("1 2 -1\n2 3 0\n3 1 2\n", ["the third column"]),
        ("1\t2\t1\n2\t3\t-1\n3\t1\t0\n", ["the third column"]),
        (
            AS_LINKS,
            ["1 links with a gap (I) are left out", "2 ends name several systems, such as 3356_209,174; the first"],
        ),
        ("1_5 2\n2 3\n3 1\n", ["1 ends name several systems, such as 1_5; the first of each is taken"]),
        ("1,2\n2,3\n3,1\n", []),
        ("1, 2\n2, 3\n3, 1\n", []),
        ("1|2\n2|3\n3|1\n", []),
    ],
)
def test_caidas_lists_and_any_separator_are_read(text: str, notes: list[str], tmp_path: Path) -> None:
    told: list[str] = []
    for name, content in (("net.txt", text.encode()), ("net.txt.bz2", bz2.compress(text.encode()))):
        told.clear()
        (tmp_path / name).write_bytes(content)
        topology = read_topology(tmp_path / name, tell=told.append)
        assert (topology.name, topology.nodes, topology.links) == ("net", 3, 3)
        assert topology.latency.min() > 2, "from places, not from the relation"
        assert [note[: len(start)] for note, start in zip(told, notes, strict=True)] == notes


@pytest.mark.parametrize(
    ("text", "columns", "links"),
    [
        ("9 1 2 x\n9 2 3 y\n", "2,3", None),
        ("9 1 2 x\n9 2 3\n", "3,2", None),
        ("1 2 7 0.5\n2 3 8 0.5\n", "1,2,3", [7, 8]),
        ("1 2 1\n2 3 1\n", "1,2,3", [1, 1]),  # told that it is the latency
        ("7.5|a|1|2\n8|b|2|3\n", "3,4,1", [7.5, 8]),
        ("source,target,since,ms\n1,2,1999,7\n2,3,2000,8\n", "source,target,ms", [7, 8]),
        ('"Source","Target",x\n1,2,a\n2,3,b\n', "source,target", None),
        ("id,source,target\n5,1,2\n6,2,3\n", "2,3", None),
        ("3\n0 1 2 x\n0 1 0 y\n-1\n", "2,3", None),
        ("1 2 -1 bgp\n2 3 0 mlp\n", "1,2", None),
        ("2 1\n0 1 5\n", "1,2", None),  # not INET's format
    ],
)
def test_columns_say_what_is_what(text: str, columns: str, links: list[float] | None, tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text(text)
    topology = read_topology(tmp_path / "net.txt", columns=columns_of(columns))
    assert [(a, b) for a, b, _ in listed(topology)] == [(0, 1), (1, 2)]
    if links is not None:
        assert topology.latency.tolist() == links


@given(st.integers(2, 4), st.permutations(range(4)), st.sampled_from("\t ,|"), st.integers(3, 12))
def test_columns_are_taken_from_any_place(count: int, places: list[int], sign: str, nodes: int) -> None:
    """A ring, written with other columns between the ends."""
    count = max(count, max(places[:2]) + 1)
    lines = []
    for a in range(nodes):
        cells = ["x"] * count
        cells[places[0]], cells[places[1]] = str(a), str((a + 1) % nodes)
        lines.append(sign.join(cells))
    listing = read_listing("\n".join(lines), "ring", columns_of(f"{places[0] + 1},{places[1] + 1}"))
    assert listing.nodes == nodes
    assert listing.a.tolist() == list(range(nodes))
    assert listing.b.tolist() == [*range(1, nodes), 0]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("1 2\n2 3\n", "1,3", r"line 1: it has no column 3: '1 2'; --columns says which"),
        ("a,b\n1,2\n", "a,c", r"line 1: no column is named 'c' in 'a b'; give numbers"),
        ("a,a\n1,2\n", "a,b", r"line 1: 2 columns are named 'a'"),
        ("a b\n", "a,b", "line 1: no links follow"),
        ("1 2 x\n2 3 7\n", "1,2,3", "line 1: 'x' is not a number"),
        ("1 2\nx 3\n", "1,2", "line 2: 'x' is not a number"),
        ("<graphml/>", "1,2", "is GraphML, .* leave out --columns"),
        ("1 2\n", "1", "--columns 1: give two columns"),
        ("1 2\n", "0,1", "--columns 0,1: give two columns"),
        ("1 2\n", "1,1", "--columns 1,1: give two columns"),
        ("1 2\n", "1,2,3,4", "give two columns"),
        ("link L1:  N1:1.0.0.1 N2\n", "", "line 1: .*CAIDA's ITDK, whose links of routers are not read"),
        ("source target\n1 2\n", "", "line 1: 'source' is not a number; .* say --columns source,target"),
        ("1|2|9\n", "", r"line 1: expected a\|b\|relation .*; --columns says which"),
        ("T\t1\t2\nM\tx\n", "", "no line begins with D"),
        ("D 1 2\nX 1 2\n", "", "line 2: a line begins with D, I, M or T here, not 'X 1 2'"),
        ("1 2 1_0\n2 3 5\n", "", "line 1: '1_0' is not a number"),
        ("0 1\n", "00,1", "--columns 00,1: give two columns"),
        ("0 1\n", "1,01", "--columns 1,01: give two columns"),
        ("a b\n0 1\n", "a,A", "--columns a,A: give two columns"),
        ("0 1 2 3\n", "", "line 1: a link is 'a b' or 'a b latency', not '0 1 2 3'; --columns says which"),
    ],
)
def test_what_columns_cannot_mean_is_refused_with_the_line(
    text: str, columns: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "net.txt").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_topology(tmp_path / "net.txt", columns=columns_of(columns) if columns else ())


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
    (bz2.compress(b"0 1\n" * 1000)[:-12], "is damaged"),
    (b"BZhnonsense", "cannot be read: Invalid data stream"),
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


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    write_topology(inet(20), tmp_path / "net.txt")
    with limited_files(1_000), pytest.raises(UsageError, match=r"net.txt cannot be written: File too large"):
        write_topology(inet(500), tmp_path / "net.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["net.txt"]
    assert read_topology(tmp_path / "net.txt").nodes == 20


@given(
    st.text(alphabet="0123456789 .-\n\t#ex<|,_{}DIT", max_size=60), st.sampled_from([(), ("1", "2"), ("2", "1", "3")])
)
def test_any_text_is_a_listing_or_refused(text: str, columns: tuple[str, ...]) -> None:
    try:
        listing = read_listing(text, "fuzz", columns)
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
    if "inet" not in file:
        again = read_topology(shared(file), columns=("2", "1"))
        assert (again.nodes, again.links) == (nodes, links)


def test_latencies_of_inets_output_are_the_truncated_distances_of_its_places() -> None:
    topology = read_topology(shared("inet3_reference_n20000_seed0.txt.gz"))
    distance = distances(topology.x, topology.y, topology.source, topology.target)
    # Where the distance is a whole number, or hardly more, the program's weight is 1 lower: 28 times.
    assert set((distance - topology.latency).tolist()) == {0, 1}
    assert (topology.latency != distance).sum() == 28
