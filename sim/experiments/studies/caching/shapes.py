"""What tuples are worth, drawn: ECBs under trends (figures 3.3, 3.5, 3.6), H on walks (3.7), and noise (3.8)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from hullcast.network.wire.arrays import Floats
from hullcast.sim.experiments.studies.caching.benefit import caching_benefit, dominates, joining_benefit
from hullcast.sim.experiments.studies.caching.configurations import BOUNDS, CITED, FLOOR, NOISE, ROOF, TOWER
from hullcast.sim.experiments.studies.caching.curves import WalkCurve
from hullcast.sim.experiments.studies.caching.models import LinearTrend, RandomWalk, normal_chances
from hullcast.sim.experiments.study import GridPoint, Sweep
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section

ECB, CACHED, JOINED, WALKED, SHAPE = "3.3", "3.5", "3.6", "3.7", "3.8"
#: How many places a curve has, and where its first one is: a step ahead, or an offset.
PLACES, FIRST = 41, {ECB: 1, CACHED: 1, JOINED: 1, WALKED: -10, SHAPE: -20}
OF_R, OF_S = BOUNDS
#: The tuples of figure 3.3: x is where S is about to be, S has almost passed y, and is yet to come to z.
TUPLES = {"x": 1, "y": -2, "z": 6}
DRIFTS, MEMORY = (0, 2, 4), 10
#: Of figures 3.5 and 3.6 all tuples are measured, and these drawn.
DRAWN = {CACHED: [("R", v) for v in (-8, -4, 0, 5, 10)], JOINED: [("R", -5), ("R", 8), ("S", -5), ("S", 8), ("S", 14)]}


def points(quick: bool) -> list[dict[str, Any]]:
    """A point for each curve: the stream of the tuple, or what is drawn, and the tuple's value."""
    shown: list[tuple[str, str, int]] = [(ECB, name, value) for name, value in TUPLES.items()]
    shown += [(CACHED, "R", value) for value in range(-OF_R, OF_R + 1)]
    shown += [(JOINED, "R", value) for value in range(-OF_S - 1, OF_R + 1)]
    shown += [(JOINED, "S", value) for value in range(-OF_R - 1, OF_S + 1)]
    shown += [(WALKED, "drift", drift) for drift in DRIFTS] + [(SHAPE, name, 0) for name in (TOWER, ROOF, FLOOR)]
    return [{"figure": figure, "curve": curve, "value": value} for figure, curve, value in shown]


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """The curve at its places. Chance has no part."""
    figure, curve, value = point["figure"], point["curve"], point["value"]
    at, values = FIRST[figure] + np.arange(PLACES), np.array([value])
    if figure == SHAPE:
        found = NOISE[curve][1].of(at)
    elif figure == WALKED:
        walk = RandomWalk(normal_chances(1.0).moved(value))
        found = WalkCurve(walk, float(MEMORY), caching=True).of(at, 0, 0)
    elif figure == CACHED:
        found = caching_benefit(LinearTrend(1, 0, NOISE[FLOOR][0]), values, PLACES, 0)[0]
    else:  # tuples of R wait for S
        noise = NOISE[TOWER][1] if figure == ECB else NOISE[FLOOR][1 if curve == "R" else 0]
        found = joining_benefit(LinearTrend(1, 0, noise), values, PLACES, 0)[0]
    return {f"{place}": float(each) for place, each in enumerate(found)}


#: Curves by name and value.
Curves = dict[tuple[str, int], Floats]


def _curves(found: Sweep, figure: str) -> Curves:
    rows = found.where(figure=figure, seed=found.seeds[0]).rows
    return {(row["curve"], row["value"]): np.array([row[f"{place}"] for place in range(PLACES)]) for row in rows}


def _panel(
    title: str, curves: Curves, figure: str, y_label: str, names: Iterable[tuple[str, tuple[str, int]]]
) -> Panel:
    return Panel(title, [
        BandCurve(name, [(FIRST[figure] + place, [each]) for place, each in enumerate(curves[key])], mark=" ")
        for name, key in names
    ], y_label)  # fmt: skip


