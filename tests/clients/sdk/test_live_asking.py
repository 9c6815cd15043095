"""Asking a running server: what rows are worth, deadlines, portions, policies, and what is shown of it all."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hullcast.broker.streams.policies import OPERATOR_POLICIES
from hullcast.broker.warehouse.deciding.policies import POLICIES
from hullcast.clients.cli import main as cli
from hullcast.clients.sdk.client import Client
from hullcast.network.wire.bodies import Body, FetchRows
from hullcast.network.wire.errors import BadSetting, DeadlineMissed, DuplicateTable, NotPermitted
from tests.support.cluster import PATIENCE_S, PATIENT, cluster, server_of, wait_for
from tests.support.exposition import samples
from tests.support.secured import secured

CREATE = "CREATE TABLE {} (K INTEGER PRIMARY KEY, V REAL)"
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n, T"


async def publish(client: Client, table: str, count: int) -> int:
    """So many rows; the last update."""
    for start in range(0, count, 50_000):
        keys = np.arange(start, min(start + 50_000, count))
        receipt = await client.publish(table, {"K": keys, "V": keys / 2})
    return receipt.seq


async def test_rows_say_what_they_are_worth_and_the_server_how_far_tables_are_loaded(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data", link=PATIENT) as c, c.client() as hc:
        server = server_of(c)
        assert samples(server, "hullcast_policy") == {("orad",): 1}
        await hc.execute(CREATE.format("T"))
        await hc.execute(CREATE.format("U"))
        await publish(hc, "U", 3)
        seq = await publish(hc, "T", 10)
        assert (await hc.explain("SELECT MIN(V) FROM T"))["loaded"] == {}
        both = "SELECT COUNT(*) FROM T JOIN U USING (K)"
        for terms in ({}, {"read_set": "consistent"}, {"freshness": 0.5}, {"deadline": "1m", "priority": 5}):
            rows = await hc.query(both, **terms)
            assert rows == [(3,)]
            worth = rows.worth
            assert worth is not None
            assert (worth.seq, worth.staleness_s, worth.unapplied, worth.deadline_met) == (seq, 0.0, 0, True)
            assert worth.tables.keys() == {"T", "U"}
            assert (worth.policy, worth.deadline_s) == ("orad", 60.0 if "deadline" in terms else None)
            assert worth.ran_s > 0
        assert (await hc.query("SELECT 1")).worth is not None
        assert await hc.query("SELECT COUNT(*) FROM T", freshness=0) == [(10,)]

        def loaded() -> dict[str, Any]:
            found: dict[str, Any] = server.queries.status()["tables"].get("T", {})
            return found

        await wait_for(lambda: loaded().get("loaded") == seq, "the process reports")
        status = (await hc.status())["queries"]
        assert (status["policy"], status["answered"], status["tables"]["T"]["unapplied"]) == ("orad", 6, 0)
        assert (await hc.explain("SELECT MIN(V) FROM T"))["loaded"]["T"]["loaded"] == seq
        assert samples(server, "hullcast_warehouse_unapplied") == {("T",): 0, ("U",): 0}
        assert samples(server, "hullcast_warehouse_staleness_seconds") == {("T",): 0, ("U",): 0}
        assert samples(server, "hullcast_warehouse_rows")[("T",)] == 10


def lose_the_link_at_a_fetch(client: Client) -> None:
    """The next portion that is asked for is asked for on a link that is about to go; once."""
    ask = client._line.ask

    async def asked(body: Body, *rest: Any) -> Body:
        if isinstance(body, FetchRows):
            client._line.ask = ask  # type: ignore[method-assign]
            client._line.dialer.redial(why="test")
        return await ask(body, *rest)

    client._line.ask = asked  # type: ignore[method-assign, assignment]


async def test_a_large_answer_comes_in_portions(tmp_path: Path) -> None:
    count = 60_000
    async with asyncio.timeout(PATIENCE_S), cluster(1, tmp_path / "data", link=PATIENT) as c, c.client() as hc:
        await hc.execute(CREATE.format("T"))
        seq = await publish(hc, "T", count)
        portions = [portion async for portion in hc.query_portions("SELECT K, V FROM T ORDER BY K DESC")]
        assert len(portions) > 2
        assert [portion.worth is not None for portion in portions] == [False] * (len(portions) - 1) + [True]
        assert {portion.columns for portion in portions} == {("K", "V")}
        flat = [tuple(row) for portion in portions for row in portion]
        assert flat == [(key, key / 2) for key in range(count - 1, -1, -1)]
        rows = await hc.query("SELECT K, V FROM T ORDER BY K DESC")
        assert rows == flat
        assert rows.worth is not None
        assert rows.worth.seq == seq
        lose_the_link_at_a_fetch(hc)
        before = server_of(c).queries.answered
        assert await hc.query("SELECT K, V FROM T ORDER BY K DESC") == flat
        assert server_of(c).queries.answered == before + 2  # the link was another one: it ran again
        async for _ in hc.query_portions("SELECT K, V FROM T"):
            break  # nobody fetches the rest, which is in nobody's way
        assert await hc.query("SELECT COUNT(*) FROM T") == [(count,)]


async def test_policies_are_shown_switched_and_refused(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        secured(tmp_path) as s,
        s.client("admin") as admin,
        s.client("reader") as hc,
    ):
        shown = await hc.policy()
        assert shown["policy"] == "orad"
        assert shown["policies"] == {name: kind.about for name, kind in POLICIES.items()}
        with pytest.raises(NotPermitted):
            await hc.policy("updates-first")
        for name in POLICIES:
            assert (await admin.policy(name))["policy"] == name
            assert (await hc.policy())["policy"] == name
        with pytest.raises(BadSetting, match=r"policy = 'best': must be one of .*fifo"):
            await admin.policy("best")


async def test_policies_of_operators_are_shown_switched_and_refused(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        secured(tmp_path) as s,
        s.client("admin") as admin,
        s.client("reader") as hc,
    ):
        shown = await hc.policy(of="streams")
        assert shown["policy"] == "bounded-chain"
        assert shown["policies"] == {name: kind().about for name, kind in OPERATOR_POLICIES.items()}
        with pytest.raises(NotPermitted):
            await hc.policy("chain", of="streams")
        for name in OPERATOR_POLICIES:
            assert (await admin.policy(name, of="streams"))["policy"] == name
            assert (await hc.policy(of="streams"))["policy"] == name
        assert (await hc.policy())["policy"] == "orad"  # the warehouse's own is another
        with pytest.raises(BadSetting, match=r"policy = 'orad': must be one of .*bounded-chain"):
            await admin.policy("orad", of="streams")
        with pytest.raises(BadSetting, match=r"of = 'views': must be one of warehouse, streams"):
            await hc.policy(of="views")  # type: ignore[arg-type]  # that is the test


async def test_what_a_table_declares_is_shown_survives_a_restart_and_leaves_answers_right(tmp_path: Path) -> None:
    terms = " WITH (period = '1m', weight = 3)"
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data", link=PATIENT) as c, c.client() as hc:
        await hc.execute(CREATE.format("T") + terms)
        await publish(hc, "T", 10)  # before the process, which is started for such a table, knows of it
        assert await hc.query("SELECT COUNT(*) FROM T") == [(10,)]
        await hc.execute(CREATE.format("U"))
        await c.stop_server()
        await c.restart_server()
        assert await hc.query("SELECT COUNT(*) FROM T") == [(10,)]
        tables = await hc.tables()
        assert (tables["T"]["period_s"], tables["T"]["weight"]) == (60.0, 3.0)
        assert "period_s" not in tables["U"]
        await hc.execute(CREATE.format("IF NOT EXISTS T"))
        with pytest.raises(DuplicateTable, match=r"period = '1m', weight = 3.*, not WITH .period = '2m'"):
            await hc.execute(CREATE.format("IF NOT EXISTS T") + terms.replace("1m", "2m"))


async def shell(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    """What a command printed, and said on standard error."""
    assert await asyncio.to_thread(cli.main, words) == code
    return capsys.readouterr()


async def test_deadlines_and_worth_at_the_command_line_and_in_the_sdk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are printed alone; their worth stands beside them. A query past its deadline is aborted, says so, and is
    counted."""
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data", link=PATIENT) as c, c.client() as hc:
        await hc.execute(CREATE.format("T"))
        seq = await publish(hc, "T", 2)
        at = ("--url", server_of(c).endpoint)
        ordered = "SELECT K FROM T ORDER BY K"
        rows, worth = await shell(capsys, "query", ordered, "--json", "--worth", *at)
        assert [json.loads(line) for line in rows.splitlines()] == [{"K": 0}, {"K": 1}]
        assert (json.loads(worth)["seq"], json.loads(worth)["tables"]["T"]["unapplied"]) == (seq, 0)
        rows, worth = await shell(capsys, "query", ordered, *at)  # a table, into a pipe
        assert "update" not in rows
        assert worth.startswith(f"2 rows at update {seq}, current\nwaited ")
        assert (await shell(capsys, "query", ordered, "--csv", *at))[1] == ""
        rows, worth = await shell(capsys, "query", ordered, "--csv", "--worth", *at)
        assert rows == "K\n0\n1\n"
        assert worth.startswith(f"2 rows at update {seq}, current\nwaited ")
        assert await shell(capsys, "query", ordered, "--csv", *at) == ("K\n0\n1\n", "")
        text, _ = await shell(capsys, "policy", "queries-first", *at)
        assert text.startswith("switched to queries-first\n")
        assert "\n*  queries-first  " in text

        with pytest.raises(
            DeadlineMissed, match=r"aborted at its deadline of 300 ms: it waited .* and ran for"
        ) as late:
            await hc.query(ENDLESS, deadline="300ms")
        assert late.value.ran_s > 0
        assert late.value.waited_s + late.value.ran_s >= 0.29
        with pytest.raises(DeadlineMissed):
            async for _ in hc.query_portions(ENDLESS, deadline=0.3):
                pass
        _, said = await shell(capsys, "query", ENDLESS, "--deadline", "300ms", *at, code=2)
        assert said.startswith("hullcast: the query was aborted at its deadline of 300 ms: ")
        queries = server_of(c).queries
        await wait_for(lambda: queries.status()["missed"] == 3, "the process reports")
        assert (await hc.status())["queries"]["missed"] == 3
        assert samples(server_of(c), "hullcast_queries_late") == {(): 3}
        assert await hc.query("SELECT COUNT(*) FROM T") == [(2,)]


