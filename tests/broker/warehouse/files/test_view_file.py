"""After any deltas of any tables in any order, a view is what SQLite's SELECT gives over the rows propagated so far."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from math import inf
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hullcast.broker.log.history import Life
from hullcast.broker.queries.view import ViewDefinition
from hullcast.broker.tables.schema import fold
from hullcast.broker.views.statements import ViewStatements
from hullcast.broker.warehouse.files.table_file import FileBounds, NewFile, open_for_load, open_for_reading, pin
from hullcast.broker.warehouse.files.view_file import DeltaTooDearError, ViewFile, ViewLife, overall, prepare
from tests.broker.views.strategies import TABLES, VALUES, keys_of, rows_of, views
from tests.support.base_tables import Row, answer, as_stored, ordered, view_of

IDENTITY = bytes(range(16))
BOUNDS = FileBounds(Path())  # none but the largest
Last = dict[Any, Row | None]
tables = st.integers(0, 3)


def life_of(definition: ViewDefinition) -> ViewLife:
    return ViewLife(definition, 0, tuple(Life(table, 0) for table in definition.tables))


def made(directory: Path, life: ViewLife) -> ViewFile:
    """The file of a view over empty tables, open."""
    new = NewFile(directory, IDENTITY, life, ViewFile, {}, BOUNDS)
    new.file.index()
    new.file.compute()
    new.finish(overall(new.file.states()))
    file = open_for_load(directory, IDENTITY, life, ViewFile)
    assert file is not None
    return file


def propagate(file: ViewFile, table: str, changes: Last, within_s: float = inf) -> None:
    """Within a load: the last words on some keys."""
    for source in file.view.definition.sources_of(table):
        there = [as_stored(row) for row in changes.values() if row is not None]
        columns = [[row[column] for row in there] for column in file.reads(source)]
        gone = [as_stored((key,))[0] for key, row in changes.items() if row is None]
        file.propagate(source, columns, gone, within_s)


def fill(file: ViewFile, table: str, changes: Last) -> None:
    """Within a load: the last words on some keys, into the copies only."""
    for source in file.view.definition.sources_of(table):
        there = [as_stored(row) for row in changes.values() if row is not None]
        columns = [[row[column] for row in there] for column in file.reads(source)]
        file.fill(source, columns, [as_stored((key,))[0] for key, row in changes.items() if row is None])


def load(file: ViewFile, table: str, changes: Last, *, recompute: bool = False) -> None:
    file.begin(BOUNDS)
    if recompute:
        fill(file, table, changes)
        file.compute_again()
    else:
        propagate(file, table, changes)
    file.end(overall(file.states()))


def shown(directory: Path, life: ViewLife) -> list[Row]:
    """What a reader sees."""
    database = open_for_reading(directory, [life])
    try:
        pin(database, [life], IDENTITY)
        return ordered(database.execute(f'SELECT * FROM "{life.table.name}"'))
    finally:
        database.close()


@contextmanager
def counted_steps() -> Iterator[None]:
    """Let a second be a step of SQLite, where it is seen whether deltas take too long."""
    with (
        patch("hullcast.broker.warehouse.files.view_file._STEPS", 1),
        patch("hullcast.broker.warehouse.files.view_file.time", SimpleNamespace(perf_counter=count().__next__)),
    ):
        yield


class ViewMachine(RuleBasedStateMachine):
    """Tables change; now and then the changes of one of them are propagated."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(mkdtemp())

    @initialize(data=st.data(), sql=views())
    def create(self, data: st.DataObject, sql: str) -> None:
        self.life = life_of(view_of(sql, TABLES))
        self.file = made(self.directory, self.life)
        self.used = [TABLES.index(table) for table in self.life.definition.tables]
        self.pending: list[Last] = [{} for _ in TABLES]
        self.propagated: list[dict[Any, Row]] = [{} for _ in TABLES]
        for number in self.used:
            rows = data.draw(st.lists(rows_of(number), min_size=4, max_size=10))
            self.pending[number] = {row[TABLES[number].key]: row for row in rows}
        self.refresh()

    @rule(data=st.data(), which=tables, size=st.integers(1, 4))
    def put(self, data: st.DataObject, which: int, size: int) -> None:
        number = self.number(which)
        for _ in range(size):
            row = data.draw(rows_of(number))
            self.pending[number][row[TABLES[number].key]] = row

    @rule(data=st.data(), which=tables)
    def change_a_column(self, data: st.DataObject, which: int) -> None:
        number = self.number(which)
        rows = {**self.propagated[number], **self.pending[number]}
        there = [row for row in rows.values() if row is not None]
        if there:
            row, other = data.draw(st.sampled_from(there)), data.draw(rows_of(number))
            column = data.draw(st.sampled_from(range(len(row))))
            key = TABLES[number].key
            if column == key:  # another row takes its place
                self.pending[number][row[key]] = None
            row = (*row[:column], other[column], *row[column + 1 :])
            self.pending[number][row[key]] = row

    @rule(data=st.data(), which=tables)
    def take(self, data: st.DataObject, which: int) -> None:
        self.pending[self.number(which)][data.draw(keys_of(self.number(which)))] = None

    @rule(which=tables)
    def empty(self, which: int) -> None:
        number = self.number(which)
        self.pending[number].update(dict.fromkeys({**self.propagated[number], **self.pending[number]}))

    @rule(which=tables, recompute=st.booleans())
    def propagate(self, which: int, recompute: bool) -> None:
        number = self.number(which)
        load(self.file, TABLES[number].name, self.pending[number], recompute=recompute)
        self._settle(number)

    @rule(which=tables, steps=st.sampled_from([0, 3, 20, 100, 400, 1000, 10_000]))
    def give_up_what_is_too_dear(self, which: int, steps: int) -> None:
        """Deltas are interrupted, and the result is computed instead; or they are done in time."""
        number = self.number(which)
        name, changes = TABLES[number].name, self.pending[number]
        with counted_steps():
            self.file.begin(BOUNDS)
            try:
                propagate(self.file, name, changes, steps)
                self.file.end(overall(self.file.states()))
                event("in time")
            except DeltaTooDearError:
                event("too dear")
                load(self.file, name, changes, recompute=True)
        self._settle(number)

    @rule(recompute=st.booleans())
    def refresh(self, recompute: bool = False) -> None:
        self.file.begin(BOUNDS)
        for number in self.used:
            (fill if recompute else propagate)(self.file, TABLES[number].name, self.pending[number])
            self._settle(number)
        if recompute:
            self.file.compute_again()
        self.file.end(overall(self.file.states()))

    @rule(which=tables, data=st.data())
    def fail_under_way(self, which: int, data: st.DataObject) -> None:
        """A statement in the middle fails, and the file is closed without any more ado."""
        number = self.number(which)
        self.file.begin(BOUNDS)
        steps = data.draw(st.integers(1, 40))

        def stop() -> bool:
            nonlocal steps
            steps -= 1
            return steps < 0

        self.file._database.set_progress_handler(stop, 10)
        with suppress(sqlite3.OperationalError):
            propagate(self.file, TABLES[number].name, self.pending[number])
        self.reopen()

    @rule()
    def reopen(self) -> None:
        self.file.close()
        file = open_for_load(self.directory, IDENTITY, self.life, ViewFile)
        assert file is not None
        self.file = file

    @rule(which=tables, size=st.integers(1, 3))
    def measure(self, which: int, size: int) -> None:
        self.file.begin(BOUNDS)
        for source in self.life.definition.sources_of(TABLES[self.number(which)].name):
            some = self.file.sample(source, size)
            self.file.exchange(source, (), some)
            self.file.exchange(source, some, ())
        rows = {fold(table.name): self.propagated[number].values() for number, table in enumerate(TABLES)}
        assert self._result() == answer(self.life.definition, rows), "what went came back"
        self.file.undo()

    @rule()
    def compute_again(self) -> None:
        """The copies alone determine the result."""
        self.file.begin(BOUNDS)
        before = self._result()
        self.file.clear()
        for number, table in enumerate(TABLES):
            for source in self.life.definition.sources_of(table.name):
                there = [as_stored(row) for row in self.propagated[number].values()]
                self.file.fill(source, [[row[column] for row in there] for column in self.file.reads(source)], ())
        self.file.compute()
        assert self._result() == before
        self.file.end(overall(self.file.states()))

    @invariant()
    def what_is_shown_is_the_select_over_what_was_propagated(self) -> None:
        rows = {fold(table.name): self.propagated[number].values() for number, table in enumerate(TABLES)}
        found = shown(self.directory, self.life)
        event(f"{min(len(found), 3)} rows")
        assert found == answer(self.life.definition, rows)

    def number(self, which: int) -> int:
        """One of the tables that the view reads."""
        return self.used[which % len(self.used)]

    def teardown(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
        shutil.rmtree(self.directory)

    def _settle(self, number: int) -> None:
        for key, row in self.pending[number].items():
            self.propagated[number].pop(key, None)
            if row is not None:
                self.propagated[number][key] = row
        self.pending[number] = {}

    def _result(self) -> list[Row]:
        return ordered(self.file._database.execute(f'SELECT * FROM "{self.life.table.name}"'))


TestViews = ViewMachine.TestCase
TestViews.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)


