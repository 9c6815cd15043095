"""`hullcast sim NAME`: any study in `sim/experiments/studies`, measured, drawn, judged and reported."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.arguments import whole
from hullcast.clients.cli.commands.sim import add_run_arguments, spark_options
from hullcast.sim.experiments import studies

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.sim.experiments.study import Study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    name = parser.prog.rpartition(" ")[2]
    parser.description = (
        f"Studies {studies.studies()[name]}. Gives a Parquet table of all rows, charts, and report.md and report.html "
        "with the claims and the measurements. The exit code is 0 even if a claim does not hold."
    )
    parser.add_argument(
        "--seeds", type=whole(1), metavar="N", help="draws of everything that is random (default: the study says)"
    )
    if parts := studies.parts(name):
        only = f"one part; may be repeated (default: all). {', '.join(parts)}"
        parser.add_argument("--only", action="append", default=[], metavar="PART", help=only)
    else:
        parser.set_defaults(only=())
    data = "a folder with real data, for a study that can use some (default: synthetic data only)"
    parser.add_argument("--data", type=Path, metavar="DIR", help=data)
    add_run_arguments(parser, out=name, quick="few and small points: a minute or so")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the study, and say what was found."""
    from hullcast.clients.cli.commands.progress import continuable, steps_bar
    from hullcast.clients.cli.commands.sim.figures import show
    from hullcast.sim.experiments.sweeping import parts_of, run_study, seeds_of

    study: Study = import_module(f"{studies.__name__}.{arguments.simulation}").STUDY
    if arguments.data is not None:
        study = study.given(arguments.data)
    how = {name: getattr(arguments, name) for name in ("quick", "seed", "seeds", "only", "resume")}
    how["options"] = spark_options(arguments)
    parts = parts_of(study, arguments.quick, arguments.only)
    count = seeds_of(study, arguments.quick, arguments.seeds) * len(parts)
    with continuable(arguments.out), steps_bar(console, count) as progress:
        found = run_study(study, arguments.out, progress, **how)
    show(found, console)
    return 0
