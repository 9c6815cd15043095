"""A view by a simulated clock: a planner, changes that come in steps, and given costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hullcast.broker.views.planner import emptied, taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from hullcast.broker.views.costs import CostFunction
    from hullcast.broker.views.planner import ViewPlanner


@dataclass(frozen=True, slots=True)
class Action:
    """Tables that were emptied in a step, and what they held."""

    step: int
    tables: tuple[int, ...]
    batches: tuple[int, ...]


@dataclass(slots=True)
class SimulatedView:
    """What became of it. The last action is the refresh at the end, of all tables that had changes."""

    cost_s: float = 0.0
    actions: list[Action] = field(default_factory=list)


def simulate(
    planner: ViewPlanner,
    arrivals: npt.NDArray[np.int64],
    costs: Sequence[CostFunction],
    limit_s: float,
) -> SimulatedView:
    """Let a planner maintain a view: `arrivals[t]` changes of each table come in step t (it ends at time t + 1), and
    when those of the last step are there the view is refreshed.

    RuntimeError if the planner leaves more pending than the limit allows (V1).
    """
    planner.refreshed(0.0)
    found = SimulatedView()
    pending = [0] * arrivals.shape[1]
    last = len(arrivals) - 1
    for step, come in enumerate(arrivals.tolist()):
        now = step + 1.0
        pending = [k + more for k, more in zip(pending, come, strict=True)]
        if step == last:
            tables = tuple(table for table, k in enumerate(pending) if k)
        else:
            tables = planner.next(pending, costs, limit_s, now)
        if tables:
            batches = tuple(pending[table] for table in tables)
            took_s = 0.0
            for table, k in zip(tables, batches, strict=True):
                took_s += costs[table].of(k)
            pending = emptied(pending, tables)
            found.cost_s += took_s
            found.actions.append(Action(step, tables, batches))
            if step != last:
                planner.acted(tables, pending, took_s, now)
        if taken(pending, costs) > limit_s:
            raise RuntimeError(
                f"step {step}: {planner.name} leaves {pending} pending, which take {taken(pending, costs):g} s of "
                f"{limit_s:g} s"
            )
    planner.refreshed(last + 1.0)
    return found
