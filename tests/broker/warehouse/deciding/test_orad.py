"""ORAD and ODRTB as policies of the warehouse, by a simulated clock."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.warehouse.deciding.board import Feed, Load, Question
from hullcast.broker.warehouse.deciding.policies.orad import PATIENCE_S, Orad, urgency
from hullcast.sim.experiments.studies.scheduling.baselines import POLICIES
from hullcast.sim.experiments.studies.scheduling.simulated import SimulatedWarehouse
from hullcast.sim.experiments.studies.scheduling.validity import OradReading, Reader, Versions

if TYPE_CHECKING:
    from hullcast.broker.warehouse.deciding.board import Task
    from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy

TABLES = ("A", "B", "C")


class _Diary(SimulatedWarehouse):
    """Writes down what begins: loads by table and how far they go, answers by number. A load takes a second."""

    def __init__(self, policy: WarehousePolicy, places: int = 1) -> None:
        super().__init__(policy, places, feeds=[Feed(name) for name in TABLES], load_s=lambda load, board: 1.0)
        self.diary: list[str] = []

    def _begin(self, task: Task, now: float) -> None:
        told = f"{task.table}{task.through}" if isinstance(task, Load) else f"answer {task.question.number}"
        self.diary.append(told)
        super()._begin(task, now)


def question(number: int, *tables: str, at: float, within: float = inf, **terms: object) -> Question:
    return Question(number, "desk", tables, at, at + within, expected_s=1.0, **terms)  # type: ignore[arg-type]  # as given


def asked(warehouse: SimulatedWarehouse, *questions: Question) -> None:
    for each in questions:
        warehouse.ask_at(each.arrived, each)


@pytest.mark.parametrize("name", ["orad", "odrtb"])
def test_a_question_causes_exactly_the_loads_that_it_needs_and_idle_time_the_rest(name: str) -> None:
    warehouse = _Diary(POLICIES[name]())
    asked(warehouse, question(0, "A", at=0.0))  # a second in which updates gather
    for when, table in ((0.1, "B"), (0.2, "C"), (0.3, "A"), (0.4, "A"), (0.5, "B")):
        warehouse.release_at(when, table)
    asked(warehouse, question(1, "A", at=0.6))
    warehouse.run()
    assert warehouse.diary == ["answer 0", "A5", "answer 1", "B5", "C5"]


def test_a_question_of_several_tables_has_them_loaded_to_one_moment_and_no_further() -> None:
    warehouse = _Diary(Orad())
    asked(warehouse, question(0, "A", at=0.0))
    for when, table in ((0.1, "A"), (0.2, "B"), (0.3, "C")):
        warehouse.release_at(when, table)
    asked(warehouse, question(1, "A", "B", at=0.5))
    warehouse.release_at(1.5, "A")  # while A is loaded
    warehouse.release_at(1.6, "B")
    warehouse.run()
    assert warehouse.diary == ["answer 0", "A3", "B3", "answer 1", "A5", "B5", "C5"]


def test_a_consistent_question_at_freshness_0_needs_no_more_than_a_moment_in_common() -> None:
    warehouse = _Diary(Orad())
    asked(warehouse, question(0, "B", at=0.0))
    warehouse.release_at(0.1, "A")
    warehouse.release_at(0.2, "B")
    asked(warehouse, question(1, "B", at=0.3, within=5.0))  # B is loaded through 2 for it
    warehouse.release_at(1.5, "A")
    asked(warehouse, question(2, "A", "B", at=1.6, within=9.0, freshness=0.0, consistent=True))
    warehouse.run()
    assert warehouse.diary == ["answer 0", "B2", "answer 1", "A2", "answer 2", "A3"]


def test_the_earliest_deadline_is_first_and_the_tardy_are_aborted() -> None:
    warehouse = _Diary(Orad())
    asked(
        warehouse,
        question(0, "A", at=0.0),
        question(1, "A", at=0.1),
        question(2, "A", at=0.2, within=9.0),
        question(3, "A", at=0.3, within=2.9),
        question(4, "A", at=0.4, within=0.5),
        question(5, "A", at=0.5, within=8.0, priority=1),
    )
    warehouse.run()
    assert warehouse.diary == [f"answer {number}" for number in (0, 5, 3, 2, 1)]
    assert [each.number for each in warehouse.missed] == [4]


def test_a_question_without_a_deadline_does_not_starve() -> None:
    warehouse = _Diary(Orad())
    asked(warehouse, *(question(1 + number, "A", at=0.9 * number, within=4.0) for number in range(60)))
    asked(warehouse, question(0, "A", at=0.5))
    warehouse.run()
    (when,) = (when for each, when in warehouse.answered if each.number == 0)
    assert PATIENCE_S < when < PATIENCE_S + 3.0
    assert urgency(0, 5.0, 0.0, 1.0) < urgency(0, inf, 0.0, PATIENCE_S - 1) < urgency(0, inf, 1.0, PATIENCE_S - 1)
    assert urgency(0, inf, 0.0, PATIENCE_S) < urgency(0, 5.0, 0.0, 1.0)


def test_idle_time_is_for_what_is_read_often_and_then_for_what_came_first() -> None:
    policy = Orad(cached=1)
    warehouse = _Diary(policy)
    asked(warehouse, question(0, "B", at=0.0), question(1, "C", at=0.1), question(2, "A", at=2.5))
    for when, table in ((0.3, "A"), (0.4, "B"), (0.5, "C")):
        warehouse.release_at(when, table)
    warehouse.run(until=3.0)
    assert warehouse.diary == ["answer 0", "answer 1", "C3", "A3"]
    warehouse.run()
    assert warehouse.diary[4:] == ["answer 2", "B3"]
    assert policy.counters() == {
        "loads on demand": 1,
        "loads in idle time": 2,
        "answers not made fresher for lack of time": 0,
        "tables read often": 1,
    }
    warehouse = _Diary(Orad())
    asked(warehouse, question(0, "B", at=0.0))
    for when, table in ((0.3, "A"), (0.4, "B"), (0.5, "C")):
        warehouse.release_at(when, table)
    warehouse.run()
    assert warehouse.diary == ["answer 0", "B3", "A3", "C3"]


def test_what_need_not_be_fresh_is_made_so_if_there_is_time() -> None:
    for within, loads in ((2.5, ["A1"]), (1.6, [])):
        warehouse = _Diary(Orad())
        for _ in range(5):
            warehouse.board.feeds["A"].cost.learn(1, 1.0)
        asked(warehouse, question(0, "B", at=0.0))
        warehouse.release_at(0.1, "A")
        asked(warehouse, question(1, "A", at=0.9, within=within, freshness=0.5))
        warehouse.run()
        assert warehouse.diary == ["answer 0", *loads, "answer 1", *([] if loads else ["A1"])]


def test_odrtb_takes_tables_as_they_are_until_they_are_ten_seconds_old() -> None:
    warehouse = _Diary(POLICIES["odrtb"]())
    busy = [question(number, "B", at=0.0, within=13.0 + number) for number in range(13)]
    asked(warehouse, *busy)
    warehouse.release_at(0.5, "A")
    asked(warehouse, question(20, "A", at=5.0, within=2.0, freshness=0.5))
    asked(warehouse, question(21, "A", at=11.0, within=2.9, freshness=0.5))
    warehouse.run()
    told = [each for each in warehouse.diary if each in ("A1", "answer 20", "answer 21")]
    assert told == ["answer 20", "A1", "answer 21"]


MOMENTS = st.integers(0, 9).map(float)


@given(
    releases=st.lists(st.tuples(MOMENTS, st.sampled_from(TABLES)), max_size=14),
    questions=st.lists(
        st.tuples(MOMENTS, st.lists(st.sampled_from(TABLES), min_size=2, max_size=3, unique=True)), max_size=5
    ),
    places=st.integers(1, 3),
)
def test_the_moment_that_a_question_is_answered_of_is_one_that_the_paper_allows(
    releases: list[tuple[float, str]], questions: list[tuple[float, list[str]]], places: int
) -> None:
    """The board decides how far tables are loaded; by the paper, `Versions` says which moments are right."""
    warehouse = _ByThePaper(places)
    for when, table in releases:
        warehouse.release_at(when, table)
    asked(warehouse, *(question(number, *tables, at=when) for number, (when, tables) in enumerate(questions)))
    warehouse.run()
    assert len(warehouse.answered) == len(questions)


class _ByThePaper(SimulatedWarehouse):
    """Has a reader of `Versions` for each question, on the clock of sequence numbers. When the first load for it
    begins, it reads the latest version of all tables; if it needs none, those that are loaded."""

    def __init__(self, places: int) -> None:
        super().__init__(Orad(), places, feeds=[Feed(name) for name in TABLES], load_s=lambda load, board: 1.0)
        self.versions: Versions[str] = Versions(OradReading())
        self.of: dict[int, Reader[str]] = {}
        for place, table in enumerate(TABLES):
            self.versions.add(table, place - float(len(TABLES)))

    def _ask(self, question: Question) -> None:
        super()._ask(question)
        self.of[question.number] = self.versions.begin(float(question.seq))

    def _release(self, table: str, rows: int) -> None:
        super()._release(table, rows)
        self.versions.arrive(table, float(self.board.horizon))

    def _begin(self, task: Task, now: float) -> None:
        super()._begin(task, now)
        mine = task.question
        if mine is None:
            return
        reader = self.of[mine.number]
        if isinstance(task, Load):
            for table in mine.tables:
                self.versions.read(reader, table)
        else:
            said = self.board.common(mine.tables)
            assert said is not None
            for table in mine.tables if not reader.reads else ():
                reader.takes(table, next(each for each in self.versions.of(table) if each.begins <= said < each.ends))
            assert reader.begins <= said < reader.ends
            self.versions.end(reader)
        self.versions.prune(float(self.board.horizon))
        self.versions.check()
