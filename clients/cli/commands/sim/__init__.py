"""`hullcast sim topology`, `trace`, `traffic`, `figures`, studies: what a workload costs, by simulation on Spark."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.studies import studies

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

#: Name, one line about it, and the module that has it.
SIMULATIONS: tuple[tuple[str, str, str], ...] = (
    ("topology", "make, measure and compare network topologies", "hullcast.clients.cli.commands.sim.topology"),
    ("trace", "make a trace of events: from daily prices, or synthetic", "hullcast.clients.cli.commands.sim.trace"),
    ("traffic", "replay a trace over brokers: messages, bytes, stress", "hullcast.clients.cli.commands.sim.traffic"),
    ("figures", "reproduce published traffic figures, with a report", "hullcast.clients.cli.commands.sim.figures"),
    *((name, about, "hullcast.clients.cli.commands.sim.study") for name, about in studies().items()),
)
ON_SPARK = ("markdown_it", "networkx", "scipy", "pyspark", "pyarrow", "pandas", "matplotlib", "psutil")
#: Packages that a simulation cannot do without; of traces it depends on their kind.
NEEDED: dict[str, tuple[str, ...]] = {
    "topology": ("networkx", "scipy"),
    "trace yahoo": ("pyarrow", "pandas", "pyspark"),
    "trace market": ("pyarrow", "pandas", "pyspark"),
    "trace table51": ("pyarrow",),
    **dict.fromkeys(("traffic", "figures", *studies()), ON_SPARK),
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
    parser.add_argument("--master", metavar="URL", help="a Spark cluster (default: this machine, all cores)")
    parser.add_argument("--out", type=Path, default=Path(out), metavar="DIR", help=f"for results (default ./{out})")
    parser.add_argument("--resume", action="store_true", help="continue the run that was interrupted in --out")
    parser.add_argument("--seed", type=int, default=0, help="number that decides all random choices (default 0)")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the simulation that is asked for."""
    name = arguments.simulation + (f" {arguments.kind}" if arguments.simulation == "trace" else "")
    missing = [package for package in NEEDED[name] if find_spec(package) is None]
    if missing:
        raise UsageError(f"sim {name} needs {', '.join(missing)}; install them with pip install 'hullcast[sim]'")
    modules = {name: module for name, _, module in SIMULATIONS}
    code: int = import_module(modules[arguments.simulation]).run(arguments, console)
    return code
