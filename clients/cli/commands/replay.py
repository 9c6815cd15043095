"""`hullcast replay`: publish a trace at a given rate, and measure."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hullcast.clients.cli.commands.arguments import number, seconds, whole
from hullcast.clients.cli.commands.connection import add_connection_arguments, as_json, connected
from hullcast.clients.cli.feeds.feeding import read_ahead
from hullcast.clients.cli.feeds.pacing import TICK_S, Latencies, Pacer, Send, Times
from hullcast.clients.cli.feeds.traces import open_trace

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import Console

    from hullcast.clients.cli.feeds.piece import Piece
    from hullcast.clients.cli.feeds.traces import Trace
    from hullcast.clients.sdk.client import Client

RATE = 1000.0
IN_FLIGHT = 24  # below what a client lets through at once, so that what waits here is counted as waiting
TELL_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Publishes the rows of a trace one after the other, at an even rate or at the trace's own times, in batches of "
        f"about {TICK_S * 1000:g} ms. Creates the table if it does not exist. Prints the rate achieved, and the "
        "time from when an update was due until it was durable."
    )
    parser.epilog = (
        "TRACE is a file (.csv, .jsonl, .parquet); or a folder made by `hullcast sim trace`; or "
        "`market[:stocks[:seed]]`, 60 days of a made-up market of 3,053 stocks in the table STOCK; or "
        "`synthetic[:rows[:seed]]`, a small stock market in the tables STOCK, SECTOR_INDEX and ANALYST; or "
        "`points[:rows[:seed]]`, random rows and updates in the table POINTS. The last two have 20,000 updates. "
        "Ctrl-C ends it with the summary, and exit code 0."
    )
    parser.add_argument("trace", metavar="TRACE", help="a file, a folder, `market`, `synthetic` or `points`; see below")
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--rate", type=number, metavar="R", help=f"updates a second; 0: as fast as possible (default {RATE:g})"
    )
    pace.add_argument("--speed", type=number, metavar="X", help="follow the trace's own times, X times as fast")
    parser.add_argument(
        "--time", metavar="COLUMN", help="column with the time, ISO-8601 or seconds (default: found by name)"
    )
    parser.add_argument("--table", help="table for the rows (default: the trace's own, else the file's name)")
    parser.add_argument(
        "--primary-key", metavar="COLUMN", help="key of a table that is created (default: first column)"
    )
    parser.add_argument(
        "--batch", type=whole(1), default=1000, metavar="N", help="most updates in a batch (default 1000)"
    )
    parser.add_argument("--loop", action="store_true", help="start again at the end, until Ctrl-C or --seconds")
    parser.add_argument("--seconds", type=seconds, metavar="S", help="end after S seconds")
    add_connection_arguments(parser, "print the summary as JSON")


@dataclass(slots=True)
class Played:
    """How much of the trace was played, and how fast."""

    updates: int = 0
    batches: int = 0
    seq: int = 0
    created: list[str] = field(default_factory=list)  # tables that were not there
    passes: int = 0
    begun: float = 0.0
    ended: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)

    @property
    def seconds(self) -> float:
        """How long it took, or has taken."""
        return (self.ended or time.perf_counter()) - self.begun if self.begun else 0.0

    def line(self, wanted: float) -> str:
        """All of it, for people."""
        rate = self.updates / self.seconds if self.seconds else 0.0
        of = f" of {wanted:,.0f} wanted" if wanted else ""
        p50, p99 = (1000 * self.latencies.quantile(share) for share in (0.5, 0.99))
        return (
            f"{self.updates:,} updates in {self.seconds:.1f} s: {rate:,.0f} updates/s{of}; durable after "
            f"{p50:.1f} ms (p50), {p99:.1f} ms (p99); {self.batches:,} batches, seq {self.seq}"
        )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Play, and sum up."""
    rate = None if arguments.speed is not None else RATE if arguments.rate is None else arguments.rate
    played = Played()
    trace = open_trace(
        arguments.trace,
        table=arguments.table,
        key=arguments.primary_key,
        time=arguments.time,
        timed=rate is None,
        batch=arguments.batch if not rate else max(80, min(arguments.batch, int(rate * TICK_S))),
    )
    pacer, times = Pacer(rate, arguments.batch), Times(arguments.speed) if rate is None else None
    try:
        with _progress(played, rate or 0.0), suppress(KeyboardInterrupt):
            asyncio.run(_replay(arguments, trace, pacer, times, played, console))
    finally:
        trace.close()
    if not played.begun:
        return 130  # interrupted before anything was sent
    if arguments.json:
        p50, p99 = (round(played.latencies.quantile(share), 6) for share in (0.5, 0.99))
        facts = {"updates": played.updates, "batches": played.batches, "passes": played.passes, "seq": played.seq}
        made = {"created": played.created}
        pace = {"seconds": round(played.seconds, 3), "rate": round(played.updates / played.seconds, 1), "wanted": rate}
        console.file.write(as_json(facts | made | pace | {"durable_p50_s": p50, "durable_p99_s": p99}) + "\n")
    else:
        console.file.write(played.line(rate or 0.0) + "\n")
    return 0


