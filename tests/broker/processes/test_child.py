"""A child process as a server holds it: a real one, which does as it is told. Time is passed by hand."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from hullcast.broker.processes.child import ChildKind, ChildProcess
from hullcast.broker.processes.heartbeat import PAUSE_S, STOPPED_S, is_stopped
from hullcast.network.wire.errors import ConnectionLost
from tests.support.cluster import PATIENCE_S, wait_for

ROOT = Path(__file__).parents[3]
TINY = ChildKind(
    "tiny",
    "the tiny process",
    "tests.broker.processes.tiny_child",
    silence_s=5.0,
    first_word_s=20.0,
    retry_s=3.0,
    niceness=2,
    oom_score=700,
)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


class Owner:
    """Has a child process, and remembers what came of it."""

    def __init__(self, kind: ChildKind = TINY) -> None:
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        self.gone = 0
        self.child = ChildProcess(kind, self.said.put_nowait, self._on_gone)

    def _on_gone(self) -> None:
        self.gone += 1

    async def start(self) -> None:
        await self.child.start("hello")

    async def ask(self, *told: object) -> Any:
        self.child.write(told)
        return await self.said.get()

    async def pid(self) -> int:
        return int((await self.ask("facts"))["pid"])

    def watch(self, now: float, seconds: float) -> float:
        """Look often, for so many seconds or until the process is gone."""
        until = now + seconds
        while now < until and self.child.running:
            now += PAUSE_S / 8
            self.child.watch(now)
        return now


@asynccontextmanager
async def owning(kind: ChildKind = TINY) -> AsyncIterator[Owner]:
    owner = Owner(kind)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await owner.start()
            yield owner
    finally:
        await owner.child.stop()


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_it_is_told_first_what_it_needs_and_is_a_group_of_its_own_in_our_session() -> None:
    async with owning() as owner:
        facts = await owner.ask("facts")
        assert facts["first"] == "hello"
        assert facts["group"] == facts["pid"]
        assert facts["session"] == os.getsid(0)
        assert facts["nice"] == min(19, os.nice(0) + TINY.niceness)
        assert facts["oom_score"] in (None, TINY.oom_score)
        assert (owner.child.running, owner.child.lives, owner.gone) == (True, 1, 0)


async def test_one_that_was_killed_is_reported_once_and_another_one_can_be_started(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with owning() as owner:
        pid = await owner.pid()
        os.kill(pid, signal.SIGKILL)
        await wait_for(lambda: owner.gone == 1, "it is noticed")
        assert not owner.child.running
        assert events(caplog) == [f"tiny process ended pid={pid}"]
        with pytest.raises(ConnectionLost, match=r"the tiny process ended"):
            owner.child.write(("facts",))
        await owner.start()
        assert await owner.pid() != pid
        assert (owner.child.lives, owner.gone) == (2, 1)


async def test_one_that_is_killed_while_it_is_being_started_is_noticed() -> None:
    owner = Owner()
    try:
        starting = asyncio.create_task(owner.start())
        while owner.child._process is None:  # noqa: ASYNC110  (as soon as there is one)
            await asyncio.sleep(0)
        owner.child.kill()
        await starting
        await wait_for(lambda: not owner.child.running, "it is noticed")
        assert owner.gone == 1
    finally:
        await owner.child.stop()


async def test_it_is_kept_started_but_not_tried_too_often(caplog: pytest.LogCaptureFixture) -> None:
    owner, tries = Owner(), 0

    async def start() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ConnectionLost("not yet")
        await owner.start()

    try:
        for _ in range(3):  # one at a time
            owner.child.keep_started(0.0, start)
        await wait_for(lambda: len(events(caplog)) == 1, "it has failed")
        assert events(caplog) == ['tiny process cannot be started why="no connection to the server: not yet"']
        owner.child.keep_started(TINY.retry_s - 0.1, start)
        await asyncio.sleep(0.05)
        assert tries == 1
        for now in (TINY.retry_s, 2 * TINY.retry_s):
            owner.child.keep_started(now, start)
            await wait_for(lambda: tries == 1 + now / TINY.retry_s, "it is tried")  # noqa: B023
        await wait_for(lambda: owner.child.running, "it is started")
        assert owner.child.lives == 1
    finally:
        await owner.child.stop()


async def test_one_that_is_stopped_is_killed_soon_with_those_that_it_started(caplog: pytest.LogCaptureFixture) -> None:
    async with owning() as owner:
        pid, another = await owner.pid(), await owner.ask("start_another")
        now = owner.watch(time.monotonic(), STOPPED_S)
        os.kill(pid, signal.SIGSTOP)
        await wait_for(lambda: is_stopped(pid), "it is stopped")
        ended = owner.watch(now, TINY.silence_s)
        assert STOPPED_S <= ended - now < STOPPED_S + PAUSE_S
        assert owner.gone == 1
        await wait_for(lambda: not lives(pid) and not lives(another), "both are gone")
        assert events(caplog) == ['tiny process hangs why="it was stopped (SIGSTOP) for 2.0 s"']


async def test_one_that_says_nothing_is_killed_later_if_it_has_not_spoken_yet() -> None:
    async with owning() as owner:
        began = time.monotonic()
        now = owner.watch(began, TINY.first_word_s - PAUSE_S)
        assert owner.child.running
        owner.watch(now, 2 * PAUSE_S)
        assert (owner.child.running, owner.gone) == (False, 1)
    async with owning() as owner:
        await owner.pid()
        began = time.monotonic()
        now = owner.watch(began, TINY.silence_s - PAUSE_S)
        assert owner.child.running
        owner.watch(now, 2 * PAUSE_S)
        assert (owner.child.running, owner.gone) == (False, 1)


async def test_one_that_only_answers_may_be_silent_until_it_is_asked() -> None:
    async with owning(replace(TINY, reports=False)) as owner:
        await owner.pid()
        now = owner.watch(time.monotonic(), 3 * TINY.silence_s)
        assert owner.child.running
        owner.child.write(("sleep", PATIENCE_S))
        now = owner.watch(time.monotonic(), TINY.silence_s - PAUSE_S)
        assert owner.child.running
        owner.watch(now, 2 * PAUSE_S)
        assert (owner.child.running, owner.gone) == (False, 1)


async def test_what_it_logs_is_in_our_log(caplog: pytest.LogCaptureFixture) -> None:
    async with owning() as owner:
        await owner.ask("complain", "disk slow", {"took_s": 7.5, "file": "a b"})
        slow, failed = caplog.records
        assert (slow.levelno, slow.getMessage()) == (logging.WARNING, 'disk slow took_s=7.5 file="a b"')
        assert failed.levelno == logging.ERROR
        assert "it failed" in failed.getMessage()
        assert "ValueError: what happened" in failed.getMessage()


async def test_one_that_cannot_be_started_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, before = Owner(), psutil.Process().num_fds()
    monkeypatch.setattr(sys, "executable", str(ROOT / "no such program"))
    for _ in range(3):
        with pytest.raises(ConnectionLost, match=r"the tiny process cannot be started .*no such program"):
            await owner.start()
    assert psutil.Process().num_fds() == before
    assert (owner.child.running, owner.child.lives, owner.gone) == (False, 0, 0)


async def test_stopping_takes_no_time_and_leaves_nothing_whatever_the_process_does() -> None:
    async with owning():
        pass  # what the event loop needs to start processes is there
    before, others = psutil.Process().num_fds(), psutil.Process().children(recursive=True)
    for state in ("idle", "busy", "stopped", "killed", "starting"):
        owner = Owner()
        if state == "starting":
            owner.child.keep_started(0.0, owner.start)
            await asyncio.sleep(0.002)
        else:
            await owner.start()
            pid = await owner.pid()
            if state == "busy":
                owner.child.write(("sleep", PATIENCE_S))
            elif state == "stopped":
                os.kill(pid, signal.SIGSTOP)
                await wait_for(lambda: is_stopped(pid), "it is stopped")  # noqa: B023
            elif state == "killed":
                os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        await owner.child.stop()
        assert time.monotonic() - began < 2.0, state
        await owner.child.stop()  # once more does no harm
        assert not owner.child.running
        with pytest.raises(ConnectionLost, match="the server is stopping"):
            await owner.start()
        await wait_for(lambda: set(psutil.Process().children(recursive=True)) <= set(others), "no process is left")
    await wait_for(lambda: psutil.Process().num_fds() <= before, "no file is open")
    await wait_for(lambda: not any("waitpid" in thread.name for thread in threading.enumerate()), "no thread waits")


SERVER = """
import asyncio, sys
from tests.broker.processes.test_child import Owner

async def main():
    owner = Owner()
    await owner.start()
    print(await owner.pid(), flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_whose_server_vanished_ends_by_itself(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        assert lives(pid)
        server.send_signal(number)
        server.wait()
        asyncio.run(wait_for(lambda: not lives(pid), "it is gone"))
