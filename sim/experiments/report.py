"""`report.md` and `report.html`: goals, and each figure with the paper's claims and our results.

Every verdict is computed. The page is made from the text of `report.md`, so the two say the same; it needs no other
file and nothing from the network.
"""

from __future__ import annotations

import itertools
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt

from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.goals import Goal, summary
from hullcast.sim.output.text import markdown
from hullcast.sim.spark.storage import Place


def glossary(words: Mapping[str, str]) -> str:
    """The words of a report, for readers who have seen nothing else."""
    return markdown([["word", "meaning"], *([f"**{word}**", meaning] for word, meaning in words.items())])


def write_reports(folder: Path, text: str, sections: Sequence[Section]) -> None:
    """Write the text as `report.md` and as `report.html`."""
    pictures = {path.name: path.read_bytes() for section in sections for path in section.pictures.values()}
    Place(folder / "report.html").write_text(page(text, pictures))
    Place(folder / "report.md").write_text(text)


def write_report(
    begin: Sequence[str], sections: Sequence[Section], goals: Sequence[str], left_out: Sequence[str], cited: str
) -> str:
    """The text of the report: the paper's own beginning, its goals, what is left out, and a part for each section."""
    parts = [*begin, *(["## Goals", *goals] if goals else [])]
    if left_out:
        parts += ["## Left out", *(f"- {why}" for why in left_out)]
    for section in sections:
        parts += _section(section, cited)
    return "\n\n".join(_joined(parts)) + "\n"


def goals_text(goals: Sequence[Goal], effort: Sequence[str] = ()) -> list[str]:
    """In sentences and in a table, a column for each place; the aims of `effort`, which have no place, below it."""
    placed = [goal for goal in goals if goal.aim not in effort]
    columns = list(dict.fromkeys(goal.where for goal in placed))
    rows = [["goal", "target", *columns]]
    for aim in dict.fromkeys(goal.aim for goal in placed):
        mine = {goal.where: goal for goal in placed if goal.aim == aim}
        cells = [_marked(mine[at].measured, mine[at].passed, mine[at].given) if at in mine else "" for at in columns]
        rows.append([aim, next(iter(mine.values())).target, *cells])
    rest = [
        f"{goal.name} {_marked(goal.measured, goal.passed, given=False)} (target {goal.target})"
        for goal in goals
        if goal.aim in effort
    ]
    told = ["In brackets: the worst and the best draw."] if any(goal.draws for goal in goals) else []
    return [summary(goals), markdown(rows), *(["; ".join(rest) + "."] if rest else []), *told]


def _marked(text: str, good: bool, given: bool) -> str:
    return f"*{text}*" if given else text if good else f"**{text}**"


def _section(section: Section, cited: str) -> list[str]:
    parts = [f"## {section.title}", section.workload]
    parts += [f"{section.cited or cited}: {section.paper}"] if section.paper else []
    parts += [f"Ours: {section.told}."] if section.claims else []
    parts += [f"![{alt}]({path.name})" for alt, path in section.pictures.items()]
    parts += [_statements(section.placed)] if section.claims else []
    parts += _reasons(section.claims)
    parts += [markdown(figures) for figures in section.figures]
    parts += [f"- {note}" for note in section.notes]
    if section.tables:
        parts.append("Table: " + ", ".join(f"`{path.name}`" for path in section.tables))
    return parts


def _statements(claims: Sequence[Claim]) -> str:
    """A row for each statement, a column for each subject; where there are several workloads they share a cell."""
    columns = list(dict.fromkeys(claim.subject for claim in claims))
    workloads = list(dict.fromkeys(claim.workload for claim in claims))
    told = [name for name in ("item", "paper") if any(getattr(claim, name) for claim in claims)]
    if columns == [""]:
        verdicts = [[claim.statement, *_listed([claim], told), claim.ours, claim.verdict] for claim in claims]
        return markdown([["statement", *told, "ours", "verdict"], *verdicts])
    rows = [["statement" if workloads == [""] else f"statement ({' / '.join(workloads)})", *told, *columns]]
    for statement in dict.fromkeys(claim.statement for claim in claims):
        mine = [claim for claim in claims if claim.statement == statement]
        cells = [" / ".join(_cell(claim) for claim in mine if claim.subject == column) for column in columns]
        rows.append([statement, *_listed(mine, told), *cells])
    return markdown(rows)


