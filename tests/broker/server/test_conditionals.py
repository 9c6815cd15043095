"""Conditional subscriptions as the server keeps them: which fires when, whose turn it is, and when each goes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.reformulate.messages import Batch
from hullcast.broker.reformulate.result import Result
from hullcast.broker.scheduling.driver import finish
from hullcast.broker.server.attendance import Attendance
from hullcast.broker.server.conditionals import (
    KEPT_S,
    Conditional,
    Conditionals,
    name_of,
    next_multiple,
)
from hullcast.broker.server.retention import Retention
from hullcast.network.wire.bodies import Group, Trigger
from hullcast.network.wire.errors import ConnectionLost, Overloaded, TableInUse, TooLarge

TABLES = (
    "CREATE TABLE R (K INTEGER PRIMARY KEY, X REAL, Y REAL)",
    "CREATE TABLE S (K INTEGER PRIMARY KEY, Y REAL, Z REAL)",
)
#: A condition of each kind, and its parameters.
CONDITIONS: dict[str, tuple[float, ...]] = {
    "SELECT MIN(Y) FROM R WHERE X BETWEEN ? AND ?": (1, 3),
    "SELECT MAX(Y) FROM R": (),
    "SELECT COUNT(*) FROM R WHERE X > ?": (1,),
    "SELECT SUM(Y) FROM R WHERE X < ?": (3,),
    "SELECT AVG(Y) FROM R": (),
    "SELECT DISTINCT Y FROM R WHERE X BETWEEN ? AND ?": (0, 2),
    "SELECT K, Y FROM R WHERE X = ?": (2,),
    "SELECT R.K, S.K FROM R JOIN S ON R.Y = S.Y WHERE R.X > ? AND S.Z < ?": (0, 3),
}
#: Tables to follow, and what must lie between two runs.
FOLLOWED: dict[tuple[str, ...], float | None] = {("R",): None, ("S", "R"): 1.0}
QUERY = "SELECT COUNT(*) FROM R"


def group_of(
    when: str | None, parameters: tuple[float, ...] = (), every_s: float | None = None, sql: str = QUERY
) -> Group:
    return Group(1, sql, (), 1, trigger=Trigger(when, parameters, every_s))


def following(*tables: str, at_most_every_s: float | None = None) -> Group:
    return Group(1, QUERY, (), 1, trigger=Trigger(tables=tables, at_most_every_s=at_most_every_s))


class Keeping:
    """Conditionals of an engine, and short ways to make and run them."""

    def __init__(self, limit: int = 20) -> None:
        self.engine = ServedEngine()
        for table in TABLES:
            self.engine.execute(table)
        self.attendance = Attendance(
            self.engine, Retention(0), 30.0, lambda _, partitions: np.ones(len(partitions), np.bool_)
        )
        self.all = Conditionals(self.engine, self.attendance, limit, lambda: None)
        self.queued: list[Conditional] = []

    def make(self, group: Group, owner: str = "me", now: float = 0.0, wall: float = 0.0) -> Conditional:
        one = self.all.make(group, owner, now, wall)
        assert group.trigger is not None
        if group.trigger.when is not None:
            self.all.watch(one, finish(self.engine.watching(group.trigger.when, group.trigger.parameters)))
        self.all.follow(one, group.trigger.tables)
        return one

    def upsert(self, table: str, row: dict[str, Any]) -> None:
        self.all.hear(self.engine.upsert(table, [row]), table)

    def next(self, now: float) -> Conditional | None:
        """The first whose time has come. (Whose turn it is among owners, the waiting room says: test_jobs.py.)"""
        self.queued = [one for one in (*self.queued, *self.all.take_due(now)) if one.queued]
        return self.queued.pop(0) if self.queued else None

    def run(self, one: Conditional, now: float = 0.0) -> int | None:
        """One whole run; returns the update that led to it."""
        found = self.next(now)
        assert found is one
        fired = self.all.begun(one, now)
        self.all.ended(one, 0.5, None)
        return fired


SMALL = st.integers(0, 3)


class FiringMachine(RuleBasedStateMachine):
    """For each change of a condition's answer there is a run that begins at that update or later, and each has one."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = Keeping()
        self.updates = Counter[str]()  # of each table
        groups: dict[Group, Any] = {group_of(when, values): when for when, values in CONDITIONS.items()}
        groups |= {following(*tables, at_most_every_s=pause_s): tables for tables, pause_s in FOLLOWED.items()}
        self.ones = {
            self.kept.make(group, f"owner {number % 3}"): what for number, (group, what) in enumerate(groups.items())
        }
        self.now = 0.0
        self.begun: dict[Conditional, float] = {}  # when its last run began
        self.answers = {one: self.answer(one) for one in self.ones}
        self.changed: dict[Conditional, int] = dict.fromkeys(self.ones, 0)  # the last change of its answer
        self.changes: dict[Conditional, int] = dict.fromkeys(self.ones, 0)
        self.seen: dict[Conditional, int] = dict.fromkeys(self.ones, 0)  # where its last good run began
        self.chosen: list[Conditional] = []  # they have their turn, and have not begun
        self.running: dict[Conditional, tuple[int, int | None]] = {}  # begun at, fired

    def answer(self, one: Conditional) -> Any:
        what = self.ones[one]
        if isinstance(what, tuple):
            return self.updates["R"] * ("R" in what) + self.updates["S"] * ("S" in what)
        return sorted(map(repr, self.kept.engine.query(what, *CONDITIONS[what])))

    def after_update(self, table: str, batch: Batch) -> None:
        self.kept.all.hear(batch, table.lower())
        self.updates[table] += len(batch)
        seq = self.kept.engine.seq
        for one, before in self.answers.items():
            self.answers[one] = now = self.answer(one)
            if now != before:
                self.changed[one] = seq
                self.changes[one] += 1

    @rule(table=st.sampled_from("RS"), key=SMALL, one=SMALL, other=SMALL, turn=st.booleans())
    def publish(self, table: str, key: int, one: int, other: int, turn: bool) -> None:
        if turn:
            self.choose()
        names = ("X", "Y") if table == "R" else ("Y", "Z")
        row = {"K": key, names[0]: one, names[1]: other}
        self.after_update(table, self.kept.engine.upsert(table, [row]))

    @rule(table=st.sampled_from("RS"), key=SMALL)
    def delete(self, table: str, key: int) -> None:
        self.after_update(table, self.kept.engine.delete(table, [key]))

    @rule()
    def deliver(self) -> None:
        self.kept.engine.pass_number()

    @rule(seconds=st.sampled_from((0.3, 1.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def choose(self) -> None:
        one = self.kept.next(self.now)
        if one is not None:
            assert one not in self.running, "C2"
            assert one not in self.chosen, "C2"
            self.chosen.append(one)

    @precondition(lambda self: self.chosen)
    @rule()
    def begin(self) -> None:
        one = self.chosen.pop()
        pause_s = one.trigger.at_most_every_s
        assert pause_s is None or self.now - self.begun.get(one, -99.0) >= pause_s, "too early"
        self.begun[one] = self.now
        fired = self.kept.all.begun(one, self.now)
        assert fired is not None, "a run for no reason"
        assert not one.due, "it sees all there is to see"
        assert fired >= self.changed[one] > self.seen[one] or "JOIN" in self.ones[one]
        self.running[one] = (self.kept.engine.seq, fired)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), good=st.booleans())
    def end(self, data: st.DataObject, good: bool) -> None:
        one = data.draw(st.sampled_from(list(self.running)))
        began, fired = self.running.pop(one)
        if good:
            self.kept.all.ended(one, 0.1, None)
            self.seen[one] = began
        else:
            self.begun.pop(one, None)  # it gave no result, and may be tried at once
            self.kept.all.put_back(one, fired, self.now)

    @invariant()
    def all_changes_are_seen_or_will_be(self) -> None:
        self.kept.all.check()
        for one, changed in self.changed.items():
            began, _ = self.running.get(one, (0, None))
            will_see = one.due or one in self.chosen
            assert self.seen[one] >= changed or began >= changed or will_see, (self.ones[one], "C1")
            if not one.due and not one.serving:
                assert one.fired is None
            if isinstance(self.ones[one], tuple):
                assert one.counts.fires <= self.changes[one], "changes that it has not seen yet count once"
            elif "JOIN" not in self.ones[one]:  # one that exchanges equal pairs may fire for nothing
                assert one.counts.fires == self.changes[one], self.ones[one]
            else:
                assert one.counts.fires >= self.changes[one]

    def teardown(self) -> None:
        for one in (*self.running, *self.chosen):
            self.kept.all.ended(one, 0.0, None)
        for one in self.ones:
            self.kept.all.remove(one)
        assert not list(self.kept.engine._channels), "conditions and results leave nothing open"
        self.kept.all.check()


FiringMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFiring = FiringMachine.TestCase


def test_changes_while_it_runs_lead_to_one_more_run_for_all_of_them() -> None:
    kept = Keeping()
    one = kept.make(group_of("SELECT COUNT(*) FROM R"))
    kept.upsert("R", {"K": 1})
    assert kept.next(0.0) is one
    assert kept.all.begun(one, 0.0) == 1
    for key in (2, 3, 4):
        kept.upsert("R", {"K": key})
    assert kept.next(0.0) is None, "it is under way"
    kept.all.ended(one, 0.1, None)
    assert kept.run(one) == 4
    assert kept.next(0.0) is None
    assert (one.counts.fires, one.counts.runs) == (4, 2)


def test_a_change_before_the_run_begins_leads_to_no_other_run() -> None:
    kept = Keeping()
    one = kept.make(group_of("SELECT COUNT(*) FROM R"))
    kept.upsert("R", {"K": 1})
    assert kept.next(0.0) is one
    kept.upsert("R", {"K": 2})
    assert kept.all.begun(one, 0.0) == 2
    kept.all.ended(one, 0.1, None)
    assert kept.next(0.0) is None


def test_those_that_fired_first_run_first_and_a_batch_fires_once() -> None:
    kept = Keeping()
    ones = [kept.make(group_of("SELECT COUNT(*) FROM R WHERE X > ?", (bound,))) for bound in (0, 1, 2)]
    kept.upsert("R", {"K": 1, "X": 1})
    kept.all.hear(kept.engine.upsert("R", [{"K": 2, "X": 2}, {"K": 3, "X": 3}, {"K": 3, "X": 4}]), "R")
    assert [one.counts.fires for one in ones] == [2, 1, 1]
    assert kept.run(ones[0]) == 3
    assert {kept.next(0.0), kept.next(0.0)} == set(ones[1:])


def test_any_change_of_a_table_fires_those_who_follow_it_and_no_other() -> None:
    kept = Keeping()
    both, one = kept.make(following("R", "S")), kept.make(following("s"))
    kept.upsert("R", {"K": 1})
    assert kept.run(both) == 1
    kept.upsert("S", {"K": 1})
    kept.upsert("R", {"K": 1})  # as it was
    assert [kept.next(0.0), kept.next(0.0)] == [both, one]
    assert [kept.all.begun(both, 0.0), kept.all.begun(one, 0.0)] == [3, 2]
    for found in (both, one):
        kept.all.ended(found, 0.1, None)
    kept.all.hear(kept.engine.upsert("R", [{"K": 2}]), None)
    assert kept.next(0.0) is None
    kept.all.check()


def test_what_a_batch_costs_does_not_depend_on_how_many_follow_its_table() -> None:
    kept = Keeping(limit=200)
    ones = [kept.make(following("R", at_most_every_s=1.0 + i), f"owner {i}") for i in range(100)]
    for key in range(5):
        kept.upsert("R", {"K": key})
    assert [one.counts.fires for one in ones] == [1] * 100, "due already: nobody looks at them again"
    assert kept.next(0.0) is ones[0]
    assert kept.all.begun(ones[0], 0.0) == 5


def test_changes_within_the_pause_lead_to_one_run_at_its_end() -> None:
    kept = Keeping()
    one = kept.make(following("R", at_most_every_s=10.0))
    kept.upsert("R", {"K": 1})
    assert kept.run(one, 100.0) == 1
    for key in (2, 3):
        kept.upsert("R", {"K": key})
    assert kept.next(109.0) is None
    assert kept.all.next_time() == 110.0
    assert kept.run(one, 110.0) == 3
    assert kept.all.next_time() is None
    kept.upsert("R", {"K": 4})
    kept.all.want(one)  # somebody waits for it
    assert kept.run(one, 111.0) == 4


def test_updates_while_a_condition_is_being_opened_are_for_the_first_run_to_see() -> None:
    kept = Keeping()
    other = kept.make(group_of("SELECT COUNT(*) FROM R WHERE X > ?", (0,)))
    one = kept.all.make(group_of("SELECT COUNT(*) FROM R WHERE X > ?", (1,)), "me", 0.0, 0.0)
    one.making = True
    watched = finish(kept.engine.watching("SELECT COUNT(*) FROM R WHERE X > ?", (1,)))
    kept.upsert("R", {"K": 1, "X": 2})
    kept.all.expire(1000.0)
    assert one in kept.all, "it may take long"
    kept.all.watch(one, watched)
    one.making = False
    kept.all.want(one)
    assert (other in kept.all, one.counts.fires) == (False, 0)
    assert kept.run(one) is None
    kept.upsert("R", {"K": 2, "X": 2})
    assert kept.run(one) == 2


def test_a_run_that_the_warehouse_refuses_is_tried_later_and_forgets_nothing() -> None:
    kept = Keeping()
    one = kept.make(group_of("SELECT COUNT(*) FROM R"))
    kept.upsert("R", {"K": 1})
    assert kept.next(10.0) is one
    fired = kept.all.begun(one, 0.0)
    kept.all.put_back(one, fired, 11.0)
    assert kept.next(10.5) is None
    assert kept.all.next_time() == 11.0
    assert kept.next(11.0) is one
    assert kept.all.begun(one, 0.0) == 1


# --- periods ---------------------------------------------------------------------------------------------------


@given(wall=st.floats(0, 4e9), period=st.floats(0.1, 1e6))
def test_the_next_multiple_is_behind_now_and_not_more_than_a_period(wall: float, period: float) -> None:
    found = next_multiple(wall, period)
    assert wall < found <= wall + period * (1 + 1e-6) + 1e-6
    assert found / period == pytest.approx(round(found / period), abs=1e-4)


def test_a_period_fires_at_its_multiples_and_once_for_those_that_were_missed() -> None:
    kept = Keeping()
    one = kept.make(group_of(None, every_s=10.0), wall=1003.0)
    assert kept.all.tick(1009.9) == 1010.0
    assert one.counts.fires == 0
    assert kept.all.tick(1010.0) == 1020.0
    assert one.counts.fires == 1
    assert kept.run(one) is None
    assert kept.all.tick(1055.0) == 1060.0  # the process was stopped
    assert one.counts.fires == 2


def test_a_clock_that_is_set_back_does_not_stop_a_period() -> None:
    kept = Keeping()
    one = kept.make(group_of(None, every_s=10.0), wall=5003.0)
    assert kept.all.tick(1003.0) == 1010.0
    assert kept.all.tick(1010.5) == 1020.0
    assert one.counts.fires == 1


def test_a_clock_that_is_corrected_does_not_fire_the_same_multiple_twice() -> None:
    kept = Keeping()
    one = kept.make(group_of(None, every_s=3600.0), wall=3600.0 * 9.5)
    assert kept.all.tick(36000.003) == 39600.0
    assert one.counts.fires == 1
    assert kept.all.tick(35999.993) == 39600.0  # set back by ten milliseconds
    assert kept.all.tick(36000.003) == 39600.0
    assert one.counts.fires == 1
    assert kept.all.tick(39600.0) == 43200.0
    assert one.counts.fires == 2


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0, -86400.0, 86400.0])
def test_after_a_jump_of_the_clock_a_period_neither_storms_nor_falls_silent(jump_s: float) -> None:
    kept = Keeping()
    one = kept.make(group_of(None, every_s=10.0), wall=1e6 + 3.0)
    before = after = 0
    for second in range(1, 200):
        wall = 1e6 + 3.0 + second + (jump_s if second > 100 else 0.0)
        following = kept.all.tick(wall)
        assert following is not None
        assert 0.0 < following - wall <= 15.0
        before, after = (one.counts.fires, 0) if second <= 100 else (before, one.counts.fires - before)
    assert before == 10
    assert after in (10, 11)


