"""`hullcast subscribe`: an answer, and every change of it as it comes."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import stat
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self, get_args

from hullcast.clients.cli.commands.arguments import seconds, whole
from hullcast.clients.cli.commands.connection import (
    add_connection_arguments,
    add_sql_arguments,
    add_trigger_arguments,
    as_json,
    connected,
    trigger_of,
)
from hullcast.clients.cli.commands.operators import missed_in_words
from hullcast.clients.cli.commands.telling import JsonTeller, TextTeller
from hullcast.network.answers.answers import Overflow
from hullcast.network.wire.errors import HullcastError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import Console

    from hullcast.clients.sdk.client import Client
    from hullcast.clients.sdk.subscription import Subscription

    Teller = JsonTeller | TextTeller

LOOK_S = 0.1  # how often the connection is looked at
AT_ONCE = 500  # events written together when many wait
ASKED_S = 2.0  # at the end the server is asked what was missed; it shall not take long
#: A pipe that poll calls writable takes so many bytes without waiting (POSIX's PIPE_BUF; Linux has 4096).
_PIECE = select.PIPE_BUF


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Prints the answer of a SELECT and then each change, one line each, until Ctrl-C. If the SELECT reads a "
        "stream, prints each tuple as it arrives. Reconnects when the connection is lost; if changes were lost, "
        "prints the whole answer again (resync)."
    )
    parser.epilog = (
        "--json prints one object per line, without delay. Each has `event`: `answer` (seq, columns, answer); "
        "`change` (seq; answer for a single value; entered, left and changed, pairs of before and after, for sets "
        "and rows; conflated, the number of other changes it stands for, if any); `tuple` (seq, row) of a stream; "
        "`resync` (seq, answer, lost, reason); `connection` (connected); `end` (events, resyncs, dropped, "
        "conflated, seconds; for a join WITH (memory = n) also missed_share, an estimate). With --when or --every, "
        "`answer`, `change` and `resync` have all rows as `answer`, and `as_of` (the update up to which the rows "
        "are current), `took_s`, `at`, `fired` (the update that changed the condition's answer) and, if the SELECT "
        "could not be run, `error`. A row is an object by column name; TIMESTAMP is ISO-8601 text. The exit code is "
        "0 also after Ctrl-C or SIGTERM, and when the program that reads the output ends; it is 2 when the "
        "subscription fails."
    )
    add_sql_arguments(parser)
    add_trigger_arguments(parser)
    parser.add_argument("--count", type=whole(1), metavar="N", help="end after N changes or resyncs")
    parser.add_argument("--seconds", type=seconds, metavar="S", help="end after S seconds")
    parser.add_argument(
        "--after",
        type=whole(0),
        metavar="POSITION",
        help="for a stream: begin with the retained tuples after this position (0: all of them)",
    )
    parser.add_argument("--changes-only", action="store_true", help="do not print the first answer")
    parser.add_argument(
        "--overflow",
        choices=get_args(Overflow),
        help="when --buffer changes wait: conflate (the last one gets the newest answer and says how many changes it "
        "stands for; default), block (stop reading until there is room; default for streams), drop_oldest, error; or "
        "latest: keep only the newest answer",
    )
    parser.add_argument(
        "--buffer", type=whole(1), default=1024, metavar="N", help="changes that may wait (default 1024)"
    )
    add_connection_arguments(parser, "print one JSON object per line; see below")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Listen until asked to stop."""
    asyncio.run(_run(arguments, console))
    return 0


async def _run(arguments: argparse.Namespace, console: Console) -> None:
    async with StandardOutput() as output, connected(arguments) as client:
        with _stopping() as stop:
            opening = client.subscribe(
                arguments.sql,
                *arguments.parameters,
                overflow=arguments.overflow,
                buffer=arguments.buffer,
                after=arguments.after,
                **trigger_of(arguments),
            )
            async with opening as subscription:
                names = subscription.columns
                teller = JsonTeller(names) if arguments.json else TextTeller(names, console)
                begun = time.monotonic()
                teller.of_stream = not subscription.has_answer
                if subscription.has_answer and not arguments.changes_only:
                    await output.write(teller.answer(subscription.seq, subscription.answer))
                await _listen(arguments, client, subscription, teller, output, stop)
                if output.gone.is_set():
                    return
                missed = await _missed(client, subscription)
                summary = {
                    "events": teller.events,
                    "resyncs": teller.resyncs,
                    "dropped": subscription.dropped,
                    "conflated": subscription.conflated,
                    "seconds": round(time.monotonic() - begun, 3),
                } | ({} if missed is None else {"missed_share": missed})
        if arguments.json:
            await output.write(as_json({"event": "end"} | summary) + "\n")
        else:
            shown = {name: value for name, value in summary.items() if name != "missed_share"}
            told = ", ".join(f"{name} {value}" for name, value in shown.items())
            if "missed_share" in summary:
                told += f"; about {missed_in_words(summary['missed_share'])} of the join's results are missed (memory)"
            sys.stderr.write(told + "\n")


