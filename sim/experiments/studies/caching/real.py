"""REAL: a cache of rows by temperature, which daily temperatures refer to (figures 3.14, 3.16, 3.17)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.studies.caching.configurations import CITED, HEEB, LRU, RACED, RAND, ratio_claim
from hullcast.sim.experiments.studies.caching.curves import Surface
from hullcast.sim.experiments.studies.caching.models import Autoregressive
from hullcast.sim.experiments.studies.caching.pictures import draw_surfaces
from hullcast.sim.experiments.studies.caching.policy import Heeb, MemoryPolicy, RacedHeeb
from hullcast.sim.experiments.studies.caching.rivals import Lfd, Lru, Prob, Rand
from hullcast.sim.experiments.studies.caching.simulated import simulate_cache
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BLUE, GREEN, GREY, INK, ORANGE, BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, number
from hullcast.sim.seeds import generator

MAXIMA, MINIMA = "maxima", "minima"
#: What `--data` must hold: a header, then lines of a date and a temperature. The thesis has the maxima.
FILES = {MAXIMA: "daily-max-temperatures.csv", MINIMA: "daily-min-temperatures.csv"}
LFD, LFU, EXACT = "LFD", "LFU", "HEEB, exact surface"
POLICIES = (LFD, HEEB, EXACT, RACED, LRU, LFU, RAND)
MEMORIES = (10, 25, 50, 75, 100, 150, 200, 250, 300)
#: The same for all memories, so that their hits can be compared.
WARM = 4 * max(MEMORIES)
#: Limits of verdicts: "reasonably well", "as much as 20 %", "satisfactory", and the last digit of what is fitted.
WELL, MOST, SAME, DIGIT = 0.8, (1.15, 1.25), 0.98, 0.015
FITTED = (0.72, 5.59, 4.22)
#: The memory whose surface is drawn, and how far 25 points may be off its highest point.
DRAWN, OFF = 100, 0.1
LOOK = {LFD: (INK, "D"), HEEB: (GREEN, "o"), EXACT: (GREEN, "x"), RACED: (GREEN, "^"), LRU: (GREY, "s"),
        LFU: (ORANGE, "^"), RAND: (BLUE, "s")}  # fmt: skip

#: By series, in tenths of a degree; none: they were not given.
Temperatures = Mapping[str, tuple[int, ...]]
NONE: Temperatures = {}


def temperatures(folder: Path) -> Temperatures:
    """Those in the files; UsageError if one is missing or damaged."""
    return {series: _column(folder, name) for series, name in FILES.items()}


def _column(folder: Path, name: str) -> tuple[int, ...]:
    path = folder / name
    if not path.is_file():
        raise UsageError(f"--data {folder}: {name} not found; leave out --data to run without real data")
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


def points(quick: bool, data: Temperatures = NONE) -> list[dict[str, Any]]:
    """Every policy with every memory; none without the data."""
    memories = MEMORIES[::4] if quick else MEMORIES
    return grid(series=tuple(FILES), memory=memories, policy=POLICIES) if data else []


def measure(point: GridPoint, seed: int, data: Temperatures = NONE) -> dict[str, float]:
    """Refer to all, and count hits after the warm-up."""
    references = np.array(data[point["series"]], np.int64)
    memory = point["memory"]
    hits = simulate_cache(_policy(point["policy"], references, memory, seed), references, memory)[WARM:]
    return {"hits": int(hits.sum()), "hit rate": float(hits.mean())}


def surface_of(references: Ints, memory: int, points: int) -> Surface:
    """H as HEEB believes it, with control points over the domain of the temperatures; 0: at every place."""
    domain = (float(references.min()), float(references.max()))
    return Surface(fitted_ar1(references), float(memory), caching=True, points=points, domain=domain)


def _policy(name: str, references: Ints, memory: int, seed: int) -> MemoryPolicy:
    if name in (HEEB, EXACT):
        return Heeb(surface_of(references, memory, 5 if name == HEEB else 0))
    if name == RACED:
        return RacedHeeb(fitted_ar1(references), None, memory, caching=True)
    if name == LFD:
        return Lfd(references)
    return {LRU: Lru(), LFU: Prob(), RAND: Rand(generator(seed, "caching", "REAL", memory))}[name]


def sections(found: Sweep, folder: Path, data: Temperatures = NONE) -> list[Section]:
    """Two: hits, and the surface."""
    series = {name: np.array(values, np.int64) for name, values in data.items()}
    panels = [
        Panel(f"daily {name}", [
            BandCurve(policy, found.along("memory", "hit rate", series=name, policy=policy), *LOOK[policy],
                      thin=policy in (EXACT, RACED))
            for policy in POLICIES
        ], "share of references that hit" if name == MAXIMA else "")
        for name in series
    ]  # fmt: skip
    picture = draw_panels(
        [panels], folder / "caching-real.png", title="REAL: hits by memory", x_label="memory, in rows", y_log=False
    )
    memories = sorted(found.all_of("memory"))
    tables = []
    for name in series:
        table = [[f"hits, {name}, memory =", *map(str, memories)]]
        for policy in POLICIES:
            row = [found.middle("hits", series=name, policy=policy, memory=each) for each in memories]
            table.append([policy, *map(number, row)])
        for mine in (HEEB, RACED):
            for rival in (LRU, LFU):
                ratios = [_times(found.where(series=name), rival, each, mine) for each in memories]
                table.append([f"({mine}) / {rival}", *map(factor, ratios)])
        tables.append(table)
    fits = {name: _fit(values) for name, values in series.items()}
    told = "; ".join(
        f"daily {name}: {len(series[name]):,}, {len(set(data[name]))} different ones, "
        f"X_t = {a:.2f} X_(t-1) + {c:.2f} + N(0, {sd:.2f}) in degrees"
        for name, (a, c, sd) in fits.items()
    )
    return [
        Section(
            "caching-real",
            "REAL: a cache of rows by temperature",
            f"Temperatures of Melbourne, {told}. The thesis has the maxima, and the minima are a control. Hits are "
            f"those after {WARM:,} references.",
            "all heuristics perform reasonably well, as evidenced by the small gap between RAND and LFD, with HEEB "
            "leading the pack and beating LRU and LFU by as much as 20 % for certain memory sizes.",
            [_right_series(fits[MAXIMA]), *found.judged(_claims)],
            pictures={"Hit rate by memory, a panel for each series, a line for each policy": picture},
            figures=tables,
            notes=["Only RAND depends on chance."],
            cited=CITED,
            items=("Figure 3.14", "Section 3.7.5"),
        ),
        _surface(found.where(series=MAXIMA), series[MAXIMA], folder),
    ]


def _fit(references: Ints) -> tuple[float, float, float]:
    model = fitted_ar1(references)
    return model.factor, model.constant / 10, model.sd / 10


def _right_series(fit: tuple[float, float, float]) -> Claim:
    off = max(abs(ours - theirs) for ours, theirs in zip(fit, FITTED, strict=True))
    return Claim("", "AR(1) fitted to the maxima has the numbers of the thesis, but for a last digit",
                 ", ".join(f"{each:.2f}" for each in fit), off < DIGIT, "these are other temperatures", value=off,
                 item="Section 3.7.5", paper=", ".join(map(str, FITTED)))  # fmt: skip


def _surface(found: Sweep, references: Ints, folder: Path) -> Section:
    across = np.linspace(references.min(), references.max(), 41).round()
    drawn: dict[str, Floats] = {}
    for name, control in (("actual (3.16)", 0), ("from 25 control points (3.17)", 5)):
        surface = surface_of(references, DRAWN, control)
        drawn[name] = np.stack([surface.of(across.astype(np.int64), 0, int(last)) for last in across])
    picture = draw_surfaces(
        drawn, across / 10, across / 10, folder / "caching-surface.png", x_label="temperature of the row",
        y_label="temperature now", title=f"H of rows, memory {DRAWN}",
    )  # fmt: skip
    exact, near = drawn.values()
    off = float(np.abs(near - exact).max() / exact.max())
    close = {memory: _times(found, EXACT, memory) for memory in found.all_of("memory")}
    least = min(close, key=lambda memory: close[memory])
    return Section(
        "caching-surface",
        "The surface of HEEB on REAL, and its approximation",
        f"H by the temperature of the row and that of today, control points over all temperatures of the series; drawn "
        f"for a memory of {DRAWN}.",
        "bicubic interpolation of 25 control points is satisfactory in terms of space, speed and accuracy.",
        [
            ratio_claim(HEEB, f"has with 25 points at least {SAME:g}x the hits of the exact surface, at every memory",
                        close[least], close[least] >= SAME, "five points over all temperatures are too coarse",
                        detail=f"at {least}", item="Section 3.7.5", paper="satisfactory"),
            Claim(HEEB, f"its surface from 25 points is nowhere off by more than {OFF:.0%} of the highest",
                  f"{off:.0%}", off <= OFF, "the ridge is narrower than the points are apart", value=off,
                  item="Figure 3.17", paper="satisfactory"),
        ],
        pictures={"H by two temperatures: computed, and interpolated": picture},
        cited=CITED,
        items=("Figure 3.16", "Figure 3.17"),
    )  # fmt: skip


def _times(found: Sweep, rival: str, memory: int, mine: str = HEEB) -> float:
    ours, theirs = (found.middle("hits", policy=name, memory=memory) for name in (mine, rival))
    return ours / theirs if theirs else 1.0


def _claims(found: Sweep) -> list[Claim]:
    judged = []
    for name in FILES:
        some = found.where(series=name)
        item = {"item": "Figure 3.14"} if name == MAXIMA else {}
        said = item | {"paper": "leading the pack"} if item else {}
        for mine in (HEEB, RACED):
            for rival in (RAND, LRU, LFU):
                ratios = {memory: _times(some, rival, memory, mine) for memory in some.all_of("memory")}
                least = min(ratios, key=lambda memory: ratios[memory])
                judged.append(
                    ratio_claim(mine, f"has at least as many hits as {rival}, at every memory", ratios[least],
                                ratios[least] >= 0.995, "alpha = memory looks too far ahead for a small cache"
                                if mine == HEEB else "differences are small there", name, detail=f"at {least}",
                                **(said if mine == HEEB else {}))
                )  # fmt: skip
        if name == MAXIMA:
            gaps = {memory: _times(some, LFD, memory, RAND) for memory in some.all_of("memory")}
            least = min(gaps, key=lambda memory: gaps[memory])
            judged.append(
                ratio_claim(RAND, f"has {WELL:g}x the hits of LFD or more, at every memory", gaps[least],
                            gaps[least] >= WELL, "a small cache holds few of 309 temperatures", name,
                            detail=f"at {least}", paper="reasonably well, a small gap", **item)
            )  # fmt: skip
            for rival in (LRU, LFU):
                most = max(_times(some, rival, memory) for memory in some.all_of("memory"))
                low, high = MOST
                judged.append(
                    ratio_claim(HEEB, f"has {low:g}x to {high:g}x the hits of {rival} where it gains most", most,
                                low <= most <= high, "the lead is another", name, paper="as much as 20 %", **item)
                )  # fmt: skip
    return judged
