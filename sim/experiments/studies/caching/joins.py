"""Results of joins in bounded memory, by policy and memory (figures 3.9 to 3.13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hullcast.sim.experiments.studies.caching.configurations import (
    CITED,
    CONFIGURATIONS,
    FLOOR,
    FLOW,
    HEEB,
    LIFE,
    OBSERVED,
    OPT,
    POLICIES,
    PROB,
    RACED,
    RAND,
    RIVALS,
    ROOF,
    TOWER,
    WALK,
    policy_of,
    ratio_claim,
    two_streams,
)
from hullcast.sim.experiments.studies.caching.simulated import simulate_join
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BLUE, GREEN, GREY, INK, ORANGE, PINK, BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import number

MEMORIES = (1, 2, 5, 10, 20, 30, 50)
#: The one of figure 3.9, and the one at which FlowExpect runs.
MEMORY = 10
#: Limits of verdicts: what "by far" is, and "catches up", and what "close to OPT-offline" would be.
FAR, CAUGHT, CLOSE = 1.25, 0.95, 0.8
LOOK = {OPT: (INK, "D"), FLOW: (PINK, "v"), HEEB: (GREEN, "o"), OBSERVED: (GREEN, "x"), RACED: (GREEN, "^"),
        "LRU": (GREY, "s"), RAND: (BLUE, "s"), PROB: (ORANGE, "^"), LIFE: (ORANGE, "v")}  # fmt: skip


def points(quick: bool) -> list[dict[str, Any]]:
    """Every policy with every memory, but FlowExpect with one; LIFE needs a window, which WALK does not have."""
    memories = (1, MEMORY, 50) if quick else MEMORIES
    return [
        point
        for point in grid(
            configuration=CONFIGURATIONS, memory=memories, policy=POLICIES, steps=[1_000 if quick else 5_000]
        )
        if not (point["policy"] == FLOW and point["memory"] != MEMORY)
        and not (point["policy"] == LIFE and point["configuration"] == WALK)
    ]


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """Join two streams, and count."""
    streams = two_streams(point["configuration"], point["steps"], seed)
    memory = point["memory"]
    done = simulate_join(policy_of(point["policy"], streams, memory, seed), streams.r, streams.s, memory)
    return {"results": done.after(4 * memory)}


def sections(found: Sweep, folder: Path) -> list[Section]:
    """Two: with a memory of ten, and with more and less."""
    return [_at_ten(found), _by_memory(found, folder)]


def _at_ten(found: Sweep) -> Section:
    ten = found.where(memory=MEMORY)
    table = [[f"results, memory {MEMORY}", *CONFIGURATIONS]]
    for name in POLICIES:
        row = [name]
        for configuration in CONFIGURATIONS:
            some = _rows(ten, configuration, name)
            row.append(number(some.middle("results")) if some else "")
        table.append(row)
    return Section(
        "caching-ten",
        f"Results with a memory of {MEMORY}",
        f"Two streams of {found.rows[0]['steps']:,} steps, a tuple of each a step.",
        "HEEB beats RAND, PROB and LIFE everywhere, and FlowExpect in most cases; the advantage is huge on TOWER and "
        "diminishes towards FLOOR; RAND is fairly competitive, LIFE fares better than PROB; no online algorithm comes "
        "close to OPT-offline on WALK.",
        found.judged(_claims_at_ten),
        figures=[table],
        cited=CITED,
    )


def _by_memory(found: Sweep, folder: Path) -> Section:
    picture = folder / "caching-memory.png"
    panels = []
    for configuration in CONFIGURATIONS:
        curves = []
        for name in POLICIES:
            some = _rows(found, configuration, name)
            if some and name not in (FLOW, OBSERVED):
                colour, mark = LOOK[name]
                curves.append(BandCurve(name, some.along("memory", "results"), colour, mark, thin=name == RACED))
        panels.append(Panel(configuration, curves, "results" if configuration in (TOWER, FLOOR) else ""))
    draw_panels(
        [panels[:2], panels[2:]], picture, title="Results by memory", x_label="memory, in tuples (log)", y_log=False,
        x_log=True, share_y=False,
    )  # fmt: skip
    memories = sorted(found.all_of("memory"))
    tables = []
    for configuration in CONFIGURATIONS:
        table = [[f"{configuration}, memory =", *map(str, memories)]]
        for name in POLICIES:
            some = _rows(found, configuration, name)
            if some and name != FLOW:
                table.append([name, *(number(some.middle("results", memory=each)) for each in memories)])
        tables.append(table)
    return Section(
        "caching-memory",
        "Results by memory",
        "The same streams.",
        "with more memory all algorithms catch up with OPT-offline, except on WALK; on TOWER and ROOF HEEB does so "
        "much faster than the others.",
        found.judged(_claims_by_memory),
        pictures={"Results by memory, a panel for each configuration, a line for each policy": picture},
        figures=tables,
        cited=CITED,
    )


def _rows(found: Sweep, configuration: str, policy: str) -> Sweep | None:
    try:
        return found.where(configuration=configuration, policy=policy)
    except KeyError:
        return None


def _results(found: Sweep, configuration: str, policy: str, memory: int) -> float:
    some = _rows(found, configuration, policy)
    return some.middle("results", memory=memory) if some else 0.0


def _claims_at_ten(found: Sweep) -> list[Claim]:
    judged = []
    of = {
        configuration: {name: _results(found, configuration, name, MEMORY) for name in POLICIES}
        for configuration in CONFIGURATIONS
    }
    for configuration, results in of.items():
        others = max(results[name] for name in RIVALS)
        for mine in (HEEB, OBSERVED, RACED):
            judged += [
                ratio_claim(mine, "produces more than LRU, RAND, PROB and LIFE", _times(results[mine], others),
                            results[mine] > others, "a single draw may go another way", configuration),
                ratio_claim(mine, "produces at least as much as FlowExpect", _times(results[mine], results[FLOW]),
                            results[mine] >= results[FLOW], "FlowExpect weighs what each slot is needed for next",
                            configuration),
            ]  # fmt: skip
        if configuration != WALK:
            judged += [
                ratio_claim(RAND, "produces more than PROB and LIFE",
                            _times(results[RAND], max(results[PROB], results[LIFE])),
                            results[RAND] > max(results[PROB], results[LIFE]), "", configuration),
                ratio_claim(LIFE, "produces more than PROB", _times(results[LIFE], results[PROB]),
                            results[LIFE] > results[PROB],
                            "with windows this short PROB drops old tuples in time, too", configuration),
            ]  # fmt: skip
    tower, shares = of[TOWER], [_times(of[one][HEEB], of[one][OPT]) for one in (TOWER, ROOF, FLOOR)]
    best = max(tower[name] for name in (RAND, PROB, LIFE))
    online = max(of[WALK][name] for name in POLICIES if name != OPT)
    judged += [
        ratio_claim(HEEB, f"is by far ahead of RAND, PROB and LIFE: {FAR:g}x", _times(tower[HEEB], best),
                    tower[HEEB] >= FAR * best, "", TOWER),
        Claim(HEEB, "comes the less close to OPT-offline the wider the noise",
              ", ".join(f"{share:.0%}" for share in shares), shares == sorted(shares, reverse=True),
              workload="TOWER, ROOF, FLOOR", value=shares[0] - shares[-1], form="{:.2f}".format),
        ratio_claim("", f"no online policy reaches {CLOSE:g}x of OPT-offline", _times(online, of[WALK][OPT]),
                    online < CLOSE * of[WALK][OPT], "the two walks stay close together in some draws", WALK),
    ]  # fmt: skip
    return judged


def _claims_by_memory(found: Sweep) -> list[Claim]:
    judged = []
    memories = sorted(found.all_of("memory"))
    for configuration in CONFIGURATIONS:
        for mine in (HEEB, OBSERVED, RACED):
            ratios = {
                memory: _times(
                    _results(found, configuration, mine, memory),
                    max(_results(found, configuration, name, memory) for name in RIVALS),
                )
                for memory in memories
            }
            worst = min(ratios, key=lambda memory: ratios[memory])
            judged.append(
                ratio_claim(mine, "produces at least as much as each of LRU, RAND, PROB and LIFE at every memory",
                            ratios[worst], ratios[worst] >= 1.0, "differences are small there, or chance",
                            configuration, detail=f"at {worst}")
            )  # fmt: skip
        caught = _times(_results(found, configuration, HEEB, 50), _results(found, configuration, OPT, 50))
        if configuration != WALK:
            judged.append(
                ratio_claim(HEEB, f"with a memory of 50 reaches {CAUGHT:g}x of OPT-offline", caught, caught >= CAUGHT,
                            "", configuration)
            )  # fmt: skip
    return judged


def _times(above: float, below: float) -> float:
    return above / below if below else (1.0 if not above else float("inf"))
