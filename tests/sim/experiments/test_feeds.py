"""Feeds: the board's accounting against brute force, and the theorems of Bateni et al. (2009) as properties."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import accumulate, combinations
from math import ceil, inf
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.warehouse.deciding.board import Board, Feed, Load, Question
from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy
from hullcast.sim.experiments.studies.scheduling.baselines import POLICIES, GroupAndRun, Myopic, grouped
from hullcast.sim.experiments.studies.scheduling.feeds import EAGER_LIMIT, eager_bound
from hullcast.sim.experiments.studies.scheduling.simulated import CountedFeed, SimulatedWarehouse, counted

if TYPE_CHECKING:
    from hullcast.broker.warehouse.deciding.board import Task

TABLES = ("A", "B", "C")
FEED_POLICIES = ("fifo", "updates-first", "myopic", "group-and-run")


# -- accounting ------------------------------------------------------------------------------------------------


class _Noted(SimulatedWarehouse):
    """Notes when updates were released, and which of them each load had when it ended."""

    def __init__(self, policy: WarehousePolicy, places: int, alpha: dict[str, float], declared: float | None) -> None:
        feeds = [CountedFeed(name, weight=1.0 + place, period_s=declared) for place, name in enumerate(alpha)]
        super().__init__(policy, places, feeds=feeds, load_s=lambda load, board: alpha[load.table] * covered(load))
        self.released: dict[str, list[float]] = {name: [] for name in alpha}
        self.ends: dict[str, list[tuple[float, int]]] = {
            name: [] for name in alpha
        }  # a load's end, updates in the file then
        self._had: dict[Load, int] = {}

    def _release(self, table: str, rows: int) -> None:
        self.released[table].append(self.now)
        super()._release(table, rows)

    def _begin(self, task: Task, now: float) -> None:
        super()._begin(task, now)
        if isinstance(task, Load):
            self._had[task] = len(self.released[task.table])

    def _end(self, task: Task, took_s: float = 0.0, *, aborted: bool = False) -> None:
        if isinstance(task, Load):
            self.ends[task.table].append((self.now, self._had[task]))
        super()._end(task, took_s, aborted=aborted)


def covered(load: Load) -> float:
    """The length of a load's batch."""
    return load.batch[-1].at - load.batch[0].since


@dataclass
class Brute:
    """What a table's history amounts to, by the definitions, in unit steps of time."""

    staleness: float
    stretch: float
    penalty: float
    low: float


def brute(released: list[float], ends: list[tuple[float, int]], until: int) -> Brute:
    starts = [0.0, *released]  # update n covers the time from starts[n] to released[n]

    def current_at(moment: float) -> float:
        return starts[max((had for end, had in ends if end <= moment), default=0)]

    staleness = sum(second + 0.5 - current_at(second) for second in range(until))  # the middle of a step: it is linear
    stretch, penalty, done = 0.0, 0.0, 0
    for end, had in ends:
        penalty += (end - starts[done]) ** 2
        for update in range(done, had):
            length = released[update] - starts[update]
            stretch = max(stretch, (end - starts[update]) / length if length else 0.0)
        done = had
    return Brute(staleness, stretch, penalty, sum((b - a) ** 2 for a, b in zip(starts, released, strict=False)))


@pytest.mark.parametrize("name", FEED_POLICIES)
@given(
    gaps=st.tuples(*[st.lists(st.integers(0, 3), min_size=3, max_size=8)] * 3),
    alpha=st.tuples(*[st.sampled_from([0, 1, 1, 2, 3])] * 3),
    places=st.integers(1, 4),
    looked=st.integers(0, 8),
    declared=st.sampled_from([None, 2.0]),
)
def test_staleness_stretch_penalty_and_the_lower_bound_are_those_of_brute_force(
    name: str,
    gaps: tuple[list[int], ...],
    alpha: tuple[int, int, int],
    places: int,
    looked: int,
    declared: float | None,
) -> None:
    """Whole numbers throughout, so that releases, beginnings and ends of loads often coincide."""
    speeds = dict(zip(TABLES, map(float, alpha), strict=True))
    warehouse = _Noted(POLICIES[name](), places, speeds, declared)
    for table, of in zip(TABLES, gaps, strict=True):
        for when in accumulate(of):
            warehouse.release_at(float(when), table)
    for until in (looked, looked + 5, None):
        warehouse.run(inf if until is None else float(until))
        now = ceil(warehouse.now)
        assert now == warehouse.now
        for feed in counted(warehouse.board):
            table = feed.name
            truth = brute(warehouse.released[table], warehouse.ends[table], now)
            assert (feed.stretch, feed.penalty, feed.low) == pytest.approx((truth.stretch, truth.penalty, truth.low))
            assert feed.total_staleness(now) == pytest.approx(truth.staleness)
            assert feed.loads == len(warehouse.ends[table])
            # LOW / 2 <= staleness <= penalty / 2 (section 2.2), at any moment: the batch to come is a triangle, too
            assert feed.low / 2 <= feed.total_staleness(now) <= (feed.penalty + (now - feed.current_at) ** 2) / 2
            assert feed.loaded_staleness <= feed.penalty / 2
    assert not any(feed.pending for feed in warehouse.board.feeds.values())


