"""A tiny HTTP server for those who watch a process: load balancers, Prometheus, people with curl.

    GET /healthz   200 while the process runs its event loop
    GET /readyz    200 when it serves; 503 and the reason until then
    GET /metrics   Prometheus text format
    GET /status    JSON

Only GET, one request a connection, no body. A request has to arrive within a few seconds and a few kilobytes, and
connections are few, so that whoever holds them open holds nothing else up. There is no authentication: listen on
loopback, or where only those can connect who may read the names of tables and clients.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from hullcast.network.link.endpoints import bracketed, parse_address
from hullcast.network.monitor.metrics import CONTENT_TYPE, Counters, render
from hullcast.network.wire.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hullcast.network.monitor.metrics import Metric

log = logging.getLogger(__name__)

TEXT, JSON = "text/plain; charset=utf-8", "application/json"
PATHS = ("/healthz", "/readyz", "/metrics", "/status")


@dataclass(frozen=True, slots=True)
class MonitorLimits:
    """What one who asks may take."""

    request_bytes: int = 8192
    request_s: float = 5.0  # for the request to arrive
    response_s: float = 10.0  # for the response to be taken
    connections: int = 32  # more are closed at once


@dataclass(frozen=True, slots=True)
class Response:
    """What goes back."""

    status: HTTPStatus
    body: str
    content_type: str = TEXT

    def encode(self) -> bytes:
        """The bytes on the wire."""
        body = self.body.encode("utf-8", "replace")
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        if self.status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET")
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class _Refused(Exception):
    """The request cannot be served; the response says why."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(status, text)
        self.response = Response(status, text + "\n")


class Monitor:
    """Serves from `start` to `stop`; after `stop` no task and no socket is left.

    The three callables run on the event loop for each request, so they only read what is already counted.
    """

    def __init__(
        self,
        address: str,
        *,
        ready: Callable[[], str | None],
        metrics: Callable[[], Iterable[Metric]],
        status: Callable[[], Mapping[str, object]],
        limits: MonitorLimits | None = None,
    ) -> None:
        self._host, self._port = parse_address(address, setting="monitor")
        self._ready, self._metrics, self._status = ready, metrics, status
        self._limits = limits or MonitorLimits()
        self._answered = Counters(
            "hullcast_monitor_requests_total", "Requests to this monitor by response code.", "code"
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """HOST:PORT as bound."""
        return f"{bracketed(self._host)}:{self._port}"

    async def start(self) -> None:
        """Listen; raises BadSetting if the address cannot be had."""
        try:
            self._server = await asyncio.start_server(
                self._serve, None if self._host == "*" else self._host, self._port, limit=self._limits.request_bytes
            )
        except OSError as error:
            reason = f"cannot listen there: {os.strerror(error.errno) if error.errno else error}"
            if error.errno == errno.EADDRINUSE:
                reason += "; stop the process that listens there, or choose another port"
            raise BadSetting("monitor", self.address, reason) from error
        self._port = self._server.sockets[0].getsockname()[1]
        log.info("monitor listening", extra={"address": self.address})

    async def stop(self) -> None:
        """Close what is open, at once."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) <= self._limits.connections:
                await self._exchange(reader, writer)
            else:
                self._answered.add("none")
        except asyncio.CancelledError:
            if self._server is not None:  # not by `stop`, which waits for this task and knows
                raise
        except (OSError, TimeoutError):  # went away, or does not take its answer
            self._answered.add("none")
        finally:
            self._tasks.discard(task)
            writer.transport.abort()  # `close` would wait for a peer that does not read

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._limits.request_s):
                response = self._answer(await self._read_path(reader))
        except TimeoutError:
            response = Response(HTTPStatus.REQUEST_TIMEOUT, "the request took too long\n")
        except _Refused as refused:
            response = refused.response
        self._answered.add(str(response.status.value))
        try:
            async with asyncio.timeout(self._limits.response_s):
                writer.write(response.encode())
                writer.write_eof()
                await self._wait_taken(reader)
        except TimeoutError:
            if writer.transport.get_write_buffer_size():  # else it has everything, and only forgets to close
                raise

    async def _wait_taken(self, reader: asyncio.StreamReader) -> None:
        """Until the other side closes, having read all: if we closed before, what it still sends would cut us off."""
        taken = 0
        while taken < 8 * self._limits.request_bytes and (data := await reader.read(self._limits.request_bytes)):
            taken += len(data)

    async def _read_path(self, reader: asyncio.StreamReader) -> str:
        """The path of a GET request, without its query."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            text = f"the request has more than {self._limits.request_bytes} bytes"
            raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text) from error
        except asyncio.IncompleteReadError as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, "the request ends too early") from error
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or words[2] not in (b"HTTP/1.0", b"HTTP/1.1") or not words[1].startswith(b"/"):
            raise _Refused(HTTPStatus.BAD_REQUEST, "this is not an HTTP/1.1 request")
        if words[0] != b"GET":
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET")
        return words[1].partition(b"?")[0].decode("latin-1")

    def _answer(self, path: str) -> Response:
        try:
            match path:
                case "/healthz":
                    return Response(HTTPStatus.OK, "ok\n")
                case "/readyz":
                    reason = self._ready()
                    status = HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE
                    return Response(status, (reason or "ready") + "\n")
                case "/metrics":
                    return Response(HTTPStatus.OK, render([*self._metrics(), self._answered.metric()]), CONTENT_TYPE)
                case "/status":
                    return Response(HTTPStatus.OK, json.dumps(self._status(), default=str) + "\n", JSON)
        except Exception:
            log.exception("monitor failed", extra={"path": path})
            return Response(HTTPStatus.INTERNAL_SERVER_ERROR, "failed; the log says why\n")
        return Response(HTTPStatus.NOT_FOUND, f"there are {', '.join(PATHS)}\n")
