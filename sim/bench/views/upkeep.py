"""CPU seconds to maintain one view: at every change, all tables at the limit, or as a server does.

All ways use the loader of the warehouse; each has a view of its own, with the same SELECT. The log is written as a
server writes it, each change a record, a round of changes at a time. A round ends with a refresh (unless nobody asks);
ways take turns. The clock of the planners is simulated: so many changes a second. Their own CPU counts, too.

Views have all indexes that their joins can use, so costs are nearly linear: what is batched saves fixed costs, and
there is little to gain by choosing *which* table is batched. What Xie (2007) begins with is a join that lacks an index
on one side. So there are cases in which we take that index away.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any

from hullcast.broker.log.history import Life
from hullcast.broker.queries.view import bind_view
from hullcast.broker.sql.create import parse_statement
from hullcast.broker.sql.view import CreateView
from hullcast.broker.tables.schema import fold
from hullcast.broker.views.upkeep import OVERHEAD_S, SHARE, Spent, Upkeep
from hullcast.broker.warehouse.files.table_file import file_of, open_for_reading
from hullcast.broker.warehouse.files.view_file import COMMIT_S, COSTS, ViewLife
from hullcast.broker.warehouse.files.view_loader import ViewLoader
from hullcast.broker.warehouse.process.worker import MEASURED
from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.bench.frame.log import WrittenLog
from hullcast.sim.bench.frame.timing import MeasurementFailed, rotated, turns
from hullcast.sim.bench.frame.worker import FILL_ROWS, in_batches
from hullcast.sim.bench.views.workload import (
    CREATE_TABLES,
    OFFERS_EACH,
    SELECT,
    SUPPLIERS,
    OfferChanges,
    create_view,
    first_rows,
)
from hullcast.sim.experiments.studies.batching.planners import Naive

if TYPE_CHECKING:
    from hullcast.sim.bench.views.benchmark import ViewSettings

EVERY, NAIVE, OURS = "every change", "all at the limit", "ours"
WAYS = (EVERY, NAIVE, OURS)
#: Changes a second, by the clock of the planners.
RATE = 2_000.0


@dataclass(frozen=True, slots=True)
class UpkeepCase:
    """Which changes come, and what is promised."""

    name: str
    offers_share: float  # of all changes; the others are of suppliers
    response_time_s: float = 0.05
    indexed: bool = True  # whether offers are found by their supplier
    asked: bool = True  # whether somebody asks for the view after each round


#: Without the index a promise leaves room for so many batches of suppliers: each of them goes through all offers.
SCANS = 1.5


#: The first is the one that is judged.
CASES = (
    UpkeepCase("all indexes, 50 ms", 0.5),
    UpkeepCase("all indexes, 10 ms", 0.5, 0.01),
    UpkeepCase("all indexes, 50 ms, few changes of suppliers", 0.98),
    UpkeepCase("one index less", 0.98, indexed=False),
    UpkeepCase("one index less, nobody asks", 0.98, indexed=False, asked=False),
)


@dataclass(frozen=True, slots=True)
class WayFigures:
    """One way, over all rounds."""

    way: str
    cpu_s: float
    us: float  # CPU a change, median of rounds
    propagations: float  # a round
    deciding_share: float  # of the CPU: what the planner itself takes


@dataclass(frozen=True, slots=True)
class ViewUpkeepLine:
    """One case. Ratios are what others take by what ours takes, over all rounds."""

    name: str
    limit_ms: float  # of work that may be pending, as it was in the end
    batch_ms: dict[str, float]  # what a batch of each table takes besides its rows, as learned by ours
    row_us: dict[str, float]  # what a row takes
    ways: tuple[WayFigures, ...]
    every_ratio: float
    naive_ratio: float


@dataclass(frozen=True, slots=True)
class ViewUpkeepSection:
    """All cases."""

    offers: int
    changes: int  # of a round
    rounds: int
    lines: tuple[ViewUpkeepLine, ...]


@dataclass(frozen=True, slots=True)
class _Turn:
    cpu_s: float
    deciding_s: float
    propagations: int


class OfferLog(WrittenLog):
    """The tables of the four-way join with their first rows, and what comes then."""

    def __init__(self, path: Path, suppliers: int, seed: int) -> None:
        super().__init__(path)
        self._tables = {fold(table.name): table for table in map(self.create, CREATE_TABLES.values())}
        for table, columns in first_rows(suppliers, seed).items():
            for some in in_batches(columns, FILL_ROWS):
                self.append(table, some)
        self.sync()

    def view(self, name: str, response_time_s: float) -> ViewLife:
        """A view of the four-way join, created now."""
        statement = parse_statement(create_view(name, response_time_s))
        assert isinstance(statement, CreateView), "as written there"
        definition = bind_view(statement, self._tables)
        return ViewLife(definition, self.seq, tuple(Life(table, 0) for table in definition.tables))


class ReplayedView:
    """One view, to which changes of a log come, maintained in one way."""

    def __init__(self, loader: ViewLoader, life: ViewLife, upkeep: Upkeep | None) -> None:
        """Without an upkeep every change is propagated when it comes."""
        self.life, self.upkeep = life, upkeep
        self._loader = loader
        self._pending = {fold(table.name): 0 for table in life.definition.tables}

    def turn(self, changes: Sequence[tuple[str, int]], began: float, *, asked: bool) -> _Turn:
        """Changes come, each a table (folded) and a sequence number; perhaps somebody asks in the end."""
        propagations, deciding_s, started = 0, 0.0, process_time()
        for number, (table, seq) in enumerate(changes):
            now = began + number / RATE
            self._pending[table] += 1
            if self.upkeep is None:
                due: tuple[str, ...] = (table,)
            else:
                before = process_time()
                due = self.upkeep.due(self._pending, now)
                deciding_s += process_time() - before
            if due:
                propagations += 1
                self._propagate(due, seq, now)
        if asked:
            propagations += 1
            self.refresh(changes[-1][1], began + len(changes) / RATE)
        return _Turn(process_time() - started, deciding_s, propagations)

    def refresh(self, seq: int, now: float) -> None:
        """Bring all tables to one sequence number, so that the view can be read."""
        self._propagate(tuple(self._pending), seq, now)
        if self.upkeep is not None:
            self.upkeep.up_to_date(now)

    def _propagate(self, tables: Iterable[str], seq: int, now: float) -> None:
        upkeep, rows = self.upkeep, {table: self._pending[table] for table in tables}
        recompute = upkeep is not None and upkeep.recomputes(rows)
        done = self._loader.propagate(self.life, dict.fromkeys(rows, seq), recompute=recompute)
        self._loader.tidy(self.life)
        for table in done.spent:
            self._pending[table] = 0
        if upkeep is not None:
            some = {table: each for table, each in done.spent.items() if each.rows}
            upkeep.propagated(done._replace(spent=some), self._pending, now)

    def rows(self, directory: Path) -> list[tuple[Any, ...]]:
        """What is in the view's file."""
        with closing(open_for_reading(directory, [self.life])) as database:
            return sorted(database.execute(f'SELECT * FROM "{self.life.table.name}"').fetchall())


