"""`hullcast warm`: compile the kernels now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hullcast.broker.server.warming import is_cold, warm
from hullcast.network.compiling import do_not_announce

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.broker.server.warming import Warmth


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None: there is nothing to choose."""
    parser.epilog = (
        "Compiled code is kept in HULLCAST_CACHE if that is set, else beside the sources if they can be written to, "
        "else in ~/.cache/hullcast or a private folder in /tmp. The next start only loads it."
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Compile or load, and say which."""
    warmth = warm_with_bar(console)
    if warmth.was_cached:
        console.print(f"all kernels were compiled already; loaded in {warmth.seconds:.1f} s")
    else:
        console.print(f"{warmth.compiled} functions compiled in {warmth.seconds:.1f} s; the next start only loads them")
    return 0


def warm_with_bar(console: Console, *, plain: bool = False) -> Warmth:
    """Warm up, with a bar that goes away where the terminal can show one, one line where it cannot."""
    text = "compiling kernels (first run only, cached)" if is_cold() else "loading kernels"
    if plain or not console.is_terminal:
        console.print(f"{text} ..")
        do_not_announce()  # this line has said it
        return warm()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[name]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(text, total=None, name="")
        return warm(lambda done, total, name: bar.update(task, completed=done, total=total, name=name.lstrip("_")))
