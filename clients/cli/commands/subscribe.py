"""`hullcast subscribe`: an answer, and every change of it as it comes."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, get_args

from hullcast.clients.cli.commands.arguments import seconds, whole
from hullcast.clients.cli.commands.connection import add_connection_arguments, add_sql_arguments, as_json, connected
from hullcast.clients.cli.commands.output import Output
from hullcast.clients.cli.commands.telling import JsonTeller, TextTeller
from hullcast.network.answers.answers import Overflow

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import Console

    from hullcast.clients.sdk.client import Client
    from hullcast.clients.sdk.subscription import LiveSubscription

    Teller = JsonTeller | TextTeller

LOOK_S = 0.1  # how often the connection is looked at
AT_ONCE = 500  # events written together when many wait


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Prints the answer of a SELECT and then each change of it, one line each, until Ctrl-C. Reconnects when the "
        "connection is lost; if changes were lost meanwhile, it prints the whole answer again (resync)."
    )
    parser.epilog = (
        "--json prints one object per line, without delay. All have `event`: `answer` (seq, columns, answer), `change` "
        "(seq; answer for a single value; entered, left and changed, pairs of before and after, for sets and rows), "
        "`resync` (seq, answer, lost, reason), `connection` (connected), `end` (events, resyncs, dropped, conflated, "
        "seconds). A row is an object by column name, TIMESTAMP is ISO-8601 text. The exit code is 0 also after "
        "Ctrl-C or SIGTERM, and when the reader of the output ends; 2 when the subscription fails."
    )
    add_sql_arguments(parser)
    parser.add_argument("--count", type=whole(1), metavar="N", help="end after N changes or resyncs")
    parser.add_argument("--seconds", type=seconds, metavar="S", help="end after S seconds")
    parser.add_argument("--changes-only", action="store_true", help="leave out the answer at the beginning")
    parser.add_argument(
        "--overflow",
        choices=get_args(Overflow),
        help="when changes come faster than they are read: latest (keep the newest answer; default for single values), "
        "block (stop reading, so that the server waits; default for sets and rows), drop_oldest, error",
    )
    parser.add_argument(
        "--buffer", type=whole(1), default=1024, metavar="N", help="changes that may wait (default 1024)"
    )
    add_connection_arguments(parser, "print one JSON object per line; see below")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Listen until told to stop."""
    asyncio.run(_run(arguments, console))
    return 0


async def _run(arguments: argparse.Namespace, console: Console) -> None:
    async with Output() as output, connected(arguments) as client:
        with _stopping() as stop:
            opening = client.subscribe(
                arguments.sql, *arguments.parameters, overflow=arguments.overflow, buffer=arguments.buffer
            )
            async with opening as subscription:
                names = subscription.columns
                teller = JsonTeller(names) if arguments.json else TextTeller(names, console)
                begun = time.monotonic()
                if not arguments.changes_only:
                    await output.write(teller.answer(subscription.seq, subscription.answer))
                await _listen(arguments, client, subscription, teller, output, stop)
                if output.gone.is_set():
                    return
                summary = {
                    "events": teller.events,
                    "resyncs": teller.resyncs,
                    "dropped": subscription.dropped,
                    "conflated": subscription.conflated,
                    "seconds": round(time.monotonic() - begun, 3),
                }
        if arguments.json:
            await output.write(as_json({"event": "end"} | summary) + "\n")
        else:
            sys.stderr.write(", ".join(f"{name} {value}" for name, value in summary.items()) + "\n")


async def _listen(
    arguments: argparse.Namespace,
    client: Client,
    subscription: LiveSubscription,
    teller: Teller,
    output: Output,
    stop: asyncio.Event,
) -> None:
    """Tell events until there were enough of them, or somebody says stop."""
    tasks = [
        asyncio.create_task(_tell(subscription, teller, output, arguments.count), name="subscribe.tell"),
        asyncio.create_task(_watch(client, teller, output), name="subscribe.watch"),
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


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _tell(subscription: LiveSubscription, teller: Teller, output: Output, count: int | None) -> None:
    left = sys.maxsize if count is None else count
    async for event in subscription:
        lines = [teller.event(event)]
        while len(lines) < min(AT_ONCE, left) and (more := subscription.take_nowait()) is not None:
            lines.append(teller.event(more))
        left -= len(lines)
        await output.write("".join(lines))
        if not left:
            return


async def _watch(client: Client, teller: Teller, output: Output) -> None:
    """Tell when the connection goes and comes; also when it did both between two looks."""
    was, links = True, _links(client)
    while True:
        await asyncio.sleep(LOOK_S)
        now, count = client.connected, _links(client)
        if was and (not now or count > links):
            await output.write(teller.connection(connected=False))
            was = False
        if now and not was:
            await output.write(teller.connection(connected=True))
            was = True
        links = count


def _links(client: Client) -> int:
    """How often a connection was made, or made again."""
    link = client.statistics().link
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
