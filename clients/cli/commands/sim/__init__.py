"""`hullcast sim`: topologies, traces, replays, figures and studies, by Spark."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.arguments import place, whole
from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.studies import studies

if TYPE_CHECKING:
    import argparse
    import datetime
    from collections.abc import Iterable

    from rich.console import Console

    from hullcast.sim.spark.options import SparkOptions
    from hullcast.sim.traces.columns import CsvReading

#: Name, one line about it, and the module that has it.
SIMULATIONS: tuple[tuple[str, str, str], ...] = (
    ("topology", "make, measure and compare network topologies", "hullcast.clients.cli.commands.sim.topology"),
    ("trace", "make a trace of events: from daily prices, or synthetic", "hullcast.clients.cli.commands.sim.trace"),
    ("traffic", "replay a trace over brokers: messages, bytes, stress", "hullcast.clients.cli.commands.sim.traffic"),
    ("scale", "measure how replays grow, for larger ones", "hullcast.clients.cli.commands.sim.scale"),
    ("figures", "reproduce published traffic figures, with a report", "hullcast.clients.cli.commands.sim.figures"),
    (
        "papers",
        "all tables, figures and theorems of five sources",
        "hullcast.clients.cli.commands.sim.papers",
    ),
    *((name, about, "hullcast.clients.cli.commands.sim.study") for name, about in studies().items()),
)
ON_SPARK = ("markdown_it", "networkx", "scipy", "pyspark", "pyarrow", "pandas", "matplotlib", "psutil")
#: Packages that a simulation cannot do without; of traces it depends on their kind.
NEEDED: dict[str, tuple[str, ...]] = {
    "topology": ("networkx", "scipy"),
    "trace yahoo": ("pyarrow", "pandas", "pyspark"),
    "trace market": ("pyarrow", "pandas", "pyspark"),
    "trace table51": ("pyarrow",),
    "scale": ("networkx", "scipy", "pyspark", "pyarrow", "psutil"),
    **dict.fromkeys(("traffic", "figures", "papers", *studies()), ON_SPARK),
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


def add_prices_arguments(parser: argparse._ActionsContainer, *, days: str) -> None:
    """Declare how files of prices and fundamentals are to be read, and which days of them are used."""
    parser.add_argument("--from", dest="first", metavar="DATE", help="leave out earlier dates")
    parser.add_argument("--days", type=whole(1), metavar="N", help=days)
    column = (
        "which column is SYMBOL, DATE, OPEN, CLOSE, EPS or RECO where its name does not say so, such as "
        'EPS="Earnings/Share"; may be repeated'
    )
    parser.add_argument("--column", action="append", default=[], metavar="NAME=COLUMN", help=column)
    dates = "order of month, day and year in dates such as 04/01/2015 (default: as the files show)"
    parser.add_argument("--dates", choices=("mdy", "dmy", "ymd"), help=dates)


def reading_from(arguments: argparse.Namespace) -> tuple[CsvReading, datetime.date | None]:
    """What `add_prices_arguments` took: how files are to be read, and the first date."""
    from hullcast.sim.traces.columns import reading_of
    from hullcast.sim.traces.dates import asked_date

    reading = reading_of(arguments.column, arguments.dates)
    return reading, None if arguments.first is None else asked_date(arguments.first, reading.dates)


def add_columns_argument(parser: argparse._ActionsContainer, when: str) -> None:
    """Declare which columns of a topology file are what."""
    about = (
        f"{when}: which columns of its lines are the two ends of a link and, if there is one, the latency, by numbers "
        "from 1 on or by names in the first line, such as 1,2 or source,target"
    )
    parser.add_argument("--columns", metavar="A,B[,LATENCY]", help=about)


def columns_from(arguments: argparse.Namespace) -> tuple[str, ...]:
    """What `add_columns_argument` took."""
    from hullcast.sim.topology.listings import columns_of

    return () if arguments.columns is None else columns_of(arguments.columns)


def check_installed(command: str, packages: Iterable[str]) -> None:
    """UsageError with how to install them, if one is missing."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise UsageError(f"{command} needs {', '.join(missing)}; install them with pip install 'hullcast[sim]'")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the simulation that is asked for."""
    name = arguments.simulation + (f" {arguments.kind}" if arguments.simulation == "trace" else "")
    check_installed(f"sim {name}", NEEDED[name])
    modules = {name: module for name, _, module in SIMULATIONS}
    code: int = import_module(modules[arguments.simulation]).run(arguments, console)
    return code
