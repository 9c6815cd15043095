"""Memory over time: every query, every source of tuples, every policy, against the clairvoyant bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hullcast.sim.experiments.studies.streams.workload import (
    BURSTS,
    CHAIN,
    CHANCE,
    CITED,
    ETHERNET,
    FIFO,
    FOUR,
    FRACTION,
    GREEDY,
    POLICIES,
    QUERIES,
    ROUND_ROBIN,
    STORED,
    TITLES,
    TOGETHER,
    TWO,
    UDP,
    UDP_ALL,
    WINDOW,
    Traces,
    load_of,
    metrics,
    policy_of,
    sources_of,
)
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import GREY, INK, STYLES, format_axes, panels, save
from hullcast.sim.output.claims import Claim, Section, ratio_claim
from hullcast.sim.output.text import factor, number, short

#: Limits of verdicts, as factors of memory: "almost identical", "almost as well", "badly" and "much worse".
SAME, CLOSE, MUCH = 1.05, 1.25, 2.0
#: "Nearly as bad as": within so many times either way.
ALIKE = 1.5
#: Points of a line in the pictures over time, and the part of the time that they show.
DRAWN, SHOWN = 1_000, 0.15
WHAT = ("peak", "average")
RIVALS = tuple(policy for policy in POLICIES if policy != CHAIN)

#: Figures of the paper by query and source. Their numbers are lost in our copy, too: they are counted by captions.
FIGURES = {
    (TWO, UDP): "Figure 2", (TWO, BURSTS): "Figure 3", (FOUR, UDP): "Figure 4", (FOUR, BURSTS): "Figure 5",
    (STORED, BURSTS): "Figure 6", (WINDOW, UDP): "Figure 7", (WINDOW, BURSTS): "Figure 8",
    (TOGETHER, UDP): "Figure 9", (TOGETHER, BURSTS): "Figure 10",
}  # fmt: skip
LOST = "our copy has lost the digits of the charts, of the Pareto law of the bursts, and of the axes"
PAPER = {
    TWO: "Chain and Greedy are almost identical, Round-Robin is almost as good, FIFO is bad.",
    FOUR: "Greedy is bad, as it leaves the selective operator without work; FIFO and Round-Robin are nearly as bad.",
    STORED: "Greedy gives the join the lowest priority and is far worse than Chain; Round-Robin is as bad; FIFO is as "
    "before.",
    WINDOW: "Greedy and FIFO are much worse than Chain; Round-Robin compares well on real data, and does badly on "
    "synthetic data.",
    TOGETHER: "Chain beats all others by a huge margin: the more operators, the rarer does Round-Robin or FIFO run the "
    "right one.",
}


def points(quick: bool, traces: Traces = ()) -> list[dict[str, Any]]:
    """Every query with every source and policy; all of the long trace once, for the query with four operators."""
    sizes = (
        {BURSTS: 10_000, ETHERNET: 20_000, UDP: 20_000} if quick else {BURSTS: 100_000, ETHERNET: 100_001, UDP: 100_000}
    )
    found = []
    for source in (BURSTS, *(trace.name for trace in traces)):
        found += grid(query=QUERIES, source=[source], tuples=[sizes[source]], drop=(FRACTION, CHANCE), policy=POLICIES)
    if not quick:
        whole = {trace.name: len(trace) for trace in traces}
        if UDP in whole:
            found += grid(query=[FOUR], source=[UDP_ALL], tuples=[whole[UDP]], drop=[CHANCE], policy=POLICIES)
    return found


def measure(point: GridPoint, seed: int, traces: Traces = ()) -> dict[str, float]:
    """Let one policy run one load."""
    load = load_of(point["query"], point["source"], point["tuples"], point["drop"], seed, traces)
    found, rare = (load.run(policy_of(point["policy"]), whole=whole) for whole in (False, True))
    return metrics(load, found) | {"rare peak": rare.peak, "switches": rare.switches / load.tuples}


def sections(found: Sweep, folder: Path, traces: Traces = ()) -> list[Section]:
    """One for each query, one for the bounds, one for latency."""
    told = [
        Section(
            f"streams-{query.replace(' ', '-')}",
            TITLES[query],
            _setting(found, query),
            PAPER[query],
            found.judged(lambda seed, query=query: _claims(seed, query)),  # type: ignore[misc]
            pictures={"Memory over time, a line for each policy": _over_time(found, folder, query, traces)},
            figures=[_table(found, query)],
            notes=_notes(found, query),
            cited=CITED,
            items=tuple(figure for (of, _), figure in FIGURES.items() if of == query),
        )
        for query in found.all_of("query")
    ]
    return [*told, _bounds(found), _latency(found)]


def _setting(found: Sweep, query: str) -> str:
    charts = " and ".join(
        ", ".join(f"({time:g}, {size:.3g})" for time, size in zip(chart.times, chart.sizes, strict=True))
        for each in QUERIES[query]
        for chart in each.charts()
    )
    sources = ", ".join(
        f"{source} ({found.where(query=query, source=source).rows[0]['tuples']:,} tuples a stream)"
        for source in sources_of(found.where(query=query).all_of("source"))
    )
    return f"Progress charts: {charts}. Tuples: {sources}. Tuples pass by chance."


# -- pictures and tables ---------------------------------------------------------------------------------------


def _over_time(found: Sweep, folder: Path, query: str, traces: Traces) -> Path:
    """Memory of the first seed around FIFO's peak, run again here: rows hold no curves."""
    mine = found.where(query=query, drop=CHANCE)
    sources = [source for source in sources_of(mine.all_of("source")) if source != UDP_ALL]
    figure, axes_grid = panels(1, len(sources), share_x=False, share_y=False)
    for axes, source in zip(axes_grid[0], sources, strict=True):
        tuples = mine.where(source=source).rows[0]["tuples"]
        load = load_of(query, source, tuples, CHANCE, found.seeds[0], traces)
        middle = load.moments[int(np.argmax(load.run(policy_of(FIFO)).memory))]
        begin = max(0.0, middle - SHOWN / 2 * load.span)
        load = replace(load, moments=np.linspace(begin, begin + SHOWN * load.span, DRAWN))
        x = 100 * load.moments / load.span
        for name, (colour, _) in zip(POLICIES, STYLES, strict=False):
            axes.plot(x, load.run(policy_of(name)).memory, color=colour, lw=1.2, label=name)
        axes.plot(x, load.least().memory, color=INK, lw=1.0, ls="--", label="bound")
        axes.set_title(source, fontsize=10, color=INK)
        axes.set_xlabel("% of the time in which tuples arrive")
        axes.set_ylim(bottom=0)
    axes_grid[0][0].set_ylabel("units of memory")
    axes_grid[0][0].legend(fontsize=8, frameon=False)
    format_axes(axes_grid, short, short)
    figure.supxlabel(
        "One draw, around the peak of FIFO; where tuples pass by chance the bound holds on average only",
        fontsize=7.5,
        color=GREY,
    )
    figure.suptitle(f"Memory over time: {query}", fontsize=12, color=INK)
    return save(figure, folder / f"streams-{query.replace(' ', '-')}.png")


