"""Starts Hullcast processes on this host, reads their ready line, passes on logs, and stops them.

A child holds the read end of a pipe as its standard input and stops when that ends (`--until-input-ends`), so that no
child outlives this process, not even when it is killed. Children are in process groups of their own: Ctrl-C in a
terminal reaches the process that started them, which stops them in a sensible order.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hullcast
from hullcast.network.node.stopping import KILL_S
from hullcast.network.wire.errors import HullcastError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Mapping, Sequence

#: How long a process that does not serve yet may go without progress: on a cold cache it compiles, beside others.
READY_S = 180.0
_LINE_BYTES = 1 << 20
_HOME = Path(hullcast.__file__).parents[1]  # what must be on the path for `import hullcast`


class ProcessFailed(HullcastError):
    """A process ended before it served, or ended without being asked to: its last words, and its exit code."""

    name: str
    words: str
    code: int | None

    @property
    def how(self) -> str:
        """How it ended."""
        if self.code is None:
            return self.words
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        return f"ended with exit code {self.code}" + (f" ({self.words})" if self.words else "")

    def __str__(self) -> str:
        return f"{self.name} {self.how}"


class Child:
    """A running `hullcast server`, `hullcast node` or the like. Made by `start`; ended by `stop`, or by itself."""

    def __init__(self, name: str, process: Process, hear: Callable[[str], None]) -> None:
        self.name = name
        self.facts: Mapping[str, object] = {}  # of its ready line
        self._process = process
        self._hear = hear
        self._last = ""
        self._listening = [asyncio.create_task(self._pass_on(), name=f"{name}.log")]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return str(self.facts["endpoint"])

    @property
    def monitor(self) -> str | None:
        """The address of its monitor, if it has one."""
        monitor = self.facts.get("monitor")
        return str(monitor) if monitor else None

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    async def wait(self) -> int:
        """Wait until it has ended, and all it said was passed on; its exit code."""
        code = await self._process.wait()
        await asyncio.gather(*self._listening)
        return code

    def failure(self) -> ProcessFailed:
        """What to raise when it ended though it should not have."""
        return ProcessFailed(self.name, self._last, self._process.returncode)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing if it has ended."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def stop(self, grace_s: float = KILL_S) -> int:
        """TERM, and KILL if it has not ended after `grace_s`; its exit code."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                return await self.wait()
        except TimeoutError:
            self._hear(f"does not stop; killed after {grace_s:g} s")
        finally:
            if self.alive:
                self.signal(signal.SIGKILL)
        return await self.wait()

    async def wait_ready(self, limit_s: float = READY_S) -> None:
        """Wait for its ready line, as long as it says that it gets on. ProcessFailed: it ended instead, or was killed
        because it did not get on for `limit_s`. Whoever is cancelled here stops it."""
        assert self._process.stdout is not None, "opened as a pipe"
        said: dict[str, Any] = {"ready": False, "doing": "starting"}
        while not said["ready"]:
            try:
                async with asyncio.timeout(limit_s):
                    line = await self._process.stdout.readline()
            except TimeoutError:
                await self.stop(0.0)
                raise ProcessFailed(
                    self.name, f"not ready: no progress for {limit_s:g} s ({said['doing']})", None
                ) from None
            if not line:
                await self.wait()
                raise self.failure()
            said = json.loads(line)
        self.facts = said
        self._listening.append(asyncio.create_task(self._drain(), name=f"{self.name}.output"))

    async def _drain(self) -> None:
        assert self._process.stdout is not None, "opened as a pipe"
        while await self._process.stdout.read(_LINE_BYTES):
            pass

    async def _pass_on(self) -> None:
        assert self._process.stderr is not None, "opened as a pipe"
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:  # a line longer than the limit; the rest of it comes next
                continue
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip()
            self._last = text.removeprefix("hullcast: ") or self._last
            self._hear(text)


async def start(
    words: Sequence[str],
    *,
    name: str,
    hear: Callable[[str], None] | None = None,
    limit_s: float = READY_S,
    module: str = "hullcast",
) -> Child:
    """Start `hullcast WORDS` and wait until it serves; each line of its log goes to `hear`."""
    child = await launch(words, name=name, hear=hear, module=module)
    try:
        await child.wait_ready(limit_s)
    except BaseException:
        await child.stop()
        raise
    return child


async def launch(
    words: Sequence[str], *, name: str, hear: Callable[[str], None] | None = None, module: str = "hullcast"
) -> Child:
    """Start `hullcast WORDS`, one of the commands that print a ready line, without waiting for it."""
    process = await asyncio.create_subprocess_exec(
        *command(*words, "--json", "--progress", "--until-input-ends", module=module),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=environment(),
        limit=_LINE_BYTES,
        process_group=0,
    )
    return Child(name, process, hear or (lambda text: None))


def command(*words: str, module: str = "hullcast") -> list[str]:
    """The command line of `hullcast WORDS` with this very interpreter; -P: a folder `hullcast` here is not ours."""
    return [sys.executable, "-P", "-m", module, *words]


def environment() -> dict[str, str]:
    """This process's environment, with our package on the path also where it is not installed."""
    if "site-packages" in _HOME.parts:
        return dict(os.environ)
    path = os.pathsep.join(filter(None, (str(_HOME), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}
