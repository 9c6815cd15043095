"""A bar for long work: it moves with every tick, says what is being done, and goes away at the end."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console


@contextmanager
def bar(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """`tick(what)` says what begins now; nothing is shown where there is no terminal."""
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        begun = False

        def tick(what: str) -> None:
            nonlocal begun
            progress.update(task, advance=1 if begun else 0, description=what)
            begun = True

        yield tick
