"""What a process shows over HTTP, for load balancers, Prometheus and people with curl.

    GET /healthz   200 while the process runs its event loop, also while it recovers
    GET /readyz    200 when it serves; 503 and the reason until then, and while it stops
    GET /metrics   Prometheus text format, or OpenMetrics if the client asks for it
    GET /status    JSON

aiohttp parses and writes; what it does not bound is bounded here: the number of connections, and the time a client has
to read its response. Each connection is for one request. There is no authentication: listen on loopback, or where only
those can connect who may read the names of tables and clients.

This module imports aiohttp and prometheus_client (a few tenths of a second), so only a process that serves imports it.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily

from hullcast.network.link.endpoints import bracketed, parse_address
from hullcast.network.wire.errors import BadSetting
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

log = logger(__name__)

HEADERS = {"Cache-Control": "no-store", "Server": "hullcast", "X-Content-Type-Options": "nosniff"}
#: How long responses that are being written may delay the end of the process.
STOP_S = 0.5
UNANSWERED = "none"  # counted where a response would have had a code


@dataclass(frozen=True, slots=True)
class MonitorLimits:
    """What one client may use."""

    request_bytes: int = 8192  # of the first line, and of each header
    request_headers: int = 64
    connection_bytes: int = 32768  # more is not looked at: no page takes a body, whose chunks would take time to read
    request_s: float = 5.0  # for the request to arrive
    response_s: float = 10.0  # for the response to be read
    connections: int = 32  # further ones are closed at once


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
        self.limits = limits or MonitorLimits()
        self.answered: Counter[str] = Counter()  # by status code
        self.connections: dict[_Connection, asyncio.Transport] = {}
        self._registry = CollectorRegistry()  # of this process: the global one has collectors that nobody asked for
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """HOST:PORT as bound."""
        return f"{bracketed(self._host)}:{self._port}"

    async def start(self) -> None:
        """Listen; raises BadSetting if that is not possible."""
        app = web.Application(middlewares=[self._respond])
        app.add_routes([web.get(path, handler) for path, handler in self._pages().items()])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_S)
        await self._runner.setup()
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: _Connection(self, self._runner), None if self._host == "*" else self._host, self._port
            )
        except OSError as error:
            await self._runner.cleanup()
            reason = f"cannot listen there: {os.strerror(error.errno) if error.errno else error}"
            if error.errno == errno.EADDRINUSE:
                reason += "; stop the process that listens there, or choose another port"
            raise BadSetting("monitor", self.address, reason) from error
        self._port = self._server.sockets[0].getsockname()[1]
        log.info("monitor listening", extra={"address": self.address})

    async def stop(self) -> None:
        """Close what is open; a response that is being written has `STOP_S` to arrive."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        await self._runner.cleanup()
        for transport in self.connections.values():
            transport.abort()  # `close` would wait for a client that does not read
        await server.wait_closed()

    def collect(self) -> Iterator[Metric]:
        """All metrics of this process but those that every process has."""
        yield from self._metrics()
        own = CounterMetricFamily(
            "hullcast_monitor_requests_total", "Requests to this monitor by response code.", labels=["code"]
        )
        for code, count in sorted(self.answered.items()):
            own.add_metric([code], count)
        yield own

    def _pages(self) -> dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]]:
        async def healthz(_: web.Request) -> web.Response:
            return text(200, "ok")

        async def readyz(_: web.Request) -> web.Response:
            reason = self._ready()
            return text(200, "ready") if reason is None else text(503, reason)

        async def metrics(request: web.Request) -> web.Response:
            encode, content_type = choose_encoder(request.headers.get("Accept", ""))
            return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

        async def status(_: web.Request) -> web.Response:
            body = json.dumps(self._status(), default=str) + "\n"
            return web.Response(body=body.encode("utf-8", "replace"), content_type="application/json")

        return {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics, "/status": status}

    @web.middleware
    async def _respond(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """The response, written within its time."""
        try:
            response = await handler(request)
        except web.HTTPNotFound:
            response = text(404, f"there is no {request.path}; there are {', '.join(self._pages())}")
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            response = text(405, f"{request.method} is not supported; use GET", Allow=allowed)
        except Exception:
            log.exception("monitor failed", extra={"path": request.path})
            response = text(500, "failed; the log of this process says why")
        cast("_Connection", request.protocol).answer(response)
        try:
            async with asyncio.timeout(self.limits.response_s):
                await response.prepare(request)
                await response.write_eof()
        except (OSError, TimeoutError):  # the client went away, or does not read
            self.answered[UNANSWERED] += 1
            if request.transport is not None:
                request.transport.abort()
        return response


class _Connection(web.RequestHandler):
    """A connection as aiohttp handles it; one too many is closed, and garbage is answered without a traceback."""

    __slots__ = ("_answered", "_left_bytes", "_monitor")

    def __init__(self, monitor: Monitor, runner: web.AppRunner) -> None:
        limits, server = monitor.limits, runner.server
        assert server is not None, "the runner is set up before a connection can be made"
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=cast("logging.Logger", None),  # none; aiohttp's type does not say that it may be
            max_line_size=limits.request_bytes,
            max_field_size=limits.request_bytes,
            max_headers=limits.request_headers,
            keepalive_timeout=limits.request_s,  # runs from the start of the connection to its first request
            lingering_time=limits.request_s,  # for the rest of a body that nobody reads
        )
        self._monitor, self._answered, self._left_bytes = monitor, False, limits.connection_bytes

    def answer(self, response: web.StreamResponse) -> None:
        """Count the response, and make it the last one of this connection: nobody holds one as long as they like."""
        self._answered = True
        self._monitor.answered[str(response.status)] += 1
        response.headers.update(HEADERS)
        response.force_close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, if there is room."""
        assert isinstance(transport, asyncio.Transport)
        if len(self._monitor.connections) >= self._monitor.limits.connections:
            transport.abort()
            return
        self._monitor.connections[self] = transport
        transport.set_write_buffer_limits(0)  # writing then waits until the system has taken everything
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Look at what a request may have, and at nothing behind it."""
        if self._left_bytes:
            looked_at = data[: self._left_bytes]
            self._left_bytes -= len(looked_at)
            super().data_received(looked_at)

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp always hangs up, and then has nobody to answer
        """Go on: a client may close its side once its request is sent. An incomplete one ends with its time."""
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        """The end, with or without a response."""
        self._monitor.connections.pop(self, None)
        if not self._answered:
            self._monitor.answered[UNANSWERED] += 1
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The response to what is not a request; aiohttp would log it as an error of this process."""
        if isinstance(exc, LineTooLong):
            response = text(431, f"the first line or a header has more than {self.max_line_size:,} bytes")
        else:
            response = text(status, "this is not an HTTP/1.1 request")
        self.answer(response)
        return response


def text(status: int, line: str, **headers: str) -> web.Response:
    """A response of one line."""
    body = f"{line}\n".encode("utf-8", "replace")
    return web.Response(status=status, body=body, content_type="text/plain", charset="utf-8", headers=headers)
