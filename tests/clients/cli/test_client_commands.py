"""The client commands against a real server and a real node: what they print, how they end, what they refuse."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from rich.console import Console

from hullcast.broker.server.service import Server
from hullcast.broker.server.settings import ServerSettings
from hullcast.clients.cli import main as cli
from hullcast.clients.cli.commands.connection import parameter
from hullcast.clients.cli.commands.explain import in_words
from hullcast.clients.cli.commands.operators import derived_in_words, drawn, missed_in_words
from hullcast.clients.cli.commands.policy import counters_in_words, listed
from hullcast.clients.cli.commands.publish import _refusal
from hullcast.clients.cli.commands.query import in_words as worth_in_words
from hullcast.clients.cli.commands.status import StatusSample, joins_shown, screen
from hullcast.clients.cli.commands.subscribe import StandardOutput, _Links, _tell
from hullcast.clients.cli.commands.telling import JsonTeller, TextTeller
from hullcast.clients.cli.feeds.feeding import Stopped
from hullcast.clients.cli.feeds.rows_in import ReadRows
from hullcast.clients.processes.running import announcer
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import configure
from hullcast.network.answers.events import change_to
from hullcast.network.answers.named import QueryWorth, TableWorth
from hullcast.network.answers.result import ResultRows
from hullcast.network.node.node import Node
from hullcast.network.node.settings import NodeSettings
from hullcast.network.security.rights import Rights
from hullcast.network.wire.errors import UnknownTable

CREATE = "CREATE TABLE {} (SYMBOL TEXT PRIMARY KEY, RISK REAL NOT NULL, PER REAL, AT TIMESTAMP, N INTEGER)"
MIN_PER = "SELECT MIN(PER) FROM {} WHERE RISK BETWEEN ? AND ?"


class Cluster(NamedTuple):
    """A server and a node that run in a thread."""

    node: str
    server: str
    end_node: Callable[[], None]


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A server and a node in a thread of their own."""
    ready = threading.Event()
    shared: dict[str, Any] = {}

    async def serve() -> None:
        server = Server(ServerSettings(listen="tcp://127.0.0.1:0", data=None), Rights.everything())
        started = asyncio.Event()
        tasks = [asyncio.create_task(server.run(started))]
        await started.wait()
        node = Node(
            NodeSettings(listen="tcp://127.0.0.1:0", parent=(server.endpoint,), name="gate"), Rights.everything()
        )
        started = asyncio.Event()
        tasks.append(asyncio.create_task(node.run(started)))
        await started.wait()
        shared.update(loop=asyncio.get_running_loop(), stop=asyncio.Event(), task=tasks[1])
        shared["endpoints"] = node.endpoint, server.endpoint
        ready.set()
        await shared["stop"].wait()
        for task in reversed(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="test-cluster")
    thread.start()
    assert ready.wait(60)
    try:
        node, server = shared["endpoints"]
        yield Cluster(node, server, lambda: shared["loop"].call_soon_threadsafe(shared["task"].cancel))
    finally:
        shared["loop"].call_soon_threadsafe(shared["stop"].set)
        thread.join(30)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with cluster() as running:
        yield running.node


class Shell:
    """Runs commands here, or as processes, against one cluster and with a table of the test's own."""

    def __init__(self, url: str, table: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.url, self.table, self._path, self._capsys = url, table, path, capsys
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *words: str, code: int = 0) -> str:
        """Run it; what it printed, or said on standard error if it shall fail."""
        got = cli.main([*words, "--url", self.url])
        captured = self._capsys.readouterr()
        assert got == code, captured.err
        if code:
            assert captured.err.startswith("hullcast: ")
            assert captured.err.count("\n") == 1
        return captured.err if code else captured.out

    def file(self, content: str | bytes, name: str = "rows.csv") -> str:
        path = self._path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "hullcast", *words, "--url", self.url]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        self._started.append(subprocess.Popen(command, **pipes))
        return self._started[-1]

    def clear(self) -> None:
        """End what a test that failed has left."""
        for process in self._started:
            with process:
                process.kill()