# -- Theorem 3.1 and Corollary 3.2 -----------------------------------------------------------------------------


class _Last(WarehousePolicy):
    """Eager, and otherwise as bad as can be: loads the table that has waited least."""

    name: ClassVar[str] = "last"

    def next(self, board: Board, now: float) -> Task | None:
        feed = max(board.loadable(), key=lambda feed: feed.pending[0].at, default=None)
        return None if feed is None else board.load(feed)


@pytest.mark.parametrize("policy", [Myopic, _Last])
@given(
    lengths=st.lists(st.lists(st.sampled_from([1, 1, 2, 40, 300]), min_size=1, max_size=12), min_size=1, max_size=5),
    places=st.integers(1, 5),
    share=st.sampled_from([0.02, 0.1, 0.2, 0.3, 0.36]),
)
def test_the_penalty_of_eager_schedules_is_within_the_constant_of_theorem_3_1(
    policy: type[WarehousePolicy], lengths: list[list[int]], places: int, share: float
) -> None:
    places = min(places, len(lengths))  # the theorem has p <= t
    alpha = share * places / len(lengths)
    warehouse = loaded(policy(), places, lengths, alpha)
    penalty = sum(feed.penalty for feed in counted(warehouse.board))
    low = sum(feed.low for feed in counted(warehouse.board))
    assert low <= penalty <= eager_bound(alpha, places, len(lengths)) * low


def loaded(policy: WarehousePolicy, places: int, lengths: list[list[int]], alpha: float) -> SimulatedWarehouse:
    """A warehouse that has loaded all updates of tables, of these lengths; what is released in a second takes alpha."""
    feeds = [CountedFeed(str(table), weight=1.0 + table) for table in range(len(lengths))]
    warehouse = SimulatedWarehouse(policy, places, feeds=feeds, load_s=lambda load, board: alpha * covered(load))
    for table, of in enumerate(lengths):
        at = 0.0
        for length in of:
            warehouse.release_at(at := at + length, str(table))
    warehouse.run()
    return warehouse


def test_the_constant_of_theorem_3_1_approaches_1_for_fast_loads_and_ends_at_corollary_3_2s_limit() -> None:
    bounds = [eager_bound(share * 4 / 16, 4, 16) for share in (1e-7, 0.01, 0.1, 0.3, EAGER_LIMIT - 1e-6)]
    assert bounds == sorted(bounds)
    assert bounds[0] == pytest.approx(1, abs=1e-3)
    assert eager_bound(EAGER_LIMIT * 4 / 16, 4, 16) == inf
    for beta, delta in ((0.5, 0.5), (0.8, 0.1), (0.3, 0.9)):  # one admissible pair each
        c = delta**0.5 * (1 - beta) / 3**0.5
        alpha = c / (1 + c) * 4 / 16  # so that alpha / (1 - alpha / (p / t)) is just c p / t
        assert eager_bound(alpha, 4, 16) <= (1 + alpha) ** 2 / beta**4 / (1 - delta) * (1 + 1e-6)


# -- Theorems 4.3 and 5.1 --------------------------------------------------------------------------------------

#: A quasiperiodic table: a period B, and updates of B/2 to B each. Here in sixteenths of B.
QUASIPERIODIC = st.tuples(st.sampled_from([1, 10, 1000]), st.lists(st.integers(9, 16), min_size=1, max_size=10))


