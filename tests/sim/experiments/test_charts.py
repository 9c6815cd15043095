"""Charts: shares that add up, and files that are pictures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.traffic.charts import (
    STYLES,
    _curves,
    at_least,
    draw_curves,
    draw_servers,
    draw_stress,
    draw_summary,
    stairs,
)
from hullcast.sim.experiments.traffic.networks import Draw
from hullcast.sim.experiments.traffic.summary import Stress
from hullcast.sim.output.charts import BandCurve, Panel, band_of, band_words, draw_panels
from tests.sim.experiments.builders import lines_of

if TYPE_CHECKING:
    from pathlib import Path

    from hullcast.sim.experiments.traffic.summary import TrafficLine

PNG = b"\x89PNG"


def test_the_share_of_events_with_at_least_some_stress() -> None:
    stress = [
        Stress("can", "CN", 0, 50),
        Stress("can", "CN", 4, 30),
        Stress("can", "CN", 2, 20),
        Stress("can", "S-CN", 9, 1),
    ]
    values, share = at_least(stress, "can", "CN")
    assert values.tolist() == [2, 4]
    assert share.tolist() == [0.5, 0.3]
    assert len(at_least(stress, "tree-random", "CN")[0]) == 0
    x, y = stairs(values, share)
    assert list(zip(x.tolist(), y.tolist(), strict=True)) == [(0.8, 0.5), (2, 0.5), (2, 0.3), (4, 0.3)]


def test_pictures_are_written(tmp_path: Path) -> None:
    curves = {approach: [10.0 * i, 20.0 * i] for i, approach in enumerate(STYLES, 1)}
    lines = (
        lines_of(curves, [1.0, 2.0])
        + lines_of(curves, [1.0, 2.0], "tree-random")
        + lines_of({"S-CN": [5.0, 6]}, [1.0, 2.0], "can-greedy")
    )

    def picture(name: str, rows: list[tuple[str, list[TrafficLine]]], *, x_log: bool) -> Path:
        goal = (15.0, "goal") if x_log else None
        path = tmp_path / name
        return draw_curves(
            rows, path, title="t", x_label="x", y_label="y", value=lambda line: line.cost.bytes, x_log=x_log, goal=goal
        )

    one = picture("a.png", [("", lines)], x_log=False)
    two = picture("b.png", [("a", lines), ("b", lines)], x_log=True)
    stress = [Stress(name, "CN", value, 5) for name in ("can", "tree-random") for value in (0, 1, 7)]
    three = draw_stress(stress, tmp_path / "c.png", title="t", goal=10, fanout=9)
    four = draw_summary(lines, tmp_path / "d.png")
    assert all(path.read_bytes().startswith(PNG) for path in (one, two, three, four))


def test_a_picture_that_cannot_be_written_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        draw_summary(lines_of({"CN": [1.0, 2]}, [1.0, 2.0]), tmp_path / "nowhere" / "d.png")


def test_a_band_goes_from_the_least_to_the_greatest_and_with_many_draws_leaves_out_the_ends() -> None:
    assert band_of([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)
    assert band_of([5.0]) == (5.0, 5.0, 5.0)
    low, middle, high = band_of([float(i) for i in range(101)])
    assert (low, middle, high) == (10.0, 50.0, 90.0)
    assert band_words([BandCurve("a", [(1.0, [2.0])])]) == ""
    assert "median of 3 draws; bands: from the least" in band_words([BandCurve("a", [(1.0, [2.0, 3.0, 4.0])])])
    assert "10th to the 90th" in band_words([BandCurve("a", [(1.0, [2.0] * 10)])])


def test_the_lines_of_a_chart_have_the_values_of_all_draws() -> None:
    lines = [
        replace(line, draw=draw) for draw in (0, 1) for line in lines_of({"CN": [10.0 + draw, 20.0 + draw]}, [1.0, 2.0])
    ]
    curves = {curve.label: curve for curve in _curves(lines, "can", lambda line: line.x, lambda line: line.cost.bytes)}
    assert curves["CN"].points == [(1.0, [10.0, 11.0]), (2.0, [20.0, 21.0])]
    assert curves["S-CN"].points == []


def test_stress_is_pooled_over_the_draws() -> None:
    stress = [Stress("can", "CN", 2, 10), Stress("can", "CN", 2, 30, draw=1), Stress("can", "CN", 0, 40, draw=1)]
    values, share = at_least(stress, "can", "CN")
    assert (values.tolist(), share.tolist()) == ([2], [0.5])


def test_a_chart_of_one_point_and_a_chart_of_servers_are_pictures(tmp_path: Path) -> None:
    one = draw_panels([[Panel("p", [BandCurve("a", [(1.0, [2.0, 3.0])])])]], tmp_path / "a.png", title="t", x_label="x")
    draws = [Draw(seed, 5.0 + seed, 0.5, (1.0, 4.0, 5.0, 6.0, 9.0), 3.0, 3.5) for seed in (0, 1)]
    assert all(path.read_bytes().startswith(PNG) for path in (one, draw_servers(draws, tmp_path / "b.png")))
