"""Names of lines beside the lines of a chart: placed so that none lies on a line or on another name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from hullcast.network.wire.arrays import Floats

Points = Floats  # (n, 2), in pixels

FONT, PAD = 8.5, 3.0
GAP = 9.0  # pixels between a line's end and its name
NEAR = 14.0  # pixels: two ends so close to each other cannot be told apart by the names beside them
_STEP = 2.0  # pixels between two points of a line that names keep away from
_FAR = 45  # pixels a name may be moved up or down, at most
# What a place costs, in pixels of distance.
_ON_NAME, _OUTSIDE, _ON_LINE, _OUT_OF_ORDER, _UNCLEAR, _AT_START = 5_000.0, 4_000.0, 1_000.0, 500.0, 60.0, 25.0


class Box(NamedTuple):
    """A rectangle in pixels."""

    left: float
    low: float
    right: float
    high: float

    def meets(self, other: Box) -> bool:
        """Whether the two have a point in common."""
        across = self.left <= other.right and other.left <= self.right
        return across and self.low <= other.high and other.low <= self.high

    def holds(self, points: Points) -> bool:
        """Whether any of the points is in it."""
        x, y = points[:, 0], points[:, 1]
        return bool(((x >= self.left) & (x <= self.right) & (y >= self.low) & (y <= self.high)).any())

    def within(self, other: Box) -> bool:
        """Whether all of it is in another."""
        across = other.left <= self.left and self.right <= other.right
        return across and other.low <= self.low and self.high <= other.high


@dataclass(frozen=True, slots=True)
class Named:
    """A line to be named: its course, and the size of its name."""

    course: Points
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class NamePlace:
    """Where a name goes, and the point of the line it belongs to."""

    box: Box
    anchor: tuple[float, float]
    at_start: bool


def dense(course: Points) -> Points:
    """The same course, with points so close that no name fits between two."""
    if len(course) < 2:
        return course
    parts = [
        start + (end - start) * np.linspace(0.0, 1.0, 2 + int(np.hypot(*(end - start)) / _STEP))[:, None]
        for start, end in pairwise(course)
    ]
    return np.concatenate(parts)


def place_names(lines: Sequence[Named], bounds: Box, others: Sequence[Points] = ()) -> list[NamePlace]:
    """A place for each line's name: right of its end, moved up or down where needed, or at its start.

    The flattest line chooses first. `others` are courses that have no name, but that names keep away from as well.
    """
    courses = [dense(line.course) for line in lines]
    obstacles = np.concatenate([*courses, *(dense(course) for course in others)])
    chosen: dict[int, NamePlace] = {}
    for i in sorted(range(len(lines)), key=lambda i: float(np.ptp(lines[i].course[:, 1]))):
        rest = [j for j in range(len(lines)) if j != i]
        # Another line begins, or ends, here too and is named here or may be: a name here could be of either.
        unclear = {
            at_start: any(
                _apart(lines[i], lines[j], 0 if at_start else -1) < NEAR
                and (j not in chosen or chosen[j].at_start == at_start or at_start)
                for j in rest
            )
            for at_start in (False, True)
        }

        def cost(option: tuple[float, NamePlace], unclear: dict[bool, bool] = unclear) -> float:
            moved, place = option
            box = place.box
            found = moved + (_AT_START if place.at_start else 0.0) + (_UNCLEAR if unclear[place.at_start] else 0.0)
            for other in chosen.values():
                found += _ON_NAME * box.meets(other.box)
                if place.at_start == other.at_start:
                    above = place.anchor[1] - other.anchor[1]
                    found += _OUT_OF_ORDER * (above * (box.low - other.box.low) < 0 and _beside(box, other.box))
            return found + _OUTSIDE * (not box.within(bounds)) + _ON_LINE * box.holds(obstacles)

        chosen[i] = min(_options(lines[i]), key=cost)[1]
    return [chosen[i] for i in range(len(lines))]


def _apart(one: Named, other: Named, at: int) -> float:
    return float(np.hypot(*(one.course[at] - other.course[at])))


def _beside(one: Box, other: Box) -> bool:
    return one.left <= other.right and other.left <= one.right


def _options(line: Named) -> list[tuple[float, NamePlace]]:
    """Places to choose from, each with how far it is from where a name goes best."""
    (start_x, start_y), (end_x, end_y) = line.course[0], line.course[-1]
    half = line.height / 2
    found = []
    for right in (GAP, 2 * GAP, 4 * GAP, 8 * GAP):
        for up in range(-_FAR, _FAR + 1, 3):
            box = Box(end_x + right, end_y + up - half, end_x + right + line.width, end_y + up + half)
            found.append((abs(up) + right - GAP, NamePlace(box, (float(end_x), float(end_y)), at_start=False)))
    for up in range(-_FAR, _FAR + 1, 3):
        box = Box(start_x, start_y + up - half, start_x + line.width, start_y + up + half)
        found.append((float(abs(up)), NamePlace(box, (float(start_x), float(start_y)), at_start=True)))
    return found


def name_lines(axes: Any) -> list[NamePlace]:
    """Write the names of all lines in a panel that have one; when all else in it has its place."""
    figure = axes.figure
    renderer = figure.canvas.get_renderer()
    named, texts, others = [], [], []
    inside = axes.get_window_extent(renderer)
    for line in axes.get_lines():
        course = line.get_transform().transform(line.get_xydata())
        course = course[np.isfinite(course).all(axis=1)]
        if line.get_label().startswith("_") or not len(course):
            others += [course] if len(course) else []
            continue
        text = axes.text(0, 0, line.get_label(), fontsize=FONT, color=line.get_color(), va="center", ha="left")
        size = text.get_window_extent(renderer)
        named.append(Named(course, size.width + 2 * PAD, size.height + 2 * PAD))
        texts.append((text, line.get_color()))
    if not named:
        return []
    others += [t.get_window_extent(renderer).corners() for t in axes.texts[: len(axes.texts) - len(texts)]]
    bounds = Box(inside.x0, inside.y0, inside.x1 + 4, inside.y1)
    places = place_names(named, bounds, others)
    back = axes.transAxes.inverted()
    for (text, colour), place in zip(texts, places, strict=True):
        box = place.box
        middle = (box.low + box.high) / 2
        text.set(transform=axes.transAxes, position=back.transform((box.left + PAD, middle)))
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6})
        if not place.at_start:
            ends = back.transform([place.anchor, (box.left + PAD - 2, middle)])
            axes.plot(*ends.T, transform=axes.transAxes, color=colour, lw=0.5, alpha=0.6, label="_leader")
    return places
