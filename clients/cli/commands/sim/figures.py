"""`hullcast sim figures`: the traffic figures of Xie (2007), with tables, charts and a report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.sim import add_run_arguments
from hullcast.network.wire.errors import UsageError
from hullcast.sim import XIE
from hullcast.sim.experiments.traffic import SECTIONS

if TYPE_CHECKING:
    import argparse

    from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Reproduces Figures 5.8 (ignorable updates), 5.9 (affected subscriptions) and 5.10 (a stock market), and node "
        f"stress, of {XIE}, for four ways of placing subscriptions at brokers. Each gives a Parquet table, a PNG and a "
        "section of report.md with the claims and what was measured. The exit code is 0 also if goals are missed."
    )
    parser.add_argument(
        "--only", action="append", choices=SECTIONS, default=[], metavar="SECTION",
        help=f"one of {', '.join(SECTIONS)}; may be repeated (default: all)",
    )  # fmt: skip
    data = "folder with real prices, fundamentals and the AS graph (default: do without)"
    parser.add_argument("--data", type=Path, metavar="DIR", help=data)
    add_run_arguments(parser, out="figures", quick="smaller networks and workloads: a few minutes")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the experiments, and say what was found."""
    from hullcast.clients.cli.commands.progress import continuable, steps_bar
    from hullcast.sim.experiments.figures import run_figures
    from hullcast.sim.experiments.traffic.figures import PAPER
    from hullcast.sim.experiments.traffic.settings import FULL, QUICK
    from hullcast.sim.output.goals import summary

    if "control" in arguments.only and arguments.data is None:
        raise UsageError("control needs the AS graph of 2006; give its folder with --data DIR")
    settings = QUICK if arguments.quick else FULL
    settings = replace(settings, network=replace(settings.network, seed=arguments.seed))
    asked, data, out = PAPER.asked(arguments.only), arguments.data, arguments.out
    how = {"data": data, "master": arguments.master, "resume": arguments.resume}
    with continuable(out), steps_bar(console, PAPER.steps(settings, asked, data)) as progress:
        found = run_figures(PAPER, settings, asked, out, progress, **how)
    if found.reused:
        console.print(f"{len(found.reused)} steps were done before and not repeated", style="dim")
    for section in found.sections:
        console.print(f"[bold]{section.title}[/]: {section.told}")
    if found.goals:
        console.print(f"[bold]Goals[/]: {summary(found.goals)}", soft_wrap=True)
    console.print(f"report: {found.report}", soft_wrap=True)
    return 0
