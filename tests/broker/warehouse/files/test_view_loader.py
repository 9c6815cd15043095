"""Views over a real log: after any history, propagations in any order and any mishap they are what SQL says."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from hullcast.broker.log.record import RecordKind
from hullcast.broker.queries.reading import read_query
from hullcast.broker.queries.sqlite_copy import RESULT, Guard
from hullcast.broker.queries.view import create_text
from hullcast.broker.tables.schema import fold
from hullcast.broker.warehouse.files.table_file import FOLDER, FileState, file_of, open_for_reading, pin, remove_others
from hullcast.broker.warehouse.files.table_loader import Loader
from hullcast.broker.warehouse.files.view_file import COMMIT_S, ViewFile, ViewLife
from hullcast.broker.warehouse.files.view_loader import ViewLoader
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import HistoryGone, LoadFailed, SqlError, UnknownTable
from hullcast.network.wire.values import rows_to_columns
from tests.broker.views.strategies import CREATES, NOON, TABLES, keys_of, rows_of, views
from tests.broker.warehouse.files.test_view_file import counted_steps
from tests.support.base_tables import BaseTables, Row, answer, ordered

GROUPS = (
    "CREATE VIEW V AS SELECT B.K, MIN(A.R), COUNT(*), SUM(A.R), AVG(A.X), MAX(A.W) "
    "FROM A JOIN B ON A.S = B.K GROUP BY B.K"
)


def shown(base: BaseTables, view: ViewLife) -> list[Row]:
    database = open_for_reading(base.path, [view])
    try:
        pin(database, [view], base.data.identity)
        return ordered(database.execute(f'SELECT * FROM "{view.table.name}"'))
    finally:
        database.close()


def is_right(base: BaseTables, loader: ViewLoader, view: ViewLife) -> bool:
    """Whether the view is its SELECT over the tables as of the sequence numbers up to which they are propagated."""
    states = loader.state(view)
    assert states is not None
    rows = {table: base.as_of(table, state.current) for table, state in states.items()}
    return shown(base, view) == answer(view.definition, rows)


tables = st.sampled_from(range(len(TABLES)))
steps = st.one_of(
    tables.flatmap(lambda n: st.tuples(st.just("put"), st.just(n), st.lists(rows_of(n), min_size=1, max_size=5))),
    tables.flatmap(lambda n: st.tuples(st.just("take"), st.just(n), st.lists(keys_of(n), min_size=1, unique=True))),
    st.tuples(st.sampled_from(["checkpoint", "reopen"])),
    st.tuples(
        st.just("propagate"),
        st.dictionaries(tables, st.floats(0, 1), min_size=1),
        st.booleans(),
        st.sampled_from(["deltas", "recompute", "given up"]),
        st.sampled_from([0, 20, 200, 1000]),
        st.booleans(),
    ),
)


@given(views(), st.lists(steps, max_size=20), st.sampled_from([0, 1 << 40]))
@settings(deadline=None, max_examples=30)
def test_after_any_propagations_a_view_is_its_select_over_what_was_propagated(
    sql: str, history: list[tuple[Any, ...]], history_bytes: int
) -> None:
    with TemporaryDirectory() as folder:
        base = BaseTables(Path(folder) / "data", CREATES, segment_bytes=400, history_bytes=history_bytes)
        view, loader = base.view(sql), ViewLoader(base.path)
        everything = dict.fromkeys(tables_of(view), 1.0)
        for step, *arguments in (*history, ("propagate", everything, True, "deltas", 0, False)):
            match step:
                case "put" | "take":
                    number, values = arguments
                    getattr(base, step)(TABLES[number].name, values)
                case "propagate":
                    shares, fresh, way, patience, told = arguments
                    if fresh:
                        loader.close()
                        loader = ViewLoader(base.path)
                    propagate(base, loader, view, shares, way, patience, told)
                case _:
                    getattr(base, step)()
        now = {table: base.now[table].values() for table in map(fold, base.tables)}
        assert shown(base, view) == answer(view.definition, now)
        remove_others(base.path, [view])
        assert is_right(base, loader, view)
        loader.close()
        base.data.close()


def tables_of(view: ViewLife) -> list[int]:
    return [TABLES.index(table) for table in view.definition.tables]


def propagate(
    base: BaseTables, loader: ViewLoader, view: ViewLife, shares: dict[int, float], way: str, steps: int, told: bool
) -> None:
    """Propagate a share of what is pending of some tables: by deltas, by computing the result again, or by deltas that
    are given up after some steps. Perhaps the loader is told where changes begin."""
    states, through = loader.state(view), {}
    for number, share in shares.items():
        if number in tables_of(view):
            name = TABLES[number].name
            least = max(view.created if states is None else states[fold(name)].current, base.data.readable_from)
            through[name] = least + round(share * (base.seq - least))
    if not through:
        return
    counted: dict[str, int | None] = {}
    if states is not None:
        at = {table: states[fold(table)].current for table in through}
        with closing(Loader(base.path)) as bases:
            counted = {fold(table): bases.count(view.base(table), at[table], seq) for table, seq in through.items()}
    with ExitStack() as patience:
        if way == "given up":
            patience.enter_context(counted_steps())
            patience.enter_context(patch("hullcast.broker.warehouse.files.view_loader.LEAST_PATIENCE_S", steps))
        since = first_changes(base, states) if told and states is not None else None
        done = loader.propagate(view, through, since=since, recompute=way == "recompute")
    assert done.built or (done.recomputed_s is not None) >= (way == "recompute")
    assert done.given_up is None or done.recomputed_s is not None
    event(f"{way}, {'built' if done.built else 'recomputed' if done.recomputed_s is not None else 'deltas'}")
    after = loader.state(view)
    assert after is not None
    for table, seq in through.items():
        assert after[fold(table)].current >= seq
    if states is not None and not done.built:
        updates = {table: [seq for seq, *_ in base.history[table]] for table in states}
        for table, state in states.items():
            pending = [seq for seq in updates[table] if state.current < seq <= after[table].current]
            assert table not in done.spent or done.spent[table].rows == counted[table] == len(pending)
            assert after[table].last == max(pending, default=state.last)
    assert is_right(base, loader, view)


def first_changes(base: BaseTables, states: dict[str, FileState]) -> dict[str, int]:
    """By table, up to where it has no change that is not propagated."""
    changed = {
        table: [seq for seq, *_ in base.history[table] if seq > state.current] for table, state in states.items()
    }
    return {table: min(seqs) - 1 if seqs else base.seq for table, seqs in changed.items()}


@pytest.fixture
def base(tmp_path: Path) -> Iterator[BaseTables]:
    made = BaseTables(tmp_path / "data", CREATES, segment_bytes=400, history_bytes=0)
    yield made
    made.data.close()


@pytest.fixture
def loader(base: BaseTables) -> Iterator[ViewLoader]:
    made = ViewLoader(base.path)
    yield made
    made.close()


def fill(base: BaseTables) -> None:
    base.put("B", [("a", 1, 0.5, None), ("b", 2, 0.5, None)])
    base.put("A", [(1, 5, 0.1, "a", NOON), (2, None, 0.2, "a", None), (0, 5, 7.5, "b", NOON), (-1, 1, 1.0, None, None)])


def test_a_view_without_a_file_has_no_state(base: BaseTables, loader: ViewLoader) -> None:
    view = base.view(GROUPS)
    assert loader.state(view) is None
    loader.build(view, base.seq)
    assert loader.state(view) is not None


def test_changes_behind_one_table_do_not_show_what_others_have_by_now(base: BaseTables, loader: ViewLoader) -> None:
    """The state bug: a new row of A would meet a new row of B, and meet it again when B is propagated."""
    view = base.view("CREATE VIEW V AS SELECT COUNT(*) FROM A JOIN B ON A.S = B.K")
    loader.build(view, base.seq)
    fill(base)
    loader.propagate(view, {"A": base.seq})
    assert shown(base, view) == ordered([(0,)])
    loader.propagate(view, {"B": base.seq})
    assert shown(base, view) == ordered([(3,)])


def test_a_view_is_built_from_a_checkpoint_and_the_log_behind_it(base: BaseTables, loader: ViewLoader) -> None:
    fill(base)
    base.checkpoint()
    base.put("A", [(1, 5, -0.5, "b", NOON)])
    view = base.view(GROUPS)
    assert loader.build(view, base.seq).built
    assert is_right(base, loader, view)
    assert not loader.build(view, base.seq).built


def test_where_the_log_was_cut_a_view_is_built_again(base: BaseTables, loader: ViewLoader) -> None:
    view = base.view(GROUPS)
    loader.build(view, base.seq)
    behind = base.seq
    for _ in range(3):
        for _ in range(5):
            fill(base)
        base.checkpoint()
    base.take("A", [2])
    assert base.data.readable_from > behind
    assert loader.propagate(view, {"A": base.seq}).built
    assert is_right(base, loader, view)
    states = loader.state(view)
    assert states is not None
    assert {state.current for state in states.values()} == {base.seq}
    fresh = base.view(GROUPS.replace(" V ", " FRESH "))
    with pytest.raises(HistoryGone):
        loader.build(fresh, behind + 1)


def test_a_file_of_another_course_of_events_is_removed(base: BaseTables, loader: ViewLoader) -> None:
    fill(base)
    view = base.view(GROUPS)
    loader.build(view, base.seq)
    assert loader.state(view, newest=base.seq) is not None
    assert loader.state(view, newest=base.seq - 1) is None
    assert not file_of(base.path, view).exists()


def test_a_view_made_again_has_another_file(base: BaseTables) -> None:
    first = base.view(GROUPS)
    base.take("A", [1])
    assert file_of(base.path, base.view(GROUPS)) != file_of(base.path, first)
    other_table = first._replace(bases=tuple(life._replace(created=life.created + 1) for life in first.bases))
    assert file_of(base.path, other_table) != file_of(base.path, first)


@pytest.mark.parametrize("damage", ["nothing in it", "not a database", "no copy", "no tables", "pages"])
def test_a_damaged_file_is_made_again(base: BaseTables, loader: ViewLoader, damage: str) -> None:
    fill(base)
    view = base.view(GROUPS)
    loader.build(view, base.seq)
    loader.close()
    path = file_of(base.path, view)
    match damage:
        case "nothing in it":
            path.write_bytes(b"")
        case "not a database":
            path.write_bytes(os.urandom(20_000))
        case "pages":
            content = path.read_bytes()
            path.write_bytes(content[:8192] + os.urandom(len(content) - 8192))
        case _:
            database = sqlite3.connect(path)
            name = {"no copy": "hullcast_copy0", "no tables": "hullcast_tables"}[damage]
            database.execute(f"DROP TABLE {name.ljust(65, '_')}")
            database.close()
    base.put("A", [(1, 5, 9.0, "a", NOON)])
    assert loader.propagate(view, {"A": base.seq}).built
    assert is_right(base, loader, view)


def test_a_folder_that_cannot_be_written_is_an_error_that_names_the_view(base: BaseTables, loader: ViewLoader) -> None:
    (base.path / FOLDER).write_text("a file")
    view = base.view(GROUPS)
    with pytest.raises(LoadFailed, match="view V cannot be loaded"):
        loader.build(view, base.seq)
    (base.path / FOLDER).unlink()
    loader.build(view, base.seq)
    assert is_right(base, loader, view)


def test_measuring_leaves_a_view_as_it_is(base: BaseTables, loader: ViewLoader) -> None:
    fill(base)
    view = base.view(GROUPS)
    loader.build(view, base.seq)
    before = file_of(base.path, view).read_bytes()
    for table in ("A", "b"):
        assert 0 < loader.measure(view, table, 2) < loader.measure(view, table, 10_000)
    loader.close()
    assert file_of(base.path, view).read_bytes() == before
    assert is_right(base, loader, view)


def test_an_empty_table_can_be_measured(base: BaseTables, loader: ViewLoader) -> None:
    view = base.view(GROUPS)
    loader.build(view, base.seq)
    assert loader.measure(view, "A", 10) > 0


def test_a_self_join_takes_each_change_on_both_sides(base: BaseTables, loader: ViewLoader) -> None:
    view = base.view("CREATE VIEW V AS SELECT x.K AS X, y.K AS Y FROM A x JOIN A y ON x.S = y.S AND x.K < y.K")
    loader.build(view, base.seq)
    fill(base)
    loader.propagate(view, {"a": base.seq})
    assert shown(base, view) == ordered([(1, 2)])
    base.take("A", [1])
    base.put("A", [(0, 5, 7.5, "a", NOON)])
    loader.propagate(view, {"A": base.seq})
    assert shown(base, view) == ordered([(0, 2)])


def test_queries_read_a_view_and_nothing_else_of_its_file(base: BaseTables, loader: ViewLoader) -> None:
    fill(base)
    view = base.view(GROUPS.replace("MIN(A.R)", 'MIN(A.R) AS "least (€)"'))
    loader.build(view, base.seq)
    database = open_for_reading(base.path, [view])
    guard = Guard(database, None, written=False)
    known = {"v": view.table}
    for sql, expected in (
        ('SELECT K, "least (€)" FROM v ORDER BY 1', [("a", 0.1), ("b", 7.5)]),
        ("SELECT COUNT(*) FROM V", [(2,)]),
        ("SELECT EXISTS (SELECT 1 FROM V), (SELECT COUNT(*) FROM (SELECT * FROM V)) FROM V LIMIT 1", [(1, 2)]),
        ("WITH w AS (SELECT * FROM V) SELECT x.K FROM w x JOIN main.V y USING (K) WHERE y.K > 'a'", [("b",)]),
    ):
        plan = read_query(sql, known, attached=True)
        with guard.reading(plan, 10):
            assert database.execute(plan.sql).fetchall() == expected
    plan = read_query("SELECT 1 FROM V", known, attached=True)
    for table in (RESULT, "hullcast_copy0".ljust(65, "_"), "hullcast_tables".ljust(65, "_"), "sqlite_master"):
        with pytest.raises(SqlError, match=r"prohibited|not authorized"), guard.reading(plan, 10):
            database.execute(f"SELECT * FROM {table}")
        disguised = f"WITH V AS (SELECT * FROM {table}) SELECT * FROM V, main.V"
        with pytest.raises(UnknownTable):
            read_query(disguised, known, attached=True)
        if table != RESULT:  # behind the view's name these are the view's own rows
            with pytest.raises(SqlError, match=r"prohibited|not authorized"), guard.reading(plan, 10):
                database.execute(disguised)
    database.close()


def test_timestamps_of_a_view_are_instants(base: BaseTables, loader: ViewLoader) -> None:
    fill(base)
    view = base.view(GROUPS)
    loader.build(view, base.seq)
    plan = read_query('SELECT "MAX(A.W)" FROM V', {"v": view.table}, attached=True)
    assert plan.instants == (True,)


def test_rows_that_lack_columns_take_them_from_the_files_of_the_tables(base: BaseTables, loader: ViewLoader) -> None:
    """Records of earlier versions: the server of today logs whole rows."""
    fill(base)
    view = base.view(GROUPS)
    loader.build(view, base.seq)
    body = bodies.Publish("A", *rows_to_columns([{"K": 1, "R": 0.7}]), b"p" * 16, 1)
    base.data.log.append(RecordKind.BATCH, bodies.encode(body), first=base.data.log.seq + 1, count=1)
    base.data.log.write_and_sync()
    base.history["a"].append((base.data.log.seq, 1, (1, 5, 0.7, "a", NOON)))
    for _ in range(2):
        assert loader.propagate(view, {"A": base.data.log.seq}).built
        assert is_right(base, loader, view)
        loader.discard(view)


class _Killed(Exception):
    pass


@pytest.mark.parametrize("statement", range(0, 24, 3))
def test_whatever_statement_fails_nothing_is_lost_and_nothing_doubled(
    base: BaseTables, statement: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(base)
    view = base.view(GROUPS)
    ViewLoader(base.path).build(view, base.seq)
    base.put("A", [(1, 5, -0.5, "b", NOON), (7, 2, 3.5, "a", None)])
    loader, left = ViewLoader(base.path), statement
    assert loader.state(view) is not None

    class Failing:
        """The connection, which raises instead of running a statement."""

        def __init__(self, database: sqlite3.Connection) -> None:
            self.database = database

        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            nonlocal left
            left -= 1
            if left < 0:
                raise _Killed
            return self.database.execute(*arguments)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.database, name)

    file = loader._files.get(view)
    assert isinstance(file, ViewFile)
    database = file._database
    monkeypatch.setattr(file, "_database", Failing(database))
    with pytest.raises(_Killed):
        loader.propagate(view, {"A": base.seq, "B": base.seq})
    database.close()  # in the middle of its transaction, which nobody ends
    again = ViewLoader(base.path)
    assert is_right(base, again, view)
    again.propagate(view, {"A": base.seq, "B": base.seq})
    assert is_right(base, again, view)


KILLED = """
import os, pickle, sys, random
from pathlib import Path
from hullcast.broker.warehouse.files.view_loader import ViewLoader
from hullcast.network import compiled
compiled.load()
path, view, last = Path(sys.argv[1]), pickle.loads(bytes.fromhex(sys.argv[2])), int(sys.argv[3])
os.write(1, b"ready\\n")
loader, chance = ViewLoader(path), random.Random(int(sys.argv[4]))
tables = [table.name.lower() for table in view.definition.tables]
while True:
    states = loader.state(view)
    if states is None:
        loader.build(view, view.created)
        continue
    behind = [table for table in tables if states[table].current < last]
    if not behind:
        break
    table = chance.choice(behind)
    through = min(last, states[table].current + chance.choice([10, 100, 2000]))
    loader.propagate(view, {table: through})
    os.write(1, f"{table} {through}\\n".encode())