def _listed(claims: Sequence[Claim], names: Sequence[str]) -> list[str]:
    """What these claims have under each of the names, each once."""
    return [", ".join(dict.fromkeys(filter(None, (getattr(claim, name) for claim in claims)))) for name in names]


def _cell(claim: Claim) -> str:
    """What was found, marked; where draws disagree, in how many it holds."""
    held, of = claim.draws or (1, 1)
    split = f" ({held} of {of})" if 0 < held < of else ""
    return _marked(claim.ours, claim.holds or not claim.counted, claim.given) + split


def _reasons(claims: Sequence[Claim]) -> list[str]:
    """Why statements do not hold, cannot be judged, or could not but hold: an item each, subjects with reasons."""
    placed = [claim for claim in claims if claim.subject]
    found = []
    for statement in dict.fromkeys(claim.statement for claim in placed):
        mine = [claim for claim in placed if claim.statement == statement]
        given = [claim for claim in mine if claim.given]
        if given:
            found.append(f"- By construction: *{statement}* ({_who(given)}): {given[0].construction}.")
        unknown = [claim for claim in mine if claim.unknown]
        if unknown:
            found.append(f"- Not measurable here: *{statement}* ({_who(unknown)}): {unknown[0].unknown}.")
        lost = [claim for claim in mine if claim.incomparable]
        if lost:
            found.append(f"- Not comparable: *{statement}* ({_who(lost)}): {lost[0].incomparable}.")
        failing = [claim for claim in mine if not claim.holds and claim.counted]
        if failing:
            told = "Holds in some draws only" if all(_in_some(claim) for claim in failing) else "Does not hold"
            found.append(f"- {told}: *{statement}*, because " + "; ".join(_because(failing)) + ".")
    return found


def _in_some(claim: Claim) -> bool:
    return claim.draws is not None and claim.draws[0] > 0


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


def _joined(parts: Iterable[str]) -> list[str]:
    """List items that follow one another belong to one list."""
    found: list[str] = []
    for part in parts:
        if part.startswith("- ") and found and found[-1].startswith("- "):
            found[-1] += "\n" + part
        else:
            found.append(part)
    return found


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd; padding-bottom: .3rem; }
img { max-width: 100%; height: auto; }
.table { overflow-x: auto; margin: 1rem 0; } table { border-collapse: collapse; font-size: .88rem; }
th, td { border: 1px solid #ddd; padding: .3rem .55rem; text-align: left; vertical-align: top; }
th { background: #f5f5f5; } td:has(a) { overflow-wrap: anywhere; min-width: 12rem; }
code { background: #f5f5f5; padding: 0 .2rem; }
"""


def anchor(title: str) -> str:
    """What a link to a heading names, here and where Markdown is shown."""
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))


def page(text: str, pictures: Mapping[str, bytes], style: str = "") -> str:
    """A report's Markdown as one HTML page; `pictures` are PNG files by the names that the text has for them, `style`
    is what it looks like besides."""
    markdown_it = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown_it.parse(text)
    for token, inside in itertools.pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", anchor(inside.content))
    for token in tokens:
        for child in token.children or ():
            if child.type == "image":
                content = pictures[str(child.attrs["src"])]
                child.attrs["src"] = f"data:image/png;base64,{b64encode(content).decode()}"
    body = markdown_it.renderer.render(tokens, markdown_it.options, {})
    body = body.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
    title = escape(text.partition("\n")[0].lstrip("# "))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{_STYLE}{style}</style>\n</head>\n'
        f"<body>\n{body}</body>\n</html>\n"
    )
