"""Loading feeds: staleness, stretch and weighted staleness against the bounds of Bateni et al. (2009)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hullcast.sim.experiments.claims import Section
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.seeds import generator

CITED = "Bateni, Golab, Hajiaghayi and Karloff, Scheduling to Minimize Staleness and Stretch (2009)"
WORDS: Mapping[str, str] = {
    "LOW": "the sum of squared lengths of all updates; no schedule has less total staleness than LOW/2",
}


def points(quick: bool) -> list[dict[str, Any]]:
    """How many tables there are."""
    return grid(tables=[8, 32], updates=[100 if quick else 1_000])


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """LOW of updates drawn at random."""
    lengths = generator(seed, "lengths").uniform(0.5, 1.0, (point["tables"], point["updates"]))
    return {"LOW": float(np.square(lengths).sum())}


def sections(found: Sweep, folder: Path) -> list[Section]:
    """The lower bound."""
    rows = [["tables", "LOW"], *([str(n), f"{found.middle('LOW', tables=n):,.0f}"] for n in found.all_of("tables"))]
    return [Section("feeds", "Loading feeds", "Lengths from 0.5 to 1.", "", [], figures=[rows], cited=CITED)]
