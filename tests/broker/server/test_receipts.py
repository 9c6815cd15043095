"""Receipts: those of one client leave together, none stays for long, none is lost."""

from __future__ import annotations

import asyncio

from hullcast.broker.server.releases import LAZY_MOST, TOGETHER_MOST, OwedReceipts
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Done, Receipts
from hullcast.network.wire.frames import Reply, Request
from hullcast.network.wire.limits import DEFAULT

HERE, THERE = (1,), (2, 7)


class Sent(list[Reply]):
    """What was answered, as (id, route, changes)."""

    def told(self) -> list[tuple[int, tuple[int, ...], list[tuple[int, int, int]]]]:
        found = []
        for number, route, _, body in self:
            reply = bodies.decode(body)
            changes = (
                list(reply.changes)
                if isinstance(reply, Receipts)
                else [(number, reply.first, reply.last)]
                if isinstance(reply, Done)
                else []
            )
            found.append((number, route, changes))
        self.clear()
        return found


def change(number: int, route: tuple[int, ...] = HERE, *, lazy: bool = False) -> tuple[Request, Done]:
    return Request(number, route, None, b"", lazy=lazy), Done(10 * number, 10 * number + 1)


async def test_receipts_of_one_client_leave_in_one_reply() -> None:
    sent = Sent()
    receipts = OwedReceipts(sent.append)
    for number in (3, 4, 5):
        receipts.owe(*change(number))
    receipts.owe(*change(9, THERE))
    assert not sent
    receipts.settle()
    assert sorted(sent.told()) == [
        (5, HERE, [(3, 30, 31), (4, 40, 41), (5, 50, 51)]),
        (9, THERE, [(9, 90, 91)]),
    ]


async def test_what_nobody_waits_for_leaves_with_what_somebody_does() -> None:
    sent = Sent()
    receipts = OwedReceipts(sent.append)
    receipts.owe(*change(1, lazy=True))
    receipts.owe(*change(2, THERE, lazy=True))
    receipts.settle()
    assert not sent
    receipts.owe(*change(3))
    receipts.settle()
    assert sent.told() == [(3, HERE, [(1, 10, 11), (3, 30, 31)])]
    receipts.close()
    assert sent.told() == [(2, THERE, [(2, 20, 21)])]


async def test_many_that_nobody_waits_for_leave_at_once() -> None:
    sent = Sent()
    receipts = OwedReceipts(sent.append)
    for number in range(1, LAZY_MOST + 1):
        receipts.owe(*change(number, lazy=True))
        receipts.settle()
        assert bool(sent) == (number == LAZY_MOST)
    ((_, _, changes),) = sent.told()
    assert len(changes) == LAZY_MOST


async def test_one_that_nobody_waits_for_leaves_when_its_time_has_come() -> None:
    sent, came = Sent(), asyncio.Event()

    def take(reply: Reply) -> None:
        sent.append(reply)
        came.set()

    receipts = OwedReceipts(take)
    for number in (1, 2):
        receipts.owe(*change(number, lazy=True))
        receipts.settle()
        async with asyncio.timeout(20):
            await came.wait()
        came.clear()
        assert [told[0] for told in sent.told()] == [number]


async def test_as_many_as_a_slow_disk_lets_gather_leave_in_replies_that_every_receiver_takes() -> None:
    sent = Sent()
    receipts = OwedReceipts(sent.append)
    count = DEFAULT.objects // 3 + 1  # more than one frame may have
    for number in range(1, count + 1):
        receipts.owe(Request(number, HERE, None, b""), Done(number, number))
    receipts.settle()
    told = sent.told()
    assert [change for _, _, changes in told for change in changes] == [(n, n, n) for n in range(1, count + 1)]
    assert all(number == changes[-1][0] and len(changes) <= TOGETHER_MOST for number, _, changes in told)
