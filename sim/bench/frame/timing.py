"""Measures several things in turns, so that a busy moment of the machine falls on all of them.

What is measured apart has a process of its own, because what ran before would show in its figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import nan
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.errors import HullcastError
from hullcast.sim.output.text import number

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

K = TypeVar("K")  # a name
R = TypeVar("R")  # what a round gives
L = TypeVar("L", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class Run:
    """One round of one subject."""

    seconds: float
    updates: int
    messages: int = 0

    @property
    def us(self) -> float:
        """Microseconds an update."""
        return 1e6 * self.seconds / max(1, self.updates)


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that can be measured again and again; each round has batches of updates of its own."""

    rounds: Sequence[Sequence[Any]]
    apply: Callable[[Any], tuple[int, int]]  # a batch; gives how many updates it has, and how many messages it made
    count: Callable[[], int] | None = None  # messages so far, where they are not counted batch by batch

    def run(self, turn: int) -> Run:
        """Round number `turn`, from 0 on, each once and in order."""
        updates = messages = 0
        before = self.count() if self.count else 0
        started = perf_counter()
        for batch in self.rounds[turn]:
            some, made = self.apply(batch)
            updates += some
            messages += made
        seconds = perf_counter() - started
        return Run(seconds, updates, self.count() - before if self.count else messages)


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and its quartiles."""

    q1: float
    median: float
    q3: float


def spread(values: Iterable[float]) -> Spread:
    """Median and quartiles of one or more values."""
    ordered = sorted(values)
    if len(ordered) == 1:
        return Spread(ordered[0], ordered[0], ordered[0])
    q1, middle, q3 = quantiles(ordered, method="inclusive")
    return Spread(q1, middle, q3)


def p50_and_p99(values: Sequence[float] | Floats) -> tuple[float, float]:
    """Of no values: nan."""
    if not len(values):
        return nan, nan
    p50, p99 = np.quantile(values, (0.5, 0.99)).tolist()
    return p50, p99


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Milliseconds of a request, and of another one asked in turns with it."""

    p50_ms: float
    p99_ms: float
    other_p50_ms: float
    other_p99_ms: float

    @classmethod
    def of(cls, ms: Sequence[float], other_ms: Sequence[float]) -> SideBySide:
        """All that were asked."""
        return cls(*p50_and_p99(ms), *p50_and_p99(other_ms))

    @property
    def ratio(self) -> float:
        """How many times as long as the other it takes, both at p50."""
        return self.p50_ms / self.other_p50_ms

    @property
    def cells(self) -> tuple[str, ...]:
        """For a table."""
        return tuple(map(number, (self.p50_ms, self.p99_ms, self.other_p50_ms, self.other_p99_ms)))


def rotated(names: Iterable[K], turn: int) -> list[K]:
    """Another one first each time: what comes first may find a colder machine."""
    all_names = list(names)
    start = turn % len(all_names)
    return all_names[start:] + all_names[:start]


def turns(rounds: int, tick: Callable[[str], None], what: str) -> Iterator[int]:
    """So many rounds, and one before them, number 0, that only warms up."""
    for turn in range(rounds + 1):
        tick(f"{what}, round {turn} of {rounds}" if turn else f"{what}, first round, not counted")
        yield turn


def in_turns(
    ways: Mapping[K, Callable[[int], R]], rounds: int, tick: Callable[[str], None], what: str
) -> dict[K, list[R]]:
    """Take all ways once a round, so that a busy moment of the machine falls on all of them. What each gave, without
    the first round."""
    found: dict[K, list[R]] = {name: [] for name in ways}
    for turn in turns(rounds, tick, what):
        for name, way in ways.items():
            one = way(turn)
            if turn:
                found[name].append(one)
    return found


def measured_in_turns(
    subjects: Mapping[str, Subject], rounds: int, tick: Callable[[str], None], what: str
) -> dict[str, list[Run]]:
    """The same of subjects."""
    return in_turns({name: subject.run for name, subject in subjects.items()}, rounds, tick, what)


def us(runs: Sequence[Run]) -> float:
    """Microseconds an update, the median of the rounds."""
    return median(run.us for run in runs)


def ratio(ours: Sequence[Run], baseline: Sequence[Run]) -> Spread:
    """How many times the baseline's time ours takes, round by round."""
    return spread(one.us / other.us for one, other in zip(ours, baseline, strict=True))


def messages_per_update(runs: Sequence[Run]) -> float:
    """Over all rounds together."""
    return sum(run.messages for run in runs) / max(1, sum(run.updates for run in runs))


def medians(rounds: Sequence[L], **others: Any) -> L:
    """What rounds found, as one: the median of each figure, and of those in a dict; `others` are not medians."""

    def middle(values: Sequence[Any]) -> Any:
        if isinstance(values[0], dict):
            return {name: median(value[name] for value in values) for name in values[0]}
        is_figure = isinstance(values[0], int | float) and len(set(values)) > 1
        return median(values) if is_figure else values[0]

    found = {each.name: [getattr(one, each.name) for one in rounds] for each in fields(rounds[0])}
    told = {name: middle(values) for name, values in found.items() if name not in others}
    return replace(rounds[0], **told, **others)


class MeasurementFailed(HullcastError):
    """A process that should have measured failed."""


def measured_apart(
    what: str, module: str, argument: object, environment: Mapping[str, str], folder: Path | None = None
) -> Any:
    """What a module prints, as `python -m` with one argument; both are JSON. `what`: for the error if it fails."""
    command = [sys.executable, "-m", module, json.dumps(argument)]
    inherited = {**os.environ, **environment}
    done = subprocess.run(command, cwd=folder, env=inherited, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MeasurementFailed(f"{what} failed: {last}")
    return json.loads(done.stdout)
