"""The benchmark of peers at toy sizes: every peer that is installed does the job, and every answer is judged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import psutil
import pytest
from rich.console import Console

from hullcast.clients.processes.child import command, environment
from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.frame.report import draw, to_json, write_json
from hullcast.sim.bench.peers.benchmark import PEERS_BENCH
from hullcast.sim.bench.peers.cells import FULL_PEERS, PEERS, QUICK_PEERS, Cell, PeerSettings, chosen, groups
from hullcast.sim.bench.peers.measure import wrong_answers, wrong_by_sql
from hullcast.sim.bench.peers.pathway_peer import Pathway
from hullcast.sim.bench.peers.report import PeerFigures, PeerLine, crossing, crossovers, peer_goals, wins
from hullcast.sim.bench.peers.row_clients import LostUpdates, RowClient, packed
from hullcast.sim.bench.peers.state import ClientState
from hullcast.sim.bench.peers.workload import Job, Rows
from hullcast.sim.output.goals import Goal, goals_table
from tests.sim.bench.reports import report_of, shown

TINY = PeerSettings(
    (Cell("single", 60, 3, 1), Cell("hundred-20000", 60, 3, 20, 1_000)),
    rows=200,
    updates=2_000,
    rounds=1,
    warm_s=0.1,
    measured_s=0.3,
)


@pytest.mark.parametrize(
    "name", [name if name in ("hullcast", "nats") else pytest.param(name, marks=pytest.mark.slow) for name in PEERS]
)
def test_a_peer_that_is_installed_keeps_every_answer_right(name: str) -> None:
    missing = PEERS[name]().missing()
    if missing:
        pytest.skip(missing)
    ticks: list[str] = []
    settings = replace(TINY, peers=(name,))
    report = PEERS_BENCH.measure(settings, tick=ticks.append, look_s=0)
    assert len(ticks) == PEERS_BENCH.steps(settings) == 2
    single, offered = report.found["peers"].lines
    for line in (single, offered):
        assert (line.failed, line.wrong) == ("", 0)
        assert line.updates > 0 < line.updates_s
        assert line.cpu_us > 0 < line.peak_mb
        assert line.samples > 0
        assert line.p50_ms is not None
        assert line.p99_ms is not None
        assert 0 < line.p50_ms <= line.p99_ms
        if line.client_bytes is not None and line.wire_bytes is not None:
            assert line.wire_bytes > line.client_bytes > 0 or PEERS[name]().in_process
    assert single.kept_up is None
    assert offered.kept_up is not None
    assert offered.updates == 300  # 0.3 s at 1,000 updates/s, whether or not it kept up


def test_a_peer_that_is_not_installed_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hullcast.sim.bench.peers.nats_peers.executable", lambda name, *places: "")
    report = PEERS_BENCH.measure(replace(TINY, peers=("nats",)), look_s=0).found["peers"]
    assert report.lines == ()
    assert "nats-server is not installed" in report.skipped["nats"]


def test_a_peer_that_fails_says_why_and_the_cells_after_it_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hullcast.sim.bench.peers.sqlite_peer.Sqlite.start", Pathway.start)  # takes 1,000 ranges
    cells = (Cell("single", 1_001, 1, 1), Cell("thousand", 1_001, 1, 1_000))
    report = PEERS_BENCH.measure(replace(TINY, cells=cells, peers=("sqlite",)), look_s=0).found["peers"]
    assert [line.failed for line in report.lines] == [
        "not tried: it keeps each pair of a range and a row in it; at most 1,000 ranges here",
        "not tried, because single failed",
    ]


@pytest.fixture
def job() -> Job:
    return Job.drawn(rows=300, updates=1_000, subscriptions=200, seed=3)


def test_the_judges_agree_and_find_each_wrong_answer(job: Job) -> None:
    state = ClientState(job.start, job.capacity, job.low, job.high)
    for call in job.calls(0, 50):
        state.apply(call.rows)
        if call.end >= 1_500:  # all of them, and some again
            break
    answers = state.answers
    assert wrong_answers(job, 1_500, answers) == wrong_by_sql(job, 1_500, answers) == 0
    assert wrong_by_sql(job, 1_450, answers) > 0
    answers[[3, 8]] += 1
    assert wrong_answers(job, 1_500, answers) == wrong_by_sql(job, 1_500, answers) == 2
    assert wrong_answers(job, 1_500, answers[:-1]) == 200


def test_a_job_is_the_same_in_every_process(job: Job, tmp_path: Path) -> None:
    job.save(tmp_path / "job.npz")
    loaded = Job.load(tmp_path / "job.npz")
    for ours, theirs in ((job.start, loaded.start), (job.updates, loaded.updates)):
        for name in ("ids", "risk", "per"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_client_state_is_right_after_every_update_also_when_rows_move() -> None:
    random = np.random.default_rng(1)
    rows = Rows(np.arange(50), random.uniform(0, 10_000, 50), random.integers(0, 9, 50).astype(float))
    low = np.concatenate((random.uniform(-500, 10_500, 300), [-100.0, 0.0]))
    high = low + np.concatenate((random.exponential(800, 300), [50.0, 10_000.0]))
    ids = random.integers(0, 60, 1_000)
    risk, per = np.round(random.uniform(0, 10_000, 1_000), -2), random.integers(0, 9, 1_000).astype(float)
    job = Job(rows, Rows(ids, risk, per), low, high)
    state = ClientState(rows, job.capacity, low, high)
    before = state.answers
    for call in job.calls(0, 1):
        (changed,) = state.apply(call.rows)
        assert wrong_answers(job, call.end, state.answers) == 0
        assert changed == (not np.array_equal(before, state.answers, equal_nan=True))
        before = state.answers
        if call.end == 1_000:
            break


def test_a_listener_notices_a_message_that_was_lost(job: Job) -> None:
    heard: list[int] = []
    seen: list[int] = []
    state = ClientState(job.start, job.capacity, job.low, job.high)
    listener = RowClient(state, lambda now, updates: heard.extend(updates.tolist()), seen.append)
    calls = [call for call, _ in zip(job.calls(0, 1), range(30), strict=False)]
    listener.take([packed(call) for call in calls[:20]])
    listener.take([packed(next(job.calls(20, 5)))])
    assert seen == [20, 25]
    assert set(heard) <= set(range(25))
    assert wrong_answers(job, 25, state.answers) == 0
    listener.take([packed(calls[26])])
    assert isinstance(listener.lost, LostUpdates)
    assert listener.at == 25


def figures_of(*lines: PeerLine, cells: tuple[Cell, ...]) -> PeerFigures:
    return PeerFigures(replace(TINY, cells=cells), {"redis": "not here"}, lines)


def line(peer: str, cell: str, cpu_us: float, **more: object) -> PeerLine:
    return PeerLine(peer=peer, cell=cell, round=0, cpu_us=cpu_us, **{"updates": 10, "updates_s": 1e6 / cpu_us, **more})  # type: ignore[arg-type]  # fields by name


def test_the_report_says_who_wins_where_and_judges_goals(tmp_path: Path) -> None:
    cells = (
        Cell("single", 10_000, 4, 1),
        Cell("single-2000", 10_000, 4, 1, 2_000),
        *(Cell(f"connections-{n}", 50 * n, n, 1) for n in (4, 16, 64)),
    )
    large = {"keeps": "written", "p50_ms": 1_234.0, "p99_ms": 12_345.0, "peak_mb": 12_345.0}
    lines = [
        line("hullcast-nodes", "single", 80.0, client_bytes=10.0, **large),
        line("nats", "single", 100.0, client_bytes=40.0),
        line("hullcast-nodes", "single-2000", 50.0, p50_ms=1.0, kept_up=False),
        *(
            line(peer, "single-2000", 100.0 + 9 * n, p50_ms=2.0 - n, kept_up=True)
            for n, peer in enumerate(("nats", "redis"))
        ),
    ]
    lines += [line("sqlite", "single", 1.0, wrong=3)]
    lines += [line("hullcast-nodes", f"connections-{n}", 80.0) for n in (4, 16, 64)]
    lines += [line("nats", f"connections-{n}", 10.0 * n) for n in (4, 16)]
    lines += [line("nats", "connections-64", 640.0, failed="too many")]
    found = figures_of(*lines, cells=cells)
    report = report_of(PEERS_BENCH, found.settings, peers=found)
    (nodes, redis, nats, close) = wins(found)
    assert nodes.startswith("hullcast-nodes wins: least CPU in single, connections-16; most updates/s in single")
    assert redis == "redis wins: lowest p50 in single-2000"  # a peer that did not keep up wins nothing
    assert close == "too close to say (the best two within 10%): least CPU in single-2000"
    assert nats == "nats wins: least CPU in connections-4; most updates/s in connections-4"
    assert crossovers(found)[0].startswith("hullcast-nodes uses less CPU than nats from about 8.0 connections on")
    assert {(goal.name, goal.passed) for goal in report.goals} == {
        ("hullcast-nodes: single rows, sustained", True),
        ("hullcast-nodes: single rows, CPU beside NATS", True),
        ("hullcast-nodes: 2,000 single rows/s, CPU beside NATS", False),  # not all was done with that
        ("hullcast-nodes: 2,000 single rows/s, p50", False),
    }
    text = shown(report, 80)
    for expected in (
        "0.8x",
        "hullcast-nodes*",
        "1.00 ms*",
        "written, but not synced: hullcast-nodes",
        "redis: skipped: not here",
        "nats failed: too many",
        "PASS",
    ):
        assert expected in text
    assert "…" not in text
    write_json(to_json(report), tmp_path / "peers.json")
    assert json.loads((tmp_path / "peers.json").read_text())["lines"][0]["peer"] == "hullcast-nodes"
    (picture,) = draw(report, tmp_path, "first")
    assert picture.name == "first.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    few = replace(found, settings=replace(found.settings, cells=cells[:2]))
    (alone,) = draw(replace(report, found={"peers": few}), tmp_path, "two")
    assert alone.read_bytes().startswith(b"\x89PNG")


def test_goals_with_long_names_fit_in_80_columns() -> None:
    line_of = Goal("200 connections, 50/s, CPU beside NATS", "<= 0.20x", "0.09x, 12 wrong", 0.0, "hullcast-nodes")
    text = StringIO()
    Console(file=text, width=80).print(goals_table([line_of]))
    assert "…" not in text.getvalue()
    assert "share" in text.getvalue()


def test_the_crossing_is_where_the_curve_stays_below() -> None:
    assert crossing([(1, 5.0), (4, 5.0)], [(1, 1.0), (4, 2.0)]) is None
    assert crossing([(1, 5.0), (4, 5.0)], [(1, 6.0), (4, 24.0)]) == pytest.approx(1.0)
    assert crossing([(1, 4.0), (16, 4.0)], [(1, 1.0), (16, 16.0)]) == pytest.approx(4.0)


def test_only_picks_peers_and_cells_by_name() -> None:
    assert chosen(QUICK_PEERS, []) == QUICK_PEERS
    some = chosen(QUICK_PEERS, ["redis", "ten"])
    assert (some.peers, [cell.name for cell in some.cells]) == (("redis",), ["ten"])
    with pytest.raises(UsageError, match="no such peer or cell"):
        chosen(QUICK_PEERS, ["mosquitto"])


def test_cells_have_names_of_their_own_and_goals_cells_to_be_judged_by() -> None:
    names = [cell.name for cell in FULL_PEERS.cells]
    assert len(set(names)) == len(names)
    assert {cell.name for cell in QUICK_PEERS.cells} <= set(names)
    assert sorted(names) == sorted(cell.name for some in groups(FULL_PEERS.cells) for cell in some)
    figures = {"p50_ms": 1.0, "p99_ms": 1.0, "client_bytes": 1.0}
    lines = [line(peer, cell.name, 1.0, **figures) for cell in QUICK_PEERS.cells for peer in QUICK_PEERS.peers]
    assert len(peer_goals(figures_of(*lines, cells=QUICK_PEERS.cells))) == 22


def test_an_interrupt_leaves_no_process_behind() -> None:
    words = ("bench", "peers", "--quick", "--only", "nats" if not PEERS["nats"]().missing() else "hullcast", "single")
    with subprocess.Popen(
        command(*words), env=environment(), process_group=0, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as bench:
        me = psutil.Process(bench.pid)
        while len(me.children(recursive=True)) < 6:  # publisher, four clients, a server
            assert bench.poll() is None, "it ended too soon"
            time.sleep(0.01)
        children = me.children(recursive=True)
        os.killpg(bench.pid, signal.SIGINT)  # as a terminal does
        _, said = bench.communicate(timeout=30)
    assert bench.returncode == 130, said.decode()
    assert b"Traceback" not in said
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert gone


def test_a_crossing_before_the_fewest_connections_is_not_named() -> None:
    cells = tuple(Cell(f"connections-{n}", 50 * n, n, 1) for n in (16, 200))
    lines = [line("hullcast", cell.name, 40.0) for cell in cells] + [line("nats", cell.name, 160.0) for cell in cells]
    (said,) = crossovers(figures_of(*lines, cells=cells))
    assert "with every number of connections measured, 16 and more" in said
