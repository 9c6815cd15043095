"""What we aim at, and whether a run reached it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table

from hullcast.sim.output.claims import Claim
from hullcast.sim.output.text import plain_table


@dataclass(frozen=True, slots=True)
class Goal:
    """One aim, at one place or for all. `share` is how much of it was reached: 1 or more is a pass."""

    aim: str
    target: str
    measured: str
    share: float
    where: str = ""  # such as workload and placement
    construction: str = ""  # why it could not be missed: what holds for that reason is not counted as reached
    draws: tuple[int, int] | None = None  # in how many draws it is reached, and of how many; None: there is one
    exact: bool = False  # a count or a fact: other programs on the machine change nothing about it
    unjudged: str = ""  # why there is no verdict

    @classmethod
    def fact(cls, aim: str, target: str, measured: str, holds: bool) -> Goal:
        """Something that holds or does not, on any machine."""
        return cls(aim, target, measured, float(holds), exact=True)

    @property
    def name(self) -> str:
        """The aim, with the place where there are several."""
        return f"{self.where}: {self.aim}" if self.where else self.aim

    @property
    def passed(self) -> bool:
        """Whether it was reached."""
        return self.share >= 1.0

    @property
    def given(self) -> bool:
        """Whether it is reached, but could not be missed."""
        return self.passed and bool(self.construction)

    def plain(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        plain = {name: getattr(self, name) for name in ("name", "target", "measured", "share", "passed")}
        return plain | ({"passed": None} if self.unjudged else {})


def goals_over_draws(draws: Sequence[Sequence[Goal]]) -> list[Goal]:
    """One goal of each aim, from the same aims judged for each draw: reached if it is in all of them."""
    return [same[0] if len(same) == 1 else _together(same) for same in zip(*draws, strict=True)]


def _together(same: Sequence[Goal]) -> Goal:
    ordered = sorted(same, key=lambda goal: goal.share)
    worst, middle = ordered[0], ordered[(len(ordered) - 1) // 2]
    # Of the ends the figure alone, without what stands beside it in brackets.
    ends = list(dict.fromkeys(goal.measured.partition(" (")[0] for goal in (ordered[0], ordered[-1])))
    measured = middle.measured + (f" [{ends[0]} .. {ends[1]}]" if len(ends) > 1 else "")
    reached = (sum(goal.passed for goal in same), len(same))
    return replace(middle, measured=measured, share=worst.share, construction=worst.construction, draws=reached)


def share_under(value: float, limit: float) -> float:
    """The share reached, of an aim to stay strictly below a limit."""
    return limit / value if value > 0 and value != limit else (0.999 if value == limit else float("inf"))


def goals_table(goals: Sequence[Goal]) -> Table:
    """The goals for the terminal, each with its verdict."""
    table = plain_table("goals", "goal", "target", "measured", "", "share")
    table.columns[0].no_wrap = False  # names are long: rather two lines than no verdict
    for goal in goals:
        verdict = "[yellow]not judged[/]" if goal.unjudged else "[green]PASS[/]" if goal.passed else "[red]MISS[/]"
        table.add_row(goal.name, goal.target, goal.measured, verdict, f"{goal.share:.0%}")
    return table


def claims_table(claims: Sequence[Claim]) -> Table:
    """What a paper says, beside ours, for the terminal."""
    table = plain_table("claims of Xie 2007", "claim", "figure", "Xie 2007", "ours", "")
    for column in table.columns[:4]:
        column.no_wrap = False
    for claim in claims:
        if not claim.counted:
            told = f"[yellow]{'by construction' if claim.given else 'not judged'}[/]"
        else:
            told = "[green]AS THERE[/]" if claim.holds else "[red]NOT SO[/]"
        table.add_row(claim.statement, claim.item, claim.paper, claim.ours, told)
    return table


def summary(goals: Sequence[Goal]) -> str:
    """How many are reached, which are missed and which could not be, in few sentences."""
    counted = [goal for goal in goals if not goal.given]
    of = max((goal.draws[1] for goal in goals if goal.draws), default=1)
    everywhere = f" in all {of} draws" if of > 1 else ""
    parts = [f"{sum(goal.passed for goal in counted)} of {len(counted)} goals are reached{everywhere}."]
    missed = [goal for goal in counted if not goal.passed]
    if missed:
        aims = dict.fromkeys(goal.aim for goal in missed)
        parts.append("Missed: " + "; ".join(_grouped(aim, missed, goals) for aim in aims) + ".")
    reasons: dict[str, list[Goal]] = {}
    for goal in goals:
        if goal.given:
            reasons.setdefault(goal.construction, []).append(goal)
    if reasons:
        told = (
            f"{' and '.join(dict.fromkeys(goal.aim for goal in of))} ({len(of)}: {why})" for why, of in reasons.items()
        )
        parts.append("By construction, and so not counted: " + "; ".join(told) + ".")
    return " ".join(parts)


def _grouped(aim: str, missed: Sequence[Goal], goals: Sequence[Goal]) -> str:
    """`below S-UN, 100k subscriptions: 31x to 56x instead of >= 100x, all 6`."""
    mine = sorted((goal for goal in missed if goal.aim == aim), key=lambda goal: goal.share)
    ends = list(dict.fromkeys((mine[0].measured, mine[-1].measured)))
    asked = sum(goal.aim == aim for goal in goals)
    who = f"all {asked}" if len(mine) == asked else ", ".join(goal.where for goal in mine)
    some = [goal.draws for goal in mine if goal.draws is not None and goal.draws[0]]
    reached = f" (reached in {', '.join(f'{held} of {of}' for held, of in some)} draws)" if some else ""
    return f"{aim}: {' to '.join(ends)} instead of {mine[0].target}" + (f", {who}" if asked > 1 else "") + reached