@pytest.fixture
def shell(
    url: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shell]:
    made = Shell(url, f"T{zlib.crc32(request.node.name.encode())}", tmp_path, capsys)

    async def create() -> None:
        async with Client(configure(url)) as client:
            await client.execute(CREATE.format(made.table))

    asyncio.run(create())
    yield made
    made.clear()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit code and what it said, but for a line that a fresh clone has: nothing is compiled there yet."""
    out, err = process.communicate(timeout=60)
    lines = [line for line in err.splitlines(keepends=True) if not line.startswith("compiling ..")]
    return process.returncode, out, "".join(lines)


# --- publish, query, delete --------------------------------------------------------------------------------------


def test_csv_goes_in_and_comes_out(shell: Shell) -> None:
    file = shell.file("symbol,risk,per,at,n\nZoë ☃,20,,2024-01-02T03:04:05,7\nB,30.5,2,,\n")
    said = shell("publish", shell.table, "--csv", file)
    assert said.startswith(f"{shell.table}: 2 rows in 1 batch, ")
    assert ", last seq " in said
    out = shell("query", f"SELECT * FROM {shell.table} ORDER BY RISK", "--json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"SYMBOL": "Zoë ☃", "RISK": 20.0, "PER": None, "AT": "2024-01-02T03:04:05+00:00", "N": 7},
        {"SYMBOL": "B", "RISK": 30.5, "PER": 2.0, "AT": None, "N": None},
    ]
    assert shell("query", f"SELECT SYMBOL, PER FROM {shell.table} ORDER BY 1", "--csv") == "SYMBOL,PER\nB,2.0\nZoë ☃,\n"
    table = shell("query", f"SELECT COUNT(*), MAX(RISK) AS top FROM {shell.table} WHERE RISK > ?", "--param", "25")
    assert table.split() == ["COUNT(*)", "top", "─" * len(table.splitlines()[2].strip()), "1", "30.5"]


def test_a_query_takes_terms_and_refuses_those_that_make_no_sense(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell("publish", shell.table, "--jsonl", shell.file('{"SYMBOL": "A", "RISK": 1}\n'))
    count = f"SELECT COUNT(*) FROM {shell.table}"
    terms = ("--deadline", "1m", "--freshness", "1", "--priority", "3", "--consistent")
    assert shell("query", count, "--csv", *terms) == "COUNT(*)\n1\n"
    for flag, value, says in (
        ("--deadline", "soon", "'soon' must be a number of seconds, or a text such as '200ms', '1m' or '1h 30m'"),
        ("--freshness", "2", "'2' is not a number from 0 to 1"),
        ("--freshness", "nan", "'nan' is not a number from 0 to 1"),
        ("--priority", "high", "invalid int value: 'high'"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["query", count, flag, value])
        assert says in capsys.readouterr().err
    assert "deadline = 0.0: must be a positive number of seconds" in shell("query", count, "--deadline", "0", code=2)
    assert "priority = 10000000: must be" in shell("query", count, "--priority", "10000000", code=2)
    assert "--json and --csv cannot be combined" in shell("query", count, "--json", "--csv", code=2)


def test_a_table_too_long_to_be_fitted_looks_like_a_short_one(shell: Shell) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < {0}) "
    numbers += "SELECT i, CASE WHEN i % 2 THEN 'Zoë ☃ 雪' END AS t FROM n"
    short, long = ([line.rstrip() for line in shell("query", numbers.format(last)).splitlines() if line.strip()]
                   for last in (1999, 2000))  # fmt: skip
    assert long[: len(short)] == short
    assert (len(long), long[-1].split()) == (2 + 1001, ["2000", "NULL"])


WORTH = QueryWorth(
    7, 1.25, 34, {"T": TableWorth(7, 1.25, 30), "U": TableWorth(7, 0.5, 4)}, 0.012, 0.003, 0.2, True, "pareto"
)


def test_what_rows_are_worth_is_said_in_two_lines() -> None:
    assert worth_in_words(1234, WORTH) == [
        "1,234 rows at update 7; T lacks 30 changes, U lacks 4 changes, the oldest 1.25 s old",
        "waited 12 ms, ran 3 ms, deadline of 200 ms met (policy pareto)",
    ]
    current = {name: TableWorth(table.seq, 0.0, 0) for name, table in WORTH.tables.items()}
    fresh = replace(WORTH, staleness_s=0.0, unapplied=0, tables=current, deadline_s=None)
    assert worth_in_words(1, fresh) == ["1 row at update 7, current", "waited 12 ms, ran 3 ms (policy pareto)"]
    apart = replace(fresh, seq=None, tables={**current, "U": TableWorth(9, 0.0, 0)})
    assert worth_in_words(0, apart)[0] == "0 rows: T at update 7, U at update 9, current"
    assert worth_in_words(1, replace(fresh, tables={}, seq=None))[0] == "1 row"
    view = {"SECTORS": replace(current["T"], promise_s=0.2, refresh_s=0.0)}
    assert worth_in_words(1, replace(fresh, tables=view))[1] == "view SECTORS was up to date already"


def test_the_policies_are_listed_with_that_in_force_and_its_counters() -> None:
    facts = {
        "policy": "fifo",
        "counters": {"loads": 12, "mean_wait_s": 0.25},
        "policies": {"fifo": "in the order of arrival", "myopic": "least staleness"},
    }
    console = Console(file=io.StringIO(), width=80)
    console.print(listed(facts))
    text = console.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO
    assert [line.split(maxsplit=2) for line in map(str.rstrip, text.splitlines())] == [
        ["*", "fifo", "in the order of arrival"],
        ["myopic", "least", "staleness"],
    ]
    assert counters_in_words({"loads": 12, "mean_wait_s": 0.25}) == "loads 12, mean wait s 0.25"


def test_columns_left_out_keep_their_values(shell: Shell) -> None:
    shell("publish", shell.table, "--jsonl", shell.file('{"SYMBOL": "A", "RISK": 1, "PER": 5}\n'))
    shell("publish", shell.table, "--jsonl", shell.file('{"SYMBOL": "A", "PER": 6}\n'))
    assert shell("query", f"SELECT RISK, PER FROM {shell.table}", "--csv") == "RISK,PER\n1.0,6.0\n"


def test_many_batches_are_counted(shell: Shell) -> None:
    file = shell.file("SYMBOL,RISK\n" + "".join(f"S{n},{n}\n" for n in range(2500)))
    said = json.loads(shell("publish", shell.table, "--csv", file, "--batch", "100", "--json"))
    assert (said["rows"], said["batches"]) == (2500, 25)
    assert shell("query", f"SELECT COUNT(*) FROM {shell.table}", "--csv") == "COUNT(*)\n2500\n"
    keys = shell.file("".join(f"S{n}\n" for n in range(0, 2500, 2)), "keys")
    assert "deleted 1,250 rows, last seq" in shell("delete", shell.table, "--file", keys, "--batch", "100")
    assert "deleted 1 row (1 of 2 keys not found), last seq" in shell("delete", shell.table, "S1", "never there")
    said = json.loads(shell("delete", shell.table, "S1", "S3", "S3", "--json"))
    assert (said["keys"], said["rows"]) == (3, 1)
    assert shell("query", f"SELECT COUNT(*) FROM {shell.table}", "--csv") == "COUNT(*)\n1248\n"


def test_a_bad_cell_is_told_with_line_column_and_what_is_durable(shell: Shell) -> None:
    good = "".join(f"S{n},{n}\n" for n in range(250))
    said = shell("publish", shell.table, "--csv", shell.file(f"SYMBOL,RISK\n{good}X,oops\n"), "--batch", "100", code=2)
    assert "rows.csv line 252, column RISK: 'oops' is not a number; 200 rows are durable" in said
    assert shell("query", f"SELECT COUNT(*) FROM {shell.table}", "--csv") == "COUNT(*)\n200\n"


def test_a_refused_batch_is_told_with_its_lines_and_of_one_line_with_that() -> None:
    for lines, said in (([7], "rows.csv line 7: no table T"), ([7, 8, 9], "rows.csv line 7 to 9: no table T")):
        stopped = Stopped((ReadRows("rows.csv", "csv", {}, lines),), 0, 0)
        stopped.__cause__ = UnknownTable("T")
        assert str(_refusal(stopped)).startswith(f"{said}; ")


def test_what_the_server_refuses_is_told_with_its_line(shell: Shell) -> None:
    good = "".join(f"S{n},{n}\n" for n in range(149))
    said = shell("publish", shell.table, "--csv", shell.file(f"SYMBOL,RISK\n{good}X,\n"), "--batch", "100", code=2)
    assert "rows.csv line 151, column RISK: NULL is not allowed" in said
    assert "100 rows are durable" in said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('{"a": 1}', "REAL takes a number, got dict"),
        ("[1]", "REAL takes a number, got list"),
        ("true", "REAL takes a number, got bool True"),
        ('"x"', "REAL takes a number, got str 'x'"),
        ("1e999", "inf is not allowed: numbers must be finite"),
    ],
)
def test_a_bad_value_of_json_is_refused_as_the_sdk_refuses_it_with_its_line(
    shell: Shell, value: str, said: str
) -> None:
    rows = f'{{"SYMBOL": "A", "RISK": 1}}\n\n{{"SYMBOL": "B", "RISK": 1, "PER": {value}}}\n'
    got = shell("publish", shell.table, "--jsonl", shell.file(rows), code=2)
    assert f"line 3, column PER: {said}; no row was published" in got.replace("\n", " ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x00\x01\xff garbage", "is not UTF-8"),
        (b"SYMBOL,WRONG\nA,1\n", "no column WRONG"),
        (b"SYMBOL;RISK\nA;1\n", "is it separated by ';'? Then give --delimiter"),
        (b'SYMBOL,RISK\nA,"1', "not CSV"),
    ],
)
def test_garbage_is_refused(shell: Shell, content: bytes, said: str) -> None:
    got = shell("publish", shell.table, "--csv", shell.file(content), code=2)
    assert said in got
    assert "no row was published" in got


def test_a_table_or_file_that_is_not_there_is_told(shell: Shell, tmp_path: Path) -> None:
    file = shell.file("SYMBOL,RISK\nA,1\n")
    assert "no table NOWHERE; tables: " in shell("publish", "NOWHERE", "--csv", file, code=2)
    assert "cannot read" in shell("publish", shell.table, "--csv", str(tmp_path / "none.csv"), code=2)
    assert "no table NOWHERE" in shell("delete", "NOWHERE", "A", code=2)
    assert "give keys, or a --file" in shell("delete", shell.table, code=2)
    assert "or one of market, synthetic and points" in shell("replay", "nothere", code=2)


def test_a_table_is_created_when_asked_for(shell: Shell) -> None:
    file = shell.file("order,name of it\n1,a\n2,b\n")
    shell("publish", f"{shell.table}_NEW", "--csv", file, "--create")
    assert shell("query", f'SELECT SUM("order") FROM {shell.table}_NEW', "--csv").endswith("\n3\n")


def test_rows_of_a_pipe_are_published_while_it_is_open(shell: Shell) -> None:
    process = shell.start("publish", shell.table, "--csv", "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("SYMBOL,RISK\nA,1\n")
    process.stdin.flush()
    wait_for(lambda: shell("query", f"SELECT COUNT(*) FROM {shell.table}", "--csv") == "COUNT(*)\n1\n")
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert (code, err) == (130, "")


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_nobody_listening_is_told_soon(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # bound, but nobody listens: nobody else can either
        taken.bind(("127.0.0.1", 0))
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        begun = time.monotonic()
        assert cli.main(["query", "SELECT 1", "--url", endpoint, "--timeout", "0.5"]) == 2
    assert time.monotonic() - begun < 10
    assert (
        f"no answer from {endpoint} after 0.5 s (cannot connect; is a server or node running there?)"
        in capsys.readouterr().err
    )


def test_plain_text_to_another_host_is_refused_with_the_options_that_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "--url", "tcp://192.0.2.1:1"]) == 2
    assert "give --key and --server-key" in capsys.readouterr().err


def test_bad_sql_and_bad_parameters_are_told(shell: Shell) -> None:
    assert "nonsense" in shell("query", "nonsense", code=2)
    assert "parameter" in shell("subscribe", MIN_PER.format(shell.table), "--param", "1", code=2)


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("-2.5", -2.5), ("1e3", 1000.0), ("1_0", "1_0"), ("nan", "nan"), ("a", "a"), ("", "")]
)
def test_parameters_are_numbers_where_they_look_like_numbers(text: str, value: object) -> None:
    assert parameter(text) == value
    assert type(parameter(text)) is type(value)


# --- subscribe ------------------------------------------------------------------------------------------------


def publish(shell: Shell, *rows: dict[str, Any]) -> None:
    shell("publish", shell.table, "--jsonl", shell.file("".join(json.dumps(row) + "\n" for row in rows), "more.jsonl"))


def test_a_subscription_is_told_line_by_line_until_ctrl_c(shell: Shell) -> None:
    publish(shell, {"SYMBOL": "A", "RISK": 25, "PER": 9})
    process = shell.start("subscribe", MIN_PER.format(shell.table), "--param", "20", "--param", "60", "--json")
    first = json.loads(line_of(process))
    assert (first["event"], first["columns"], first["answer"]) == ("answer", ["MIN(PER)"], 9.0)
    publish(shell, {"SYMBOL": "B", "RISK": 30, "PER": 4})
    change = json.loads(line_of(process))
    assert (change["event"], change["answer"]) == ("change", 4.0)
    assert change["seq"] > first["seq"]
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    end = json.loads(out)
    assert (code, err) == (0, "")
    assert (end["event"], end["events"], end["dropped"], end["conflated"]) == ("end", 1, 0, 0)


def test_rows_enter_change_and_leave(shell: Shell) -> None:
    publish(shell, {"SYMBOL": "A", "RISK": 25, "PER": 9})
    sql = f"SELECT SYMBOL, PER FROM {shell.table} WHERE RISK BETWEEN 20 AND 60"
    process = shell.start("subscribe", sql, "--count", "3")
    assert line_of(process).rstrip().endswith("1 row")
    assert line_of(process) == "  SYMBOL=A  PER=9.0\n"
    publish(shell, {"SYMBOL": "B", "RISK": 30, "PER": None})
    assert line_of(process).rstrip().endswith("entered (B, NULL)")
    publish(shell, {"SYMBOL": "B", "PER": 5})
    assert line_of(process).rstrip().endswith("changed (B, NULL): PER is now 5.0")
    publish(shell, {"SYMBOL": "A", "RISK": 0})
    assert line_of(process).rstrip().endswith("left (A, 9.0)")
    code, out, err = finish(process)
    assert (code, out) == (0, "")
    assert err.startswith("events 3, resyncs 0, dropped 0, conflated 0, seconds ")


def test_rows_and_sets_as_json(shell: Shell) -> None:
    publish(shell, {"SYMBOL": "A", "RISK": 25, "AT": "2024-01-01T00:00:00", "N": 3})
    sql = f"SELECT SYMBOL, AT FROM {shell.table} WHERE RISK > 0"
    out = shell("subscribe", sql, "--seconds", "0", "--json").splitlines()
    assert json.loads(out[0])["answer"] == [{"SYMBOL": "A", "AT": "2024-01-01T00:00:00+00:00"}]
    out = shell("subscribe", f"SELECT DISTINCT N FROM {shell.table}", "--seconds", "0", "--json").splitlines()
    assert json.loads(out[0])["answer"] == [3]
    assert shell("subscribe", sql, "--seconds", "0", "--changes-only") == ""


def test_a_conditional_subscription_is_told_with_all_rows_and_their_worth(shell: Shell) -> None:
    publish(shell, {"SYMBOL": "A", "RISK": 25, "PER": 9})
    sql = f"SELECT SYMBOL, PER FROM {shell.table} ORDER BY SYMBOL"
    trigger = ["--when", MIN_PER.format(shell.table), "--when-param", "20", "--when-param", "60"]
    process = shell.start("subscribe", sql, *trigger, "--json", "--count", "1")
    first = json.loads(line_of(process))
    assert (first["event"], first["columns"], first["answer"]) == (
        "answer",
        ["SYMBOL", "PER"],
        [{"SYMBOL": "A", "PER": 9.0}],
    )
    assert first["fired"] is None
    publish(shell, {"SYMBOL": "C", "RISK": 30, "PER": 10}, {"SYMBOL": "B", "RISK": 30, "PER": 4})
    change = json.loads(line_of(process))
    assert (change["event"], [row["SYMBOL"] for row in change["answer"]]) == ("change", ["A", "B", "C"])
    assert change["fired"] <= change["as_of"] < change["seq"]
    assert change["took_s"] >= 0
    assert change["at"].endswith("+00:00")
    assert finish(process)[0] == 0

    process = shell.start("subscribe", sql, "--every", "100ms", "--count", "1")
    assert "3 rows at update " in line_of(process)
    assert line_of(process) == "  SYMBOL=A  PER=9.0\n"
    assert finish(process)[0] == 0
    process = shell.start("subscribe", sql, "--when", shell.table, "--at-most-every", "10ms", "--json", "--count", "1")
    line_of(process)
    publish(shell, {"SYMBOL": "A", "RISK": 25, "PER": 9})
    change = json.loads(line_of(process))
    assert change["fired"] <= change["as_of"]
    assert finish(process)[0] == 0
    words = " ".join(shell("explain", sql, "--when", shell.table, "--at-most-every", "10ms").split())
    assert f"anything in {shell.table} changes" in words
    assert "10ms: changes meanwhile share a run" in words
    words = " ".join(shell("explain", sql, *trigger).split())
    assert "once for all its subscribers" in words
    assert "the point (20, 60) in the plane of all ranges of RISK" in words
    assert "2 runs" in words
    assert json.loads(shell("explain", sql, *trigger, "--json"))["condition"]["low"] == [20.0]
    assert "nobody subscribes to it now" in " ".join(shell("explain", sql, "--every", "1h").split())
    assert any(sql in one["query"] for one in json.loads(shell("status", "--json"))["conditionals"]["each"])
    assert "must be from 0.1" in shell("subscribe", sql, "--every", "1ms", code=2)


def test_an_event_that_stands_for_several_changes_says_so() -> None:
    told = json.loads(JsonTeller(("N",)).event(change_to(4, 7.5, 1200)))
    assert told == {"event": "change", "seq": 4, "answer": 7.5, "conflated": 1200}
    line = TextTeller(("N",), Console(file=io.StringIO())).event(change_to(4, 7.5, 1200))
    assert line.endswith("seq 4  7.5  (stands for 1,200 earlier ones, too)\n")
    assert "conflated" not in json.loads(JsonTeller(("N",)).event(change_to(4, 7.5)))


def test_a_result_that_could_not_be_computed_is_told_as_such() -> None:
    failed = ResultRows((), (), fired=3, error=UnknownTable("T"))
    told = json.loads(JsonTeller(("N",)).event(change_to(4, failed)))
    assert (told["answer"], told["error"], told["fired"]) == (None, "no table T", 3)
    line = TextTeller(("N",), Console(file=io.StringIO())).event(change_to(4, failed))
    assert line.rstrip().endswith("seq 4  not run: no table T")


async def test_what_comes_after_a_reconnection_is_printed_after_it(url: str) -> None:
    """Also by whoever prints events, not only at the next look at the connection."""
    written: list[str] = []

    class Output:
        async def write(self, text: str) -> None:
            written.append(text)

    async with asyncio.timeout(30), Client(configure(url)) as client:
        await client.execute("CREATE TABLE RECONNECTED (K INTEGER PRIMARY KEY)")
        links = _Links(client, teller := JsonTeller(("N",)))
        assert links.news() == ""
        async with client.subscribe("SELECT COUNT(*) FROM RECONNECTED") as sub:
            client._line.dialer._lost("cut")
            await client.publish("RECONNECTED", {"K": 1})
            await _tell(sub, teller, cast(StandardOutput, Output()), links, 1)
    told = [json.loads(line) for line in "".join(written).splitlines()]
    assert [(one["event"], one.get("connected")) for one in told] == [
        ("connection", False),
        ("connection", True),
        ("change", None),
    ]


@pytest.mark.parametrize(("name", "said"), [("server", "hullcast server ready"), ("db", "hullcast server db ready")])
def test_a_process_says_its_name_where_that_says_more_than_what_it_is(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    announcer(as_json=False)({"role": "server", "name": name, "endpoint": "tcp://a:1", "monitor": None})
    assert capsys.readouterr().out == f"{said} at tcp://a:1\n"


def test_a_reader_who_leaves_ends_it_without_another_event(shell: Shell) -> None:
    process = shell.start("subscribe", f"SELECT COUNT(*) FROM {shell.table}", "--json")
    assert json.loads(line_of(process))["answer"] == 0
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


def test_a_lost_connection_and_its_return_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with cluster() as running:
        shell = Shell(f"{running.node},{running.server}", "T", tmp_path, capsys)
        shell("publish", "T", "--csv", shell.file("ID,X\n1,2\n"), "--create")
        process = shell.start("subscribe", "SELECT SUM(X) FROM T", "--json")
        assert json.loads(line_of(process))["answer"] == 2
        running.end_node()
        assert json.loads(line_of(process)) == {"event": "connection", "connected": False}
        assert json.loads(line_of(process)) == {"event": "connection", "connected": True}
        shell("publish", "T", "--csv", shell.file("ID,X\n2,3\n"))
        assert json.loads(line_of(process))["answer"] == 5
    assert json.loads(line_of(process)) == {"event": "connection", "connected": False}
    process.send_signal(signal.SIGTERM)
    code, out, _ = finish(process)
    shell.clear()
    assert code == 0
    assert json.loads(out.splitlines()[-1])["event"] == "end"


# --- explain, status, replay ----------------------------------------------------------------------------------


def test_explain_says_what_becomes_of_a_subscription(shell: Shell) -> None:
    sql = MIN_PER.format(shell.table)
    words = " ".join(shell("explain", sql, "--param", "20", "--param", "60").split())
    assert "the point (20, 60) in the plane of all ranges of RISK" in words
    assert f"with every MIN of {shell.table} over RISK" in words
    assert "it has no subscription now" in words
    box = f"SELECT COUNT(*) FROM {shell.table} WHERE RISK >= 3 AND PER BETWEEN 1 AND 2"
    assert "the box RISK 3 .. ∞ x PER 1 .. 2" in " ".join(shell("explain", box).split())
    told = json.loads(shell("explain", box, "--json"))
    assert (told["low"], told["high"]) == ([3.0, 1.0], [None, 2.0])
    none = f"SELECT COUNT(*) FROM {shell.table} WHERE RISK BETWEEN 5 AND -5"
    assert "no row can satisfy its conditions" in " ".join(shell("explain", none).split())


def test_explain_says_how_pairs_of_a_join_are_found() -> None:
    side = {"intervals": 5000, "groups": 40, "hot groups": 1, "hot share": 0.87, "largest": 2000}
    plans = {"JoinFirst-E": 10, "JoinFirst-S": 0, "SelectFirst": 90, "Hotspot": 0}
    lately = {"JoinFirst-E": 0.002, "JoinFirst-S": 0.0, "SelectFirst": 0.998, "Hotspot": 0.0}
    chosen = {"chosen": plans, "chosen lately": lately, "joining rows": 1200.04, "ranges that hold x": 2.5}
    left = side | chosen | {"looked at one by one": 1, "without a plan": 2}
    known: dict[str, object] = {"ranges": 5000, "wanted by": 100_000, "left": left, "right": {}}
    facts = {
        "tables": ["SUPPLY", "DEMAND"], "rows": [1, 2], "answer": ["ID"], "seq": 3, "never": False, "ranges": [],
        "low": [], "high": [], "partitions": [], "form": "places", "channel": "C", "kind": "JOIN", "channel_open": True,
        "join": known, "loaded": {"SUPPLY": {"loaded": 3, "unapplied": 2, "staleness_s": 0.5}},
    }  # fmt: skip
    told = in_words(facts)
    loaded = "a one-time query finds it loaded up to update 3: 2 changes behind, the oldest 500 ms old"
    assert ("query SUPPLY", loaded) in told
    words = [f"{about}: {text}" for about, text in told[[about for about, _ in told].index("ranges") :]]
    assert words == [
        "ranges: 5,000 different ranges, asked for by 100,000 subscriptions; pairs of rows that none of them wants "
        "cost nothing",
        "plans: SelectFirst: first the ranges that let the row pass, then its partners in each; JoinFirst-E: first "
        "the rows that it joins, then whether a range wants each",
        "rows in SUPPLY: for 1 row each range was looked at, because there were few; for 2 rows there was no plan yet, "
        "because many ranges had just come or gone; plans chosen lately: SelectFirst 100% (90 in all), JoinFirst-E "
        "under 1% (10 in all); a row joins about 1,200.0 others, and about 2.5 ranges let it pass; the ranges form 40 "
        "groups, each with a point in common, large ones (hotspots): 1, with 87% of all ranges",
        "rows in DEMAND: none has arrived since the channel was opened",
    ]


def test_explain_counts_the_recent_messages(shell: Shell) -> None:
    sql = MIN_PER.format(shell.table)
    process = shell.start("subscribe", sql, "--param", "20", "--param", "60")
    line_of(process)
    for per in (9, 8, 7):
        publish(shell, {"SYMBOL": "A", "RISK": 25, "PER": per})
    words = " ".join(shell("explain", sql, "--param", "20", "--param", "60").split())
    assert re.search(r"an event in 3 of the last \d+ updates", words)  # results of other tests have numbers, too
    assert "it is open" in words
    process.send_signal(signal.SIGINT)
    finish(process)


def test_status_shows_the_tree(shell: Shell) -> None:
    out = shell("status", "--interval", "0.1")
    lines = out.splitlines()
    assert lines[0].startswith("server server  tcp://127.0.0.1:")
    assert any("── node gate  tcp://127.0.0.1:" in line for line in lines)
    assert f"{shell.table} 0 rows" in " ".join(out.split())
    told = json.loads(shell("status", "--json"))
    assert told["nodes"][0]["name"] == "gate"


def test_status_is_refreshed_until_ctrl_c(shell: Shell) -> None:
    process = shell.start("status", "--watch", "--json", "--interval", "0.1")
    for _ in range(3):
        assert json.loads(line_of(process))["name"] == "server"
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 0


def test_rates_and_lag_come_from_two_samples() -> None:
    def sample(at: float, seq: int, through: int, messages: int) -> StatusSample:
        counters = {"clients": 1, "nodes": 1, "subscriptions": 2, "messages": messages, "routed": messages // 2}
        counters |= {"filtered": messages - messages // 2, "queued_bytes": 3_000_000}
        node = {"id": "n", "name": "gate", "endpoint": "tcp://b:1", "path": ["s"], "attached": True, "reattached": 2}
        channel = {"number": 1, "name": "MIN", "updates": 10, "messages": messages, "ignorable": 5, "deserted": False}
        status: dict[str, Any] = {"name": "main", "id": "s", "endpoint": "tcp://a:1", "uptime_s": 90_061.0, "seq": seq}
        status |= {"through": seq, "tables": {"T": 5}, "memory_bytes": 10, "retention_bytes": 0, "refused": 0}
        log: dict[str, Any] = {
            "memory_only": False,
            "written_bytes": 1,
            "pending_bytes": 0,
            "checkpoints": 2,
            "readable_from": 0,
        }
        log |= {"free_bytes": 7_000_000, "disk_full": "the disk is full"}
        status |= {"children": counters, "log": log, "channels": [channel], "failed": 3}
        loaded = {"loaded": 480, "unapplied": 20, "staleness_s": 1.25, "stretch": 1.5, "period_s": 60.0, "weight": 3.0}
        loaded |= {"bytes": 5_000_000}
        queries = {"answered": 12, "failed": 1, "running": 2, "waiting": 0, "missed": 4, "policy": "myopic"}
        queries |= {"counters": {"loads": 7}, "tables": {"T": loaded}}
        status |= {"recent_pause_s": 0.0421, "queries": queries}
        return StatusSample(
            at, status | {"nodes": [node | counters | {"through": through, "lag_s": (seq - through) / 10}]}
        )

    console = Console(width=140, record=True, file=io.StringIO())
    console.print(screen(sample(3.0, 500, 480, 1000), sample(1.0, 100, 100, 200)))
    text = console.export_text()
    assert "up 1 d 1 h, seq 500, 200 updates/s" in text
    assert "2.0 s behind  moved 2x" in text
    assert "3.0 MB queued; 1,000 messages: 500 sent on, 500 filtered out (400 messages/s)" in text
    assert "1,000" in text.splitlines()[-2]
    assert "3 failed by a fault of the server" in text
    assert "last minute 42 ms" in text
    assert "7.0 MB free on its disk" in text
    assert "publishes refused: the disk is full" in text
    assert "queries 12 answered, 2 running, 0 waiting, 1 failed, 4 past their deadline; policy myopic" in text
    assert "(loads 7)" not in text
    (line,) = (line for line in text.splitlines() if line.strip().startswith("T  "))
    assert line.split() == ["T", "480", "20", "1.25", "s", "1.50", "1m", "3", "5.0", "MB"]
    now = sample(3.0, 500, 480, 1000)
    now.status["log"]["checkpoints"] = 1
    console.print(screen(now, None, verbose=True))
    text = console.export_text()
    assert "policy myopic (loads 7)" in text
    assert "free on its disk, 1 checkpoint, history" in text
    now.status["channels"][0]["name"] = "SELECT SECTOR, AVERAGE_OF_ALL FROM CUSTOMERS OVER PRICE BY SECTOR"
    narrow = Console(width=80, record=True, file=io.StringIO())
    narrow.print(screen(now, None))
    words = set(narrow.export_text().split())
    assert words >= {"AVERAGE_OF_ALL", "CUSTOMERS", "loaded", "queries", "channel", "nothing", "stretch"}, words


def test_a_synthetic_market_is_replayed_at_its_rate(shell: Shell) -> None:
    said = json.loads(shell("replay", "synthetic:50:1", "--rate", "500", "--seconds", "1", "--json"))
    assert 300 <= said["updates"] <= 550
    assert 0 < said["durable_p50_s"] <= said["durable_p99_s"]
    shell("execute", "DROP TABLE IF EXISTS POINTS")
    created, text = shell("replay", "points:100", "--rate", "0").splitlines()
    assert created == "created table POINTS"
    assert text.startswith("20,000 updates in ")
    assert shell("replay", "points:100", "--rate", "0").startswith("20,000 updates in ")
    assert "is not a trace" in shell("replay", "synthetic:x", code=2)


def test_a_file_is_replayed_by_its_own_times(shell: Shell) -> None:
    rows = "".join(f"{n / 10},S{n % 3},{n}\n" for n in range(30))
    file = shell.file("ts,symbol,price\n" + rows, f"{shell.table}_TICKS.csv")
    said = json.loads(shell("replay", file, "--speed", "10", "--primary-key", "symbol", "--json"))
    assert said["updates"] == 30
    assert said["seconds"] >= 0.28
    assert shell("query", f"SELECT MAX(price) FROM {shell.table}_TICKS", "--csv").endswith("\n29\n")
    assert "name it with --time COLUMN" in shell("replay", shell.file("a,b\n1,2\n", "x.csv"), "--speed", "1", code=2)


def test_a_replay_ends_with_its_summary_by_ctrl_c(shell: Shell) -> None:
    seq = json.loads(shell("status", "--json"))["seq"]
    process = shell.start("replay", "synthetic:50:2", "--rate", "200", "--loop")
    wait_for(lambda: json.loads(shell("status", "--json"))["seq"] > seq + 150)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert " updates/s of 200 wanted; durable after " in out


def test_nan_is_null_where_that_is_asked_for(shell: Shell) -> None:
    csv = shell.file("SYMBOL,RISK,PER\nA,1,nan\nB,2,3.5\n")
    refused = shell("publish", shell.table, "--csv", csv, code=2)
    assert "line 2, column PER: NaN is not allowed; `hullcast publish --nan null` stores NaN as NULL" in refused
    shell("publish", shell.table, "--csv", csv, "--nan", "null")
    parquet = shell.file(b"", "rows.parquet")
    pq.write_table(pa.table({"SYMBOL": ["C"], "RISK": [3.0], "PER": [float("nan")]}), parquet)
    said = shell("publish", shell.table, "--parquet", parquet, code=2)
    assert "column PER: NaN is not allowed; `hullcast publish --nan null` stores NaN as NULL" in said
    shell("publish", shell.table, "--parquet", parquet, "--nan", "null")
    rows = shell("query", f"SELECT SYMBOL, PER FROM {shell.table} ORDER BY SYMBOL", "--csv")
    assert rows == "SYMBOL,PER\nA,\nB,3.5\nC,\n"


def test_statements_and_keys_that_are_wrong_are_told_with_what_helps(shell: Shell) -> None:
    for command in ("execute", "query", "subscribe", "explain"):
        said = shell(command, f"INSERT INTO {shell.table} VALUES (1)", code=2)
        assert said == "hullcast: INSERT is not supported; use `hullcast publish`\n"
    said = shell("execute", f"SELECT * FROM {shell.table}", code=2)
    assert said == "hullcast: SELECT is not supported here; use `hullcast subscribe` or `hullcast query`\n"
    said = shell("subscribe", f"SELECT * FROM {shell.table} WHERE RISK > ? AND PER > ?", "--param", "1", code=2)
    assert said.endswith(
        "takes 2 parameters (RISK (REAL), PER (REAL)), got 1; pass the values one by one: --param once for each `?`\n"
    )
    create = CREATE.replace("TABLE", "TABLE IF NOT EXISTS").format(shell.table)
    shell("execute", create)
    assert "its column N is INTEGER, not REAL" in shell("execute", create.replace("N INTEGER", "N REAL"), code=2)
    numbered = "CREATE TABLE IF NOT EXISTS numbered (ID INTEGER PRIMARY KEY, N REAL)"
    assert shell("execute", numbered) == "created table numbered (2 columns)\n"
    assert shell("execute", numbered.upper()) == "table numbered exists already\n"
    said = shell("delete", "NUMBERED", "x", code=2)
    assert said == "hullcast: key 1: key column ID is INTEGER; 'x' is not an integer\n"
    assert shell("delete", "NUMBERED", "1", "2").startswith(
        "numbered: deleted 0 rows (2 of 2 keys not found), last seq"
    )
    assert json.loads(shell("execute", "DROP TABLE NUMBERED", "--json"))["did"] == "dropped table numbered"
    assert shell("execute", "DROP TABLE IF EXISTS NUMBERED") == "there is no table NUMBERED\n"


def test_rows_are_deleted_by_a_condition_as_the_refusal_of_delete_says(shell: Shell) -> None:
    said = shell("execute", f"DELETE FROM {shell.table} WHERE RISK > 1", code=2)
    typed = '`hullcast query "SELECT key FROM table WHERE .." --csv | hullcast delete table --file -`'
    assert said == f"hullcast: DELETE is not supported; use `hullcast delete`; by a condition, {typed}\n"
    shell("publish", shell.table, "--csv", shell.file('symbol,risk\n"a, ""b""",1\nc,2\nSYMBOL,3\n'))
    found = shell("query", f"SELECT SYMBOL FROM {shell.table} WHERE RISK <> 2 ORDER BY RISK", "--csv")
    assert "deleted 2 rows, last seq" in shell("delete", shell.table, "--file", shell.file(found, "keys.csv"))
    assert shell("query", f"SELECT SYMBOL FROM {shell.table}", "--csv") == "SYMBOL\nc\n"


