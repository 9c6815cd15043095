"""`hullcast sim topology`, `trace`, `traffic`, `figures`: what a workload costs on the wire, by replay on Spark."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.arguments import place
from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.sim.spark.options import SparkOptions

#: Name, one line about it, and the module that has it.
SIMULATIONS: tuple[tuple[str, str, str], ...] = (
    ("topology", "make, measure and compare network topologies", "hullcast.clients.cli.commands.sim.topology"),
    ("trace", "make a trace of events: from daily prices, or synthetic", "hullcast.clients.cli.commands.sim.trace"),
    ("traffic", "replay a trace over brokers: messages, bytes, stress", "hullcast.clients.cli.commands.sim.traffic"),
    ("figures", "reproduce published traffic figures, with a report", "hullcast.clients.cli.commands.sim.figures"),
)
#: Packages that a simulation cannot do without; of traces it depends on their kind.
NEEDED: dict[str, tuple[str, ...]] = {
    "topology": ("networkx", "scipy"),
    "trace yahoo": ("pyarrow", "pandas", "pyspark"),
    "trace market": ("pyarrow", "pandas", "pyspark"),
    "trace table51": ("pyarrow",),
    "traffic": ("networkx", "scipy", "pyspark", "pyarrow", "pandas", "matplotlib", "psutil"),
    "figures": ("networkx", "scipy", "pyspark", "pyarrow", "pandas", "matplotlib", "psutil"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of all simulations."""
    names = "|".join(name for name, _, _ in SIMULATIONS)
    which = parser.add_subparsers(metavar=names, dest="simulation", required=True)
    for name, about, module in SIMULATIONS:
        subparser = which.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
        import_module(module).add_arguments(subparser)


def add_run_arguments(parser: argparse.ArgumentParser, *, out: str, quick: str) -> None:
    """Declare what every run of steps takes."""
    parser.add_argument("--quick", action="store_true", help=quick)
    where = f"for results: a folder, or a URL that Spark can write to (default {out})"
    parser.add_argument("--out", type=place, default=out, metavar="DIR", help=where)
    parser.add_argument("--resume", action="store_true", help="continue the run that was interrupted in --out")
    parser.add_argument("--seed", type=int, default=0, help="number that decides all random choices (default 0)")
    add_spark_arguments(parser)


def add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what every command with Spark takes; `spark_options` reads it."""
    group = parser.add_argument_group("Spark", "On a cluster: see sim/SIMULATION.md.")
    group.add_argument("--master", metavar="URL", help="a Spark cluster (default: this machine, all cores)")
    group.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated")
    packed = "archive with a Python environment for the workers, or `none` if they have all (default: ours is sent)"
    group.add_argument("--env", metavar="ARCHIVE", help=packed)
    group.add_argument("--driver-memory", default="2g", metavar="SIZE", help="of the driver, such as 4g (default 2g)")
    group.add_argument("--ui", action="store_true", help="serve Spark's pages while it runs, and print their address")
    group.add_argument(
        "--event-log", type=place, metavar="DIR", help="write Spark's event log to this folder, a path or a URL"
    )


def spark_options(arguments: argparse.Namespace) -> SparkOptions:
    """What `add_spark_arguments` declared; UsageError for what cannot be."""
    from hullcast.sim.spark.options import SparkOptions, settings_of

    return SparkOptions(
        arguments.master,
        settings_of(arguments.conf),
        arguments.env,
        arguments.driver_memory,
        arguments.ui,
        arguments.event_log,
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the simulation that is asked for."""
    name = arguments.simulation + (f" {arguments.kind}" if arguments.simulation == "trace" else "")
    missing = [package for package in NEEDED[name] if find_spec(package) is None]
    if missing:
        raise UsageError(f"sim {name} needs {', '.join(missing)}; install them with pip install 'hullcast[sim]'")
    modules = {name: module for name, _, module in SIMULATIONS}
    code: int = import_module(modules[arguments.simulation]).run(arguments, console)
    return code