@given(
    tables=st.lists(QUASIPERIODIC, min_size=1, max_size=9),
    spare=st.integers(0, 4),
    share=st.sampled_from([0.3, 1.0]),
    declared=st.booleans(),
)
def test_group_and_run_keeps_stretch_below_3_and_weighted_staleness_below_four_and_a_half_times_the_least(
    tables: list[tuple[int, list[int]]], spare: int, share: float, declared: bool
) -> None:
    groups = len({period for period, _ in tables})
    places = 2 * groups + spare
    alpha = share * min((places - groups) / (8 * len(tables)), 1 / 8)
    policy = GroupAndRun()
    feeds = [
        CountedFeed(str(place), weight=1.0 + place % 3, period_s=float(period * 12) if declared else None)
        for place, (period, _) in enumerate(tables)
    ]
    warehouse = SimulatedWarehouse(policy, places, feeds=feeds, load_s=lambda load, board: alpha * covered(load))
    for place, (period, lengths) in enumerate(tables):
        at = 0.0
        for length in lengths:
            at += period * length
            warehouse.release_at(at + 1e-6 * place, str(place))  # the paper: no two at the same moment
    warehouse.run()
    assert policy.counters()["too_few_places"] == 0
    assert max(feed.stretch for feed in feeds) < 3
    total = sum(feed.weight * feed.loaded_staleness for feed in feeds)
    least = sum(feed.weight * feed.low for feed in feeds) / 2
    # The paper's last step takes LOW for the least staleness; it is LOW / 2, so 9 follows, not 4.5. But an update waits
    # for B/6 at most and is loaded in 7/48 B (Lemma 4.2), together 5/8 of its length: 1.625 squared follows.
    assert least <= total <= 1.625**2 * least * (1 + 1e-4) < 4.5 * least


@given(
    lengths=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3),
    places=st.integers(1, 2),
    alpha=st.sampled_from([0.0, 0.25, 1.0, 2.0]),
)
def test_no_schedule_has_less_staleness_than_half_of_low_nor_more_than_the_best(
    lengths: list[list[int]], places: int, alpha: float
) -> None:
    least = best(lengths, places, alpha)
    for policy in (Myopic(), GroupAndRun(), _Last()):
        feeds = counted(loaded(policy, places, lengths, alpha).board)
        low = sum(feed.weight * feed.low for feed in feeds) / 2
        assert low <= least + 1e-9
        assert least <= sum(feed.weight * feed.loaded_staleness for feed in feeds) + 1e-9


@given(lengths=st.lists(st.lists(st.integers(9, 16), min_size=1, max_size=3), min_size=1, max_size=3))
def test_group_and_run_is_within_four_and_a_half_times_the_best_schedule(lengths: list[list[int]]) -> None:
    places, alpha = 2, 1 / (8 * max(len(lengths), 1))
    feeds = counted(loaded(GroupAndRun(), places, lengths, alpha).board)
    assert sum(feed.weight * feed.loaded_staleness for feed in feeds) <= 4.5 * best(lengths, places, alpha)


def best(lengths: list[list[int]], places: int, alpha: float) -> float:
    """The least weighted staleness of any schedule, by trying all, for tables whose updates have these lengths.

    A load that begins neither when an update of its table is released nor when a load ends could begin earlier with the
    same updates. So a schedule is: at each of these moments, which of the tables begin.
    """
    moments = [[float(sum(of[:n])) for n in range(len(of) + 1)] for of in lengths]  # the first n were released then

    def ended(end: float, table: int, before: int, had: int) -> float:
        """What a load adds: the triangle under staleness, less the part of it that is in the next one, too."""
        shared = (end - moments[table][had]) ** 2 if had < len(lengths[table]) else 0.0
        return (1.0 + table) * ((end - moments[table][before]) ** 2 - shared) / 2

    @cache
    def rest(now: float, done: tuple[int, ...], running: tuple[tuple[float, int, int], ...]) -> float:
        """From now on, with so many updates in each file; of loads that run: end, table, updates in its file then."""
        added, files = 0.0, list(done)
        for end, table, had in running:
            if end <= now:
                added += ended(end, table, done[table], had)
                files[table] = had
        running = tuple(load for load in running if load[0] > now)
        out = [max(n for n, at in enumerate(of) if at <= now) for of in moments]
        busy = {table for _, table, _ in running}
        available = [table for table in range(len(lengths)) if out[table] > files[table] and table not in busy]
        coming = [at for of in moments for at in of if at > now]
        least = inf if running or available or coming else 0.0
        for count in range(min(len(available), places - len(running)) + 1):
            for chosen in combinations(available, count):
                begun = tuple(
                    (now + alpha * (moments[table][out[table]] - moments[table][files[table]]), table, out[table])
                    for table in chosen
                )
                after = running + begun
                if after or coming:
                    then = min(coming + [end for end, _, _ in after])
                    least = min(least, rest(then, tuple(files), after))
        return added + least

    return rest(0.0, (0,) * len(lengths), ())


