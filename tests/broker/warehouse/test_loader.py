"""A load makes the file of a table exactly the table as of a sequence number, whatever was before it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.log.history import Life
from hullcast.broker.warehouse.files import open_for_reading, pin, remove_others
from hullcast.broker.warehouse.loader import Loader
from tests.support.ledger import COLUMNS, NOON, Ledger, Row

keys = st.sampled_from(["a", "b", "c", "é", "", "a longer key"])
row = st.fixed_dictionaries(
    {"K": keys},
    optional={
        "I": st.sampled_from([None, 0, -1, 2**53]),
        "R": st.sampled_from([None, 0.5, -1e300]),
        "W": st.sampled_from([None, NOON]),
        "S": st.sampled_from([None, "", "x", "ü" * 40]),
    },
)
steps = st.one_of(
    st.tuples(st.just("publish"), st.lists(row, min_size=1, max_size=5)),
    st.tuples(st.just("publish"), st.lists(row, min_size=1, max_size=1)),
    st.tuples(st.just("delete"), st.lists(st.one_of(keys, st.just("n\0")), min_size=1, max_size=3, unique=True)),
    st.tuples(st.sampled_from(["elsewhere", "checkpoint", "reopen", "create_again"])),
    st.tuples(st.just("load"), st.floats(0, 1), st.booleans()),
    st.tuples(st.just("load"), st.just(1.0), st.booleans()),
)


def as_stored(row: Row) -> Row:
    """A row as SQLite shows it."""
    return tuple(value.strftime("%Y-%m-%d %H:%M:%S.%f") if isinstance(value, datetime) else value for value in row)


def stored(path: Path, life: Life, identity: bytes) -> tuple[int, list[Row]]:
    """What a reader sees: the sequence number, and the rows by key."""
    database = open_for_reading(path, [life])
    try:
        (state,) = pin(database, [life], identity)
        rows = database.execute(f'SELECT * FROM "{life.table.name}" ORDER BY 1').fetchall()
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return state.current, rows
    finally:
        database.close()


def expected(ledger: Ledger, seq: int) -> list[Row]:
    return sorted(map(as_stored, ledger.at[seq].values()))


@given(st.lists(steps, max_size=20), st.sampled_from([0, 1 << 40]))
@settings(deadline=None, max_examples=40)
def test_after_a_load_the_file_is_the_table_as_of_its_sequence_number(
    history: list[tuple[Any, ...]], history_bytes: int
) -> None:
    with TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "data", segment_bytes=400, history_bytes=history_bytes)
        loader = Loader(ledger.path)
        for step, *arguments in (*history, ("load", 1.0, True)):
            if step != "load":
                getattr(ledger, step)(*arguments)
                continue
            share, fresh = arguments
            if fresh:
                loader.close()
                loader = Loader(ledger.path)
            life = ledger.life
            state = loader.state(life)
            least = max(life.created, 0 if state is None else state.current, ledger.data.readable_from)
            through = least + round(share * (ledger.seq - least))
            loaded = loader.load(life, through)
            assert loaded.current == through == loader.load(life, life.created).current
            assert stored(ledger.path, life, ledger.data.identity) == (through, expected(ledger, through))
            assert life.created <= loaded.last <= through
            if state is not None and state.current >= ledger.data.readable_from:
                updates = [seq for seq in ledger.updates if state.current < seq <= through]
                assert loaded.last == max(updates, default=state.last)
                assert loaded.rows_read == loader.count(life, state.current, through) == len(updates)
        remove_others(ledger.path, [ledger.life])
        assert stored(ledger.path, ledger.life, ledger.data.identity)[0] == ledger.seq
        loader.close()
        ledger.data.close()


def test_columns_keep_their_order_and_names(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "data")
    ledger.publish([{"K": "a", "I": 1, "W": NOON}])
    loader = Loader(ledger.path)
    loader.load(ledger.life, ledger.seq)
    database = open_for_reading(ledger.path, [ledger.life])
    cursor = database.execute("SELECT *, typeof(I), typeof(R), typeof(W) FROM t")
    assert tuple(name for name, *_ in cursor.description)[: len(COLUMNS)] == COLUMNS
    assert cursor.fetchall() == [(*as_stored(ledger.rows["a"]), "integer", "null", "text")]
    database.close()
    loader.close()
    ledger.data.close()
