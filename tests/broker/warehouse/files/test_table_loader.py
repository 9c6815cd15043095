"""A load makes the file of a table exactly the table as of a sequence number, whatever was before it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.log.checkpoint import checkpoints
from hullcast.broker.log.history import Life
from hullcast.broker.log.record import RecordKind
from hullcast.broker.log.recovery import open_directory
from hullcast.broker.server.changing import apply_record
from hullcast.broker.sql.create import create_text
from hullcast.broker.warehouse.files.table_file import (
    FOLDER,
    FileBounds,
    FileState,
    file_of,
    open_for_reading,
    pin,
    remove,
    remove_others,
)
from hullcast.broker.warehouse.files.table_loader import Loader
from hullcast.broker.warehouse.files.view_file import overall
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import HistoryGone, LoadFailed
from hullcast.network.wire.values import keys_to_column, rows_to_columns
from tests.support.ledger import COLUMNS, KEYS, NOON, ROWS, Ledger, Row
from tests.support.processes import limited_files

steps = st.one_of(
    st.tuples(st.just("publish"), st.lists(ROWS, min_size=1, max_size=5)),
    st.tuples(st.just("publish"), st.lists(ROWS, min_size=1, max_size=1)),
    st.tuples(st.just("delete"), st.lists(st.one_of(KEYS, st.just("n\0")), min_size=1, max_size=3, unique=True)),
    st.tuples(st.sampled_from(["elsewhere", "deliver", "checkpoint", "reopen", "create_again"])),
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


def found(loader: Loader, life: Life) -> FileState | None:
    states = loader.state(life)
    return None if states is None else overall(states)


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
            state = found(loader, life)
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


# -- what a load begins with ---------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "data", segment_bytes=400, history_bytes=0)
    yield made
    made.data.close()


@pytest.fixture
def loader(ledger: Ledger) -> Iterator[Loader]:
    made = Loader(ledger.path)
    yield made
    made.close()


def is_loaded(ledger: Ledger) -> bool:
    return stored(ledger.path, ledger.life, ledger.data.identity) == (ledger.seq, expected(ledger, ledger.seq))


def fill(ledger: Ledger, rows: int = 40, batch: int = 4) -> None:
    for start in range(0, rows, batch):
        ledger.publish([{"K": f"{i}", "I": i, "W": NOON} for i in range(start, start + batch)])


def test_instants_of_a_checkpoint_are_stored_as_those_of_the_log(ledger: Ledger, loader: Loader) -> None:
    instants = [NOON, *(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at) for at in (-1, 0, 1, 999_999))]
    instants += [datetime(1684, 8, 1, 1, 2, 3, 4, tzinfo=UTC), datetime(2255, 5, 5, 23, 59, 59, 999_999, tzinfo=UTC)]
    ledger.publish([{"K": f"{i}", "W": at} for i, at in enumerate(instants)])
    loader.load(ledger.life, ledger.seq)
    from_log = stored(ledger.path, ledger.life, ledger.data.identity)
    assert is_loaded(ledger)
    ledger.checkpoint()
    loader.discard(ledger.life)
    assert loader.load(ledger.life, ledger.seq).rows_read == len(instants)
    assert stored(ledger.path, ledger.life, ledger.data.identity) == from_log


def test_a_log_that_was_cut_behind_a_file_gives_it_all_rows_again(ledger: Ledger, loader: Loader) -> None:
    fill(ledger)
    loader.load(ledger.life, ledger.seq)
    ledger.delete(["1", "2"])
    reader = open_for_reading(ledger.path, [ledger.life])
    (before,) = pin(reader, [ledger.life], ledger.data.identity)
    for _ in range(3):
        fill(ledger, 8)
        ledger.checkpoint()
    assert ledger.data.readable_from > before.current
    assert loader.count(ledger.life, before.current, ledger.seq) is None
    loaded = loader.load(ledger.life, ledger.seq)
    assert is_loaded(ledger)
    assert loaded.rows_read >= len(ledger.rows)
    assert len(reader.execute("SELECT * FROM T").fetchall()) == 40  # it reads what it began with
    reader.close()
    with pytest.raises(HistoryGone):
        Loader(ledger.path).load(ledger.life._replace(created=1), 2)


def test_a_damaged_checkpoint_is_passed_over(ledger: Ledger, loader: Loader) -> None:
    fill(ledger)
    ledger.checkpoint()
    fill(ledger, 8)
    ledger.checkpoint()
    *_, (_, newest) = checkpoints(ledger.path)
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    loader.load(ledger.life, ledger.seq)
    assert is_loaded(ledger)


def test_segments_and_checkpoints_that_go_under_way_are_no_loss(
    ledger: Ledger, loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(ledger)
    loader.load(ledger.life, 4)
    applied = Loader._apply

    def cut_first(self: Loader, *arguments: Any) -> None:
        monkeypatch.setattr(Loader, "_apply", applied)
        for _ in range(3):
            fill(ledger, 8)
            ledger.checkpoint()
        applied(self, *arguments)

    monkeypatch.setattr(Loader, "_apply", cut_first)
    through = ledger.seq + 3 * 8
    assert loader.load(ledger.life, through).current == through
    assert is_loaded(ledger)


def test_a_file_from_a_future_that_the_log_does_not_know_is_removed(ledger: Ledger, loader: Loader) -> None:
    fill(ledger)
    loader.load(ledger.life, ledger.seq)
    assert loader.state(ledger.life, ledger.seq) is not None
    assert loader.state(ledger.life, ledger.seq - 1) is None
    assert loader.state(ledger.life) is None
    loader.load(ledger.life, ledger.seq)
    assert is_loaded(ledger)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_file_that_is_damaged_or_gone_is_made_again(ledger: Ledger, fresh: bool) -> None:
    fill(ledger)
    loader = Loader(ledger.path)
    path = file_of(ledger.path, ledger.life)
    for spoil in (lambda: remove(path), lambda: path.write_bytes(b"x" * 100_000), lambda: os.truncate(path, 9000)):
        loader.load(ledger.life, ledger.seq)
        loader.close()
        loader = Loader(ledger.path)
        if not fresh:
            loader.state(ledger.life)  # opens it
        spoil()
        ledger.publish([{"K": "1", "I": ledger.seq}])
        loader.load(ledger.life, ledger.seq)
        assert is_loaded(ledger)
    loader.close()


def test_rows_that_lack_columns_take_them_from_what_was_there(tmp_path: Path) -> None:
    """Records of earlier versions: the server of today logs whole rows."""
    data = open_directory(tmp_path, ServedEngine(), apply_record)
    create = "CREATE TABLE T (K TEXT PRIMARY KEY, I INTEGER, W TIMESTAMP)"
    data.engine.execute(create)
    data.log.append(RecordKind.STATEMENT, create.encode(), first=1, count=0)

    def log(body: bodies.Publish | bodies.Delete, count: int) -> None:
        first = data.log.seq + 1
        data.log.append(RecordKind.BATCH, bodies.encode(body), first=first, count=count)
        data.log.write_and_sync()

    def publish(*rows: dict[str, Any]) -> None:
        log(bodies.Publish("T", *rows_to_columns(list(rows)), b"p" * 16, 1), len(rows))

    life, loader = Life(data.engine.catalogue.store("T").table, 0), Loader(tmp_path)
    publish({"K": "a", "I": 1, "W": NOON}, {"K": "b", "I": 1, "W": NOON})
    loader.load(life, data.log.seq)
    publish({"K": "a", "I": 2})
    publish({"K": "c", "W": NOON})
    publish({"K": "b", "I": 3}, {"K": "d", "I": 4}, {"K": "d", "W": None})
    log(bodies.Delete("T", keys_to_column(["b"]), b"p" * 16, 1), 1)
    publish({"K": "b", "I": 5}, {"K": "e"})
    log(bodies.Delete("T", keys_to_column(["e"]), b"p" * 16, 1), 1)
    noon = as_stored((NOON,))[0]
    rows = [("a", 2, noon), ("b", 5, None), ("c", None, noon), ("d", 4, None)]
    loader.load(life, data.log.seq)
    assert stored(tmp_path, life, data.identity)[1] == rows
    loader.discard(life)
    loader.load(life, data.log.seq)
    assert stored(tmp_path, life, data.identity)[1] == rows
    loader.close()
    data.close()


def test_a_reader_goes_on_without_reading_what_is_loaded(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.data.log._segment_bytes = 1 << 30
    fill(ledger, 400)
    first = Loader(ledger.path)
    first.load(ledger.life, ledger.seq)
    first.close()
    fill(ledger, 4)
    read = []
    preadv = os.preadv

    def counted(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        read.append(preadv(descriptor, buffers, offset))
        return read[-1]

    monkeypatch.setattr(os, "preadv", counted)
    second = Loader(ledger.path)
    assert second.load(ledger.life, ledger.seq).rows_read == 4
    assert 0 < sum(read) < 1000
    second.close()


# -- what goes wrong -----------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_file_as_it_was(ledger: Ledger, loader: Loader) -> None:
    fill(ledger, 2000, 500)
    with limited_files(20_000), pytest.raises(LoadFailed, match="free space"):
        loader.load(ledger.life, ledger.seq)
    assert list((ledger.path / FOLDER).iterdir()) == []
    loader.load(ledger.life, 500)
    size = file_of(ledger.path, ledger.life).stat().st_size
    for _ in range(2):
        with limited_files(size), pytest.raises(LoadFailed, match="free space"):
            loader.load(ledger.life, ledger.seq)
        assert stored(ledger.path, ledger.life, ledger.data.identity) == (500, expected(ledger, 500))
    loader.load(ledger.life, ledger.seq)
    assert is_loaded(ledger)


def test_a_table_whose_texts_would_take_too_much_disk_is_refused_and_stays_as_it_was(ledger: Ledger) -> None:
    """One text of 64 KiB, in 200 rows: the log has it once a batch, the file once a row."""
    loader = Loader(ledger.path, FileBounds(ledger.path, 4 << 20))
    ledger.publish([{"K": "short", "S": "x"}])
    loader.load(ledger.life, ledger.seq)
    before, rows = ledger.seq, expected(ledger, ledger.seq)
    ledger.publish([{"K": f"key {i}", "S": "x" * 65536} for i in range(200)])
    with pytest.raises(LoadFailed, match=r"need more than 4,194,304 bytes on disk, .* once for every row; .* setting"):
        loader.load(ledger.life, ledger.seq)
    assert stored(ledger.path, ledger.life, ledger.data.identity) == (before, rows)
    loader.discard(ledger.life)
    with pytest.raises(LoadFailed, match="need more than 4,194,304 bytes"):
        loader.load(ledger.life, ledger.seq)
    assert sum(file.stat().st_size for file in (ledger.path / FOLDER).iterdir()) == 0
    ledger.publish([{"K": f"key {i}", "S": "y"} for i in range(200)])
    loader.load(ledger.life, ledger.seq)
    assert is_loaded(ledger)
    loader.close()


FULL = """
import os, subprocess, sys
from pathlib import Path
from tests.support.ledger import Ledger
from hullcast.broker.warehouse.files.table_file import FOLDER
from hullcast.broker.warehouse.files.table_loader import Loader
from hullcast.broker.warehouse.files.view_file import overall
from hullcast.network.wire.errors import LoadFailed

