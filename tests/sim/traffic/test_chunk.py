"""Every number that the kernels tell of an event is the one that plain counting gives."""

from __future__ import annotations

import mmap
import pickle
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.network.wire.errors import UsageError
from hullcast.sim.traffic import chunk
from hullcast.sim.traffic.chunk import APPROACHES, COLUMNS, GROUPS, REDUCED, SUMS, ChunkReplay, replay_chunk
from hullcast.sim.traffic.rectangles import Events, StartRows, TableRows
from hullcast.sim.traffic.sending import ALIGNED, packed, unpacked
from hullcast.sim.traffic.world import World
from tests.sim.traffic.worlds import NOWHERE, Change, events_of, expected, small_world, state_of, table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = st.tuples(st.integers(0, 6).map(float), st.integers(0, 4).map(float))
CHANGES = st.lists(st.tuples(st.integers(0, 7), st.just(NOWHERE) | ROWS | ROWS | ROWS), min_size=1, max_size=25)
SEEDS = st.integers(0, 10_000)
NO_STATE = StartRows(np.empty(0, np.int64), np.empty(0), np.empty(0))


@given(seed=SEEDS, changes=CHANGES)
@settings(max_examples=120, deadline=None)
def test_all_metrics_of_all_approaches_and_placements_are_those_of_plain_counting(
    seed: int, changes: list[Change]
) -> None:
    small = small_world(seed)
    columns = replay_chunk(NO_STATE, events_of(changes, first=5), small.world)
    assert table(columns) == expected(small.oracles(), changes, first=5)


@given(seed=SEEDS, changes=CHANGES, cuts=st.sets(st.integers(0, 25), max_size=4))
@settings(max_examples=60, deadline=None)
def test_where_chunks_begin_makes_no_difference(seed: int, changes: list[Change], cuts: set[int]) -> None:
    world = small_world(seed).world
    whole = table(replay_chunk(NO_STATE, events_of(changes), world))
    ends = sorted({0, len(changes), *(cut for cut in cuts if cut < len(changes))})
    pieces = []
    for begin, end in pairwise(ends):
        pieces += table(replay_chunk(state_of(changes[:begin]), events_of(changes[begin:end], begin), world))
    assert pieces == whole


