"""A server without a data directory: from the first one-time query on its rows can be read from files, at no one's
expense."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hullcast.broker.log import checkpoint, recovery
from hullcast.broker.log.checkpoint import checkpoints
from hullcast.broker.log.directory import LOG, read_identity
from hullcast.broker.log.history import HistoryReader, Life, PortionLimits
from hullcast.broker.log.recovery import DataDirectory
from hullcast.broker.log.segment import SegmentWriter, segments
from hullcast.broker.log.verify import verify
from hullcast.broker.server import jobs, storage
from hullcast.broker.server.service import Server
from hullcast.clients.sdk.client import Client
from hullcast.network.wire.errors import QueriesFailed
from hullcast.network.wire.values import rows_of
from tests.support.cluster import PATIENCE_S, PATIENT, cluster, server_of, wait_for

CREATE = "CREATE TABLE {} (K INTEGER PRIMARY KEY, X REAL, S TEXT)"
TABLES = ("T", "U")
Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made in this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@asynccontextmanager
async def memory_server(**options: Any) -> AsyncIterator[tuple[Server, Client]]:
    async with asyncio.timeout(PATIENCE_S), cluster(0, link=PATIENT, **options) as made, made.client() as hc:
        yield server_of(made), hc


class Told:
    """Changes made by a client, and the rows of each table after each update, by its receipts."""

    def __init__(self, server: Server, hc: Client, seed: int) -> None:
        self.server, self.hc, self.random = server, hc, random.Random(seed)
        self.rows: dict[str, dict[int, Row]] = {}
        self.lives: dict[str, Life] = {}
        self.at: dict[tuple[Life, int], dict[int, Row]] = {}
        self.seq = 0

    async def change(self) -> None:
        """A random change; the tables exist now and then."""
        name = self.random.choice(TABLES)
        if name not in self.rows or self.random.random() < 0.03:
            await self._execute(name)
            return
        keys = [self.random.randrange(30) for _ in range(self.random.randrange(1, 6))]
        if self.random.random() < 0.25:
            receipt = await self.hc.delete(name, keys)
            changed: list[tuple[int, Row | None]] = [(key, None) for key in keys]
        else:
            value = self.random.randrange(1000) / 4
            if self.random.random() < 0.2:  # the other columns keep their values
                receipt = await self.hc.publish(name, {"K": keys, "X": [value] * len(keys)})
                changed = [(key, (key, value, self.rows[name].get(key, (0, 0, None))[2])) for key in keys]
            else:
                receipt = await self.hc.publish(name, {"K": keys, "X": [value] * len(keys), "S": ["é"] * len(keys)})
                changed = [(key, (key, value, "é")) for key in keys]
        assert receipt.seq - receipt.first_seq + 1 == len(changed)
        for seq, (key, row) in enumerate(changed, receipt.first_seq):
            if row is None:
                self.rows[name].pop(key, None)
            else:
                self.rows[name][key] = row
            self._remember(seq)

    async def _execute(self, name: str) -> None:
        if name in self.rows:
            await self.hc.execute(f"DROP TABLE {name}")
            self.at.pop((self.lives[name], self.seq), None)  # a checkpoint of this moment may be without it
            del self.rows[name], self.lives[name]
            return
        await self.hc.execute(CREATE.format(name))
        store = self.server.engine.catalogue.store(name)
        self.rows[name], self.lives[name] = {}, Life(store.table, store.created)
        self._remember(self.seq)

    def _remember(self, seq: int) -> None:
        self.seq = seq
        for name, life in self.lives.items():
            self.at[life, seq] = dict(self.rows[name])

    def check(self, directory: DataDirectory, through: int) -> None:
        """Compare what the files say with what was told, at some moments between where they begin and `through`."""
        begins = directory.readable_from
        assert begins <= through <= directory.log.synced_seq
        moments = [moment for moment in self.at if begins <= moment[1] <= through]
        assert len(moments) > 50
        reader = HistoryReader(directory.path)
        for life, seq in sorted(self.random.sample(moments, 40), key=lambda moment: moment[1]):
            assert rows_at(reader, life, seq) == sorted(self.at[life, seq].values()), (life.table.name, seq)


def rows_at(reader: HistoryReader, life: Life, seq: int) -> list[Row]:
    found = reader.rows(life, seq, 0, 1, None, PortionLimits(10**9, 1 << 40, lambda: False))
    return sorted(rows_of(tuple(found.columns.values())))


def held_up(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """From now on log files are written only after this was set."""
    go, write = threading.Event(), SegmentWriter.write

    def slow(self: SegmentWriter, parts: Any) -> None:
        assert go.wait(PATIENCE_S)
        write(self, parts)

    monkeypatch.setattr(SegmentWriter, "write", slow)
    return go


@pytest.mark.parametrize("seed", range(4))
async def test_the_files_say_what_the_tables_were_at_every_moment(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "CAPTURED_AT_ONCE", 64)  # many slices, and changes come in between
    monkeypatch.setattr(jobs, "TURN_S", 2e-5)
    if seed % 2:  # and new checkpoints all the time, with the log cut behind them
        monkeypatch.setattr(storage, "TEMPORARY_LOG_BYTES", 2000)
        monkeypatch.setattr(recovery, "TEMPORARY_SEGMENT_BYTES", 1000)
    async with memory_server() as (server, hc):
        told = Told(server, hc, seed)
        if seed:  # else it begins with nothing
            await hc.execute(CREATE.format("LARGE"))
            told.seq = (await hc.publish("LARGE", {"K": np.arange(20_000)})).seq
        for _ in range(seed * 40):
            await told.change()
        beginning = asyncio.create_task(server.storage.for_queries())
        during = 0
        while not beginning.done():
            await told.change()
            during += 1
        directory = await beginning
        changes = 0
        while changes < 100 or (seed % 2 and server.storage.checkpoints < 4):
            await told.change()
            changes += 1
            if seed % 2 and changes % 10 == 0:
                told.seq = (await hc.publish("LARGE", {"K": np.arange(3000), "X": np.full(3000, 0.5)})).seq
        acknowledged = told.seq
        assert await server.storage.for_queries() is directory
        assert read_identity(directory.path) == directory.identity
        assert directory.log.synced_seq >= acknowledged
        if seed % 2:
            await wait_for(lambda: server.storage._under_way is None, "a quiet moment")
            assert len(checkpoints(directory.path)) == 2
            assert segments(directory.path / LOG)[0][0] > 1, "the log was cut"
        assert during > 5 or not seed
        told.check(directory, acknowledged)


async def test_before_the_first_query_nothing_is_kept_and_after_the_stop_nothing_is_left(folder: Path) -> None:
    async with memory_server() as (server, hc):
        await hc.execute(CREATE.format("T"))
        await hc.publish("T", {"K": np.arange(1000)})
        assert server.log._copy is None
        assert not os.listdir(folder)
        directory, same = await asyncio.gather(server.storage.for_queries(), server.storage.for_queries())
        await hc.publish("T", {"K": np.arange(1000)})
        await server.storage.for_queries()
        assert directory is same
        (found,) = map(folder.joinpath, os.listdir(folder))
        assert found == directory.path
        modes = {path.relative_to(found): path.stat().st_mode & 0o777 for path in (found, *found.rglob("*"))}
        assert len(modes) == 6, "folder, lock, identity, checkpoint, log, a segment"
        for path, mode in modes.items():
            assert mode == (0o700 if str(path) in (".", LOG) else 0o600), path
    assert not os.listdir(folder)


async def test_a_data_directory_is_given_at_once(tmp_path: Path) -> None:
    async with memory_server(data=tmp_path / "data") as (server, hc):
        await hc.execute(CREATE.format("T"))
        receipt = await hc.publish("T", {"K": [1]})
        directory = await server.storage.for_queries()
        assert (directory.path, directory.log.synced_seq) == (tmp_path / "data", receipt.seq)
        assert os.listdir(tmp_path) == ["data"]


async def test_no_reply_waits_for_the_files_and_nothing_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: int) -> None:
        raise AssertionError("synced")

    monkeypatch.setattr(os, "fsync", never)
    monkeypatch.setattr(os, "fdatasync", never)
    async with memory_server() as (server, hc):
        await hc.execute(CREATE.format("T"))
        await server.storage.for_queries()
        go = held_up(monkeypatch)
        last = 0
        for key in range(20):
            last = (await hc.publish("T", {"K": [key]})).seq
        waiting = asyncio.create_task(server.storage.for_queries())
        await hc.publish("T", {"K": [30]})
        assert not waiting.done()
        go.set()
        assert (await waiting).log.synced_seq >= last


async def test_what_nobody_asks_for_is_written_all_the_same() -> None:
    async with memory_server() as (server, hc):
        await hc.execute(CREATE.format("T"))
        directory = await server.storage.for_queries()
        receipt = await hc.publish("T", {"K": [1]})
        await wait_for(lambda: directory.log.synced_seq == receipt.seq, "a round")


@pytest.mark.parametrize("where", ["folder", "checkpoint", "log", "slow"])
async def test_a_full_disk_stops_queries_only_and_not_for_ever(
    folder: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object, **__: object) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "PAUSE_S", 0.0)
    words = "too slow" if where == "slow" else "No space left on device"
    async with memory_server(pending_bytes=1 << 16) as (server, hc):
        await hc.execute(CREATE.format("T"))
        await hc.publish("T", {"K": [1]})
        first = await server.storage.for_queries() if where in ("log", "slow") else None
        with monkeypatch.context() as patched:
            go = held_up(patched) if where == "slow" else None
            if where == "folder":
                patched.setattr(tempfile, "mkdtemp", no_room)
            elif where == "checkpoint":
                patched.setattr(checkpoint, "_column_blocks", no_room)
            elif where == "log":
                patched.setattr(SegmentWriter, "write", no_room)
            await hc.publish("T", {"K": [2]})
            if go is None:
                with pytest.raises(QueriesFailed, match=words) as failed:
                    await server.storage.for_queries()
                assert str(folder) in str(failed.value)
            else:
                waiting = asyncio.create_task(server.storage.for_queries())
                await asyncio.sleep(0)
                for _ in range(3):
                    await hc.publish("T", {"K": np.arange(5000), "X": np.arange(5000) / 7})
                assert first is not None
                assert words in str(first.log.why_broken)
                go.set()
                await asyncio.gather(waiting, return_exceptions=True)  # refused, unless it was being written before
            for key in range(3, 6):
                await hc.publish("T", {"K": [key]})
            await wait_for(lambda: not os.listdir(folder), "the files are removed")
        directory = await server.storage.for_queries()
        assert directory is not first
        store = server.engine.catalogue.store("T")
        found = rows_at(HistoryReader(directory.path), Life(store.table, store.created), server.engine.seq)
        assert len(found) == server.engine.rows("T") > 4


@pytest.mark.timeout(60)  # it held the event loop for ever, and with it every other limit
async def test_whoever_asks_in_the_turn_in_which_something_ends_does_not_hold_the_loop() -> None:
    async with memory_server() as (server, hc):
        await hc.execute(CREATE.format("T"))
        over = asyncio.get_running_loop().create_future()

        async def ask() -> DataDirectory:
            await over
            return await server.storage.for_queries()

        async def work() -> None:
            over.set_result(None)  # who waits for this has its turn before callbacks of the task that ends here

        asking = asyncio.create_task(ask())
        await asyncio.sleep(0)
        server.storage._start(work(), "test")
        assert (await asking).path.exists()


async def test_after_a_failure_queries_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To try again means to copy all tables: not for each of many queries."""
    tried = 0

    def no_room(*_: object, **__: object) -> Any:
        nonlocal tried
        tried += 1
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "PAUSE_S", 1e9)
    monkeypatch.setattr(tempfile, "mkdtemp", no_room)
    async with memory_server() as (server, _):
        for _ in range(5):
            with pytest.raises(QueriesFailed):
                await server.storage.for_queries()
    assert tried == 1


