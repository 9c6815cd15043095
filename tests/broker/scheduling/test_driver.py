"""The driver and its policies, by a simulated clock: who is served when, and what became of the work."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.scheduling.driver import Driver, Elsewhere, Until, WhenDone, Work, finish
from hullcast.broker.scheduling.policy import OUTDATED, FairShare, Item, Ready
from hullcast.network.wire.errors import InvariantBroken


class SimulatedClock:
    """Time that passes by nothing but the costs that work claims."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def pass_by(self, cost_s: float) -> None:
        self.time += cost_s


class Fifo:
    """First come, first served: what all else is measured against."""

    def pick(self, items: Iterable[Item], now: float) -> Item:
        return min(items, key=lambda item: item.arrived)

    def served(self, item: Item, seconds: float, now: float) -> None:
        """Nothing is learned."""


class Run:
    """A driver by a simulated clock, and when which work was done."""

    def __init__(self, policy: Any) -> None:
        self.clock = SimulatedClock()
        self.driver = Driver(policy, self.clock)
        self.finished: dict[str, float] = {}

    def put(self, owner: str, name: str, slices: int, cost_s: float) -> None:
        def work() -> Work:
            for _ in range(slices):
                yield cost_s

        self.driver.put(owner, work(), lambda result, error: self.finished.update({name: self.clock.time}))

    def run(self) -> None:
        while len(self.driver):
            self.driver.step()


def test_one_owner_with_much_to_do_does_not_keep_others_waiting() -> None:
    def small_is_done_at(policy: Any) -> float:
        run = Run(policy)
        for i in range(100):
            run.put("greedy", f"g{i}", slices=10, cost_s=0.005)
        run.put("modest", "small", slices=2, cost_s=0.005)
        run.run()
        return run.finished["small"]

    assert small_is_done_at(Fifo()) > 5
    assert small_is_done_at(FairShare()) < 0.05


def test_what_an_owner_was_given_is_forgotten_in_time() -> None:
    policy = FairShare(half_life_s=10)
    run = Run(policy)
    run.put("a", "a", slices=100, cost_s=1.0)
    run.run()
    given = policy.given("a", run.clock.time)
    assert policy.given("a", run.clock.time + 10) == pytest.approx(given / 2)
    assert policy.given("nobody", run.clock.time) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(1, 3)), max_size=12))
def test_all_work_is_done_once_and_in_all_the_time_it_costs(items: list[tuple[str, int, int]]) -> None:
    for policy in (Fifo(), FairShare()):
        run = Run(policy)
        for i, (owner, slices, cost) in enumerate(items):
            run.put(owner, str(i), slices, float(cost))
        run.run()
        assert sorted(run.finished) == sorted(map(str, range(len(items))))
        assert run.clock.time == sum(slices * cost for _, slices, cost in items)


def asks() -> Generator[float | Elsewhere, Any, Any]:
    first = yield lambda: lambda: 20
    yield 0.1
    try:
        yield lambda: lambda: 1 / 0
    except ZeroDivisionError:
        return first + 1
    return None


def test_what_is_done_elsewhere_comes_back_as_a_result_or_as_an_error() -> None:
    results: list[Any] = []
    driver = Driver(Fifo(), SimulatedClock())
    driver.put("a", asks(), lambda result, error: results.append((result, error)))
    while len(driver):
        driver.step()
    assert results == [(21, None)]


def test_work_that_is_elsewhere_waits_without_being_picked() -> None:
    parked: list[tuple[Callable[[], Any], WhenDone]] = []
    driver = Driver(Fifo(), SimulatedClock(), lambda call, done: parked.append((call, done)))
    results: list[Any] = []
    driver.put("a", asks(), lambda result, error: results.append(result))
    driver.step()
    assert driver.idle
    assert len(driver) == 1
    call, done = parked.pop()
    done(call(), None)
    driver.step()
    driver.step()
    _, done = parked.pop()
    done(None, ZeroDivisionError())
    driver.step()
    assert results == [21]


def test_one_owner_has_all_places_elsewhere_but_one_and_nothing_is_taken_before_there_is_a_place() -> None:
    parked: list[tuple[Callable[[], Any], WhenDone]] = []
    driver = Driver(FairShare(), SimulatedClock(), lambda call, done: parked.append((call, done)), places=3)
    taken: list[str] = []
    finished: list[str] = []

    def works(name: str) -> Work:
        def prepare() -> Callable[[], Any]:
            taken.append(name)
            return lambda: name

        finished.append((yield prepare))

    def goes_on() -> None:
        while not driver.idle:
            driver.step()

    items = [driver.put("greedy", works(f"g{i}"), lambda result, error: None) for i in range(4)]
    goes_on()
    assert taken == ["g0", "g1"]
    driver.withdraw(items[0])  # its place is taken as long as it is worked on there
    driver.withdraw(items[2])
    driver.put("modest", works("m"), lambda result, error: None)
    goes_on()
    assert taken == ["g0", "g1", "m"]
    while parked:
        call, done = parked.pop(0)
        done(call(), None)
        goes_on()
    assert taken == ["g0", "g1", "m", "g3"]
    assert finished == ["g1", "m", "g3"]
    assert not len(driver)


