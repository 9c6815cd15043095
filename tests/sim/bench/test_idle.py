"""The measurement of idle clients: all are there, and each process is told."""

from __future__ import annotations

from hullcast.sim.bench.idle import CROWD, IDLE, PROCESSES, IdleLine, IdleSettings, idle_goals
from tests.sim.bench.reports import report_of, shown


def test_idle_clients_are_measured_where_they_were_sent() -> None:
    settings = IdleSettings(clients=(3 * PROCESSES + 1,), seconds=0.5, settle_s=0.1)
    (result,) = IDLE.measure(settings, look_s=0).found["idle"]
    assert result.clients == result.at_gateway == result.attempts == 3 * PROCESSES + 1
    assert result.interruptions == 0
    workers = {f"clients-{number + 1}" for number in range(PROCESSES)}
    assert result.cpu_percent.keys() == {"server", "root"} | workers
    assert result.connected_s > 0


def test_the_report_judges_a_gateway_alone_and_in_a_crowd() -> None:
    alone = IdleLine(0, 0.1, {"root": 0.5, "server": 1.5, "clients-1": 0.1}, 0, 0, 0)
    crowd = IdleLine(CROWD, 9.0, {"root": 4.0, "server": 0.5, "clients-1": 60.0}, CROWD - 5, CROWD + 7, 2)
    found = (alone, crowd)
    goals = tuple(idle_goals(found))
    assert [goal.passed for goal in goals] == [False, True, False]
    text = shown(report_of(IDLE, IdleSettings(), idle=found), 80)
    for expected in ("10,000", "10,007", "60.00", "1.50 %", "99.95%", "MISS", "PASS"):
        assert expected in text
