"""The file of a table: named for any table, private, read while it is loaded, and made again if it cannot be used."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hullcast.broker.log.history import Life
from hullcast.broker.queries.sqlite_copy import SqliteCopy
from hullcast.broker.sql.create import CreateTable, parse_statement
from hullcast.broker.tables.schema import Table
from hullcast.broker.warehouse.files import table_file as files
from hullcast.broker.warehouse.files.table_file import (
    FOLDER,
    OWN,
    FileBounds,
    FileState,
    NewFile,
    TableFile,
    create_sql,
    file_of,
    open_for_load,
    open_for_reading,
    pin,
    remove_others,
)
from hullcast.network.wire.errors import SqlError

IDENTITY = bytes(range(16))
BOUNDS = FileBounds(Path())  # none but the largest
ODD_NAMES = [
    "T",
    "a/b",
    "..",
    "CON",
    "nul",
    "x" * 64,
    "ü" * 64,
    "table",
    "🦀",
    "a b",
    ".sqlite",
    OWN[:13],
    OWN[:64],
    "-",
]


def life_of(name: str, columns: str = "K TEXT PRIMARY KEY, V REAL", created: int = 0) -> Life:
    statement = parse_statement(f'CREATE TABLE "{name}" ({columns})')
    assert isinstance(statement, CreateTable)
    return Life(statement.table, created)


def make(directory: Path, life: Life, rows: list[tuple[Any, ...]], current: int = 7) -> Path:
    new = NewFile(directory, IDENTITY, life, TableFile, {}, BOUNDS)
    new.file.index()
    if rows:
        new.file.put(list(zip(*rows, strict=True)))
    new.finish(FileState(current, current - 1, None))
    return file_of(directory, life)


def rows_of(directory: Path, life: Life) -> list[tuple[Any, ...]]:
    database = open_for_reading(directory, [life])
    try:
        return database.execute(f'SELECT * FROM "{life.table.name}" ORDER BY 1').fetchall()
    finally:
        database.close()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    umask = os.umask(0)  # as wide as it gets
    yield tmp_path
    os.umask(umask)


def test_any_table_has_a_file_of_its_own(directory: Path) -> None:
    lives = [life_of(name) for name in ODD_NAMES]
    for number, life in enumerate(lives):
        path = make(directory, life, [(f"row {number}", float(number))])
        assert path.parent == directory / FOLDER
        assert len(path.name.encode()) < 200
    for number, life in enumerate(lives):
        assert rows_of(directory, life) == [(f"row {number}", float(number))]
    names = [path.name.lower() for path in (directory / FOLDER).glob("*.sqlite")]
    assert len(set(names)) == len(ODD_NAMES)  # on a file system that ignores case, too


def test_names_compare_as_table_names_do_and_each_life_has_a_file(tmp_path: Path) -> None:
    assert file_of(tmp_path, life_of("STOCK", created=1)) != file_of(tmp_path, life_of("STOCK", created=2))
    other = life_of("STOCK", "K TEXT PRIMARY KEY, V INTEGER", created=1)
    assert file_of(tmp_path, life_of("STOCK", created=1)) != file_of(tmp_path, other)


def test_only_the_owner_may_read_a_file(directory: Path) -> None:
    life = life_of("T")
    make(directory, life, [("a", 1.0)])
    file = open_for_load(directory, IDENTITY, life, TableFile)
    assert file is not None
    file.begin(BOUNDS)
    file.put([["b"], [2.0]])
    file.end(FileState(9, 9, None))
    found = {path.name.partition(".sqlite")[2]: path for path in (directory / FOLDER).iterdir()}
    assert set(found) == {"", "-wal", "-shm"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found.values()} == {0o600}
    assert stat.S_IMODE((directory / FOLDER).stat().st_mode) == 0o700
    file.close()


@pytest.mark.parametrize("kind", ["TEXT", "INTEGER", "REAL", "TIMESTAMP"])
@pytest.mark.parametrize("key", ["rowid", "Key"])
def test_users_see_the_columns_that_the_copy_in_memory_has(directory: Path, kind: str, key: str) -> None:
    """Names, order, declared types and NULL rules: only the index and which number a rowid is may differ."""
    columns = f'V REAL, "{key}" {kind} PRIMARY KEY, oid TEXT NOT NULL, _rowid_ TIMESTAMP, I INTEGER'
    life = life_of("T", columns)
    copy = SqliteCopy()
    copy.create(life.table)
    make(directory, life, [])
    database = open_for_reading(directory, [life])
    info = "PRAGMA table_info(T)"
    ours, theirs = (one.execute(info).fetchall() for one in (database, copy._database))
    assert [row[:5] for row in ours] == [row[:5] for row in theirs]
    database.close()
    copy.close()


def test_rows_are_put_and_removed_by_key_whatever_columns_are_called(directory: Path) -> None:
    life = life_of("T", "oid TEXT, rowid INTEGER PRIMARY KEY, _rowid_ REAL")
    make(directory, life, [("a", 5, 0.5), ("b", -1, None)])
    file = open_for_load(directory, IDENTITY, life, TableFile)
    assert file is not None
    file.begin(BOUNDS)
    file.put([["c", "d"], [5, 9], [1.5, 2.5]])
    file.remove([-1, 77])
    assert file.rows([9, -1]) == [("d", 9, 2.5)]
    file.end(FileState(9, 8, None))
    file.close()
    assert rows_of(directory, life) == [("c", 5, 1.5), ("d", 9, 2.5)]
    key_only = life_of("K", "K TEXT PRIMARY KEY")
    make(directory, key_only, [("a",)])
    file = open_for_load(directory, IDENTITY, key_only, TableFile)
    assert file is not None
    file.begin(BOUNDS)
    file.put([["a", "b"]])
    file.end(FileState(9, 8, None))
    file.close()
    assert rows_of(directory, key_only) == [("a",), ("b",)]


def test_a_table_named_as_ours_is_read_as_its_user_means_it(directory: Path) -> None:
    lives = [life_of(name) for name in ("A", OWN[:13], OWN[:64])]
    for number, life in enumerate(lives):
        make(directory, life, [(life.table.name, float(number))])
    database = open_for_reading(directory, lives)
    for number, life in enumerate(lives):
        assert database.execute(f'SELECT * FROM "{life.table.name}"').fetchall() == [(life.table.name, float(number))]
    database.close()


def test_several_files_are_read_at_one_moment(directory: Path) -> None:
    lives = [life_of("A"), life_of("B", "K INTEGER PRIMARY KEY, W TEXT")]
    make(directory, lives[0], [("a", 1.0)], current=3)
    make(directory, lives[1], [(1, "a")], current=4)
    database = open_for_reading(directory, lives)
    assert [state.current for state in pin(database, lives, IDENTITY)] == [3, 4]
    changes: list[list[list[Any]]] = [[["a"], [2.0]], [[1], ["other"]]]
    for life, columns in zip(lives, changes, strict=True):
        file = open_for_load(directory, IDENTITY, life, TableFile)
        assert file is not None
        file.begin(BOUNDS)
        file.put(columns)
        file.end(FileState(9, 9, None))
        file.close()
    join = "SELECT V, W FROM A JOIN B ON A.K = B.W"
    assert database.execute(join).fetchall() == [(1.0, "a")]
    database.execute("COMMIT")
    assert database.execute("SELECT V, W FROM A, B").fetchall() == [(2.0, "other")]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        database.execute("DELETE FROM A")
    database.close()


def test_more_tables_than_sqlite_can_read_are_refused_with_their_number(directory: Path) -> None:
    lives = [life_of(f"T{number}") for number in range(12)]
    for life in lives:
        make(directory, life, [("a", 1.0)])
    database = open_for_reading(directory, lives[:11], "SELECT 1")
    assert len(pin(database, lives[:11], IDENTITY)) == 11
    database.close()
    with pytest.raises(SqlError, match=r"reads 12 tables.*at most 11"):
        open_for_reading(directory, lives, "SELECT 1")


def test_a_file_that_is_not_there_is_an_error_that_says_so(directory: Path) -> None:
    make(directory, life_of("A"), [])
    for lives in ([life_of("B")], [life_of("A"), life_of("B")]):
        with pytest.raises(FileNotFoundError):
            pin(open_for_reading(directory, lives), lives, IDENTITY)
    assert open_for_load(directory, IDENTITY, life_of("B"), TableFile) is None


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def garbage(path: Path) -> None:
    path.write_bytes(b"something else" * 1000)


def other_format(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute(f"UPDATE {OWN} SET format = format + 1")
    database.commit()
    database.close()


def other_table(path: Path) -> None:
    path.unlink()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE T (K)")
    database.close()


@pytest.mark.parametrize("spoil", [cut, garbage, other_format, other_table])
def test_a_file_that_cannot_be_used_is_removed(directory: Path, spoil: Any) -> None:
    life = life_of("T")
    path = make(directory, life, [(f"{i}", 1.0) for i in range(1000)])
    spoil(path)
    reader = open_for_reading(directory, [life])
    with pytest.raises(sqlite3.DatabaseError):
        pin(reader, [life], IDENTITY)
    reader.close()
    assert open_for_load(directory, IDENTITY, life, TableFile) is None
    assert list((directory / FOLDER).iterdir()) == []


def test_a_file_of_another_data_directory_is_removed(directory: Path) -> None:
    life = life_of("T")
    make(directory, life, [])
    assert open_for_load(directory, bytes(16), life, TableFile) is None
    assert not file_of(directory, life).exists()


def test_files_of_tables_that_are_gone_are_removed_with_all_that_lies_beside_them(directory: Path) -> None:
    kept, gone = life_of("T", created=5), life_of("T", created=1)
    for life in (kept, gone):
        make(directory, life, [])
    opened = open_for_load(directory, IDENTITY, gone, TableFile)
    assert opened is not None
    opened.begin(BOUNDS)  # makes -wal and -shm
    unfinished = file_of(directory, gone).with_suffix(f".{2**22 + 1}.tmp")  # of no process
    unfinished.touch()
    assert remove_others(directory, [kept]) == 1
    assert [path.name for path in (directory / FOLDER).iterdir()] == [file_of(directory, kept).name]
    opened.close()


def test_the_wal_does_not_grow_while_readers_overlap(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WAL_BYTES", 50_000)
    monkeypatch.setattr(files, "LONG_WAL_BYTES", 200_000)
    life = life_of("T")
    path = make(directory, life, [])
    file = open_for_load(directory, IDENTITY, life, TableFile)
    assert file is not None
    done = threading.Event()
    count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT max(i) FROM n"

    def read() -> int:
        reads = 0
        while not done.is_set() or not reads:
            reader = open_for_reading(directory, [life])
            seen = pin(reader, [life], IDENTITY)[0].current
            reader.execute(count).fetchall()
            assert set(reader.execute("SELECT V FROM T").fetchall()) <= {(float(seen),)}
            reader.close()
            reads += 1
        return reads

    largest = written = 0
    with ThreadPoolExecutor() as threads:
        readers = [threads.submit(read) for _ in range(3)]
        for number in range(8, 68):
            file.begin(BOUNDS)
            file.put([[f"{i}" for i in range(1000)], [float(number)] * 1000])
            file.end(FileState(number, number, None))
            written += 1000 * 16
            file.tidy()
            largest = max(largest, path.with_name(path.name + "-wal").stat().st_size)
        done.set()
        assert all(reader.result() for reader in readers)
    assert largest < 500_000 < written
    file.close()


def test_the_wal_is_moved_into_the_file_once_for_many_loads(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WAL_BYTES", 400_000)
    life = life_of("T")
    path = make(directory, life, [])
    file = open_for_load(directory, IDENTITY, life, TableFile)
    assert file is not None
    content, moved, written = path.read_bytes(), 0, 0
    for number in range(8, 208):
        file.begin(BOUNDS)
        file.put([[f"{number}"], [float(number)]])
        file.end(FileState(number, number, None))
        before = path.with_name(path.name + "-wal").stat().st_size
        file.tidy()
        content, was = path.read_bytes(), content
        moved += content != was
        written += before if content != was else 0
    assert 2 <= moved <= written // 400_000  # each move is of a WAL that has so many bytes in it
    assert moved < 20
    file.close()


def test_the_sql_of_a_table_is_what_the_documentation_says() -> None:
    assert create_sql(life_of("T", "K INTEGER PRIMARY KEY, W TIMESTAMP").table) == (
        'CREATE TABLE "T" ("K" INTEGER PRIMARY KEY, "W" TEXT)'
    )
    table: Table = life_of("T").table
    assert create_sql(table) == 'CREATE TABLE "T" ("K" TEXT, "V" REAL)'
