"""How a server, its child processes and their workers speak: messages over a socket pair.

Only our own processes have the ends of these sockets, hence pickle. A message is its length and then its bytes.

What is large and the same in many messages goes to a worker with the first message that has it, and by a number from
then on: to pickle a table or a plan each time takes longer than a point query does.
"""

from __future__ import annotations

import asyncio
import io
import pickle
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_SIZE = struct.Struct("<Q")
#: Things that an end has by numbers; when there are more, all are forgotten.
MOST_SHARED = 256


def message_bytes(message: object) -> bytes:
    content = pickle.dumps(message, protocol=5)
    return _SIZE.pack(len(content)) + content


class SharedOut:
    """Messages as they travel to an end that remembers: what is of these types is in the first message that has it."""

    def __init__(self, types: tuple[type, ...]) -> None:
        self._types = types
        self._numbers: dict[int, tuple[int, object]] = {}  # by identity, which is theirs while they are kept here

    def message_bytes(self, message: object) -> bytes:
        content = io.BytesIO()
        content.write(bytes(_SIZE.size))
        pickler = pickle.Pickler(content, protocol=5)
        pickler.persistent_id = self._reference  # type: ignore[method-assign]  # as documented
        pickler.dump(message)
        content.seek(0)
        content.write(_SIZE.pack(len(content.getbuffer()) - _SIZE.size))
        return content.getvalue()

    def _reference(self, thing: object) -> int | tuple[int, bytes] | None:
        if type(thing) not in self._types:
            return None
        known = self._numbers.get(id(thing))
        if known is not None:
            return known[0]
        if len(self._numbers) >= MOST_SHARED:
            self._numbers.clear()
        number = len(self._numbers)
        self._numbers[id(thing)] = (number, thing)
        return number, pickle.dumps(thing, protocol=5)


class SharedIn:
    """The other end of `SharedOut`: what came is kept by its number. Number 0 with a thing: all before is forgotten."""

    def __init__(self) -> None:
        self._things: dict[int, object] = {}

    def message(self, content: bytearray) -> Any:
        unpickler = pickle.Unpickler(io.BytesIO(content))
        unpickler.persistent_load = self._thing  # type: ignore[method-assign]  # as documented
        return unpickler.load()

    def _thing(self, reference: Any) -> object:
        if isinstance(reference, int):
            return self._things[reference]
        number, content = reference
        if number == 0:
            self._things.clear()
        self._things[number] = thing = pickle.loads(content)
        return thing


class BlockingEnd:
    """An end that waits for each message. What is written goes out when it is flushed."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._shared = SharedIn()
        self._written: list[bytes] = []

    def read(self) -> Any:
        """The next message, and no byte behind it; EOFError if there is none any more."""
        return self._shared.message(self._exactly(_SIZE.unpack(self._exactly(_SIZE.size))[0]))

    def _exactly(self, size: int) -> bytearray:
        content = bytearray(size)
        left = memoryview(content)
        while left:
            came = self._connection.recv_into(left)
            if not came:
                raise EOFError
            left = left[came:]
        return content

    def write(self, message: object) -> None:
        """Send a message with the next flush: the other end wakes up once for all."""
        self._written.append(message_bytes(message))

    def flush(self) -> None:
        if self._written:
            written, self._written = b"".join(self._written), []
            self._connection.sendall(written)


class MessageEnd(asyncio.Protocol):
    """An end on an event loop. With `shared`, the other one is a BlockingEnd."""

    _on_message: Callable[[Any], None]
    _on_end: Callable[[], None]
    _on_quiet: Callable[[], None] | None

    def __init__(self, shared: SharedOut | None = None) -> None:
        self._shared = shared
        self._came = bytearray()
        self._transport: asyncio.Transport | None = None

    async def attach(
        self,
        connection: socket.socket,
        on_message: Callable[[Any], None],
        on_end: Callable[[], None],
        on_quiet: Callable[[], None] | None = None,
    ) -> None:
        """Begin to read from a connected socket, and own it: hand over each message as it comes, and say when there are
        no more. `on_quiet` is called when all messages that came together were handed over."""
        self._on_message, self._on_end, self._on_quiet = on_message, on_end, on_quiet
        await asyncio.get_running_loop().create_connection(lambda: self, sock=connection)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        start = 0
        while len(self._came) - start >= _SIZE.size:
            end = start + _SIZE.size + _SIZE.unpack_from(self._came, start)[0]
            if len(self._came) < end:
                break
            with memoryview(self._came) as view:
                message = pickle.loads(view[start + _SIZE.size : end])
            start = end
            self._on_message(message)
        if start:
            del self._came[:start]
            if self._on_quiet is not None:
                self._on_quiet()

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end()

    def write(self, message: object) -> None:
        """Send a message; it goes nowhere if the other end is gone."""
        assert self._transport is not None
        if not self._transport.is_closing():
            as_bytes = message_bytes if self._shared is None else self._shared.message_bytes
            self._transport.write(as_bytes(message))

    def close(self) -> None:
        """Send nothing more. `on_end` is called soon."""
        if self._transport is not None:
            self._transport.abort()