ledger = Ledger(Path(sys.argv[1]))
folder = ledger.path / FOLDER
folder.mkdir()
mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "none", str(folder)]
subprocess.run(mount, check=True)
def fill(first, last):
    ledger.publish([{"K": f"key {i}", "S": "x" * 100} for i in range(first, last)])
fill(0, 500)
loader = Loader(ledger.path)
loader.load(ledger.life, ledger.seq)
before = ledger.seq
for _ in range(4):
    fill(500, 1499)
ballast = folder / "ballast"
def attempt(words):
    try:
        loader.load(ledger.life, ledger.seq)
    except LoadFailed as error:
        assert words in str(error), error
        print(error)
    else:
        raise SystemExit("loaded")
with ballast.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
for _ in range(2):
    attempt("full")
    assert overall(loader.state(ledger.life)).current == before
loader.close()
ballast.unlink()
subprocess.run(["mount", "-o", "remount,size=20m", str(folder)], check=True)
subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
attempt("can be written to")
subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
assert overall(loader.state(ledger.life)).current == before
assert loader.load(ledger.life, ledger.seq).current == ledger.seq
assert len(list(__import__("sqlite3").connect(next(folder.glob("*.sqlite"))).execute("SELECT * FROM T"))) == 1499
print("good")
"""


def test_a_disk_that_is_full_or_read_only_is_an_error_that_says_so(tmp_path: Path) -> None:
    can_mount = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    if shutil.which("unshare") is None or subprocess.run(can_mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    command = ["unshare", "--mount", sys.executable, "-c", FULL, str(tmp_path / "data")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert done.stdout.endswith("good\n"), done.stdout + done.stderr


def test_a_folder_that_cannot_be_made_is_an_error_that_names_the_table(ledger: Ledger, loader: Loader) -> None:
    fill(ledger)
    (ledger.path / FOLDER).write_text("a file")
    with pytest.raises(LoadFailed, match="table T cannot be loaded"):
        loader.load(ledger.life, ledger.seq)
    (ledger.path / FOLDER).unlink()
    loader.load(ledger.life, ledger.seq)
    assert is_loaded(ledger)


KILLED = """
import os, sys, random
from pathlib import Path
from hullcast.broker.log.history import Life
from hullcast.broker.sql.create import parse_statement
from hullcast.broker.warehouse.files.table_loader import Loader
from hullcast.broker.warehouse.files.view_file import overall
from hullcast.network import compiled
compiled.load()
path, create, created, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
life = Life(parse_statement(create).table, created)
Loader(path).count(life, created, last)  # loads the kernels
os.write(1, b"ready\\n")
loader, chance = Loader(path), random.Random(int(sys.argv[5]))
state = loader.state(life)
at = created if state is None else overall(state).current
while at < last:
    at = min(last, at + chance.choice([100, 1000, 20000]))
    loaded = loader.load(life, at)
    os.write(1, f"{loaded.current}\\n".encode())
