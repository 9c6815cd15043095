"""The commands of broker/server/OPERATING.md run as they stand there.

Only places differ: hosts are this one, ports are free ones, folders are the test's.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.cluster import PATIENT, cluster
from tests.support.exposition import read_metrics
from tests.support.processes import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
OPERATING = (ROOT / "broker" / "server" / "OPERATING.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
SERVING = ("hullcast server ", "hullcast node ")


class Sandbox:
    """A folder in which commands run one after the other; servers and nodes stay until the end."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._exports: list[str] = []
        self._ports: dict[str, int] = {}
        command = folder / "bin" / "hullcast"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m hullcast "$@"\n')
        command.chmod(0o755)

    async def run(self, lines: list[str]) -> str:
        """Run the lines of one block; what they print."""
        printed = []
        for line in map(self._here, lines):
            if line.startswith(SERVING):
                printed.append(await self._stack.enter_async_context(self._serving(line)))
            elif line.startswith("export "):
                self._exports.append(line)
            else:
                process = await self._start(line)
                out, error = await process.communicate()
                assert process.returncode == 0, f"{line}\n{out.decode()}{error.decode()}"
                printed.append(out.decode())
        return "".join(printed)

    async def metrics(self, address: str) -> str:
        """What the monitor with this address in the document serves."""
        url = f"http://127.0.0.1:{self._ports[address]}/metrics"
        with await asyncio.to_thread(urllib.request.urlopen, url) as answer:
            return str(answer.read(), "utf-8")

    def _here(self, line: str) -> str:
        """A line with places of this host."""

        def port(found: re.Match[str]) -> str:
            return f"127.0.0.1:{self._ports.setdefault(found[0], free_port())}"

        line = re.sub(r"\b\d+\.\d+\.\d+\.\d+:\d+", port, line)
        return re.sub(r"(?<=\s)/(var|backup|archive)/", rf"{self._folder}/\1/", line)

    async def _start(self, line: str) -> asyncio.subprocess.Process:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("HULLCAST_")}
        path = f"{self._folder / 'bin'}{os.pathsep}{variables['PATH']}"
        return await asyncio.create_subprocess_exec(
            "bash",
            "-euo",
            "pipefail",
            "-c",
            "\n".join((*self._exports, line)),
            cwd=self._folder,
            env=variables | {"PATH": path, "PYTHONPATH": str(ROOT)},
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )

    @asynccontextmanager
    async def _serving(self, line: str) -> AsyncIterator[str]:
        process = await self._start(f"exec {line}")  # the process itself, for the signal
        assert process.stdout is not None
        try:
            ready = (await process.stdout.readline()).decode()
            assert " ready at " in ready, f"{line}\n{(await process.communicate())[1].decode()}"
            yield ready
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()
        assert process.returncode == 0


@asynccontextmanager
async def sandbox(folder: Path) -> AsyncIterator[Sandbox]:
    async with asyncio.timeout(3 * LIMIT_S), AsyncExitStack() as stack:
        yield Sandbox(folder, stack)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def test_the_commands_of_operating_run_word_for_word(tmp_path: Path) -> None:
    blocks = [block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```$", OPERATING, re.DOTALL | re.MULTILINE)]
    assert len(blocks) == 5, "keys, cluster, client, copy, export"
    async with sandbox(tmp_path) as here:
        keys, cluster, client, copy, export = [await here.run(block) for block in blocks]
        assert "cluster may: node" in keys
        assert cluster.count(" ready at ") == 2
        assert "ACME" in client
        server, node = [read_metrics(await here.metrics(f"127.0.0.1:{port}")) for port in (9600, 9601)]
        named = set(re.findall(r"`(hullcast_\w+)`", OPERATING))
        assert named <= server.keys() | node.keys()
        assert len(named) > 10
        for name, family in (server | node).items():
            assert family.type == ("counter" if name.endswith("_total") else "gauge"), name
        assert copy.count("the last good record is 2 (update 1)") == 2
        assert "STOCK: 1 row, 1 change\n" in export
        assert "STOCK: 1 row, 0 changes\n" in export
        place = "tcp://10.0.0.9:7600"
        await here.run([f"hullcast server --data /backup/monday --listen {place} --key keys/cluster.key --open"])
        assert "ACME" in await here.run([f'hullcast query "SELECT * FROM STOCK" --url {place} --key keys/desk.key'])


async def test_a_row_takes_as_much_of_the_log_as_the_document_says(tmp_path: Path) -> None:
    batched, alone = (float(one) for one in re.findall(r"^\| log, .* \| (\d+) bytes", OPERATING, re.MULTILINE))
    create = re.search(r"CREATE TABLE IF NOT EXISTS STOCK \(.*\)", README)
    assert create is not None
    async with asyncio.timeout(LIMIT_S), cluster(0, tmp_path, link=PATIENT) as made, made.client() as hc:

        def written() -> int:
            return sum(path.stat().st_size for path in (tmp_path / "log").glob("*.log"))

        def stock(number: int) -> dict[str, object]:
            return {"SYMBOL": f"S{number:06d}", "SECTOR": "TECH", "RISK": 35.5, "RECO": 2.5, "PER": 11.5}

        await hc.execute(create[0])
        begun = written()
        await hc.publish("STOCK", [stock(number) for number in range(1000)])
        assert (written() - begun) / 1000 == pytest.approx(batched, rel=0.2)
        begun = written()
        for number in range(20):
            await hc.publish("STOCK", stock(number))
        assert (written() - begun) / 20 == pytest.approx(alone, rel=0.2)


def test_one_server_upgrades_and_sizes_are_written_about() -> None:
    assert "There is one server, and no standby." in README
    assert {"## Upgrades", "## Sizes"} <= set(OPERATING.splitlines())
