"""`hullcast sim papers`: every table, figure and theorem of five sources on one page, each with its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.sim import add_run_arguments, spark_options
from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.papers import SOURCES

if TYPE_CHECKING:
    import argparse

    from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Runs the studies, the traffic figures and the benchmark of joins, and gathers what they judge: papers.html "
        "and papers.md have a row for every table, figure, theorem and example of five sources. The exit code is 1 if "
        "a study failed, and 0 even if a claim does not hold."
    )
    only = f"one source; may be repeated (default: all). {', '.join(SOURCES)}"
    parser.add_argument("--only", action="append", choices=list(SOURCES), default=[], metavar="SOURCE", help=only)
    data = "a folder with the real data named in sim/SIMULATION.md; what is not in it is left out"
    parser.add_argument("--data", type=Path, metavar="DIR", help=data)
    add_run_arguments(parser, out="papers", quick="few and small points: half an hour or so")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run them, and say what was found."""
    from hullcast.clients.cli.commands.progress import continuable, steps_bar
    from hullcast.clients.cli.commands.warm import warm_with_bar
    from hullcast.sim.experiments.papers.page import verdicts
    from hullcast.sim.experiments.papers.running import NAME, PapersRun, run_papers, runs_of, steps_of

    if not arguments.out.is_local:
        raise UsageError("the page is made of files on this machine; give a folder as --out")
    sources = [source for name, source in SOURCES.items() if name in arguments.only or not arguments.only]
    options = spark_options(arguments)
    how = PapersRun(arguments.out.local, arguments.quick, arguments.seed, arguments.data, options)
    warm_with_bar(console)  # the benchmark of joins measures time
    with continuable(arguments.out), steps_bar(console, steps_of(how, runs_of(sources))) as progress:
        found = run_papers(sources, how, progress, resume=arguments.resume)
    for source in sources:
        told = ", ".join(f"{kind} {count}" for kind, count in verdicts(source, found).most_common())
        console.print(f"[bold]{source.cited}[/]: {told}")
    for name, why in found.failed.items():
        console.print(f"[red]{name} failed[/]: {why}", soft_wrap=True)
    for stray in found.strays(sources):
        console.print(f"[red]not in the registry[/]: {stray}")
    console.print(f"page: {how.out / NAME}.html", soft_wrap=True)
    return 1 if found.failed else 0
