"""REAL: a cache of rows by temperature, which daily temperatures refer to (figures 3.14, 3.16, 3.17)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hullcast.network.wire.arrays import Ints
from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.studies.caching.configurations import CITED, HEEB, LRU, RACED, RAND, ratio_claim
from hullcast.sim.experiments.studies.caching.curves import Surface
from hullcast.sim.experiments.studies.caching.models import Autoregressive
from hullcast.sim.experiments.studies.caching.policy import Heeb, MemoryPolicy, RacedHeeb
from hullcast.sim.experiments.studies.caching.rivals import Lfd, Lru, Prob, Rand
from hullcast.sim.experiments.studies.caching.simulated import simulate_cache
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BLUE, GREEN, GREY, INK, ORANGE, BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, number
from hullcast.sim.seeds import generator

#: What `--data` must hold: a header, then lines of a date and a temperature.
FILE = "daily-min-temperatures.csv"
LFD, LFU, EXACT = "LFD", "LFU", "HEEB, exact surface"
POLICIES = (LFD, HEEB, EXACT, RACED, LRU, LFU, RAND)
MEMORIES = (10, 25, 50, 75, 100, 150, 200, 250, 300)
#: "As much as 20 %", with some room; and how close 25 control points should be to the exact surface.
MUCH, SAME = 1.15, 0.98
LOOK = {LFD: (INK, "D"), HEEB: (GREEN, "o"), EXACT: (GREEN, "x"), RACED: (GREEN, "^"), LRU: (GREY, "s"),
        LFU: (ORANGE, "^"), RAND: (BLUE, "s")}  # fmt: skip

#: Temperatures in tenths of a degree; none: they were not given.
Temperatures = tuple[int, ...]


def temperatures(folder: Path) -> Temperatures:
    """Those in the file; UsageError if it is missing or damaged."""
    path = folder / FILE
    if not path.is_file():
        raise UsageError(f"--data {folder}: {FILE} not found; leave out --data to run without real data")
    try:
        lines = path.read_text("utf-8").splitlines()[1:]
        return tuple(round(10 * float(line.rpartition(",")[2].strip('" '))) for line in lines if line.strip())
    except ValueError as error:
        raise UsageError(f"{path}: each line must hold a date and a temperature: {error}") from error


def fitted_ar1(references: Ints) -> Autoregressive:
    """AR(1) by least squares, which for normal noise is the maximum likelihood."""
    factor, constant = np.polyfit(references[:-1], references[1:], 1)
    noise = references[1:] - factor * references[:-1] - constant
    return Autoregressive(float(factor), float(constant), float(noise.std()))


def points(quick: bool, data: Temperatures = ()) -> list[dict[str, Any]]:
    """Every policy with every memory; none without the data."""
    return grid(memory=MEMORIES[::4] if quick else MEMORIES, policy=POLICIES) if data else []


def measure(point: GridPoint, seed: int, data: Temperatures = ()) -> dict[str, float]:
    """Refer to all, and count hits after the first 4 x memory."""
    references = np.array(data, np.int64)
    memory = point["memory"]
    hits = simulate_cache(_policy(point["policy"], references, memory, seed), references, memory)
    return {"hits": int(hits[4 * memory :].sum()), "hit rate": float(hits[4 * memory :].mean())}


def _policy(name: str, references: Ints, memory: int, seed: int) -> MemoryPolicy:
    if name in (HEEB, EXACT):
        surface = Surface(fitted_ar1(references), float(memory), caching=True, points=5 if name == HEEB else 0)
        return Heeb(surface)
    if name == RACED:
        return RacedHeeb(fitted_ar1(references), None, memory, caching=True)
    if name == LFD:
        return Lfd(references)
    return {LRU: Lru(), LFU: Prob(), RAND: Rand(generator(seed, "caching", "REAL", memory))}[name]


def sections(found: Sweep, folder: Path, data: Temperatures = ()) -> list[Section]:
    """One."""
    picture = folder / "caching-real.png"
    panels = [
        Panel(title, [
            BandCurve(name, found.along("memory", metric, policy=name), *LOOK[name], thin=name in (EXACT, RACED))
            for name in POLICIES
        ], metric)
        for metric, title in (("hit rate", "share of references that hit"),)
    ]  # fmt: skip
    draw_panels([panels], picture, title="REAL: hits by memory", x_label="memory, in rows", y_log=False)
    memories = sorted(found.all_of("memory"))
    table = [["hits, memory =", *map(str, memories)]]
    table += [
        [name, *(number(found.middle("hits", policy=name, memory=each)) for each in memories)] for name in POLICIES
    ]
    for name in (LRU, LFU):
        for mine in (HEEB, RACED):
            ratios = [factor(_times(found, name, each, mine)) for each in memories]
            table.append([f"({mine}) / {name}", *ratios])
    model = fitted_ar1(np.array(data, np.int64)) if data else None
    told = (
        f" As AR(1), fitted to all: X_t = {model.factor:.2f} X_(t-1) + {model.constant / 10:.2f} + N(0, "
        f"{model.sd / 10:.2f}) in degrees; {len(set(data))} different temperatures."
        if model
        else ""
    )
    return [
        Section(
            "caching-real",
            "REAL: a cache of rows by temperature",
            f"{len(data):,} daily temperatures of Melbourne.{told} The thesis has 0.72, 5.59 and 4.22: its "
            "temperatures are the daily maxima, as it seems, and these are the minima.",
            "all heuristics perform reasonably well, with HEEB leading the pack and beating LRU and LFU by as much as "
            "20 % for certain memory sizes; a surface of 25 control points is satisfactory.",
            found.judged(_claims),
            pictures={"Hit rate by memory, a line for each policy": picture},
            figures=[table],
            notes=["Only RAND depends on the seed."],
            cited=CITED,
        )
    ]


def _times(found: Sweep, rival: str, memory: int, mine: str = HEEB) -> float:
    ours, theirs = (found.middle("hits", policy=name, memory=memory) for name in (mine, rival))
    return ours / theirs if theirs else 1.0


def _claims(found: Sweep) -> list[Claim]:
    memories = [memory for memory in found.all_of("memory") if memory <= 200]  # beyond, the cache holds nearly all
    judged = []
    for mine in (HEEB, EXACT, RACED):
        for rival in (RAND, LRU, LFU):
            ratios = {memory: _times(found, rival, memory, mine) for memory in memories}
            least = min(ratios, key=lambda memory: ratios[memory])
            judged.append(
                ratio_claim(mine, f"has at least as many hits as {rival}, up to a memory of 200", ratios[least],
                            ratios[least] >= 1.0, "alpha = memory looks too far ahead for a small cache",
                            detail=f"at {least}")
            )  # fmt: skip
        for rival in (LRU, LFU):
            most = max(_times(found, rival, memory, mine) for memory in memories)
            judged.append(
                ratio_claim(mine, f"has {MUCH:g}x the hits of {rival} or more, at the memory where it gains most",
                            most, most >= MUCH, "these temperatures are not those of the thesis")
            )  # fmt: skip
    close = min(_times(found, EXACT, memory) for memory in memories)
    judged.append(
        ratio_claim(
            HEEB,
            f"has with 25 points at least {SAME:g}x the hits of the exact surface",
            close,
            close >= SAME,
            "five points over six deviations are too coarse for a small cache",
        )
    )
    return judged
