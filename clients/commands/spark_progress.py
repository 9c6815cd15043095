"""A bar for work on Spark: tasks done of those known, what is being done, and the time it has taken."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from rich.console import Console


@contextmanager
def spark_bar(
    console: Console, master: str | None, *, app: str, memory: str = "2g"
) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """A session and `say(what)`; nothing is shown where there is no terminal."""
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
