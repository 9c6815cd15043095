"""A client in another language, written from network/wire/PROTOCOL.md alone, hears what ours would.

`javascript/` holds it. Its npm packages are pinned by package-lock.json, and installed once into a cache folder outside
the source tree; where Node, npm or the registry are missing, the test says so and is skipped.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hullcast.clients.sdk.client import Client
from hullcast.network.settings.common import LinkSettings
from tests.support.cluster import PATIENCE_S, cluster

SOURCE = Path(__file__).with_name("javascript")
LINK = LinkSettings(heartbeat_s=0.1, silence_s=2.0)
INSTALL_S = 60.0
#: What npm says when there is no way to the registry. Any other failure of it is ours.
UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH")

#: By name: a subscription, and its parameters. One of each kind, with and without a range, and with an equality.
ASKED: dict[str, tuple[str, list[object]]] = {
    "cheapest": ("SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?", [2, 5.5]),
    "dearest": ("SELECT MAX(PER) FROM STOCK WHERE SECTOR = ? AND RISK < ?", ["TECH", 7]),
    "rows": ("SELECT SYMBOL, PER, SECTOR FROM STOCK WHERE RISK BETWEEN ? AND ?", [2, 5.5]),
    "total": ("SELECT SUM(PER) FROM STOCK WHERE RISK >= ?", [3]),
    "shares": ("SELECT SUM(SHARES) FROM STOCK", []),
    "mean": ("SELECT AVG(PER) FROM STOCK WHERE RISK BETWEEN ? AND ? AND SHARES <= ?", [1, 6, 40]),
    "count": ("SELECT COUNT(*) FROM STOCK WHERE SECTOR = ?", ["TECH"]),
    "sectors": ("SELECT DISTINCT SECTOR FROM STOCK WHERE RISK BETWEEN ? AND ?", [2, 5.5]),
    "pairs": ("SELECT STOCK.SYMBOL, NEWS.TITLE FROM STOCK JOIN NEWS USING (SECTOR) WHERE STOCK.RISK <= ?", [4]),
    "nothing": ("SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?", [8, 2]),
}


@pytest.fixture(scope="session")
def packages() -> Path:
    """The folder node_modules with what package-lock.json names."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip(f"{'node' if node is None else 'npm'} is not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < 20:
        pytest.skip(f"node is {version}; the client needs version 20 or newer")
    names = ("package.json", "package-lock.json")
    digest = hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in names)).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hullcast-tests"
    installed = cache / f"javascript-{digest[:16]}"
    if not installed.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as made:
            for name in names:
                shutil.copy(SOURCE / name, made)
            _install(npm, Path(made))
            try:
                os.rename(made, installed)
            except OSError:  # another process was faster
                assert installed.exists()
            else:
                os.mkdir(made)  # for TemporaryDirectory to remove
    # No script of a package is run, so nothing is compiled: zeromq brings its binaries with it.
    loaded = subprocess.run(
        [node, "--eval", "require('zeromq')"],
        cwd=installed,
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALL_S,
    )
    if loaded.returncode:
        pytest.skip(f"npm's zeromq has no binary for this machine: {loaded.stderr[-500:]}")
    return installed / "node_modules"


def _install(npm: str, folder: Path) -> None:
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=20000"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install zeromq within {INSTALL_S:g} s (is the registry reachable?)")
    if done.returncode:
        for line in done.stderr.splitlines():
            if any(code in line for code in UNREACHABLE):
                pytest.skip(f"npm cannot reach its registry: {line}")
    assert done.returncode == 0, done.stderr


class Listener:
    """The JavaScript program: what it told so far."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.told: list[dict[str, Any]] = []

    async def wait_for(self, event: str, accept: Callable[[dict[str, Any]], bool] = lambda told: True) -> None:
        """Read what it tells until it told that."""
        assert self.process.stdout is not None
        while True:
            line = await self.process.stdout.readline()
            assert line, f"the program ended before it told `{event}`"
            self.told.append(json.loads(line))
            if self.told[-1]["event"] == event and accept(self.told[-1]):
                return

    async def sync(self, seq: int) -> None:
        """Wait until it has heard everything up to there."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"sync\n")
        await self.wait_for("synced", lambda told: told["seq"] >= seq)

    @property
    def links(self) -> list[str]:
        """The gateways it has had a link to, in order."""
        return [told["endpoint"] for told in self.told if told["event"] == "linked"]

    def values(self, event: str, name: str) -> list[tuple[int, Any]]:
        """What it told of one subscription: sequence numbers and answers."""
        found = [told for told in self.told if told["event"] == event and told["name"] == name]
        return [(told.get("seq", 0), comparable(told["value"])) for told in found]


