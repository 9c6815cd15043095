"""What benchmarks with several sections share: which run, on what machine, how they are shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console

from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.engine import machine
from hullcast.sim.bench.warehouse.stage import others_cores
from hullcast.sim.output.goals import Goal, goals_table

#: Called with a few words when a part of the work is done.
Tick = Callable[[str], None]
#: A section that was measured (or None), and what prints it.
Shown = tuple[Any, Callable[[Any, Console], None]]

#: How long we look at what other programs use, and from how many cores on times are theirs as much as ours.
_LOOK_S, _DISTURBED = 1.0, 0.2


def wanted_sections(only: Collection[str], sections: Collection[str]) -> set[str]:
    """The sections that are asked for: all if none is named."""
    unknown = set(only) - set(sections)
    if unknown:
        raise UsageError(f"no section {min(unknown)!r}; sections: {', '.join(sections)}")
    return set(only) or set(sections)


def machine_and_others() -> dict[str, Any]:
    """The machine, and how many of its cores other programs use at the moment."""
    return machine() | {"others_cores": round(others_cores(_LOOK_S), 2)}


def show_sections(here: Mapping[str, Any], sections: Iterable[Shown], goals: Sequence[Goal], console: Console) -> None:
    """Print where it was measured, the sections that were, and the goals."""
    console.print(
        f"\n{here['cpu']}, {here['cores']} cores, load {here['load'][0]} at the beginning; Python {here['python']}. "
        "Servers, their other processes and clients share these cores, with whatever else runs here.",
        style="dim",
    )
    if here["others_cores"] > _DISTURBED:
        console.print(
            f"Before anything was started, other programs used {here['others_cores']:.2f} of {here['cores']} cores: "
            "times and verdicts below are theirs as much as ours. Repeat this on an idle machine.",
            style="yellow",
        )
    for section, show in sections:
        if section is not None:
            console.print()
            show(section, console)
    if goals:
        console.print()
        console.print(goals_table(goals))