async def _listen(
    arguments: argparse.Namespace,
    client: Client,
    subscription: Subscription,
    teller: Teller,
    output: StandardOutput,
    stop: asyncio.Event,
) -> None:
    """Print events until there were enough of them, or a stop was asked for."""
    links = _Links(client, teller)
    tasks = [
        asyncio.create_task(_tell(subscription, teller, output, links, arguments.count), name="subscribe.tell"),
        asyncio.create_task(_watch(links, output), name="subscribe.watch"),
        asyncio.create_task(_wait(stop), name="subscribe.stop"),
        asyncio.create_task(_wait(output.gone), name="subscribe.gone"),
    ]
    try:
        done, _ = await asyncio.wait(tasks, timeout=arguments.seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _missed(client: Client, subscription: Subscription) -> float | None:
    """The share of results that a join with bounded memory misses; None of any other subscription."""
    if "memory" not in subscription.sql.lower() or subscription.closed or not client.connected:
        return None
    with suppress(HullcastError):
        async with asyncio.timeout(ASKED_S):
            return round(await subscription.missed_share(), 4)
    return None


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _tell(
    subscription: Subscription, teller: Teller, output: StandardOutput, links: _Links, count: int | None
) -> None:
    left = sys.maxsize if count is None else count
    async for event in subscription:
        lines = [teller.event(event)]
        while len(lines) < min(AT_ONCE, left) and (more := subscription.take_nowait()) is not None:
            lines.append(teller.event(more))
        left -= len(lines)
        await output.write(links.news() + "".join(lines))  # what comes after a reconnection is printed after it
        if not left:
            return


async def _watch(links: _Links, output: StandardOutput) -> None:
    """Print what becomes of the connection while no event comes."""
    while True:
        await asyncio.sleep(LOOK_S)
        if news := links.news():
            await output.write(news)


class _Links:
    """Tells when the connection was lost and made again; also when both happened between two looks."""

    def __init__(self, client: Client, teller: Teller) -> None:
        self._client, self._teller = client, teller
        self._was, self._made = True, self._count()

    def news(self) -> str:
        """The lines since the last look."""
        now, made, text = self._client.connected, self._count(), ""
        if self._was and (not now or made > self._made):
            text += self._teller.connection(connected=False)
            self._was = False
        if now and not self._was:
            text += self._teller.connection(connected=True)
            self._was = True
        self._made = made
        return text

    def _count(self) -> int:
        """How often a connection was made, or made again."""
        link = self._client.statistics().link
        return link.fresh + link.resumed


@contextmanager
def _stopping() -> Iterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set; a second one ends the process as it always would."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = [signal.getsignal(number) for number in numbers]

    def ask() -> None:
        stop.set()
        restore()

    def restore() -> None:
        for number, handler in zip(numbers, before, strict=True):
            loop.remove_signal_handler(number)
            signal.signal(number, handler)

    for number in numbers:
        loop.add_signal_handler(number, ask)
    try:
        yield stop
    finally:
        restore()


class StandardOutput:
    """Lines to standard output from an event loop, which never waits for the reader; for `async with`.

    A slow reader makes `write` wait, not the loop: heartbeats go on, and the subscription's own overflow policy decides
    what happens to events meanwhile. When the reader is gone (`| head -1`), `gone` is set at once, without another
    line having to be written.
    """

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        try:
            self._fd = sys.stdout.fileno()
            mode = os.fstat(self._fd).st_mode
        except (OSError, ValueError):  # replaced by something that is not a file
            self._fd, mode = -1, 0
        self._waits = bool(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode))
        self._watched = bool(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
        self._encoding = getattr(sys.stdout, "encoding", None) or "utf-8"

    async def __aenter__(self) -> Self:
        sys.stdout.flush()
        if self._watched:
            # A pipe's writing end is never readable; what the loop reports as such is the error that its reader left.
            asyncio.get_running_loop().add_reader(self._fd, self._left)
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._watched:
            asyncio.get_running_loop().remove_reader(self._fd)

    def _left(self) -> None:
        poll = select.poll()
        poll.register(self._fd, 0)
        if poll.poll(0):  # POLLERR or POLLHUP; a socket may also be readable because its peer talks, which is nothing
            self.gone.set()
        asyncio.get_running_loop().remove_reader(self._fd)

    async def write(self, text: str) -> None:
        """Write, and return when the system has all of it; BrokenPipeError if the reader is gone."""
        if self._fd < 0:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        rest = memoryview(text.encode(self._encoding, "backslashreplace"))
        while rest:
            if self._waits and not _writable(self._fd):
                await self._wait_writable()
            try:
                rest = rest[os.write(self._fd, rest[:_PIECE] if self._waits else rest) :]
            except BlockingIOError:
                await self._wait_writable()

    async def _wait_writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_writer(self._fd, _settle, ready)
        except OSError as error:  # a device that cannot be watched, as /dev/null: it never makes us wait
            if error.errno != errno.EPERM:
                raise
            return
        try:
            await ready
        finally:
            loop.remove_writer(self._fd)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _writable(fd: int) -> bool:
    return bool(select.select((), (fd,), (), 0)[1])
