"""Every way to find affected select-joins names those that the definition names, each once, as queries come and go."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from hullcast.broker.joins.plan import Arrivals
from hullcast.network.matching.index import PointIndex
from hullcast.sim.joins.selects import JoinFirstEach, SelectJoins, SjJoinFirst, SjSelectFirst
from hullcast.sim.joins.ssi import SjHotspot, Ssi
from tests.broker.joins.test_plans import arriving, boxes, rectangles, rows, table, walked
from tests.support.standing import affected_pairs, joining, tree_of, wanted_pairs

WAYS: tuple[Callable[[], SelectJoins], ...] = (
    SjSelectFirst,
    SjJoinFirst,
    JoinFirstEach,
    Ssi,
    lambda: SjHotspot(0.3, 0.5),
)


@settings(max_examples=60)
@given(there=rows, wanted=rectangles, gone=rectangles, news=arriving)
def test_every_way_names_what_the_definition_names(
    there: list[tuple[float, float]],
    wanted: list[list[float]],
    gone: list[list[float]],
    news: list[tuple[float, float, float]],
) -> None:
    row_groups, row_xs = table(there, 2)
    tree = tree_of(row_groups, row_xs).memory
    arrivals = Arrivals(*table(news, 3))
    every = boxes(gone + wanted)
    ids = np.arange(len(gone), len(every))
    found = joining(row_groups, row_xs, arrivals, boxes(wanted))
    for make in WAYS:
        way = make()
        way.add(np.arange(len(every)), every)
        way.remove(np.arange(len(gone)))
        of, hit = way.affected(tree, arrivals)
        assert (np.diff(of) >= 0).all()
        assert sorted(zip(of.tolist(), hit.tolist(), strict=True)) == affected_pairs(found, ids), way.name
        if isinstance(way, SjHotspot):
            way.check()
            assert way.count_affected(tree, arrivals).tolist() == np.bincount(of, minlength=len(arrivals.xs)).tolist()
        if isinstance(way, JoinFirstEach):
            assert walked(tree, arrivals, way.spans(tree, arrivals)) == wanted_pairs(found)


@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_groups_follow_changes_and_no_index_is_made_anew(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    ends = np.sort(random.integers(0, 200, (2_000, 2, 2)), axis=2)
    ends[:, :, 1] = np.minimum(ends[:, :, 1], ends[:, :, 0] + 20)
    queries = ends.reshape(-1, 4).astype(np.float64)
    tree = tree_of(np.zeros(300), random.integers(0, 200, 300).astype(np.float64)).memory
    arrivals = Arrivals(np.zeros(5), np.zeros(5), random.uniform(0, 200, 5))
    way, other = SjHotspot(alpha), SjSelectFirst()
    for each in (way, other):
        each.add(np.arange(1_500), queries[:1_500])
    monkeypatch.setattr(PointIndex, "_load", None)  # what builds an index from nothing
    monkeypatch.setattr(PointIndex, "_build_anew", None)
    for turn in range(0, 500, 50):
        for each in (way, other):
            each.remove(np.arange(turn, turn + 50))
            each.add(np.arange(1_500 + turn, 1_550 + turn), queries[1_500 + turn : 1_550 + turn])
        named = [set(zip(*map(np.ndarray.tolist, each.affected(tree, arrivals)), strict=True)) for each in (way, other)]
        assert named[0] == named[1]
        way.check()