@pytest.mark.parametrize("durable", [False, True])
async def test_a_server_stops_while_its_tables_are_being_copied(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "CAPTURED_AT_ONCE", 1)
    monkeypatch.setattr(storage, "CHECKPOINT_S", 0.0)
    options = {"data": tmp_path / "data", "checkpoint_updates": 10_000} if durable else {}
    async with memory_server(**options) as (server, hc):
        await hc.execute(CREATE.format("T"))
        await hc.publish("T", {"K": np.arange(50_000)})
        asking = None if durable else asyncio.create_task(server.storage.for_queries())
        await wait_for(lambda: server.working.statistics().waiting, "the copying has begun")
        assert server.storage.checkpoints == 0
    assert server.storage.checkpoints == 0
    if asking is not None:
        assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], asyncio.CancelledError)
        assert not os.listdir(tmp_path)


@pytest.mark.parametrize("time_for", ["all", "nothing", "some"])
async def test_a_stop_leaves_a_checkpoint_if_there_is_time_for_one(
    time_for: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data, rows = tmp_path / "data", 2 * storage.STOP_UPDATES
    monkeypatch.setattr(storage, "CHECKPOINT_S", 0.0 if time_for == "nothing" else 1e9)
    monkeypatch.setattr(checkpoint, "_ROWS_AT_ONCE", rows // 4)

    def is_up(done: int, total: int) -> None:
        if 1 < done < total:
            raise TimeoutError("in the middle of writing")

    async with memory_server(data=data) as (server, hc):
        await hc.execute(CREATE.format("T"))
        for _ in range(3):
            await hc.publish("T", {"K": np.arange(rows), "X": np.arange(rows) / 2})
        if time_for == "some":
            monkeypatch.setattr(server.storage, "_go_on", is_up)
    assert len(checkpoints(data)) == (time_for == "all")
    assert ("no checkpoint left" in caplog.text) is (time_for != "all")
    assert (segments(data / LOG)[-1][1].stat().st_size < 100) is (time_for == "all")  # nothing to read again
    async with memory_server(data=data) as (server, hc):
        assert server.storage.directory is not None
        recovered = server.storage.directory.recovered
        assert (recovered.updates, recovered.leftovers) == (0 if time_for == "all" else 3 * rows, 0)
        await hc.publish("T", {"K": [-1], "X": [0.0]})
        assert await hc.query("SELECT COUNT(*), SUM(X) FROM T") == [(rows + 1, rows * (rows - 1) / 4)]
    assert verify(data).problems == ()


async def test_a_stop_leaves_no_checkpoint_if_the_next_start_gains_little_by_it(tmp_path: Path) -> None:
    for _ in range(2):
        async with memory_server(data=tmp_path / "data") as (_, hc):
            await hc.execute("CREATE TABLE IF NOT EXISTS T (K INTEGER PRIMARY KEY)")
            await hc.publish("T", {"K": np.arange(int(0.48 * storage.STOP_UPDATES)) % 10})
    assert not checkpoints(tmp_path / "data")
    async with memory_server(data=tmp_path / "data") as (_, hc):
        await hc.publish("T", {"K": 10 + np.arange(2 * storage.STOP_UPDATES)})  # new rows: replayed as fast as loaded
    assert not checkpoints(tmp_path / "data")
    async with memory_server(data=tmp_path / "data") as (_, hc):
        for _ in range(3):  # what was replayed counts, too
            await hc.publish("T", {"K": np.arange(storage.STOP_UPDATES)})
    assert len(checkpoints(tmp_path / "data")) == 1


async def test_folders_of_killed_servers_are_removed_and_no_others(folder: Path) -> None:
    program = (
        "import os, sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from hullcast.broker.log.recovery import TemporaryFolder\n"
        "TemporaryFolder.make(); os.kill(os.getpid(), 9)"
    )
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(folder))
    assert await killed.wait() == -9
    (left,) = os.listdir(folder)
    kept = folder / "data"
    kept.mkdir()
    (folder / f"{recovery.TEMPORARY_PREFIX}link").symlink_to(kept)
    async with memory_server() as (first, _), memory_server() as (second, _):
        paths = {(await server.storage.for_queries()).path.name for server in (first, second)}
        assert len(paths) == 2
        assert set(os.listdir(folder)) == {*paths, "data", f"{recovery.TEMPORARY_PREFIX}link"}
        assert left not in paths
        assert not os.listdir(kept)
    assert set(os.listdir(folder)) == {"data", f"{recovery.TEMPORARY_PREFIX}link"}
