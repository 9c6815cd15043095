"""`hullcast demo`: a cluster of processes, live answers of every kind, a gateway killed, and every answer checked."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.live import Live

from hullcast.broker.server.warming import is_cold
from hullcast.clients.cli.commands.arguments import seconds, whole
from hullcast.clients.cli.commands.warm import warm_with_bar
from hullcast.clients.demo.director import DemoSettings, Director
from hullcast.clients.demo.stocks import check_market
from hullcast.clients.demo.view import closing, frame, news, plain_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rich.console import Console

    from hullcast.clients.cli.processes.cluster import Notice
    from hullcast.clients.demo.director import DemoState
    from hullcast.clients.demo.view import Summary

LINES = 10  # of progress, in plain form
INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Starts a server with a commit log, a root and two gateways, three processes that subscribe to SQL of every "
        "kind and one that replays a synthetic stock market. Shows answers as they change. Compares the bytes sent "
        "with those of unicast (one message per subscription) and CN (each changed row goes to all ranges that hold "
        "it). Half-way one gateway is killed (kill -9). At the end every answer, and every answer rebuilt from events "
        "alone, is compared with SQLite."
    )
    parser.epilog = "Exit code 0 if every answer equals its SQL, 1 if not, 2 if the demo could not run."
    parser.add_argument("--seconds", type=seconds, default=40.0, help="seconds that the replay takes (default 40)")
    parser.add_argument("--rows", type=whole(1), default=500, help="stocks at the start (default 500)")
    parser.add_argument("--updates", type=whole(0), default=20_000, help="updates to replay (default 20000)")
    parser.add_argument(
        "--subscriptions",
        type=whole(0),
        default=30_000,
        help="MIN subscriptions to random ranges, besides one of each kind (default 30000)",
    )
    parser.add_argument("--seed", type=int, default=0, help="number that decides all random choices (default 0)")
    parser.add_argument(
        "--plain", action="store_true", help="print lines instead of a live picture (the default without a terminal)"
    )
    parser.add_argument("--json", action="store_true", help="print nothing but the figures at the end, as JSON")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Warm up, play, judge, sum up."""
    settings = DemoSettings(
        arguments.seconds, arguments.rows, arguments.updates, arguments.subscriptions, arguments.seed
    )
    check_market(settings.rows)
    console.quiet = arguments.json
    plain = arguments.plain or not console.is_terminal
    if is_cold():
        warm_with_bar(console, plain=plain)
    folder = Path(tempfile.mkdtemp(prefix="hullcast-demo-"))
    try:
        summary = asyncio.run(_play(settings, folder, console, plain=plain))
    except asyncio.CancelledError:
        return INTERRUPTED
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.json:
        sys.stdout.write(json.dumps(summary.as_json()) + "\n")
    elif plain:
        for label, text in summary.lines():
            console.print(f"{label}: {text}", markup=False, soft_wrap=True)
    else:
        console.print(closing(summary))
    return 0 if summary.is_right else 1


async def _play(settings: DemoSettings, folder: Path, console: Console, *, plain: bool) -> Summary:
    """Run it on the screen, or in lines; SIGTERM and a closed terminal end it as Ctrl-C does."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    if plain:
        return await Director(settings, folder, _liner(settings, console), _teller(console)).run()
    with Live(console=console, auto_refresh=False) as live:

        def draw(state: DemoState) -> None:
            live.update(frame(state, console.width, console.height), refresh=True)

        return await Director(settings, folder, draw, _teller(live.console)).run()


def _liner(settings: DemoSettings, console: Console) -> Callable[[DemoState], None]:
    """Draws by lines: each phase, what happens, and progress now and then."""
    told, last = set[str](), {"phase": "", "step": 0}

    def draw(state: DemoState) -> None:
        lines = news(state, told)
        if state.phase and state.phase != last["phase"]:
            lines.append(f"{state.phase} ..")
        last["phase"] = state.phase
        step = int(state.elapsed_s * LINES / settings.seconds) if settings.seconds else 0
        if not state.phase and step != last["step"]:
            last["step"] = step
            lines.append(plain_line(state))
        for line in lines:
            console.print(line, markup=False, soft_wrap=True)

    return draw


def _teller(console: Console) -> Callable[[Notice], None]:
    """Passes on what processes say of compiling: on a cold machine that is what takes so long."""

    def tell(notice: Notice) -> None:
        if "compiling" in notice.text:
            console.print(f"{notice.name} is compiling kernels (first run only, cached) ..")

    return tell
