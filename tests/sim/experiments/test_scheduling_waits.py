"""Lemma 4.2 of Bateni et al. (2009) by itself: how long updates wait and all places are busy, against brute force."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from hullcast.sim.experiments.studies.scheduling.baselines import Myopic
from hullcast.sim.experiments.studies.scheduling.feeds import NotedLoad, noting, tight
from hullcast.sim.experiments.studies.scheduling.simulated import CountedFeed

B = 16.0
#: Of a table: the lengths of its updates, from B/2 to B; so few that tables are often ready at nearly the same time.
LENGTHS = st.lists(st.sampled_from([9.0, 12.0, 15.0]), min_size=1, max_size=6)


def simulated(released: list[list[float]], places: int, alphas: list[float]) -> list[NotedLoad]:
    """All loads of the policy that ships."""
    feeds = [CountedFeed(str(table)) for table in range(len(released))]
    warehouse, loads = noting(Myopic(), places, feeds, alphas)
    for table, moments in enumerate(released):
        for moment in moments:
            warehouse.release_at(moment, str(table))
    warehouse.run()
    return loads


def by_definition(released: list[list[float]], places: int, alphas: list[float]) -> list[NotedLoad]:
    """The same by the words of section 4: at each moment at which something is released or ends, an idle processor
    takes the available table whose pending update was released first."""
    loads: list[NotedLoad] = []
    done = [0] * len(released)
    moments = {moment for of in released for moment in of}
    while moments:
        moments.remove(now := min(moments))
        while len(busy := {load.table for load in loads if load.ended > now}) < places:
            pending = [(of[had], table) for table, (of, had) in enumerate(zip(released, done, strict=True))
                       if table not in busy and had < len(of) and of[had] <= now]  # fmt: skip
            if not pending:
                break
            first, table = min(pending)
            begins = [0.0, *released[table]][done[table]]
            done[table] = sum(moment <= now for moment in released[table])
            ended = now + alphas[table] * (released[table][done[table] - 1] - begins)
            loads.append(NotedLoad(table, first, now, ended))
            moments.add(ended)
    return loads


def longest_busy(loads: list[NotedLoad], places: int) -> float:
    """From any moment to any later one between which all places are always busy."""
    moments = sorted({moment for load in loads for moment in (load.began, load.ended)})
    longest = run = 0.0
    for a, b in pairwise(moments):
        run = run + b - a if sum(load.began <= a and b <= load.ended for load in loads) == places else 0.0
        longest = max(longest, run)
    return longest


@given(
    tables=st.lists(st.tuples(LENGTHS, st.sampled_from([0.2, 1.0, 1.0])), min_size=1, max_size=8),
    places=st.integers(1, 8),
)
def test_no_update_waits_and_no_tight_interval_lasts_longer_than_a_sixth_of_the_period(
    tables: list[tuple[list[float], float]], places: int
) -> None:
    places = min(places, len(tables))
    alpha = min(places / (8 * len(tables)), 1 / 8)
    alphas = [alpha * share for _, share in tables]
    released = [[at + 1e-3 * table for at in accumulate(lengths)] for table, (lengths, _) in enumerate(tables)]
    loads = simulated(released, places, alphas)
    assert loads == by_definition(released, places, alphas)
    for table, moments in enumerate(released):  # each update: from its release until the first load that has it begins
        mine = [load for load in loads if load.table == table]
        waits = [min(load.began for load in mine if load.began >= moment) - moment for moment in moments]
        assert max(waits) == max(load.began - load.released for load in mine) <= B / 6
        assert all(a.began <= b.released for a, b in pairwise(mine)), "waits of one table do not overlap (Claim 3.7)"
    assert abs(tight(loads, places) - longest_busy(loads, places)) < 1e-9
    assert tight(loads, places) <= B / 6


def test_waits_are_longer_where_loads_take_longer_than_the_lemma_allows() -> None:
    released = [[12.0 + 1e-3 * table] for table in range(8)]
    loads = simulated(released, 1, [1 / 16] * 8)
    assert max(load.began - load.released for load in loads) > B / 6
    assert tight(loads, 1) > B / 6
