"""The report of a benchmark: in the terminal, as JSON, as pictures, and as a page that holds all of it."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.frame.benchmark import DISTURBED, BenchReport, BenchSection, Shown
from hullcast.sim.output.charts import DPI, pyplot
from hullcast.sim.output.goals import claims_table, goals_table

log = logging.getLogger(__name__)

FORMAT = 3  # of the JSON file; raised when a reader would have to change


# --- in the terminal -----------------------------------------------------------------------------------------------


def show(report: BenchReport, console: Console) -> None:
    """Print where and how it was measured, the sections, and what is made of them."""
    for shown in (_where(report), *_told(report)):
        if isinstance(shown, str):
            console.print(shown, style="dim")
            continue
        if isinstance(shown, Table):
            console.print()
        console.print(shown, soft_wrap=isinstance(shown, Text))


def _where(report: BenchReport) -> str:
    here, head = report.machine, report.benchmark.head(report.settings)
    where = f"{here['cpu']}, {here['cores']} cores, load {here['load'][0]} at the beginning"
    return f"\n{where}; Python {here['python']}, numba {here['numba']}. {head}"


def _told(report: BenchReport) -> Iterator[Shown]:
    if report.machine["others_cores"] > DISTURBED:
        yield Text(
            f"Before a section began, other programs used {report.machine['others_cores']:.2f} of "
            f"{report.machine['cores']} cores: times below are theirs as much as ours. Repeat this on an idle machine.",
            style="yellow",
        )
    for section in _measured(report):
        yield from section.tables(report.found[section.name])
    yield from _judged(report)


def _judged(report: BenchReport) -> Iterator[Shown]:
    if report.claims:
        yield claims_table(report.claims)
    if report.goals:
        yield goals_table(report.goals)
    for why in dict.fromkeys(goal.unjudged for goal in report.goals if goal.unjudged):
        yield Text(f"not judged: {why}", style="yellow")


def _measured(report: BenchReport) -> list[BenchSection[Any, Any]]:
    return [section for section in report.benchmark.sections if section.name in report.found]


# --- files ---------------------------------------------------------------------------------------------------------


def to_json(report: BenchReport) -> dict[str, Any]:
    """As plain values: None for a section that was not asked for. Of a benchmark with one section its figures."""
    sections = [section.name for section in report.benchmark.sections]
    found = {name: _plain(report.found.get(name)) for name in sections}
    if len(sections) == 1 and isinstance(found[sections[0]], dict):
        found = found[sections[0]]
    here = {"machine": dict(report.machine), "settings": asdict(report.settings)}
    claims = {"claims": [claim.plain() for claim in report.claims]} if report.claims else {}
    return {"format": FORMAT, **here, **found, **claims, "goals": [goal.plain() for goal in report.goals]}


def _plain(found: Any) -> Any:
    if isinstance(found, tuple | list):
        return [_plain(one) for one in found]
    return asdict(found) if is_dataclass(found) and not isinstance(found, type) else found


def write_json(content: Mapping[str, Any], path: Path) -> Path:
    """Write it to a file; UsageError where that cannot be."""
    return _write(json.dumps(content, indent=2) + "\n", path)


def _write(text: str, path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    return path


def draw(report: BenchReport, folder: Path, stem: str = "") -> list[Path]:
    """Write the pictures that the report can fill; their paths. One that has the name of the benchmark gets that of its
    file instead (`stem`), so that a run does not overwrite the picture of another."""
    return [path for section in _measured(report) for path in _drawn(report, section, folder, stem)]


def _drawn(report: BenchReport, section: BenchSection[Any, Any], folder: Path, stem: str = "") -> list[Path]:
    found, own = report.found[section.name], {report.benchmark.name: stem} if stem else {}
    return [picture(found, folder / f"{own.get(name, name)}.png") for name, picture in section.pictures.items()]


def check_pictures() -> None:
    """UsageError without what draws: better said before measuring than after."""
    pyplot()


# --- the page ------------------------------------------------------------------------------------------------------

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #333; max-width: 72em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0; font-size: 14px }
caption { text-align: left; font-weight: bold; padding-bottom: 0.3em }
th, td { padding: 0.15em 0.8em 0.15em 0; text-align: right; vertical-align: bottom; font-variant-numeric: tabular-nums }
th { border-bottom: 1px solid #8a8a8a; font-weight: normal; color: #666; white-space: pre-line }
th:first-child, td:first-child { text-align: left }
.dim { color: #777 } .green { color: #007a58 } .red { color: #b33c00 } .yellow { color: #8a6d00 }
.bold { font-weight: bold }
img { max-width: 100%; display: block; margin: 1em 0 } h2 { margin-top: 2.5em }
"""


