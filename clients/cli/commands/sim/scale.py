"""`hullcast sim scale`: how the cost of a replay grows, and what a cluster would take."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.arguments import place, whole
from hullcast.clients.cli.commands.sim import add_spark_arguments, spark_options

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

#: What is measured: in full, and with --quick.
SIZES = {"events": (10_000_000, 500_000), "subscriptions": (1_000_000, 100_000), "rows": (100_000, 10_000)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Replays a synthetic trace three times (with a tenth of its events, with a tenth of the subscriptions, with "
        "all), measures time and memory, and says what a cluster would take. The trace needs about 200 bytes of memory "
        "an event while it is made, and 40 on disk; it is removed at the end."
    )
    for name, (full, quick) in SIZES.items():
        about = f"{name} (default {full}; quick: {quick})"
        parser.add_argument(f"--{name}", type=whole(1), metavar="N", help=about)
    cores = "cores of the cluster to project to (default 100)"
    parser.add_argument("--cores", type=whole(1), default=100, metavar="N", help=cores)
    parser.add_argument("--brokers", type=whole(1), metavar="N", help="default 1000 (quick: 200)")
    parser.add_argument(
        "--quick", action="store_true", help="smaller sizes, where none is given, and a smaller network"
    )
    where = "for results: a folder, or a URL that Spark can write to (default scale)"
    parser.add_argument("--out", type=place, default="scale", metavar="DIR", help=where)
    parser.add_argument("--seed", type=int, default=0, help="number that decides all random choices (default 0)")
    add_spark_arguments(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Measure, show, and write scale.json."""
    from hullcast.clients.cli.commands.progress import steps_bar
    from hullcast.sim.experiments.traffic.scale import STEPS, ScaleSettings, measure_scale, told
    from hullcast.sim.experiments.traffic.settings import FULL, QUICK
    from hullcast.sim.output.text import plain_table
    from hullcast.sim.spark.session import reaching

    network = replace((QUICK if arguments.quick else FULL).network, seed=arguments.seed)
    if arguments.brokers:
        network = replace(network, brokers=arguments.brokers)
    sizes = {
        name: getattr(arguments, name) or (quick if arguments.quick else full) for name, (full, quick) in SIZES.items()
    }
    sizes["cores"] = arguments.cores
    out = arguments.out
    options = spark_options(arguments)
    with reaching([out], options, app="hullcast sim scale"):
        with steps_bar(console, STEPS) as progress:
            found = measure_scale(ScaleSettings(network, **sizes), out, progress, options)
        (out / "scale.json").write_text(json.dumps(found.plain(), indent=1) + "\n")
    table = plain_table("replays", "events", "subscriptions", "chunks", "seconds", "core µs\nan event", "memory\nGB")
    for each in found.replays:
        numbers = [f"{each.events:,}", f"{each.subscriptions:,}", f"{each.chunks}", f"{each.seconds:.1f}"]
        table.add_row(*numbers, f"{each.event_us:.1f}", f"{each.memory_bytes / 1e9:.1f}")
    console.print(table)
    console.print(told(found))
    console.print(f"written: {out / 'scale.json'}", soft_wrap=True)
    return 0
