"""Compiles or loads what a server runs before it serves, so its first clients do not wait.

Numba compiles a kernel on its first call and keeps it on disk (network/compiling.py says where), so this is slow
once per machine and version. On an empty cache two processes compile one half each, at the same time; then this
one runs every kind of subscription once, which loads what they left and compiles what they may have missed. Where
nothing can be kept, this process compiles everything itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.core import event as numba_event
from numba.core.dispatcher import Dispatcher

from hullcast.broker.engine.engine import Engine
from hullcast.broker.index.a2b import A2BTree
from hullcast.broker.index.grouping import Grouping
from hullcast.broker.joins.costs import Facts
from hullcast.broker.joins.hotspots import large_groups
from hullcast.broker.joins.join_first import JoinFirst
from hullcast.broker.joins.plan import Arrivals, amended
from hullcast.broker.joins.planner import Planner
from hullcast.broker.joins.select_first import SelectFirst
from hullcast.broker.joins.ssi import Hotspot
from hullcast.broker.joins.standing import FEW, JoinLayout, StandingJoins
from hullcast.broker.log.walk import run_log
from hullcast.broker.processes.background import end_with_parent
from hullcast.broker.reformulate.first import Boxes, JoinSide, pairs_in_boxes
from hullcast.broker.scheduling.driver import finish
from hullcast.broker.scheduling.knapsack import packed, update_positions
from hullcast.broker.streams.warming import run_operators
from hullcast.network import compiled
from hullcast.network.answers.aggregate import COUNT, answers_of, same
from hullcast.network.answers.audience import Audience
from hullcast.network.answers.newest import replace_newest, settle, take_newest
from hullcast.network.answers.outbox import Outbox
from hullcast.network.compiling import KernelCache, announce, do_not_announce
from hullcast.network.matching.duality import NO_PARTITIONS
from hullcast.network.node.warming import warm_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Told after each function compiled: (functions done, functions there are, name of the latest).
ReportProgress = Callable[[int, int, str], None]

PACKAGES = ("hullcast.broker.", "hullcast.network.")
#: Two thirds of the time, and some of each half.
DEAR = {"carve", "reformulate", "rebuild", "report_many", "update_many"}

CREATES = (
    "CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK REAL, PER REAL, SHARES INTEGER)",
    "CREATE TABLE ANALYST (ID INTEGER PRIMARY KEY, SECTOR TEXT, TARGET REAL)",
)
RANGE = "FROM STOCK WHERE RISK BETWEEN ? AND ?"
EXTREMA = (f"SELECT MIN(PER) {RANGE}", f"SELECT MAX(PER) {RANGE} AND SECTOR = 'X'", f"SELECT DISTINCT SECTOR {RANGE}")
SUMS_AND_ROWS = (
    f"SELECT COUNT(*) {RANGE}",
    f"SELECT SUM(SHARES) {RANGE}",
    f"SELECT AVG(PER) {RANGE}",
    "SELECT AVG(PER) FROM STOCK WHERE RISK < ? OR RISK > ?",
    f"SELECT SYMBOL, PER {RANGE}",
)
JOINS = (
    "SELECT SYMBOL, TARGET FROM STOCK JOIN ANALYST USING (SECTOR) WHERE RISK BETWEEN ? AND ?",
    "SELECT SYMBOL, TARGET FROM STOCK JOIN ANALYST ON TARGET - PER BETWEEN ? AND ?",
)

_STOCKS = (("A", "X", 1.0, 5.0, 10), ("B", "Y", 1.5, 6.0, 20), ("C", "X", 2.0, 7.0, 30))


@dataclass(frozen=True, slots=True)
class Warmth:
    compiled: int  # functions that had to be compiled, here or in a helper process
    seconds: float

    @property
    def was_cached(self) -> bool:
        return self.compiled == 0


def is_cold() -> bool:
    """Whether one of the kernels that take long to compile has no code on disk, without running any."""
    return not all(cache.holds_code() for cache in _dear())


def warm_server() -> None:
    """Make every kernel ready; where that means to compile, say that it takes a while."""
    if is_cold():
        announce()  # other processes compile, so that numba in this one does not notice
    warm()


def warm(progress: ReportProgress | None = None) -> Warmth:
    """Make every kernel ready to run in this process."""
    started = time.perf_counter()
    report = progress or (lambda done, total, name: None)
    if progress is not None:
        do_not_announce()
    total = len(_functions())
    done = _compile_in_parts(report, total) if is_cold() and all(cache.keeps_code() for cache in _dear()) else 0
    with _watched(lambda name: report(min(total, done), total, name)) as here:
        run_everything()
    report(total, total, "")
    return Warmth(done + len(here), time.perf_counter() - started)


def run_everything() -> None:
    """One subscription of each kind and a bulk of each, through inserts, changes and deletes."""
    _run((*EXTREMA, *SUMS_AND_ROWS))
    _run(JOINS)
    for run in (*BESIDE_TREES, *BESIDE_MATCHING):
        run()


def run_trees() -> None:
    """The first half: describing updates. No subscription here, so nothing is matched. What a warehouse plans, too."""
    _run((*EXTREMA, *JOINS), matched=False)
    A2BTree().range_best(np.zeros(1), np.zeros(1), np.ones(1), 1.0)
    for run in BESIDE_TREES:
        run()


def run_matching() -> None:
    """The second half: finding and telling subscriptions, by kinds that need no tree."""
    _run(SUMS_AND_ROWS)
    audience = Audience(2, Outbox(16))  # rectangles are matched here too, without a tree to make them
    audience.admit(np.array([[0.0, 1.0]]))
    edge = np.zeros(1)
    for _ in audience.inside(edge, edge, edge - 1, edge + 2, NO_PARTITIONS):
        pass
    sides = (JoinSide([edge], [0], edge), JoinSide([], [], edge))  # first answers of joins, without their trees
    pairs_in_boxes(sides, None, Boxes.of(np.zeros((1, 1)), np.ones((1, 1))), whole=True)
    for run in BESIDE_MATCHING:
        run()


def _run(queries: Sequence[str], *, matched: bool = True) -> None:
    """Change tables that are subscribed to by one and by many of each, or only described."""
    engine = Engine()
    for sql in CREATES:
        engine.execute(sql)
    stocks = [dict(zip(("SYMBOL", "SECTOR", "RISK", "PER", "SHARES"), row, strict=True)) for row in _STOCKS]
    engine.upsert("STOCK", stocks)
    engine.upsert("ANALYST", {"ID": [1, 2], "SECTOR": ["X", "Y"], "TARGET": [5.0, 6.0]})
    one, many = [], []
    for sql in queries:
        if matched:
            one.append(engine.subscribe(sql, 1, 2))
            many.append(engine.subscribe_many(sql, np.arange(3.0), np.arange(3.0) + 1))
        else:
            engine.open_channel(sql, 1, 2)
    engine.upsert("STOCK", {"SYMBOL": ["A", "B"], "PER": [9.0, 4.0]})
    engine.upsert("STOCK", {"SYMBOL": "A", "PER": 5.0})
    engine.upsert("ANALYST", {"ID": [1], "TARGET": [7.0]})
    engine.delete("STOCK", ["A"])
    engine.delete("STOCK", ["B", "C"])
    for subscription in one:
        _ = subscription.answer
        subscription.drain()
        subscription.close()
    for subscriptions in many:
        subscriptions.close()


def run_standing_joins() -> None:
    """Partners of a row by few ranges, then by each plan for many, while ranges come and go."""
    ends, zero, tree = np.arange(2.0 * FEW), np.zeros(1), A2BTree().memory
    points = np.column_stack((ends, ends + 9, ends, ends + 9))
    layout, row = JoinLayout.of((0, 1), band=False, partitioned=False), Arrivals(zero, zero, zero)
    joins = StandingJoins(layout, at_once=False)
    joins.wanted_since(points)
    for some in (points[:1], points[1:-1], points[-1:]):
        joins.add(some, 0)
        joins.partners(0, tree, row, 1)  # one by one, without plans, then with plans that are behind
        upkeep = joins.upkeep()
        if upkeep is not None:
            finish(upkeep)
            joins.partners(0, tree, row, 1)
    large_groups(ends, ends, 2)  # among intervals that have nothing in common
    for plan in (Hotspot(), Hotspot(0.5), SelectFirst(), JoinFirst()):
        plan.add(np.arange(len(points)), points)
        plan.spans(tree, row)
        plan.remove(np.arange(2))
        found = plan.spans(tree, row)
        plan.add(np.arange(2), points[:2])
        amended(*found, points[:1], points[1:2], tree, *row)
    joins.remove(points[:1])
    joins.partners(0, tree, row, 1)


def run_groups() -> None:
    """Combinations of two columns, numbered and forgotten."""
    groups = Grouping(2)
    groups.numbers([np.arange(3.0), np.zeros(3)], 3)
    groups.sweep(np.zeros(1))


def run_planner() -> None:
    """Plans of joins, chosen for a row; enough ranges that not all of their ends get a bucket."""
    ends, zero = np.arange(400.0), np.zeros(1)
    rectangles = np.column_stack((ends, ends + 9, ends, ends))
    for band in (False, True):
        planner = Planner(band=band)
        for some in (rectangles, rectangles[:1]):
            planner.add(some)
            row, facts = Arrivals(zero, zero, zero), Facts(0, len(ends))
            planner.choose(A2BTree().memory, row, facts)
            planner.estimates(row, facts)  # a lone row may be given a plan without looking at it


def run_newest() -> None:
    """Messages to a client that keeps newest answers only."""
    audience = Audience(2, Outbox(16))
    audience.admit(np.array([[0.0, 1.0]]))
    edge, seqs, latest, fresh = np.zeros(1), *(np.zeros(1, np.int64) for _ in range(3))
    sides = (edge, edge, edge - 1, edge + 2, NO_PARTITIONS)
    replace_newest(audience.index.arrays, *sides, seqs, edge, edge.copy(), latest, fresh)
    news, told = settle(seqs, seqs, latest, fresh), np.zeros(1)
    take_newest(news, *answers_of(COUNT, np.zeros((1, 4)), news), told, told.copy(), fresh, latest, seqs)
    same(0.0, 0.0, 0.0, 0.0)


def run_streams() -> None:
    """Tuples that came before a subscription to them, or to a window, and behind it."""
    engine = Engine()
    engine.execute("CREATE STREAM TRADES (PRICE REAL)")
    engine.upsert("TRADES", {"PRICE": [1.0, 2.0]})
    with engine.subscribe("SELECT PRICE FROM TRADES WHERE PRICE BETWEEN ? AND ?", 0, 5, after=0) as one:
        engine.upsert("TRADES", {"PRICE": [3.0]})
        one.drain()
    with engine.subscribe("SELECT COUNT(*) FROM TRADES [ROWS 2]"):
        engine.upsert("TRADES", {"PRICE": [4.0]})


def run_knapsack() -> None:
    """A plan of the warehouse's policy Pareto, with enough updates that not all is known without looking at states."""
    costs, places = np.arange(3, 11), np.tile(np.array([1, 3, 4]), 8)
    positions = update_positions(costs, costs[::-1] % 5 + 1, np.arange(0, 25, 3), places)
    assert packed(positions, 70).work


