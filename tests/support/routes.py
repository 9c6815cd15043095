"""Messages on a coarse grid, and by definition whom they concern: the oracle of routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Booleans, Floats
    from hullcast.network.wire.frames import Form


@dataclass(frozen=True)
class Question:
    """A channel's form, and points and messages for it drawn from few values, so that ties are common."""

    channel: int
    form: Form
    dimensions: int
    partitioned: bool

    @property
    def coordinates(self) -> int:
        """Of a point."""
        return max(1, 2 * self.dimensions + self.partitioned)

    def points(self, random: np.random.Generator, n: int) -> Floats:
        """Some predicates, one-sided and unsatisfiable ones among them."""
        points = np.zeros((n, self.coordinates))
        for i in range(self.dimensions):
            low = random.integers(-4, 5, n).astype(np.float64)
            high = low + random.integers(0, 4, n)
            low[random.random(n) < 0.15], high[random.random(n) < 0.15] = -np.inf, np.inf
            never = random.random(n) < 0.05
            low[never], high[never] = np.inf, -np.inf
            points[:, 2 * i], points[:, 2 * i + 1] = low, high
        if self.partitioned:
            points[:, -1] = random.integers(0, 6, n)
        return points

    def messages(self, random: np.random.Generator, n: int) -> dict[str, Any]:
        """Columns as they travel."""
        columns: dict[str, Any] = {"seq": np.arange(n)}
        if self.form == "rectangles":
            columns["il"] = random.integers(-5, 6, n).astype(np.float64)
            columns["ir"] = columns["il"] + random.integers(0, 3, n)
            columns["ol"] = np.where(random.random(n) < 0.2, -np.inf, columns["il"] - random.integers(0, 4, n))
            columns["or"] = np.where(random.random(n) < 0.2, np.inf, columns["ir"] + random.integers(0, 4, n))
            if self.partitioned:
                columns["part"] = random.integers(0, 6, n).astype(np.float64)
            return columns
        for side in ("old", "new"):
            there = columns[f"{side}.there"] = random.random(n) < 0.8
            names = [f"{side}.{i}" for i in range(self.dimensions)] + [f"{side}.part"] * self.partitioned
            for name in names:
                columns[name] = np.where(there, random.integers(0, 6, n).astype(np.float64), np.nan)
        return columns

    def concerned(self, points: Floats, columns: dict[str, Any]) -> Booleans:
        """Which messages concern at least one of the points: the definition, every point with every message."""
        low, high = points[:, 0:-1:2, np.newaxis], points[:, 1::2, np.newaxis]  # (points, dimensions, 1)
        part = points[:, -1:]
        hit = np.zeros((len(points), len(columns["seq"])), np.bool_)
        if self.form == "rectangles":
            inner_l, inner_r, outer_l, outer_r = (columns[name] for name in ("il", "ir", "ol", "or"))
            x1, x2 = low[:, 0], high[:, 0]
            hit |= (x1 <= inner_l) & (inner_r <= x2)
            hit &= ((outer_l == -np.inf) | (outer_l < x1)) & ((outer_r == np.inf) | (x2 < outer_r))
            if self.partitioned:
                hit &= part == columns["part"]
        else:
            for side in ("old", "new"):
                within = np.tile(columns[f"{side}.there"], (len(points), 1)) & ~np.isnan(part)
                for i in range(self.dimensions):
                    place = columns[f"{side}.{i}"]
                    within &= (low[:, i] <= place) & (place <= high[:, i])
                if self.partitioned:
                    within &= part == columns[f"{side}.part"]
                hit |= within
        return np.asarray(hit.any(axis=0))


QUESTIONS = (
    Question(1, "rectangles", 1, False),
    Question(2, "rectangles", 1, True),
    Question(3, "places", 1, False),
    Question(4, "places", 2, True),
    Question(5, "places", 0, False),
    Question(6, "places", 0, True),
)
