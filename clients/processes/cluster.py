"""A cluster on this host: a server, a root and gateways; nodes that die are started again."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.clients.processes.child import Child, ProcessFailed, launch

if TYPE_CHECKING:
    from collections.abc import Callable

SERVER, ROOT = "server", "root"
#: A node that died before it had served for so long is started again later each time, and soon no more.
STEADY_S = 5.0
PAUSES_S = (0.0, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What to start."""

    nodes: int = 3  # 0: the server alone; 1: a root; more: a root, and gateways below it
    data: str = ""  # empty: memory only
    listen: str = "tcp://127.0.0.1:0"
    node_listen: str = "tcp://127.0.0.1:0"
    gateways_from: int = 0  # the port of the first gateway, if it is free; 0: the system chooses all
    monitor: bool = False
    log_level: str = "warning"
    server_module: str = "hullcast"  # what `python -m` runs as the server
    server_options: tuple[str, ...] = ()  # further words of its command line

    @property
    def node_names(self) -> tuple[str, ...]:
        """The root first."""
        return (ROOT, *(f"gateway-{number}" for number in range(1, self.nodes)))[: self.nodes]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell the user: which process, what, and whether it is a line of that process's own log."""

    name: str
    text: str
    is_log: bool = False


class Cluster:
    """Runs from `start` to `stop`; after `stop` no process is left, whatever happened in between.

    They do not start one after the other: the server first, because on a cold cache it compiles what all need, then
    the root, then the gateways together. All stop at the same time.
    """

    def __init__(self, layout: Layout, tell: Callable[[Notice], None] = lambda notice: None) -> None:
        self.layout = layout
        self.children: dict[str, Child] = {}
        self._tell = tell

    @property
    def server(self) -> Child:
        """The server's process."""
        return self.children[SERVER]

    @property
    def nodes(self) -> list[Child]:
        """The nodes' processes, the root first."""
        return [self.children[name] for name in self.layout.node_names]

    @property
    def gateways(self) -> list[Child]:
        """The processes clients should dial: gateways, or the root, or the server, whatever there is at the edge."""
        names = self.layout.node_names[1:] or self.layout.node_names or (SERVER,)
        return [self.children[name] for name in names]

    async def start(self) -> None:
        """Start all; ProcessFailed if one does not come up, and then none is left."""
        try:
            await self._start_all()
        except BaseException:
            await self.stop()
            raise

    async def _start_all(self) -> None:
        await self._start(SERVER, self.layout.listen)
        root, *gateways = self.layout.node_names or ("",)
        if root:
            await self._start(root, self.layout.node_listen)
        try:
            async with asyncio.TaskGroup() as tasks:
                for number, name in enumerate(gateways):
                    tasks.create_task(self._start(name, self._gateway_listen(number)), name=f"cluster.{name}")
        except* ProcessFailed as failures:
            raise failures.exceptions[0] from None

    def _gateway_listen(self, number: int) -> str:
        """Where a gateway listens: always at the same place, unless that is taken."""
        port = self.layout.gateways_from + number
        if not self.layout.gateways_from:
            return self.layout.node_listen
        host, _, _ = self.layout.node_listen.rpartition(":")
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as ZeroMQ does
            try:
                trial.bind((host.removeprefix("tcp://"), port))
            except OSError:
                name = self.layout.node_names[number + 1]
                self._tell(Notice(name, f"port {port} is taken, so the system chooses one"))
                return self.layout.node_listen
        return f"{host}:{port}"

    async def watch(self) -> None:
        """Start nodes again that die; raises ProcessFailed when the server dies, or a node does so again and again."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch_server(), name="cluster.server")
                for name in self.layout.node_names:
                    tasks.create_task(self._watch_node(name), name=f"cluster.{name}")
        except* ProcessFailed as failures:
            raise failures.exceptions[0] from None

    async def stop(self) -> None:
        """Stop all."""
        await asyncio.gather(*(child.stop() for child in self.children.values()))

    def kill(self) -> str:
        """Kill all that still run, from any thread; their names."""
        alive = [child for child in self.children.values() if child.alive]
        for child in alive:
            child.signal(signal.SIGKILL)
        return ", ".join(child.name for child in alive)

    async def _watch_server(self) -> None:
        await self.server.wait()
        raise self.server.failure()

    async def _watch_node(self, name: str) -> None:
        endpoint, early = self.children[name].endpoint, 0
        while True:
            began = time.monotonic()
            await self.children[name].wait()
            failure = self.children[name].failure()
            early = early + 1 if time.monotonic() - began < STEADY_S else 0
            while True:
                if early >= len(PAUSES_S):
                    raise failure
                self._tell(Notice(name, f"{failure.how}; starting it again"))
                await asyncio.sleep(PAUSES_S[early])
                try:
                    await self._start(name, endpoint)  # at the same place, where its clients look for it
                    break
                except ProcessFailed as error:
                    failure, early = error, early + 1
            self._tell(Notice(name, f"serves again at {endpoint}"))

    async def _start(self, name: str, listen: str) -> None:
        words = ["--name", name, "--listen", listen, "--advertise", "", "--log-level", self.layout.log_level]
        words += ["--monitor", "127.0.0.1:0" if self.layout.monitor else ""]
        if name == SERVER:
            words = ["server", "--data", self.layout.data, *words, *self.layout.server_options]
        else:
            ways = [self.server] if name == ROOT else [self.children[ROOT], self.server]
            words = ["node", *(word for way in ways for word in ("--parent", way.endpoint)), *words]
        child = self.children[name] = await launch(
            words,
            name=name,
            hear=lambda text: self._tell(Notice(name, text, is_log=True)),
            module=self.layout.server_module if name == SERVER else "hullcast",
        )
        await child.wait_ready()
