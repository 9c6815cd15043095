"""The examples run, alone and on a cluster that loses a gateway, and what their pages say of them is true."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import sys
import textwrap
from asyncio.subprocess import PIPE, Process
from typing import TYPE_CHECKING, Any

import pytest

import hullcast
from hullcast.clients.examples import coastal_watch, merchants
from hullcast.clients.processes.child import environment
from hullcast.clients.processes.cluster import Cluster, Layout
from tests.support.documents import text_of
from tests.support.processes import LIMIT_S, marked

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = {
    "MERCHANTS.md": (*merchants.TABLES, merchants.MATCHES),
    "COASTAL_WATCH.md": (*coastal_watch.TABLES, coastal_watch.IN_REACH),
}
EVENTS = {
    "MERCHANTS.md": r" *\d+\.\d s  \w+ \d+ +(made|changed|gone) +[\d,]+ (\w+) from S\d+, [\d,]+ \2 for C\d+",
    "COASTAL_WATCH.md": r"\d\d:\d\d:\d\d  \w+ \d+ +(ALARM|out of reach) +\w+ \d+ +at km \d+\.\d",
}
NOBODY = "tcp://127.0.0.1:1"


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("HULLCAST_URL", raising=False)
    yield from marked(monkeypatch)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)


def commands(page: str) -> tuple[list[str], list[str]]:
    """What the page tells its reader to type: to run the example by itself, and on a cluster."""
    alone, on_cluster = re.findall(
        r"^    \.venv/bin/python (-m hullcast\.clients\.examples\..*)$", text_of(page), re.MULTILINE
    )
    assert "--url" not in alone
    return shlex.split(alone), shlex.split(on_cluster)


async def begin(words: list[str], *more: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, *words, *more, env=environment(), stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE
    )


async def ended(process: Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(LIMIT_S):
        out, error = await process.communicate()
    return process.returncode, out.decode(), error.decode()


async def first_line(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        return (await process.stdout.readline()).decode()


def form(line: str) -> str:
    """A line of output without its numbers."""
    return re.sub(r"\d[\d,]*", "#", line)


def check_output(page: str, output: str) -> None:
    """It is as the page shows it, and says that all is right."""
    (shown,) = blocks(page, "text")
    for first, *events, sums, verdict in (shown.splitlines(), output.splitlines()):
        assert events
        assert [line for line in events if not re.fullmatch(EVENTS[page], line)] == []
        assert (form(first), form(sums), form(verdict)) == tuple(form(shown.splitlines()[i]) for i in (0, -2, -1))
        right, of = re.findall(r"\d+", verdict)
        assert right == of != "0"


class Witness:
    """A subscriber of the test's own, at another gateway, that knows an answer from events alone."""

    def __init__(self, sql: str, *parameters: object) -> None:
        self.sql, self.parameters = sql, parameters
        self.rows: set[Any] = set()
        self.entered = self.others = 0

    async def subscribe(self, hc: hullcast.Client) -> None:
        self.subscription = await hc.subscribe(self.sql, *self.parameters)
        assert self.subscription.answer == []

    async def check(self, hc: hullcast.Client) -> None:
        """Its events add up to what SQL says."""
        while (event := self.subscription.take_nowait()) is not None:
            assert isinstance(event, hullcast.Change)
            self.rows -= {*event.left, *(before for before, _ in event.changed)}
            self.rows |= {*event.entered, *(after for _, after in event.changed)}
            self.entered += len(event.entered)
            self.others += len(event.left) + len(event.changed)
        assert sorted(self.rows) == sorted(await hc.query(self.sql, *self.parameters))
        assert self.entered >= len(self.rows) > 0


async def test_the_examples_run_on_a_cluster_one_of_whose_gateways_dies() -> None:
    cluster = Cluster(Layout(nodes=3))
    await cluster.start()
    try:
        dying, staying = cluster.gateways
        async with hullcast.connect(staying.endpoint) as hc:
            for create in (*merchants.TABLES, *coastal_watch.TABLES):
                await hc.execute(create)
            witnesses = [
                Witness(merchants.MATCHES, 10, 500, 10, 500),
                Witness(merchants.MATCHES, 1000, 9000, 10, 9000),
                Witness(coastal_watch.IN_REACH, -40, 40, "Radar", "aircraft", 0, "2001-01-01"),
            ]
            for witness in witnesses:
                await witness.subscribe(hc)
            nobody = await begin(commands("MERCHANTS.md")[0], "--url", NOBODY)
            processes = {}
            for page, gateway in zip(PAGES, (dying, staying), strict=True):
                words = [word.replace("tcp://127.0.0.1:7600", gateway.endpoint) for word in commands(page)[1]]
                assert gateway.endpoint in words
                processes[page] = await begin(words, "--seconds", "2")
            first = await first_line(processes["MERCHANTS.md"])
            dying.signal(signal.SIGKILL)
            for page, process in processes.items():
                code, out, error = await ended(process)
                assert (code, error) == (0, ""), out + error
                check_output(page, first + out if page == "MERCHANTS.md" else out)
            await hc.sync()
            for witness in witnesses:
                await witness.check(hc)
            assert sum(witness.others for witness in witnesses) > 0
            code, out, error = await ended(nobody)
            assert (code, out) == (2, "")
            assert re.fullmatch(rf"merchants: no connection .*{NOBODY}.*is a server or node running there.*\n", error)
    finally:
        await cluster.stop()


async def test_an_example_runs_by_itself_and_stops_quietly_at_ctrl_c() -> None:
    process = await begin(commands("MERCHANTS.md")[0], "--seconds", "1")
    stopped = await begin(commands("COASTAL_WATCH.md")[0])
    await first_line(stopped)
    stopped.send_signal(signal.SIGINT)
    code, out, error = await ended(process)
    assert (code, error) == (0, ""), out + error
    check_output("MERCHANTS.md", out)
    code, _, error = await ended(stopped)
    assert (code, error) == (130, "")


@pytest.mark.parametrize(("page", "statements"), PAGES.items())
def test_a_page_shows_the_statements_of_its_example(page: str, statements: tuple[str, ...]) -> None:
    creates, select = blocks(page, "sql")
    assert (*creates.splitlines(), " ".join(select.split())) == statements


@pytest.mark.parametrize("page", PAGES)
async def test_the_code_of_a_page_runs(page: str) -> None:
    (code,) = blocks(page, "python")
    names: dict[str, Any] = {"hullcast": hullcast}
    exec(compile(f"async def example(hc):\n{textwrap.indent(code, '    ')}", page, "exec"), names)
    async with hullcast.testing.cluster(nodes=1) as endpoint, hullcast.connect(endpoint) as hc:
        for create in PAGES[page][:2]:
            await hc.execute(create)
        async with asyncio.timeout(LIMIT_S):
            await names["example"](hc)
