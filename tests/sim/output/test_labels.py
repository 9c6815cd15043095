"""Names of lines: none lies on a line, on another name or outside, and each is where it can be told whose it is."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from hullcast.sim.output.labels import Box, Named, NamePlace, dense, name_lines, place_names

BOUNDS = Box(0, 0, 400, 300)


def named(*points: tuple[float, float]) -> Named:
    return Named(np.array(points, np.float64), 60, 14)


def check(lines: list[Named], places: list[NamePlace]) -> None:
    for one, other in combinations(places, 2):
        assert not one.box.meets(other.box)
    for place in places:
        assert place.box.within(BOUNDS)
        assert not any(place.box.holds(dense(line.course)) for line in lines)


def test_a_name_stands_right_of_where_its_line_ends() -> None:
    lines = [named((10, 50), (300, 60)), named((10, 200), (300, 220))]
    places = place_names(lines, BOUNDS)
    check(lines, places)
    assert [(place.box.low + place.box.high) / 2 for place in places] == [60, 220]
    assert not any(place.at_start for place in places)


def test_a_name_leaves_the_way_of_a_line_that_goes_on() -> None:
    lines = [named((10, 150), (150, 100)), named((10, 200), (150, 110), (390, 95))]
    places = place_names(lines, BOUNDS)
    check(lines, places)
    assert places[0].box.low + 7 != 100


def test_lines_that_end_together_are_named_at_different_ends() -> None:
    flat, rising = named((10, 150), (300, 150)), named((10, 20), (300, 148))
    places = place_names([flat, rising], BOUNDS)
    check([flat, rising], places)
    assert [place.at_start for place in places] == [True, False]


def test_lines_that_run_together_have_their_names_in_their_order() -> None:
    lines = [named((10, 150 + 8 * i), (300, 60 + 8 * i)) for i in range(3)]
    places = place_names(lines, BOUNDS)
    check(lines, places)
    assert [place.at_start for place in places] == [False] * 3
    lows = [place.box.low for place in places]
    assert lows == sorted(lows)


def test_names_keep_away_from_a_goal_s_line() -> None:
    line, goal = named((10, 100), (300, 100)), np.array([(0.0, 104.0), (400.0, 104.0)])
    (place,) = place_names([line], BOUNDS, [goal])
    assert not place.box.holds(dense(goal))


def test_names_in_a_panel_are_where_they_were_placed() -> None:
    from hullcast.sim.output.charts import pyplot

    plot = pyplot()
    figure, axes = plot.subplots()
    for name, ends in (("one", (1.0, 2.0)), ("two", (3.0, 2.02)), ("_goal", (2.5, 2.5))):
        axes.plot((0, 1), ends, label=name)
    axes.set_xlim(0, 2)
    figure.draw_without_rendering()
    places = name_lines(axes)
    renderer = figure.canvas.get_renderer()
    assert [text.get_text() for text in axes.texts] == ["one", "two"]
    for text, place in zip(axes.texts, places, strict=True):
        there = text.get_window_extent(renderer)
        assert place.box.left <= there.x0
        assert there.x1 <= place.box.right + 1
        assert place.box.low <= there.y0
        assert there.y1 <= place.box.high
    plot.close(figure)