def sections(found: Sweep, folder: Path) -> list[Section]:
    """Three: benefits, walks, and noise."""
    of = {figure: _curves(found, figure) for figure in FIRST}
    panels = [_panel("3.3: joined with S, normal noise", of[ECB], ECB, "expected results until then",
                     [(f"{name} = {value}", (name, value)) for name, value in TUPLES.items()])]  # fmt: skip
    for figure, title in ((CACHED, "3.5: cached, uniform noise"), (JOINED, "3.6: joined, uniform noise")):
        names = [
            (f"{side} {value}" if figure == JOINED else f"{value}", (side, value)) for side, value in DRAWN[figure]
        ]
        panels.append(_panel(title, of[figure], figure, "", names))
    return [
        Section(
            "caching-benefit",
            "Expected cumulative benefit of tuples",
            f"A trend that is at 0 and rises by 1 a step; noise of R within {OF_R} and of S within {OF_S}.",
            "ECBs of x and y are comparable, those of x and z are not (3.3); of cached tuples the larger value "
            "dominates (3.5); of joined ones those of one category are comparable, and between R2 and S2 the one "
            "dominates, or they are not (3.6).",
            [*_example(of[ECB]), *_cached(of[CACHED]), *_joined(of[JOINED])],
            pictures={
                "Benefit by steps ahead, a line for each tuple": draw_panels(
                    [panels], folder / "caching-benefit.png", title="ECBs, by the value of the tuple", y_log=False,
                    x_label="steps ahead",
                )
            },
            cited=CITED,
            items=("Figure 3.3", "Figure 3.5", "Figure 3.6", "Appendix A.15", "Appendix A.16"),
        ),
        Section(
            "caching-walk",
            "What HEEB believes on random walks",
            f"Normal steps of variance 1, a drift of 0, 2 and 4, a cache of {MEMORY}.",
            "without drift HEEB agrees with the optimum, which drops what is farthest away; a larger drift makes "
            "tuples to the right more desirable, and those away by a multiple of the drift a bit more.",
            _walked(of[WALKED]),
            pictures={
                "H by the distance from the walk, a line for each drift": draw_panels(
                    [[_panel("", of[WALKED], WALKED, "H",
                             [(f"drift {drift}", ("drift", drift)) for drift in DRIFTS])]],
                    folder / "caching-walk.png", title="H on random walks", y_log=False,
                    x_label="value less where the walk is",
                )
            },
            cited=CITED,
            items=("Figure 3.7",),
        ),
        Section(
            "caching-noise",
            "Noise",
            "Of S; that of R is within 10, with two thirds of the standard deviations or half of them.",
            "", [],
            pictures={
                "Chances of noise, a line for each configuration": draw_panels(
                    [[_panel("", of[SHAPE], SHAPE, "chance", [(name, (name, 0)) for name in (TOWER, ROOF, FLOOR)])]],
                    folder / "caching-noise.png", title="Noise of S", y_log=False, x_label="off the trend by",
                )
            },
            cited=CITED,
            items=("Figure 3.8",),
        ),
    ]  # fmt: skip


def _example(of: Curves) -> list[Claim]:
    x, y, z = (of[item] for item in TUPLES.items())
    given = "we chose values such that it is so"
    return [
        Claim("", "x is above y everywhere", f"{x[0]:.2f} and {y[0]:.2f} at first", bool((x > y).all()),
              construction=given, item="Figure 3.3", paper="comparable"),
        Claim("", "x and z cross", f"{x[-1]:.2f} and {z[-1]:.2f} in the end", _cross(x, z), construction=given,
              item="Figure 3.3", paper="incomparable"),
    ]  # fmt: skip


def _cross(one: Floats, other: Floats) -> bool:
    return not (dominates(one, other, slack=1e-12) or dominates(other, one, slack=1e-12))


def _all(statement: str, right: list[bool], item: str, paper: str) -> Claim:
    return Claim("", statement, f"{sum(right):,} of {len(right):,}", all(right), item=f"Figure {item}", paper=paper)