@given(seed=SEEDS, changes=CHANGES, first=st.integers(0, 12), size=st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_it_makes_no_difference_how_many_events_are_played_at_a_time(
    seed: int, changes: list[Change], first: int, size: int
) -> None:
    world, state, events = small_world(seed).world, state_of(changes[:first]), events_of(changes[first:], first)
    replayed, pieces = ChunkReplay(TableRows(state, 8), world), []
    for begin in range(0, len(events), size):
        pieces += table(replayed.play(events.slice(begin, begin + size)).columns())
    assert pieces == table(replay_chunk(state, events, world))


@given(seed=SEEDS, changes=CHANGES)
@settings(max_examples=60, deadline=None)
def test_sums_are_those_of_the_rows(seed: int, changes: list[Change]) -> None:
    costs = ChunkReplay(TableRows(NO_STATE, 8), small_world(seed).world).play(events_of(changes, first=3))
    sums: dict[tuple[Any, ...], list[int]] = {}
    for row in table(costs.columns()):
        cost = dict(zip(COLUMNS, row, strict=True)) | {"events": 1, "ignorable": row[-2] == 0}
        group = sums.setdefault(tuple(cost[name] for name in GROUPS), [0] * (2 + len(SUMS)))
        for place, name in enumerate(("events", "seq", *SUMS)):
            group[place] += cost[name]
    found = costs.reduced()
    assert {name: values.dtype.type for name, values in found.items()} == REDUCED
    rows = zip(*(found[name].tolist() for name in (*GROUPS, "events", "seq", *SUMS)), strict=True)
    listed = [(row[: len(GROUPS)], list(row[len(GROUPS) :])) for row in rows]
    assert dict(listed) == sums
    assert len(listed) == len(sums)


def test_it_makes_no_difference_how_many_subscriptions_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    changes: list[Change] = [
        (int(random.integers(8)), (float(random.integers(7)), float(random.integers(5)))) for _ in range(60)
    ]
    world = small_world(4).world
    whole = table(replay_chunk(NO_STATE, events_of(changes), world))
    assert max(row[-1] for row in whole) > 3
    monkeypatch.setattr(chunk, "ENOUGH", 1)
    assert table(replay_chunk(NO_STATE, events_of(changes), world)) == whole


def test_columns_are_named_and_typed_as_promised_also_without_events() -> None:
    world = small_world(1).world
    for changes in ([], [(0, (1.0, 1.0))]):
        columns = replay_chunk(NO_STATE, events_of(changes), world)
        assert {name: column.dtype.type for name, column in columns.items()} == COLUMNS
        assert list(columns) == list(COLUMNS)
        rows = len(changes) * len(world.placements) * len(APPROACHES)
        assert {len(column) for column in columns.values()} == {rows}


def test_a_change_that_changes_nothing_costs_only_where_the_server_does_not_decide() -> None:
    world, state = small_world(7).world, StartRows(np.array([0]), np.array([3.0]), np.array([2.0]))
    columns = replay_chunk(state, events_of([(0, (3.0, 2.0)), (1, NOWHERE)]), world)
    again, absent = (columns["seq"] == seq for seq in (0, 1))
    relaxed = columns["approach"] == APPROACHES.index("CN")
    assert columns["messages"][again & relaxed].max() > 0
    assert columns["messages"][again & ~relaxed].max() == 0
    assert columns["messages"][absent].max() == 0
    assert not columns["rectangles"].any()


def _by_file(world: World, path: Path) -> World:
    """As Spark does it: the value of a broadcast, pickled to a file of every machine."""
    with path.open("wb") as file:
        pickle.dump(packed(world), file, pickle.HIGHEST_PROTOCOL)
    with path.open("rb") as file:
        copy = unpacked(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    path.unlink()  # as when the broadcast is destroyed
    assert not copy.subscriptions.blocks.flags.owndata, "it lies in the file's own memory"
    for array in (copy.subscriptions.blocks, copy.placements[0].gateways, copy.placements[0].placement.routes.links):
        assert array.ctypes.data % ALIGNED == 0
    return copy


@pytest.mark.parametrize("way", [_by_file, lambda world, path: unpacked(packed(world))])
def test_a_world_that_was_sent_gives_the_same_and_its_arrays_are_shared_and_writable(
    way: Callable[[World, Path], World], tmp_path: Path
) -> None:
    changes: list[Change] = [(key % 5, (float(key % 7), float(key * 3 % 5))) for key in range(30)]
    world = small_world(11).world
    copy = way(world, tmp_path / "broadcast")
    assert table(replay_chunk(NO_STATE, events_of(changes), copy)) == table(
        replay_chunk(NO_STATE, events_of(changes), world)
    )
    assert len({id(placed.placement.routes.links) for placed in copy.placements}) == 1
    assert copy.subscriptions.blocks.flags.writeable  # else kernels would be compiled again
    assert copy.placements[0].gateways.flags.writeable


@pytest.mark.parametrize(
    ("state", "events", "reason"),
    [
        (NO_STATE, Events(np.array([1, 1]), np.array([0, 1]), np.ones(2), np.ones(2)), "1 follows 1"),
        (NO_STATE, Events(np.array([1]), np.array([-3]), np.ones(1), np.ones(1)), "-3"),
        (NO_STATE, Events(np.array([1]), np.array([0]), np.ones(1), np.full(1, np.nan)), r"key 0\) is \(1.0, nan\)"),
        (NO_STATE, Events(np.array([1]), np.array([0]), np.full(1, np.inf), np.ones(1)), r"\(inf, 1.0\)"),
        (NO_STATE, Events(np.array([1]), np.array([0, 1]), np.ones(2), np.ones(2)), "1 sequence numbers for 2"),
        (NO_STATE, Events(np.array([1]), np.array([0]), np.ones(1), np.ones(2)), "differ in length"),
        (StartRows(np.array([2, 2]), np.ones(2), np.ones(2)), events_of([]), "twice"),
    ],
)
def test_columns_that_make_no_sense_are_refused(state: StartRows, events: Events, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        replay_chunk(state, events, small_world(1).world)


def test_a_world_needs_a_gateway_for_every_subscription_and_ranges_that_are_some() -> None:
    small = small_world(1)
    low, high = (np.array(ends) for ends in zip(*small.ranges, strict=True))
    placement, gateways = small.placements[0]
    with pytest.raises(UsageError, match="gateways for"):
        World.of(low, high, [(placement, gateways[1:])])
    with pytest.raises(UsageError, match="must be brokers 0 to"):
        World.of(low, high, [(placement, gateways + 100)])
    with pytest.raises(UsageError, match="must not exceed"):
        World.of(np.array([2.0]), np.array([1.0]), [])
    with pytest.raises(UsageError, match="as many lows as highs"):
        World.of(low, high[1:], [])
