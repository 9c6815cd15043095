"""The monitor over real sockets: what it answers, and that nobody holds it up."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import urllib.error
import urllib.request
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest
from aiohttp import web
from prometheus_client.metrics_core import GaugeMetricFamily

from hullcast.network.monitor.http import Monitor, MonitorLimits
from hullcast.network.wire.errors import BadSetting
from tests.support.exposition import OPENMETRICS, only_value, read_metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from prometheus_client.metrics_core import Metric

PATIENCE_S = 20
ODD = 'a "quoted"\\name\nof two lines'


class Answer(NamedTuple):
    status: int
    content_type: str
    text: str


class Watched:
    """Something to watch."""

    def __init__(self) -> None:
        self.reason: str | None = "the log is being read"
        self.broken = False

    def ready(self) -> str | None:
        return self.reason

    def metrics(self) -> Iterable[Metric]:
        if self.broken:
            raise RuntimeError("no numbers today")
        children = GaugeMetricFamily("hullcast_children", "Children connected.", labels=["name"])
        children.add_metric([ODD], 2)
        return [children]

    def status(self) -> dict[str, object]:
        return {"name": ODD, "children": [1, 2]}


@asynccontextmanager
async def watching(watched: Watched, limits: MonitorLimits | None = None) -> AsyncIterator[Monitor]:
    before = asyncio.all_tasks()
    monitor = Monitor("127.0.0.1:0", ready=watched.ready, metrics=watched.metrics, status=watched.status, limits=limits)
    await monitor.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield monitor
    finally:
        await monitor.stop()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before


def fetch(url: str, method: str = "GET", accept: str = "*/*") -> Answer:
    request = urllib.request.Request(url, method=method, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return Answer(response.status, response.headers["Content-Type"], response.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers["Content-Type"], error.read().decode())


async def get(monitor: Monitor, path: str, method: str = "GET", accept: str = "*/*") -> Answer:
    return await asyncio.to_thread(fetch, f"http://{monitor.address}{path}", method, accept)


@asynccontextmanager
async def dialed(monitor: Monitor) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = monitor.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def raw(monitor: Monitor, data: bytes, *, end: bool = False) -> bytes:
    """Send bytes and read until the other side closes."""
    async with dialed(monitor) as (reader, writer):
        writer.write(data)
        if end:
            writer.write_eof()
        return await reader.read()


async def is_open(monitor: Monitor) -> bool:
    """Whether the monitor answers, rather than hang up."""
    try:
        return (await get(monitor, "/healthz")).status == 200
    except (ConnectionError, urllib.error.URLError):
        return False


async def test_a_process_is_alive_before_it_is_ready() -> None:
    watched = Watched()
    async with watching(watched) as monitor:
        assert await get(monitor, "/healthz") == Answer(200, "text/plain; charset=utf-8", "ok\n")
        assert (await get(monitor, "/readyz"))[::2] == (503, "the log is being read\n")
        watched.reason = None
        assert (await get(monitor, "/readyz?verbose=1"))[::2] == (200, "ready\n")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"),
    ],
)
async def test_metrics_are_in_the_format_asked_for_and_count_the_monitor_itself(accept: str, content_type: str) -> None:
    async with watching(Watched()) as monitor:
        await get(monitor, "/nothing")
        answer = await get(monitor, "/metrics", accept=accept)
        assert (answer.status, answer.content_type) == (200, content_type)
        families = read_metrics(answer.text)
        (children,) = families["hullcast_children"].samples
        assert (children.labels, children.value) == ({"name": ODD}, 2)
        (requests,) = families["hullcast_monitor_requests_total"].samples
        assert (requests.labels, requests.value) == ({"code": "404"}, 1)


async def test_metrics_tell_what_every_process_is_asked_for_and_nothing_of_python() -> None:
    async with watching(Watched()) as monitor:
        families = read_metrics((await get(monitor, "/metrics")).text)
    assert only_value(families["process_cpu_seconds_total"]) > 0
    assert only_value(families["process_resident_memory_bytes"]) > 1 << 20
    assert only_value(families["process_open_fds"]) >= 3
    assert {name.split("_")[0] for name in families} == {"hullcast", "process"}


async def test_status_is_json() -> None:
    async with watching(Watched()) as monitor:
        answer = await get(monitor, "/status")
        assert answer.content_type == "application/json"
        assert json.loads(answer.text) == {"name": ODD, "children": [1, 2]}


async def test_other_paths_and_methods_are_refused() -> None:
    async with watching(Watched()) as monitor:
        answer = await get(monitor, "/etc/passwd")
        assert answer == Answer(
            404,
            "text/plain; charset=utf-8",
            "there is no /etc/passwd; there are /healthz, /readyz, /metrics, /status\n",
        )
        for method in ("POST", "DELETE", "PUT"):
            answer = await get(monitor, "/metrics", method)
            assert (answer.status, answer.text) == (405, f"{method} is not supported; use GET\n")
        assert b"\r\nAllow: GET, HEAD\r\n" in await raw(
            monitor, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        )


async def test_head_is_get_without_the_body() -> None:
    async with watching(Watched()) as monitor:
        for path in ("/healthz", "/readyz", "/status"):
            asked, told = await get(monitor, path, "HEAD"), await get(monitor, path)
            assert asked == told._replace(text="")


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff\0\r\n\r\n",
    ],
)
async def test_what_is_not_a_request_gets_400(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with watching(Watched()) as monitor:
        with caplog.at_level(logging.WARNING):
            assert (await raw(monitor, data)).split(b" ")[1] == b"400"
        assert not caplog.records, "a stranger must not fill the log"
        assert (await get(monitor, "/healthz")).status == 200


@pytest.mark.parametrize("data", [b"", b"\r\n\r\n", b"GET /healthz HTTP/1.1\r\n"])
async def test_a_request_cut_off_gets_nothing_and_is_counted(data: bytes) -> None:
    async with watching(Watched(), MonitorLimits(request_s=0.3)) as monitor:
        assert await raw(monitor, data, end=True) == b""
        while 'code="none"' not in (await get(monitor, "/metrics")).text:
            pass


async def test_a_client_that_sends_no_more_gets_its_response() -> None:
    async with watching(Watched()) as monitor:
        reply = await raw(monitor, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", end=True)
        assert reply.endswith(b"\r\n\r\nok\n")


async def test_an_oversized_request_is_cut() -> None:
    async with watching(Watched(), MonitorLimits(request_bytes=1000)) as monitor:
        data = b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 4000 + b"\r\n\r\n"
        assert (await raw(monitor, data)).split(b" ")[1] == b"431"


async def test_a_body_is_not_looked_at_beyond_what_a_request_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its chunks are handed over one by one: 40,000 of them in one read would stop the event loop for 30 ms."""
    looked_at, look = [0], web.RequestHandler.data_received

    def counting(connection: web.RequestHandler, data: bytes) -> None:
        looked_at[0] += len(data)
        look(connection, data)

    monkeypatch.setattr(web.RequestHandler, "data_received", counting)
    limits = MonitorLimits(request_s=0.2)
    async with watching(Watched(), limits) as monitor:
        head = b"POST /status HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        with suppress(ConnectionError):
            assert (await raw(monitor, head + b"1\r\na\r\n" * 200_000)).startswith(b"HTTP/1.1 405")
        assert 0 < looked_at[0] <= limits.connection_bytes
        assert await is_open(monitor)


