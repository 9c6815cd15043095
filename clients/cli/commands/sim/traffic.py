"""`hullcast sim traffic`: what one workload costs on the wire, in each placement and approach."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.arguments import place, whole
from hullcast.clients.cli.commands.sim import add_columns_argument, add_run_arguments, columns_from, spark_options
from hullcast.network.wire.errors import UsageError
from hullcast.sim.overlay import PLACEMENTS

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.sim.experiments.traffic.workload import TrafficFound, TrafficSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Replays a trace of events (default: a synthetic stock market) over a simulated network of brokers, and counts "
        "messages, bytes and stress of every event for four approaches: S-CN (Hullcast), S-UN (the server sends a "
        "message to each affected subscription or, aggregated, broker) and CN (each changed row goes to all ranges "
        "that hold it)."
    )
    parser.add_argument("trace", nargs="?", type=place, metavar="TRACE_DIR", help="made by `hullcast sim trace`")
    parser.add_argument("--subscriptions", type=whole(1), metavar="N", help="default 500000 (quick: 50000)")
    parser.add_argument("--brokers", type=whole(1), metavar="N", help="default 1000 (quick: 200)")
    parser.add_argument("--nodes", type=whole(3), metavar="N", help="nodes of the network; default 20000 (quick: 4000)")
    file = "read the network from a file (GraphML, edge list, INET)"
    parser.add_argument("--topology", type=Path, metavar="FILE", help=file)
    add_columns_argument(parser, "with --topology")
    placed = (
        f"how brokers are connected and subscriptions placed: {', '.join(PLACEMENTS)}; may be repeated (default: all)"
    )
    parser.add_argument("--placement", action="append", choices=PLACEMENTS, default=[], metavar="NAME", help=placed)
    parser.add_argument("--fanout", type=whole(2), metavar="N", help="children of a broker in trees (default 9)")
    entered = "how messages enter a CAN: directly (map, default), or from neighbour to neighbour (greedy)"
    parser.add_argument("--entry", choices=("map", "greedy"), default="map", help=entered)
    parallel = "pieces replayed in parallel; does not change the result"
    parser.add_argument("--chunks", type=whole(1), metavar="N", help=parallel)
    kept = "also keep a table with a row for each event, placement and approach (about 100 bytes a row)"
    parser.add_argument("--keep-events", action="store_true", help=kept)
    add_run_arguments(parser, out="traffic", quick="smaller network and workload, where no size is given")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Replay, and show the summary."""
    from hullcast.clients.cli.commands.progress import continuable, steps_bar
    from hullcast.sim.experiments.traffic.workload import STEPS, run_traffic

    settings = settings_of(arguments)
    with continuable(arguments.out), steps_bar(console, STEPS) as progress:
        how = {"options": spark_options(arguments), "chunks": arguments.chunks, "resume": arguments.resume}
        how["keep"] = arguments.keep_events
        found = run_traffic(settings, arguments.out, progress, **how)
    if arguments.json:
        sys.stdout.write(json.dumps([asdict(line) for line in found.lines], indent=1) + "\n")
    else:
        show(found, console)
    return 0


def settings_of(arguments: argparse.Namespace) -> TrafficSettings:
    """What was asked for, and defaults for the rest."""
    if arguments.topology is not None and arguments.nodes is not None:
        raise UsageError(
            "--topology reads a network with all its nodes, so --nodes has no effect; give only one of the two"
        )
    if arguments.columns is not None and arguments.topology is None:
        raise UsageError("--columns needs the file of a network: --topology FILE")
    from hullcast.sim.experiments.traffic.settings import FULL, QUICK
    from hullcast.sim.experiments.traffic.workload import TrafficSettings

    sizes = QUICK if arguments.quick else FULL
    given = {name: getattr(arguments, name) for name in ("nodes", "brokers", "fanout") if getattr(arguments, name)}
    greedy = {"can": "can-greedy"} if arguments.entry == "greedy" else {}
    return TrafficSettings(
        network=replace(sizes.network, seed=arguments.seed, columns=columns_from(arguments), **given),
        subscriptions=arguments.subscriptions or sizes.growing[-1],
        placements=tuple(greedy.get(name, name) for name in dict.fromkeys(arguments.placement or PLACEMENTS)),
        trace=arguments.trace,
        topology=arguments.topology,
        stocks=sizes.stocks,
        days=sizes.days,
    )


def show(found: TrafficFound, console: Console) -> None:
    """The summary on the terminal."""
    from hullcast.sim.experiments.traffic.workload import COLUMNS, LEGEND, about, rows_of
    from hullcast.sim.output.text import plain_table

    console.print(about(found.lines) + ".")
    rows = rows_of(found.lines)
    # Two tables, because one with all columns would be wider than a terminal of 80.
    for title, columns in (("traffic, mean per event", range(2, 6)), ("stress, mean, p99 and most", range(6, 12))):
        table = plain_table(title, *(COLUMNS[i].replace(" ", "\n", 1) for i in (0, 1, *columns)))
        table.columns[1].justify = "left"
        placement = ""
        for row in rows:
            if placement and row[0] != placement:
                table.add_section()
            table.add_row("" if row[0] == placement else row[0], *(row[i] for i in (1, *columns)))
            placement = row[0]
        console.print()
        console.print(table)
    console.print()
    console.print(LEGEND, style="dim")
    kept = f"{found.events}, " if found.events is not None else ""
    console.print(f"written: {kept}{found.summary}, and beside it summary.parquet and .png", soft_wrap=True)
