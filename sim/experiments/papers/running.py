"""Run what answers the items of sources: studies, the traffic figures and the benchmark of joins; then write the page.

Each run has a folder of its own in OUT, made of steps, so that an interrupted one continues. One that fails is said on
the page, and its traceback is beside it; the others are not lost.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.frame.report import draw, to_json, write_json
from hullcast.sim.bench.joins.benchmark import JOINS
from hullcast.sim.experiments import studies
from hullcast.sim.experiments.data import RealData, collected
from hullcast.sim.experiments.figures import run_figures
from hullcast.sim.experiments.papers.items import PaperSource
from hullcast.sim.experiments.papers.page import STYLE, PapersFound, papers_text
from hullcast.sim.experiments.report import page
from hullcast.sim.experiments.run import StepProgress
from hullcast.sim.experiments.steps import RunFolder
from hullcast.sim.experiments.study import Study
from hullcast.sim.experiments.sweeping import parts_of, run_study, seeds_of
from hullcast.sim.experiments.traffic.figures import PAPER
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.spark.options import SparkOptions
from hullcast.sim.spark.session import DEFAULT
from hullcast.sim.spark.storage import Place

FIGURES, BENCH = "figures", "joins"
#: A section of the benchmark about which the thesis says nothing.
OURS = "live"
NAME = "papers"
_KEPT = [each.name for each in fields(Claim) if each.name not in ("form", "value")]


@dataclass(frozen=True, slots=True)
class PapersRun:
    """How everything is run."""

    out: Path
    quick: bool = False
    seed: int = 0
    data: Path | None = None
    options: SparkOptions = DEFAULT

    def study(self, name: str) -> Study:
        """A study, with the real data if it takes any and the files are there."""
        study: Study = import_module(f"{studies.__name__}.{name}").STUDY
        if self.data is not None and study.data is not None:
            with suppress(UsageError):  # then the page says that it was not measured
                return study.given(self.data)
        return study

    @property
    def prices(self) -> RealData | None:
        """The real data of the traffic figures, if the files are there."""
        if self.data is not None:
            with suppress(UsageError):
                return collected(self.data)
        return None


def runs_of(sources: Sequence[PaperSource]) -> dict[str, list[str]]:
    """What answers these sources: the parts of each run."""
    found: dict[str, list[str]] = {}
    for name, part in dict.fromkeys(run for source in sources for item in source.items for run in item.runs):
        found.setdefault(name, []).append(part)
    return found


def steps_of(how: PapersRun, runs: dict[str, list[str]]) -> int:
    """How many steps all of it takes."""
    steps = 0
    for name, asked in runs.items():
        if name == BENCH:
            steps += len(JOINS.sections) - 1
        elif name == FIGURES:
            steps += PAPER.steps(PAPER.quick if how.quick else PAPER.full, asked, how.prices)
        else:
            study = how.study(name)
            seeds = seeds_of(study, how.quick, None)
            there = parts_of(study, how.quick)
            steps += sum(min(seeds, part.seeds) for part in study.parts if part.name in asked and part.name in there)
    return steps


def run_papers(
    sources: Sequence[PaperSource], how: PapersRun, progress: StepProgress, *, resume: bool = False,
    make: Callable[[PapersRun, str, list[str], StepProgress], Iterable[Section]] | None = None,
) -> PapersFound:  # fmt: skip
    """Run everything that these sources need, and write `papers.md` and `papers.html`. `make`: how to run one."""
    runs = runs_of(sources)
    there = [name for name in runs if (how.out / name).exists()]
    if there and not resume:
        raise UsageError(f"{how.out} is not empty; continue the run in it with --resume, or give another --out")
    how.out.mkdir(parents=True, exist_ok=True)
    sections: dict[str, list[Section]] = {}
    failed: dict[str, str] = {}
    for name, asked in runs.items():
        trace = how.out / f"{name}-failure.txt"
        trace.unlink(missing_ok=True)
        sections[name] = []
        try:
            sections[name].extend((make or _made)(how, name, asked, _Named(name, progress)))
        except Exception as error:  # noqa: BLE001  # one run reports its own death, and the page says so
            told = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
            failed[name] = told.partition("\n")[0]
            trace.write_text(traceback.format_exc())
    if not any(sections.values()):  # and a page that is there stays as it is
        raise UsageError("nothing could be run: " + "; ".join(f"{name}: {why}" for name, why in failed.items()))
    found = PapersFound(sections, failed)
    text = papers_text(sources, found, how.out, _begin(how))
    Place(how.out / f"{NAME}.html").write_text(page(text, {}, STYLE))
    Place(how.out / f"{NAME}.md").write_text(text)
    return found


def _made(how: PapersRun, name: str, asked: list[str], progress: StepProgress) -> Iterable[Section]:
    out = how.out / name
    if name == BENCH:
        return _joins(out, how, progress)
    if name == FIGURES:
        settings = PAPER.seeded(PAPER.quick if how.quick else PAPER.full, how.seed, None)
        only = PAPER.asked(asked, how.prices)
        return run_figures(
            PAPER, settings, only, out, progress, data=how.prices, options=how.options, resume=True
        ).sections
    study = how.study(name)
    there = parts_of(study, how.quick)
    given = {"quick": how.quick, "seed": how.seed, "options": how.options, "resume": True}
    return run_study(study, out, progress, only=[part for part in asked if part in there], **given).sections  # type: ignore[arg-type]  # one dict of all


def _joins(out: Path, how: PapersRun, progress: StepProgress) -> Iterator[Section]:
    """The benchmark's sections, each a step; then a RuntimeError if any failed."""
    settings = JOINS.settings(quick=how.quick, seed=how.seed)
    failed: dict[str, Exception] = {}
    with RunFolder(out, {"benchmark": JOINS.name, "settings": asdict(settings)}, resume=True) as folder:
        for section in JOINS.sections:
            if section.name == OURS:
                continue

            def measure(place: Place, name: str = section.name) -> None:
                done, known = 0, JOINS.steps(settings, [name])

                def tick(what: str) -> None:
                    nonlocal done
                    progress.tasks(done, known)
                    done += 1

                report = JOINS.measure(settings, [name], tick)
                draw(report, place.local)
                write_json(to_json(report), place.local / "measured.json")
                claims = [{each: getattr(claim, each) for each in _KEPT} for claim in report.claims]
                (place / "claims.json").write_text(json.dumps(claims, indent=1))

            progress.begin(section.name)
            try:
                place = folder.step(section.name, {}, measure).local
            except Exception as error:  # noqa: BLE001  # the others are not in vain
                failed[section.name] = error
                continue
            claims = [_claim(told) for told in json.loads((place / "claims.json").read_text())]
            pictures = {path.stem: path for path in sorted(place.glob("*.png"))}
            about = (section.name, section.about, JOINS.head(settings), "", claims, [place / "measured.json"], pictures)
            yield Section(*about, cited=PAPER.cited)
    for first in failed.values():
        raise RuntimeError("; ".join(f"{name}: {why!r}" for name, why in failed.items())) from first


