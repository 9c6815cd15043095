"""The study of what joins keep: streams as the thesis describes them, rows that depend on their point only, claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.steps import read_rows
from hullcast.sim.experiments.studies import caching, studies
from hullcast.sim.experiments.studies.caching import joins, live, lookahead, real, shapes, split
from hullcast.sim.experiments.studies.caching.configurations import (
    BOUNDS,
    CONFIGURATIONS,
    FLOW,
    HEEB,
    LIFE,
    NOISE,
    OPT,
    OWN,
    POLICIES,
    PROB,
    RACED,
    RAND,
    SUM,
    WALK,
    WINDOWS,
    policy_of,
    two_streams,
)
from hullcast.sim.experiments.studies.caching.means import interval, mean_claim, ratio_of
from hullcast.sim.experiments.studies.caching.models import LinearTrend
from hullcast.sim.experiments.studies.caching.simulated import simulate_join
from hullcast.sim.experiments.study import PartModule, Sweep
from hullcast.sim.experiments.sweeping import checked, parts_of, run_study
from tests.support.shared_data import shared

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

YEAR = np.rint(112 + 15 * np.sin(np.arange(1_500) / 7) + 3 * (np.arange(1_500) % 5)).astype(int)
DATA = {real.MAXIMA: tuple((YEAR + 60).tolist()), real.MINIMA: tuple(YEAR.tolist())}


class Silent:
    """Nobody watches."""

    def begin(self, what: str) -> None: ...

    def tasks(self, done: int, known: int) -> None: ...


PARTS: dict[str, PartModule] = {"shapes": shapes, "joins": joins, "lookahead": lookahead, "split": split, "live": live}


def small(part: PartModule, seeds: int = 2, **sizes: Any) -> Sweep:
    """The quick points of a part, some of their parameters replaced by smaller ones."""
    points = {tuple({**point, **sizes}.items()): {**point, **sizes} for point in part.points(True)}
    return Sweep([{**of, "seed": seed, **part.measure(of, seed)} for seed in range(seeds) for of in points.values()])


def test_the_parts_have_points_and_metrics_of_their_own() -> None:
    assert "caching" in studies()
    assert set(parts_of(caching.STUDY, quick=True)) == set(PARTS), "without data, no temperatures"
    for quick in (True, False):
        for part in PARTS.values():
            checked(part.points(quick))
        checked(real.points(quick, DATA))


@pytest.mark.parametrize("configuration", NOISE)
def test_trending_streams_are_as_the_thesis_describes_them(configuration: str) -> None:
    streams = two_streams(configuration, 4_000, 3)
    t = np.arange(4_000)
    for shown, lag, bound, noise in zip((streams.r, streams.s), (1, 0), BOUNDS, NOISE[configuration], strict=True):
        off = shown - (t - lag)
        assert np.abs(off).max() <= bound
        assert off.std() == pytest.approx(np.sqrt(noise.each @ noise.values() ** 2), rel=0.05)
    assert isinstance(streams.of_r, LinearTrend)
    assert streams.of_r.trend(10) == 9
    assert (streams.r != two_streams(configuration, 4_000, 4).r).any()


def test_walks_have_steps_of_variance_one() -> None:
    streams = two_streams(WALK, 4_000, 3)
    for shown in (streams.r, streams.s):
        assert np.diff(shown).var() == pytest.approx(1.0 + 1 / 12, rel=0.1), "rounding adds a twelfth"


def test_a_row_depends_on_nothing_but_its_point_and_its_seed() -> None:
    for name in POLICIES:
        point = {"configuration": "ROOF", "memory": 10, "policy": name, "steps": 300, "window": OWN}
        assert joins.measure(point, 1) == joins.measure(point, 1)
    point = {"stream": "walk", "memory": 50, "policy": "HEEB", "arrivals": 4_000}
    assert live.measure(point, 1) == live.measure(point, 1)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_nobody_has_more_results_than_opt_offline_and_heeb_more_than_those_who_know_less(configuration: str) -> None:
    streams = two_streams(configuration, 600, 5)
    results = {
        name: int(simulate_join(policy_of(name, streams, 10, 5), streams.r, streams.s, 10).results.sum())
        for name in POLICIES
        if not (name == LIFE and configuration == WALK)
    }
    assert max(results.values()) == results[OPT]
    for mine in (HEEB, RACED):
        assert results[mine] > max(results[name] for name in results if name not in (OPT, FLOW) and "HEEB" not in name)


def test_with_the_sum_of_the_bounds_as_window_life_beats_prob() -> None:
    results = {
        (window, name): joins.measure(
            {"configuration": "FLOOR", "memory": 10, "policy": name, "steps": 1_500, "window": window}, 1
        )["results"]
        for window in WINDOWS
        for name in (RAND, PROB, LIFE)
    }
    assert results[SUM, LIFE] > 1.1 * results[SUM, PROB]
    for window in WINDOWS:
        assert results[window, RAND] > max(results[window, PROB], results[window, LIFE])


def test_means_are_compared_by_their_intervals() -> None:
    low, mean, high = interval([1.0, 2.0, 3.0])
    assert (low, mean, high) == pytest.approx((2 - 4.3027 / 3**0.5, 2, 2 + 4.3027 / 3**0.5), rel=1e-4)
    assert interval([5.0]) == (5.0, 5.0, 5.0)
    assert ratio_of([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.0, 2.0)), "the same in every draw"
    assert ratio_of([0.0], [0.0]) == (1.0, 1.0, 1.0)
    clear = mean_claim("A", "has more than B", [11.0, 12.0, 13.0], [[1.0, 1.0, 1.0], [10.0, 11.0, 12.0]])
    assert clear.holds
    assert clear.counted
    assert "more in 3 of 3 draws" in clear.ours
    open_question = mean_claim("A", "has more than B", [11.0, 9.0, 13.0], [[10.0, 11.0, 10.0]])
    assert open_question.unknown
    assert not open_question.counted
    assert not mean_claim("A", "has more than B", [9.0, 9.1, 9.2], [[10.0, 10.0, 10.1]]).holds


def test_sections_judge_every_claim_of_the_thesis(tmp_path: Path) -> None:
    ten, by_memory, by_window = joins.sections(small(joins, steps=400), tmp_path)
    told = {(of.subject, of.workload, of.statement): of for of in ten.claims}
    for configuration in CONFIGURATIONS:
        assert told[HEEB, configuration, "produces more than RAND, PROB and LIFE"].item == "Figure 3.9"
    assert {of.item for of in by_memory.claims} == set(by_memory.items)
    assert len(by_window.claims) == 2 * 3
    (ahead,) = lookahead.sections(small(lookahead, seeds=1), tmp_path)
    assert len(ahead.claims) == 2
    (divided,) = split.sections(small(split, steps=600), tmp_path)
    assert not any(claim.counted and not claim.holds for claim in divided.claims if claim.subject == HEEB)
    (running,) = live.sections(small(live, seeds=1, arrivals=3_000), tmp_path)
    assert len(running.claims) == len(live.STREAMS) * 3
    for section in (ten, by_memory, ahead, divided, running):
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in section.pictures.values())


def test_benefits_are_as_the_thesis_describes_them(tmp_path: Path) -> None:
    benefits, walks, noise = shapes.sections(small(shapes, seeds=1), tmp_path)
    assert all(claim.holds for claim in benefits.claims)
    assert [claim.holds for claim in walks.claims] == [True, True, False, True], "two steps of drift 2 show no peak"
    assert [list(section.items) for section in (walks, noise)] == [["Figure 3.7"], ["Figure 3.8"]]
    wrong = [{**row, "seed": 0, **({"3": 0.0} if row["figure"] == shapes.JOINED else {})}
             for row in small(shapes, seeds=1).rows]  # fmt: skip
    assert not all(claim.holds for claim in shapes.sections(Sweep(wrong), tmp_path)[0].claims), "they can fail"


def test_temperatures_are_read_and_judged(tmp_path: Path) -> None:
    for series, name in real.FILES.items():
        lines = "".join(f'"1981-01-01",{value / 10}\n' for value in DATA[series])
        (tmp_path / name).write_text('"Date","Temp"\n' + lines, "utf-8")
    assert real.temperatures(tmp_path) == DATA
    study = caching.STUDY.given(tmp_path)
    assert "real" in parts_of(study, quick=True)
    assert study.folder == tmp_path
    found = Sweep([{**point, "seed": 0, **real.measure(point, 0, DATA)} for point in real.points(True, DATA)])
    hits, surface = real.sections(found, tmp_path, DATA)
    at_ten = {name: found.middle("hits", series=real.MAXIMA, policy=name, memory=10) for name in real.POLICIES}
    assert max(at_ten.values()) == at_ten[real.LFD]
    assert not hits.claims[0].holds, "not the series of the thesis"
    for section in (hits, surface):
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in section.pictures.values())
    (tmp_path / real.FILES[real.MINIMA]).write_text("Date,Temp\n1981-01-01,warm\n", "utf-8")
    with pytest.raises(UsageError, match="a date and a temperature"):
        real.temperatures(tmp_path)
    with pytest.raises(UsageError, match="not found; leave out --data"):
        real.temperatures(tmp_path / "elsewhere")


def test_real_temperatures_are_those_of_the_thesis() -> None:
    data = real.temperatures(shared(real.FILES[real.MAXIMA]).parent)
    fits = {
        series: (round(model.factor, 2), round(model.constant / 10, 2), round(model.sd / 10, 2))
        for series, values in data.items()
        for model in [real.fitted_ar1(np.array(values))]
    }
    assert [len(values) for values in data.values()] == [3_650, 3_650]
    assert fits == {real.MAXIMA: (0.72, 5.59, 4.23), real.MINIMA: (0.77, 2.52, 2.57)}


def test_spark_measures_the_look_ahead_as_we_do_without_it(spark: SparkSession, tmp_path: Path) -> None:
    ended = run_study(caching.STUDY, tmp_path / "out", Silent(), quick=True, seeds=1, only=["lookahead"], spark=spark)
    rows = read_rows(tmp_path / "out" / "caching-lookahead.parquet")
    assert len(rows) == len(lookahead.points(quick=True))
    for row in rows:
        ours = lookahead.measure(row, 0)
        assert {name: row[name] for name in ours} == pytest.approx(ours)
    assert "real temperatures (not given" in ended.report.read_text()