@pytest.mark.parametrize("command", ["query", "subscribe", "explain"])
def test_values_behind_the_statement_are_refused_with_how_they_are_given(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main([command, "SELECT MIN(PER) FROM T WHERE RISK BETWEEN ? AND ?", "-5", "5", "--timeout", "1"])
    assert "--param=-5 --param=5" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main([command, "SELECT", "COUNT", "FROM", "STOCK"])
    said = capsys.readouterr().err
    assert said.endswith(f'error: put the statement in quotes: hullcast {command} "SELECT ..."\n')
    with pytest.raises(SystemExit):
        cli.main([command])
    assert capsys.readouterr().err.endswith("error: the following arguments are required: SELECT\n")


def test_a_stream_is_created_fed_replayed_and_shown(shell: Shell) -> None:
    stream = f"{shell.table}_S"
    shell("execute", f"CREATE STREAM {stream} (TS TIMESTAMP, PRICE REAL) WITH (retain_rows = 5000)")
    lines = "".join(f'{{"TS": "2024-01-01T00:00:0{i}", "PRICE": {i}}}\n' for i in range(3))
    shell("publish", stream, "--jsonl", shell.file(lines, "rows.jsonl"))
    shell("publish", stream, "--csv", shell.file("PRICE,TS\n7,2024-01-01T00:00:07\n"))
    sql = f"SELECT PRICE FROM {stream} WHERE PRICE > 0"
    process = shell.start("subscribe", sql, "--after", "0", "--json", "--count", "4")
    told = [json.loads(line_of(process)) for _ in range(3)]
    assert [(one["event"], one["row"]["PRICE"]) for one in told] == [("tuple", 1.0), ("tuple", 2.0), ("tuple", 7.0)]
    shell("execute", f"ADVANCE STREAM {stream} TO '2024-01-01T00:01:00'")
    shell("publish", stream, "--jsonl", shell.file('{"TS": "2024-01-01T00:00:01", "PRICE": 9}\n', "more.jsonl"))
    last = json.loads(line_of(process))
    assert (last["row"], last["seq"] > told[-1]["seq"]) == ({"PRICE": 9.0}, True)
    assert finish(process)[0] == 0
    process = shell.start("subscribe", sql, "--after", str(told[1]["seq"]), "--count", "1")
    assert line_of(process).rstrip().endswith(f"seq {told[2]['seq']}  PRICE=7.0")
    assert finish(process)[0] == 0
    status = json.loads(shell("status", "--json"))
    facts = status["streams"][stream]
    assert (status["tables"][stream], facts["first_position"]) == (5, told[0]["seq"] - 1)
    assert datetime.fromtimestamp(facts["time_us"] / 1e6, UTC) == datetime(2024, 1, 1, 0, 1, tzinfo=UTC)
    assert "2024-01-01 00:01:00" in shell("status")
    assert "a message is a tuple, and concerns it if it is inside" in " ".join(shell("explain", sql).split())
    shell("execute", f"DROP STREAM {stream}")


def test_a_join_over_streams_is_created_explained_followed_and_listed(shell: Shell) -> None:
    r, s, j = (f"{shell.table}_{name}" for name in "RSJ")
    shell("execute", f"CREATE STREAM {r} (TS TIMESTAMP, K TEXT, A REAL)")
    shell("execute", f"CREATE STREAM {s} (TS TIMESTAMP, K TEXT, B REAL) WITH (retain = '1h')")
    join = f"SELECT r.K, r.A, s.B FROM {r} [ROWS 100] r JOIN {s} [RANGE '10s'] s ON r.K = s.K"
    planned = " ".join(shell("explain", f"{join} WHERE r.A > 3").split())
    assert "computed not now: nobody subscribes to it" in planned
    assert f"from {r} projection -> window join -> results" in planned
    shell("execute", f"CREATE STREAM {j} AS {join} WITH (memory = 50)")
    wait_for(lambda: json.loads(shell("status", "--json"))["operators"]["derived"][j]["opened"])
    process = shell.start("subscribe", f"{join} WITH (memory = 50)", "--json", "--count", "1")
    wait_for(lambda: len(json.loads(shell("status", "--json"))["operators"]["joins"]) == 1)
    row = '{{"TS": "2024-01-01T00:00:0{}", "K": "x", "{}": {}}}\n'
    shell("publish", r, "--jsonl", shell.file(row.format(1, "A", 4), "r.jsonl"))
    shell("publish", s, "--jsonl", shell.file(row.format(2, "B", 6), "s.jsonl"))
    shell("execute", f"ADVANCE STREAM {r} TO '2024-01-01T00:00:05'")
    assert json.loads(line_of(process))["row"] == {"K": "x", "A": 4.0, "B": 6.0}
    code, out, _ = finish(process)
    assert (code, json.loads(out.splitlines()[-1])["missed_share"]) == (0, 0.0)
    wait_for(lambda: json.loads(shell("status", "--json"))["operators"]["derived"][j]["memory"] is not None)
    told = " ".join(shell("explain", f"SELECT K FROM {j}").split())
    assert f"stream {j} {join} WITH (memory = 50)" in told
    assert "by the streams process, 1 result since the server started" in told
    assert "of at most 50 tuples; 0 were dropped for others; about 0.0% of the results are missed" in told
    shown = " ".join(shell("status").split())
    assert "joins queues hold " in shown
    assert f"{j}: SELECT" in shown
    listed_ = shell("tables")
    assert f"{j} " in listed_
    assert join.split(" FROM ")[0] in " ".join(listed_.split())
    assert json.loads(shell("tables", "--json"))["tables"][j]["stream"]["source"] == f"{join} WITH (memory = 50)"
    assert "* bounded-chain" in " ".join(shell("policy", "--streams").split())
    assert shell("policy", "--streams", "chain").startswith("switched to chain\n")
    assert json.loads(shell("policy", "--streams", "bounded-chain", "--json"))["policy"] == "bounded-chain"
    shell("execute", f"DROP STREAM {j}")
    shell("execute", f"DROP STREAM {r}")
    shell("execute", f"DROP STREAM {s}")


def test_a_progress_chart_is_drawn_with_its_lower_envelope() -> None:
    chart = {
        "times": [0.0, 1e-9, 3e-9, 4e-9, 6e-9],
        "sizes": [1.0, 0.9, 0.85, 0.1, 0.0],
        "envelope": [0, 3, 4],
        "slopes": [2.25e8, 2.25e8, 2.25e8, 5e7],
    }
    assert drawn(chart, 31, 7).splitlines() == [
        "what is left of a kB of tuples, after so much work:",
        "    1 o────┐",
        "        ···o─────────o────┐",
        "            ····          │",
        "                ···       │",
        "                   ····   │",
        "                       ···o─────────┐",
        "    0                       ········o",
        "      0                          6 us",
    ]


def test_a_chart_that_grows_is_drawn_up_to_its_largest_size() -> None:
    chart = {"times": [0.0, 1.0, 2.0], "sizes": [1.0, 4.0, 0.0], "envelope": [0, 2], "slopes": [0.5, 0.5]}
    lines = drawn(chart, 21, 5).splitlines()
    assert lines[1].lstrip().startswith("4 ")
    assert lines[1].endswith("o─────────┐")
    assert lines[4].startswith("    1 o─────────┘")


def test_what_waits_in_a_join_and_what_it_misses_is_said_in_words() -> None:
    operator = {"name": "selection", "waiting": 7, "waiting_bytes": 2_100.0, "runs": 3, "tuples": 200, "made": 50}
    operator |= {"selectivity": 0.25, "seconds_per_tuple": 1.5e-6}
    chart = {"times": [0.0, 1e-8], "sizes": [1.0, 0.0], "envelope": [0, 1], "slopes": [1e8]}
    known: dict[str, Any] = {
        "source": "SELECT ..", "made": True, "opened": True, "failed": None, "results": 1, "gaps": 2, "waiting": 7,
        "waits_for": "QUOTES", "behind_s": 8.0, "memory_limit": 10, "policy": "chain",
        "memory": {"kept": 9, "dropped": 3, "missed_share": 0.25},
        "paths": [{"stream": "TRADES", "operators": [operator], "chart": chart}],
    }  # fmt: skip
    told = dict(derived_in_words("HOT", known, is_hidden=False))
    assert told["stream HOT"] == "SELECT .."
    assert told["computed"] == (
        "by the streams process, 1 result since the server started; 7 tuples wait for QUOTES, whose time is 8 s "
        "behind: publish there, or send a heartbeat; results are missing at 2 places, where subscribers got "
        "a Resync"
    )
    assert told["memory"] == (
        "keeps 9 of at most 10 tuples; 3 were dropped for others; about 25% of the results are missed (an estimate)"
    )
    assert told["from TRADES"] == (
        "selection -> results\n  selection: 200 tuples in, 50 out (0.25 each), 1.5 us a tuple, 0.25 of the bytes stay "
        "lately, 7 tuples wait (2.1 kB)"
    )
    assert told[""] == "by its lower envelope (·): selection frees 100 MB a second of work"
    assert [missed_in_words(share) for share in (0.0, 1e-5, 0.05, 0.5, 0.995, 0.99999)] == [
        "0.0%", "under 0.1%", "5.0%", "50%", "99.5%", "over 99.9%",
    ]  # fmt: skip
    failed = dict(derived_in_words("HOT", known | {"failed": "no disk"}, is_hidden=False))
    assert failed["computed"].startswith("stopped: no disk.")


def test_status_says_which_streams_are_full_and_which_joins_are_not_there_yet() -> None:
    one = {"source": "SELECT ..", "results": 5, "waiting": 2, "behind_s": 1.0, "memory": None, "gaps": 0}
    one |= {"failed": None, "opened": False, "waits_for": None}
    operators = {"running": True, "processes": 2, "policy": "fifo", "behind": 12, "limit_bytes": 1000, "refused": 3}
    operators |= {"full": ["TRADES"], "waiting_bytes": 1200.0, "most_waiting_bytes": 1500.0}
    operators |= {"derived": {"HOT": one, "BAD": one | {"failed": "gone"}}, "joins": []}
    console = Console(width=140, record=True, file=io.StringIO())
    for part in joins_shown(StatusSample(1.0, {"operators": operators}), None):
        console.print(part)
    text = console.export_text()
    assert "queues hold 1.2 kB of 1.0 kB, at most 1.5 kB so far; 12 updates behind the log; policy fifo; " in text
    assert "the process was started 2 times; 3 publishes refused so far" in " ".join(text.split())
    assert "full: no more tuples of TRADES are taken until joins have caught up" in text
    assert "HOT: SELECT ..  not begun yet" in text
    assert "BAD: SELECT ..  stopped, begins again soon: gone" in text
    assert joins_shown(StatusSample(1.0, {}), None) == []