async def _replay(
    arguments: argparse.Namespace,
    trace: Trace,
    pacer: Pacer,
    times: Times | None,
    played: Played,
    console: Console,
) -> None:
    async with connected(arguments) as client:
        there = await client.tables()
        begins = await trace.prepare(client)
        played.created = [name for name in await client.tables() if name not in there]
        if played.created and not arguments.json:
            console.print(f"created {'table' if len(played.created) == 1 else 'tables'} {', '.join(played.created)}")
        for part in begins:
            for start in range(0, part.count, arguments.batch):
                await client.publish(part.table, part.cut(start, start + arguments.batch))
        played.begun = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as tasks:  # waits for what is on its way
                player = _Player(client, pacer, times, played, tasks)
                with suppress(TimeoutError):
                    async with asyncio.timeout(arguments.seconds):
                        await _passes(trace, player, times, played, loop=arguments.loop)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            played.ended = time.perf_counter()


async def _passes(trace: Trace, player: _Player, times: Times | None, played: Played, *, loop: bool) -> None:
    while True:
        async for part in read_ahead(trace.parts(), 2):
            await player.play(part)
        played.passes += 1
        if not loop:
            return
        if times is not None:
            times.restart()


class _Player:
    """Sends parts as the pacer says; several batches are on their way at once."""

    def __init__(
        self, client: Client, pacer: Pacer, times: Times | None, played: Played, tasks: asyncio.TaskGroup
    ) -> None:
        self._client, self._pacer, self._times = client, pacer, times
        self._played, self._tasks = played, tasks
        self._room = asyncio.Semaphore(IN_FLIGHT)

    async def play(self, part: Piece) -> None:
        """All updates of a part, each when it is due."""
        times = self._times.due(part.seconds) if self._times is not None and part.seconds is not None else None
        due = self._pacer.due(part.count, times)
        done = 0
        while done < part.count:
            await self._room.acquire()
            try:
                decision = self._pacer.decide(time.perf_counter() - self._played.begun, due[done:])
            except BaseException:
                self._room.release()
                raise
            if isinstance(decision, Send):
                rows = part.cut(done, done + decision.count)
                self._tasks.create_task(self._send(part, rows, decision), name="replay.send")
                done += decision.count
            else:
                self._room.release()
                await asyncio.sleep(decision.seconds)

    async def _send(self, part: Piece, rows: Any, decision: Send) -> None:
        try:
            change = self._client.delete if part.deletes else self._client.publish
            receipt = await change(part.table, rows)
        finally:
            self._room.release()
        played = self._played
        played.updates += decision.count
        played.batches += 1
        played.seq = max(played.seq, receipt.seq)
        played.latencies.add(time.perf_counter() - played.begun - decision.due)


@contextmanager
def _progress(played: Played, wanted: float) -> Iterator[None]:
    """What has been played, on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live

    with Live(
        get_renderable=lambda: played.line(wanted) if played.begun else "connecting ..",
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=1 / TELL_S,
    ):
        yield
