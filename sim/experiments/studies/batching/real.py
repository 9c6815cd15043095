"""Views in SQLite: what batches take, and whether simulated totals are real (Xie (2007), 2.1 to 2.5).

Here seconds are measured (processor time of one thread), so rows differ from run to run. A row measures the costs of
batches, lets a planner decide with them by the simulated clock, and then does the same with the view itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hullcast.broker.views.costs import CostFunction
from hullcast.sim.experiments.studies.batching.live import (
    BATCHES,
    CheapestView,
    JoinView,
    MaintainedView,
    measured_costs,
)
from hullcast.sim.experiments.studies.batching.planning import (
    CITED,
    LGM,
    NAIVE,
    PLANNERS,
    THRIFTY,
    UNIFORM,
    drawn_arrivals,
    planned,
)
from hullcast.sim.experiments.studies.batching.simulated import SimulatedView
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section, ratio_claim

#: Views, with the index that they have, and by table what it is called; the first is the one that is read as a whole.
VIEWS = {
    "R join S": ("R", "S"),
    "MIN (index on PartSupp)": ("PartSupp", "Supplier"),
    "MIN (index on Supplier)": ("PartSupp", "Supplier"),
}
#: So many changes of each table take as long as the limit: 180 in the example, and 45 for 20 s (see plans.py).
TOGETHER = {"R join S": 180, "MIN (index on PartSupp)": 45, "MIN (index on Supplier)": 45}
#: The table of each view whose partner has no index.
READ_WHOLE = {"R join S": 0, "MIN (index on PartSupp)": 0, "MIN (index on Supplier)": 1}
#: A cost is flat if one change takes between this part of a batch of 100 and its inverse, and linear if it takes this
#: part or less (it cannot take less than a hundredth: a batch takes no longer than its parts).
FLAT, STEEP = 0.25, 0.1
#: Simulated and real totals agree if neither is more than so many times the other.
AGREES = 1.25


def points(quick: bool) -> list[dict[str, Any]]:
    """Every view with every planner."""
    return grid(view=VIEWS, planner=PLANNERS, scale=[0.05 if quick else 0.5], T=[200 if quick else 1_000])


def opened(view: str, scale: float, seed: int) -> MaintainedView:
    """A view, filled."""
    if view == "R join S":
        return JoinView(scale, seed)
    return CheapestView(scale, seed, indexed="partsupp" if view.endswith("PartSupp)") else "supplier")


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """Costs, and totals, simulated and real, in milliseconds."""
    view = opened(point["view"], point["scale"], seed)
    costs = measured_costs(view)
    limit_s = sum(cost.of(TOGETHER[point["view"]]) for cost in costs)
    arrivals = drawn_arrivals(UNIFORM, point["T"], seed)
    curves: list[CostFunction] = list(costs)
    found = planned(point["planner"], arrivals, curves, limit_s)
    real_s = done(view, found)
    by_size = {f"{table} {k}": 1e3 * costs[table].of(k) for table in (0, 1) for k in BATCHES}
    return {
        **by_size,
        "limit": 1e3 * limit_s,
        "simulated": 1e3 * found.cost_s,
        "real": 1e3 * real_s,
        "actions": len(found.actions),
        "right": float(view.is_right()),
    }


def done(view: MaintainedView, found: SimulatedView) -> float:
    """Do what a planner decided; the seconds that it took."""
    return sum(
        view.propagate(table, k) for each in found.actions for table, k in zip(each.tables, each.batches, strict=True)
    )


def sections(found: Sweep, folder: Path) -> list[Section]:
    """What batches take, and totals."""
    return [_costs(found, folder), _totals(found, folder)]


def _curve(found: Sweep, view: str, table: int) -> list[tuple[float, list[float]]]:
    """Of each seed the median over its rows: each measured anew."""
    mine = found.where(view=view)
    return [(k, [mine.where(seed=seed).middle(f"{table} {k}") for seed in mine.seeds]) for k in BATCHES]


def _costs(found: Sweep, folder: Path) -> Section:
    picture = folder / "batching-costs.png"
    panels = [
        Panel(view, [BandCurve(name, _curve(found, view, table)) for table, name in enumerate(tables)])
        for view, tables in VIEWS.items()
    ]
    draw_panels(
        [panels], picture, title="Milliseconds to propagate a batch", x_label="changes in the batch (log)", x_log=True,
        source="Processor time in SQLite, in memory",
    )  # fmt: skip
    table = [["ms, batch of", *map(str, BATCHES)]]
    for view, tables in VIEWS.items():
        for number_, name in enumerate(tables):
            mine = found.where(view=view)
            table.append([f"{view}: {name}", *(f"{mine.middle(f'{number_} {k}'):.2f}" for k in BATCHES)])
    return Section(
        "batching-costs",
        "What batches take",
        f"Scale {found.rows[0]['scale']:g} (PartSupp has {800_000 * found.rows[0]['scale']:,.0f} rows, R and S "
        f"{100_000 * found.rows[0]['scale']:,.0f}). Without an index on its partner a batch is joined by reading the "
        "partner as a whole; with one it looks each change up.",
        "with an index on the partner costs grow linearly; without one they begin high and hardly grow.",
        found.judged(_cost_claims),
        pictures={"Milliseconds by size of a batch, a line for each table, a panel for each view": picture},
        figures=[table],
        cited=CITED,
        items=("Figure 2.1", "Figure 2.4"),
    )


def _cost_claims(found: Sweep) -> list[Claim]:
    judged = []
    for view, tables in VIEWS.items():
        mine = found.where(view=view)
        for table, name in enumerate(tables):
            fixed = mine.middle(f"{table} 1") / mine.middle(f"{table} 100")
            item = "Figure 2.1" if view == "R join S" else "Figure 2.4"
            if table == READ_WHOLE[view]:
                judged.append(
                    ratio_claim(name, f"without an index on its partner, one change takes {FLAT:g}x to {1 / FLAT:g}x "
                                "as long as 100", fixed, FLAT <= fixed <= 1 / FLAT, "each change costs much, too",
                                view, item=item, paper="hardly grows")
                )  # fmt: skip
            else:
                judged.append(
                    ratio_claim(name, f"with an index on its partner, one change takes at most {STEEP:g}x as long as "
                                "100", fixed, fixed <= STEEP, "a batch has a cost of its own, however small", view,
                                item=item, paper="linear")
                )  # fmt: skip
    return judged


def _totals(found: Sweep, folder: Path) -> Section:
    table = [["total [ms]", "limit", "simulated", "real", "real / simulated", "actions"]]
    for view in VIEWS:
        for name in PLANNERS:
            mine = found.where(view=view, planner=name)
            limit, simulated, real, actions = map(mine.middle, ("limit", "simulated", "real", "actions"))
            totals = [f"{limit:.2f}", f"{simulated:.1f}", f"{real:.1f}", f"{real / simulated:.2f}x", f"{actions:.0f}"]
            table.append([f"{view}, {name}", *totals])
    picture = folder / "batching-real.png"
    panels = [
        Panel(view, [BandCurve(told, [
            (place, found.values(told, view=view, planner=name)) for place, name in enumerate(PLANNERS)
        ]) for told in ("simulated", "real")]) for view in VIEWS
    ]  # fmt: skip
    draw_panels(
        [panels], picture, title="Simulated and real totals [ms]", x_label="planner", y_log=False, share_y=False,
        x_format=lambda place: PLANNERS[int(place)] if place in range(len(PLANNERS)) else "",
    )  # fmt: skip
    return Section(
        "batching-real",
        "Simulated and real totals",
        f"One change of each table in a step, T = {found.rows[0]['T']:,}. The limit is what a number of changes of "
        f"each table take: {', '.join(f'{k} for {view}' for view, k in TOGETHER.items())}.",
        "the discrepancy between simulated and real cost is negligible.",
        found.judged(_total_claims),
        pictures={"Simulated and real totals by planner, a panel for each view": picture},
        figures=[table],
        cited=CITED,
        items=("Figure 2.5",),
    )


def _total_claims(found: Sweep) -> list[Claim]:
    judged = []
    for view in VIEWS:
        for name in PLANNERS:
            mine = found.where(view=view, planner=name)
            ratio = mine.middle("real") / mine.middle("simulated")
            judged.append(
                ratio_claim(name, f"simulated and real total differ by at most {AGREES}x", ratio,
                            1 / AGREES <= ratio <= AGREES, "the machine was busier, or idler, when costs were measured",
                            view, paper="" if name == THRIFTY else "negligible difference")
            )  # fmt: skip
        mine = found.where(view=view)
        saved = mine.middle("real", planner=LGM) / mine.middle("real", planner=NAIVE)
        right = min(mine.values("right"))
        judged += [
            ratio_claim(LGM, "really costs less than NAIVE", saved, saved < 1, "the view has too little to gain", view),
            Claim("", "in the end the view is what its query gives", "yes" if right else "no", right == 1.0,
                  "maintenance is wrong", workload=view, value=right, form="{:.0f}".format),
        ]  # fmt: skip
    return judged
