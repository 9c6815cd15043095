"""Charts: shares that add up, and files that are pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.traffic.charts import STYLES, at_least, draw_curves, draw_stress, draw_summary, stairs
from hullcast.sim.experiments.traffic.summary import Stress
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
