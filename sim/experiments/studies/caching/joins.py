"""Results of joins in bounded memory, by policy and memory (figures 3.9 to 3.13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from hullcast.sim.experiments.studies.caching.configurations import (
    CITED,
    CONFIGURATIONS,
    FLOOR,
    FLOW,
    HEEB,
    LIFE,
    LRU,
    OBSERVED,
    OPT,
    POLICIES,
    PROB,
    RACED,
    RAND,
    ROOF,
    SUM,
    TOWER,
    WALK,
    WINDOWS,
    policy_of,
    ratio_claim,
    two_streams,
)
from hullcast.sim.experiments.studies.caching.means import BANDS, NOTE, bands, interval, mean_claim, ratio_of
from hullcast.sim.experiments.studies.caching.pictures import draw_bars
from hullcast.sim.experiments.studies.caching.simulated import simulate_join
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BLUE, GREEN, GREY, INK, ORANGE, PINK, BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, number

MEMORIES = (1, 2, 5, 10, 20, 30, 50)
#: The one of figure 3.9.
MEMORY = 10
#: "No less than four times the cache size", and the same for all memories, so that their results can be compared.
WARM = 4 * max(MEMORIES)
TRENDS = (TOWER, ROOF, FLOOR)
#: What the thesis compares HEEB with, besides FlowExpect.
BEATEN = (RAND, PROB, LIFE)
#: Limits of verdicts: what a "huge" advantage is, "catches up", "comes close to OPT-offline", "much lower" and "under
#: 5 %"; "much faster" is with at most half of the memory, and "at least as many" leaves half a percent to chance.
HUGE, CAUGHT, CLOSE, LOWER, SPREAD, LEVEL = 1.25, 0.95, 0.8, 0.8, 0.05, 0.995
LOOK = {OPT: (INK, "D"), FLOW: (PINK, "P"), HEEB: (GREEN, "o"), LRU: (GREY, "s"), RAND: (BLUE, "s"),
        PROB: (ORANGE, "^"), LIFE: (ORANGE, "v")}  # fmt: skip


def points(quick: bool) -> list[dict[str, Any]]:
    """Policies with every memory, but FlowExpect and our own with one, and other windows too; WALK has no window, and
    LIFE needs one."""
    shape: dict[str, Any] = {"steps": [1_000 if quick else 5_000]}
    memories = (1, MEMORY, 50) if quick else MEMORIES
    held = [name for name in LOOK if name != FLOW]
    whole = grid(configuration=CONFIGURATIONS, memory=memories, policy=held, window=[SUM], **shape)
    ten = grid(configuration=CONFIGURATIONS, memory=[MEMORY], policy=[FLOW, OBSERVED, RACED], window=[SUM], **shape)
    read = grid(configuration=TRENDS, memory=[MEMORY], policy=BEATEN, window=list(WINDOWS)[1:], **shape)
    return [each for each in whole + ten + read if (each["policy"], each["configuration"]) != (LIFE, WALK)]


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """Join two streams, and count."""
    streams = two_streams(point["configuration"], point["steps"], seed, point["window"])
    memory = point["memory"]
    done = simulate_join(policy_of(point["policy"], streams, memory, seed), streams.r, streams.s, memory)
    return {"results": done.after(WARM)}


def sections(found: Sweep, folder: Path) -> list[Section]:
    """Three: with a memory of ten, with more and less, and with other windows."""
    return [_at_ten(found.where(window=SUM), folder), _by_memory(found.where(window=SUM), folder), _by_window(found)]


#: By configuration and policy the results of all draws.
Results = dict[str, dict[str, list[float]]]


def _results(found: Sweep, memory: int) -> Results:
    some = found.where(memory=memory)
    return {
        configuration: {
            name: of.values("results", policy=name) for name in POLICIES if name in of.all_of("policy")
        }
        for configuration in some.all_of("configuration")
        for of in [some.where(configuration=configuration)]
    }  # fmt: skip


def _at_ten(found: Sweep, folder: Path) -> Section:
    of = _results(found, MEMORY)
    table = [[f"mean results, memory {MEMORY}", *CONFIGURATIONS]]
    for name in POLICIES:
        table.append([name, *(_told(of[each][name]) if name in of[each] else "" for each in CONFIGURATIONS)])
    bars = {name: {each: interval(of[each][name]) for each in CONFIGURATIONS if name in of[each]} for name in LOOK}
    colours = {name: colour for name, (colour, _) in LOOK.items()}
    picture = draw_bars(
        CONFIGURATIONS, bars, colours, folder / "caching-ten.png", title=f"Results with a memory of {MEMORY}",
        y_label="results",
    )  # fmt: skip
    return Section(
        "caching-ten",
        f"Results with a memory of {MEMORY}",
        f"Two streams of {found.rows[0]['steps']:,} steps, a tuple of each a step.",
        "HEEB beats RAND, PROB and LIFE consistently, and even FlowExpect in most cases; PROB and LIFE (especially "
        "PROB) do not work well when a trend is present, LIFE fares better, RAND turns out to be fairly competitive; "
        "the advantage is huge on TOWER and diminishes as we move to FLOOR; on WALK FlowExpect and HEEB have an edge, "
        "but no online algorithm comes close to OPT-offline; variances are under 5 % except on WALK.",
        [replace(each, item="Figure 3.9") if each.paper and not each.item else each for each in _claims_at_ten(of)],
        pictures={"Results by configuration, a bar for each policy": picture},
        figures=[table],
        notes=[NOTE],
        cited=CITED,
        items=("Figure 3.9", "Section 3.7.1", "Section 3.7.2"),
    )


def _told(values: Sequence[float]) -> str:
    low, mean, high = interval(values)
    return number(mean) + (f" [{number(low)} .. {number(high)}]" if low < high else "")


def _claims_at_ten(of: Results) -> list[Claim]:
    judged = []
    best = {each: max((results[name] for name in BEATEN if name in results), key=fmean) for each, results in of.items()}
    for each, results in of.items():
        rivals = [results[name] for name in BEATEN if name in results]
        judged += [
            mean_claim(mine, "produces more than RAND, PROB and LIFE", results[mine], rivals, workload=each,
                       paper="consistently" if mine == HEEB else "")
            for mine in (HEEB, OBSERVED, RACED)
        ]  # fmt: skip
        judged += [
            mean_claim(HEEB, "produces more than LRU (which the thesis has only for REAL)", results[HEEB],
                       [results[LRU]], workload=each),
            mean_claim(RACED, "produces at least as much as HEEB (ours)", results[RACED], [results[HEEB]],
                       lambda ratio: ratio >= LEVEL, "on some streams the alpha of the thesis is the best one",
                       workload=each),
        ]  # fmt: skip
    judged.append(_most_cases(of))
    for each in TRENDS:
        results = of[each]
        judged += [
            mean_claim(RAND, "produces more than PROB and LIFE", results[RAND], [results[PROB], results[LIFE]],
                       workload=each, paper="fairly competitive"),
            mean_claim(LIFE, "produces more than PROB", results[LIFE], [results[PROB]], workload=each,
                       because="both are misled by the past", paper="fares better"),
        ]  # fmt: skip
    judged += [
        mean_claim(name, f"produces {HUGE:g}x or more of the best of RAND, PROB and LIFE", of[TOWER][name],
                   [best[TOWER]], lambda ratio: ratio >= HUGE, workload=TOWER, paper="a huge advantage")
        for name in (HEEB, FLOW)
    ]  # fmt: skip
    leads = [fmean(of[each][HEEB]) / fmean(best[each]) for each in TRENDS]
    online = max((values for name, values in of[WALK].items() if name != OPT), key=fmean)
    judged += [
        Claim(HEEB, "is the less ahead of the best of RAND, PROB and LIFE the wider the noise",
              ", ".join(map(factor, leads)), leads == sorted(leads, reverse=True),
              "on TOWER ten tuples are nearly all that is useful, so there is less to be ahead by than on ROOF",
              workload=", ".join(TRENDS), value=leads[0] - leads[-1], paper="the advantage diminishes"),
        mean_claim(FLOW, "produces more than RAND and PROB", of[WALK][FLOW], [of[WALK][RAND], of[WALK][PROB]],
                   workload=WALK, paper="an edge"),
        mean_claim("", f"the best online policy has less than {CLOSE:g}x of OPT-offline", online, [of[WALK][OPT]],
                   lambda ratio: ratio < CLOSE, "the two walks stay together in many draws", workload=WALK,
                   paper="none comes close"),
        mean_claim(OPT, f"has at most {LOWER:g}x of the results on WALK that it has on TOWER", of[WALK][OPT],
                   [of[TOWER][OPT]], lambda ratio: ratio <= LOWER, workload=WALK, item="Section 3.7.1",
                   paper="tends to be much lower"),
    ]  # fmt: skip
    return judged + [_variance(of[each], each) for each in CONFIGURATIONS]


def _most_cases(of: Results) -> Claim:
    ratios = {each: ratio_of(results[HEEB], results[FLOW]) for each, results in of.items()}
    ahead, behind = sum(low > 1 for low, _, _ in ratios.values()), sum(high < 1 for _, _, high in ratios.values())
    told = ", ".join(
        f"{each} {factor(ratio)} [{factor(low)} .. {factor(high)}]" for each, (low, ratio, high) in ratios.items()
    )
    unknown = "" if ahead >= 3 or behind >= 2 else "too many intervals contain 1"
    return Claim(HEEB, "produces more than FlowExpect in 3 of the 4 configurations or all", told, ahead >= 3,
                 "FlowExpect weighs what each slot is needed for next", value=ahead, unknown=unknown,
                 paper="in most cases")  # fmt: skip


def _variance(results: dict[str, list[float]], configuration: str) -> Claim:
    least = SPREAD if configuration != WALK else 0.0
    if len(results[HEEB]) < 2:
        return Claim("", "draws differ", "", holds=False, workload=configuration, unknown="there is one draw")
    spread = {name: stdev(values) / fmean(values) for name, values in results.items()}
    most = max(spread, key=lambda name: spread[name])
    told = f"{spread[most]:.1%} ({most})"
    if least:
        return Claim("", f"the standard deviation over draws is below {SPREAD:.0%} of the mean, of every policy", told,
                     spread[most] < SPREAD, workload=configuration, value=spread[most], item="Section 3.7.2",
                     paper="under 5 %")  # fmt: skip
    return Claim("", f"it is {SPREAD:.0%} or more, of every policy", f"{min(spread.values()):.1%} or more",
                 min(spread.values()) >= SPREAD, workload=configuration, value=min(spread.values()),
                 item="Section 3.7.2", paper="highly variable")  # fmt: skip


def _by_memory(found: Sweep, folder: Path) -> Section:
    panels, tables = [], []
    memories = sorted(found.all_of("memory"))
    for configuration in CONFIGURATIONS:
        of = found.where(configuration=configuration)
        held = [name for name in LOOK if name != FLOW and name in of.all_of("policy")]
        curves = [BandCurve(name, bands(of, "memory", "results", policy=name), *LOOK[name]) for name in held]
        panels.append(Panel(configuration, curves, "results" if configuration in (TOWER, FLOOR) else ""))
        tables.append([
            [f"mean results, {configuration}, memory =", *map(str, memories)],
            *([name, *(number(fmean(of.values("results", policy=name, memory=each))) for each in memories)]
              for name in held),
        ])  # fmt: skip
    picture = draw_panels(
        [panels[:2], panels[2:]], folder / "caching-memory.png", title="Results by memory", y_log=False, x_log=True,
        x_label="memory, in tuples (log)", share_y=False, bands=BANDS,
    )  # fmt: skip
    return Section(
        "caching-memory",
        "Results by memory",
        "The same streams.",
        "with more memory all algorithms perform better and eventually catch up with OPT-offline, except on WALK; on "
        "TOWER and ROOF HEEB converges to OPT-offline much faster; on FLOOR it still does well.",
        _claims_by_memory({each: _results(found, each) for each in memories}),
        pictures={"Results by memory, a panel for each configuration, a line for each policy": picture},
        figures=tables,
        notes=[NOTE],
        cited=CITED,
        items=("Figure 3.10", "Figure 3.11", "Figure 3.12", "Figure 3.13"),
    )


def _claims_by_memory(by: dict[int, Results]) -> list[Claim]:
    judged = []
    largest = max(by)
    for number_of, each in enumerate(CONFIGURATIONS):
        item, beaten = f"Figure {3.10 + number_of / 100:.2f}", [name for name in BEATEN if name in by[largest][each]]
        rises = {
            name: min(fmean(by[more][each][name]) / max(1.0, fmean(by[less][each][name]))
                      for less, more in zip(sorted(by), sorted(by)[1:], strict=False))
            for name in (OPT, HEEB, *beaten)
        }  # fmt: skip
        worst = min(rises, key=lambda name: rises[name])
        judged.append(
            Claim("", "every policy has at least as many results with the next larger memory", factor(rises[worst]),
                  rises[worst] >= LEVEL, "a tuple more can push out a better one", detail=worst, workload=each,
                  value=rises[worst], form=factor, item=item, paper="perform better")
        )  # fmt: skip
        leads = {
            memory: fmean(of[each][HEEB]) / max(1.0, *(fmean(of[each][name]) for name in beaten))
            for memory, of in by.items()
        }
        least = min(leads, key=lambda memory: leads[memory])
        judged.append(
            ratio_claim(HEEB, "has at least as many results as RAND, PROB and LIFE at every memory", leads[least],
                        leads[least] >= LEVEL, "walks that stay together favour who counts", each,
                        detail=f"at {least}", item=item, paper="still does well" if each == FLOOR else "")
        )  # fmt: skip
        last = by[largest][each]
        behind = (max if each == WALK else min)((HEEB, *beaten), key=lambda name: fmean(last[name]))
        judged.append(
            mean_claim(behind, f"with a memory of {largest} the best online policy has less than {CAUGHT:g}x of "
                       "OPT-offline", last[behind], [last[OPT]], lambda ratio: ratio < CAUGHT, workload=each, item=item,
                       paper="except for the case of WALK")
            if each == WALK else
            mean_claim(behind, f"with a memory of {largest} even the last policy has {CAUGHT:g}x of OPT-offline or "
                       "more", last[behind], [last[OPT]], lambda ratio: ratio >= CAUGHT, workload=each, item=item,
                       because="more memory than we tried is needed", paper="eventually catch up")
        )  # fmt: skip
        if each in (TOWER, ROOF):
            reached = {name: _reached(by, each, name) for name in (HEEB, *beaten)}
            soonest = min(reached[name] for name in beaten)
            coarse = len(by) < len(MEMORIES) and reached[HEEB] == soonest
            judged.append(
                Claim(HEEB, f"reaches {CAUGHT:g}x of OPT-offline with at most half of the memory that RAND, PROB and "
                      "LIFE need", f"{_memory(reached[HEEB])}, {_memory(soonest)}", reached[HEEB] <= soonest / 2,
                      workload=each, value=reached[HEEB], item=item, paper="much faster",
                      unknown="too few memories were tried" if coarse else "")
            )  # fmt: skip
    return judged


def _reached(by: dict[int, Results], configuration: str, name: str) -> float:
    """The least memory with which a policy has caught up; infinite if none does."""
    caught = [
        memory for memory, of in by.items()
        if fmean(of[configuration][name]) >= CAUGHT * fmean(of[configuration][OPT])
    ]  # fmt: skip
    return min(caught, default=float("inf"))


def _memory(value: float) -> str:
    return "none does" if value == float("inf") else f"{value:g}"


def _by_window(found: Sweep) -> Section:
    ten = found.where(memory=MEMORY)
    table = [["mean results", *(f"{each}, {name}" for each in TRENDS for name in BEATEN)]]
    judged = []
    for window in WINDOWS:
        of = _results(ten.where(window=window), MEMORY)
        table.append([window, *(number(fmean(of[each][name])) for each in TRENDS for name in BEATEN)])
        if window == SUM:
            continue  # judged with figure 3.9
        judged += [
            mean_claim(LIFE, "produces more than PROB", of[each][LIFE], [of[each][PROB]],
                       because="windows this short drop old tuples in time for PROB, too",
                       workload=f"{each}, {window}", item="Section 3.7.2",
                       paper="fares better")
            for each in TRENDS
        ]  # fmt: skip
    return Section(
        "caching-windows",
        "What the sliding window is",
        "RAND, PROB and LIFE again, with other readings of one sentence: a tuple is kept for as many steps as the "
        "bound of its own stream's noise, or of the other's, which it waits for, rather than of both together.",
        "the bound on the noise distribution is used as the sliding window; LIFE fares better than PROB.",
        judged,
        figures=[table],
        notes=[NOTE, "All else in this study, figure 3.9 included, has the sum of the bounds."],
        cited=CITED,
        items=("Section 3.7.2", "Figure 3.9"),
    )