#: Runs a command, and says on standard error how much memory its process had at most. (What `wait4` says of a process
#: includes the one it was forked from.)
MEASURED = """
import sys
from pathlib import Path
from hullcast.clients.cli.main import main
code = main(sys.argv[1:])
(peak,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
sys.stderr.write(f"{int(peak) << 10}")
sys.exit(code)
"""


async def printed(endpoint: str, sql: str) -> tuple[int, int]:
    """The lines that `hullcast query --csv` prints in a process of its own, and the bytes that takes at most."""
    words = [sys.executable, "-c", MEASURED, "query", sql, "--csv", "--url", endpoint]
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = await process.communicate()
    assert process.returncode == 0, err
    return out.count(b"\n"), int(err)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
async def test_a_million_rows_are_printed_in_little_memory(tmp_path: Path) -> None:
    count = 1_000_000
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data", link=PATIENT) as c, c.client() as hc:
        await hc.execute(CREATE.format("T"))
        await publish(hc, "T", count)
        endpoint = server_of(c).endpoint
        _, small_bytes = await printed(endpoint, "SELECT K, V FROM T WHERE K < 9")
        lines, large_bytes = await printed(endpoint, "SELECT K, V FROM T")
        assert lines == count + 1
        assert large_bytes < small_bytes + (48 << 20), (small_bytes, large_bytes)  # all rows would take 150 MB