def _table(found: Sweep, query: str) -> list[list[str]]:
    mine = found.where(query=query, drop=CHANCE)
    sources = sources_of(mine.all_of("source"))
    rows = [["peak / average", *sources]]
    for name in POLICIES:
        rows.append([name, *(_both(mine.where(source=source, policy=name), WHAT) for source in sources)])
    bound = [_both(mine.where(source=source), ("bound peak", "bound average")) for source in sources]
    return [*rows, ["bound", *bound]]


def _both(found: Sweep, what: Sequence[str]) -> str:
    return " / ".join(number(found.middle(name)) for name in what)


def _notes(found: Sweep, query: str) -> list[str]:
    if query != STORED:
        return []
    mine = found.where(query=query, drop=CHANCE, source=BURSTS)
    worse = mine.middle("peak", policy=ROUND_ROBIN) / mine.middle("peak", policy=CHAIN)
    return [
        f"Round-Robin needs {factor(worse)} the memory of Chain here: all three operators of the first chain are fast, "
        "and in a circle of four they get three quarters of the time, about what they need."
    ]


# -- claims ----------------------------------------------------------------------------------------------------


def _ratio(found: Sweep, policy: str, other: str, metric: str = "peak") -> float:
    return found.middle(metric, policy=policy) / found.middle(metric, policy=other)


def _claims(found: Sweep, query: str) -> list[Claim]:
    """Of one seed."""
    mine = found.where(query=query, drop=CHANCE)
    claims = []
    for source in sources_of(mine.all_of("source")):
        claims += _of_source(mine.where(source=source), query, source)
    if query == TOGETHER:
        claims += _grown(found)
    return claims


