"""The generator beside the published formulas, a plain rendering of its three phases, and INET's own output."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import accumulate
from math import log, sqrt
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.seeds import generator
from hullcast.sim.topology.files import read_topology
from hullcast.sim.topology.inet import inet, inet_degrees, join, weights
from hullcast.sim.topology.measures import measure
from tests.support.shared_data import shared

if TYPE_CHECKING:
    from numpy.random import Generator

    from hullcast.network.wire.arrays import Ints


@pytest.mark.parametrize("seed", range(4))
def test_twenty_thousand_nodes_have_the_figures_of_inet(seed: int) -> None:
    measures = measure(inet(root=seed), sources=500)
    assert measures.links == pytest.approx(52_593, abs=5)
    assert measures.mean_degree == pytest.approx(5.26, abs=0.005)
    assert measures.largest == pytest.approx((3158, 3129, 2351), abs=3)
    assert measures.degree_one_share == pytest.approx(0.315, abs=0.001)
    assert measures.ccdf_slope == pytest.approx(-1.00, abs=0.01)
    assert measures.mean_path == pytest.approx(3.11, abs=0.06)
    assert measures.clustering == pytest.approx(0.50, abs=0.025)


def test_the_degrees_are_those_of_inet_but_for_the_stubs_it_left_over() -> None:
    theirs = Counter(read_topology(shared("inet3_reference_n20000_seed0.txt.gz")).degrees().tolist())
    ours = Counter(inet_degrees(20_000).tolist())
    assert ours - theirs == Counter({3: 1})  # one node of degree 3 found a partner for one stub only
    assert theirs - ours == Counter({1: 1})


def test_degrees_by_hand() -> None:
    # 3,037 nodes: month 0, int(0.292 * 3037 + 462) = 1348 of degree 1, so 1689 others; exp(-0.711) = 0.491153
    degrees = Counter(inet_degrees(3_037).tolist())
    assert degrees[1] == 1_348
    assert degrees[2] == int(1_689 - 3_037 * 0.491153 * 2**-1.223)
    assert {684, 374, 263} <= set(degrees)  # int(exp(6.5285) * r^-0.87)
    assert sum(degrees.values()) == 3_037


def test_weights_by_hand() -> None:
    degree, count = np.array([9, 5, 2, 1]), np.array([1, 1, 1, 12])
    table = weights(degree, count)
    assert table[2].tolist()[:3] == [6, 2, 1]  # ln(9/2) = 1.504 / 2 * 9; ln(5/2) < 1, so 5 / 2; 2 / 2
    apart = sqrt(log(9) ** 2 + log(12) ** 2)
    assert table[3, 0] == int(apart / 2 * 9)
    assert table[3, 3] == 1  # never nothing


@pytest.mark.parametrize("nodes", [*range(1, 31), 100, 651, 652, 1_000, 3_036, 3_037, 40_000, 60_000])
def test_any_size_gives_a_simple_connected_graph_with_the_degrees_wanted(nodes: int) -> None:
    topology = inet(nodes, root=nodes)  # make_topology has refused anything that is not connected
    wanted = inet_degrees(nodes)
    assert topology.nodes == nodes
    assert wanted.sum() % 2 == 0
    assert (np.diff(wanted) <= 0).all()
    assert wanted[0] <= nodes - 1
    got = topology.degrees()
    assert (got <= wanted).all()
    assert (wanted - got).sum() <= max(6, 0.001 * wanted.sum())  # stubs that found no partner
    assert (topology.source < topology.target).all()
    assert len(np.unique(topology.source * nodes + topology.target)) == topology.links
    assert topology.latency.min(initial=1) >= 1


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_the_share_of_degree_one_is_as_given(share: float) -> None:
    assert (inet(4_000, degree_one=share).degrees() == 1).mean() == pytest.approx(share, abs=0.002)


def test_a_seed_names_one_network() -> None:
    one, same, other = inet(500, root=1), inet(500, root=1), inet(500, root=2)
    for name in ("x", "y", "source", "target", "latency"):
        assert np.array_equal(getattr(one, name), getattr(same, name))
        assert not np.array_equal(getattr(one, name), getattr(other, name))


def test_nodes_lie_all_over_the_plane_that_is_given() -> None:
    topology = inet(2_000, plane=500)
    for coordinate in (topology.x, topology.y):
        assert (coordinate == np.floor(coordinate)).all()
        assert 0 <= coordinate.min() < 10
        assert 490 < coordinate.max() < 500
        assert np.histogram(coordinate, 4)[0] == pytest.approx([500] * 4, abs=100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 0}, r"must have 1 to .* nodes, got 0"),
        ({"nodes": 10**7}, "nodes, got 10,000,000"),
        ({"degree_one": 1.0}, "below 1, got 1.0"),
        ({"degree_one": -0.1}, "at least 0 and below 1, got -0.1"),
        ({"degree_one": float("nan")}, "got nan"),
        ({"nodes": 100, "degree_one": 0.97}, "can take only"),
        ({"plane": 0.0}, "side of the plane is 0.0"),
    ],
)
def test_what_no_network_can_be_is_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        inet(**arguments)  # type: ignore[arg-type]  # ints among floats


def plain_weights(degrees: list[int]) -> list[list[int]]:
    """How much each node wants each other, as it is written down."""
    frequency = Counter(degrees)

    def weight(di: int, dj: int) -> int:
        apart = sqrt(log(di / dj) ** 2 + log(frequency[di] / frequency[dj]) ** 2)
        return max(1, int(max(1, apart) / 2 * dj))

    return [[weight(di, dj) for dj in degrees] for di in degrees]


def plainly(degrees: list[int], weight: list[list[int]], random: Generator) -> set[tuple[int, int]]:
    """The three phases as they are written down, a weight per node."""
    free = list(degrees)
    links: set[tuple[int, int]] = set()

    def choose(i: int, candidates: list[int]) -> None:
        below = list(accumulate(weight[i][j] for j in candidates))
        j = candidates[bisect_right(below, int(random.integers(below[-1])))]
        free[i] -= 1
        free[j] -= 1
        links.add((min(i, j), max(i, j)))

    for i in range(1, len(degrees)):
        choose(i, [j for j in range(i) if free[j] > 0])
    for i in range(len(degrees)):
        while free[i] > 0:
            left = [j for j in range(len(degrees)) if j != i and free[j] > 0 and (min(i, j), max(i, j)) not in links]
            if not left:
                break
            choose(i, left)
    return links


@pytest.mark.parametrize("degrees", [[9, 5, 2, *[1] * 12], [6, 4, 4, 3, 3, 3, 2, 2, 2, 1, 1, 1], [4, 3, 3, 2, 2, 2, 2]])
def test_each_link_is_as_likely_as_in_the_plain_rendering(degrees: list[int]) -> None:
    rounds = 2_000
    plain, fast = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    randoms = generator("plain"), generator("fast")
    wanted: Ints = np.array(degrees, np.int64)
    weight = plain_weights(degrees)
    for _ in range(rounds):
        plain.update(plainly(degrees, weight, randoms[0]))
        a, b = join(wanted, randoms[1])
        fast.update(zip(np.minimum(a, b).tolist(), np.maximum(a, b).tolist(), strict=True))
    for link in plain | fast:
        share = (plain[link] + fast[link]) / (2 * rounds)
        deviation = sqrt(2 * share * (1 - share) / rounds)
        assert abs(plain[link] - fast[link]) / rounds <= 5 * deviation, link
