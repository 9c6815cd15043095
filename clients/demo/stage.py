"""The processes of the demo: a cluster, two with clients, one that publishes; `stop` ends them all."""

from __future__ import annotations

import asyncio
import json
import signal
from math import nan
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from hullcast.clients.demo.scenario import AT_FIRST, CLIENTS, GATEWAYS, HOSTS, PUBLISHER
from hullcast.clients.demo.traffic import LinkLoad
from hullcast.clients.processes.cluster import SERVER, Cluster, Layout
from hullcast.clients.processes.worker import Worker
from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.frame.machine import cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hullcast.clients.demo.director import DemoSettings
    from hullcast.clients.processes.cluster import Notice

ANSWER_S = 10.0


class DemoStage:
    """Real processes on this host: the rows in a synced commit log, everything else as a user would run it."""

    def __init__(self, folder: Path, settings: DemoSettings, tell: Callable[[Notice], None]) -> None:
        self.record = folder / "published.jsonl"
        self._folder, self._settings = folder, settings
        self._cluster = Cluster(Layout(nodes=1 + len(GATEWAYS), data=str(folder / "data"), monitor=True), tell)
        self.workers: dict[str, Worker] = {}
        self._counted: dict[str, dict[str, Any]] = {}
        self._killed: dict[str, float] = {}  # with the CPU time they had taken

    async def start(self, done: Callable[[str], None]) -> int:
        """Start all, publish the rows there are at first, subscribe; how many subscriptions there are. `done` is
        called after each step."""
        for name in (*HOSTS, PUBLISHER):  # first: they load while the cluster does
            role = "publisher" if name == PUBLISHER else "subscriber"
            self.workers[name] = await Worker.start(name, "hullcast.clients.demo.workers", role)
        await self._cluster.start()
        done(f"server (every commit synced to disk), root and {len(GATEWAYS)} gateways are up, each a process")
        settings = self._settings
        await self.workers[PUBLISHER].ask(
            "open",
            urls=self._ways(PUBLISHER),
            path=str(self.record),
            rows=settings.rows,
            updates=settings.updates,
            seed=settings.seed,
        )
        done(f"{PUBLISHER} made the tables: {settings.rows:,} stocks, sector indexes, analysts")
        count = sum(await asyncio.gather(*map(self._subscribe, HOSTS)))
        done(f"{len(CLIENTS)} clients hold {count:,} subscriptions")
        return count

    async def stop(self) -> None:
        """End all processes."""
        await asyncio.gather(*(worker.stop() for worker in self.workers.values()), self._cluster.stop())

    def check(self) -> None:
        """Raise if a process of the cluster ended without being killed by us."""
        for name, child in self._cluster.children.items():
            if not child.alive and name not in self._killed:
                raise child.failure()

    def gateway_at(self, endpoint: str | None) -> str | None:
        """Which process of the cluster listens there."""
        return next((name for name, child in self._cluster.children.items() if child.endpoint == endpoint), None)

    async def kill(self, name: str) -> None:
        """SIGKILL, as `kill -9` does: without a goodbye. What it had counted is kept."""
        await self._count(name)
        child = self._cluster.children[name]
        self._killed[name] = _cpu_s(child.pid)
        child.signal(signal.SIGKILL)

    def cpu_s(self) -> float:
        """The CPU time of server, nodes and clients so far; NaN where it cannot be read."""
        alive = [child.pid for name, child in self._cluster.children.items() if name not in self._killed]
        alive += [self.workers[name].pid for name in HOSTS]
        return sum(map(_cpu_s, alive)) + sum(self._killed.values())

    async def carried(self) -> tuple[LinkLoad, int]:
        """What all processes handed to their children so far, and the messages that left the server."""
        await asyncio.gather(*(self._count(name) for name in self._cluster.children if name not in self._killed))
        counts = [self._counted[name] for name in self._cluster.children]
        load = LinkLoad(
            sum(each["delivered_messages"] for each in counts), sum(each["delivered_bytes"] for each in counts)
        )
        return load, self._counted[SERVER]["delivered_messages"]

    async def finish(self) -> dict[str, dict[str, Any]]:
        """Have each client take all there is; by client, what it is judged by."""
        paths = {name: self._folder / f"{name}.json" for name in HOSTS}
        await asyncio.gather(*(self.workers[name].ask("finish", path=str(path)) for name, path in paths.items()))
        return {client: result for path in paths.values() for client, result in json.loads(path.read_text()).items()}

    async def _subscribe(self, host: str) -> int:
        worker, settings = self.workers[host], self._settings
        await worker.ask("open", urls={name: self._ways(name) for name in HOSTS[host]})
        reply = await worker.ask("subscribe", count=settings.subscriptions, seed=settings.seed)
        return int(reply["subscriptions"])

    def _ways(self, name: str) -> list[str]:
        """The gateways a client is given: its own, and those to go to if that one is gone."""
        own, *others = sorted(GATEWAYS, key=lambda gateway: gateway != AT_FIRST[name])
        turn = [*AT_FIRST].index(name) // len(GATEWAYS) % len(others)  # those of one gateway go to different ones
        return [self._cluster.children[gateway].endpoint for gateway in (own, *others[turn:], *others[:turn])]

    async def _count(self, name: str) -> None:
        monitor = self._cluster.children[name].monitor
        assert monitor is not None, "the layout asks for one"
        status = await asyncio.to_thread(_status, monitor)
        self._counted[name] = status.get("children", status)


def _cpu_s(pid: int) -> float:
    try:
        return cpu_s(pid)
    except UsageError:  # psutil is not installed, and this is not Linux
        return nan


def _status(monitor: str) -> dict[str, Any]:
    """What a process's monitor says."""
    with urlopen(f"{monitor}/status", timeout=ANSWER_S) as reply:
        status: dict[str, Any] = json.load(reply)
    return status