def _of_source(found: Sweep, query: str, source: str) -> list[Claim]:
    item = FIGURES.get((query, source), "")

    def worse(policy: str, because: str, paper: str = "much worse") -> Claim:
        ratio = _ratio(found, policy, CHAIN)
        statement = f"needs at least {MUCH:g}x the peak memory of Chain"
        return ratio_claim(policy, statement, ratio, ratio >= MUCH, because, source, **_of(item, paper))

    def near(policy: str, limit: float, because: str, paper: str, other: str = CHAIN) -> Claim:
        ratio = _ratio(found, policy, other)
        statement, holds = (
            f"needs 1/{limit:g}x to {limit:g}x the peak memory of {other.title()}",
            1 / limit <= ratio <= limit,
        )
        return ratio_claim(policy, statement, ratio, holds, because, source, **_of(item, paper))

    def alike(policy: str) -> Claim:
        return near(policy, ALIKE, _FAIR, "as badly as Greedy", GREEDY)

    if query == TWO:
        claims = [
            near(GREEDY, SAME, "each operator is a chain, so that they differ by ties only", "almost identical"),
            near(ROUND_ROBIN, CLOSE, "half of its time for the first operator is not enough for the burst",
                 "almost as well"),
            worse(FIFO, _FLOOD, "badly"),
        ]  # fmt: skip
    elif query == FOUR:
        claims = [worse(GREEDY, _FLOOD, "badly"), worse(FIFO, _FLOOD, "badly"), worse(ROUND_ROBIN, _FAIR, "badly")]
        claims += [alike(FIFO), alike(ROUND_ROBIN)]
    elif query == STORED:
        claims = [worse(GREEDY, _FLOOD, "vastly worse"), worse(FIFO, _FLOOD, "as before"), alike(ROUND_ROBIN)]
    elif query == WINDOW:
        claims = [worse(GREEDY, _BLOCKED), worse(FIFO, _BLOCKED)]
        if source == BURSTS:
            claims.append(worse(ROUND_ROBIN, _FAIR, "really badly"))
        else:
            claims.append(near(ROUND_ROBIN, CLOSE, "it shares time among five operators", "compares well"))
    else:
        claims = [worse(policy, _FAIR if policy == ROUND_ROBIN else _BLOCKED, "by a huge margin") for policy in RIVALS]
    if item:
        peak = found.middle("peak", policy=CHAIN)
        claims.append(Claim(CHAIN, "has the queues of the figure (ours: peak)", number(peak), True, workload=source,
                            incomparable=LOST, item=item, paper="a chart", value=peak))  # fmt: skip
    return claims


def _of(item: str, paper: str) -> dict[str, str]:
    """Of sources that the paper has no figure of, it says nothing."""
    return {"item": item, "paper": paper} if item else {}


_FAIR = "equal turns give the operators of the steep chain most of the time that they need"
_FLOOD = "at the peak more arrives than the steep chain can take, and waits before it under every policy"
_BLOCKED = "what waits for a blocked join waits under every policy"


def _grown(found: Sweep) -> list[Claim]:
    """How rivals compare by query: with three queries they should be worst."""
    claims = []
    for source in sources_of(found.where(query=TOGETHER).all_of("source")):
        more = _of(FIGURES.get((TOGETHER, source), ""), "more pronounced with more queries")
        lead = {
            query: min(
                _ratio(found.where(query=query, source=source, drop=CHANCE), policy, CHAIN)
                for policy in RIVALS
            )
            for query in QUERIES
        }  # fmt: skip
        over = lead[TOGETHER] / max(lead[query] for query in (TWO, FOUR, WINDOW))
        claims.append(
            ratio_claim("best rival / Chain", "is larger for three queries than for each of them alone", over, over > 1,
                        "the query on which rivals are worst is one of three, and hides among the others", source,
                        **more)
        )  # fmt: skip
        for policy in (ROUND_ROBIN, FIFO):
            two, four, all_ = (
                _ratio(found.where(query=query, source=source, drop=CHANCE), policy, CHAIN)
                for query in (TWO, FOUR, TOGETHER)
            )
            claims.append(
                ratio_claim(policy, "compares worse with Chain for four operators than for two", four / two, four > two,
                            "two operators differ more in how fast they free memory", source, **more)
            )  # fmt: skip
            claims.append(
                ratio_claim(policy, "compares worse with Chain for three queries than for two operators", all_ / two,
                            all_ > two, "two operators differ more in how fast they free memory", source, **more)
            )  # fmt: skip
    return claims


# -- bounds ----------------------------------------------------------------------------------------------------


def _bounds(found: Sweep) -> Section:
    mine = found.where(drop=FRACTION, policy=CHAIN)
    rows = [["Chain by fraction", "source", "peak", "bound", "most excess", "one unit per query", "sum of the gaps"]]
    for query in mine.all_of("query"):
        for source in sources_of(mine.where(query=query).all_of("source")):
            at = mine.where(query=query, source=source)
            cells = [number(at.middle(name)) for name in ("peak", "bound peak")]
            cells += [f"{max(at.values('excess')):.3f}"]
            cells += [f"{at.middle(name):.3f}" for name in ("units", "gaps")]
            rows.append([query, source, *cells])
    return Section(
        "streams-bounds",
        "Chain against somebody who knows all that will come",
        "Every tuple shrinks by the selectivities. A unit is the largest tuple. Of the draws the worst.",
        "where no selectivity is above 1, Chain never needs more than one unit per query more than any clairvoyant "
        "schedule, at any moment; else at most the sum of the largest gaps between charts and envelopes. For joins of "
        "streams nothing is proved.",
        found.judged(_bound_claims),
        figures=[rows],
        cited=CITED,
        items=("Lemma 1", "Theorem 1", "Theorem 2"),
    )