def upkeep(settings: ViewSettings, tick: Tick) -> ViewUpkeepSection:
    """Measure all cases: rounds of so many changes, and one before them that only warms up."""
    lines, suppliers = [], settings.upkeep_suppliers
    with tempfile.TemporaryDirectory(prefix="hullcast-bench-", ignore_cleanup_errors=True) as folder:
        for number, case in enumerate(CASES):
            log = OfferLog(Path(folder) / str(number), suppliers, settings.seed)
            loader = ViewLoader(log.path)
            with closing(log), closing(loader):
                lines.append(_measured(case, log, loader, settings, tick))
    changes, rounds = settings.upkeep_changes, settings.upkeep_rounds
    return ViewUpkeepSection(suppliers * OFFERS_EACH, changes, rounds, tuple(lines))


def _measured(
    case: UpkeepCase, log: OfferLog, loader: ViewLoader, settings: ViewSettings, tick: Tick
) -> ViewUpkeepLine:
    changes, rounds = settings.upkeep_changes, settings.upkeep_rounds
    source, views = OfferChanges(settings.upkeep_suppliers, settings.seed, case.name), _made(case, log, loader)
    done: dict[str, list[_Turn]] = {way: [] for way in WAYS}
    for turn in turns(rounds, tick, f"upkeep, {case.name}"):
        tables = source.which(changes, case.offers_share)
        come = [(fold(table), log.append(table, source.of(table, 1))) for table in tables]
        log.sync()
        for way in rotated(WAYS, turn):
            done[way].append(views[way].turn(come, turn * changes / RATE, asked=case.asked))
    wanted = answer(source)
    for way, view in views.items():
        view.refresh(log.seq, (rounds + 1) * changes / RATE)
        if view.rows(log.path) != wanted:
            raise MeasurementFailed(f"{case.name}, {way}: the view is not what its SELECT gives")
    counted = {way: of[1:] for way, of in done.items()}
    ours = views[OURS].upkeep
    assert ours is not None, "made with one"
    facts = ours.facts(dict.fromkeys(ours.tables, 0))
    costs = {table: cost for table, cost in facts["costs"].items() if ours.costs[table].batches > len(MEASURED)}
    ways = tuple(_figures(way, of, changes) for way, of in counted.items())
    every_s, naive_s, ours_s = (one.cpu_s for one in ways)
    return ViewUpkeepLine(
        case.name,
        1e3 * facts["limit_s"],
        {table: 1e3 * cost["batch_s"] for table, cost in costs.items()},
        {table: 1e6 * cost["row_s"] for table, cost in costs.items()},
        ways,
        every_s / ours_s,
        naive_s / ours_s,
    )