# -- section 4: no constant in general -------------------------------------------------------------------------


@pytest.mark.parametrize("name", FEED_POLICIES)
def test_a_tiny_update_behind_a_huge_one_has_any_stretch_one_likes(name: str) -> None:
    for ratio in (10.0, 1e3, 1e6):
        warehouse = SimulatedWarehouse(
            POLICIES[name](), 4, feeds=[CountedFeed("A")], load_s=lambda load, board: 0.1 * covered(load)
        )
        warehouse.release_at(ratio, "A")
        warehouse.release_at(ratio + 1.0, "A")
        warehouse.run()
        assert warehouse.board.feeds["A"].stretch >= 0.1 * ratio - 1e-6


# -- groups ----------------------------------------------------------------------------------------------------


def test_groups_are_periods_within_a_factor_of_two_and_share_the_places_as_the_paper_says() -> None:
    periods = {"a": 1.0, "b": 2.0, "c": 2.1, "d": 60.0, "e": 100.0, "f": 0.9}
    groups = grouped(periods, 12)
    assert [group.tables for group in groups] == [("f", "a"), ("b", "c"), ("d", "e")]
    assert [group.places for group in groups] == [3, 3, 3]
    assert [group.places for group in grouped({"a": 1.0, "b": 9.0, "c": 9.0, "d": 9.0}, 6)] == [1, 3]
    assert grouped({}, 4) == []


@given(
    periods=st.dictionaries(
        st.text("abcdefgh", min_size=1, max_size=2), st.sampled_from([1, 2, 3, 4, 7, 8, 50]), min_size=1
    ),
    places=st.integers(1, 40),
)
def test_no_more_places_are_given_than_there_are(periods: dict[str, int], places: int) -> None:
    groups = grouped({table: float(period) for table, period in periods.items()}, places)
    assert sorted(table for group in groups for table in group.tables) == sorted(periods)
    for group in groups:
        assert all(group.holds(periods[table]) for table in group.tables)
        assert places < 2 * len(groups) or group.places == ceil(
            (places - len(groups)) * len(group.tables) / len(periods)
        )
    assert sum(group.places for group in groups) <= max(places, len(groups))


def test_long_loads_leave_places_to_short_ones_and_with_too_few_places_it_is_myopic() -> None:
    """Three tables with a period of 100 are ready first, then one with a period of 1."""

    def begun(places: int) -> tuple[list[str], dict[str, float]]:
        board, policy = Board(places), GroupAndRun()
        for name, period in (("x", 100.0), ("y", 100.0), ("z", 100.0), ("fast", 1.0)):
            board.add(Feed(name, period_s=period))
            board.release(name, board.horizon + 1, board.horizon + 1, 1, 1.0 + board.horizon)
        tables = []
        while len(board.running) < places and (load := policy.next(board, 9.0)) is not None:
            assert isinstance(load, Load)
            board.begin(load, 9.0)
            tables.append(load.table)
        return tables, policy.counters()

    assert begun(4) == (["x", "y", "fast"], {"groups": 2.0, "regrouped": 1.0, "too_few_places": 0.0})
    assert begun(3) == (["x", "y", "z"], {"groups": 2.0, "regrouped": 1.0, "too_few_places": 1.0})


def test_a_table_whose_updates_come_at_another_pace_changes_its_group() -> None:
    board, policy = Board(8), GroupAndRun()
    for name in "ab":
        board.add(Feed(name))
    now = 0.0
    for step, groups in ((10.0, 1), (1000.0, 2), (10.0, 1)):
        for _ in range(80):
            for name, at in (("a", 10.0), ("b", step)):
                feed = board.feeds[name]
                now = feed.released_at + at
                seq = board.horizon + 1
                policy.released(feed, board.release(name, seq, seq, 1, now), board, now)
        policy.next(board, now)
        assert policy.counters()["groups"] == groups


def test_questions_get_the_places_that_loads_leave() -> None:
    warehouse = SimulatedWarehouse(GroupAndRun(), 2, feeds=[Feed("A"), Feed("B")], load_s=lambda load, board: 10.0)
    for name in "AB":
        warehouse.release_at(1.0, name)
    for number, priority in enumerate((0, 0, 1)):
        warehouse.ask_at(2.0, Question(number, "desk", ("A",), 2.0, priority=priority, freshness=0.0, expected_s=1.0))
    warehouse.run()
    assert [(question.number, now) for question, now in warehouse.answered] == [(2, 3.0), (0, 4.0), (1, 5.0)]
