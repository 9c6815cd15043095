"""Topologies from any links: what is left out, what is refused, and networkx both ways."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.wire.errors import UsageError
from hullcast.sim.topology.graph import Topology, make_topology

Links = list[tuple[int, int]]


def made(nodes: int, links: Links, latency: list[float] | None = None, *, largest: bool = False) -> Topology:
    ends = np.array(links, np.int64).reshape(-1, 2)
    given = None if latency is None else np.array(latency, np.float64)
    return make_topology("test", nodes, ends[:, 0], ends[:, 1], latency=given, largest=largest)


def listed(topology: Topology) -> list[tuple[int, int, float]]:
    return list(zip(topology.source.tolist(), topology.target.tolist(), topology.latency.tolist(), strict=True))


def test_links_come_in_order_without_loops_and_of_equal_ones_the_fastest_stays() -> None:
    topology = made(3, [(2, 1), (1, 1), (1, 0), (0, 1), (1, 2)], [9, 1, 7, 3, 8])
    assert listed(topology) == [(0, 1, 3), (1, 2, 8)]
    assert topology.degrees().tolist() == [1, 2, 1]


def test_latency_is_the_distance_without_its_fraction_and_at_least_one() -> None:
    x, y = np.array([0.0, 3.0, 3.0]), np.array([0.0, 4.9, 4.5])
    topology = make_topology("test", 3, np.array([0, 1]), np.array([1, 2]), places=(x, y))
    assert topology.latency.tolist() == [5, 1]  # 5.75 and 0.4


def test_a_graph_in_pieces_is_refused_and_says_how_large_they_are() -> None:
    with pytest.raises(UsageError, match=r"3 components of 3, 2, 1 nodes"):
        made(6, [(0, 5), (1, 2), (2, 4)])


def test_of_several_pieces_the_largest_can_be_kept_and_nodes_keep_their_order() -> None:
    topology = made(6, [(0, 5), (1, 2), (4, 2)], [3, 4, 5], largest=True)
    assert listed(topology) == [(0, 1, 4), (1, 2, 5)]
    assert topology.nodes == 3


@pytest.mark.parametrize("latency", [0.0, 0.5, -3.0, float("nan"), float("inf")])
def test_a_link_that_is_free_or_endless_is_refused(latency: float) -> None:
    with pytest.raises(UsageError, match=r"link 1 - 2 of 'test' has latency"):
        made(3, [(0, 1), (1, 2)], [1.0, latency])


def test_no_nodes_are_no_topology_but_one_is() -> None:
    with pytest.raises(UsageError, match="no nodes"):
        made(0, [])
    assert made(1, []).links == 0


@given(
    st.integers(2, 9).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
    )
)
def test_neighbours_degrees_and_pieces_are_those_of_networkx(case: tuple[int, Links]) -> None:
    nodes, links = case
    graph = networkx.Graph([(a, b) for a, b in links if a != b])
    graph.add_nodes_from(range(nodes))
    if not networkx.is_connected(graph):
        with pytest.raises(UsageError, match="not connected"):
            made(nodes, links)
        return
    topology = made(nodes, links)
    near = topology.neighbours()
    for v in range(nodes):
        here = slice(near.starts[v], near.starts[v + 1])
        assert near.node[here].tolist() == sorted(graph[v])
        for other, link in zip(near.node[here], near.link[here], strict=True):
            assert {topology.source[link], topology.target[link]} == {v, other}
        assert (near.latency[here] == topology.latency[near.link[here]]).all()
        assert topology.degrees()[v] == graph.degree[v]


def test_a_topology_comes_back_from_networkx_as_it_was() -> None:
    topology = made(4, [(0, 1), (1, 2), (2, 3), (3, 0)], [1, 2.5, 3, 4])
    graph = topology.to_networkx()
    assert graph.nodes[2] == {"x": topology.x[2], "y": topology.y[2]}
    assert graph.edges[1, 2] == {"latency": 2.5}
    back = Topology.from_networkx(graph)
    assert back.name == "test"
    assert listed(back) == listed(topology)
    assert (back.x == topology.x).all()
    assert (back.y == topology.y).all()


def test_a_networkx_graph_without_places_gets_them_by_seed() -> None:
    graph = networkx.path_graph(["a", "b", "c"])
    one, same, other = (Topology.from_networkx(graph, "path", seed=seed) for seed in (1, 1, 2))
    assert (one.x == same.x).all()
    assert (one.x != other.x).any()
    assert (one.latency == np.floor(np.hypot(np.diff(one.x), np.diff(one.y)))).all()


def test_directions_and_parallel_edges_of_networkx_are_merged() -> None:
    graph = networkx.MultiDiGraph()
    graph.add_edge("a", "b", latency=7)
    graph.add_edge("b", "a", latency=3)
    graph.add_edge("a", "b", latency=5)
    assert listed(Topology.from_networkx(graph, "pair")) == [(0, 1, 3)]


def test_an_attribute_that_is_no_number_is_refused() -> None:
    graph = networkx.path_graph(2)
    graph.edges[0, 1]["latency"] = "fast"
    with pytest.raises(UsageError, match="latency of '0 - 1' is 'fast'"):
        Topology.from_networkx(graph, "path")
