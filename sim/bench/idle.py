"""`hullcast bench idle`: what idle clients cost: one gateway with many of them, and nothing to tell them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

from hullcast.clients.processes.worker import ask_all
from hullcast.clients.sdk.client import Client, connect
from hullcast.sim.bench.frame.benchmark import Benchmark, BenchOption, BenchSection, Shown, Tick
from hullcast.sim.bench.frame.machine import cpu_by_name
from hullcast.sim.bench.frame.stage import staged
from hullcast.sim.bench.frame.worker import BenchWorker, Told, main, part_of
from hullcast.sim.output.goals import Goal, share_under
from hullcast.sim.output.text import plain_table

GATEWAY = "root"
PROCESSES = 4
CONNECT_S = 100.0
#: What we aim at, in per cent of a core: a process without clients, and a gateway with the most.
ALONE_PERCENT, CROWDED_PERCENT, CROWD = 1.0, 50.0, 10_000


@dataclass(frozen=True, slots=True)
class IdleSettings:
    """Numbers of clients, measured one after the other, and for how long."""

    clients: tuple[int, ...] = (0, 100, 1_000, CROWD)
    seconds: float = 10.0
    settle_s: float = 5.0


@dataclass(frozen=True, slots=True)
class IdleLine:
    """So many idle clients at one gateway."""

    clients: int
    connected_s: float  # until all were there, all of them at once
    cpu_percent: dict[str, float]  # by process, of a core
    at_gateway: int  # of the clients, in the end
    attempts: int  # to connect, in all
    interruptions: int


def idle_goals(found: tuple[IdleLine, ...]) -> Iterator[Goal]:
    """A gateway alone, and in a crowd."""
    for line in found:
        if line.clients in (0, CROWD):
            name = "no traffic, no clients: the busiest process" if not line.clients else "10,000 idle clients: gateway"
            limit = CROWDED_PERCENT if line.clients else ALONE_PERCENT
            used = line.cpu_percent[GATEWAY] if line.clients else max(line.cpu_percent.values())
            yield Goal(name, f"< {limit:g} % of a core", f"{used:.2f} %", share_under(used, limit))
            if line.clients:
                there = line.at_gateway / line.clients
                yield Goal("10,000 at once: all at the gateway", "100 %", f"{there:.2%}", there)


def idle_tables(found: tuple[IdleLine, ...]) -> Iterator[Shown]:
    """A line for each number of clients."""
    table = plain_table(
        "idle clients at one gateway: CPU in per cent of a core",
        *("clients", "connected in s", "gateway %", "server %", f"clients % (in {PROCESSES})", "attempts", "lost"),
    )
    for line in found:
        cpu = line.cpu_percent
        theirs = sum(used for name, used in cpu.items() if name not in (GATEWAY, "server"))
        lost = line.interruptions + line.clients - line.at_gateway
        row = f"{line.connected_s:.1f}", f"{cpu[GATEWAY]:.2f}", f"{cpu['server']:.2f}", f"{theirs:.2f}"
        table.add_row(f"{line.clients:,}", *row, f"{line.attempts:,}", f"{lost:,}")
    yield table


async def measure_idle(settings: IdleSettings, tick: Tick) -> tuple[IdleLine, ...]:
    """Each number of clients, one after the other."""
    lines = []
    for count in settings.clients:
        tick(f"{count:,} clients")
        lines.append(await _idle(count, settings))
    return tuple(lines)


async def _idle(clients: int, settings: IdleSettings) -> IdleLine:
    """Connect so many clients at once to a gateway below a server, all of them real ones in a few processes; CPU of
    each process without traffic, and what became of the connections."""
    names = [f"clients-{number + 1}" for number in range(PROCESSES)]
    async with staged(names, "hullcast.sim.bench.idle", nodes=1, data=False, connected=False) as stage:
        workers, gateway = list(stage.workers.values()), stage.gateways[0]
        began = perf_counter()
        shares = [len(range(clients)[part_of(clients, n, PROCESSES)]) for n in range(PROCESSES)]
        places = zip(workers, shares, strict=True)
        await asyncio.gather(*(worker.ask("crowd", url=gateway, count=count) for worker, count in places))
        connected_s = perf_counter() - began
        await asyncio.sleep(settings.settle_s)
        before, began = cpu_by_name(stage.pids), perf_counter()
        await asyncio.sleep(settings.seconds)
        took, after = perf_counter() - began, cpu_by_name(stage.pids)
        cpu = {name: 100 * (after[name] - before[name]) / took for name in before}
        links = await ask_all(workers, "links", endpoint=gateway)
        told = {name: sum(link[name] for link in links) for name in links[0]}
        return IdleLine(clients, connected_s, cpu, **told)


class IdleCrowd(BenchWorker):
    """Clients that do nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._crowd: list[Client] = []

    async def crowd(self, url: str, count: int) -> None:
        """Connect all at once."""
        opening = []
        for number in range(count):
            opening.append(asyncio.ensure_future(connect(url, name=f"idle-{number}", timeout=CONNECT_S)))
            await asyncio.sleep(0)  # as if each were a process of its own: those that are there already go on
        self._crowd = await asyncio.gather(*opening)

    async def links(self, endpoint: str) -> Told:
        """Where they are, and how often each had to dial."""
        links = [client.statistics().link for client in self._crowd]
        return {
            "at_gateway": sum(link.state == "up" and link.endpoint == endpoint for link in links),
            "attempts": sum(link.attempts for link in links),
            "interruptions": sum(link.interruptions for link in links),
        }


IDLE = Benchmark(
    name="idle",
    about="the CPU of a gateway with idle clients",
    description="Connects clients to a gateway, and measures the CPU of all processes while nothing happens, for each "
    "number of clients.",
    full=IdleSettings(),
    quick=IdleSettings(clients=(0, 100), seconds=3.0, settle_s=1.0),
    quick_about="no and 100 clients: some seconds",
    options=(BenchOption("clients", "numbers of clients, measured one after the other", 0, many=True),),
    sections=(
        BenchSection("idle", "CPU by the number of clients", measure_idle, idle_tables, idle_goals,
                     steps=lambda settings: len(settings.clients)),
    ),
)  # fmt: skip

if __name__ == "__main__":
    main(IdleCrowd)
