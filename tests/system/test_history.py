"""The change history over a live server: rights, errors, restarts, killed processes; and `hullcast export`."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types
import pytest

import hullcast
from hullcast.broker.processes import heartbeat
from hullcast.broker.server import history as history_module
from hullcast.clients.sdk.client import Client
from hullcast.network.wire.errors import BadSetting, ClientClosed, HistoryGone, NoHistory, NotPermitted, UnknownTable
from tests.support.cluster import PATIENCE_S, PATIENT, ROOT, cluster, server_of, wait_for
from tests.support.ledger import Ledger
from tests.support.secured import secured

CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL, S TEXT)"


def process() -> psutil.Process:
    """The process that reads the history, of a server in this process."""
    (found,) = [one for one in psutil.Process().children() if "history_process" in " ".join(one.cmdline())]
    return found


async def all_changes(hc: Client, after: int | None = None, through: int | None = None) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    async for part in hc.changes("T", after, through):
        found += [(seq, deleted, *row) for seq, deleted, row in zip(part.seq, part.deleted, part.rows, strict=True)]
    return found


async def table(hc: Client, seq: int | None = None, **options: int) -> dict[int, tuple[Any, ...]]:
    found: dict[int, tuple[Any, ...]] = {}
    async for part in hc.table_at("T", seq, **options):
        for row in part.rows:
            assert row[0] not in found
            found[row[0]] = tuple(row)
    return found


async def test_clients_read_what_became_of_a_table(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(2, tmp_path, link=PATIENT) as made, made.client() as hc:
        await hc.execute(CREATE)
        await hc.publish("T", [{"K": 1, "V": 1.5, "S": "a"}, {"K": 2, "S": "b"}])
        await hc.publish("T", {"K": 1, "V": 2.5})
        await hc.delete("T", [2, 7])
        assert await hc.history("t") == hullcast.History(1, 5, 0)
        assert await all_changes(hc) == [
            (1, False, 1, 1.5, "a"),
            (2, False, 2, None, "b"),
            (3, False, 1, 2.5, "a"),
            (4, True, 2, None, None),
            (5, True, 7, None, None),
        ]
        assert [change[0] for change in await all_changes(hc, 1, 4)] == [2, 3, 4]
        assert await all_changes(hc, 5) == []
        assert await table(hc, 0) == {}
        assert await table(hc, 2) == {1: (1, 1.5, "a"), 2: (2, None, "b")}
        assert await table(hc) == {1: (1, 2.5, "a")}
        arrow = pa.concat_tables([part.to_arrow() async for part in hc.changes("T")])
        assert arrow.column_names == ["_seq", "_deleted", "K", "V", "S"]
        assert arrow.to_pylist()[3] == {"_seq": 4, "_deleted": True, "K": 2, "V": None, "S": None}
        (part,) = [part async for part in hc.table_at("T", 2)]
        assert part.columns["K"].dtype == np.int64
        assert sorted(part.columns["S"]) == ["a", "b"]
        await hc.execute("DROP TABLE T")
        with pytest.raises(UnknownTable):
            await all_changes(hc)
        await hc.execute(CREATE)
        assert await hc.history("T") == hullcast.History(6, 5, 5)
        with pytest.raises(HistoryGone, match="begins with update 6"):
            await all_changes(hc, 2)
        assert await all_changes(hc, 0) == await all_changes(hc, 0, 3) == []  # 0: from the table's own beginning
        await hc.publish("T", {"K": 3})
        assert await all_changes(hc, 0) == [(6, False, 3, None, None)]


async def test_from_the_beginning_is_refused_if_that_was_cut_off(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "data", history_bytes=0)
    for at in range(3):
        for batch in range(3):
            ledger.publish([{"K": f"{at}-{batch}-{i}", "S": "s" * 50} for i in range(20)])
        ledger.checkpoint()
    ledger.data.close()
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data", link=PATIENT) as made, made.client() as hc:
        first = (await hc.history("T")).first
        with pytest.raises(HistoryGone, match=f"history_bytes keeps more.* begins with update {first}"):
            await all_changes(hc, 0)
        assert (await all_changes(hc))[0][0] == first > 1


async def test_what_cannot_be_read_is_refused_in_a_clear_sentence(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, link=PATIENT) as made, made.client() as hc:
        await hc.execute(CREATE)
        for read in (hc.history("T"), all_changes(hc), table(hc)):
            with pytest.raises(NoHistory, match="--data DIR"):
                await read
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path, link=PATIENT) as made, made.client() as hc:
        await hc.execute(CREATE)
        await hc.publish("T", {"K": 1})
        wrong = (
            *(table(hc, 2), all_changes(hc, 2), all_changes(hc, -1), all_changes(hc, 1, 0)),
            *(table(hc, part=2, parts=2), table(hc, parts=0)),
        )
        for bad in wrong:
            with pytest.raises(BadSetting):
                await bad
        for missing in (hc.history("X"), hc.changes("X").__anext__(), hc.table_at("X").__anext__()):
            with pytest.raises(UnknownTable):
                await missing


async def test_history_needs_the_right_to_query_the_table(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path, data=tmp_path / "data") as made:
        async with made.client("admin") as hc:
            await hc.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, PER REAL)")
        async with made.client("ticker") as hc:
            await hc.publish("STOCK", {"SYMBOL": "A", "PER": 1})
            for read in (hc.history("STOCK"), anext(hc.changes("STOCK")), anext(hc.table_at("STOCK"))):
                with pytest.raises(NotPermitted):
                    await read
        async with made.client("reader") as hc:
            assert (await hc.history("STOCK")).last == 1
            assert (await anext(hc.changes("STOCK"))).rows == [("A", 1.0)]
            assert (await anext(hc.table_at("STOCK"))).rows == [("A", 1.0)]
            with pytest.raises(NotPermitted):
                await hc.history("SECRET")


async def fill(hc: Client, batches: int, rows: int = 20_000) -> None:
    for at in range(batches):
        keys = np.arange(rows) + at * rows // 2
        await hc.publish("T", {"K": keys, "V": keys + at / 10, "S": [f"s{k % 100}" for k in range(rows)]})
        await hc.delete("T", [at * 7])


async def test_each_change_comes_once_and_in_order_while_gateway_and_server_are_killed(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(2 * PATIENCE_S),
        cluster(3, tmp_path / "data", processes=tmp_path, checkpoint_updates=30_000, history_bytes=1 << 30) as made,
        made.client("g1", "g2") as hc,
    ):
        await hc.execute(CREATE)
        await fill(hc, 10)
        seq = (await hc.history("T")).last
        rows: dict[int, tuple[Any, ...]] = {}
        changes = at = 0
        killed = False
        async for part in hc.changes("T"):
            assert part.seq[0] == at + 1
            assert (np.diff(part.seq) == 1).all()
            at, changes = part.last, changes + len(part)
            for deleted, row in zip(part.deleted, part.rows, strict=True):
                if deleted:
                    rows.pop(row[0], None)
                else:
                    rows[row[0]] = tuple(row)
            if changes == len(part):  # after the first portion
                await made.kill("g1")
                await hc.publish("T", {"K": 10**6, "V": 0.5})  # not part of what was asked for
            elif not killed and changes > seq // 2:
                killed = True
                await made.server.kill()
                await made.restart_server()
        assert killed
        assert (changes, at) == (seq, seq)
        divided = [await table(hc, seq, part=part, parts=3) for part in range(3)]
        assert sum(map(len, divided)) == len(rows)
        assert {**divided[0], **divided[1], **divided[2]} == rows
        assert await table(hc) == rows | {10**6: (10**6, 0.5, None)}


async def test_the_process_that_reads_may_be_killed(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path, link=PATIENT) as made, made.client() as hc:
        await hc.execute(CREATE)
        await fill(hc, 10)
        seqs = []
        async for part in hc.changes("T"):
            seqs += part.seq.tolist()
            process().kill()
        assert seqs == list(range(1, 200_011))


async def test_the_process_that_reads_may_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "STOPPED_S", 0.3)
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path, link=PATIENT) as made, made.client() as hc:
        await hc.execute(CREATE)
        await hc.publish("T", {"K": 1})
        await all_changes(hc)
        process().send_signal(signal.SIGSTOP)
        async with asyncio.timeout(history_module.PATIENCE_S / 2):
            assert len(await all_changes(hc)) == 1
        assert server_of(made).history.child.lives == 2


async def test_waiting_reads_are_bounded_and_a_client_that_left_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = replace(history_module.HISTORY, waiting_per_owner=5)
    monkeypatch.setattr(history_module, "HISTORY", room)
    monkeypatch.setattr(heartbeat, "STOPPED_S", PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path, link=PATIENT) as made, made.client() as hc:
        await hc.execute(CREATE)
        await hc.publish("T", {"K": 1})
        await all_changes(hc)
        jobs = server_of(made).jobs
        process().send_signal(signal.SIGSTOP)
        async with made.client() as other:
            asked = [asyncio.ensure_future(all_changes(other)) for _ in range(20)]
            await wait_for(lambda: jobs.waiting(room) == 5 and other.statistics().retries >= 14, "they wait")
        for one in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(one, ClientClosed)
        await wait_for(lambda: jobs.waiting(room) == 0, "they are forgotten")
        process().send_signal(signal.SIGCONT)
        assert len(await all_changes(hc)) == 1


async def test_the_process_ends_when_nobody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "IDLE_S", 0.2)
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path, link=PATIENT) as made, made.client() as hc:
        await hc.execute(CREATE)
        for _ in range(2):
            assert await all_changes(hc) == []
            ended = process()
            await wait_for(lambda: not ended.is_running(), "it has ended")  # noqa: B023
        assert server_of(made).history.child.lives == 2


# -- export ------------------------------------------------------------------------------------------------


def exported(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows and the changes of T in an export."""
    rows = [row for path in sorted((folder / "tables/T").glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    files = sorted((folder / "changes/T").glob("*.parquet"))
    changes = []
    for path in files:
        first, last = map(int, path.stem.split("-"))
        found = pq.read_table(path).to_pylist()
        assert all(first <= change["_seq"] <= last for change in found)
        changes += found
    return rows, changes


async def export(endpoint: str, folder: Path, *options: str, file_rows: int = 1_000_000) -> asyncio.subprocess.Process:
    words = ["export", "--parquet", str(folder), "--url", endpoint, "--json", *options]
    code = (
        f"import sys, hullcast.clients.cli.commands.export as e; e.FILE_ROWS = {file_rows}; "
        f"from hullcast.clients.cli.main import main; sys.exit(main({words!r}))"
    )
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", code, stdout=pipe, stderr=pipe)


async def finished(running: asyncio.subprocess.Process) -> dict[str, Any]:
    output, errors = await running.communicate()
    assert running.returncode == 0, errors.decode()
    told: dict[str, Any] = json.loads(output)
    return told


async def test_an_export_has_the_table_and_its_changes_and_goes_on(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(2 * PATIENCE_S),  # five processes begin, one after the other
        cluster(0, tmp_path / "data", link=PATIENT) as made,
        made.client() as hc,
    ):
        await hc.execute(CREATE)
        await hc.execute("CREATE TABLE EMPTY (K INTEGER PRIMARY KEY)")
        await fill(hc, 2, 100)
        told = await finished(await export(made.server.endpoint, tmp_path / "out"))
        both = {"T": {"rows": 148, "changes": 202}, "EMPTY": {"rows": 0, "changes": 0}}
        assert told == {"seq": 202, "tables": both, "skipped": []}
        rows, changes = exported(tmp_path / "out")
        assert {row["K"]: tuple(row.values()) for row in rows} == await table(hc, 202)
        assert [tuple(change.values()) for change in changes] == await all_changes(hc)
        assert pq.read_table(tmp_path / "out/tables/EMPTY/part-00000.parquet").schema.names == ["K"]
        await fill(hc, 1, 50)
        told = await finished(await export(made.server.endpoint, tmp_path / "out", "--table", "t"))
        assert told == {"seq": 253, "tables": {"T": {"rows": 0, "changes": 51}}, "skipped": []}
        again, changes = exported(tmp_path / "out")
        assert again == rows
        assert [tuple(change.values()) for change in changes] == await all_changes(hc)
        assert json.loads((tmp_path / "out/export.json").read_text())["tables"]["T"]["through"] == 253
        await hc.execute("CREATE TABLE LATE (K INTEGER PRIMARY KEY)")
        await hc.publish("LATE", {"K": 1})
        part = await finished(await export(made.server.endpoint, tmp_path / "part", "--since", "250"))
        assert part["tables"]["T"]["changes"] == 3
        assert part["tables"]["LATE"] == {"rows": 1, "changes": 1}  # made after 250: all its changes
        await hc.execute("DROP TABLE T")
        await hc.execute(CREATE)
        refused = await export(made.server.endpoint, tmp_path / "out")
        assert b"created again" in (await refused.communicate())[1]
        assert refused.returncode == 2


async def test_an_export_since_a_change_that_is_gone_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    small: dict[str, Any] = {"segment_bytes": 65_536, "checkpoint_updates": 1_000, "history_bytes": 0}
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data", link=PATIENT, **small) as made:
        async with made.client() as hc:
            await hc.execute(CREATE)
            while (await hc.history("T")).first == 1:
                await fill(hc, 1, 5_000)
        refused = await export(made.server.endpoint, tmp_path / "out", "--since", "0")
        assert b"--since 0: the server has the changes of T from" in (await refused.communicate())[1]
        assert refused.returncode == 2
        assert not list((tmp_path / "out").glob("[!.]*"))
        assert (await finished(await export(made.server.endpoint, tmp_path / "out")))["tables"]["T"]["rows"]


async def test_an_export_killed_at_any_moment_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    async with (
        asyncio.timeout(2 * PATIENCE_S),
        cluster(0, tmp_path / "data", link=PATIENT) as made,
        made.client() as hc,
    ):
        await hc.execute(CREATE)
        await fill(hc, 10)
        for files in (1, 4):
            running = await export(made.server.endpoint, out, file_rows=20_000)
            await wait_for(lambda: len(list(out.rglob("*.parquet"))) >= files, "some files are there")  # noqa: B023
            running.kill()
            await running.wait()
        await hc.publish("T", {"K": 5})
        await finished(await export(made.server.endpoint, out, file_rows=20_000))
        rows, changes = exported(out)
        as_of = json.loads((out / "export.json").read_text())["tables"]["T"]["as_of"]
        assert {row["K"]: tuple(row.values()) for row in rows} == await table(hc, as_of)
        assert len(rows) == len({row["K"] for row in rows})
        assert [change["_seq"] for change in changes] == list(range(1, 200_012))
        assert not list(out.rglob("*.tmp"))


async def refused(running: asyncio.subprocess.Process) -> str:
    """What an export says that ends with an error: one line."""
    errors = (await running.communicate())[1].decode()
    assert running.returncode == 2, errors
    assert len(errors.strip().splitlines()) == 1, errors
    return errors


async def test_an_export_refuses_what_would_leave_a_gap_before_it_writes_anything(tmp_path: Path) -> None:
    out = tmp_path / "out"
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data", link=PATIENT) as made, made.client() as hc:
        await hc.execute("CREATE TABLE U (K INTEGER PRIMARY KEY)")
        await hc.publish("U", [{"K": 1}, {"K": 2}, {"K": 3}])
        await hc.execute(CREATE)
        await hc.publish("T", [{"K": 1}, {"K": 2}])
        said = await refused(await export(made.server.endpoint, out, "--table", "T", "--since", "6"))
        assert "from 4 to 5" in said
        assert not list(out.rglob("*.parquet"))
        await finished(await export(made.server.endpoint, out))
        kept = json.loads((out / "export.json").read_text())
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "older", link=PATIENT) as made, made.client() as hc:
        await hc.execute("CREATE TABLE U (K INTEGER PRIMARY KEY)")
        await hc.publish("U", {"K": 1})
        assert "older copy" in await refused(await export(made.server.endpoint, out))
        assert json.loads((out / "export.json").read_text()) == kept


async def test_tables_of_any_name_have_their_own_folders(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    names = ("..", ".", "../../evil", "a/b", "a%2Fb", "\u00fc" * 64)
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data", link=PATIENT) as made, made.client() as hc:
        for at, name in enumerate(names):
            await hc.execute(f'CREATE TABLE "{name}" (K INTEGER PRIMARY KEY)')
            await hc.publish(name, {"K": at})
        await finished(await export(made.server.endpoint, out))
        for kind in ("tables", "changes"):
            files = list((out / kind).rglob("*.parquet"))
            assert sorted(pq.read_table(file)["K"].to_pylist() for file in files) == [[at] for at in range(len(names))]
            assert all(file.parent.parent == out / kind for file in files)
        assert sorted(file.name for file in out.iterdir()) == [".lock", "changes", "export.json", "tables"]


async def test_a_full_disk_ends_an_export_with_one_line_and_it_goes_on_when_there_is_room(tmp_path: Path) -> None:
    out = tmp_path / "out"
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data", link=PATIENT) as made, made.client() as hc:
        await hc.execute(CREATE)
        await fill(hc, 2)
        words = ["export", "--parquet", str(out), "--url", made.server.endpoint, "--json"]
        code = (
            "import sys, resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); "
            f"from hullcast.clients.cli.main import main; sys.exit(main({words!r}))"
        )
        pipe = asyncio.subprocess.PIPE
        full = await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", code, stdout=pipe, stderr=pipe)
        assert "cannot be written" in await refused(full)
        assert not list(out.rglob("*.tmp"))
        await finished(await export(made.server.endpoint, out))
        rows, changes = exported(out)
        assert {row["K"]: tuple(row.values()) for row in rows} == await table(hc)
        assert len(changes) == 40_002


@pytest.mark.slow
async def test_two_hundred_thousand_rows_come_out_in_a_second(tmp_path: Path) -> None:
    """Prints what a server process, the process that reads for it, and a client manage together (`-s` shows it)."""
    rows = 1_000_000
    async with (
        asyncio.timeout(5 * PATIENCE_S),
        cluster(1, tmp_path / "data", processes=tmp_path, link=PATIENT, checkpoint_updates=rows // 2) as made,
        made.client(ROOT) as hc,
    ):
        await hc.execute("CREATE TABLE T (K TEXT PRIMARY KEY, A REAL, B REAL, C INTEGER, S TEXT, W TIMESTAMP)")
        chance = np.random.default_rng(1)
        for start in range(0, rows, 50_000):
            keys = [f"key {k}" for k in chance.integers(0, rows // 2, 50_000).tolist()]
            words = [f"word {k % 1000}" for k in range(50_000)]
            when = np.datetime64("2024-01-01T00:00:00") + np.arange(start, start + 50_000)
            numbers = {"A": chance.random(50_000), "B": chance.random(50_000), "C": chance.integers(0, 99, 50_000)}
            await hc.publish("T", {"K": keys, **numbers, "S": words, "W": when})
        first = (await hc.history("T")).first
        reads: list[tuple[str, Callable[[], AsyncIterator[Any]]]] = [
            ("the first changes, for which the process starts", lambda: hc.changes("T", rows - 100_000)),
            *[("changes", lambda: hc.changes("T"))] * 3,
            ("the table, for the first time", lambda: hc.table_at("T", rows - 1)),
            *[("the table, again", lambda: hc.table_at("T", rows - 1))] * 3,
        ]
        best: dict[str, float] = {}
        for what, read in reads:
            began, found = time.perf_counter(), 0
            async for part in read():
                found += part.to_arrow().num_rows
            rate = found / (time.perf_counter() - began)
            best[what] = max(rate, best.get(what, 0.0))
            print(f"{what}: {found:,} rows, {rate:,.0f} rows/s")
            assert found == rows - first + 1 or what != "changes"
        assert best["changes"] > 200_000
        assert best["the table, again"] > 200_000
