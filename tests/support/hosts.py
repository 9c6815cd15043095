"""Several hosts on one machine: network namespaces, joined by a switch that is a namespace too."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager


class NotPermittedHere(Exception):
    """This machine or user cannot make network namespaces; the text says why."""


class Hosts:
    """Hosts by name, each with an address on one network; `name` is also the host's end of its cable."""

    def __init__(self, names: Sequence[str]) -> None:
        self._prefix = f"hc{os.getpid() % 100_000}"
        self._switch = f"{self._prefix}-switch"
        self.addresses = {name: f"10.77.3.{number}" for number, name in enumerate(names, 1)}

    def namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def words(self, name: str) -> list[str]:
        """What stands before a command that is to run on this host."""
        return ["ip", "netns", "exec", self.namespace(name)]

    async def set_up(self) -> None:
        """Make them all."""
        await _ip("netns", "add", self._switch)
        await self._in(self._switch, "link", "add", "switch", "type", "bridge")
        await self._in(self._switch, "link", "set", "switch", "up")
        for number, (name, address) in enumerate(self.addresses.items()):
            there, here = self.namespace(name), f"port{number}"
            await _ip("netns", "add", there)
            await self._in(self._switch, "link", "add", here, "type", "veth", "peer", "name", "net0", "netns", there)
            await self._in(self._switch, "link", "set", here, "master", "switch", "up")
            await self._in(there, "address", "add", f"{address}/24", "dev", "net0")
            await self._in(there, "link", "set", "lo", "up")
            await self._in(there, "link", "set", "net0", "up")

    async def unplug(self, name: str) -> None:
        """Take the host's link down."""
        await self._in(self.namespace(name), "link", "set", "net0", "down")

    async def plug(self, name: str) -> None:
        """Take the host's link up again."""
        await self._in(self.namespace(name), "link", "set", "net0", "up")

    async def tear_down(self) -> None:
        """Remove them; cables go with them."""
        for name in (*map(self.namespace, self.addresses), self._switch):
            try:
                await _ip("netns", "delete", name)
            except NotPermittedHere:
                continue  # it never came to be

    async def _in(self, namespace: str, *words: str) -> None:
        await _ip("-netns", namespace, *words)


async def _ip(*words: str) -> None:
    if shutil.which("ip") is None:
        raise NotPermittedHere("there is no `ip` command (iproute2)")
    process = await asyncio.create_subprocess_exec(
        "ip", *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    if process.returncode:
        raise NotPermittedHere(f"`ip {' '.join(words)}` says: {said.decode().strip()}")


@asynccontextmanager
async def hosts(*names: str) -> AsyncIterator[Hosts]:
    """Hosts for the length of the block; NotPermittedHere where they cannot be made."""
    made = Hosts(names)
    try:
        await made.set_up()
        yield made
    finally:
        await made.tear_down()
