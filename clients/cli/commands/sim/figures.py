"""`hullcast sim figures`: the figures of a paper, with tables, charts and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.arguments import whole
from hullcast.clients.cli.commands.sim import (
    add_columns_argument,
    add_prices_arguments,
    add_run_arguments,
    columns_from,
    reading_from,
    spark_options,
)
from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.traffic import ABOUT, SECTIONS

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.sim.experiments.data import RealData
    from hullcast.sim.experiments.figures import FiguresFound
    from hullcast.sim.experiments.sweeping import StudyFound


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        f"Reproduces {ABOUT} Each section gives a Parquet table, a PNG and a part of report.md and report.html with "
        "the claims and the measurements. The exit code is 0 even if goals are missed."
    )
    only = f"one section; may be repeated (default: all). {', '.join(SECTIONS)}"
    parser.add_argument("--only", action="append", default=[], metavar="SECTION", help=only)
    draws = "networks drawn, each with its own brokers and server, for medians and bands (default 5, quick: 3)"
    parser.add_argument("--seeds", type=whole(1), metavar="N", help=draws)
    kept = "keep the per-event table of every replay, as Parquet in the folders of the steps (large)"
    parser.add_argument("--keep-events", action="store_true", help=kept)
    real = parser.add_argument_group("real data (default: do without)")
    real.add_argument("--prices", metavar="PLACE", help="a folder of SYMBOL.csv[.gz], or one long file")
    real.add_argument("--fundamentals", metavar="FILE", help="a CSV with symbol, EPS and RECO")
    add_prices_arguments(real, days="trading days to replay (default: as many as of the synthetic market, 60 or 4)")
    network = "a network for the control (GraphML, edge list, INET)"
    real.add_argument("--topology", type=Path, metavar="FILE", help=network)
    add_columns_argument(real, "with --topology")
    short = "short form: the folder with the prices, fundamentals and AS graph named in sim/SIMULATION.md"
    real.add_argument("--data", type=Path, metavar="DIR", help=short)
    add_run_arguments(parser, out="figures", quick="smaller networks and workloads: a few minutes")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the experiments, and say what was found."""
    from hullcast.clients.cli.commands.progress import continuable, steps_bar
    from hullcast.sim.experiments.figures import run_figures
    from hullcast.sim.experiments.traffic.figures import PAPER

    settings = PAPER.seeded(PAPER.quick if arguments.quick else PAPER.full, arguments.seed, arguments.seeds)
    data, out = real_data(arguments), arguments.out
    asked = PAPER.asked(arguments.only, data)
    how = {"data": data, "keep": arguments.keep_events, "options": spark_options(arguments), "resume": arguments.resume}
    with continuable(out), steps_bar(console, PAPER.steps(settings, asked, data)) as progress:
        found = run_figures(PAPER, settings, asked, out, progress, **how)
    show(found, console)
    return 0


def show(found: FiguresFound | StudyFound, console: Console) -> None:
    """What was found, in a few lines."""
    from hullcast.sim.output.goals import summary

    if found.reused:
        console.print(f"{len(found.reused)} steps were done before and not repeated", style="dim")
    for section in found.sections:
        if section.claims:
            console.print(f"[bold]{section.title}[/]: {section.told}")
    goals = getattr(found, "goals", [])
    if goals:
        console.print(f"[bold]Goals[/]: {summary(goals)}")
    console.print(f"report: {found.report}", soft_wrap=True)
    console.print("beside it: report.html, the same in one file with its pictures", style="dim")


def real_data(arguments: argparse.Namespace) -> RealData | None:
    """The data that was given; UsageError if it does not go together."""
    from hullcast.sim.experiments.data import NetworkFile, Prices, RealData, collected
    from hullcast.sim.spark.storage import place_of

    own = [name for name in ("prices", "fundamentals", "topology") if getattr(arguments, name) is not None]
    if arguments.data is not None and (own or arguments.column or arguments.dates):
        raise UsageError("--data names prices, fundamentals and a network by itself; give either it or your own files")
    if ("prices" in own) != ("fundamentals" in own):
        raise UsageError("prices become events by earnings and recommendations: give both --prices and --fundamentals")
    if arguments.columns is not None and arguments.topology is None:
        raise UsageError("--columns needs the file of a network: --topology FILE")
    about = [name for name in ("first", "days", "column", "dates") if getattr(arguments, name)]
    if about and "prices" not in own and arguments.data is None:
        option = {"first": "from"}.get(about[0], about[0])
        raise UsageError(f"--{option} is about real prices; give them with --prices and --fundamentals, or --data")
    reading, first = reading_from(arguments)
    if arguments.data is not None:
        return collected(arguments.data, first, arguments.days)
    if not own:
        return None
    prices = topology = None
    if "prices" in own:
        files = place_of(arguments.prices), place_of(arguments.fundamentals)
        prices = Prices(*files, reading, first, arguments.days)
    if "topology" in own:
        topology = NetworkFile(arguments.topology, columns_from(arguments))
    return RealData(prices, topology)
