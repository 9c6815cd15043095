"""The page: verdict counts of each source, and a row for each of its items, with one below it for each statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import relpath
from pathlib import Path

from hullcast import sim
from hullcast.sim.experiments.papers.items import PaperItem, PaperSource
from hullcast.sim.experiments.report import anchor
from hullcast.sim.output.claims import KINDS, Claim, Section
from hullcast.sim.output.text import markdown

#: Verdicts on items about which nothing is measured, or was.
REFUTED, TESTED, DRAWN, NOTHING, MISSING = (
    "does not hold as stated", "checked by a test", "drawn", "nothing to measure", "not measured in this run"
)  # fmt: skip
OF_ITEMS = (REFUTED, TESTED, DRAWN, NOTHING, MISSING)
#: Of the page: room for words.
STYLE = "body { max-width: 90rem; } td:nth-child(2):nth-last-child(4) { min-width: 18rem; }"
_CODE = Path(sim.__file__).parents[1]


@dataclass(frozen=True, slots=True)
class PapersFound:
    """What a run found: sections by the name of the run, and why runs are missing."""

    sections: Mapping[str, Sequence[Section]]
    failed: Mapping[str, str] = field(default_factory=dict)

    def of(self, source: PaperSource) -> list[Section]:
        """All sections about a source."""
        return [each for sections in self.sections.values() for each in sections if each.cited == source.cited]

    def claims(self, source: PaperSource, item: PaperItem) -> list[Claim]:
        """What is judged of an item. Statements of our own, without words of the paper, are in the reports only."""
        return [
            claim for section in self.of(source) for claim in section.placed if claim.paper and claim.item == item.name
        ]

    def shown(self, source: PaperSource, item: PaperItem) -> list[Section]:
        """The sections that show an item."""
        return [
            section
            for section in self.of(source)
            if item.name in section.items or any(claim.item == item.name for claim in section.placed)
        ]

    def strays(self, sources: Iterable[PaperSource]) -> list[str]:
        """Items of claims that no registry has."""
        known = {source.cited: {item.name for item in source.items} for source in sources}
        return sorted(
            {
                f"{section.cited}: {claim.item}"
                for sections in self.sections.values()
                for section in sections
                for claim in section.placed
                if claim.item and claim.item not in known.get(section.cited, {claim.item})
            }
        )


def verdicts(source: PaperSource, found: PapersFound) -> Counter[str]:
    """How many statements, or items about which there are none, have which kind of verdict."""
    counts: Counter[str] = Counter()
    for item in source.items:
        claims = found.claims(source, item)
        counts.update([claim.kind for claim in claims] or [_unjudged(item, found.shown(source, item))])
    return counts


def papers_text(sources: Sequence[PaperSource], found: PapersFound, out: Path, begin: Sequence[str]) -> str:
    """The page in Markdown; links are relative to the folder it is in."""
    kinds = (*KINDS, *OF_ITEMS)
    counts = {source: verdicts(source, found) for source in sources}
    table = [["source", "items", *kinds]]
    for source, of in counts.items():
        table.append(
            [f"[{source.cited}](#{anchor(source.cited)})", str(len(source.items)), *(str(of[kind]) for kind in kinds)]
        )
    parts = [*begin, "## Verdicts", markdown(table)]
    parts += [f"- **{name} failed**: {why} (`{name}-failure.txt`)" for name, why in found.failed.items()]
    parts += [f"- **Not in the registry**: {stray}" for stray in found.strays(sources)]
    for source in sources:
        rows = [row for item in source.items for row in _rows(source, item, found, out)]
        head = ["item", "the paper", "ours", "verdict", "see"]
        parts += [f"## {source.cited}", f"{source.title}.", markdown([head, *rows])]
    return "\n\n".join(parts) + "\n"


def _rows(source: PaperSource, item: PaperItem, found: PapersFound, out: Path) -> list[list[str]]:
    claims, shown = found.claims(source, item), found.shown(source, item)
    see = ", ".join(dict.fromkeys([*_of_run(shown, out), *_of_code(item, out)]))
    if not claims:
        verdict, ours = _unjudged(item, shown), item.fails or item.why
        if verdict == MISSING:
            ours = item.needs or "; ".join(found.failed[name] for name, _ in item.runs if name in found.failed)
        return [[f"**{item.name}**", item.says, ours, f"**{verdict}**" if verdict == REFUTED else verdict, see]]
    counts = Counter(claim.kind for claim in claims)
    told = ", ".join(f"{kind}: {counts[kind]}" for kind in KINDS if counts[kind]) if len(claims) > 1 else ""
    rows = [[f"**{item.name}**", item.says, item.why, told, see]]
    for said, statement in dict.fromkeys((claim.paper, claim.statement) for claim in claims):
        mine = [claim for claim in claims if (claim.paper, claim.statement) == (said, statement)]
        rows.append(["", f"{statement} (paper: {said})", _listed(mine), _verdict(mine), ""])
    return rows


def _unjudged(item: PaperItem, shown: Sequence[Section]) -> str:
    """The verdict on an item without statements."""
    if item.fails:
        return REFUTED
    if item.tests:
        return TESTED
    if item.runs:
        return DRAWN if shown else MISSING
    return NOTHING


def _label(claim: Claim) -> str:
    return ", ".join(filter(None, (claim.subject, claim.workload)))


def _listed(claims: Sequence[Claim]) -> str:
    return "; ".join(": ".join(filter(None, (_label(claim), claim.ours))) for claim in claims)


def _verdict(claims: Sequence[Claim]) -> str:
    """What these have in common is said once."""
    alike: dict[str, list[Claim]] = {}
    for claim in claims:
        alike.setdefault(replace(claim, detail="").verdict if len(claims) > 1 else claim.verdict, []).append(claim)
    told = []
    for verdict, mine in alike.items():
        kind = mine[0].kind
        marked = f"*{verdict}*" if kind == KINDS[3] else f"**{verdict}**" if kind in KINDS[1:3] else verdict
        told.append(marked if len(alike) == 1 else f"{'; '.join(map(_label, mine))}: {marked}")
    return ". ".join(told)


def _of_run(sections: Iterable[Section], out: Path) -> list[str]:
    """Links to pictures, and to tables."""
    pictures = [path for section in sections for path in section.pictures.values()]
    tables = [path for section in sections for path in section.tables]
    return [_link(path, path.name, out) for path in (*pictures, *tables)]


def _of_code(item: PaperItem, out: Path) -> list[str]:
    told = [name.removeprefix("test_").replace("_", " ") for _, name in item.tests]  # the names of tests are sentences
    tests = [_link(_CODE / file, f"test: {name}", out) for (file, _), name in zip(item.tests, told, strict=True)]
    return tests + [_link(_CODE / file, file.rpartition("/")[2], out) for file in item.files]


def _link(path: Path, told: str, out: Path) -> str:
    """A link if the file is there: an installed package has no tests."""
    return f"[{told}]({relpath(path, out)})" if path.exists() else f"`{told}`"
