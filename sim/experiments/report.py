"""`report.md`: the goals, then each figure with the thesis's claim and ours side by side. Every verdict is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from sim.bench.goals import Goal
    from sim.experiments.section import Section
    from sim.experiments.settings import FigureSettings


def write_report(
    settings: FigureSettings,
    sections: Sequence[Section],
    goals: Sequence[Goal],
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
        "`network` encodes them, between brokers, per event, ignorable events included, unless said otherwise. How "
        "it is simulated and how to read this: sim/SIMULATION.md.",
        *_goals(goals),
    ]
    if left_out:
        parts += ["## Left out", *(f"- {why}" for why in left_out)]
    for section in sections:
        parts += _section(section)
    return "\n\n".join(_joined(parts)) + "\n"


def _goals(goals: Sequence[Goal]) -> list[str]:
    if not goals:
        return ["## Goals", "None of the runs here can judge them: Figure 5.10 was not asked for."]
    rows = [["goal", "target", "measured", ""]]
    rows += [[goal.name, goal.target, goal.measured, "reached" if goal.passed else "**MISSED**"] for goal in goals]
    missed = [goal for goal in goals if not goal.passed]
    told = f"{len(goals) - len(missed)} of {len(goals)} goals are reached."
    if missed:
        told += " Missed: " + "; ".join(f"{goal.name} ({goal.measured}, target {goal.target})" for goal in missed) + "."
    return ["## Goals", told, table(rows)]


def _section(section: Section) -> list[str]:
    hold = sum(claim.holds for claim in section.claims)
    parts = [f"## {section.title}", section.workload, f"Thesis: {section.thesis}"]
    parts.append(f"Ours: {hold} of {len(section.claims)} statements hold.{_failures(section)}")
    parts += [f"![{section.title}]({picture.name})" for picture in section.pictures]
    rows = [["of", "thesis", "ours", "verdict"]]
    rows += [[claim.subject, claim.thesis, claim.ours, claim.verdict] for claim in section.claims]
    parts.append(table(rows))
    if section.figures:
        parts.append(table(section.figures))
    parts += [f"- {note}" for note in section.notes]
    if section.tables:
        parts.append("Table: " + ", ".join(f"`{path.name}`" for path in section.tables))
    return parts


def _failures(section: Section) -> str:
    subjects: dict[str, list[str]] = {}
    for claim in section.claims:
        if not claim.holds:
            subjects.setdefault(claim.thesis, []).append(claim.subject)
    if not subjects:
        return ""
    count = {thesis: sum(claim.thesis == thesis for claim in section.claims) for thesis in subjects}
    told = [f"*{thesis}* ({len(of)} of {count[thesis]}: {_ends(of)})" for thesis, of in subjects.items()]
    return " Not so: " + "; ".join(told) + "."


def _ends(subjects: Sequence[str]) -> str:
    """Which placements: a subject ends with one, after the workload."""
    return ", ".join(dict.fromkeys(subject.rsplit(", ", 1)[-1] for subject in subjects))


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


def names(paths: Iterable[Path]) -> str:
    """Files, for a sentence."""
    return ", ".join(path.name for path in paths)
