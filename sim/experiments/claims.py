"""What a paper says of a figure, what we find, and whether the one agrees with the other: judged from data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


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

    @property
    def counted(self) -> bool:
        """Whether the verdict says something about the world."""
        return not self.unknown and not self.given

    @property
    def given(self) -> bool:
        """Whether it holds by construction."""
        return self.holds and not self.unknown and bool(self.construction)

    @property
    def verdict(self) -> str:
        """In words."""
        if self.unknown:
            return f"not measurable here: {self.unknown}"
        if self.given:
            return f"by construction: {self.construction}"
        if self.holds:
            return "holds"
        detail = f" ({self.detail})" if self.detail else ""
        return f"does not hold, because {self.because}{detail}" if self.because else "does not hold"


@dataclass(frozen=True, slots=True)
class Section:
    """One figure of the report: its tables and pictures on disk, figures side by side, and its claims."""

    name: str
    title: str
    workload: str  # what was replayed, in a sentence
    paper: str  # what the paper says, in a sentence
    claims: list[Claim]
    tables: list[Path] = field(default_factory=list)
    pictures: dict[str, Path] = field(default_factory=dict)  # by what they show, for readers who cannot see them
    figures: list[list[list[str]]] = field(default_factory=list)  # tables for the reader; first rows name the columns
    notes: list[str] = field(default_factory=list)

    @property
    def told(self) -> str:
        """How many statements hold, in a clause; what could not be otherwise is not counted."""
        counted = [claim.holds for claim in self.claims if claim.counted]
        given = sum(claim.given for claim in self.claims)
        unknown = sum(bool(claim.unknown) for claim in self.claims)
        parts = [f"{sum(counted)} of {len(counted)} statements hold"] if counted else []
        parts += [f"{given} more by construction"] if given else []
        parts += [f"{unknown} not measurable here"] if unknown else []
        return "; ".join(parts)