async def test_somebody_who_never_stops_sending_is_cut() -> None:
    async with watching(Watched(), MonitorLimits(request_bytes=1000)) as monitor, dialed(monitor) as (_, writer):

        async def flood() -> None:
            while True:
                writer.write(b"x" * 10_000)
                await writer.drain()
                await asyncio.sleep(0)

        with pytest.raises(ConnectionError):
            await flood()


@pytest.mark.parametrize(
    ("begin", "code"),
    [
        (b"", b""),
        (b"GET /healthz HTTP/1.1\r\nX: ", b""),
        (b"POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\n", b"405"),
    ],
)
async def test_a_slow_request_is_cut_and_nobody_else_waits(begin: bytes, code: bytes) -> None:
    limits = MonitorLimits(request_s=0.3)
    async with watching(Watched(), limits) as monitor, dialed(monitor) as (reader, writer):
        writer.write(begin)
        assert await is_open(monitor)

        async def drip() -> None:
            while True:
                writer.write(b"x" if begin else b"\r\n")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        with suppress(ConnectionError):
            assert (await reader.read())[9:12] == code
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


async def test_a_connection_too_many_is_closed_at_once_and_a_place_comes_free_again() -> None:
    limits = MonitorLimits(connections=2, request_s=0.5)
    async with watching(Watched(), limits) as monitor:
        async with dialed(monitor) as (first, _), dialed(monitor) as (second, _):
            while await is_open(monitor):  # until the monitor has seen the two
                pass
            for reader in (first, second):
                assert await reader.read() == b""
        while not await is_open(monitor):
            pass


def taken_by_the_system() -> int:
    """How many bytes can be sent to a process that does not read."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()):
        sending, _ = listening.accept()
        with sending:
            sending.setblocking(False)
            return sending.send(bytes(30_000_000))


@pytest.mark.parametrize("beyond", [20_000, 30_000_000])  # what asyncio would keep without waiting, and much more
async def test_somebody_who_does_not_read_the_answer_is_cut(beyond: int) -> None:
    watched = Watched()
    watched.reason = "x" * (taken_by_the_system() + beyond)
    async with (
        watching(watched, MonitorLimits(response_s=0.2)) as monitor,
        dialed(monitor) as (reader, writer),
    ):
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        while 'code="none"' not in (await get(monitor, "/metrics")).text:
            pass
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(len(watched.reason))


async def test_a_failing_number_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.broken = True
    async with watching(watched) as monitor:
        with caplog.at_level(logging.ERROR):
            answer = await get(monitor, "/metrics")
        assert (answer.status, "no numbers" in answer.text) == (500, False)
        assert "no numbers today" in caplog.text
        assert (await get(monitor, "/healthz")).status == 200


async def test_stopping_closes_connections_that_are_open() -> None:
    async with watching(Watched()) as monitor, dialed(monitor) as (reader, writer):
        writer.write(b"GET /hea")
        assert await is_open(monitor)
        await monitor.stop()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        assert not await is_open(monitor)


async def test_stopping_does_not_wait_for_a_client_that_does_not_read() -> None:
    watched = Watched()
    watched.reason = "x" * 30_000_000
    limits = MonitorLimits(response_s=PATIENCE_S)
    async with watching(watched, limits) as monitor, dialed(monitor) as (_, writer):
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        while 'code="503"' not in (await get(monitor, "/metrics")).text:
            pass
        async with asyncio.timeout(PATIENCE_S / 2):
            await monitor.stop()


async def test_an_address_that_is_taken_is_named() -> None:
    watched = Watched()
    async with watching(watched) as monitor:
        second = Monitor(monitor.address, ready=watched.ready, metrics=watched.metrics, status=watched.status)
        with pytest.raises(BadSetting, match=r"monitor = '127.0.0.1:\d+': cannot listen there"):
            await second.start()
        await second.stop()
