"""Progress where there is no terminal: plain lines, often enough to show life and seldom enough to be read."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest
from rich.console import Console

from hullcast.clients.cli.commands import progress
from hullcast.clients.cli.commands.progress import LEAST_S, MOST_S, Lines, bar, steps_bar


def test_a_new_step_is_told_soon_and_an_old_one_now_and_then() -> None:
    lines = Lines(4, now=100.0)
    assert lines.line(200.0) == "", "nothing has begun"
    lines = Lines(4, now=100.0)
    lines.begin("network")
    assert lines.line(100.0 + LEAST_S / 2) == "", "work that is done at once says nothing"
    assert lines.line(102.0) == "network (step 1 of 4), 2 s\n"
    lines.begin("trace")
    lines.begin("replay")
    assert lines.line(102.5) == ""
    lines.tasks(12, 64)
    assert lines.line(104.0) == "replay (step 3 of 4): 12 of 64 tasks, 4 s\n", "short steps are passed over"
    lines.tasks(20, 64)
    assert lines.line(104.0 + MOST_S / 2) == ""
    assert lines.line(104.0 + MOST_S) == "replay (step 3 of 4): 20 of 64 tasks, 14 s\n"


def test_steps_of_unknown_number_are_told_without_one() -> None:
    lines = Lines(None, now=0.0)
    lines.begin("starting Spark")
    assert lines.line(5.0) == "starting Spark, 5 s\n"


def test_a_file_gets_lines_on_stderr_and_nothing_of_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LEAST_S", 0.0)
    out, lines = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", lines)  # capsys would lose what another thread writes while it is read
    with steps_bar(Console(file=out), 3) as steps:
        deadline = time.monotonic() + 60
        steps.begin("replay")
        while "replay" not in lines.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.001)
    told = lines.getvalue()
    assert told.startswith("replay (step 1 of 3), 0 s\n")
    assert "\r" not in told
    assert out.getvalue() == "", "results stay apart from progress"
    assert not [thread for thread in threading.enumerate() if thread.name == "hullcast-progress"]


def test_a_terminal_gets_a_bar_and_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    with bar(Console(file=out, force_terminal=True, width=80), 2) as tick:
        tick("first")
        tick("second")
    assert "second" in out.getvalue()
    assert capsys.readouterr().err == ""
