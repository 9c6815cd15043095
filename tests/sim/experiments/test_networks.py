"""Subscriptions follow Table 5.1, and fewer are the first of many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hullcast.sim.experiments.traffic.networks import SHORT, Law, build_network, drawn_world, undrawn
from hullcast.sim.experiments.traffic.settings import NetworkSettings
from hullcast.sim.traces.table51 import Workload
from hullcast.sim.traffic.chunk import replay_chunk
from hullcast.sim.traffic.rectangles import Events, StartRows


def test_midpoints_and_lengths_are_those_of_the_table() -> None:
    ranges = Law().ranges(200_000, root=1)
    middle, length = (ranges.low + ranges.high) / 2, ranges.high - ranges.low
    assert (length >= 0).all()
    assert middle.mean() == pytest.approx(5_000, rel=0.01)
    assert middle.std() == pytest.approx(1_500, rel=0.01)
    # N(1000, 1000) drawn again while negative: mean 1000 + 1000 * phi(1) / Phi(1)
    assert length.mean() == pytest.approx(1_287.6, rel=0.01)
    short = SHORT.ranges(100_000, root=1)
    assert (short.high - short.low).std() == pytest.approx(10, rel=0.02)


def test_fewer_are_the_first_of_many() -> None:
    many, few = Law().ranges(1_000, root=2), Law().ranges(10, root=2)
    assert np.array_equal(few.low, many.low[:10])
    assert np.array_equal(few.high, many.high[:10])


def test_the_law_scales_to_another_domain() -> None:
    there, here = Law().over((1.0, 5.0)).ranges(50, root=3), Law().ranges(50, root=3)
    assert there.low == pytest.approx(1.0 + here.low * 4 / 10_000)
    assert there.high == pytest.approx(1.0 + here.high * 4 / 10_000)


def test_the_sample_is_not_the_subscriptions() -> None:
    sample, ranges = Law().sample(root=4), Law().ranges(100, root=4)
    assert not np.isin(ranges.low, sample[:, 0]).any()
    assert np.array_equal(sample, Law().sample(root=4))


def test_networks_replayed_in_one_pass_cost_what_they_cost_alone() -> None:
    settings = NetworkSettings(nodes=60, brokers=8, fanout=3)
    networks = [build_network(replace(settings, seed=seed)) for seed in (0, 1, 2)]
    law, names = Law(), ("can-greedy", "tree-content", "tree-random")
    ranges = law.ranges(300, root=5)
    load = Workload(40, root=1)
    changes = load.changes(80)
    start = StartRows(load.rows.ids, load.rows.x, load.rows.y)
    events = Events(np.arange(80), changes.ids, changes.x, changes.y)
    world = drawn_world(networks, law, ranges, names)
    assert [undrawn(name) for name in world.names] == [(draw, name) for draw in range(3) for name in names]
    together = replay_chunk(start, events, world)
    for draw, network in enumerate(networks):
        alone = replay_chunk(start, events, network.world(law, ranges, names))
        mine = together["placement"] // len(names) == draw
        for column, values in alone.items():
            found = together[column][mine]
            assert np.array_equal(found % len(names) if column == "placement" else found, values), column
    assert drawn_world(networks[:1], law, ranges, names).names == names, "one draw has the names it always had"


def test_where_a_server_is_among_its_brokers() -> None:
    network = build_network(NetworkSettings(nodes=60, brokers=9, fanout=3, seed=4))
    latency = network.routes.latency
    far = [sum(latency[broker]) / 8 for broker in range(9)]
    draw = network.draw()
    assert draw.seed == 4
    assert draw.distance == pytest.approx(far[0])
    assert draw.rank == sum(other < far[0] for other in far[1:]) / 8
    assert draw.quantiles[2] == pytest.approx(sorted(far)[4])
    assert draw.links == pytest.approx(sum(len(network.routes.path(0, broker)) for broker in range(9)) / 8)
