"""`hullcast sim figures`: the figures of a paper, with tables, charts and a report."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.sim import add_run_arguments, spark_options
from hullcast.sim import experiments

if TYPE_CHECKING:
    import argparse

    from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    about = {name: import_module(f"{experiments.__name__}.{name}") for name in experiments.papers()}
    parser.description = (
        f"Reproduces the figures of a paper. {' '.join(f'{name}: {paper.ABOUT}' for name, paper in about.items())} "
        "Each section gives a Parquet table, a PNG and a part of report.md with the claims and what was measured. The "
        "exit code is 0 also if goals are missed."
    )
    sections = "; ".join(f"{name}: {', '.join(paper.SECTIONS)}" for name, paper in about.items())
    parser.add_argument("--paper", choices=about, default="traffic", help="whose figures (default traffic)")
    only = f"one section; may be repeated (default: all). {sections}"
    parser.add_argument("--only", action="append", default=[], metavar="SECTION", help=only)
    data = "folder with real prices, fundamentals and the AS graph (default: do without)"
    parser.add_argument("--data", type=Path, metavar="DIR", help=data)
    add_run_arguments(parser, out="figures", quick="smaller networks and workloads: a few minutes")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the experiments, and say what was found."""
    from hullcast.clients.cli.commands.progress import continuable, steps_bar
    from hullcast.sim.experiments.figures import Paper, run_figures
    from hullcast.sim.output.goals import summary

    paper: Paper[object] = import_module(f"{experiments.__name__}.{arguments.paper}.figures").PAPER
    settings = paper.seeded(paper.quick if arguments.quick else paper.full, arguments.seed)
    asked, data, out = paper.asked(arguments.only, arguments.data), arguments.data, arguments.out
    how = {"data": data, "options": spark_options(arguments), "resume": arguments.resume}
    with continuable(out), steps_bar(console, paper.steps(settings, asked, data)) as progress:
        found = run_figures(paper, settings, asked, out, progress, **how)
    if found.reused:
        console.print(f"{len(found.reused)} steps were done before and not repeated", style="dim")
    for section in found.sections:
        console.print(f"[bold]{section.title}[/]: {section.told}")
    if found.goals:
        console.print(f"[bold]Goals[/]: {summary(found.goals)}", soft_wrap=True)
    console.print(f"report: {found.report}", soft_wrap=True)
    return 0