def test_what_cannot_be_prepared_is_an_error_of_the_work_that_asked() -> None:
    def prepare() -> Callable[[], Any]:
        raise KeyError

    def works() -> Work:
        with pytest.raises(KeyError):
            yield prepare
        return "went on"

    assert finish(works()) == "went on"
    results: list[Any] = []
    driver = Driver(Fifo(), SimulatedClock())
    driver.put("a", works(), lambda result, error: results.append(result))
    while len(driver):
        driver.step()
    assert results == ["went on"]


def test_an_error_reaches_whoever_waits_and_nobody_else() -> None:
    def fails() -> Work:
        yield 0.1
        raise ValueError("no")

    run = Run(Fifo())
    errors: list[BaseException | None] = []
    run.driver.put("a", fails(), lambda result, error: errors.append(error))
    run.put("b", "other", slices=3, cost_s=1.0)
    run.run()
    assert [type(error) for error in errors] == [ValueError]
    assert "other" in run.finished


def test_withdrawn_work_is_closed_and_never_reported() -> None:
    closed: list[bool] = []

    def works() -> Work:
        try:
            while True:
                yield 0.1
        finally:
            closed.append(True)

    driver = Driver(Fifo(), SimulatedClock())
    item = driver.put("a", works(), lambda result, error: closed.append(False))
    driver.step()
    driver.withdraw(item)
    driver.withdraw(item)
    assert closed == [True]
    assert not len(driver)


def test_work_can_be_finished_at_once() -> None:
    assert finish(asks_kindly()) == 21


def test_work_whose_first_slice_was_done_outside_goes_on_from_there() -> None:
    driver, results = Driver(Fifo(), SimulatedClock()), list[Any]()
    for steps in (1, 2):  # it then wants something done elsewhere, or has just done a slice
        work = asks_kindly()
        yielded = next(work)
        if steps == 2:
            yielded = work.send(20)
        driver.put("a", work, lambda result, error: results.append((result, error)), yielded)
    while len(driver):
        driver.step()
    assert results == [(21, None)] * 2


def asks_kindly() -> Work:
    first = yield lambda: lambda: 20
    yield 0.1
    return first + 1


def test_standing_items_take_turns_with_work_that_ends_while_they_are_awake() -> None:
    clock = SimulatedClock()
    driver = Driver(FairShare(), clock)
    served: list[str] = []
    item = Item("standing", 0.0)

    def one_slice() -> float:
        served.append("standing")
        return 0.5

    def work() -> Work:
        for _ in range(2):
            served.append("work")
            yield 0.5

    done: list[object] = []
    driver.wake(item, one_slice)
    driver.wake(item, one_slice)  # it is awake already
    driver.put("work", work(), lambda result, error: done.append(error))
    assert len(driver) == 1
    for _ in range(3):
        driver.step()
    assert sorted(served) == ["standing", "standing", "work"] or sorted(served) == ["standing", "work", "work"]
    while not done:
        driver.step()
    driver.rest(item)
    assert not driver.is_awake(item)
    assert driver.idle
    assert driver.step() is None
    driver.rest(item)
    driver.wake(item, one_slice)
    began = clock.now()
    assert driver.step() == (0.5, began + 0.5)


@given(st.lists(st.tuples(st.sampled_from(["add", "move", "remove", "turn"]), st.integers(0, 5), st.integers(0, 3))))
def test_the_first_that_is_ready_is_the_least_by_the_order_as_of_now(steps: list[tuple[str, int, int]]) -> None:
    items = [Item(str(number), 0.0) for number in range(6)]
    up = 1.0
    ready = Ready(lambda item: (up * item.arrived, item.owner))
    for what, which, arrived in steps:
        item = items[which]
        if what == "add" and item not in ready.items:
            item.arrived = arrived
            ready.add(item)
        elif what == "move":
            item.arrived = arrived
            if item in ready.items:
                ready.add(item)
        elif what == "remove" and item in ready.items:
            ready.remove(item)
        elif what == "turn":
            up = -up
            ready.touch_all()
        if ready.items:
            assert ready.first() is min(ready, key=lambda item: (up * item.arrived, item.owner))


def test_items_that_come_and_go_leave_nothing_behind() -> None:
    ready = Ready(lambda item: item.arrived)
    ready.add(Item("first", 0.0))
    for number in range(1_000):
        item = Item("later", 1.0 + number % 7)
        ready.add(item)
        assert ready.first().owner == "first"
        ready.remove(item)
    assert len(ready._entries) <= 2 + OUTDATED + 1


def test_work_that_waits_for_others_is_not_picked_before() -> None:
    run, there, picked = Run(FairShare()), list[str](), list[str]()

    def waits() -> Work:
        while "bread" not in there:
            picked.append("hungry")
            yield Until(lambda: "bread" in there)
        return "fed"

    def bakes() -> Work:
        yield from [0.001] * 20
        there.append("bread")

    results: list[Any] = []
    hungry = waits()
    run.driver.put("a", hungry, lambda result, error: results.append(result), yielded=next(hungry))
    withdrawn = run.driver.put("a", waits(), lambda result, error: results.append(result))
    run.driver.step()
    run.driver.withdraw(withdrawn)
    assert (run.driver.idle, len(run.driver)) == (True, 1)
    run.driver.put("a", bakes(), lambda result, error: None)
    run.run()
    assert (results, picked) == (["fed"], ["hungry", "hungry"])
    there.clear()
    with pytest.raises(InvariantBroken, match="waits for others"):
        finish(waits())
