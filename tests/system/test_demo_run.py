"""`hullcast demo`, as a user runs it: real processes, a gateway killed, everything checked, nothing left."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hullcast.clients.processes.child import command, environment
from tests.support.processes import LIMIT_S, hull, marked, running, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = ("--rows", "80", "--updates", "500", "--subscriptions", "600")


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Neither processes nor folders."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield from marked(monkeypatch)


def test_nobody_misses_anything_though_a_gateway_is_killed(tmp_path: Path) -> None:
    done = hull("demo", "--seconds", "2", "--json", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    figures: dict[str, Any] = json.loads(line)
    verdict = figures["verdict"]
    assert (figures["right"], verdict["wrong"], verdict["faults"]) == (True, 0, [])
    assert verdict["final"] == figures["subscriptions"] == 600 + 10
    assert verdict["rebuilt"] >= 600 + 10 * verdict["moments"] - verdict["unseen"]
    assert 0 < figures["updates"] <= 500
    assert set(figures["moved_ms"]) == {"publisher", *(f"client-{number}" for number in range(1, 25, 4))}
    traffic = figures["traffic"]
    assert traffic["content"]["size_bytes"] > traffic["hullcast"]["size_bytes"] > 0
    assert traffic["unicast"]["size_bytes"] > 0
    assert figures["cpu_s"] > 0
    assert traffic["updates"] == figures["updates"]
    assert list(tmp_path.iterdir()) == []


@contextmanager
def demo(until: str) -> Iterator[subprocess.Popen[str]]:
    """It, running, up to the moment when it says a certain thing."""
    process = subprocess.Popen(
        command("demo", "--seconds", "60", *SMALL),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert any(until in line for line in iter(process.stdout.readline, ""))
        try:
            yield process
        finally:
            process.kill()  # only if the test failed


def test_it_ends_cleanly_when_asked_to(tmp_path: Path) -> None:
    with demo(until="starting") as process:
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert not re.search("verdict|Traceback", said)
    assert running() == []
    assert list(tmp_path.iterdir()) == []


async def test_no_process_outlives_it_when_it_is_killed() -> None:
    with demo(until="are up") as process:
        assert len(running()) == 10  # itself, server, root, four gateways, two with clients, the publisher
        process.kill()
        await wait_until(lambda: running() == [])