@asynccontextmanager
async def listening(packages: Path, folder: Path, endpoints: list[str]) -> AsyncIterator[Listener]:
    """The program, with all subscriptions of ASKED open; it has ended in good order at the end."""
    shutil.copytree(SOURCE, folder, ignore=lambda _, names: [name for name in names if not name.endswith(".mjs")])
    (folder / "node_modules").symlink_to(packages)
    asked = [word for name, (sql, parameters) in ASKED.items() for word in (name, sql, json.dumps(parameters))]
    process = await asyncio.create_subprocess_exec(
        "node", folder / "listen.mjs", ",".join(endpoints), *asked, stdin=PIPE, stdout=PIPE
    )
    try:
        listener = Listener(process)
        await listener.wait_for("opened", lambda told: told["name"] == list(ASKED)[-1])
        yield listener
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def comparable(answer: Any) -> Any:
    """An answer as SQL and JSON have it in common; the order of rows means nothing."""
    return sorted(answer, key=repr) if isinstance(answer, list) else answer


class Judge:
    """Publishes, and asks SQL after each update what every answer is."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._now: dict[str, Any] = {}
        self.first: dict[str, Any] = {}
        self.changes: dict[str, list[tuple[int, Any]]] = {name: [] for name in ASKED}
        self.seq = 0

    async def begin(self) -> None:
        """Note the answers from which changes are told."""
        self._now = {name: await self._answer(name) for name in ASKED}
        self.first = dict(self._now)

    async def publish(self, table: str, row: dict[str, object] | str) -> None:
        """One row, or the key of a row that goes."""
        change = self._client.delete(table, [row]) if isinstance(row, str) else self._client.publish(table, [row])
        receipt = await change
        assert receipt.updates == 1
        self.seq = receipt.seq
        for name in ASKED:
            answer = await self._answer(name)
            if answer != self._now[name]:
                self._now[name] = answer
                self.changes[name].append((self.seq, answer))

    async def _answer(self, name: str) -> Any:
        sql, parameters = ASKED[name]
        rows = [list(row) for row in await self._client.query(sql, *parameters)]
        if name in ("rows", "pairs"):
            return comparable(rows)
        values = [value for (value,) in rows]
        return comparable(values) if name == "sectors" else values[0]


def stock(symbol: str, sector: str | None, risk: float | None, per: float | None, shares: int) -> dict[str, object]:
    return {"SYMBOL": symbol, "SECTOR": sector, "RISK": risk, "PER": per, "SHARES": shares}


async def test_a_client_written_from_the_protocol_alone_misses_nothing_when_its_gateway_dies(
    packages: Path, tmp_path: Path
) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(3, processes=tmp_path, link=LINK) as c,
        c.client("server") as publisher,
    ):
        await publisher.execute(
            "CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK REAL, PER REAL, SHARES INTEGER)"
        )
        await publisher.execute("CREATE TABLE NEWS (TITLE TEXT PRIMARY KEY, SECTOR TEXT)")
        await publisher.publish("STOCK", [stock("IBM", "TECH", 4, 20, 10), stock("SAP", "TECH", 5, 12.5, 20)])
        await publisher.publish("NEWS", [{"TITLE": "up", "SECTOR": "TECH"}])
        judge = Judge(publisher)
        await judge.begin()
        async with listening(packages, tmp_path / "program", [c["g1"].listen, c["g2"].listen]) as program:
            assert program.links == [c["g1"].listen]
            assert {name: program.values("opened", name) for name in ASKED} == {
                name: [(0, answer)] for name, answer in judge.first.items()
            }

            for change in (
                stock("BMW", "CARS", 3, 6.25, 30),  # a new minimum
                stock("SAP", "TECH", 5, 12.5, 21),  # only what SUM(SHARES) reads
                stock("BMW", "CARS", 3, None, 30),  # NULL: the old minimum is uncovered
                stock("XYZ", None, 4.5, -0.5, 2**40),
                "IBM",
            ):
                await judge.publish("STOCK", change)
            await judge.publish("NEWS", {"TITLE": "down", "SECTOR": "CARS"})
            await program.sync(judge.seq)

            # While it stands still, its gateway passes on two updates and dies; others follow that it can only miss.
            program.process.send_signal(signal.SIGSTOP)
            await judge.publish("STOCK", stock("BMW", "CARS", 3, 7.5, 31))
            await judge.publish("STOCK", stock("IBM", "TECH", 2, 8, 10))
            await c.kill("g1")
            await judge.publish("STOCK", stock("IBM", "TECH", 2, 8.25, 11))
            await judge.publish("STOCK", "BMW")
            await judge.publish("NEWS", {"TITLE": "up", "SECTOR": "CARS"})
            await judge.publish("STOCK", stock("NEW", "FOOD", 3.5, 5, 1))
            program.process.send_signal(signal.SIGCONT)
            await program.wait_for("linked", lambda told: bool(told["endpoint"] == c["g2"].listen))
            await program.sync(judge.seq)

            # It listens, and says nothing but that it is there: longer than a silent client would keep its link.
            until = time.monotonic() + 1.5 * LINK.silence_s
            while time.monotonic() < until:
                await judge.publish("STOCK", stock("NEW", "FOOD", 3.5, 5 + judge.seq % 8 / 4, 1))
            for symbol in ("XYZ", "NEW", "SAP", "IBM"):
                await judge.publish("STOCK", symbol)
            await program.sync(judge.seq)

        assert program.links == [c["g1"].listen, c["g2"].listen]
        for name in ASKED:
            assert not program.values("resync", name), name
            assert program.values("changed", name) == judge.changes[name], name
        assert all(judge.changes[name] for name in ASKED if name != "nothing")
