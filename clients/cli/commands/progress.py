"""Progress of long work: a bar in a terminal, plain lines on stderr elsewhere.

steps_bar   steps, and Spark's tasks within the one under way
bar         the same for work that only says what begins now        spark_bar   a Spark session and its tasks
continuable what to say when a run that can be continued is interrupted
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from rich.console import Console

    from hullcast.sim.experiments.run import StepProgress
    from hullcast.sim.spark.options import SparkOptions
    from hullcast.sim.spark.storage import Place

#: Seconds between two lines at least, so that short steps do not fill a file, and at most, so that a file shows life.
LEAST_S, MOST_S = 2.0, 10.0


@contextmanager
def steps_bar(console: Console, total: int | None) -> Iterator[StepProgress]:
    """Show so many steps (None: the number is not known)."""
    if not console.is_terminal:
        with written(Lines(total, monotonic())) as lines:
            yield lines
        return
    count = () if total is None else (MofNCompleteColumn(),)
    columns = (BarColumn(), *count, TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress, total)


@contextmanager
def bar(console: Console, total: int | None) -> Iterator[Callable[[str], None]]:
    """`tick(what)` says what begins now."""
    with steps_bar(console, total) as steps:
        yield steps.begin


@contextmanager
def continuable(out: Place) -> Iterator[None]:
    """Tell in a line how an interrupted run goes on; `clients/cli/main.py` makes the exit code of the interrupt."""
    try:
        yield
    except KeyboardInterrupt:
        # A run that finished no step takes it away. Elsewhere than here nobody can be asked: Spark has ended.
        begun = not out.is_local or any([*out.local.glob("run.json"), *out.local.glob("*/run.json")])
        told = "run the same command with --resume to continue" if begun else "no step was finished, so nothing is left"
        sys.stderr.write(f"hullcast: interrupted; {told}\n")
        raise


@contextmanager
def spark_bar(
    console: Console,
    options: SparkOptions,
    *,
    app: str,
    write: Iterable[Place | Path] = (),
    read: Iterable[Place | Path] = (),
) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """A session that can write and read at these places, and `say(what)`."""
    from hullcast.sim.spark.needs import check_shared
    from hullcast.sim.spark.session import spark_session, watched
    from hullcast.sim.spark.storage import place_of

    with steps_bar(console, None) as steps:
        steps.begin("starting Spark")
        with spark_session(options, app=app) as spark, watched(spark, steps.tasks):
            for place in map(place_of, (*write, *read)):
                place.check()
            check_shared(spark, write=write, read=read)
            yield spark, steps.begin


class _Bar:
    """Steps as a bar in the terminal."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        self._progress, self._total = progress, total
        self._task = progress.add_task("", total=total)
        self._what = ""

    def begin(self, what: str) -> None:
        self._progress.update(self._task, advance=1 if self._what and self._total else 0, description=what)
        self._what = what

    def tasks(self, done: int, known: int) -> None:
        told = f"{self._what}: {done} of {known} tasks" if known else self._what
        self._progress.update(self._task, description=told)
        if self._total is None and known:
            self._progress.update(self._task, completed=done, total=known)


class Lines:
    """Steps as lines of text; `line` says which one is due, and reads no clock."""

    def __init__(self, total: int | None, now: float) -> None:
        self._total, self._begun, self._last = total, now, now
        self._what, self._number, self._tasks = "", 0, (0, 0)
        self._written = ""  # the step that the last line was about

    def begin(self, what: str) -> None:
        """A step begins, and the one before it is done."""
        self._what, self._tasks = what, (0, 0)
        self._number += 1

    def tasks(self, done: int, known: int) -> None:
        """Spark's tasks within a step."""
        self._tasks = (done, known)

    def line(self, now: float) -> str:
        """The line to write now; empty if none is due: a new step soon, an old one only now and then."""
        what = self._what
        if not what or now - self._last < (MOST_S if what == self._written else LEAST_S):
            return ""
        self._written, self._last = what, now
        done, known = self._tasks
        step = f" (step {self._number} of {self._total})" if self._total else ""
        tasks = f": {done} of {known} tasks" if known else ""
        return f"{what}{step}{tasks}, {now - self._begun:.0f} s\n"


@contextmanager
def written(lines: Lines) -> Iterator[Lines]:
    """Write lines to stderr while the block runs, from a thread: the block may be busy for minutes."""
    finished = threading.Event()

    def run() -> None:
        while not finished.wait(0.2):
            text = lines.line(monotonic())
            try:
                sys.stderr.write(text)
                sys.stderr.flush()
            except (OSError, ValueError):  # the reader is gone: the work goes on
                return

    thread = threading.Thread(target=run, name="hullcast-progress", daemon=True)
    thread.start()
    try:
        yield lines
    finally:
        finished.set()
        thread.join()
