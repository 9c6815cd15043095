"""`report.md`: the goals, then each figure with the thesis's claim and ours side by side. Every verdict is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.experiments.goals import TrafficGoal, told

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sim.experiments.claims import Claim
    from sim.experiments.section import Section
    from sim.experiments.settings import FigureSettings


#: Goals of a whole run, not of a placement.
EFFORT = ("time", "memory")


def write_report(
    settings: FigureSettings,
    sections: Sequence[Section],
    goals: Sequence[TrafficGoal],
    left_out: Sequence[str],
    minutes: float,
) -> str:
    """The text of the report."""
    network = settings.network
    form = (
        "the thesis's sizes" if settings.full else "the quick form: smaller in everything, so judge shapes, not figures"
    )
    parts = [
        "# What a workload costs on the wire",
        f"{network.nodes:,} nodes (INET), {network.brokers:,} brokers, trees with fanout {network.fanout}, seed "
        f"{network.seed}; {form}. All replays together took {minutes:.1f} minutes. Bytes are those of frames as "
        "`network` encodes them, between brokers, per event, ignorable events included. **Bold** is what misses its "
        "goal or does not hold, *italic* what holds by construction and is not counted. How it is simulated and how to "
        "read this: sim/SIMULATION.md.",
        *_goals(goals),
    ]
    if left_out:
        parts += ["## Left out", *(f"- {why}" for why in left_out)]
    for section in sections:
        parts += _section(section)
    return "\n\n".join(_joined(parts)) + "\n"


def _goals(goals: Sequence[TrafficGoal]) -> list[str]:
    if not goals:
        return ["## Goals", "None of the runs here can judge them: Figure 5.10 was not asked for."]
    placed = [goal for goal in goals if goal.aim not in EFFORT]
    columns = list(dict.fromkeys(goal.where for goal in placed))
    rows = [["goal", "target", *columns]]
    for aim in dict.fromkeys(goal.aim for goal in placed):
        mine = {goal.where: goal for goal in placed if goal.aim == aim}
        cells = [_marked(mine[at].measured, mine[at].passed, mine[at].given) if at in mine else "" for at in columns]
        rows.append([aim, next(iter(mine.values())).target, *cells])
    effort = [
        f"{goal.name} {_marked(goal.measured, goal.passed, given=False)} (target {goal.target})"
        for goal in goals
        if goal.aim in EFFORT
    ]
    return ["## Goals", told(goals), table(rows), *(["; ".join(effort) + "."] if effort else [])]


def _marked(text: str, good: bool, given: bool) -> str:
    return f"*{text}*" if given else text if good else f"**{text}**"


def _section(section: Section) -> list[str]:
    parts = [f"## {section.title}", section.workload, f"Thesis: {section.thesis}", f"Ours: {section.told}."]
    parts += [f"![{picture.alt}]({picture.path.name})" for picture in section.pictures]
    parts.append(_statements(section.claims))
    parts += _reasons(section.claims)
    parts += [table(figures) for figures in section.figures]
    parts += [f"- {note}" for note in section.notes]
    if section.tables:
        parts.append("Table: " + ", ".join(f"`{path.name}`" for path in section.tables))
    return parts


def _statements(claims: Sequence[Claim]) -> str:
    """A row for each statement, a column for each placement; where there are several workloads they share a cell."""
    columns = list(dict.fromkeys(claim.subject for claim in claims))
    workloads = list(dict.fromkeys(claim.workload for claim in claims))
    if columns == [""]:
        rows = [["statement", "ours", "verdict"]]
        return table(rows + [[claim.statement, claim.ours, claim.verdict] for claim in claims])
    rows = [["statement" if workloads == [""] else f"statement ({' / '.join(workloads)})", *columns]]
    for statement in dict.fromkeys(claim.statement for claim in claims):
        mine = [claim for claim in claims if claim.statement == statement]
        cells = [
            " / ".join(_marked(claim.ours, claim.holds, claim.given) for claim in mine if claim.subject == column)
            for column in columns
        ]
        rows.append([statement, *cells])
    return table(rows)


def _reasons(claims: Sequence[Claim]) -> list[str]:
    """Why statements do not hold, or could not but hold: an item for each, the placements with their reasons."""
    placed = [claim for claim in claims if claim.subject]
    found = []
    for statement in dict.fromkeys(claim.statement for claim in placed):
        mine = [claim for claim in placed if claim.statement == statement]
        given = [claim for claim in mine if claim.given]
        if given:
            found.append(f"- By construction: *{statement}* ({_who(given)}): {given[0].construction}.")
        failing = [claim for claim in mine if not claim.holds]
        if failing:
            found.append(f"- Does not hold: *{statement}*, because " + "; ".join(_because(failing)) + ".")
    return found


def _because(failing: Sequence[Claim]) -> list[str]:
    """One clause for each reason, with what it comes to; of several workloads the first that fails speaks for all."""
    clauses: dict[tuple[str, str], list[str]] = {}
    for subject in dict.fromkeys(claim.subject for claim in failing):
        first = next(claim for claim in failing if claim.subject == subject)
        clauses.setdefault((first.because, first.workload), []).append(f"{subject} {first.detail}".rstrip())
    return [
        f"{because} ({f'{workload}: ' if workload else ''}{', '.join(details)})"
        for (because, workload), details in clauses.items()
    ]


def _who(claims: Sequence[Claim]) -> str:
    return ", ".join(dict.fromkeys(claim.subject for claim in claims))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Markdown of a table; the first row names the columns."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _joined(parts: Iterable[str]) -> list[str]:
    """List items that follow one another belong to one list."""
    found: list[str] = []
    for part in parts:
        if part.startswith("- ") and found and found[-1].startswith("- "):
            found[-1] += "\n" + part
        else:
            found.append(part)
    return found
