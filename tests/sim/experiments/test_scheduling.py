"""The study of scheduling: what it draws keeps the papers' conditions, and its sections say what was measured."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from hullcast.sim.experiments.studies import scheduling
from hullcast.sim.experiments.studies.scheduling import feeds
from hullcast.sim.experiments.study import Sweep
from hullcast.sim.experiments.sweeping import parts_of

if TYPE_CHECKING:
    from pathlib import Path


def smaller(point: dict[str, Any]) -> dict[str, Any]:
    return {**point, "size": {"any": 6, "groups": 120.0, "huge": 2, "questions": 120.0}[point["case"]]}


@pytest.fixture(scope="module")
def small() -> Sweep:
    points = [smaller(point) for point in feeds.points(quick=True)]
    return Sweep([{**point, "seed": seed, **feeds.measure(point, seed)} for seed in (0, 1) for point in points])


def test_the_parts_have_points_and_metrics_of_their_own() -> None:
    assert set(parts_of(scheduling.STUDY, quick=True)) == {"feeds", "deadlines", "tradeoff"}
    assert parts_of(scheduling.STUDY, quick=True, only=["feeds"]) == {"feeds": feeds.points(quick=True)}


def test_a_row_depends_on_nothing_but_its_point_and_its_seed(small: Sweep) -> None:
    for point in (smaller(point) for point in feeds.points(quick=True)[::9]):
        (row,) = small.where(**point, seed=1).rows
        again = feeds.measure(point, 1)
        assert again == {name: row[name] for name in again}


@pytest.mark.parametrize("seed", range(3))
def test_drawn_feeds_keep_the_conditions_of_theorems_4_3_and_5_1(seed: int) -> None:
    drawn = feeds.drawn("groups", 300.0, 0.0, seed)
    assert len(drawn) == feeds.TABLES["groups"]
    for of in drawn:
        period = of.period / 0.75
        assert period in feeds.PERIODS
        assert all(period / 2 <= b - a <= period for a, b in pairwise([0.0, *of.released.tolist()]))
    moments = [moment for of in drawn for moment in of.released.tolist()]
    assert len(set(moments)) == len(moments), "no two updates at the same moment"
    places, tables, groups = feeds.PLACES["groups"], feeds.TABLES["groups"], len(feeds.PERIODS)
    assert places >= 2 * groups
    assert feeds.alpha_of("groups", feeds.CONDITION) == pytest.approx((places - groups) / (8 * tables))
    assert feeds.alpha_of("groups", feeds.CONDITION) <= 1 / 8


def test_sections_judge_every_claim_of_the_paper(small: Sweep, tmp_path: Path) -> None:
    sections = feeds.sections(small, tmp_path)
    assert [path.name for section in sections for path in section.pictures.values()] == [
        "feeds-figure-1.png", "feeds-staleness.png", "feeds-stretch.png", "feeds-huge.png", "feeds-questions.png",
    ]  # fmt: skip
    assert all((tmp_path / f"{section.name}.png").read_bytes().startswith(b"\x89PNG") for section in sections)
    claims = {(claim.subject, claim.statement): claim for section in sections for claim in section.claims}
    assert all(claim.holds for claim in sections[0].claims), "Figure 1"
    for subject, said in (
        ("myopic", "times the constant of Theorem 3.1"),
        ("least waited", "times the constant of Theorem 3.1"),
        ("group-and-run", "no update waits longer than B/6"),
        ("group-and-run with different alphas", "no tight interval is longer than B/6"),
        ("group-and-run", "stretch is below 3"),
        ("group-and-run", "weighted staleness is at most 4.5x"),
        ("group-and-run", "stretch is at least alpha S1/S2"),
        ("updates-first", "does what myopic does"),
    ):
        (claim,) = (claim for (who, statement), claim in claims.items() if who == subject and said in statement)
        assert claim.holds
        assert claim.draws == (2, 2)
    assert not [claim for claim in claims.values() if claim.unknown and "at a load of" not in claim.statement]
