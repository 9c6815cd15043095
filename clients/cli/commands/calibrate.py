"""`hullcast calibrate`: measures what join plans cost on this machine, for the server to choose by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.table import Table

from hullcast.broker.joins.costs import DEFAULTS, MODELS, PLANS, Facts
from hullcast.broker.server.calibration import (
    NAME,
    UNREADABLE,
    check_place,
    read_coefficients,
    store_coefficients,
    this_machine,
)
from hullcast.clients.cli.commands.progress import bar
from hullcast.sim.bench.joins.plan_costs import QUICK, WORKLOADS, measured
from hullcast.sim.joins.fitting import PlanRun, fit

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.broker.joins.costs import Coefficients
    from hullcast.sim.joins.fitting import Fit

#: Shown as examples: joining rows, and ranges that hold x.
POINTS = ((1, 1000), (1000, 1), (1000, 1000), (1000, 20_000))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Measures what each plan for many standing joins costs on this machine, and fits the cost models by which a "
        "server chooses a plan for every row that arrives. Takes less than a minute. Without it a server uses "
        "built-in costs: joins are still right, but may be slower."
    )
    parser.epilog = (
        "With --data the result is stored in joins.json in that data directory, even while a server uses it; the "
        "server reads it at its next start. Run it again on a new machine, when little else is running."
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="the server's data directory: store the result there")
    parser.add_argument("--quick", action="store_true", help="a few seconds on small workloads; less exact")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Measure, fit, show, store."""
    directory: Path | None = arguments.data
    before = DEFAULTS
    if directory is not None:
        check_place(directory)
        try:
            before = read_coefficients(directory)
        except UNREADABLE as error:
            if not arguments.json:
                console.print(f"{directory / NAME} cannot be read ({error}); it will be replaced", markup=False)
    workloads = QUICK if arguments.quick else WORKLOADS
    with bar(console, len(workloads)) as tick:
        runs = list(measured(workloads, quick=arguments.quick, tick=tick))
    found = fit(runs, this_machine(), before)
    stored = None if directory is None else store_coefficients(directory, found.coefficients)
    if arguments.json:
        console.file.write(json.dumps(_facts(found, before, runs, stored)) + "\n")
    else:
        _show(found, before, runs, stored, console)
    return 0


# --- showing -------------------------------------------------------------------------------------------------------


def _facts(found: Fit, before: Coefficients, runs: list[PlanRun], stored: Path | None) -> dict[str, object]:
    return {
        **json.loads(found.coefficients.to_json()),
        "off": {plan: None if np.isnan(off) else off for plan, off in zip(PLANS, found.off, strict=True)},
        "measured": len(runs),
        "before": json.loads(before.to_json())["plans"],
        "stored": None if stored is None else str(stored),
    }


def _show(found: Fit, before: Coefficients, runs: list[PlanRun], stored: Path | None, console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, title=f"nanoseconds, fitted to {len(runs)} runs", title_justify="left")
    for name in ("plan", "per", "before", "now", "predictions off by"):
        table.add_column(name, justify="left" if name in ("plan", "per") else "right")
    for plan, (name, terms) in enumerate(MODELS.items()):
        off = "not measured" if np.isnan(found.off[plan]) else f"{found.off[plan]:.0%}"
        for at, term in enumerate(terms):
            old, new = before.values[plan][at], found.coefficients.values[plan][at]
            table.add_row("" if at else name, term.name, f"{old:.2f}", f"{new:.2f}", "" if at else off)
    console.print(table)
    facts = Facts(rows=100_000, ranges=100_000, groups=30, pieces=30_000, cold=5_000)
    k_j, k_s = np.array(POINTS, np.float64).T
    costs = before.costs(facts, k_j, k_s), found.coefficients.costs(facts, k_j, k_s)
    table = Table(
        box=box.SIMPLE_HEAD,
        title="microseconds a row, before > now; 100,000 rows, 100,000 ranges, 30 hot groups",
        title_justify="left",
    )
    table.add_column("joining rows, ranges that hold x")
    for name in (*PLANS, "cheapest"):
        table.add_column(name, justify="left" if name == "cheapest" else "right")
    for at, (joining, holding) in enumerate(POINTS):
        cells = [
            f"{old / 1e3:,.1f} > {new / 1e3:,.1f}" for old, new in zip(costs[0][:, at], costs[1][:, at], strict=True)
        ]
        was, now = (PLANS[int(np.argmin(some[:, at]))] for some in costs)
        table.add_row(f"{joining:,}, {holding:,}", *cells, now if was == now else f"{was} > {now}")
    console.print(table)
    if stored is None:
        text = "not stored; give --data DIR, the data directory of a server, to store it there"
    else:
        text = f"stored in {stored}; the server reads it at its next start (one that runs now goes on as before)"
    console.print(text, markup=False, soft_wrap=True)
