"""Server, root, gateway and client on hosts of their own, with keys; cables are pulled, and nobody misses anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from hullcast.network.security.keys import make_pair, write_pair
from tests.support.cluster import COMMAND
from tests.support.hosts import Hosts, NotPermittedHere, hosts
from tests.support.remote_client import remote_client

PATIENCE_S = 90.0
PORT = 7600
RIGHTS = {"root": "node = true", "gateway": "node = true", "client": 'admin = true\npublish = ["*"]\nsubscribe = ["*"]'}


@asynccontextmanager
async def process(log: Path, *words: str | Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that says when it is ready, for the length of the block; then it is killed."""
    with log.open("ab") as errors:
        made = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, stderr=errors)
    try:
        yield made
    finally:
        made.kill()
        await made.communicate()


async def wait_ready(made: asyncio.subprocess.Process, log: Path) -> None:
    assert made.stdout is not None
    ready = await made.stdout.readline()
    assert ready, await asyncio.to_thread(log.read_text)


async def test_links_between_hosts_go_down_and_up_and_nothing_is_lost(tmp_path: Path) -> None:
    names = ("server", "root", "gateway", "client")
    for name in names:
        write_pair(make_pair(name), tmp_path)
    allow = tmp_path / "allow.toml"
    allow.write_text(
        "\n".join(f"[[key]]\n{(tmp_path / f'{name}.pub').read_text()}\n{granted}" for name, granted in RIGHTS.items())
    )
    try:
        async with asyncio.timeout(PATIENCE_S), hosts(*names) as made:
            await _run(made, tmp_path, allow)
    except NotPermittedHere as error:
        pytest.skip(f"no network namespaces here: {error}")


async def _run(made: Hosts, folder: Path, allow: Path) -> None:
    def listen(name: str) -> str:
        return f"tcp://{made.addresses[name]}:{PORT}"

    def member(name: str, *words: str) -> list[str | Path]:
        role = "server" if name == "server" else "node"
        common = [f"--listen={listen(name)}", f"--name={name}", "--heartbeat-s=0.1", "--silence-s=1.2", "--json"]
        keys = [f"--key={folder / name}.key", f"--allow={allow}"]
        return [*made.words(name), COMMAND, role, *common, *keys, *words]

    async with AsyncExitStack() as stack:
        parent = "server"
        started = []
        for name in ("server", "root", "gateway"):
            above = [] if name == "server" else [f"--parent={listen(parent)}", f"--parent-key={folder / parent}.pub"]
            started.append(await stack.enter_async_context(process(folder / f"{name}.log", *member(name, *above))))
            parent = name
        for one, name in zip(started, ("server", "root", "gateway"), strict=True):
            await wait_ready(one, folder / f"{name}.log")
        keys = {"HULLCAST_KEY": f"{folder / 'client.key'}", "HULLCAST_SERVER_KEY": f"{folder / 'gateway.pub'}"}
        remote = remote_client(listen("gateway"), folder / "client.log", before=made.words("client"), **keys)
        client = await stack.enter_async_context(remote)
        for unplugged, seconds in (("gateway", 0.3), ("root", 1.5), ("server", 1.5)):
            await client.wait_acknowledged(20)
            await made.unplug(unplugged)
            await asyncio.sleep(seconds)
            await made.plug(unplugged)
        await client.wait_acknowledged(20)
        await client.finish()
        client.check()