def _cached(of: Curves) -> list[Claim]:
    each = 1.0 / (2 * OF_R + 1)
    at = np.arange(1, PLACES + 1)
    told = {value: 1.0 - (1.0 - each) ** np.minimum(at, value + OF_R) for _, value in of}
    return [
        _all("of two tuples the one of larger value dominates, all pairs",
             [dominates(of[high], of[low], slack=1e-12) for low, high in combinations(sorted(of), 2)],
             CACHED, "discard the smallest value"),
        _all("the ECB is 1 - (1 - 1 / (2 w + 1))^dt until the window has passed, every tuple",
             [np.allclose(curve, told[value]) for (_, value), curve in of.items()], CACHED, "Section 3.5.3"),
    ]  # fmt: skip


def _joined(of: Curves) -> list[Claim]:
    """By category; appendix A.15 has the ECBs in closed form."""
    categories: dict[str, list[tuple[str, int]]] = {}
    told: Curves = {}
    at = np.arange(1, PLACES + 1)
    for side, value in of:
        mine, other = (OF_R, OF_S) if side == "R" else (OF_S, OF_R)
        passed, ahead = value <= -other, side == "S" and value > other + 1
        name = f"{side}{1 if passed else 3 if ahead else 2}"
        categories.setdefault(name, []).append((side, value))
        steps = np.minimum(at, value + other) - (value - other - 1 if ahead else 0)
        told[side, value] = np.maximum(steps, 0) / (2 * other + 1)
        assert value <= mine, "none shows larger values now"
    pairs = list(product(categories["R2"], categories["S2"]))
    return [
        _all("tuples of R1 and S1 have no benefit left",
             [not of[key].any() for key in categories["R1"] + categories["S1"]], JOINED, "zero ECBs"),
        _all("of two tuples of R2, S2 or S3 one dominates, all pairs",
             [not _cross(of[one], of[other])
              for name in ("R2", "S2", "S3") for one, other in combinations(categories[name], 2)],
             JOINED, "comparable"),
        _all("a tuple of S2 dominates one of R2 if it has more in the end, else they cross, all pairs",
             [_cross(of[x], of[y]) != (of[y][-1] >= of[x][-1] - 1e-12) for x, y in pairs], JOINED,
             "incomparable otherwise"),
        _all("ECBs are as in appendix A.15, every tuple", [np.allclose(of[key], told[key]) for key in of], JOINED,
             "closed forms"),
    ]  # fmt: skip


def _walked(of: Curves) -> list[Claim]:
    at = FIRST[WALKED] + np.arange(PLACES)
    still = of["drift", 0]
    falls = [bool((np.diff(part) < 0).all()) for part in (still[at >= 0][:11], still[at <= 0][::-1])]
    centres = [float(of["drift", drift] @ at / of["drift", drift].sum()) for drift in DRIFTS]
    judged = [
        Claim("", "without drift H falls with the distance on both sides", "it does" if all(falls) else "it does not",
              all(falls), item="Figure 3.7", paper="agrees with the optimal algorithm"),
        Claim("", "the centre of H is farther to the right with a larger drift",
              ", ".join(f"{each:.1f}" for each in centres), centres == sorted(centres) and centres[0] < centres[-1],
              item="Figure 3.7", paper="more desirable to the right"),
    ]  # fmt: skip
    for drift in DRIFTS[1:]:
        curve = of["drift", drift]
        peaks = [int(x) for x in at[1:-1] if curve[x - at[0]] > max(curve[x - at[0] - 1], curve[x - at[0] + 1])]
        judged.append(
            Claim("", f"with a drift of {drift} H has peaks at {drift} and {2 * drift}",
                  f"at {', '.join(map(str, peaks))}", {drift, 2 * drift} <= set(peaks),
                  "by then the steps have spread as far as the drift carried it", item="Figure 3.7",
                  paper="additional preference")
        )  # fmt: skip
    return judged