"""


@pytest.mark.slow
def test_a_loader_may_be_killed_at_any_time(ledger: Ledger) -> None:
    """Processes one after the other, each killed at some moment of its loads; what one said is loaded stays."""
    rng = random.Random(1)
    ledger.data.log._segment_bytes = 1 << 20
    for start in range(0, 60_000, 500):
        keys_now = [f"{rng.randrange(20_000)}" for _ in range(500)]
        ledger.publish([{"K": key, "I": start, "R": 0.5, "W": NOON, "S": "x" * 20} for key in keys_now])
        ledger.at = {ledger.seq: ledger.at[ledger.seq]} | {s: r for s, r in ledger.at.items() if s % 500 == 0}
    life, said, kills = ledger.life, 0, 0
    create = create_text(life.table)
    for attempt in range(200):
        arguments = [str(ledger.path), create, str(life.created), str(ledger.seq), str(attempt)]
        child = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if attempt < 8:
            killer = threading.Timer(rng.random() * 0.3, child.kill)
            killer.start()
        for line in child.stdout:
            said = max(said, int(line))
        kills += child.wait() == -signal.SIGKILL
        child.stdout.close()
        state = found(Loader(ledger.path), life)
        assert (0 if state is None else state.current) >= said
        if state is not None and state.current in ledger.at:
            assert stored(ledger.path, life, ledger.data.identity)[1] == expected(ledger, state.current)
        if said == ledger.seq:
            break
    assert kills
    assert is_loaded(ledger)