@given(views(), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_random_histories(sql: str, seed: int) -> None:
    """More rows and steps than a machine draws, for more views."""
    walk_at_random(sql, random.Random(seed), steps=25)


@pytest.mark.slow
@given(views(), st.integers(0, 2**32))
@settings(max_examples=500, deadline=None)
def test_many_random_histories(sql: str, seed: int) -> None:
    walk_at_random(sql, random.Random(seed), steps=25)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT x.K AS a, y.K AS b FROM A x, A y WHERE x.K = y.X AND x.X = y.X",
        "SELECT COUNT(*), SUM(x.X) FROM A x, A y, A z WHERE x.X = y.X AND y.X = z.X AND x.R < z.R",
        "SELECT COUNT(*), SUM(y.X), SUM(x.X), AVG(x.R) FROM A x JOIN B y ON x.X = y.X AND x.S = y.K AND x.R = y.R",
        "SELECT s.X, COUNT(*), MIN(d.S), MAX(d.S) FROM A s JOIN D d ON s.W = d.K AND s.X = d.X GROUP BY s.X",
        "SELECT X, SUM(X), AVG(X), MIN(X), MAX(X), COUNT(X), COUNT(*) FROM A GROUP BY X",
        "SELECT S, W FROM A GROUP BY S, W",
        "SELECT MIN(W), MAX(W), MIN(S), MAX(R), SUM(R), AVG(R), COUNT(S) FROM A WHERE X IN (0, -1) AND K <> 5",
        "SELECT S FROM A",
        "SELECT a.S, b.K, c.S AS t, d.X FROM A a JOIN B b ON a.X = b.X JOIN C c ON b.R = c.X JOIN D d ON d.X = a.X",
        "SELECT c.K, SUM(a.R) FROM C c JOIN A a ON a.X = c.K GROUP BY c.K, a.S",
    ],
)
def test_histories_of_chosen_views(sql: str) -> None:
    for seed in range(3):
        walk_at_random(f"CREATE VIEW V AS {sql}", random.Random(seed), steps=30)


