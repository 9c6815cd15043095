"""`hullcast replay` of recorded traces to a live cluster: afterwards the table is what the trace ends with."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from hullcast.clients.cli import main as cli
from hullcast.clients.cli.feeds.piece import Piece
from hullcast.clients.cli.feeds.recorded import RecordedTrace
from hullcast.clients.cli.feeds.traces import SyntheticTrace, Trace, open_trace
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import configure
from hullcast.network.wire.errors import UsageError
from hullcast.sim.traces.market import market, market_columns
from hullcast.sim.traces.synthetic import table51_trace
from hullcast.sim.traces.table51 import Mix
from hullcast.sim.traces.trace import TraceInfo, as_table, parts_of, read_parts, write_columns
from tests.clients.cli.test_client_commands import cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with cluster() as running:
        yield running.node


def final(tables: Iterable[pa.Table]) -> dict[str, tuple[float, float]]:
    """The rows that are left, by the plain rule: the last event of a key says."""
    rows: dict[str, tuple[float, float]] = {}
    for table in tables:
        for row in table.to_pylist():
            if row["x"] is None:
                rows.pop(row["key"], None)
            else:
                rows[row["key"]] = (row["x"], row["y"])
    return rows


def live(url: str, sql: str) -> dict[str, tuple[float, float]]:
    async def ask() -> Any:
        async with Client(configure(url)) as client:
            return await client.query(sql)

    return {str(key): (x, y) for key, x, y in asyncio.run(ask())}


def replay(url: str, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = cli.main(["replay", *words, "--json", "--url", url])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    said: dict[str, Any] = json.loads(captured.out)
    return said


def test_upserts_and_deletes_are_played_in_order(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mix = Mix(spikes=0.05, ignorable=0.1, inserts=0.2, deletes=0.2)
    table51_trace(tmp_path, rows=100, updates=1_500, mix=mix, root=1)
    said = replay(url, capsys, str(tmp_path), "--rate", "0")
    assert said["updates"] == 1_500
    expected = final(read_parts(tmp_path))
    assert 50 < len(expected) < 250
    assert live(url, "SELECT ID, X, Y FROM POINTS") == expected


def test_a_market_needs_no_folder(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, columns = market_columns(market(20, root=3))
    said = replay(url, capsys, "market:20:3", "--rate", "0", "--table", "MARKET")
    assert said["updates"] == len(columns)
    assert live(url, "SELECT SYMBOL, RECO, PER FROM MARKET") == final([as_table(columns)])


def test_a_folder_is_played_at_its_own_times(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info, columns = market_columns(market(5, 3, root=1))
    write_columns(tmp_path, info, columns)
    days = (columns.at[-1] - columns.at[0]).astype("int64") / 1e6  # type: ignore[index]  # a market has times
    said = replay(url, capsys, str(tmp_path), "--speed", str(days / 0.5))
    assert said["updates"] == len(columns)
    assert 0.45 <= said["seconds"] < 10
    assert live(url, "SELECT SYMBOL, RECO, PER FROM STOCK") == final(read_parts(tmp_path))


def opened(text: str, *, timed: bool = False) -> Trace:
    return open_trace(text, table=None, key=None, time=None, timed=timed, batch=10)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["market", "--primary-key", "SYMBOL"], "its own key and times"),
        (["market:x"], "write market:1000"),
        (["{folder}", "--speed", "1"], "events without a time; give --rate"),
        (["{empty}"], "is not a trace"),
        (["{half}"], "is incomplete"),
    ],
)
def test_what_cannot_be_played_is_refused(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    table51_trace(tmp_path / "trace", rows=5, updates=5)
    (tmp_path / "empty").mkdir()
    table51_trace(tmp_path / "half", rows=5, updates=5)
    parts_of(tmp_path / "half")[-1].place.local.unlink()
    folders = {"folder": tmp_path / "trace", "empty": tmp_path / "empty", "half": tmp_path / "half"}
    filled = [word.format(**folders) for word in words]
    assert cli.main(["replay", *filled, "--url", url]) == 2
    assert message in capsys.readouterr().err


def test_events_without_times_are_found_when_they_come(tmp_path: Path) -> None:
    info, columns = market_columns(market(2, 1))
    other = TraceInfo("other", events=info.events)
    write_columns(tmp_path, other, type(columns)(columns.keys, columns.x, columns.y))
    with pytest.raises(UsageError, match="without a time"):
        opened(str(tmp_path), timed=True)
    trace = opened(str(tmp_path))
    assert sum(piece.count for piece in trace.parts()) == info.events
    trace.close()
    assert list(trace.parts()) == []


def test_a_folder_of_the_name_of_a_generator_needs_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table51_trace("market", rows=5, updates=5)
    (tmp_path / "points").mkdir()
    with pytest.raises(UsageError, match=r"give \./market for the folder"):
        opened("market")
    assert isinstance(opened("./market"), RecordedTrace)
    assert isinstance(opened("points"), SyntheticTrace)
    assert isinstance(opened("market:5"), RecordedTrace)


def test_a_second_pass_begins_with_the_rows_of_the_start(tmp_path: Path) -> None:
    table51_trace(tmp_path, rows=20, updates=300, mix=Mix(inserts=0.3, deletes=0.2), root=2)
    start, _ = read_parts(tmp_path)
    rows: dict[int, tuple[float, float]] = {}
    trace = opened(str(tmp_path))

    def play(pieces: Iterable[Piece]) -> list[dict[int, tuple[float, float]]]:
        states = []
        for piece in pieces:
            if piece.deletes:
                for key in piece.rows:
                    del rows[key]
            else:
                rows.update(zip(piece.rows["ID"], zip(piece.rows["X"], piece.rows["Y"], strict=True), strict=True))
            states.append(dict(rows))
        return states

    x, y = (start[name].to_pylist() for name in ("x", "y"))
    play([Piece("POINTS", {"ID": [*map(int, start["key"].to_pylist())], "X": x, "Y": y}, 20)])
    begun, first = dict(rows), play(trace.parts())
    second = play(trace.parts())
    assert begun in second[:2]
    assert first[-1] == second[-1] != begun
