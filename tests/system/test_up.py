"""`hullcast up`: a cluster that starts with one command, mends itself, and leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hullcast
from hullcast.clients.cli.commands.up import _gateways_from
from hullcast.clients.processes.child import command, environment
from hullcast.clients.processes.cluster import Cluster, Layout, Notice
from hullcast.clients.processes.signals import SAME_S
from hullcast.clients.sdk.connecting import DEFAULT_URL
from hullcast.network.node.stopping import STOP_S
from tests.support.documents import section, text_of
from tests.support.processes import ANYWHERE, LIMIT_S, marked, running, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield from marked(monkeypatch)


@contextmanager
def up(*words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command("up", "--listen", ANYWHERE, *words),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:  # closes the pipes
        try:
            yield process
        finally:
            process.kill()  # only if the test failed: its children notice and stop


async def line(stream: IO[str] | None) -> dict[str, Any]:
    assert stream is not None
    async with asyncio.timeout(LIMIT_S):
        return dict(json.loads(await asyncio.to_thread(stream.readline)))


async def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = await asyncio.to_thread(process.communicate, timeout=LIMIT_S)
    return process.returncode, out, err


async def test_a_gateway_that_is_killed_comes_back_and_everything_goes_on(tmp_path: Path) -> None:
    with up("--nodes", "3", "--json", "--monitor") as process:
        facts = await line(process.stdout)
        assert facts["ready"] is True
        assert [node["name"] for node in facts["nodes"]] == ["root", "gateway-1", "gateway-2"]
        assert all(each["monitor"] for each in (facts["server"], *facts["nodes"]))
        assert len(running()) == 5
        gateway = facts["nodes"][1]
        assert facts["endpoint"] == gateway["endpoint"]
        async with hullcast.connect(gateway["endpoint"], timeout=LIMIT_S) as hc:
            await hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL)")
            async with hc.subscribe("SELECT COUNT(*) FROM T WHERE V BETWEEN 0 AND 10") as sub:
                await hc.publish("T", [{"K": 1, "V": 1.0}])
                os.kill(gateway["pid"], signal.SIGKILL)
                again = [await line(process.stdout), await line(process.stdout)]
                assert [each["name"] for each in again] == ["gateway-1", "gateway-1"]
                assert "killed by SIGKILL" in again[0]["event"]
                assert gateway["endpoint"] in again[1]["event"]
                await hc.publish("T", [{"K": 2, "V": 2.0}])
                await wait_until(lambda: sub.answer == 2)
        async with hullcast.connect(gateway["endpoint"]) as hc:
            assert await hc.query("SELECT COUNT(*) FROM T") == [(2,)]
        process.send_signal(signal.SIGINT)
        code, _, errors = await ended(process)
        assert code == 0, errors
        assert running() == []
        assert os.listdir(tmp_path) == []  # the temporary data is gone


async def test_no_process_survives_a_cluster_that_is_killed(tmp_path: Path) -> None:
    with up("--nodes", "1", "--data", str(tmp_path / "data"), "--json") as process:
        assert (await line(process.stdout))["ready"]
        process.kill()
        await ended(process)
        await wait_until(lambda: running() == [])
        assert (tmp_path / "data").exists()


async def test_a_cluster_whose_server_dies_ends_with_an_error() -> None:
    with up("--nodes", "1", "--json") as process:
        facts = await line(process.stdout)
        os.kill(facts["server"]["pid"], signal.SIGKILL)
        code, _, errors = await ended(process)
        assert code == 2
        assert errors.splitlines()[-1] == "hullcast: server killed by SIGKILL"
        assert running() == []


async def test_a_port_that_is_taken_is_said_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with up("--listen", f"tcp://127.0.0.1:{taken.getsockname()[1]}", "--nodes", "0") as process:
            code, _, errors = await ended(process)
    assert code == 2
    assert len(errors.splitlines()) == 1, errors


@pytest.mark.parametrize("again", [False, True])
async def test_a_cluster_stops_in_time_though_its_processes_are_stopped(again: bool) -> None:
    """And at once, if it is told a second time."""
    with up("--nodes", "2", "--json") as process:
        facts = await line(process.stdout)
        for each in (facts["server"], *facts["nodes"]):
            os.kill(each["pid"], signal.SIGSTOP)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        if again:
            await asyncio.sleep(2 * SAME_S)
            process.send_signal(signal.SIGTERM)
        code, _, errors = await ended(process)
        assert time.monotonic() - began < STOP_S
        assert code == (128 + signal.SIGTERM if again else 0), errors
        await wait_until(lambda: running() == [])


async def test_a_cluster_can_be_stopped_while_it_starts() -> None:
    with up("--json") as process:
        await wait_until(lambda: len(running()) == 2)
        process.send_signal(signal.SIGTERM)
        code, out, _ = await ended(process)
        assert (code, out) == (0, "")
        assert running() == []


async def test_who_cancels_the_start_of_a_cluster_gets_the_cancellation_and_no_process_is_left() -> None:
    """A group of it would be an error with a traceback, where Ctrl-C should end a benchmark with 130."""
    starting = asyncio.create_task(Cluster(Layout(nodes=1, listen=ANYWHERE)).start())
    await wait_until(lambda: len(running()) == 1)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert running() == []


async def test_gateways_have_the_ports_after_the_server_as_far_as_they_are_free() -> None:
    with socket.socket() as taken, socket.socket() as free:
        for port in range(20_000, 30_000, 7):  # two neighbours
            with suppress(OSError):
                free.bind(("127.0.0.1", port))
                taken.bind(("127.0.0.1", port + 1))
                break
        free.close()
        taken.listen()
        notices: list[Notice] = []
        cluster = Cluster(Layout(gateways_from=port), notices.append)
        assert cluster._gateway_listen(0) == f"tcp://127.0.0.1:{port}"
        assert cluster._gateway_listen(1) == ANYWHERE
        assert notices == [Notice("gateway-2", f"port {port + 1} is taken, so the system chooses one")]
    assert Cluster(Layout())._gateway_listen(0) == ANYWHERE
    assert (_gateways_from(DEFAULT_URL), _gateways_from(ANYWHERE)) == (7601, 0)


async def test_the_steps_of_the_readme_follow_each_other_and_can_be_repeated() -> None:
    """first.py twice, the commands after it, then what `hullcast up` says to try: all on one STOCK table."""
    (first,) = re.findall(r"^```python\n(.*?)^```$", text_of("README.md"), re.DOTALL | re.MULTILINE)
    steps = section("FIRST_STEPS.md", "## From the shell")
    commands = re.findall(r"^    \.venv/bin/(hullcast .*)$", steps, re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["replay", "query", "query", "subscribe", "execute", "query"]
    with up() as process:
        hint = await said(process)
        assert "Rows are in a temporary folder, which is removed at the end; `--data DIR` keeps them." in hint
        server = next(word for word in hint.split() if word.startswith("tcp://"))
        tried = [line for line in hint.splitlines() if "hullcast" in line and "--url" in line]
        assert [line.split("hullcast")[1].split()[0] for line in tried] == ["execute", "subscribe", "publish"]
        first = first.replace("tcp://127.0.0.1:7600", server)
        assert (await python(first)).splitlines() == ["None 0", "Change(seq=1, answer=11.5)"]
        assert (await python(first)).splitlines() == ["11.5 1", "Change(seq=2, answer=11.0)"]
        assert "updates/s" in await shell(commands[0], server)
        assert "SPACE" in await shell(commands[1], server)
        assert await shell(commands[2], server)
        assert await shell(commands[3], server)
        for command in (*commands[4:], *commands[4:]):
            await shell(command, server)
        assert "SPACE" in await shell(commands[5], server)
        await python(first)
        for line in (*tried, tried[0]):
            await shell(line + (" --seconds 1" if "subscribe" in line else ""), "tcp://127.0.0.1:1")
        assert "Snapshot(" in await python(textwrap.dedent(hint[hint.index("  import asyncio") :]))
        process.send_signal(signal.SIGTERM)
        assert (await ended(process))[0] == 0


async def said(process: subprocess.Popen[str]) -> str:
    """All that `hullcast up` prints when it is ready."""
    text = ""
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        while "asyncio.run(main())" not in text:
            text += await asyncio.to_thread(process.stdout.readline)
    return text


async def python(script: str) -> str:
    return await output([sys.executable, "-c", script], environment())


async def shell(line: str, url: str) -> str:
    variables = environment()
    path = os.pathsep.join((str(Path(sys.executable).parent), variables["PATH"]))
    return await output(["sh", "-c", line], {**variables, "PATH": path, "HULLCAST_URL": url})


async def output(words: list[str], variables: dict[str, str]) -> str:
    tried = await asyncio.to_thread(
        subprocess.run, words, env=variables, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert tried.returncode == 0, (words, tried.stderr)
    return tried.stdout
