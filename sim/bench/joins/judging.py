"""How what a chart shows is judged: rows of statements and of goals, each by numbers measured several times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hullcast.sim.bench.frame.timing import spread
from hullcast.sim.bench.joins.charts import NEVER, JoinChart, JoinCurve, find
from hullcast.sim.output.claims import Claim
from hullcast.sim.output.goals import Goal
from hullcast.sim.output.text import factor, number

#: Finds a curve by figure and name.
Found: TypeAlias = Callable[[str, str], JoinCurve]
#: A number as it is written.
Form: TypeAlias = Callable[[float], str]


def percent(value: float) -> str:
    """14.9 as 14.9%."""
    return f"{value:.3g}%"


def share(value: float) -> str:
    """0.149 as 14.9%."""
    return percent(100 * value)


def place(value: float) -> str:
    """An x where curves cross."""
    return "never" if value > NEVER / 10 else "everywhere" if value == 0 else f"from {number(value)} on"


@dataclass(frozen=True, slots=True)
class Stated:
    """What the source says. It holds if the median of the values is within both bounds."""

    figure: str
    words: str
    paper: str
    values: Callable[[Found], Sequence[float]]
    within: tuple[float, float]
    form: Form = factor
    because: str = ""
    construction: str = ""

    def judge(self, found: Found) -> Claim:
        """The median, with the quartiles of all rounds."""
        values, (low, high) = self.values(found), self.within
        middle = spread(values).median
        return Claim(
            "", self.words, _with_quartiles(values, self.form), low <= middle <= high, self.because, value=middle,
            form=self.form, construction=self.construction, item=f"Figure {self.figure}", paper=self.paper,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Aim:
    """What we aim at: a median that is at least, or at most, so much."""

    words: str
    limit: float
    values: Callable[[Found], Sequence[float]]
    at_least: bool = True
    form: Form = factor

    def judge(self, found: Found) -> Goal:
        """How much of it is reached."""
        values = self.values(found)
        middle = spread(values).median
        reached = middle / self.limit if self.at_least else self.limit / middle
        target = f"{'>=' if self.at_least else '<='} {self.form(self.limit)}"
        return Goal(self.words, target, _with_quartiles(values, self.form), reached)


def _with_quartiles(values: Sequence[float], form: Form) -> str:
    told = spread(values)
    ends = [form(told.q1), form(told.q3)]
    return form(told.median) + (f" [{ends[0]} .. {ends[1]}]" if ends[0] != ends[1] else "")


def judge(rows: Iterable[Stated | Aim | Claim], charts: Sequence[JoinChart]) -> Iterator[Claim | Goal]:
    """All rows, from these charts; a claim among them is one that nothing is measured for."""
    for row in rows:
        yield row if isinstance(row, Claim) else row.judge(lambda figure, name: find(charts, figure, name))
