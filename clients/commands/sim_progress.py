"""A bar for simulations: steps done, the step under way, and Spark's tasks within it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console


class StepsBar:
    """What `sim.experiments.stage.Progress` asks for, as a bar; `tasks` may be called from another thread."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)
        self._what = ""

    def begin(self, what: str) -> None:
        """A step begins, and the one before it is done."""
        self._progress.update(self._task, advance=1 if self._what else 0, description=what)
        self._what = what

    def tasks(self, done: int, known: int) -> None:
        """Spark's tasks within a step."""
        told = f"{self._what}: {done} of {known} tasks" if known else self._what
        self._progress.update(self._task, description=told)


@contextmanager
def steps_bar(console: Console, total: int) -> Iterator[StepsBar]:
    """Nothing is shown where there is no terminal."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield StepsBar(progress, total)