def _bound_claims(found: Sweep) -> list[Claim]:
    claims = []
    mine = found.where(drop=FRACTION, policy=CHAIN)
    for query in mine.all_of("query"):
        for source in sources_of(mine.where(query=query).all_of("source")):
            at = mine.where(query=query, source=source)
            excess, peak = at.middle("excess"), at.middle("peak") / at.middle("bound peak")
            if query in (TWO, FOUR):
                claims.append(
                    _unit(
                        query,
                        "is within one unit of the bound at every moment",
                        excess,
                        at.middle("units"),
                        source,
                        "Theorem 2",
                    )
                )
            if query == STORED:
                claims.append(
                    _unit(
                        query,
                        "is within the sum of the gaps at every moment",
                        excess,
                        at.middle("gaps"),
                        source,
                        "Lemma 1",
                    )
                )
            if query in (WINDOW, TOGETHER):
                claims.append(
                    ratio_claim(query, f"has a peak of at most {CLOSE:g}x the bound (ours; nothing is proved)", peak,
                                peak <= CLOSE, "joins block, and the bound knows nothing of that", source)
                )  # fmt: skip
    return claims


def _unit(query: str, statement: str, excess: float, most: float, source: str, item: str) -> Claim:
    return Claim(query, statement, f"{excess:.3f}", excess <= most + 1e-6, "the simulator is wrong", workload=source,
                 construction="it is proved; above it something of ours would be wrong", value=excess,
                 form=lambda value: f"{value:.3f}", item=item, paper=f"at most {most:.3g}")  # fmt: skip


# -- latency ---------------------------------------------------------------------------------------------------


def _latency(found: Sweep) -> Section:
    rows = [["query", "source", "policy", "mean latency", "p99", "longest", "starved", "switches per tuple", "peak so"]]
    mine = found.where(drop=CHANCE)
    for query in mine.all_of("query"):
        for source in sources_of(mine.where(query=query).all_of("source")):
            for name in POLICIES:
                at = mine.where(query=query, source=source, policy=name)
                what = ("latency", "latency p99", "latency longest", "starved", "switches", "rare peak")
                rows.append([query, source, name, *(number(at.middle(metric)) for metric in what)])
    return Section(
        "streams-latency",
        "Latency and starvation, which the paper leaves out",
        "The rows of all queries, tuples by chance. Times are in units of work; a tuple takes 10 in all. Switches are "
        "counted as in the paper: Chain and Greedy let an operator run until its queue is empty, or until something "
        "arrives and one with a higher priority can run. *Peak so* is the peak of memory when they decide so rarely; "
        "all else is of policies that are asked after each tuple.",
        "Chain may starve operators during bursts, Round-Robin does not; FIFO is good for response times; and Chain "
        "changes between operators less often than FIFO, Greedy and Round-Robin.",
        found.judged(_latency_claims),
        figures=[rows],
        cited=CITED,
        items=("Starvation and response times", "Context switching overhead"),
    )


def _latency_claims(found: Sweep) -> list[Claim]:
    claims = []
    mine = found.where(drop=CHANCE)
    for query in (FOUR, TOGETHER):
        for source in sources_of(mine.where(query=query).all_of("source")):
            at = mine.where(query=query, source=source)
            others = min(at.middle("latency", policy=name) for name in POLICIES if name != FIFO)
            mean = at.middle("latency", policy=FIFO) / others
            starved = _ratio(at, CHAIN, ROUND_ROBIN, "starved")
            rare = at.middle("rare peak", policy=CHAIN) / at.middle("peak", policy=CHAIN)
            claims += [
                ratio_claim(query, "FIFO has the lowest mean latency (FIFO / the best other)", mean, mean <= 1,
                            "tuples that are finished soon elsewhere wait behind others here", source,
                            item="Starvation and response times", paper="FIFO is good"),
                ratio_claim(query, f"Chain leaves an operator waiting at least {MUCH:g}x as long as Round-Robin does",
                            starved, starved >= MUCH, "a blocked join starves under both", source,
                            item="Starvation and response times", paper="Chain may starve operators"),
                ratio_claim(query, f"(ours) to decide so rarely changes the peak of Chain by at most {CLOSE:g}x", rare,
                            1 / CLOSE <= rare <= CLOSE, "tuples wait in the middle of the steepest chain", source),
            ]  # fmt: skip
            for other in RIVALS:
                switches = _ratio(at, CHAIN, other, "switches")
                claims.append(
                    ratio_claim(query, f"Chain changes operators less often than {other}", switches, switches < 1,
                                "each arrival interrupts what runs behind the steepest chain", source,
                                item="Context switching overhead", paper="fewer")
                )  # fmt: skip
    return claims
