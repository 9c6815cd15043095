"""`hullcast demo`: live answers of every kind, a killed gateway, and every answer checked."""

from __future__ import annotations

import json
import shutil
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
from hullcast.clients.demo.view import closing, frame, news, picture, plain_line
from hullcast.clients.processes.signals import Signals
from hullcast.network.node.stopping import STOP_S

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rich.console import Console

    from hullcast.clients.demo.director import DemoState
    from hullcast.clients.demo.view import Summary
    from hullcast.clients.processes.cluster import Notice

LINES = 10  # of progress, in plain form
INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Starts a server with a commit log, a root, four gateways, 24 clients with a thousand personal ranges each, "
        "and a publisher that replays a synthetic stock market. Shows answers of every kind as they change. "
        "Half-way it kills one gateway (kill -9). At the end it compares every answer, and every answer rebuilt "
        "from events alone, with SQLite. It compares bytes with two other approaches: send each changed row to "
        "every client with a range that holds it (clients then ask SQL again; the CPU time of SQLite is measured), "
        "or send each changed answer as a message."
    )
    parser.epilog = "Exit code 0 if every answer equals its SQL, 1 if not, 2 if the demo could not run."
    parser.add_argument("--seconds", type=seconds, default=40.0, help="seconds that the replay takes (default 40)")
    parser.add_argument("--rows", type=whole(1), default=2000, help="stocks at the start (default 2000)")
    parser.add_argument("--updates", type=whole(0), default=20_000, help="updates to replay (default 20000)")
    parser.add_argument(
        "--subscriptions",
        type=whole(0),
        default=24_000,
        help="MIN subscriptions to random ranges, besides one of each kind (default 24000)",
    )
    parser.add_argument("--seed", type=int, default=0, help="number that decides all random choices (default 0)")
    parser.add_argument(
        "--plain", action="store_true", help="print lines instead of a live picture (the default without a terminal)"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write the last screen to a file, as SVG")
    parser.add_argument("--json", action="store_true", help="print only the figures at the end, as JSON")


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
    signals = Signals("the demo", lambda: "its processes", limit_s=STOP_S)
    try:
        played = signals.run(_play(settings, folder, console, plain=plain))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if played is None:
        return INTERRUPTED
    state, summary = played
    if arguments.picture:
        arguments.picture.write_text(picture(state, summary), encoding="utf-8")
    if arguments.json:
        sys.stdout.write(json.dumps(summary.as_json()) + "\n")
    else:
        console.print(closing(summary))
    return 0 if summary.is_right else 1


async def _play(settings: DemoSettings, folder: Path, console: Console, *, plain: bool) -> tuple[DemoState, Summary]:
    """Run it on the screen, or in lines."""
    if plain:
        director = Director(settings, folder, _liner(settings, console), _teller(console))
        return director.state, await director.run()
    with Live(console=console, auto_refresh=False) as live:

        def draw(state: DemoState) -> None:
            live.update(frame(state, console.width, console.height), refresh=True)

        director = Director(settings, folder, draw, _teller(live.console))
        return director.state, await director.run()


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
