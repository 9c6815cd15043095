"""Bars for long work: they say what is being done and go away at the end; nothing is shown where there is no terminal.

bar         one step after the other            steps_bar   steps, and Spark's tasks within the one under way
spark_bar   a Spark session and its tasks
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from rich.console import Console


@contextmanager
def bar(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """`tick(what)` says what begins now."""
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        begun = False

        def tick(what: str) -> None:
            nonlocal begun
            progress.update(task, advance=1 if begun else 0, description=what)
            begun = True

        yield tick


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
    """A bar of so many steps."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield StepsBar(progress, total)


@contextmanager
def spark_bar(
    console: Console, master: str | None, *, app: str, memory: str = "2g"
) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """A session, and `say(what)`."""
    from sim.spark import spark_session, watched

    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting Spark", total=None)

        def say(what: str) -> None:
            progress.update(task, description=what)

        def tell(done: int, known: int) -> None:
            progress.update(task, completed=done, total=known or None)

        with spark_session(master, app=app, memory=memory) as spark, watched(spark, tell):
            yield spark, say
