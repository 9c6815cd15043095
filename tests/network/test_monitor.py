"""The monitor over real sockets: what it answers, and that nobody holds it up."""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest

from hullcast.network.monitor.http import Monitor, MonitorLimits
from hullcast.network.monitor.metrics import CONTENT_TYPE, gauge
from hullcast.network.wire.errors import BadSetting
from tests.support.exposition import read_exposition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from hullcast.network.monitor.metrics import Metric

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
        return [gauge("hullcast_children", "Children connected.", 2, name=ODD)]

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


def fetch(url: str, method: str = "GET") -> Answer:
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return Answer(response.status, response.headers["Content-Type"], response.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers["Content-Type"], error.read().decode())


async def get(monitor: Monitor, path: str, method: str = "GET") -> Answer:
    return await asyncio.to_thread(fetch, f"http://{monitor.address}{path}", method)


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


async def test_metrics_are_in_prometheus_format_and_count_the_monitor_itself() -> None:
    async with watching(Watched()) as monitor:
        await get(monitor, "/nothing")
        answer = await get(monitor, "/metrics")
        assert (answer.status, answer.content_type) == (200, CONTENT_TYPE)
        families = read_exposition(answer.text)
        assert families["hullcast_children"].samples == {("hullcast_children", (("name", ODD),)): 2}
        name = "hullcast_monitor_requests_total"
        assert families[name].samples == {(name, (("code", "404"),)): 1}


async def test_status_is_json() -> None:
    async with watching(Watched()) as monitor:
        answer = await get(monitor, "/status")
        assert answer.content_type == "application/json"
        assert json.loads(answer.text) == {"name": ODD, "children": [1, 2]}


async def test_other_paths_and_methods_are_refused() -> None:
    async with watching(Watched()) as monitor:
        answer = await get(monitor, "/etc/passwd")
        assert (answer.status, "/metrics" in answer.text) == (404, True)
        for method in ("POST", "DELETE", "PUT"):
            assert (await get(monitor, "/metrics", method)).status == 405
        assert b"\r\nAllow: GET\r\n" in await raw(monitor, b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET x HTTP/1.1\r\n\r\n",
        b"\xff\0\r\n\r\n",
    ],
)
async def test_what_is_no_request_gets_400(data: bytes) -> None:
    async with watching(Watched()) as monitor:
        assert (await raw(monitor, data)).startswith(b"HTTP/1.1 400 ")
        assert (await get(monitor, "/healthz")).status == 200


async def test_a_request_cut_off_gets_400() -> None:
    async with watching(Watched()) as monitor:
        assert (await raw(monitor, b"GET /healthz HTTP/1.1\r\n", end=True)).startswith(b"HTTP/1.1 400 ")


async def test_an_oversized_request_is_cut() -> None:
    async with watching(Watched(), MonitorLimits(request_bytes=1000)) as monitor:
        data = b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 4000 + b"\r\n\r\n"
        assert (await raw(monitor, data, end=True)).startswith(b"HTTP/1.1 431 ")


async def test_somebody_who_never_stops_sending_is_cut() -> None:
    async with watching(Watched(), MonitorLimits(request_bytes=1000)) as monitor, dialed(monitor) as (_, writer):

        async def flood() -> None:
            while True:
                writer.write(b"x" * 10_000)
                await writer.drain()
                await asyncio.sleep(0)

        with pytest.raises(ConnectionError):
            await flood()


async def test_a_slow_request_is_cut_and_nobody_else_waits() -> None:
    limits = MonitorLimits(request_s=0.3)
    async with watching(Watched(), limits) as monitor, dialed(monitor) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nX: ")
        assert await is_open(monitor)

        async def drip() -> None:
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 408 ")
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


async def test_a_connection_too_many_is_closed_at_once_and_a_place_comes_free_again() -> None:
    limits = MonitorLimits(connections=2, request_s=0.5)
    async with watching(Watched(), limits) as monitor:
        async with dialed(monitor) as (first, _), dialed(monitor) as (second, _):
            while await is_open(monitor):  # until the monitor has seen the two
                pass
            for reader in (first, second):
                assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        while not await is_open(monitor):
            pass


async def test_somebody_who_does_not_read_the_answer_is_cut() -> None:
    watched = Watched()
    watched.reason = "x" * 30_000_000
    async with (
        watching(watched, MonitorLimits(response_s=0.2)) as monitor,
        dialed(monitor) as (reader, writer),
    ):
        writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
        while 'code="none"' not in (await get(monitor, "/metrics")).text:
            pass
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(30_000_000)


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


async def test_an_address_that_is_taken_is_named() -> None:
    watched = Watched()
    async with watching(watched) as monitor:
        second = Monitor(monitor.address, ready=watched.ready, metrics=watched.metrics, status=watched.status)
        with pytest.raises(BadSetting, match=r"monitor = '127.0.0.1:\d+': cannot listen there"):
            await second.start()
        await second.stop()
