"""`hullcast status`: the tree of server and nodes, and what goes through it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from rich.live import Live

from hullcast.clients.cli.commands.arguments import seconds
from hullcast.clients.cli.commands.connection import add_connection_arguments, as_json, connected
from hullcast.clients.cli.commands.status_screen import Sample, screen

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.clients.sdk.client import Client


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Shows the server and its nodes as a tree. For each: clients, subscriptions, messages sent on and filtered "
        "out, how far it is behind the server, and bytes that wait for its children. Then the open channels: the "
        "different queries that the server computes."
    )
    parser.epilog = (
        "Nodes report about once a second, so their lag is at most that old. Rates come from two samples; without "
        "--watch the second one is taken after --interval."
    )
    parser.add_argument("--watch", action="store_true", help="refresh until Ctrl-C; with --json one object per line")
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="S", help="seconds between samples (default 1)"
    )
    add_connection_arguments(parser, "print the server's reply as one JSON object, without rates")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Ask and show; with --watch again and again."""
    try:
        asyncio.run(_run(arguments, console))
    except KeyboardInterrupt:
        if not arguments.watch:
            raise
    return 0


async def _run(arguments: argparse.Namespace, console: Console) -> None:
    interval_s = max(0.05, arguments.interval)
    async with connected(arguments) as client:
        if arguments.json:
            while True:
                console.file.write(as_json(await client.status()) + "\n")
                console.file.flush()
                if not arguments.watch:
                    return
                await asyncio.sleep(interval_s)
        before = await _sample(client)
        if not arguments.watch:
            await asyncio.sleep(arguments.interval)
            console.print(screen(await _sample(client), before))
            return
        if not console.is_terminal:
            while True:
                await asyncio.sleep(interval_s)
                now = await _sample(client)
                console.print(screen(now, before))
                before = now
        with Live(console=console, auto_refresh=False, screen=False) as live:
            live.update(screen(before, None), refresh=True)
            while True:
                await asyncio.sleep(interval_s)
                now = await _sample(client)
                live.update(screen(now, before), refresh=True)
                before = now


async def _sample(client: Client) -> Sample:
    status: dict[str, Any] = await client.status()
    return Sample(time.monotonic(), status)
