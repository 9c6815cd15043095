"""Verdicts follow from the data: the same claim holds over one table and not over another."""

from __future__ import annotations

import pytest

from sim.experiments import affected, control, ignorable, real, scaling
from sim.experiments.claims import Claim, growth, number, times
from sim.experiments.goals import goals
from sim.experiments.scaling import Timing
from sim.experiments.summary import Line
from tests.sim.experiments.builders import a_line, lines_of

SHARES = [0.0, 0.5, 0.9]


def verdicts(claims: list[Claim]) -> dict[str, bool]:
    return {claim.thesis: claim.holds for claim in claims}


def test_figure_5_8_as_the_thesis_has_it() -> None:
    curves = {
        "S-CN": [50.0, 25, 5],
        "CN": [500.0, 500, 500],
        "S-UN": [900.0, 450, 90],
        "S-UN aggregated": [300.0, 150, 30],
    }
    assert all(verdicts(ignorable.claims(lines_of(curves, SHARES))).values())


@pytest.mark.parametrize(
    ("approach", "values", "broken"),
    [
        ("CN", [500.0, 300, 200], "CN is flat"),
        ("CN", [80.0, 80, 80], "CN becomes worst"),
        ("S-UN", [900.0, 950, 90], "S-UN improves"),
        ("S-CN", [50.0, 600, 5], "S-CN is best throughout"),
    ],
)
def test_figure_5_8_otherwise(approach: str, values: list[float], broken: str) -> None:
    curves = {"S-CN": [50.0, 25, 5], "CN": [500.0, 500, 500], "S-UN": [900.0, 450, 90]}
    found = ignorable.claims(lines_of(curves | {approach: values}, SHARES))
    assert not verdicts(found)[broken]
    told = next(claim.verdict for claim in found if claim.thesis == broken)
    assert told.startswith("does not hold, because ")


def of_5_9(ours: list[float], net: list[float], each: list[float]) -> dict[str, bool]:
    lines: list[Line] = []
    for i, concerned in enumerate((10.0, 100.0, 1_000.0)):
        for approach, values in (("S-CN", ours), ("CN", net), ("S-UN", each)):
            lines.append(a_line(i / 10, "can", approach, values[i], affected=concerned))
    return verdicts(affected.claims(lines))


def test_figure_5_9() -> None:
    assert all(of_5_9([50, 52, 60], [500, 500, 510], [800, 8_000, 80_000]).values())
    assert not of_5_9([50, 52, 60], [500, 500, 510], [800, 8_000, 20_000])["S-UN is linear"]
    assert not of_5_9([50, 52, 60], [500, 900, 510], [800, 8_000, 80_000])["CN is flat"]
    assert not of_5_9([50, 52, 90], [900, 900, 910], [800, 8_000, 80_000])["S-CN is nearly flat"]
    assert not of_5_9([50, 52, 60], [200, 200, 210], [800, 8_000, 80_000])["S-CN is close to 10x below CN"]


def test_figure_5_10_and_the_goals() -> None:
    xs = [100_000.0, 500_000.0]
    good = lines_of({"S-CN": [40.0, 44], "CN": [900.0, 900], "S-UN": [5_000.0, 25_000]}, xs)
    assert all(verdicts(real.claims(good, "market")).values())
    assert all(goal.passed for goal in goals(good))
    grows = lines_of({"S-CN": [40.0, 90], "CN": [900.0, 1_900], "S-UN": [5_000.0, 25_000]}, xs)
    assert not verdicts(real.claims(grows, "market"))["S-CN does not depend on the number of subscriptions"]
    assert [goal.name for goal in goals(grows) if not goal.passed] == ["market, can: S-CN flat"]


@pytest.mark.parametrize(
    ("curves", "stress", "missed"),
    [
        ({"S-CN": [100.0], "CN": [2_000.0], "S-UN": [20_000.0]}, 2, "S-CN bytes per event"),
        ({"S-CN": [50.0], "CN": [499.0], "S-UN": [20_000.0]}, 2, "below CN"),
        ({"S-CN": [50.0], "CN": [900.0], "S-UN": [4_990.0]}, 2, "below S-UN, 5 subscriptions"),
        ({"S-CN": [50.0], "CN": [900.0], "S-UN": [9_000.0]}, 11, "S-CN node stress, most"),
    ],
)
def test_a_goal_that_is_missed_is_said_to_be(curves: dict[str, list[float]], stress: int, missed: str) -> None:
    found = goals(lines_of(curves, [5.0], stress=stress))
    assert f"market, can: {missed}" in [goal.name for goal in found if not goal.passed]


def test_unicast_is_judged_with_few_and_with_many_subscriptions() -> None:
    lines = lines_of({"S-CN": [50.0, 50], "CN": [900.0, 900], "S-UN": [2_000.0, 10_000]}, [100_000.0, 500_000.0])
    found = {goal.name: goal.passed for goal in goals(lines) if "S-UN" in goal.name}
    assert found == {
        "market, can: below S-UN, 100k subscriptions": False,
        "market, can: below S-UN, 500k subscriptions": True,
    }


def test_only_gateways_by_content_have_goals() -> None:
    assert goals(lines_of({"S-CN": [1.0], "CN": [1.0], "S-UN": [1.0]}, [5.0], "tree-random")) == []


def test_time_and_memory_are_judged_at_full_size_only() -> None:
    curves = {"S-CN": [50.0], "CN": [900.0], "S-UN": [9_000.0]}
    small = goals(lines_of(curves, [500_000.0], events=1_000, brokers=1_000))
    assert not any("time" in goal.name for goal in small)
    large = goals(lines_of(curves, [500_000.0], events=338_415, brokers=1_000, seconds=700.0, memory=7e9))
    effort = {goal.name.rsplit(" ", 1)[1]: goal.passed for goal in large if "events:" in goal.name}
    assert effort == {"time": False, "memory": True}


def test_the_control_compares_ratios() -> None:
    lines = []
    for topology, net in (("INET", 900.0), ("AS", 1_000.0)):
        for line in lines_of({"S-CN": [50.0], "CN": [net], "S-UN": [9_000.0 if topology == "INET" else 90.0]}, [5.0]):
            lines.append(Line("market", topology, *[getattr(line, n) for n in Line.__dataclass_fields__][2:]))
    assert [claim.holds for claim in control.claims(lines, 5)] == [True, False]


def test_growth_of_time() -> None:
    def timing(varied: str, part: float, cores: int, seconds: float) -> Timing:
        return Timing(varied, int(1_000 * part), int(100 * part), cores, seconds, 0)

    fine = [timing("events", 0.25, 2, 1.0), timing("events", 1.0, 2, 4.0)]
    assert [claim.holds for claim in scaling.claims(fine)] == [True]
    bad = [timing("subscriptions", 0.25, 2, 1.0), timing("subscriptions", 1.0, 2, 16.0)]
    assert [claim.holds for claim in scaling.claims(bad)] == [False]
    cores = [timing("cores", 1.0, 1, 8.0), timing("cores", 1.0, 2, 5.0)]
    (claim,) = scaling.claims(cores)
    assert claim.holds
    assert "1.60x as fast as one (80%" in claim.ours


def test_small_arithmetic() -> None:
    assert growth([2.0, 4.0, 3.0]) == 2.0
    assert growth([0.0, 0.0]) == 1.0
    assert times(10, 0) == float("inf")
    assert [number(value) for value in (0, 0.421, 8.06, 9.997, 97.4, 99.97, 12_345.6)] == [
        *("0", "0.42", "8.06", "10.0", "97.4", "100", "12,346"),
    ]
