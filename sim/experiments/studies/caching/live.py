"""The join that a server runs: compiled, with windows, fitted models, and an estimate of its misses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hullcast.broker.streams.memory.bounded_join import BoundedJoin, JoinWindow, KeepBy
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.experiments.studies.caching.configurations import ratio_claim
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BLUE, GREEN, GREY, ORANGE, BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.seeds import generator

STREAMS = ("trend", "lag", "walk", "AR(1)", "skewed", "order ids")
MEMORIES = (50, 200, 1_000)
ROWS = 2_500
#: "Not behind": how much less than the best other policy HEEB may produce, where frequencies are all that there is to
#: know; and how far the estimate of the share missed may be off.
NOT_BEHIND, OFF = 0.98, 0.03
LOOK = {"HEEB": (GREEN, "o"), "LRU": (GREY, "s"), "RAND": (BLUE, "s"), "PROB": (ORANGE, "^"), "LIFE": (ORANGE, "v")}


def points(quick: bool) -> list[dict[str, Any]]:
    """Every policy with every memory."""
    return grid(
        stream=STREAMS, memory=MEMORIES[:2] if quick else MEMORIES, policy=[policy.name for policy in KeepBy],
        arrivals=[20_000 if quick else 60_000],
    )  # fmt: skip


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """Join all, in batches of a thousand; and once with all memory, for the truth."""
    sides, values, ordinals, times = arrivals(point["stream"], point["arrivals"], seed)
    window = JoinWindow(rows=ROWS)
    join = BoundedJoin(window, window, point["memory"], KeepBy[point["policy"]])
    full = BoundedJoin(window, window)
    everything = 0
    for at in range(0, len(values), 1_000):
        some = slice(at, at + 1_000)
        join.add(sides[some], values[some], ordinals[some], times[some])
        everything += len(full.add(sides[some], values[some], ordinals[some], times[some]).kept)
    told = join.statistics()
    missed = 1.0 - told.produced / everything
    return {"produced": told.produced / everything, "missed": missed, "estimate off": told.missed_share - missed}


def arrivals(stream: str, n: int, seed: int) -> tuple[Ints, Floats, Ints, Floats]:
    """Sides by chance, values on both sides by one law."""
    chance = generator(seed, "caching", "live", stream, n)
    sides = chance.integers(0, 2, n)
    ordinals = np.zeros(n, np.int64)
    for side in (0, 1):
        ordinals[sides == side] = np.arange(np.count_nonzero(sides == side))
    noise = chance.normal(0.0, 1.0, n)
    values: Floats
    if stream == "trend":
        values = ordinals + 300 * noise * (1 + sides)
    elif stream == "lag":
        values = ordinals + 20 * noise - 400 * sides
    elif stream == "walk":
        values = 3 * np.cumsum(noise) + sides * chance.normal(0.0, 2.0, n)
    elif stream == "AR(1)":
        values = np.empty(n)
        at = [0.0, 0.0]
        for place, (side, step) in enumerate(zip(sides.tolist(), noise.tolist(), strict=True)):
            at[side] = 0.9 * at[side] + 20 * step
            values[place] = 500 + at[side]
    elif stream == "skewed":
        values = np.minimum(chance.zipf(1.2, n), 20_000).astype(np.float64)
    else:
        values = np.floor(ordinals / 3.0)
    return sides, np.floor(values).astype(np.float64), ordinals, np.arange(n, dtype=np.float64)


def sections(found: Sweep, folder: Path) -> list[Section]:
    """One."""
    picture = folder / "caching-live.png"
    panels = [
        Panel(stream, [
            BandCurve(name, found.along("memory", "produced", stream=stream, policy=name), colour, mark)
            for name, (colour, mark) in LOOK.items()
        ], "share of all results" if place % 3 == 0 else "")
        for place, stream in enumerate(STREAMS)
    ]  # fmt: skip
    draw_panels(
        [panels[:3], panels[3:]], picture, title="The running join: share of all results", y_log=False, x_log=True,
        x_label="memory (log)", share_y=False,
    )  # fmt: skip
    memories = sorted(found.all_of("memory"))
    table = [["share of all results", *(f"{stream}, {each}" for stream in STREAMS for each in memories[-1:])]]
    for name in LOOK:
        shown = [found.middle("produced", stream=stream, policy=name, memory=memories[-1]) for stream in STREAMS]
        table.append([name, *(f"{each:.1%}" for each in shown)])
    off = [abs(each) for each in found.values("estimate off")]
    return [
        Section(
            "caching-live",
            "The join that a server runs",
            f"{found.rows[0]['arrivals']:,} arrivals, half of each stream, windows of {ROWS:,} rows on both sides; "
            "nothing is said of the streams, models are fitted to what comes.",
            "",
            found.judged(_claims),
            pictures={"Share of all results by memory, a panel for each kind of stream": picture},
            figures=[table],
            notes=[
                f"The estimate of the share missed is off by {np.mean(off):.2%} on average, {max(off):.2%} at most."
            ],
        )
    ]


def _claims(found: Sweep) -> list[Claim]:
    judged = []
    for stream in STREAMS:
        for memory in sorted(found.all_of("memory")):
            at = found.where(stream=stream, memory=memory)
            mine = at.middle("produced", policy="HEEB")
            others = max(at.middle("produced", policy=name) for name in LOOK if name != "HEEB")
            least = NOT_BEHIND if stream in ("skewed", "AR(1)") else 1.0
            told = "is first" if least == 1.0 else f"has at least {least:g}x of the best other"
            judged.append(
                ratio_claim("HEEB", told, mine / others, mine >= least * others,
                            "what there is to gain is less than what estimates cost", f"{stream}, memory {memory:,}")
            )  # fmt: skip
        off = max(abs(each) for each in found.values("estimate off", stream=stream))
        judged.append(
            Claim("", f"the estimate of the share missed is off by at most {OFF:g}, under every policy", f"{off:.3f}",
                  off <= OFF, "few values make up most of what is missed, and the sample may lack them",
                  workload=stream, value=off, form="{:.3f}".format)
        )  # fmt: skip
    return judged
