"""Group commit: nothing leaves before it is synced, everything leaves in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hullcast.broker.log.commit_log import CommitLog
from hullcast.broker.log.record import RecordKind
from hullcast.broker.server import pipeline as pipeline_module
from hullcast.broker.server.outcome import LogEntry, Outcome
from hullcast.broker.server.pipeline import STEP_BYTES, Pipeline, Step
from hullcast.network.wire.bodies import Synced
from hullcast.network.wire.errors import DiskFull, LogBroken
from hullcast.network.wire.frames import Request
from tests.support.cluster import wait_for


class SlowLog(CommitLog):
    """A log whose disk answers when told to."""

    def __init__(self) -> None:
        super().__init__(Path("log"))
        self.may_sync = threading.Event()
        self.broken = self.full = False
        self.attempts = 0
        self.groups: list[int] = []

    def write_and_sync(self) -> int:
        number = self.number
        self.may_sync.wait(10)
        self.attempts += 1
        if self.full:
            raise DiskFull("log", 0, 10)
        if self.broken:
            raise LogBroken("log", "no space left")
        self.groups.append(number)
        return number


def step(number: int, *, durable: bool) -> Step:
    entry = LogEntry(RecordKind.BATCH, b"x" * 10, number, 1, bytes(16), number) if durable else None
    return Step(Request(number, (1,), None, b""), Outcome(Synced(number), entry), b"")


def on_disk(number: int) -> Step:
    return Step(Request(number, (1,), None, b""), Outcome(b"rows", on_disk=True), b"rows")


def begun(log: CommitLog, release: Callable[[list[Step]], None], limit_bytes: int) -> Pipeline:
    pipeline = Pipeline(log, limit_bytes)
    pipeline.begin(release)
    return pipeline


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_nothing_leaves_before_the_disk_has_it() -> None:
    log, left = SlowLog(), list[int]()
    pipeline = begun(log, lambda steps: left.extend(s.request.id for s in steps), 1000)
    pipeline.put(step(1, durable=True))
    pipeline.put(step(2, durable=False))  # a read that saw the row must not tell of it either
    await settle()
    assert left == []
    assert pipeline.waiting_bytes == 10 + 2 * STEP_BYTES
    log.may_sync.set()
    await pipeline.stop()
    assert left == [1, 2]
    assert pipeline.waiting_bytes == 0


async def test_what_comes_during_a_sync_makes_the_next_group() -> None:
    log, left = SlowLog(), list[int]()
    pipeline = begun(log, lambda steps: left.extend(s.request.id for s in steps), 1000)
    pipeline.put(step(1, durable=True))
    await settle()
    for number in range(2, 50):
        pipeline.put(step(number, durable=True))
    log.may_sync.set()
    await pipeline.stop()
    assert left == list(range(1, 50))
    assert len(log.groups) == 2


async def test_reads_alone_do_not_wait_for_the_disk() -> None:
    log, left = SlowLog(), list[int]()
    pipeline = begun(log, lambda steps: left.extend(s.request.id for s in steps), 1000)
    pipeline.put(step(1, durable=False))
    await settle()
    assert left == [1]
    await pipeline.stop()


async def test_a_broken_log_ends_the_pipeline_and_releases_nothing() -> None:
    log, left = SlowLog(), list[int]()
    log.broken = True
    log.may_sync.set()
    pipeline = begun(log, lambda steps: left.extend(s.request.id for s in steps), 1000)
    pipeline.put(step(1, durable=True))
    with pytest.raises(LogBroken):
        async with asyncio.timeout(5):
            await pipeline.failed
    pipeline.put(step(2, durable=False))
    await settle()
    assert left == []
    await pipeline.stop()


async def test_a_group_without_room_on_the_disk_waits_and_so_does_all_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline_module, "RETRY_S", 0.001)
    log, left = SlowLog(), list[int]()
    log.may_sync.set()
    log.full = True
    pipeline = begun(log, lambda steps: left.extend(s.request.id for s in steps), 10_000)
    async with asyncio.timeout(10):
        pipeline.put(step(1, durable=True))
        pipeline.put(on_disk(8))
        await wait_for(lambda: pipeline.stuck is not None, "no room")
        assert left == [8]
        pipeline.put(step(2, durable=False))
        pipeline.put(on_disk(9))
        await wait_for(lambda: log.attempts > 3, "more attempts")
        assert (left, pipeline.held, pipeline.failed.done()) == ([8, 9], True, False)
        log.full = False
        await wait_for(lambda: left == [8, 9, 1, 2], "both to leave")
        assert (pipeline.stuck, pipeline.held, pipeline.waiting_bytes) == (None, False, 0)
        log.full = True
        pipeline.put(step(2, durable=True))
        await wait_for(lambda: pipeline.stuck is not None, "no room")
        pipeline.put(step(3, durable=True))
        await pipeline.stop()  # nobody was told of these, and it does not wait for room
    assert left == [8, 9, 1, 2]


async def test_it_says_when_too_much_waits() -> None:
    log = SlowLog()
    pipeline = begun(log, lambda steps: None, 20 + 2 * STEP_BYTES)
    said = [pipeline.full]
    for number in (1, 2):
        pipeline.put(step(number, durable=True))
        said.append(pipeline.full)
    log.may_sync.set()
    await pipeline.stop()
    assert [*said, pipeline.full] == [False, False, True, False]


async def test_what_is_not_for_the_disk_counts_too_while_it_waits() -> None:
    log = SlowLog()
    pipeline = begun(log, lambda steps: None, 10 * STEP_BYTES)
    pipeline.put(step(1, durable=True))
    for number in range(2, 11):
        assert not pipeline.full
        pipeline.put(step(number, durable=False))
    assert pipeline.full
    log.may_sync.set()
    await pipeline.stop()
    assert pipeline.waiting_bytes == 0


async def test_steps_on_their_way_can_be_looked_at() -> None:
    log = SlowLog()
    pipeline = begun(log, lambda steps: None, 1000)
    pipeline.put(step(1, durable=True))
    await settle()
    pipeline.put(step(2, durable=True))
    assert [s.request.id for s in pipeline] == [1, 2]
    log.may_sync.set()
    await pipeline.stop()
    assert list(pipeline) == []


async def test_a_log_in_memory_needs_no_thread_and_no_wait() -> None:
    left: list[int] = []
    pipeline = begun(CommitLog(None), lambda steps: left.extend(s.request.id for s in steps), 1000)
    threads = threading.active_count()
    pipeline.put(step(1, durable=True))
    await asyncio.sleep(0)
    assert left == [1]
    assert pipeline.groups == 1
    assert threading.active_count() == threads
    await pipeline.stop()


async def test_the_thread_ends_with_the_pipeline() -> None:
    log = SlowLog()
    log.may_sync.set()
    pipeline = begun(log, lambda steps: None, 1000)
    for number in (1, 2):
        pipeline.put(step(number, durable=True))
    await settle()
    assert "hullcast-log" in {thread.name for thread in threading.enumerate()}
    await pipeline.stop()
    assert "hullcast-log" not in {thread.name for thread in threading.enumerate()}


async def test_a_group_that_is_synced_leaves_although_something_else_failed_meanwhile() -> None:
    log, left = SlowLog(), list[int]()
    pipeline = begun(log, lambda steps: left.extend(s.request.id for s in steps), 1000)
    pipeline.put(step(1, durable=True))
    await settle()
    pipeline.failed.set_exception(ValueError("the engine is in doubt"))
    log.may_sync.set()
    await pipeline.stop()
    await settle()
    assert left == [1]


async def test_what_can_wait_goes_with_the_next_group_or_by_itself_after_a_while() -> None:
    log, left = SlowLog(), list[int]()
    log.may_sync.set()
    pipeline = begun(log, lambda steps: left.extend(s.request.id for s in steps), 10_000)
    async with asyncio.timeout(10):
        for number in range(1, 30, 3):
            pipeline.put(step(number, durable=True), 3600.0)
            pipeline.put(step(number + 1, durable=True), 3600.0)
            await settle()
            pipeline.put(step(number + 2, durable=True))
            await wait_for(lambda: len(left) >= number + 2, "a group")  # noqa: B023
        assert left == list(range(1, 31))
        assert log.groups == list(range(3, 31, 3))
        pipeline.put(step(31, durable=True), 0.001)
        await wait_for(lambda: len(left) == 31, "a group of its own")
    pipeline.put(step(32, durable=True), 3600.0)
    await pipeline.stop()
    assert left[-1] == 32
