"""The simulation of transactions with deadlines: by hand, by the invariants of its versions, and its verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hullcast.sim.experiments.studies.scheduling import deadlines
from hullcast.sim.experiments.studies.scheduling.transactions import DeadlineTally, Simulation, Table2, Workload2
from hullcast.sim.experiments.study import Sweep
from hullcast.sim.output.charts import Panel, draw_panels

HERE = Table2(warm_s=0.0)
NO_VIEWS: list[tuple[int, ...]] = []
FIFTY = list(range(50))


def ran(policy: str, load: Workload2, setting: Table2 = HERE) -> DeadlineTally:
    return Simulation(policy, setting, load).run()


@pytest.mark.parametrize("policy", deadlines.POLICIES)
@pytest.mark.parametrize(("deadline", "missed"), [(0.399, 1), (0.401, 0)])
def test_fifty_reads_take_400_ms(policy: str, deadline: float, missed: int) -> None:
    tally = ran(policy, Workload2(60, NO_VIEWS, [], [(0.0, deadline, FIFTY)]))
    assert (tally.transactions, tally.missed, tally.fresh) == (1, missed, 1 - missed)


@pytest.mark.parametrize(("policy", "took_s", "fresh"), [("orad", 0.406, 1), ("queries-first", 0.4, 0)])
def test_an_update_on_demand_takes_an_operation_and_gives_the_latest_version(
    policy: str, took_s: float, fresh: int
) -> None:
    for deadline, met in ((took_s - 0.001, 0), (took_s + 0.001, 1)):
        tally = ran(policy, Workload2(60, NO_VIEWS, [(0.1, 49)], [(0.0, deadline, FIFTY)]))
        assert tally.transactions - tally.missed == met
        assert tally.fresh == met * fresh


@pytest.mark.parametrize(("whole", "took_s"), [(False, 0.422), (True, 0.43)])
def test_a_view_on_demand_is_computed_from_all_parents_or_from_those_that_changed(whole: bool, took_s: float) -> None:
    """The update is applied before it begins; then: a look for the view, one parent or two, a write, and its read."""
    setting = Table2(warm_s=0.0, whole=whole)
    for deadline, met in ((took_s - 0.001, 0), (took_s + 0.001, 1)):
        load = Workload2(60, [(55, 56)], [(0.0, 55)], [(0.0, deadline, [*FIFTY[:-1], 60])])
        tally = ran("orad", load, setting)
        assert tally.fresh == tally.transactions - tally.missed == met


def test_the_earlier_deadline_is_first_and_two_places_do_both() -> None:
    load = Workload2(60, NO_VIEWS, [], [(0.0, 0.85, FIFTY), (0.1, 0.55, FIFTY)])
    assert ran("orad", load).missed == 0
    both = Workload2(60, NO_VIEWS, [], [(0.0, 0.45, FIFTY), (0.1, 0.55, FIFTY)])
    assert ran("orad", both).missed == 1
    assert ran("orad", both, Table2(warm_s=0.0, places=2)).missed == 0


class _Checked(Simulation):
    def _prune(self) -> None:
        super()._prune()
        self.store.check()


def test_the_rates_of_table_2_make_so_many_versions_as_are_drawn() -> None:
    load = Table2(warm_s=0.0, transactions=2000).load(seed=1)
    seconds, every = load.asked[-1][0], load.objects + len(load.parents)
    assert deadlines.kept(10.0) == pytest.approx(1 + 7.8 * 10 / 6600)
    drawn = len(load.updates) / seconds * 10 / every
    assert deadlines.kept(10.0) - 1 == pytest.approx(drawn, rel=0.1)
    derived = sum(map(len, load.parents)) / load.objects  # views of a base object
    assert deadlines.kept(10.0, views=True) - 1 == pytest.approx(drawn * (1 + derived), rel=0.1)


@pytest.mark.parametrize("policy", ["orad", "odrtb", "odrtb, now"])
@pytest.mark.parametrize(("places", "whole"), [(2, False), (3, True)])
def test_versions_are_sound_throughout_and_every_read_set_is_consistent(policy: str, places: int, whole: bool) -> None:
    setting = Table2(0.5, 4.0, 0.0002, objects=40, places=places, whole=whole, transactions=40, warm_s=5.0)
    load = setting.load(seed=1)
    tally = _Checked(policy, setting, load).run()
    assert tally.transactions == sum(arrived >= 5.0 for arrived, *_ in load.asked)
    assert tally.consistent == tally.transactions - tally.missed > 0
    assert tally.fresh <= tally.recent <= tally.consistent
    if policy == "orad":
        assert tally.recent == tally.consistent, "nothing older than its start"


def test_updates_in_place_give_read_sets_of_no_single_moment() -> None:
    setting = Table2(objects=40, bursts=4.0, places=4, transactions=60, warm_s=5.0)
    tally = ran("updates-first", setting.load(seed=1), setting)
    assert tally.consistent < tally.transactions - tally.missed


def test_claims_are_judged_by_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Path] = []

    def draw(rows: list[list[Panel]], path: Path, **words: Any) -> Path:
        """Those that differ in form, once: drawing takes a second each."""
        if path not in drawn and path.stem in ("deadlines-arrivals", "deadlines-memory"):
            drawn.append(draw_panels(rows, path, **words))
        return path

    monkeypatch.setattr(deadlines, "draw_panels", draw)
    good = {"miss": 0.01, "success": 0.9, "versions": 1.0, "looks": 1.0}
    bad = {"miss": 0.2, "success": 0.5, "versions": 2.5, "looks": 3.5}
    rest = {"recent": 0.9, "consistent": 1.0, "updates on demand": 0.1, "views on demand": 0.1}
    for orad, odrtb in ((good, bad), (bad, good)):
        rows = [
            {**point, "seed": 0, **rest, **(orad if point["policy"] == "orad" else odrtb)}
            for point in deadlines.points(quick=True)
        ]
        sections = {section.name: section for section in deadlines.sections(Sweep(rows), tmp_path)}
        right = orad is good
        for section in sections.values():
            for claim in section.claims:
                if claim.incomparable:
                    assert "without its pictures" in claim.verdict
                elif any(words in claim.statement for words in ("than by odrtb", "objects: ", "2 %")):
                    assert claim.holds is right, claim
    assert all(path.stat().st_size for path in drawn)
    assert len(drawn) == 2
