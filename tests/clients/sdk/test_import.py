"""`import hullcast` is quick: numba and the engine are loaded when they are used; and no public name is missing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hullcast
from hullcast.clients.cli.main import COMMANDS
from hullcast.clients.processes.child import environment
from hullcast.network.wire import walk
from hullcast.network.wire.limits import WireLimits
from tests.support.processes import ANYWHERE, LIMIT_S, started

HEAVY = (
    "numba",
    "llvmlite",
    "sqlglot",
    "sqlite3",
    "rich",
    "hullcast.broker.engine",
    "hullcast.broker.sql",
    "pandas",
    "pyarrow",
    "aiohttp",
    "prometheus_client",
    "hullcast.sim",
    "pyspark",
    "networkx",
)
#: What no server, node or client loads, and no command but those that are about it: the laboratory, and its packages.
LABORATORY = ("hullcast.sim", "pyspark", "networkx")
#: `demo` and `replay` make up rows as the laboratory does, `calibrate` measures join plans as a benchmark does.
OF_THE_LABORATORY = {"bench", "sim", "demo", "replay", "calibrate"}

SAYING = """
import contextlib, io, os, sys
from hullcast.clients.cli import main as cli

def end(code, exit_at_once=os._exit):
    print("loaded:", *(name for name in {laboratory} if name in sys.modules), file=sys.stderr, flush=True)
    exit_at_once(code)

os._exit = end  # servers and nodes end like that
{run}
end(0)
"""


def saying(run: str) -> str:
    """A program that says in the end what of the laboratory it has loaded."""
    return SAYING.format(run=run, laboratory=LABORATORY)


PUBLISHER = """
import asyncio, sys
import hullcast

def heavy():
    return sorted(name for name in {heavy} if name in sys.modules)

async def main():
    async with hullcast.connect({url!r}) as hc:
        await hc.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, RISK REAL, PER REAL)")
        await hc.publish("STOCK", [{{"SYMBOL": f"S{{i}}", "RISK": i, "PER": 2.0 * i}} for i in range(500)])
        assert len(await hc.query("SELECT * FROM STOCK")) == 500
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000) "
        numbers += "SELECT 'S' || i FROM n"
        assert len([rows async for rows in hc.query_portions(numbers)]) > 1  # of more than 10,000 texts each
        await hc.delete("STOCK", ["S7"])
        await hc.status()
        await hc.sync()
        print(*heavy())
        async with hc.subscribe("SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?", 10, 20) as sub:
            assert sub.answer == 20.0, sub.answer
        print(*heavy())

asyncio.run(main())
"""


async def test_a_client_that_publishes_and_queries_imports_neither_numba_nor_the_engine() -> None:
    async with started("server", "--listen", ANYWHERE) as server:
        program = PUBLISHER.format(url=server.endpoint, heavy=HEAVY)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: ASYNC221
    assert done.returncode == 0, done.stderr
    published, subscribed = done.stdout.split("\n")[:2]
    assert published == ""
    assert subscribed.split() == ["llvmlite", "numba"], "a subscription matches messages, with kernels"


FIRST_SUBSCRIBERS = """
import asyncio, sys, hullcast
from hullcast.network import compiling

prepare, inside = compiling.prepare, []
def watched():
    inside.append(1)
    prepare()
    assert inside == [1], "two threads fill numba's tables"
compiling.prepare = watched

async def subscribe(hc, low):
    async with hc.subscribe("SELECT MAX(V) FROM T WHERE V >= ?", low) as sub:
        return sub.answer

async def main():
    sys.setswitchinterval(1e-7)
    clients = [hullcast.connect({url!r}) for _ in range(4)]
    for hc in clients:
        await hc.__aenter__()
    await clients[0].execute("CREATE TABLE T (K INTEGER PRIMARY KEY, V INTEGER)")
    print(await asyncio.gather(*(subscribe(hc, low) for hc in clients for low in range(3))))
    for hc in clients:
        await hc.__aexit__(None, None, None)