BESIDE_TREES = (run_groups, run_standing_joins, run_planner, run_knapsack)
BESIDE_MATCHING = (run_newest, run_streams, run_log, run_operators, warm_node)
PARTS = (run_trees, run_matching)


# --- what numba has compiled ---------------------------------------------------------------------------------------


def _functions() -> list[Any]:
    """Every compiled function of our packages that is imported now."""
    compiled.load()
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKAGES):
            for value in vars(module).values():
                if isinstance(value, Dispatcher):
                    found[id(value)] = value
    return list(found.values())


def _dear() -> list[KernelCache]:
    """Where the code of the kernels that take long to compile is kept."""
    return [function._cache for function in _functions() if function.py_func.__name__ in DEAR]


@contextmanager
def _watched(report: Callable[[str], object]) -> Iterator[list[str]]:
    """Collect (and report) the names of the functions compiled meanwhile; those loaded from disk are not."""
    names: list[str] = []

    class Watcher(numba_event.Listener):
        def on_start(self, event: Any) -> None:
            pass

        def on_end(self, event: Any) -> None:
            names.append(event.data["dispatcher"].py_func.__name__)
            report(names[-1])

    with numba_event.install_listener("numba:compile", Watcher()):
        yield names


# --- two processes -------------------------------------------------------------------------------------------------


def part_command(part: int) -> list[str]:
    """What compiles one part, in a process of its own."""
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path}; from {__name__} import main; main({part})"]


def _compile_in_parts(report: ReportProgress, total: int) -> int:
    """Let a process a part compile, and report what they say, all into one pipe; how many functions they compiled."""
    here, there = os.pipe()
    helpers, done = [], 0
    try:
        with open(here, encoding="utf-8") as said:
            try:  # whatever goes wrong there comes up here again, when this process compiles
                for part in range(len(PARTS)):
                    command, none = part_command(part), subprocess.DEVNULL
                    helpers.append(subprocess.Popen(command, stdin=none, stdout=there, stderr=none))
            finally:
                os.close(there)
            for name in said:
                done += 1
                report(min(done, total - 1), total, name.strip())
    finally:
        for helper in helpers:
            helper.terminate()
            helper.wait()
    return done


def main(part: int) -> None:
    """Compile a part of the kernels, and print the name of each function."""
    end_with_parent()
    do_not_announce()  # the process that started this one does
    with _watched(lambda name: os.write(sys.stdout.fileno(), f"{name}\n".encode())):  # a line at once: two write
        PARTS[part]()
