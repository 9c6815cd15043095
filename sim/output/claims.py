"""What a paper says of a figure, what we find, and whether they agree: judged from data.

Where chance has a part (which network, which workload), a statement is judged for each draw, and `over_draws` makes one
claim of these verdicts: what the middle draw shows, from where to where the draws go, and in how many it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isnan, nan
from pathlib import Path
from statistics import median
from typing import Any

from hullcast.sim.output.text import factor, number

#: Kinds of verdicts; those of the first three are findings.
KINDS = ("holds", "holds in some draws", "does not hold", "by construction", "not measurable here", "not comparable")


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement, of the paper or ours, beside what was measured."""

    subject: str  # such as the placement; empty where it is about the whole
    statement: str
    ours: str  # figures only: it stands in a cell
    holds: bool
    because: str = ""  # said only where it does not hold; the same for all subjects it is true of
    detail: str = ""  # and what it comes to for this one
    workload: str = ""  # where a section has several
    construction: str = ""  # why it could not be otherwise: what holds for that reason is not a finding
    unknown: str = ""  # why it cannot be judged
    value: float = nan  # the number that the verdict depends on: draws are ordered by it
    form: Callable[[float], str] = number  # how that number is written
    draws: tuple[int, int] | None = None  # in how many draws it holds, and of how many; None: there is one
    incomparable: str = ""  # why there is nothing to compare with: digits or data of the source are lost
    item: str = ""  # what of the source it is about, such as "Figure 4.7(i)", where a section is about several
    paper: str = ""  # the source's value, or its words

    @classmethod
    def of(
        cls, subject: str, statement: str, value: float, holds: bool, because: str = "",
        form: Callable[[float], str] = number, **more: Any,
    ) -> Claim:  # fmt: skip
        """A claim whose figure is one number."""
        return cls(subject, statement, form(value), holds, because, value=value, form=form, **more)

    @property
    def counted(self) -> bool:
        """Whether the verdict says something about the world."""
        return self.kind in KINDS[:3]

    @property
    def kind(self) -> str:
        """The verdict without its reason: one of KINDS."""
        if self.incomparable:
            return KINDS[5]
        if self.unknown:
            return KINDS[4]
        if self.given:
            return KINDS[3]
        return KINDS[0] if self.holds else KINDS[1] if self.draws and self.draws[0] else KINDS[2]

    @property
    def given(self) -> bool:
        """Whether it holds by construction."""
        return self.holds and not (self.unknown or self.incomparable) and bool(self.construction)

    def plain(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        names = ("subject", "statement", "item", "paper", "ours", "verdict")
        return {name: getattr(self, name) for name in names} | {"holds": self.holds if self.counted else None}

    @property
    def verdict(self) -> str:
        """In words."""
        if self.incomparable:
            return f"not comparable: {self.incomparable}"
        if self.unknown:
            return f"not measurable here: {self.unknown}"
        if self.given:
            return f"by construction: {self.construction}"
        held, of = self.draws or (int(self.holds), 1)
        if self.holds:
            return "holds" if of == 1 else f"holds in all {of} draws"
        told = "does not hold" if of == 1 else f"does not hold in any of {of} draws"
        if held:
            told = f"holds in {held} of {of} draws, and not in the others"
        detail = f" ({self.detail})" if self.detail else ""
        return f"{told}, because {self.because}{detail}" if self.because else told


def ratio_claim(
    subject: str, statement: str, ratio: float, holds: bool, because: str, workload: str = "", **more: Any
) -> Claim:
    """A claim whose verdict depends on how many times as much something is."""
    shown = factor(ratio)
    return Claim(subject, statement, shown, holds, because, workload=workload, value=ratio, form=factor, **more)


def over_draws(draws: Sequence[Sequence[Claim]]) -> list[Claim]:
    """One claim of each statement, from the same statements judged for each draw; it holds if it does in all draws."""
    return [same[0] if len(same) == 1 else _together(same) for same in zip(*draws, strict=True)]


def _together(same: Sequence[Claim]) -> Claim:
    first = same[0]
    about = {(claim.subject, claim.statement, claim.workload) for claim in same}
    assert len(about) == 1, f"draws are judged by the same statements in the same order, but here by {about}"
    judged = sorted((claim for claim in same if not (claim.unknown or claim.incomparable)), key=lambda each: each.value)
    if not judged:
        return first
    middle = judged[(len(judged) - 1) // 2]
    failing = [claim for claim in judged if not claim.holds]
    speaker = failing[(len(failing) - 1) // 2] if failing else middle
    ours, value = middle.ours, middle.value
    if all(claim.ours == claim.form(claim.value) for claim in judged):  # a number alone: two in the middle are averaged
        value = median(claim.value for claim in judged)
        ours = middle.form(value)
    ends = [middle.form(claim.value) for claim in (judged[0], judged[-1]) if not isnan(claim.value)]
    if len(set(ends)) > 1:
        ours += f" [{ends[0]} .. {ends[-1]}]"
    held = (len(judged) - len(failing), len(judged))
    return replace(speaker, ours=ours, holds=not failing, value=value, draws=held)


@dataclass(frozen=True, slots=True)
class Section:
    """One figure of the report: its tables and pictures on disk, figures side by side, and its claims."""

    name: str
    title: str
    workload: str  # what was run, in a sentence
    paper: str  # what the paper says, in a sentence; empty where there is none
    claims: list[Claim]
    tables: list[Path] = field(default_factory=list)
    pictures: dict[str, Path] = field(default_factory=dict)  # by what they show, for readers who cannot see them
    figures: list[list[list[str]]] = field(default_factory=list)  # tables for the reader; first rows name the columns
    notes: list[str] = field(default_factory=list)
    cited: str = ""  # the paper, where a report is about several
    items: tuple[str, ...] = ()  # what of the paper it shows; if it is one, claims that name none are about it

    def __post_init__(self) -> None:
        placed = all(claim.item for claim in self.placed if claim.paper)
        assert placed or not self.items, "what the paper says belongs to an item of it"

    @property
    def placed(self) -> list[Claim]:
        """The claims, each with what of the paper it is about."""
        alone = self.items[0] if len(self.items) == 1 else ""
        return [claim if claim.item else replace(claim, item=alone) for claim in self.claims]

    @property
    def told(self) -> str:
        """How many statements hold, in a clause; what could not be otherwise is not counted."""
        counts = Counter(claim.kind for claim in self.claims)
        counted = sum(counts[kind] for kind in KINDS[:3])
        of = max((claim.draws[1] for claim in self.claims if claim.counted and claim.draws), default=1)
        everywhere = f" in all {of} draws" if of > 1 else ""
        parts = [f"{counts[KINDS[0]]} of {counted} statements hold{everywhere}"] if counted else []
        more = {KINDS[1]: "more in some draws", KINDS[3]: "more by construction"}
        parts += [f"{counts[kind]} {more.get(kind, kind)}" for kind in (KINDS[1], *KINDS[3:]) if counts[kind]]
        return "; ".join(parts)