asyncio.run(main())
"""


async def test_clients_and_tasks_of_one_process_may_all_subscribe_for_the_first_time_at_the_same_moment() -> None:
    async with started("server", "--listen", ANYWHERE) as server:
        program = FIRST_SUBSCRIBERS.format(url=server.endpoint)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: ASYNC221
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([None] * 12)


@pytest.mark.parametrize("words", ["status", "publish", "query", "execute", "keygen", "up", "subscribe"])
def test_commands_that_compile_and_serve_nothing_do_not_wait_for_numba_or_aiohttp(words: str) -> None:
    program = (
        "import sys, contextlib; from hullcast.clients.cli import main as cli\nwith contextlib.suppress(SystemExit):"
    )
    program += f"cli.main([{words!r}, '--help'])\n"
    program += "print([name for name in ('numba', 'sqlglot', 'aiohttp', 'prometheus_client') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


async def test_a_server_and_a_node_that_served_have_not_loaded_the_laboratory(tmp_path: Path) -> None:
    async def serving(*words: str) -> tuple[asyncio.subprocess.Process, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", saying("cli.main(sys.argv[1:])"), *words),
            *("--listen", ANYWHERE, "--json", "--until-input-ends"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment(),
        )
        assert process.stdout is not None
        return process, str(json.loads(await process.stdout.readline())["endpoint"])

    async def ended(process: asyncio.subprocess.Process) -> str:
        assert process.stdin is not None
        process.stdin.close()
        _, said = await process.communicate()
        return said.decode().splitlines()[-1]

    async with asyncio.timeout(LIMIT_S):
        server, endpoint = await serving("server", "--data", str(tmp_path / "data"))
        node, gateway = await serving("node", "--parent", endpoint)
        async with hullcast.connect(gateway) as client:
            await client.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, PER REAL)")
            await client.execute("CREATE STREAM TICKS (V REAL)")
            async with client.subscribe("SELECT MIN(PER) FROM STOCK WHERE PER BETWEEN ? AND ?", 0, 9):
                await client.publish("STOCK", {"SYMBOL": "A", "PER": 1.0})
                await client.sync()
            assert len(await client.query("SELECT * FROM STOCK")) == 1
        assert (await ended(node), await ended(server)) == ("loaded:", "loaded:")


def test_commands_that_are_not_about_the_laboratory_do_not_load_it() -> None:
    names = [name for name, _ in COMMANDS if name not in OF_THE_LABORATORY]
    assert len(names) + len(OF_THE_LABORATORY) == len(COMMANDS)
    run = f"""
for name in {names}:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        cli.main([name, "--help"])
"""
    done = subprocess.run([sys.executable, "-c", saying(run)], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "loaded:"


def test_every_public_name_is_there_and_shown() -> None:
    assert set(hullcast.__all__) <= set(dir(hullcast))
    assert sorted(hullcast.__all__) == sorted(set(hullcast.__all__))
    for name in hullcast.__all__:
        assert getattr(hullcast, name) is not None
    assert hullcast.Engine.__name__ == "Engine"
    with pytest.raises(AttributeError, match="no attribute 'Engin'"):
        _ = hullcast.Engin  # type: ignore[attr-defined]  # that mypy says so, too, is part of the test


def test_star_imports_bring_every_public_name() -> None:
    program = (
        "from hullcast import *; import hullcast; print([name for name in hullcast.__all__ if name not in globals()])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_bytes_are_walked_alike_in_python_and_compiled() -> None:
    limits = WireLimits()
    samples = [
        b"",
        b"\xc0",
        b"\xc1",
        b"\x93\x01\x02",
        b"\x93\x01\x02\x03",
        b"\xc0\xc0",
        b"\xa3abc",
        b"\xd9\x04abc",
        b"\xc7\xff\x01",
    ]
    samples += [bytes([0x91]) * depth + b"\xc0" for depth in (1, 5, 100)]
    kernel: Any = walk._walk
    most = (limits.objects, limits.containers, limits.extensions, limits.columns)
    for data in samples:
        compiled = kernel(np.frombuffer(data, np.uint8), most, 16, 100)
        assert kernel.py_func(data, most, 16, 100) == compiled
