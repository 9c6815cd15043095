"""`hullcast sim traffic`: what one workload costs on the wire, in each placement and approach."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from clients.commands.arguments import whole
from network.wire.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from sim.experiments.traffic import Traffic, TrafficSettings

#: As `sim.overlay.placement.PLACEMENTS`, which is not imported here: help must not wait for numba (a test compares).
PLACEMENTS = ("can", "tree-content", "tree-nearest", "tree-random")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Replays a trace of events (or, without one, a synthetic stock market) over brokers on a topology, and counts "
        "messages, bytes and stress, event by event, for S-CN, S-UN, S-UN with aggregation and CN."
    )
    parser.add_argument("trace", nargs="?", type=Path, metavar="TRACE_DIR", help="made by `hullcast sim trace`")
    parser.add_argument("--subscriptions", type=whole(1), metavar="N", help="default 500000 (quick: 50000)")
    parser.add_argument("--brokers", type=whole(1), metavar="N", help="default 1000 (quick: 200)")
    parser.add_argument("--nodes", type=whole(3), metavar="N", help="of the INET topology; default 20000 (quick: 4000)")
    parser.add_argument(
        "--topology", type=Path, metavar="FILE", help="GraphML, edge list or INET file, instead of --nodes"
    )
    parser.add_argument(
        "--placement",
        action="append",
        choices=PLACEMENTS,
        default=[],
        help="overlay and gateway rule; may be repeated (default: all)",
    )
    parser.add_argument("--fanout", type=whole(2), metavar="N", help="children of a broker in trees (default 9)")
    parser.add_argument(
        "--entry", choices=("map", "greedy"), default="map",
        help="how rectangles enter a CAN: the server knows the zones (default), or neighbour by neighbour",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="another seed is another network and workload (default 0)")
    parser.add_argument(
        "--chunks", type=whole(1), metavar="N", help="pieces of the trace; the result does not depend on it"
    )
    parser.add_argument("--master", metavar="URL", help="a Spark cluster (default: this machine, all cores)")
    parser.add_argument("--out", type=Path, default=Path("traffic"), metavar="DIR", help="results (default ./traffic)")
    parser.add_argument("--quick", action="store_true", help="smaller network and workload where no size is given")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was broken off in --out")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Replay, and show the summary."""
    from clients.commands.progress import steps_bar
    from clients.commands.sim.interrupts import continuable
    from sim.experiments.traffic import STEPS, run_traffic

    settings = settings_of(arguments)
    with continuable(arguments.out), steps_bar(console, STEPS) as progress:
        found = run_traffic(
            settings,
            arguments.out,
            progress,
            master=arguments.master,
            chunks=arguments.chunks,
            resume=arguments.resume,
        )
    if arguments.json:
        sys.stdout.write(json.dumps([asdict(line) for line in found.lines], indent=1) + "\n")
    else:
        show(found, console)
    return 0


def settings_of(arguments: argparse.Namespace) -> TrafficSettings:
    """What was asked for, and defaults for the rest."""
    if arguments.topology is not None and arguments.nodes is not None:
        raise UsageError("--topology FILE has as many nodes as it has; leave out --nodes, or --topology to make one")
    from sim.experiments.settings import FULL, QUICK
    from sim.experiments.traffic import TrafficSettings

    sizes = QUICK if arguments.quick else FULL
    given = {name: getattr(arguments, name) for name in ("nodes", "brokers", "fanout") if getattr(arguments, name)}
    greedy = {"can": "can-greedy"} if arguments.entry == "greedy" else {}
    return TrafficSettings(
        network=replace(sizes.network, seed=arguments.seed, **given),
        subscriptions=arguments.subscriptions or sizes.growing[-1],
        placements=tuple(greedy.get(name, name) for name in dict.fromkeys(arguments.placement or PLACEMENTS)),
        trace=arguments.trace,
        topology=arguments.topology,
        stocks=sizes.stocks,
        days=sizes.days,
    )


def show(found: Traffic, console: Console) -> None:
    """The summary on the terminal."""
    from sim.bench.report import plain_table
    from sim.experiments.traffic import COLUMNS, about, rows_of

    table = plain_table("per event", *(name.replace(" ", "\n", 1) for name in COLUMNS))
    for row in rows_of(found.lines):
        table.add_row(*row)
    console.print(about(found.lines), soft_wrap=True)
    console.print()
    console.print(table)
    console.print(f"written: {found.events}, {found.summary}, and beside it summary.parquet and .png", soft_wrap=True)
