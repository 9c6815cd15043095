"""How a benchmark is declared: settings in two sizes, and sections that measure, tell, judge and draw.

All else follows from the declaration: the subcommand of `hullcast bench`, progress, the report, its file and its page.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from rich.table import Table
from rich.text import Text

from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.frame.machine import LOOK_S, machine, others_cores, process_of
from hullcast.sim.output.claims import Claim
from hullcast.sim.output.goals import Goal

S = TypeVar("S")  # settings
F = TypeVar("F")  # figures

#: Called with a few words when a part of the work begins.
Tick: TypeAlias = Callable[[str], None]
#: What a section tells: tables, remarks about them, and sentences with a style of their own.
Shown: TypeAlias = Table | str | Text
#: From so many cores on that other programs use, times are theirs as much as ours.
DISTURBED = 0.2


#: Said of benchmarks with processes of their own.
SHARED = "Servers, their other processes and clients share these cores, with whatever else runs here."


def quietly(what: str) -> None:
    """No progress is shown."""


@dataclass(frozen=True, slots=True)
class BenchSection(Generic[S, F]):
    """One thing that is measured. What it finds is a dataclass, or a tuple of them."""

    name: str  # for `--only`, and in the file
    about: str  # what it shows, for `--help`
    run: Callable[[S, Tick], Any]  # measures: gives F, or is a coroutine that does
    tables: Callable[[F], Iterable[Shown]]
    goals: Callable[[F], Iterable[Goal | Claim]] = lambda found: ()
    pictures: Mapping[str, Callable[[F, Path], Path]] = field(default_factory=dict)  # by the name of the PNG
    steps: Callable[[S], int] = lambda settings: 1  # how often `run` ticks


@dataclass(frozen=True, slots=True)
class BenchOption:
    """A number, or several, that the command line may change: a field of the settings by the same name."""

    name: str
    about: str
    least: int = 1
    many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark(Generic[S]):
    """Settings, sections, and words about them."""

    name: str
    about: str  # one line
    description: str
    quick_about: str
    full: S
    quick: S
    sections: tuple[BenchSection[S, Any], ...]
    head: Callable[[S], str] = lambda settings: ""  # how it was measured, in the first lines of the report
    options: tuple[BenchOption, ...] = ()
    choose: Callable[[S, Sequence[str]], S] | None = None  # what `--only` means where it names no sections
    names: str = ""  # what it may name then
    needs_spark: bool = False

    def settings(self, *, quick: bool = False, seed: int | None = None, **options: Any) -> S:
        """Settings in one of the sizes, with a seed and with what options say (None: nothing)."""
        chosen = self.quick if quick else self.full
        chosen = chosen if seed is None else seeded(chosen, seed)
        return replace(chosen, **{name: value for name, value in options.items() if value is not None})  # type: ignore[type-var]  # a dataclass

    def wanted(self, only: Collection[str] = ()) -> list[BenchSection[S, Any]]:
        """The sections that are asked for, in their order: all if none is named."""
        known = [section.name for section in self.sections]
        if unknown := set(only) - set(known):
            raise UsageError(f"no section {min(unknown)!r}; sections: {', '.join(known)}")
        return [section for section in self.sections if not only or section.name in only]

    def steps(self, settings: S, only: Collection[str] = ()) -> int:
        """How often `measure` ticks."""
        return sum(section.steps(settings) for section in self.wanted(only))

    def measure(
        self, settings: S, only: Collection[str] = (), tick: Tick = quietly, *, look_s: float = LOOK_S
    ) -> BenchReport:
        """Measure these sections. Before each we look for so long at what other programs use: 0 for not at all."""
        wanted = self.wanted(only)
        process_of()  # or CPU time cannot be measured; better said before measuring than after
        here, most, found, told = machine(), 0.0, dict[str, Any](), list[Goal | Claim]()
        for section in wanted:
            others = others_cores(look_s) if look_s else 0.0
            most = max(most, others)
            measured = section.run(settings, tick)
            found[section.name] = asyncio.run(measured) if inspect.iscoroutine(measured) else measured
            told += [judged(one, others) for one in section.goals(found[section.name])]
        return BenchReport(
            self,
            here | {"others_cores": round(most, 2)},
            settings,
            found,
            tuple(one for one in told if isinstance(one, Goal)),
            tuple(one for one in told if isinstance(one, Claim)),
        )


@dataclass(frozen=True, slots=True)
class BenchReport:
    """What was measured, by the names of sections: those that were asked for."""

    benchmark: Benchmark[Any]
    machine: Mapping[str, Any]
    settings: Any
    found: Mapping[str, Any]
    goals: tuple[Goal, ...] = ()
    claims: tuple[Claim, ...] = ()


def judged(one: Goal | Claim, others: float) -> Goal | Claim:
    """The same, without a verdict if other programs used too much of the machine for one."""
    if others <= DISTURBED:
        return one
    busy = f"other programs used {others:.2g} cores"
    if isinstance(one, Claim):
        return replace(one, unknown=busy) if one.counted else one  # what could not be otherwise holds on any machine
    return one if one.exact else replace(one, unjudged=busy)


def seeded(settings: Any, seed: int) -> Any:
    """The same settings with another seed, in all of their parts."""
    changed = {
        each.name: seed if each.name == "seed" else seeded(value, seed)
        for each in fields(settings)
        if each.name == "seed" or is_dataclass(value := getattr(settings, each.name))
    }
    return replace(settings, **changed)
