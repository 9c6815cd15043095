"""What the paper assumes: Round-Robin's quantum, joins that block, and charts that are right."""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import Any

from hullcast.broker.streams.chart import Chart
from hullcast.sim.experiments.studies.streams.baselines import RoundRobinPolicy
from hullcast.sim.experiments.studies.streams.simulated import charts_of
from hullcast.sim.experiments.studies.streams.workload import (
    BURSTS,
    CHAIN,
    CHANCE,
    CITED,
    ETHERNET,
    FOUR,
    GREEDY,
    POLICIES,
    QUANTUM,
    ROUND_ROBIN,
    TOGETHER,
    UDP,
    WINDOW,
    Traces,
    load_of,
    metrics,
    policy_of,
    sources_of,
)
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.claims import Claim, Section, ratio_claim
from hullcast.sim.output.text import factor, number
from hullcast.sim.seeds import generator

QUANTA = (1.0, QUANTUM, 100.0, 1_000.0)
#: Selectivities and costs are believed to be wrong by a factor e^x, x normal with this deviation.
ERRORS = (0.0, 0.25, 0.5, 1.0)
TURNS, BLOCKING, BELIEFS = "quantum", "heartbeats", "errors"
#: "Does not change the nature of the results", "not too sensitive": limits, as factors.
NATURE, SENSITIVE = 1.5, 1.25


def points(quick: bool, traces: Traces = ()) -> list[dict[str, Any]]:
    """Each of the three varied by itself."""
    sizes = (
        {BURSTS: 10_000, ETHERNET: 20_000, UDP: 20_000} if quick else {BURSTS: 40_000, ETHERNET: 40_000, UDP: 40_000}
    )
    found = []
    for source in (BURSTS, *(trace.name for trace in traces)):
        at: dict[str, list[Any]] = {"source": [source], "tuples": [sizes[source]]}
        found += grid(what=[TURNS], value=QUANTA, query=(FOUR, TOGETHER), policy=[ROUND_ROBIN], **at)
        found += grid(what=[TURNS], value=[QUANTUM], query=(FOUR, TOGETHER), policy=[CHAIN], **at)
        found += grid(what=[BLOCKING], value=(0.0, 1.0), query=[WINDOW], policy=POLICIES, **at)
        found += grid(what=[BELIEFS], value=ERRORS, query=(FOUR, TOGETHER), policy=(CHAIN, GREEDY), **at)
    return found


def measure(point: GridPoint, seed: int, traces: Traces = ()) -> dict[str, float]:
    """One run."""
    load = load_of(point["query"], point["source"], point["tuples"], CHANCE, seed, traces)
    what, value = point["what"], point["value"]
    policy = RoundRobinPolicy(value) if what == TURNS and point["policy"] == ROUND_ROBIN else policy_of(point["policy"])
    charts = None
    if what == BELIEFS:
        chance = generator(seed, "streams", "errors")
        charts = [_wrong(chart, chance.normal(0, 1, (2, chart.operators)) * value) for chart in charts_of(load.queries)]
    return metrics(load, load.run(policy, heartbeats=what == BLOCKING and value == 1.0, charts=charts))


def _wrong(chart: Chart, errors: Any) -> Chart:
    """The chart as somebody sees it who is wrong about selectivities and costs."""
    selectivities = [chart.sizes[at + 1] / chart.sizes[at] * exp(errors[0][at]) for at in range(chart.operators)]
    costs = [
        (chart.times[at + 1] - chart.times[at]) / chart.sizes[at] * exp(errors[1][at]) for at in range(chart.operators)
    ]
    return Chart.of(selectivities, costs)


def sections(found: Sweep, folder: Path, traces: Traces = ()) -> list[Section]:
    """One for each."""
    return [_turns(found.where(what=TURNS)), _blocking(found.where(what=BLOCKING)), _beliefs(found.where(what=BELIEFS))]


