"""What idle clients cost: one gateway with many of them, and nothing to tell them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from rich.console import Console

from hullcast.clients.processes.cluster import Cluster, Layout
from hullcast.clients.processes.worker import Worker, ask_all, serve
from hullcast.clients.sdk.client import Client, connect
from hullcast.sim.bench.timing import process_of
from hullcast.sim.output.goals import Goal, goals_table, share_under
from hullcast.sim.output.text import plain_table

GATEWAY = "root"
PROCESSES = 4
CONNECT_S = 100.0
#: What we aim at, in per cent of a core: a process without clients, and a gateway with the most.
ALONE_PERCENT, CROWDED_PERCENT, CROWD = 1.0, 50.0, 10_000


@dataclass(frozen=True, slots=True)
class IdleLine:
    """So many idle clients at one gateway."""

    clients: int
    connected_s: float  # until all were there, all of them at once
    cpu_percent: dict[str, float]  # by process, of a core
    at_gateway: int  # of the clients, in the end
    attempts: int  # to connect, in all
    interruptions: int


@dataclass(frozen=True, slots=True)
class IdleReport:
    """Everything that was measured."""

    lines: tuple[IdleLine, ...]
    goals: tuple[Goal, ...]


def run_idle(counts: Sequence[int], tick: Callable[[str], None] = lambda what: None) -> IdleReport:
    """Measure each number of clients, one after the other."""
    lines = []
    for count in counts:
        tick(f"{count:,} clients")
        lines.append(idle(count))
    return IdleReport(tuple(lines), tuple(_goals(lines)))


def _goals(lines: Sequence[IdleLine]) -> list[Goal]:
    goals = []
    for line in lines:
        if line.clients in (0, CROWD):
            name = "no traffic, no clients: the busiest process" if not line.clients else "10,000 idle clients: gateway"
            limit = CROWDED_PERCENT if line.clients else ALONE_PERCENT
            used = line.cpu_percent[GATEWAY] if line.clients else max(line.cpu_percent.values())
            goals.append(Goal(name, f"< {limit:g} % of a core", f"{used:.2f} %", share_under(used, limit)))
            if line.clients:
                there = line.at_gateway / line.clients
                goals.append(Goal("10,000 at once: all at the gateway", "100 %", f"{there:.2%}", there))
    return goals


def show_idle(report: IdleReport, console: Console) -> None:
    """Print the report."""
    table = plain_table(
        "idle clients at one gateway: CPU in per cent of a core",
        *("clients", "connected in s", "gateway %", "server %", f"clients % (in {PROCESSES})", "attempts", "lost"),
    )
    for line in report.lines:
        cpu = line.cpu_percent
        theirs = sum(used for name, used in cpu.items() if name not in (GATEWAY, "server"))
        lost = line.interruptions + line.clients - line.at_gateway
        row = f"{line.connected_s:.1f}", f"{cpu[GATEWAY]:.2f}", f"{cpu['server']:.2f}", f"{theirs:.2f}"
        table.add_row(f"{line.clients:,}", *row, f"{line.attempts:,}", f"{lost:,}")
    console.print(table)
    if report.goals:
        console.print(goals_table(report.goals))


def idle(clients: int, seconds: float = 10.0, settle_s: float = 5.0) -> IdleLine:
    """Connect so many clients at once to a gateway below a server, all of them real ones in a few processes; CPU of
    each process over `seconds` without traffic, and what became of the connections."""
    return asyncio.run(_idle(clients, seconds, settle_s))


async def _idle(clients: int, seconds: float, settle_s: float) -> IdleLine:
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
        told = {name: sum(link[name] for link in links) for name in links[0]}
        return IdleLine(clients, connected_s, cpu, **told)
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
