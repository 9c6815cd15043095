"""The measurement of idle clients: all are there, and each process is told."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from hullcast.sim.bench.idle import CROWD, PROCESSES, IdleLine, IdleReport, _goals, idle, show_idle


def test_idle_clients_are_measured_where_they_were_sent() -> None:
    result = idle(3 * PROCESSES + 1, seconds=0.5, settle_s=0.1)
    assert result.clients == result.at_gateway == result.attempts == 3 * PROCESSES + 1
    assert result.interruptions == 0
    workers = {f"clients-{number + 1}" for number in range(PROCESSES)}
    assert result.cpu_percent.keys() == {"server", "root"} | workers
    assert result.connected_s > 0


def test_the_report_judges_a_gateway_alone_and_in_a_crowd() -> None:
    alone = IdleLine(0, 0.1, {"root": 0.5, "server": 1.5, "clients-1": 0.1}, 0, 0, 0)
    crowd = IdleLine(CROWD, 9.0, {"root": 4.0, "server": 0.5, "clients-1": 60.0}, CROWD - 5, CROWD + 7, 2)
    goals = _goals([alone, crowd])
    assert [goal.passed for goal in goals] == [False, True, False]
    text = StringIO()
    show_idle(IdleReport((alone, crowd), tuple(goals)), Console(file=text, width=80))
    for expected in ("10,000", "10,007", "60.00", "1.50 %", "99.95%", "MISS", "PASS"):
        assert expected in text.getvalue()