def test_a_conditional_may_have_both_a_condition_and_a_period() -> None:
    kept = Keeping()
    one = kept.make(group_of("SELECT COUNT(*) FROM R", every_s=10.0), wall=3.0)
    kept.upsert("R", {"K": 1})
    assert kept.run(one) == 1
    kept.all.tick(10.0)
    assert kept.run(one) is None


# --- which there are -------------------------------------------------------------------------------------------


def test_all_that_says_what_is_run_when_tells_conditionals_apart() -> None:
    groups = [
        group_of("SELECT COUNT(*) FROM R"),
        group_of("SELECT COUNT(*) FROM S"),
        group_of("SELECT COUNT(*) FROM R WHERE X > ?", (1,)),
        group_of("SELECT COUNT(*) FROM R WHERE X > ?", (1.5,)),
        group_of("SELECT COUNT(*) FROM R", every_s=1.0),
        group_of(None, every_s=1.0),
        group_of(None, every_s=2.0),
        group_of(None, every_s=1.0, sql="SELECT * FROM R"),
        Group(1, QUERY, (3,), 1, trigger=Trigger(None, (), 1.0)),
        following("R"),
        following("R", "S"),
        following("R", at_most_every_s=1.0),
    ]
    assert len(set(map(name_of, groups))) == len(groups)
    assert name_of(following("R", "S")) == name_of(following("S", "R", "S"))
    assert name_of(groups[0]) == name_of(group_of("SELECT COUNT(*) FROM R"))


