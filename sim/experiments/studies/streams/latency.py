"""What a latency bound costs in memory: Chain with a bound, by the bound.

Bounds are multiples of FIFO's longest latency, the lowest that any policy could keep for all tuples of that load.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hullcast.broker.streams.policies.bounded_chain import RESERVE, BoundedChain
from hullcast.sim.experiments.studies.streams.overdue import Overdue
from hullcast.sim.experiments.studies.streams.workload import (
    BURSTS,
    CHAIN,
    ETHERNET,
    FIFO,
    FOUR,
    FRACTION,
    TOGETHER,
    UDP,
    Traces,
    load_of,
    metrics,
    policy_of,
    sources_of,
)
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section, ratio_claim
from hullcast.sim.output.text import factor, number

#: Bounds, as multiples of FIFO's longest latency; PROMISED is the least that is kept whatever comes.
PROMISED = 1 / (1 - RESERVE)
BOUNDS = (0.25, 0.5, 0.75, 0.9, PROMISED, 1.1, 1.25, 1.5, 2.0, 3.0)
QUICK_BOUNDS = (0.5, PROMISED, 1.5, 3.0)
RULES = {"spare": BoundedChain, "overdue": Overdue}
#: "Costs little", "saves half", "as much": limits of our own statements, as factors.
LITTLE, HALF, SAME = 1.25, 0.5, 1.1


def points(quick: bool, traces: Traces = ()) -> list[dict[str, Any]]:
    """Both rules at every bound."""
    sizes = (
        {BURSTS: 10_000, ETHERNET: 20_000, UDP: 20_000} if quick else {BURSTS: 40_000, ETHERNET: 40_000, UDP: 40_000}
    )
    return [
        point
        for source in (BURSTS, *(trace.name for trace in traces))
        for point in grid(
            query=(FOUR, TOGETHER), source=[source], tuples=[sizes[source]],
            times=QUICK_BOUNDS if quick else BOUNDS, rule=RULES,
        )
    ]  # fmt: skip


def measure(point: GridPoint, seed: int, traces: Traces = ()) -> dict[str, float]:
    """Let bounded Chain run one load, and FIFO and Chain beside it."""
    load = load_of(point["query"], point["source"], point["tuples"], FRACTION, seed, traces)
    how = partial(load.run, heartbeats=True)
    fifo, chain = how(policy_of(FIFO)), how(policy_of(CHAIN))
    bound = point["times"] * float(np.nanmax(fifo.latency))
    found = how(RULES[point["rule"]](bound))
    return {
        **metrics(load, found),
        "bound": bound,
        "late": float(np.mean(found.latency > bound)),
        "lateness": float(np.nanmax(found.latency)) / bound,
        "chain late": float(np.mean(chain.latency > bound)),
        "fifo late": float(np.mean(fifo.latency > bound)),
        **{f"{name} {what}": value for name, run in (("fifo", fifo), ("chain", chain)) for what, value in (
            ("peak", run.peak), ("average", run.area / load.span), ("longest", float(np.nanmax(run.latency))))},
    }  # fmt: skip


def sections(found: Sweep, folder: Path, traces: Traces = ()) -> list[Section]:
    """One."""
    queries, sources = found.all_of("query"), sources_of(found.all_of("source"))
    return [
        Section(
            "streams-bound",
            "What a latency bound costs",
            "Bounds are multiples of FIFO's longest latency. Tuples shrink by the selectivities; joins know how far "
            "their streams are (heartbeats), so that no tuple waits for what nobody can hasten. *spare* is the rule of "
            "bounded-chain: Chain, unless a tuple has no time to spare. *overdue*: Chain, unless a tuple is older than "
            "the bound. Memory is a multiple of Chain's average.",
            "",
            found.judged(_claims),
            pictures={
                f"Average memory and longest latency by the bound: {query}": _picture(found, folder, query)
                for query in queries
            },
            figures=[_table(found, query, source) for query in queries for source in sources],
            notes=[
                "Below FIFO's longest latency no policy keeps the bound for all: then bounded-chain runs old tuples "
                "first, and becomes FIFO as the bound goes down."
            ],
        )
    ]


def _picture(found: Sweep, folder: Path, query: str) -> Path:
    sources = sources_of(found.where(query=query).all_of("source"))

    def curve(source: str, rule: str, above: str, below: str) -> BandCurve:
        at = found.where(query=query, source=source, rule=rule)
        points = []
        for times in sorted(at.all_of("times")):
            here = at.where(times=times)
            points.append((times, _ratios(here, above, below)))
        return BandCurve(rule, points)

    def fifo(source: str) -> float:
        return median(_ratios(found.where(query=query, source=source), "fifo average", "chain average"))

    rows = [
        [
            Panel(source, [curve(source, rule, "average", "chain average") for rule in RULES],
                  "average memory / Chain's" if source == sources[0] else "", level=(fifo(source), "FIFO"))
            for source in sources
        ],
        [
            Panel("", [curve(source, rule, "latency longest", "bound") for rule in RULES],
                  "longest latency / bound" if source == sources[0] else "", level=(1.0, "kept"))
            for source in sources
        ],
    ]  # fmt: skip
    return draw_panels(
        rows, folder / f"streams-bound-{query}.png", title=f"A latency bound for Chain: {query}",
        x_label="bound / FIFO's longest latency (log)", x_log=True, y_log=False, share_y=False,
    )  # fmt: skip


def _ratios(found: Sweep, above: str, below: str) -> list[float]:
    """Row by row."""
    return [a / b for a, b in zip(found.values(above), found.values(below), strict=True)]


def _table(found: Sweep, query: str, source: str) -> list[list[str]]:
    at = found.where(query=query, source=source)
    header = [f"{query}, {source}", "bound", "peak", "average", "longest latency / bound", "later than the bound"]
    rows = [header]
    for rule in RULES:
        for times in sorted(at.all_of("times")):
            here = at.where(times=times, rule=rule)
            rows.append([
                rule, f"{times:.3g}x", factor(median(_ratios(here, "peak", "chain peak"))),
                factor(median(_ratios(here, "average", "chain average"))), factor(here.middle("lateness")),
                f"{100 * here.middle('late'):.1f} %",
            ])  # fmt: skip
    one = at.where(times=max(at.all_of("times")), rule="spare")
    for name in (FIFO, CHAIN):
        rows.append([
            name, "", factor(median(_ratios(one, f"{name} peak", "chain peak"))),
            factor(median(_ratios(one, f"{name} average", "chain average"))),
            f"longest: {number(one.middle(f'{name} longest'))}", "",
        ])  # fmt: skip
    return rows


def _claims(found: Sweep) -> list[Claim]:
    claims = []
    for query in found.all_of("query"):
        for source in sources_of(found.where(query=query).all_of("source")):
            mine = found.where(query=query, source=source)
            late = max(mine.middle("lateness", rule="spare", times=times) for times in _kept(mine))
            at = mine.where(times=PROMISED)
            overdue = at.middle("lateness", rule="overdue")
            saved = at.middle("average", rule="spare") / at.middle("fifo average")
            peak = at.middle("peak", rule="spare") / at.middle("chain peak")
            dearer = _dearer(mine)
            claims += [
                ratio_claim(query, "spare keeps every bound from 32/31 of FIFO's longest latency on (longest / bound)",
                            late, late <= 1, "an operator takes longer for one tuple than the reserve", source),
                ratio_claim(query, "overdue breaks the bound of 32/31", overdue, overdue > 1,
                            "bursts are short enough for Chain itself", source),
                ratio_claim(query, f"at 32/31 spare needs at most {HALF:g}x the average memory of FIFO", saved,
                            saved <= HALF, "most tuples of a long burst have hardly any time to spare", source),
                ratio_claim(query, f"at 32/31 spare has a peak of at most {LITTLE:g}x Chain's", peak, peak <= LITTLE,
                            "the bound bites while the burst lasts", source),
                ratio_claim(query, f"spare needs at most {SAME:g}x the average memory of overdue, at the longest "
                            "latency that overdue comes to", dearer, dearer <= SAME, "it hurries sooner", source),
            ]  # fmt: skip
    return claims


def _kept(found: Sweep) -> list[float]:
    return [times for times in found.all_of("times") if times >= PROMISED]


def _dearer(found: Sweep) -> float:
    """Average memory of spare / of overdue at the longest latencies that overdue has, in the median; between the bounds
    that were run, memory of spare is interpolated."""

    def along(rule: str) -> list[tuple[float, float]]:
        return sorted(
            (found.middle("lateness", rule=rule, times=times) * times, found.middle("average", rule=rule, times=times))
            for times in found.all_of("times")
        )

    spare, overdue = along("spare"), along("overdue")
    ratios = [
        float(np.interp(latency, [at for at, _ in spare], [memory for _, memory in spare])) / memory
        for latency, memory in overdue
        if spare[0][0] < latency < spare[-1][0]
    ]
    return float(np.median(ratios)) if ratios else 1.0
