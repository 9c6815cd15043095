"""The gate before the server: nobody overtakes, and nobody who gave up is waited for."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from hullcast.clients.sdk.publishing import Gate


class Callers:
    """Callers that go through a gate in turn, and stay inside until they are let out."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.gate = Gate(most, most_bytes)
        self.passed: list[int] = []
        self.inside: dict[int, asyncio.Event] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    def call(self, number: int, size: int = 1) -> None:
        self.tasks[number] = asyncio.create_task(self._call(number, size), name=f"test.caller {number}")

    async def _call(self, number: int, size: int) -> None:
        with self.gate.turn() as turn:
            await turn.come()
            async with self.gate.passing(size):
                self.passed.append(number)
                turn.end()
                self.inside[number] = asyncio.Event()
                try:
                    await self.inside[number].wait()
                finally:
                    del self.inside[number]

    async def settle(self) -> None:
        for _ in range(2 * len(self.tasks) + 10):  # turns of the loop: more than anybody needs
            await asyncio.sleep(0)


async def test_a_newcomer_does_not_overtake_those_who_may_pass_but_have_not_yet() -> None:
    callers = Callers(1, 100)
    for number in range(2):
        callers.call(number)
    await callers.settle()
    assert callers.passed == [0]
    callers.inside[0].set()
    await asyncio.sleep(0)  # the first is out; the second may come in, and its task has not run
    callers.call(2)
    for number in (1, 2):
        await callers.settle()
        callers.inside[number].set()
    await asyncio.gather(*callers.tasks.values())
    assert callers.passed == [0, 1, 2]


@pytest.mark.parametrize("seed", range(20))
async def test_everybody_passes_in_the_order_of_coming_and_within_the_limits(seed: int) -> None:
    rng = Random(seed)
    callers = Callers(4, 10)
    sizes = [rng.choice((1, 2, 5, 30)) for _ in range(60)]
    cancelled: set[int] = set()
    for number, size in enumerate(sizes):
        callers.call(number, size)
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        assert len(callers.inside) <= 4
        assert sum(sizes[one] for one in callers.inside) <= 10 or len(callers.inside) == 1
        if callers.inside and rng.random() < 0.6:
            callers.inside[rng.choice(sorted(callers.inside))].set()
        if rng.random() < 0.2:
            victim = rng.randrange(number + 1)
            callers.tasks[victim].cancel()
            cancelled.add(victim)
    while not all(task.done() for task in callers.tasks.values()):
        await callers.settle()
        for event in list(callers.inside.values()):
            event.set()
    assert callers.passed == sorted(callers.passed)
    assert set(callers.passed) | cancelled == set(range(60))