"""


@pytest.mark.slow
def test_whoever_maintains_a_view_may_be_killed_at_any_time(tmp_path: Path) -> None:
    """Processes one after the other, each killed at some moment; what one said is propagated stays, once."""
    chance = random.Random(1)
    base = BaseTables(tmp_path / "data", CREATES, segment_bytes=1 << 16)
    view = base.view(GROUPS)
    for _ in range(100):
        base.put("B", [(f"{chance.randrange(30)}", 1, 0.5, None) for _ in range(10)])
        base.put(
            "A",
            [
                (chance.randrange(2000), chance.randrange(5), chance.randrange(9) / 10, f"{chance.randrange(30)}", NOON)
                for _ in range(200)
            ],
        )
        base.take("A", [chance.randrange(2000)])
    said, kills = dict.fromkeys(("a", "b"), 0), 0
    for attempt in range(100):
        arguments = [str(base.path), pickle.dumps(view).hex(), str(base.seq), str(attempt)]
        child = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if attempt < 10:
            threading.Timer(chance.random() * 0.1, child.kill).start()
        for line in child.stdout:
            table, through = line.split()
            said[table] = max(said[table], int(through))
        kills += child.wait() == -signal.SIGKILL
        child.stdout.close()
        loader = ViewLoader(base.path)
        states = loader.state(view)
        assert all((0 if states is None else states[table].current) >= seq for table, seq in said.items())
        if states is not None:
            assert is_right(base, loader, view)
        loader.close()
        if set(said.values()) == {base.seq}:
            break
    assert kills
    assert set(said.values()) == {base.seq}
    assert is_right(base, ViewLoader(base.path), view)
    base.data.close()


def test_what_a_file_belongs_to_is_in_it(base: BaseTables, loader: ViewLoader) -> None:
    view = base.view(GROUPS)
    loader.build(view, base.seq)
    database = open_for_reading(base.path, [view])
    (text,) = database.execute(f'SELECT "create" FROM {"hullcast_file".ljust(65, "_")}').fetchone()
    assert text.startswith(create_text(view.definition))
    database.close()


SELF_JOIN = "CREATE VIEW V AS SELECT x.K AS P, y.K AS Q FROM A x JOIN A y ON x.R = y.R"
SELF_GROUPS = "CREATE VIEW V AS SELECT x.R, COUNT(*) AS N, MIN(y.S) AS LOW FROM A x JOIN A y ON x.R = y.R GROUP BY x.R"


@pytest.mark.parametrize("sql", [SELF_JOIN, SELF_GROUPS], ids=["rows", "groups"])
def test_a_view_whose_tables_join_to_too_many_rows_is_refused_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    base = BaseTables(tmp_path / "data", CREATES)
    base.put("A", [(key, None, 1.0, None, None) for key in range(10)])
    view, loader = base.view(sql), ViewLoader(base.path)
    monkeypatch.setattr("hullcast.broker.warehouse.files.view_file.MOST_JOINED", 99)
    with pytest.raises(SqlError, match="joins to more than 99 rows; join on more columns, or narrow it with WHERE"):
        loader.build(view, base.seq)
    assert not list((base.path / FOLDER).iterdir())
    monkeypatch.setattr("hullcast.broker.warehouse.files.view_file.MOST_JOINED", 100)
    loader.build(view, base.seq)
    assert is_right(base, loader, view)
    loader.close()
    base.data.close()


@pytest.mark.parametrize("piece_s", [0.0, 1e9], ids=["ever fewer", "ever more"])
@pytest.mark.parametrize("sql", [SELF_JOIN, SELF_GROUPS], ids=["rows", "groups"])
def test_changes_that_join_with_very_much_are_propagated_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, piece_s: float
) -> None:
    base = BaseTables(tmp_path / "data", CREATES)
    base.put("A", [(key, None, float(key % 2), None, None) for key in range(12)])
    view, loader = base.view(sql), ViewLoader(base.path)
    loader.build(view, base.seq)
    monkeypatch.setattr("hullcast.broker.warehouse.files.view_loader._FIRST_KEYS", 4)
    monkeypatch.setattr("hullcast.broker.warehouse.files.view_loader._PIECE_S", piece_s)
    pieces: list[int] = []
    propagate_some = ViewFile.propagate

    def noting(file: ViewFile, source: int, columns: Any, gone: Any, within_s: float) -> bool:
        pieces.append(max(len(columns[0]), len(gone)))
        return propagate_some(file, source, columns, gone, within_s)

    monkeypatch.setattr(ViewFile, "propagate", noting)
    base.put("A", [(key, None, 1.0, "x", None) for key in range(6, 24)])
    base.take("A", list(range(6)))
    loader.build(view, base.seq)
    assert is_right(base, loader, view)
    assert pieces[:3] == ([4, 14, 18] if piece_s else [4, 1, 1])
    loader.close()
    base.data.close()


@pytest.mark.parametrize("sql", [SELF_JOIN, SELF_GROUPS, GROUPS], ids=["rows", "groups", "a join"])
def test_deltas_that_take_longer_than_the_whole_are_given_up_for_it(
    base: BaseTables, loader: ViewLoader, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    fill(base)
    view = base.view(sql)
    loader.build(view, base.seq)
    base.put("A", [(key, None, 0.1, "a", None) for key in range(50)])
    monkeypatch.setattr("hullcast.broker.warehouse.files.view_loader.LEAST_PATIENCE_S", 0.0)
    monkeypatch.setattr("hullcast.broker.warehouse.files.view_loader.PATIENCE", 0.0)
    done = loader.propagate(view, {"A": base.seq})
    assert done.recomputed_s is not None
    assert done.given_up is not None
    assert (done.given_up[0], done.spent["a"].rows) == ("a", 50)
    assert is_right(base, loader, view)
    monkeypatch.setattr("hullcast.broker.warehouse.files.view_loader.LEAST_PATIENCE_S", 60.0)
    base.take("A", [3])
    assert loader.propagate(view, {"A": base.seq}).recomputed_s is None
    assert is_right(base, loader, view)


def test_to_compute_a_view_again_has_no_limit_where_deltas_have_none(
    base: BaseTables, loader: ViewLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = base.view(SELF_GROUPS)
    loader.build(view, base.seq)
    base.put("A", [(key, None, 1.0, None, None) for key in range(10)])
    monkeypatch.setattr("hullcast.broker.warehouse.files.view_file.MOST_JOINED", 99)
    loader.propagate(view, {"A": base.seq}, recompute=True)
    assert is_right(base, loader, view)


def test_what_a_view_costs_is_kept_in_its_file(base: BaseTables, loader: ViewLoader) -> None:
    fill(base)
    view = base.view(GROUPS)
    assert loader.learned(view) == (None, None)
    loader.build(view, base.seq)
    built = loader.learned(view)
    assert built.deltas is None
    assert built.computing is not None
    assert built.computing.fixed_s > 0
    fill(base)
    loader.propagate(view, {"A": base.seq}, deltas="what was learned")
    fill(base)
    loader.propagate(view, {"A": base.seq})
    loader.close()
    again = ViewLoader(base.path)
    assert again.learned(view) == ("what was learned", built.computing)
    again.close()


def test_what_computing_takes_grows_with_the_file(base: BaseTables, loader: ViewLoader) -> None:
    fill(base)
    view = base.view(GROUPS)
    loader.build(view, base.seq)
    before = loader.learned(view).computing
    for start in range(0, 5000, 1000):
        base.put("A", [(key, key, float(key), "a", None) for key in range(start, start + 1000)])
    loader.propagate(view, {"A": base.seq})
    after = loader.learned(view).computing
    assert before is not None
    assert after is not None
    assert after.fixed_s - COMMIT_S > 3 * (before.fixed_s - COMMIT_S)


def test_a_log_that_was_cut_before_a_table_changed_is_enough_for_who_knows_that(
    base: BaseTables, loader: ViewLoader
) -> None:
    fill(base)
    view = base.view(GROUPS)
    loader.build(view, base.seq)
    behind = base.seq
    for _ in range(3):
        for number in range(5):
            base.put("C", [(1.0, float(number), "c")])
        base.checkpoint()
    base.take("A", [2])
    assert base.data.readable_from > behind
    states = loader.state(view)
    assert states is not None
    done = loader.propagate(view, {"A": base.seq, "B": base.seq}, since=first_changes(base, states))
    assert not done.built
    assert done.spent["a"].rows == 1
    assert is_right(base, loader, view)
