"""A TCP proxy that can cut, stall and refuse connections, so that tests can break a link without breaking its ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Proxy:
    """Copies bytes both ways between whoever connects to `endpoint` and the target."""

    def __init__(self, target: str) -> None:
        self.retarget(target)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._refusing = False
        self._left: int | None = None  # bytes until all is cut
        self.connections = 0
        self.endpoint = ""

    def retarget(self, target: str) -> None:
        """Where new connections go (tcp://host:port)."""
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = host, int(port)

    def cut(self) -> None:
        """End all connections at once; what is on its way is lost. New ones are welcome."""
        for writer in list(self._writers):
            writer.transport.abort()

    def cut_after(self, size: int) -> None:
        """Let so many more bytes through, then cut: most likely in the middle of a message."""
        self._left = size

    def stall(self) -> None:
        """Let nothing through; connections stay, as when packets are dropped."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let everything through again."""
        self._flowing.set()

    def refuse(self, refusing: bool = True) -> None:
        """Hang up on new connections at once, or no longer."""
        self._refusing = refusing

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection. Only `stop` cancels it, and then it ends quietly: asyncio's streams would report it."""
        with suppress(asyncio.CancelledError):
            await self._carry(reader, writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            if self._refusing:
                return
            self.connections += 1
            with suppress(OSError):
                other_reader, other = await asyncio.open_connection(*self._target)
                self._writers.add(other)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._copy(reader, other), name="proxy.up")
                    tasks.create_task(self._copy(other_reader, writer), name="proxy.down")
        except* OSError:
            pass  # cut
        finally:
            for each in (writer, other):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()
            self._tasks.discard(task)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._flowing.wait()
            if self._left is not None:
                data = data[: self._left]
                self._left -= len(data)
            writer.write(data)
            await writer.drain()
            if self._left == 0:
                self._left = None
                self.cut()
        raise ConnectionResetError  # one side ended: end the other

    async def stop(self) -> None:
        """End everything."""
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def running_proxy(target: str) -> AsyncIterator[Proxy]:
    """A proxy before `target` (tcp://host:port) for the length of the block."""
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
    try:
        proxy.endpoint = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield proxy
    finally:
        server.close()
        await proxy.stop()
        await server.wait_closed()