def _made(case: UpkeepCase, log: OfferLog, loader: ViewLoader) -> dict[str, ReplayedView]:
    """A view for each way, and what changes were measured to take, as when a server creates it: the same for all."""
    names = {EVERY: "CHEAPEST_EACH", NAIVE: "CHEAPEST_NAIVE", OURS: "CHEAPEST_OURS"}
    lives = {way: log.view(name, case.response_time_s) for way, name in names.items()}
    for life in lives.values():
        loader.build(life, log.seq)
        if not case.indexed:
            drop_index(log.path, life, loader)
    life = lives[OURS]
    tables = [fold(table.name) for table in life.definition.tables]
    measured = {
        table: [Spent(k, min(loader.measure(life, table, k) for _ in range(2)) + COMMIT_S) for k in MEASURED]
        for table in tables
    }
    promise_s = case.response_time_s
    if not case.indexed:  # of some suppliers, so that one of them concerns the view
        promise_s = OVERHEAD_S + SCANS * measured[fold(SUPPLIERS)][1].took_s / SHARE
    return {
        EVERY: ReplayedView(loader, lives[EVERY], None),
        NAIVE: ReplayedView(loader, lives[NAIVE], Upkeep(tables, promise_s, measured, Naive())),
        OURS: ReplayedView(loader, lives[OURS], Upkeep(tables, promise_s, measured)),
    }


def drop_index(directory: Path, life: ViewLife, loader: ViewLoader) -> None:
    """Take away the index by which the view's copy of offers is looked up, and what computing took with it. The loader
    may make one for each batch of suppliers then, from all offers: a high cost for a batch, however few they are. (If
    it may not, as in a server, it goes through all offers for each supplier, which is no cost of a batch.)"""
    with closing(sqlite3.connect(file_of(directory, life), isolation_level=None)) as database:
        found = database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '%copy0%'"
        ).fetchall()
        if len(found) != 1:
            raise MeasurementFailed(f"the copy of offers has {len(found)} indexes instead of one")
        database.execute(f'DROP INDEX "{found[0][0]}"')
        database.execute(f"UPDATE {COSTS} SET compute_s = NULL")
    file = loader._files.get(life)
    assert file is not None
    file._database.execute("PRAGMA automatic_index = ON")


def answer(source: OfferChanges) -> list[tuple[Any, ...]]:
    """SQLite's own answer to the SELECT of the view, over the tables as they are after all changes."""
    with closing(sqlite3.connect(":memory:")) as database:
        for table, columns in source.rows.items():
            database.execute(CREATE_TABLES[table])
            plain = [column if isinstance(column, list) else column.tolist() for column in columns.values()]
            marks = ", ".join("?" * len(plain))
            database.executemany(f"INSERT INTO {table} VALUES ({marks})", zip(*plain, strict=True))
        return sorted(database.execute(SELECT).fetchall())


def _figures(way: str, turns: Sequence[_Turn], changes: int) -> WayFigures:
    cpu_s = sum(turn.cpu_s for turn in turns)
    return WayFigures(
        way,
        cpu_s,
        1e6 * median(turn.cpu_s for turn in turns) / changes,
        sum(turn.propagations for turn in turns) / len(turns),
        sum(turn.deciding_s for turn in turns) / cpu_s,
    )
