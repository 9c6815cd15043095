"""Verdicts follow from the data: the same claim holds over one table and not over another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hullcast.sim.experiments.traffic.goals import goals
from hullcast.sim.experiments.traffic.judging import lean_note, lean_share, leaner
from hullcast.sim.experiments.traffic.market import control_claims, market_claims
from hullcast.sim.experiments.traffic.scaling import Timing, projected, scaling_claims
from hullcast.sim.experiments.traffic.settings import FULL
from hullcast.sim.experiments.traffic.shares import affected_claims, ignorable_claims
from hullcast.sim.experiments.traffic.summary import TrafficLine
from hullcast.sim.output.claims import Claim, over_draws
from hullcast.sim.output.goals import Goal, goals_over_draws, summary
from hullcast.sim.output.text import factor, factor_span, growth, number, times
from tests.sim.experiments.builders import a_line, lines_of

SHARES = [0.0, 0.5, 0.9]
AS_IN_THE_THESIS = {
    "S-CN": [50.0, 25, 5],
    "CN": [500.0, 500, 500],
    "S-UN": [900.0, 450, 90],
    "S-UN aggregated": [300.0, 150, 30],
}
WORST_THROUGHOUT = {
    "S-CN": [5.0, 3, 1],
    "CN": [1_000.0, 1_000, 1_000],
    "S-UN": [480.0, 240, 20],
    "S-UN aggregated": [188.0, 94, 8],
}


def verdicts(claims: list[Claim]) -> dict[str, bool]:
    return {claim.statement: claim.holds for claim in claims}


CROSSING = "CN becomes worst: S-UN above it at first, below at last"
BEST, BELOW_BUNDLED = (
    "S-CN is best throughout, of CN and S-UN (these / S-CN)",
    "(ours) S-CN is below S-UN aggregated too (this / S-CN)",
)


def test_figure_5_8_as_the_thesis_has_it() -> None:
    assert all(verdicts(ignorable_claims(lines_of(AS_IN_THE_THESIS, SHARES))).values())


@pytest.mark.parametrize(
    ("approach", "values", "broken"),
    [
        ("CN", [500.0, 300, 200], "CN is flat"),
        ("CN", [80.0, 80, 80], CROSSING),
        ("CN", [1_000.0, 1_000, 1_000], CROSSING),
        ("S-UN aggregated", [300.0, 20, 30], BELOW_BUNDLED),
        ("S-UN", [900.0, 950, 90], "S-UN improves"),
        ("S-CN", [50.0, 600, 5], BEST),
    ],
)
def test_figure_5_8_otherwise(approach: str, values: list[float], broken: str) -> None:
    found = ignorable_claims(lines_of(AS_IN_THE_THESIS | {approach: values}, SHARES))
    assert not verdicts(found)[broken]
    verdict = next(claim.verdict for claim in found if claim.statement == broken)
    assert verdict.startswith("does not hold, because ")


def test_a_cn_that_is_worst_from_the_start_is_no_crossing_and_the_report_says_why() -> None:
    found = ignorable_claims(lines_of(WORST_THROUGHOUT, SHARES, affected=7.75))
    (crossing,) = (claim for claim in found if claim.statement == CROSSING)
    assert not crossing.holds
    assert crossing.verdict == (
        "does not hold, because CN is worst from the start: an update affects 7.75 subscriptions only, for which S-UN "
        "needs 480 bytes, and CN's frame has 202 bytes (lean 78) (10.0 frames)"
    )
    assert crossing.ours == "CN / S-UN: 2.1x, then 50x (lean 0.8x, then 19.3x)"


def test_verdicts_that_hang_on_the_size_of_cn_s_frame_are_named() -> None:
    lines = lines_of(WORST_THROUGHOUT, SHARES)
    lean = leaner(lines)
    assert [line.cost.bytes for line in lean if line.cost.approach == "CN"] == [1_000 * lean_share()] * 3
    assert [line for line in lean if line.cost.approach != "CN"] == [
        line for line in lines if line.cost.approach != "CN"
    ]
    note = lean_note(ignorable_claims(lines), ignorable_claims(lean))
    assert f"*{CROSSING}* would hold for can" in note, "386 bytes are below S-UN's 480"
    assert "every verdict here would be the same" in lean_note(ignorable_claims(lines), ignorable_claims(lines))
    below = lines_of({"S-CN": [50.0], "CN": [500.0], "S-UN": [800.0]}, [0.5])
    note = lean_note(affected_claims(below), affected_claims(leaner(below)))
    assert f"*{CLOSE}* would **not** hold for can" in note


CLOSE = "S-CN is close to 10x below CN (8x to 12.5x)"
NEARLY_FLAT = "S-CN is nearly flat (1/1.5x to 1.5x)"


def of_5_9(ours: list[float], net: list[float], each: list[float]) -> dict[str, bool]:
    lines: list[TrafficLine] = []
    for i, concerned in enumerate((10.0, 100.0, 1_000.0)):
        for approach, values in (("S-CN", ours), ("CN", net), ("S-UN", each)):
            lines.append(a_line(i / 10, "can", approach, values[i], affected=concerned))
    return verdicts(affected_claims(lines))


def test_figure_5_9() -> None:
    assert all(of_5_9([50, 52, 60], [500, 500, 510], [800, 8_000, 80_000]).values())
    assert not of_5_9([50, 52, 60], [500, 500, 510], [800, 8_000, 20_000])["S-UN is linear"]
    assert not of_5_9([50, 52, 60], [500, 900, 510], [800, 8_000, 80_000])["CN is flat"]
    for ours in ([50.0, 52, 90], [90.0, 52, 50]):
        assert not of_5_9(ours, [900, 900, 910], [800, 8_000, 80_000])[NEARLY_FLAT]
    for net in ([200.0, 200, 210], [900.0, 900, 910]):
        assert not of_5_9([50, 52, 60], net, [800, 8_000, 80_000])[CLOSE]


def test_figure_5_10_and_the_goals() -> None:
    xs = [100_000.0, 500_000.0]
    good = lines_of({"S-CN": [40.0, 44], "CN": [5_000.0, 5_000], "S-UN": [5_000.0, 25_000]}, xs)
    assert all(verdicts(market_claims(good, "market")).values())
    assert all(goal.passed for goal in goals(good))
    grows = lines_of({"S-CN": [40.0, 90], "CN": [900.0, 1_900], "S-UN": [5_000.0, 25_000]}, xs)
    flat = "S-CN does not depend on the number of subscriptions (at most 1.25x)"
    assert verdicts(market_claims(grows, "market")) == {
        "S-CN takes under 100 bytes": True,
        flat: False,
        "orders of magnitude below CN (at least 100x)": False,
        "orders of magnitude below S-UN (at least 100x)": True,
        "CN is flat": False,
        "S-UN is linear": True,
    }
    assert [goal.name for goal in goals(grows) if not goal.passed] == ["market, can: S-CN flat in subscriptions"]


def test_the_claim_and_the_goal_about_unicast_agree() -> None:
    lines = lines_of({"S-CN": [50.0, 50], "CN": [9_000.0, 9_000], "S-UN": [2_000.0, 10_000]}, [100_000.0, 500_000.0])
    claim = next(claim for claim in market_claims(lines, "market") if "below S-UN" in claim.statement)
    assert not claim.holds
    assert claim.detail == "from 500k subscriptions on"
    assert [goal.passed for goal in goals(lines) if "S-UN" in goal.aim] == [False, True]


@pytest.mark.parametrize(
    ("curves", "stress", "missed"),
    [
        ({"S-CN": [100.0], "CN": [2_000.0], "S-UN": [20_000.0]}, 2, "S-CN bytes per event"),
        ({"S-CN": [50.0], "CN": [499.0], "S-UN": [20_000.0]}, 2, "below CN"),
        ({"S-CN": [50.0], "CN": [900.0], "S-UN": [4_990.0]}, 2, "below S-UN, 5 subscriptions"),
        ({"S-CN": [50.0], "CN": [900.0], "S-UN": [9_000.0]}, 10, "S-CN node stress, most"),
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
    effort = {goal.name: goal.passed for goal in large if goal.aim in ("time", "memory")}
    size = "500k subscriptions x 338k events"
    assert effort == {f"{size} on 2 cores: time": False, f"{size}: memory": True}


def test_what_could_not_be_otherwise_is_not_counted() -> None:
    curves = {"S-CN": [50.0, 50], "CN": [900.0, 900], "S-UN": [2_000.0, 2_500]}
    lines = lines_of(curves, [1.0, 2.0]) + lines_of(curves, [1.0, 2.0], "tree-content", stress=9)
    found = goals(lines, fanout=9)
    given = {(goal.where, goal.aim) for goal in found if goal.given}
    assert given == {
        ("market, can", "S-CN flat in subscriptions"),
        ("market, tree-content", "S-CN node stress, mean"),
        ("market, tree-content", "S-CN node stress, most"),
    }
    sentence = summary(found)
    assert sentence.startswith("7 of 11 goals are reached. Missed: below S-UN, 1 subscriptions: 40x instead of >= 100x")
    assert "all 2" in sentence
    assert "9 at most" in sentence
    # With more children the bound says nothing, and what is measured counts.
    assert not any(goal.given for goal in goals(lines, fanout=32) if "stress" in goal.aim)
    flat = {claim.subject: claim for claim in market_claims(lines, "market") if "does not depend" in claim.statement}
    assert flat["can"].verdict.startswith("by construction: a CAN sends to all zones")
    assert not flat["can"].counted
    assert flat["tree-content"].verdict == "holds"


def test_what_fails_although_it_should_hold_by_construction_is_said_to_fail() -> None:
    claim = Claim("can", "CN is flat", "2x", holds=False, because="it grows", construction="it cannot grow")
    assert claim.verdict == "does not hold, because it grows"
    assert claim.counted


def test_a_missed_goal_names_who_missed_it_unless_all_did() -> None:
    good = lines_of({"S-CN": [50.0], "CN": [900.0], "S-UN": [9_000.0]}, [5.0])
    bad = lines_of({"S-CN": [150.0], "CN": [9_000.0], "S-UN": [90_000.0]}, [5.0], "tree-content")
    assert "Missed: S-CN bytes per event: 150 instead of < 100, market, tree-content." in summary(goals(good + bad))


def test_full_size_is_the_thesis_s() -> None:
    assert (FULL.subscriptions, FULL.rows, FULL.events) == (500_000, 50_000, 200_000)
    assert (FULL.network.nodes, FULL.network.brokers) == (20_000, 1_000)


def test_the_control_compares_ratios() -> None:
    lines = []
    for topology, net in (("INET", 900.0), ("AS", 1_000.0)):
        for line in lines_of({"S-CN": [50.0], "CN": [net], "S-UN": [9_000.0 if topology == "INET" else 90.0]}, [5.0]):
            lines.append(replace(line, topology=topology))
    assert [claim.holds for claim in control_claims(lines)] == [True, False]


def timing(varied: str, part: float, cores: int, seconds: float, slowest: float | None = None) -> Timing:
    sizes = (int(1_000 * part), int(100 * part))
    return Timing(varied, *sizes, cores, seconds, slowest or 1.2 * seconds, 3, load=2.5, memory_bytes=0)


def test_growth_of_time() -> None:
    fine = [timing("events", 0.25, 2, 1.0), timing("events", 1.0, 2, 4.0)]
    assert [claim.verdict for claim in scaling_claims(fine)] == ["holds"]
    bad = [timing("subscriptions", 0.25, 2, 1.0), timing("subscriptions", 1.0, 2, 16.0)]
    assert [claim.holds for claim in scaling_claims(bad)] == [False]
    cores = [timing("cores", 1.0, 1, 8.0), timing("cores", 1.0, 2, 5.0)]
    (claim,) = scaling_claims(cores)
    assert claim.holds
    assert "1.60x as fast as one (80%" in claim.ours


def test_a_projection_takes_the_growth_with_events_and_says_nothing_of_noise() -> None:
    """750 events more take 3 s on 2 cores, which is 8 ms of a core each; 1 s is left."""
    text = projected([timing("events", 0.25, 2, 2.0), timing("events", 1.0, 2, 5.0)])
    assert "One more event takes 8000 microseconds of a core, and a replay 1.0 s whatever its length" in text
    assert "100 cores like these would replay ten million events in about 801 s" in text
    assert projected([timing("events", 0.25, 2, 2.0), timing("events", 1.0, 2, 5.0, slowest=9.0)]) == ""
    assert projected([timing("events", 0.25, 2, 5.0), timing("events", 1.0, 2, 5.0)]) == ""


def test_times_that_differ_from_round_to_round_say_nothing() -> None:
    noisy = [timing("cores", 1.0, 1, 8.0), timing("cores", 1.0, 2, 9.0, slowest=12.6)]
    (claim,) = scaling_claims(noisy)
    assert claim.verdict.startswith(
        "not measurable here: rounds of one size differ by 1.40x (load average up to 2.5 on"
    )
    assert not claim.counted
    calm = [timing("cores", 1.0, 1, 8.0), timing("cores", 1.0, 2, 9.0)]
    assert scaling_claims(calm)[0].verdict.startswith("does not hold")


def test_small_arithmetic() -> None:
    assert growth([2.0, 4.0, 3.0]) == 2.0
    assert growth([0.0, 0.0]) == 1.0
    assert times(10, 0) == float("inf")
    assert [factor(value) for value in (0.0723, 0.996, 1.3, 19.9, 31.2, 1_087.0)] == [
        *("0.072x", "0.996x", "1.3x", "19.9x", "31x", "1,087x"),
    ]
    assert [factor_span([2.0, 4.0, 3.0]), factor_span([2.0, 2.001])] == ["2.0x to 4.0x", "2.0x"]
    assert [number(value) for value in (0, 0.421, 8.06, 9.997, 97.4, 99.97, 12_345.6)] == [
        *("0", "0.42", "8.06", "10.0", "97.4", "100", "12,346"),
    ]


def draw(value: float, subject: str = "can", **other: str) -> Claim:
    told = f"{value:.1f}x on average"
    return Claim(subject, "small", told, value < 3, f"it is {value:g}", value=value, form=factor, **other)  # type: ignore[arg-type]  # texts only


def test_over_draws_the_middle_one_speaks_with_the_range_and_in_how_many_it_holds() -> None:
    (claim,) = over_draws([[draw(value)] for value in (2.0, 9.0, 1.5, 2.5, 4.0)])
    assert (claim.ours, claim.holds, claim.draws) == ("2.5x on average [1.5x .. 9.0x]", False, (3, 5))
    assert claim.verdict == "holds in 3 of 5 draws, and not in the others, because it is 4"
    (none,) = over_draws([[draw(value)] for value in (4.0, 5.0, 6.0)])
    assert none.verdict == "does not hold in any of 3 draws, because it is 5"
    (all_,) = over_draws([[draw(value)] for value in (1.0, 1.0)])
    assert (all_.ours, all_.verdict) == ("1.0x on average", "holds in all 2 draws"), "nothing to tell of a range"
    assert over_draws([[draw(1.0)]]) == [draw(1.0)], "one draw is as it was"


def test_of_an_even_number_of_draws_a_figure_is_the_median() -> None:
    """So that it is the same as in tables and charts."""
    bare = [Claim("can", "small", factor(value), True, value=value, form=factor) for value in (1.0, 4.0, 2.0, 8.0)]
    (claim,) = over_draws([[each] for each in bare])
    assert (claim.ours, claim.value) == ("3.0x [1x .. 8.0x]", 3.0)
    (words,) = over_draws([[draw(value)] for value in (1.0, 2.0)])
    assert words.ours == "1.0x on average [1x .. 2.0x]", "words are those of one draw"


def test_what_holds_by_construction_does_so_in_all_draws_or_is_said_to_fail() -> None:
    (given,) = over_draws([[draw(value, construction="it must")] for value in (1.0, 2.0)])
    assert (given.given, given.verdict) == (True, "by construction: it must")
    (failing,) = over_draws([[draw(value, construction="it must")] for value in (1.0, 5.0)])
    assert failing.verdict == "holds in 1 of 2 draws, and not in the others, because it is 5"
    assert failing.counted


def test_draws_that_cannot_be_judged_do_not_count() -> None:
    (claim,) = over_draws([[draw(1.0, unknown="noise")], [draw(2.0)], [draw(5.0)]])
    assert claim.draws == (1, 2)
    (unknown,) = over_draws([[draw(1.0, unknown="noise")], [draw(2.0, unknown="noise")]])
    assert unknown.verdict == "not measurable here: noise"


def test_draws_are_judged_by_the_same_statements() -> None:
    with pytest.raises(AssertionError, match="the same statements in the same order"):
        over_draws([[draw(1.0)], [draw(1.0, "tree-random")]])


def test_goals_are_reached_if_they_are_in_every_draw() -> None:
    def goal(share: float) -> Goal:
        return Goal("bytes", "< 100", f"{100 / share:.0f} (p99 3)", share)

    (found,) = goals_over_draws([[goal(share)] for share in (2.0, 0.8, 4.0)])
    assert (found.measured, found.passed, found.draws) == ("50 (p99 3) [125 .. 25]", False, (2, 3))
    assert summary([found]) == (
        "0 of 1 goals are reached in all 3 draws. Missed: bytes: 50 (p99 3) [125 .. 25] instead of < 100 "
        "(reached in 2 of 3 draws)."
    )
