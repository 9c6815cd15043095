"""`hullcast sim figures`: the figures of a paper, with tables, charts and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.arguments import whole
from hullcast.clients.cli.commands.sim import add_run_arguments
from hullcast.sim.experiments.traffic import ABOUT, SECTIONS

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.sim.experiments.figures import FiguresFound
    from hullcast.sim.experiments.study import StudyFound


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        f"Reproduces {ABOUT} Each section gives a Parquet table, a PNG and a part of report.md and report.html with "
        "the claims and what was measured. The exit code is 0 also if goals are missed."
    )
    only = f"one section; may be repeated (default: all). {', '.join(SECTIONS)}"
    parser.add_argument("--only", action="append", default=[], metavar="SECTION", help=only)
    data = "folder with real prices, fundamentals and the AS graph (default: do without)"
    parser.add_argument("--data", type=Path, metavar="DIR", help=data)
    draws = "networks drawn, with brokers and server of their own, for medians and bands (default 5, quick: 3)"
    parser.add_argument("--seeds", type=whole(1), metavar="N", help=draws)
    kept = "keep the per-event table of every replay, as Parquet in the folders of the steps (large)"
    parser.add_argument("--keep-events", action="store_true", help=kept)
    add_run_arguments(parser, out="figures", quick="smaller networks and workloads: a few minutes")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the experiments, and say what was found."""
    from hullcast.clients.cli.commands.progress import continuable, steps_bar
    from hullcast.sim.experiments.figures import run_figures
    from hullcast.sim.experiments.traffic.figures import PAPER

    settings = PAPER.seeded(PAPER.quick if arguments.quick else PAPER.full, arguments.seed, arguments.seeds)
    asked, data, out = PAPER.asked(arguments.only, arguments.data), arguments.data, arguments.out
    how = {"data": data, "keep": arguments.keep_events, "master": arguments.master, "resume": arguments.resume}
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