def test_one_owner_has_at_most_half_of_those_there_may_be() -> None:
    kept = Keeping(limit=4)
    for i in range(2):
        kept.make(group_of(None, every_s=1.0 + i), "greedy")
    with pytest.raises(TooLarge, match="different conditional subscriptions of one client"):
        kept.make(group_of(None, every_s=9.0), "greedy")
    for i in range(2):
        kept.make(group_of(None, every_s=20.0 + i), f"other {i}")
    with pytest.raises(Overloaded, match="different conditional subscriptions"):
        kept.make(group_of(None, every_s=9.0), "third")
    assert len(kept.all) == 4


def test_one_without_subscribers_is_kept_for_a_request_and_goes_then() -> None:
    kept = Keeping()
    lonely = kept.make(group_of("SELECT COUNT(*) FROM R"), now=100.0)
    loved = kept.make(group_of("SELECT COUNT(*) FROM S"), now=100.0)
    kept.attendance.attend(loved.channel, None)
    kept.all.expire(100.0 + KEPT_S - 1)
    assert lonely in kept.all
    kept.all.expire(100.0 + KEPT_S)
    assert lonely not in kept.all
    assert loved in kept.all
    kept.upsert("R", {"K": 1})
    assert lonely.counts.fires == 0
    kept.engine.execute("DROP TABLE R")  # nothing of it is left


