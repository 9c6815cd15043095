"""What idle clients cost: one gateway with many of them, and nothing to tell them."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

from hullcast.clients.cli.processes.cluster import Cluster, Layout
from hullcast.clients.cli.processes.worker import Worker, ask_all, serve
from hullcast.clients.sdk.client import Client, connect
from hullcast.sim.bench.timing import process_of

PROCESSES = 4
CONNECT_S = 100.0


def idle(clients: int, seconds: float = 10.0, settle_s: float = 5.0) -> dict[str, Any]:
    """Connect so many clients at once to a gateway below a server, all of them real ones in a few processes; CPU of
    each process in per cent of a core, over `seconds` without traffic, and what became of the connections."""
    return asyncio.run(_idle(clients, seconds, settle_s))


async def _idle(clients: int, seconds: float, settle_s: float) -> dict[str, Any]:
    cluster, workers = Cluster(Layout(nodes=1)), []
    try:
        await cluster.start()
        (gateway,) = cluster.gateways
        for number in range(PROCESSES):
            workers.append(await Worker.start(f"clients-{number + 1}", "hullcast.sim.bench.idle"))
        began = perf_counter()
        shares = [clients * (n + 1) // PROCESSES - clients * n // PROCESSES for n in range(PROCESSES)]
        places = zip(workers, shares, strict=True)
        await asyncio.gather(*(worker.ask("open", url=gateway.endpoint, count=count) for worker, count in places))
        connected_s = perf_counter() - began
        await asyncio.sleep(settle_s)
        pids = {name: child.pid for name, child in cluster.children.items()}
        pids |= {worker.name: worker.pid for worker in workers}
        before = {name: _cpu_s(pid) for name, pid in pids.items()}
        began = perf_counter()
        await asyncio.sleep(seconds)
        took = perf_counter() - began
        cpu = {name: 100 * (_cpu_s(pid) - before[name]) / took for name, pid in pids.items()}
        links = await ask_all(workers, "links", endpoint=gateway.endpoint)
        return {
            "clients": clients,
            "connected_s": connected_s,
            "cpu_percent": cpu,
            **{name: sum(link[name] for link in links) for name in links[0]},
        }
    finally:
        await asyncio.gather(*(worker.stop() for worker in workers))
        await cluster.stop()


def _cpu_s(pid: int) -> float:
    return float(sum(process_of(pid).cpu_times()[:2]))


class _Crowd:
    """Clients that do nothing."""

    def __init__(self) -> None:
        self._clients: list[Client] = []

    async def open(self, url: str, count: int) -> dict[str, Any]:
        """Connect all at once."""
        opening = []
        for number in range(count):
            opening.append(asyncio.ensure_future(connect(url, name=f"idle-{number}", timeout=CONNECT_S)))
            await asyncio.sleep(0)  # as if each were a process of its own: those that are there already go on
        self._clients = await asyncio.gather(*opening)
        return {}

    async def links(self, endpoint: str) -> dict[str, Any]:
        """Where they are, and how often each had to dial."""
        links = [client.statistics().link for client in self._clients]
        return {
            "at_gateway": sum(link.state == "up" and link.endpoint == endpoint for link in links),
            "attempts": sum(link.attempts for link in links),
            "interruptions": sum(link.interruptions for link in links),
        }


async def _main() -> None:
    crowd = _Crowd()
    await serve({"open": crowd.open, "links": crowd.links})


if __name__ == "__main__":
    asyncio.run(_main())
