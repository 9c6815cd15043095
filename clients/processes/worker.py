"""Processes of the live benchmark and the demo: tasks and answers are lines of JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from asyncio.subprocess import PIPE
from typing import TYPE_CHECKING, Any

from hullcast.clients.processes.child import environment
from hullcast.network.node.stopping import KILL_S
from hullcast.network.wire.errors import HullcastError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    Task = Callable[..., Awaitable[dict[str, Any] | None]]  # nothing to say is {}

LIMIT_S = 120.0
_LINE_BYTES = 1 << 22


class WorkerFailed(HullcastError):
    """A process of the benchmark could not do its part."""


class Worker:
    """A process that runs `module`. It ends when `stop` is called, or when the process that started it ends."""

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self._process = process

    @classmethod
    async def start(cls, name: str, module: str, *words: str) -> Worker:
        """Start `python -m module words`; it reads the first line when it is ready."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", module, *words),
            stdin=PIPE,
            stdout=PIPE,
            stderr=None,
            env=environment(),
            limit=_LINE_BYTES,
            process_group=0,  # Ctrl-C in a terminal reaches the process that started it, which ends it
        )
        return cls(name, process)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Have something done; WorkerFailed if it was not."""
        assert self._process.stdin is not None, "opened as a pipe"
        self._process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
        return await self.hear(what)

    async def hear(self, what: str) -> dict[str, Any]:
        """The next line it says."""
        assert self._process.stdout is not None, "opened as a pipe"
        async with asyncio.timeout(LIMIT_S):
            line = await self._process.stdout.readline()
        if not line:
            raise WorkerFailed(f"{self.name} ended while it was to {what}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise WorkerFailed(f"{self.name} could not {what}: {reply['error']}")
        return reply

    async def stop(self) -> None:
        """Close its input, which ends it; kill it if it does not."""
        assert self._process.stdin is not None, "opened as a pipe"
        self._process.stdin.close()
        try:
            async with asyncio.timeout(KILL_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


async def ask_all(workers: Sequence[Worker], what: str, **arguments: Any) -> list[dict[str, Any]]:
    """Have all do the same at the same time."""
    return await asyncio.gather(*(worker.ask(what, **arguments) for worker in workers))


async def serve(tasks: Mapping[str, Task]) -> None:
    """Inside such a process: do what the lines of standard input say, one after the other, until it ends; what is
    being done then is given up."""
    gc.freeze()  # as servers and nodes do: full collections would go through all the compiler's objects
    lines = asyncio.StreamReader(limit=_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    asked: asyncio.Queue[bytes] = asyncio.Queue()
    reading = asyncio.create_task(_read(lines, asked), name="worker.read")
    working = asyncio.create_task(_work(asked, tasks), name="worker.work")
    try:
        done, _ = await asyncio.wait((reading, working), return_when=asyncio.FIRST_COMPLETED)
    finally:
        reading.cancel()
        working.cancel()
        await asyncio.gather(reading, working, return_exceptions=True)
    for task in done:
        task.result()


async def _read(lines: asyncio.StreamReader, asked: asyncio.Queue[bytes]) -> None:
    while line := await lines.readline():
        asked.put_nowait(line)


async def _work(asked: asyncio.Queue[bytes], tasks: Mapping[str, Task]) -> None:
    while True:
        words = json.loads(await asked.get())
        try:
            reply = await tasks[words.pop("do")](**words) or {}
        except HullcastError as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        try:
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:  # the process that asked is gone
            return