def write_page(reports: Sequence[BenchReport], left_out: Mapping[str, str], path: Path) -> Path:
    """One HTML page of all these, with their pictures in it; `left_out` says of others why they are not there."""
    parts = [f"<!DOCTYPE html><meta charset='utf-8'><title>hullcast bench</title><style>{_STYLE}</style>"]
    parts.append("<h1>hullcast bench</h1><ul>")
    parts += [_line(report) for report in reports]
    parts += [f"<li>{escape(name)}: left out: {escape(why)}" for name, why in left_out.items()]
    parts.append("</ul>")
    with TemporaryDirectory(prefix="hullcast-bench-") as folder:
        for report in reports:
            parts += _page_of(report, Path(folder))
    return _write("\n".join(parts) + "\n", path)


def _line(report: BenchReport) -> str:
    name, goals = report.benchmark.name, [goal for goal in report.goals if not goal.unjudged]
    line = f"<li><a href='#{name}'>{name}</a>: {escape(report.benchmark.about)}"
    told = f"{sum(goal.passed for goal in goals)} of {len(goals)} goals reached"
    told += f", {len(report.goals) - len(goals)} not judged" if len(goals) < len(report.goals) else ""
    return f"{line} ({told})" if report.goals else line


def _page_of(report: BenchReport, folder: Path) -> Iterator[str]:
    yield f"<h2 id='{report.benchmark.name}'>{report.benchmark.name}</h2><p>{escape(report.benchmark.description)}</p>"
    yield _in_html(_where(report))
    for section in _measured(report):
        if len(report.benchmark.sections) > 1:
            yield f"<h3>{escape(section.name)}</h3><p>{escape(section.about)}</p>"
        yield from map(_in_html, section.tables(report.found[section.name]))
        try:
            yield from map(_image, _drawn(report, section, folder))
        except Exception as error:  # a mistake in one picture: all else that was measured is still worth a page
            log.exception("picture not drawn", extra={"benchmark": report.benchmark.name, "section": section.name})
            yield f"<p class='red'>picture not drawn: {escape(repr(error))}</p>"
    yield from map(_in_html, _judged(report))


def _image(picture: Path) -> str:
    content = picture.read_bytes()
    width = int.from_bytes(content[16:20]) * 96 // DPI  # in pixels of a page; a PNG says its own in its first bytes
    return f"<img alt='{picture.stem}' width='{width}' src='data:image/png;base64,{b64encode(content).decode()}'>"


def _in_html(shown: Shown) -> str:
    if isinstance(shown, str):
        return f"<p class='dim'>{escape(shown.strip())}</p>"
    if isinstance(shown, Text):
        return f"<p class='{shown.style}'>{escape(shown.plain)}</p>"
    heads = "".join(f"<th>{escape(str(column.header).strip())}</th>" for column in shown.columns)
    rows = zip(*(column.cells for column in shown.columns), strict=True)
    lines = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><caption>{escape(str(shown.title))}</caption><tr>{heads}</tr>\n{lines}\n</table>"


def _cell(cell: Any) -> str:
    text = Text.from_markup(str(cell))
    style = " ".join(dict.fromkeys(str(span.style) for span in text.spans))
    return f"<td class='{style}'>{escape(text.plain)}</td>" if style else f"<td>{escape(text.plain)}</td>"
