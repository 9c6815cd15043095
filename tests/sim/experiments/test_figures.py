"""A paper of our own invention: what all experiments share makes a run, a report and goals of it, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.sim.experiments.figures import Paper, run_figures
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.goals import Goal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hullcast.sim.experiments.data import RealData
    from hullcast.sim.experiments.run import ExperimentRun
    from hullcast.sim.spark.storage import Place

SECTIONS = {"1": "how doubling grows", "2": "how it does not"}


def measure(
    run: ExperimentRun, start: int, asked: Sequence[str], data: RealData | None, keep: bool
) -> tuple[list[Section], list[Goal]]:
    def double(path: Place) -> None:
        (path / "n").write_text(str(2 * start))

    place = run.step("double", {"start": start}, double)
    found = int((place / "n").read_text())
    claim = Claim("", "it doubles", str(found), found == 2 * start)
    sections = [Section(name, f"Figure {name}", "A number.", "It doubles.", [claim]) for name in asked]
    return sections, [Goal("large", ">= 10", str(found), found / 10)]


PAPER = Paper[int](
    cited="Toy (1999)",
    sections=SECTIONS,
    full=1_000,
    quick=3,
    seeded=lambda start, seed, seeds: start + seed,
    plain=lambda start: {"start": start},
    steps=lambda start, asked, data: 1,
    measure=measure,
    begin=lambda start, folder: ["# Doubling", f"From {start}, in {len(folder.finished_steps())} step."],
    effort=(),
    no_goals="No goals.",
    no_data={"prices": "Real numbers: no --data was given."},
)


class Told:
    def __init__(self) -> None:
        self.begun: list[str] = []

    def begin(self, what: str) -> None:
        self.begun.append(what)

    def tasks(self, done: int, known: int) -> None:
        raise AssertionError("no Spark here")


def test_a_paper_is_its_sections_and_a_way_to_measure_them(tmp_path: Path) -> None:
    asked, told = PAPER.asked(["1"], None), Told()
    found = run_figures(PAPER, 3, asked, tmp_path / "out", told)
    assert told.begun == ["double"]
    assert (found.reused, [section.told for section in found.sections]) == ([], ["1 of 1 statements hold"])
    text = found.report.read_text()
    for part in (
        "# Doubling\n\nFrom 3, in 1 step.\n",
        "0 of 1 goals are reached. Missed: large: 6 instead of >= 10.",
        "- 2: how it does not (not asked for)\n- Real numbers: no --data was given.\n",
        "Toy (1999): It doubles.\n\nOurs: 1 of 1 statements hold.",
        "| it doubles | 6 | holds |",
    ):
        assert part in text
    assert run_figures(PAPER, 3, PAPER.asked([], None), tmp_path / "out", told, resume=True).reused == ["double"]
