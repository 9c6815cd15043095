"""When a process beside the server is given up; the time is passed by hand, the process is real."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from hullcast.broker.processes.heartbeat import PAUSE_S, STOPPED_S, Heartbeat, is_stopped

SILENCE_S = 30.0
STEP_S = 0.125  # no rounding


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as started:
        yield started
        started.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def looks(heartbeat: Heartbeat, now: float, until: float) -> tuple[float, str | None]:
    """Look often, until it is lost, or until a time."""
    while now < until:
        now += STEP_S
        why = heartbeat.lost(now, SILENCE_S)
        if why is not None:
            return now, why
    return now, None


def test_a_process_that_is_stopped_is_given_up_soon(process: subprocess.Popen[bytes]) -> None:
    heartbeat = Heartbeat(process.pid, 0.0)
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(process.pid))
    now, why = looks(heartbeat, 0.0, 0.5 * STOPPED_S)
    assert why is None
    process.send_signal(signal.SIGCONT)  # in time
    wait_until(lambda: not is_stopped(process.pid))
    now, why = looks(heartbeat, now, 2 * STOPPED_S)
    assert why is None
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(process.pid))
    ended, why = looks(heartbeat, now, now + SILENCE_S)
    assert STOPPED_S <= ended - now < STOPPED_S + 3 * STEP_S
    assert why == f"it was stopped (SIGSTOP) for {STOPPED_S:.1f} s"
    process.kill()
    assert process.wait() == -signal.SIGKILL, "who waits for its end still hears of it"
    assert not is_stopped(process.pid)


def test_one_that_is_busy_has_longer_and_every_word_counts(process: subprocess.Popen[bytes]) -> None:
    heartbeat = Heartbeat(process.pid, 0.0)
    now, why = looks(heartbeat, 0.0, 0.9 * SILENCE_S)
    assert why is None
    heartbeat.heard(now)
    ended, why = looks(heartbeat, now, now + 2 * SILENCE_S)
    assert SILENCE_S < ended - now < SILENCE_S + 3 * STEP_S
    assert why is not None
    assert why.startswith("it said nothing for 30.")


def test_the_time_in_which_the_server_itself_stood_still_does_not_count(process: subprocess.Popen[bytes]) -> None:
    heartbeat = Heartbeat(process.pid, 0.0)
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(process.pid))
    assert heartbeat.lost(STEP_S, SILENCE_S) is None
    assert heartbeat.lost(3600.0, SILENCE_S) is None  # both were stopped, or the host slept
    assert heartbeat.lost(3600.0 + STEP_S, SILENCE_S) is None
    assert PAUSE_S < STOPPED_S