def walk_at_random(sql: str, chance: random.Random, steps: int) -> None:
    """Change one table after the other; propagate what is pending of one of them after most changes."""
    life = life_of(view_of(sql, TABLES))
    used = [TABLES.index(table) for table in life.definition.tables]
    pending: dict[int, Last] = {number: {} for number in used}
    propagated: dict[int, dict[Any, Row]] = {number: {} for number in used}
    directory = Path(mkdtemp())
    file = made(directory, life)
    for step in range(steps):
        number = used[step] if step < len(used) else chance.choice(used)
        for _ in range(chance.choice([1, 1, 2, 5]) if step >= len(used) else 8):
            row = random_row(chance, number)
            is_gone = chance.random() < (0.3 if step >= len(used) else 0)
            pending[number][row[TABLES[number].key]] = None if is_gone else row
        if chance.random() < 0.1:
            pending[number] = dict.fromkeys(propagated[number])
        number = chance.choice(used) if step >= len(used) else number
        load(file, TABLES[number].name, pending[number], recompute=chance.random() < 0.2)
        propagated[number].update((key, row) for key, row in pending[number].items() if row is not None)
        for key in [key for key, row in pending[number].items() if row is None]:
            propagated[number].pop(key, None)
        pending[number] = {}
        found = shown(directory, life)
        assert found == answer(life.definition, {fold(TABLES[n].name): rows.values() for n, rows in propagated.items()})
    file.close()
    shutil.rmtree(directory)


def random_row(chance: random.Random, number: int) -> Row:
    """A row whose columns beside the key mostly have one of two values."""
    row = []
    for position, column in enumerate(TABLES[number].columns):
        values = VALUES[column.type]
        if position != TABLES[number].key and chance.random() < 0.7:
            values = values[:2]
        elif not column.not_null:
            values = [*values, None]
        row.append(chance.choice(values))
    return tuple(row)


@given(views())
@settings(max_examples=80, deadline=None)
def test_no_delta_scans_a_table_of_the_file(sql: str) -> None:
    """Its cost is that of its keys and of what they meet. SQLite has no statistics here: plans depend on the view."""
    statements = ViewStatements(view_of(sql, TABLES))
    database = sqlite3.connect(":memory:")
    prepare(database, statements)
    for statement in (*statements.create, *statements.indexes):
        database.execute(statement)
    for side, source in enumerate(statements.sources):
        for statement in (*source.clear, source.drop_unchanged, source.is_changed, *source.propagate, *source.store):
            for *_, step in database.execute(f"EXPLAIN QUERY PLAN {statement}"):
                assert not re.match(rf"SCAN (?!n\b|d\b|q\b|temp|\(|CONSTANT|s{side}$)", step), (statement, step)
                assert "AUTOMATIC" not in step, (statement, step)
    database.close()


class ManyViews(ViewMachine):
    """The same, for longer."""


TestManyViews = pytest.mark.slow(ManyViews.TestCase)
ManyViews.TestCase.settings = settings(max_examples=500, stateful_step_count=30, deadline=None)
