"""The budget of a frame at toy sizes: every process and stage is there, stages add up, and real functions are timed."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from hullcast.clients.cli import main as cli
from hullcast.network.wire import frames
from hullcast.sim.bench.frame.benchmark import BenchReport
from hullcast.sim.bench.frame.report import draw, show, to_json, write_json
from hullcast.sim.bench.hop.benchmark import (
    BUDGET,
    FULL_HOP,
    HOP,
    LOG,
    QUICK_HOP,
    SEND,
    WAKE,
    HopFigures,
    HopSettings,
    stage_lines,
    used,
)
from hullcast.sim.bench.hop.floor import Carried, Floor
from hullcast.sim.bench.hop.stages import PROCESSES, SERVER, STAGES, StageTimes, Stopwatch
from tests.support.documents import text_of

if TYPE_CHECKING:
    from pathlib import Path

TINY = HopSettings(
    frames=20,
    table_rows=300,
    subscriptions=200,
    messages=60,
    rounds=1,
    clients=1,
    gateways=1,
    live_frames_s=(200, 50),
    live_s=0.4,
)


@pytest.fixture(scope="module")
def report() -> BenchReport:
    ticks: list[str] = []
    report = HOP.measure(TINY, tick=ticks.append, look_s=0)
    assert len(ticks) == HOP.steps(TINY)
    return report


@pytest.fixture
def found(report: BenchReport) -> HopFigures:
    figures: HopFigures = report.found["hop"]
    return figures


def test_every_process_is_timed_with_the_stages_it_has(found: HopFigures) -> None:
    stages = {(one.process, one.rows): one for one in found.stages}
    assert stages.keys() == {(process, rows) for process in PROCESSES for rows in TINY.rows}
    for rows in TINY.rows:
        for process, names in {
            "publisher": {"decode", "session", "encode", "work", "rest"},
            "node, up": {"decode", "session", "encode", "rest"},
            "server": {"decode", "session", "routing", "encode", "work", "rest"},
            "node, down": {"decode", "session", "routing", "rest"},
            "subscriber": {"decode", "session", "work", "rest"},
        }.items():
            us = stages[process, rows].us
            assert {stage for stage in us if us[stage] > 0} >= names, (process, rows)
        assert all(one.received >= 1 for one in found.stages)
        assert stages["publisher", rows].sent == 1
    assert stages["server", 100].us["work"] > stages["server", 1].us["work"]
    assert stages["node, down", 100].bytes > 10 * stages["node, down", 1].bytes


def test_shares_add_up_and_each_line_has_its_verdict(found: HopFigures) -> None:
    for process in PROCESSES:
        lines = [line for line in found.lines if (line.process, line.rows) == (process, 1)]
        assert sum(line.share for line in lines) == pytest.approx(1, abs=0.01)
        assert all(line.kept == (line.us <= line.budget_us) for line in lines)
        assert {line.stage for line in lines if line.floor_us is not None} >= {"wake-up"}


def test_budgets_are_multiples_of_what_the_machine_takes() -> None:
    times = StageTimes(SERVER, 1, {"decode": 10.0, "rest": 20.0}, sent=2, received=1, bytes=80, blocks=0)
    floor = Floor({1: Carried(80, 30.0, 40.0, 33.0, 60.0)}, 5.0, 200.0, 50.0, 300.0, 100.0)
    lines = {line.stage: line for line in stage_lines(times, floor)}
    assert lines["decode"].budget_us == pytest.approx(BUDGET[SERVER]["decode"][0] * 70.0)
    assert (lines["send"].us, lines["send"].floor_us, lines["send"].budget_us) == (66.0, 60.0, SEND * 60.0)
    assert (lines["wake-up"].us, lines["wake-up"].budget_us) == (60.0, WAKE * 40.0)
    assert (lines["log"].floor_us, lines["log"].budget_us) == (60.0, LOG * 60.0)
    faster = replace(floor, carried={1: Carried(80, 3.0, 4.0, 33.0, 60.0)})
    assert next(line for line in stage_lines(times, faster) if line.stage == "decode").kept is False


def test_the_machine_is_measured_with_messages_of_the_same_bytes(found: HopFigures) -> None:
    floor = found.floor
    # the mean of a stage need not be whole: numbers in its frames grow
    sizes = {one.rows: round(one.bytes) for one in found.stages if one.process == "node, down"}
    assert {rows: one.bytes for rows, one in floor.carried.items()} == sizes
    assert all(one.bare_receive_us > 0 and one.receive_us > 0 for one in floor.carried.values())
    assert floor.log_us > 0
    assert floor.sync_us > 0


def test_real_processes_are_counted(found: HopFigures) -> None:
    assert [load.rows for load in found.live] == list(TINY.rows)
    for load in found.live:
        assert load.used.keys() == {"server", "root", "gateway-1", "client-1", "publisher"}
        assert load.used["server"].wakes > 0
        assert sum(one.us for one in load.used.values()) > 0


def test_the_report_is_shown_written_and_drawn(report: BenchReport, tmp_path: Path) -> None:
    text = StringIO()
    show(report, Console(file=text, width=80))
    for expected in ("bare ZeroMQ, send", "node, down", "wake-up", "budget", "fdatasync", "frames/s of 100 rows"):
        assert expected in text.getvalue()
    assert "…" not in text.getvalue()  # all fits in 80 columns
    write_json(to_json(report), tmp_path / "hop.json")
    read = json.loads((tmp_path / "hop.json").read_text())
    assert len(read["lines"]) == len(report.found["hop"].lines)
    assert {"user_us", "system_us", "loop_us", "wakes"} == read["live"][0]["used"]["server"].keys()
    (picture,) = draw(report, tmp_path, "second")
    assert picture.name == "second.png"  # a run does not overwrite the picture of another
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_stage_inside_another_counts_once_and_functions_come_back() -> None:
    watch = Stopwatch()
    calls: list[int] = []

    def spend(rounds: int) -> int:
        return sum(range(rounds))

    inner = watch.timed("inner", spend)
    outer = watch.timed("outer", lambda: [inner(20_000) for _ in range(50)])
    outer()
    assert watch.ns["inner"] > watch.ns["outer"] > 0
    before = frames.encode
    with watch.installed():
        assert frames.encode is not before
        watch.ns.clear()
        frames.decode(frames.encode(frames.Advance(1)))
        calls.append(watch.ns["encode"] * watch.ns["decode"])
    assert frames.encode is before
    assert calls[0] > 0
    assert "encode" in STAGES


def test_this_process_has_used_something() -> None:
    before = used()
    assert before.us > 0
    assert used().wakes >= before.wakes


def test_the_quick_form_measures_the_same_system() -> None:
    for name in ("rows", "table_rows", "subscriptions", "clients", "gateways", "rate", "live_frames_s"):
        assert getattr(FULL_HOP, name) == getattr(QUICK_HOP, name)


def test_the_command_takes_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "hop", "--help"])
    said = capsys.readouterr().out
    assert "--quick" in said
    assert "--json FILE" in said


def test_the_budget_stands_in_the_document() -> None:
    text = text_of("HOP.md")
    head, _, *lines = (line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|"))
    stages = [cell.strip() for cell in head[1:]]
    written = {
        name.strip(): {
            stage: tuple(float(hops) for hops in cell.split("/"))
            for stage, cell in zip(stages, cells, strict=True)
            if cell.strip()
        }
        for name, *cells in lines[: len(PROCESSES)]
    }
    assert written == BUDGET
    assert f"{SEND} times as long as with bare ZeroMQ" in " ".join(text.split())
    assert f"{LOG} times its sync" in " ".join(text.split())
    assert WAKE == SEND
