"""The measurement of idle clients: all are there, and each process is told."""

from __future__ import annotations

from hullcast.sim.bench.idle import PROCESSES, idle


def test_idle_clients_are_measured_where_they_were_sent() -> None:
    result = idle(3 * PROCESSES + 1, seconds=0.5, settle_s=0.1)
    assert result["clients"] == result["at_gateway"] == result["attempts"] == 3 * PROCESSES + 1
    assert result["interruptions"] == 0
    workers = {f"clients-{number + 1}" for number in range(PROCESSES)}
    assert result["cpu_percent"].keys() == {"server", "root"} | workers
    assert result["connected_s"] > 0