def test_a_table_can_be_dropped_if_only_deserted_conditions_read_it() -> None:
    kept = Keeping()
    kept.make(following("r"))
    assert kept.all.is_followed("R")
    kept.all.close_now("R", set())
    assert not kept.all.is_followed("R")
    one = kept.make(group_of("SELECT COUNT(*) FROM R"))
    attending = kept.attendance.attend(one.channel, None)
    kept.all.close_now("r", {attending.number})
    with pytest.raises(TableInUse):
        kept.engine.execute("DROP TABLE R")
    kept.all.close_now("S", set())
    assert list(kept.attendance) == [attending]
    kept.all.close_now("r", set())
    kept.engine.execute("DROP TABLE R")
    assert len(kept.attendance) == 0
    kept.all.check()


def test_the_channel_of_a_result_is_one_message_and_the_latest_snapshot() -> None:
    kept = Keeping()
    one = kept.make(group_of(None, every_s=1.0))
    message = one.channel.deliver(Result("text", None, 5.0), 7)
    assert np.asarray(message["seq"]).tolist() == [7]
    assert one.channel.spec.kind == "RESULT"
    first = one.channel.capture(one.attended.predicates)()
    assert first["row.0"] == message["row.0"]
    assert one.channel.points_elsewhere(one.attended.predicates).tolist() == [[0.0]]
    one.channel.deliver(Result("other", 3, 6.0), 8)
    assert np.asarray(one.channel.capture(one.attended.predicates)()["row.1"]).tolist() == [3.0]
    assert one.channel.statistics().messages == 2


def test_status_and_explain_say_what_came_of_each() -> None:
    kept = Keeping()
    group = group_of("SELECT COUNT(*) FROM R")
    assert group.trigger is not None
    assert kept.all.explain(group.sql, (), group.trigger)["made"] is False
    one = kept.make(group)
    kept.upsert("R", {"K": 1})
    kept.run(one)
    kept.all.fire(one, 2)
    kept.next(0.0)
    kept.all.begun(one, 0.0)
    kept.all.ended(one, 1.5, ConnectionLost("x"))
    known = kept.all.status()
    assert (known["fired"], known["runs"], known["failed"], known["took_s"]) == (2, 2, 1, 2.0)
    told = kept.all.explain(group.sql, (), group.trigger)
    assert told["made"]
    assert (told["fired"], told["runs"], told["failed"], told["mean_s"]) == (2, 2, 1, 1.0)
