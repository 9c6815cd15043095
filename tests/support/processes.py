"""Real processes in tests: started through the command line, watched, and none of them left at the end."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import time
import uuid
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.clients.processes.child import Child, command, environment, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import pytest

MARK = "TEST_PROCESSES_OF"
ANYWHERE = "tcp://127.0.0.1:0"
LIMIT_S = 60.0  # for whatever a test waits for; a machine that runs several suites at once is slow


def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The body of a fixture: whatever the test starts, and whatever those start, is gone at the end."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    yield
    left = _bearing(mark)
    deadline = time.monotonic() + 5.0
    while left and time.monotonic() < deadline:  # a process that was just killed may be shown for a moment
        time.sleep(0.01)
        left = _bearing(mark)
    assert not left, f"left behind: {left}"


def running() -> list[str]:
    """The command lines of the processes that this test started, directly or not, and that still run."""
    return _bearing(os.environ[MARK])


def _bearing(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name != str(os.getpid()):
            try:
                if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:  # it has ended, or is not ours to look at
                continue
    return found


def hull(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command(*words),
        env={**environment(), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


@asynccontextmanager
async def started(*words: str, hear: Callable[[str], None] | None = None) -> AsyncIterator[Child]:
    """A process that serves; stopped at the end, if it still runs."""
    child = await start(words, name=words[0], hear=hear, limit_s=LIMIT_S)
    try:
        yield child
    finally:
        await child.stop(5.0)


async def wait_until(condition: Callable[[], object]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110  (of other processes; they set no event here)
            await asyncio.sleep(0.01)


async def get(url: str, accept: str = "*/*") -> tuple[int, str]:
    """Ask a monitor: status and body."""
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.rpartition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    try:
        writer.write(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    finally:
        writer.close()
        await writer.wait_closed()
    return int(head.split()[1]), body


@contextmanager
def limited_files(most: int) -> Iterator[None]:
    """No file that this process writes becomes larger than so many bytes: as near to a full disk as a test may go."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
