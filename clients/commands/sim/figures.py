"""`hullcast sim figures`: the thesis's traffic figures, with tables, charts and a report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from network.wire.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

#: As `sim.experiments.settings.SECTIONS`, which is not imported here: help must not wait for numba (a test compares).
SECTIONS = ("5.8", "5.9", "5.10", "stress", "control", "scaling")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Reproduces Figures 5.8 (ignorable updates), 5.9 (affected subscriptions) and 5.10 (real workload) and node "
        "stress, for four placements of gateways. Each gives a Parquet table, a PNG and a paragraph in report.md "
        "with the thesis's claim and ours side by side. The exit code is 0 whether or not goals are reached."
    )
    parser.add_argument("--quick", action="store_true", help="smaller networks and workloads: some minutes")
    parser.add_argument(
        "--only", action="append", choices=SECTIONS, default=[], metavar="SECTION",
        help=f"one of {', '.join(SECTIONS)}; may be repeated (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder with the real prices, fundamentals and AS graph; else left out"
    )
    parser.add_argument("--master", metavar="URL", help="a Spark cluster (default: this machine, all cores)")
    parser.add_argument("--out", type=Path, default=Path("figures"), metavar="DIR", help="results (default ./figures)")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was broken off in --out")
    parser.add_argument("--seed", type=int, default=0, help="another seed is another network and workload (default 0)")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the experiments, and say what was found."""
    from clients.commands.progress import steps_bar
    from clients.commands.sim.interrupts import continuable
    from sim.experiments.figures import run_figures, steps
    from sim.experiments.goals import told
    from sim.experiments.settings import FULL, QUICK, wanted

    if "control" in arguments.only and arguments.data is None:
        raise UsageError("control runs over the AS graph of 2006; name the folder that has it with --data DIR")
    settings = QUICK if arguments.quick else FULL
    settings = replace(settings, network=replace(settings.network, seed=arguments.seed))
    asked = wanted(arguments.only)
    with continuable(arguments.out), steps_bar(console, steps(settings, asked, arguments.data)) as progress:
        found = run_figures(
            settings,
            asked,
            arguments.out,
            progress,
            data=arguments.data,
            master=arguments.master,
            resume=arguments.resume,
        )
    if found.reused:
        console.print(f"{len(found.reused)} steps were there already", style="dim")
    for section in found.sections:
        console.print(f"[bold]{section.title}[/]: {section.told}")
    if found.goals:
        console.print(f"[bold]Goals[/]: {told(found.goals)}", soft_wrap=True)
    console.print(f"report: {found.report}", soft_wrap=True)
    return 0