def _claim(told: dict[str, Any]) -> Claim:
    return Claim(**told | {"draws": tuple(told["draws"]) if told["draws"] else None})


class _Named:
    """Progress of one run among several."""

    def __init__(self, name: str, progress: StepProgress) -> None:
        self._name, self._progress = name, progress

    def begin(self, what: str) -> None:
        self._progress.begin(f"{self._name}: {what}")

    def tasks(self, done: int, known: int) -> None:
        self._progress.tasks(done, known)


def _begin(how: PapersRun) -> list[str]:
    size = "a small run (`--quick`), which shows less than a full one" if how.quick else "a full run"
    real = "without real data (`--data`)" if how.data is None else "with real data"
    return [
        "# Five papers, item by item",
        f"Every table, figure, theorem and worked example of the five sources that Hullcast is built on: what the "
        f"source shows or says, what came out here, and the verdict. This is {size}, {real}. Below each item is a row "
        "for each statement that was judged: the words or the value of the paper, and how we judge them. **Bold** does "
        "not hold in all draws, *italic* could not be otherwise. Theorems are checked by tests; a drawing is linked to "
        "the code or page that draws or implements it.",
        "Counts below are of statements; of items about which none is judged, the item counts once. Statements of our "
        "own, and all numbers, are in the reports in the folders beside this page.",
    ]