def _turns(found: Sweep) -> Section:
    sources, queries = sources_of(found.all_of("source")), found.all_of("query")
    rows = [["peak / Chain's", *(f"{query}, {source}" for query in queries for source in sources)]]
    for value in QUANTA:
        cells = []
        for query in queries:
            for source in sources:
                at = found.where(query=query, source=source)
                ours = at.middle("peak", policy=ROUND_ROBIN, value=value)
                cells.append(factor(ours / at.middle("peak", policy=CHAIN)))
        rows.append([f"quantum {value:g}", *cells])
    return Section(
        "streams-quantum", "Round-Robin by its quantum", "A tuple takes 10 units of time in all; tuples by chance.",
        "the size of the quantum affects how well Round-Robin does, but does not change the nature of the results.",
        found.judged(_turn_claims), figures=[rows], cited=CITED, items=("Experiments, time quantum",),
    )  # fmt: skip


def _turn_claims(found: Sweep) -> list[Claim]:
    claims = []
    for query in found.all_of("query"):
        for source in sources_of(found.where(query=query).all_of("source")):
            at = found.where(query=query, source=source)
            peaks = [at.middle("peak", policy=ROUND_ROBIN, value=value) for value in QUANTA]
            grown = max(peaks) / min(peaks)
            best = min(peaks) / at.middle("peak", policy=CHAIN)
            claims += [
                ratio_claim(query, f"the best and the worst quantum differ by at most {NATURE:g}x in peak", grown,
                            grown <= NATURE, "in a long turn of one operator the queues of all others grow", source,
                            paper="does not change the nature of the results"),
                ratio_claim(query, "Chain needs less than Round-Robin with any quantum", best, best > 1,
                            "turns happen to be as the steep chain needs them", source),
            ]  # fmt: skip
    return claims


def _blocking(found: Sweep) -> Section:
    sources = sources_of(found.all_of("source"))
    rows = [["peak / average: blocked -> with heartbeats", *sources]]
    for name in POLICIES:
        cells = []
        for source in sources:
            blocked, free = (found.where(source=source, policy=name, value=value) for value in (0.0, 1.0))
            cells.append(
                " -> ".join(f"{number(at.middle('peak'))} / {number(at.middle('average'))}" for at in (blocked, free))
            )
        rows.append([name, *cells])
    return Section(
        "streams-heartbeats", "A window join that knows how far its streams are",
        "The window join of two streams. Blocked: it waits while an input is empty, as in the paper. With heartbeats "
        "it goes on if nothing older is under way to that input.",
        "", found.judged(_blocking_claims), figures=[rows],
    )  # fmt: skip


def _blocking_claims(found: Sweep) -> list[Claim]:
    claims = []
    for source in sources_of(found.all_of("source")):
        at = found.where(source=source, policy=CHAIN)
        less = at.middle("average", value=1.0) / at.middle("average", value=0.0)
        claims.append(
            ratio_claim(CHAIN, "needs less memory on average with heartbeats", less, less < 1,
                        "both inputs always have tuples", source)
        )  # fmt: skip
    return claims


def _beliefs(found: Sweep) -> Section:
    sources, queries = sources_of(found.all_of("source")), found.all_of("query")
    rows = [["peak", *(f"{query}, {source}" for query in queries for source in sources)]]
    for name in (CHAIN, GREEDY):
        for value in ERRORS:
            cells = [
                number(found.middle("peak", query=query, source=source, policy=name, value=value))
                for query in queries for source in sources
            ]  # fmt: skip
            rows.append([f"{name}, error {value:g}", *cells])
    return Section(
        "streams-errors", "Charts that are wrong",
        "Selectivities and costs that policies believe in are wrong by factors e^x, x normal with deviation *error*.",
        "a strategy should not be too sensitive to inaccuracies in estimates (named as desirable, not measured).",
        found.judged(_belief_claims), figures=[rows], cited=CITED, items=("Desirable properties of a strategy",),
    )  # fmt: skip


def _belief_claims(found: Sweep) -> list[Claim]:
    claims = []
    for query in found.all_of("query"):
        for source in sources_of(found.where(query=query).all_of("source")):
            at = found.where(query=query, source=source, policy=CHAIN)
            for value in ERRORS[1:]:
                more = at.middle("peak", value=value) / at.middle("peak", value=0.0)
                claims.append(
                    ratio_claim(query, f"errors of {value:g} change the peak of Chain by at most {SENSITIVE:g}x", more,
                                1 / SENSITIVE <= more <= SENSITIVE, "some error moves the end of the first chain",
                                source, paper="not too sensitive")
                )  # fmt: skip
    return claims
