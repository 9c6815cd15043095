"""Routes beside networkx: every path is one, as fast as can be, and the nearest broker is the nearest."""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.wire.errors import UsageError
from hullcast.sim.topology import paths
from hullcast.sim.topology.graph import Topology, make_topology
from hullcast.sim.topology.inet import inet
from hullcast.sim.topology.paths import Routes, routes


@st.composite
def cases(draw: st.DrawFn) -> tuple[Topology, list[int]]:
    """A connected graph with few different latencies, so that ties are common, and some brokers."""
    nodes = draw(st.integers(2, 10))
    parents = [(draw(st.integers(0, v - 1)), v) for v in range(1, nodes)]
    more = draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=20))
    ends = np.array(parents + more, np.int64)
    latency = draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, 1.1]), min_size=len(ends), max_size=len(ends)))
    topology = make_topology("drawn", nodes, ends[:, 0], ends[:, 1], latency=np.array(latency))
    brokers = draw(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=nodes, unique=True))
    return topology, brokers


def walk(topology: Topology, found: Routes, a: int, c: int) -> list[int]:
    """The nodes of a path, or the test fails because a link does not begin where the one before ended."""
    at = [int(found.nodes[a])]
    for link in found.path(a, c).tolist():
        ends = {int(topology.source[link]), int(topology.target[link])}
        assert at[-1] in ends
        at.append((ends - {at[-1]}).pop())
    return at


@given(cases())
def test_every_path_is_a_shortest_one(case: tuple[Topology, list[int]]) -> None:
    topology, brokers = case
    found = routes(topology, np.array(brokers))
    graph = topology.to_networkx()
    for a, source in enumerate(brokers):
        length, _ = networkx.single_source_dijkstra(graph, source, weight="latency")
        for c, target in enumerate(brokers):
            nodes = walk(topology, found, a, c)
            assert nodes[-1] == target
            assert found.latency[a, c] == pytest.approx(length[target], abs=1e-9)
            assert topology.latency[found.path(a, c)].sum() == pytest.approx(length[target], abs=1e-9)
            assert len(found.path(a, c)) == len(nodes) - 1


@given(cases())
def test_of_equally_fast_paths_each_step_back_goes_to_the_lowest_node(case: tuple[Topology, list[int]]) -> None:
    topology, brokers = case
    found = routes(topology, np.array(brokers))
    graph = topology.to_networkx()
    for a, source in enumerate(brokers):
        length, _ = networkx.single_source_dijkstra(graph, source, weight="latency")
        for c in range(len(brokers)):
            nodes = walk(topology, found, a, c)
            for before, at in pairwise(nodes):
                fast = [u for u in graph[at] if length[u] + graph.edges[u, at]["latency"] == length[at]]
                assert before == min(fast)


@given(cases())
def test_the_nearest_broker_is_the_lowest_of_the_nearest(case: tuple[Topology, list[int]]) -> None:
    topology, brokers = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "CHUNK", 2)  # so that ties fall into one chunk and into two
        found = routes(topology, np.array(brokers))
    lengths = [
        networkx.single_source_dijkstra_path_length(topology.to_networkx(), b, weight="latency") for b in brokers
    ]
    for node in range(topology.nodes):
        least = min(length[node] for length in lengths)
        tied = [b for b, length in enumerate(lengths) if length[node] == least]
        assert found.nearest[node] == tied[0]


def test_chunks_of_sources_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = inet(300, root=3)
    brokers = np.arange(0, 300, 7)
    whole = routes(topology, brokers)
    monkeypatch.setattr(paths, "CHUNK", 4)
    done: list[int] = []
    parts = routes(topology, brokers, done.append)
    assert done == [*range(4, 43, 4), 43]
    for name in ("nodes", "latency", "starts", "links", "nearest"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name)), name


def test_a_single_broker_has_no_way_to_go_and_is_nearest_to_all() -> None:
    found = routes(inet(20), np.array([5]))
    assert found.latency.tolist() == [[0]]
    assert found.starts.tolist() == [0, 0]
    assert len(found.links) == 0
    assert (found.nearest == 0).all()


@pytest.mark.parametrize(
    ("brokers", "message"),
    [
        ([], "at least one broker"),
        ([0, 30], "nodes 0 .. 30, but topology .* has 0 .. 19"),
        ([-1], "nodes -1"),
        ([4, 4], "same node"),
    ],
)
def test_brokers_that_are_not_there_are_refused(brokers: list[int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        routes(inet(20), np.array(brokers, np.int64))


@pytest.mark.slow
def test_twenty_thousand_nodes_and_all_paths_of_a_thousand_brokers_take_less_than_a_minute() -> None:
    begun = perf_counter()
    topology = inet()
    found = routes(topology, np.arange(0, 20_000, 20))
    assert perf_counter() - begun < 60
    assert len(found.starts) == 1_000 * 1_000 + 1
