"""From a thread that reads to a loop that sends: several batches under way, and how they went."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from hullcast.clients.sdk.client import Receipt

Item = TypeVar("Item")

#: Batches read before they are wanted.
AHEAD = 4
#: Batches sent before the first of them is durable: enough that neither side waits for the other.
IN_FLIGHT = 8


async def read_ahead(items: Iterator[Item], ahead: int = AHEAD) -> AsyncIterator[Item]:
    """What a blocking iterator gives, read by a thread. Whoever stops early must also make the iterator end."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[bool, Item | BaseException | None]] = asyncio.Queue()  # bounded by `room`
    room = threading.Semaphore(ahead)
    stopped = False

    def put(more: bool, what: Item | BaseException | None) -> None:
        if not stopped:  # or the loop may be closed by now
            loop.call_soon_threadsafe(queue.put_nowait, (more, what))

    def read() -> None:
        try:
            for item in items:
                room.acquire()
                if stopped:
                    return
                put(True, item)
            put(False, None)
        except BaseException as error:  # noqa: BLE001 - it is raised where the items are taken
            put(False, error)

    thread = threading.Thread(target=read, name="hullcast-read", daemon=True)
    thread.start()
    try:
        while True:
            more, what = await queue.get()
            room.release()
            if more:
                yield what  # type: ignore[misc]  # `more` says that it is an item
                continue
            if isinstance(what, BaseException):
                raise what
            return
    finally:
        stopped = True
        room.release()


@dataclass(slots=True)
class Account:
    """What has become durable so far."""

    rows: int = 0
    batches: int = 0
    seq: int = 0

    def add(self, receipt: Receipt, rows: int) -> None:
        """One more batch."""
        self.rows += rows
        self.batches += 1
        self.seq = max(self.seq, receipt.seq)


class Stopped(Exception):
    """One batch failed: which, why (`__cause__`), and what of the others is durable."""

    def __init__(self, item: Any, before: int, after: int) -> None:
        super().__init__(item, before, after)
        self.item, self.before, self.after = item, before, after


async def send_all(
    items: AsyncIterator[Item],
    send: Callable[[Item], Coroutine[Any, Any, Receipt]],
    rows: Callable[[Item], int],
    account: Account,
    in_flight: int = IN_FLIGHT,
) -> None:
    """Send each item in order, several at a time. After a failure, of a batch or of the items, none is begun any more;
    what is on its way is waited for, so that the account is right; then Stopped, or the items' own error, is raised."""
    sending = _Sending[Item](rows, account)
    number = 0
    coming = asyncio.ensure_future(anext(items, None))
    try:
        while not sending.failed:
            room = len(sending.waiting) < in_flight
            await asyncio.wait(
                (*sending.waiting, coming) if room else sending.waiting, return_when=asyncio.FIRST_COMPLETED
            )
            sending.settle()
            if room and coming.done():
                item = None if coming.exception() else coming.result()
                if item is None:
                    break
                sending.waiting[asyncio.create_task(send(item), name=f"send {number}")] = (number, item)
                number += 1
                coming = asyncio.ensure_future(anext(items, None))
        if sending.waiting:
            await asyncio.wait(sending.waiting)
            sending.settle()
    finally:
        coming.cancel()
        for task in sending.waiting:
            task.cancel()
        await asyncio.gather(coming, *sending.waiting, return_exceptions=True)
    sending.check()
    if not coming.cancelled() and (error := coming.exception()) is not None:
        raise error


class _Sending(Generic[Item]):
    """What is on its way, and what became of it."""

    def __init__(self, rows: Callable[[Item], int], account: Account) -> None:
        self.waiting: dict[asyncio.Task[Receipt], tuple[int, Item]] = {}
        self.failed: dict[int, tuple[Item, BaseException]] = {}
        self._rows = rows
        self._account = account
        self._early: dict[int, int] = {}  # rows that are durable while an earlier batch is not (yet)

    def settle(self) -> None:
        """Take in what is done."""
        for task in [task for task in self.waiting if task.done()]:
            place, item = self.waiting.pop(task)
            if (error := task.exception()) is not None:
                self.failed[place] = (item, error)
            else:
                self._account.add(task.result(), self._rows(item))
                self._early[place] = self._rows(item)
        open_places = [place for place, _ in self.waiting.values()] + list(self.failed)
        first_open = min(open_places, default=None)
        self._early = {
            place: rows for place, rows in self._early.items() if first_open is not None and place > first_open
        }

    def check(self) -> None:
        """Raise the first failure, if there is one."""
        if self.failed:
            item, error = self.failed[min(self.failed)]
            after = sum(self._early.values())
            raise Stopped(item, self._account.rows - after, after) from error
