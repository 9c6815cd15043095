"""Measures beside graphs counted by hand, beside networkx, and beside the figures known of real files."""

from __future__ import annotations

from math import isnan

import networkx
import numpy as np
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.topology.files import read_topology
from hullcast.sim.topology.graph import Topology
from hullcast.sim.topology.inet import inet
from hullcast.sim.topology.measures import ccdf, hop_counts, local_clustering, measure, slope
from tests.support.shared_data import shared


def test_a_triangle_with_a_tail_is_measured_as_by_hand() -> None:
    #  0 - 1        degrees 2 2 3 1; paths: 0-1 0-2 1-2 2-3 are 1, 0-3 1-3 are 2
    #   \ /         clustering 1, 1 and 1/3
    #    2 - 3
    topology = Topology.from_networkx(networkx.Graph([(0, 1), (1, 2), (0, 2), (2, 3)]), "tail")
    measures = measure(topology)
    assert (measures.nodes, measures.links, measures.mean_degree) == (4, 4, 2.0)
    assert measures.largest == (3, 2, 2)
    assert measures.degree_one_share == 0.25
    assert measures.mean_path == pytest.approx(8 / 6)
    assert measures.clustering == pytest.approx(7 / 9)
    assert isnan(measures.ccdf_slope)  # one point is no line
    assert hop_counts(topology).tolist() == [4, 8, 4]


def test_a_network_of_one_node_has_neither_paths_nor_clustering() -> None:
    measures = measure(inet(1))
    assert measures.largest == (0,)
    assert isnan(measures.mean_path)
    assert isnan(measures.clustering)


@pytest.mark.parametrize("seed", range(4))
def test_paths_and_clustering_are_those_of_networkx(seed: int) -> None:
    topology = inet(150, root=seed)
    graph = topology.to_networkx()
    measures = measure(topology, sources=150)
    assert measures.mean_path == pytest.approx(networkx.average_shortest_path_length(graph))
    near = topology.neighbours()
    expected = networkx.clustering(graph)
    assert local_clustering(near.starts, near.node) == pytest.approx([expected[v] for v in range(150)])
    inner = [expected[v] for v in graph if graph.degree[v] > 1]
    assert measures.clustering == pytest.approx(sum(inner) / len(inner))


def test_sampled_paths_come_near_to_all_and_depend_on_the_seed() -> None:
    topology = inet(2_000)
    exact, *sampled = (
        measure(topology, sources=k, root=root).mean_path for k, root in ((2_000, 0), (200, 1), (200, 2))
    )
    assert sampled[0] != sampled[1]
    assert sampled == pytest.approx([exact] * 2, abs=0.15)


def test_paths_need_a_source() -> None:
    with pytest.raises(UsageError, match="at least one source"):
        measure(inet(20), sources=0)


def test_the_ccdf_is_the_share_of_nodes_with_more_links() -> None:
    degree, share = ccdf(np.array([1, 1, 2, 5]))
    assert degree.tolist() == [1, 2, 5]
    assert share == pytest.approx([0.5, 0.25, 0])


def test_the_slope_of_a_power_law_is_its_exponent_and_hubs_do_not_bend_it() -> None:
    degree = np.arange(1, 1_001)
    share = np.asarray(0.5 * degree**-1.3, np.float64)
    share[0], share[200:] = 0.9, 1e-9
    assert slope(degree, share) == pytest.approx(-1.3)
    assert slope(degree, share, (2, 400)) < -2


def test_the_output_of_inet_has_the_figures_known_of_it() -> None:
    measures = measure(read_topology(shared("inet3_reference_n20000_seed0.txt.gz")), sources=1_000)
    assert (measures.nodes, measures.links) == (20_000, 52_593)
    assert measures.largest == (3158, 3129, 2351)
    assert measures.mean_degree == pytest.approx(5.26, abs=0.005)
    assert measures.degree_one_share == pytest.approx(0.315, abs=0.0005)
    assert measures.ccdf_slope == pytest.approx(-1.00, abs=0.005)
    assert measures.mean_path == pytest.approx(3.11, abs=0.02)
    assert measures.clustering == pytest.approx(0.50, abs=0.005)


def test_the_internet_of_2006_has_the_figures_known_of_it() -> None:
    measures = measure(read_topology(shared("as-22july06.edges.txt")), sources=1_000)
    assert (measures.nodes, measures.links) == (22_963, 48_436)
    assert measures.largest[0] == 2390
    assert measures.mean_degree == pytest.approx(4.22, abs=0.005)
    assert measures.degree_one_share == pytest.approx(0.341, abs=0.0005)
    assert measures.ccdf_slope == pytest.approx(-1.07, abs=0.005)
    assert measures.mean_path == pytest.approx(3.84, abs=0.02)
    assert measures.clustering == pytest.approx(0.35, abs=0.005)
