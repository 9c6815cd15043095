"""Steps appear whole or not at all; a run goes on where it was broken off, and only with the same settings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hullcast.network.wire.errors import DirectoryInUse, UsageError
from hullcast.sim.experiments.steps import RunFolder, file_mark, fingerprint
from hullcast.sim.spark.storage import Place
from hullcast.sim.traces.synthetic import table51_trace
from tests.support.processes import limited_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTINGS = {"nodes": 20, "shares": (0.0, 0.5)}


@pytest.fixture(params=["here", "elsewhere"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A folder that is not there yet: on this machine, or where only Spark reaches."""
    elsewhere: Place = request.getfixturevalue("elsewhere") if request.param == "elsewhere" else Place(tmp_path / "out")
    return elsewhere


def put(text: str, made: list[str] | None = None) -> Callable[[Place], None]:
    def make(path: Place) -> None:
        if made is not None:
            made.append(text)
        (path / "file").write_text(text)

    return make


def test_a_finished_step_is_not_made_again(out: Place) -> None:
    made: list[str] = []
    for turn in range(2):
        with RunFolder(out, SETTINGS, resume=turn > 0) as folder:
            place = folder.step("one", {"x": 1}, put("first", made))
            assert (place / "file").read_text() == "first"
            folder.step("one", {"x": 1}, put("first", made))
            assert folder.reused == ["one", "one"] * turn, "of an earlier run only"
    assert made == ["first"]


def test_a_step_with_other_settings_is_made_anew(out: Place) -> None:
    with RunFolder(out, SETTINGS, resume=False) as folder:
        folder.step("one", {"x": 1}, put("first"))
        assert (folder.step("one", {"x": 2}, put("second")) / "file").read_text() == "second"
        assert folder.reused == []


def test_a_step_that_fails_in_the_middle_leaves_nothing_that_looks_finished(out: Place) -> None:
    def fail(path: Place) -> None:
        (path / "file").write_text("half")
        raise RuntimeError("the power went")

    with RunFolder(out, SETTINGS, resume=False) as folder:
        folder.step("zero", {}, put("whole"))
        with pytest.raises(RuntimeError):
            folder.step("one", {}, fail)
        assert not (out / "steps" / "one").exists(), "nothing is left, to look at or to pay for"
    with RunFolder(out, SETTINGS, resume=True) as folder:
        assert [item.name for item in (out / "steps").entries()] == ["zero"], "what was left is swept away"
        assert (folder.step("one", {}, put("whole")) / "file").read_text() == "whole"


def test_a_run_killed_in_the_middle_of_a_step_goes_on_with_that_step(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, signal
from hullcast.sim.experiments.steps import RunFolder
def half(path):
    (path / "file").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
with RunFolder(pathlib.Path({str(tmp_path)!r}), {SETTINGS!r}, resume=False) as folder:
    folder.step("one", {{}}, lambda path: (path / "file").write_text("one"))
    folder.step("two", {{}}, half)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGKILL
    made: list[str] = []
    with RunFolder(tmp_path, SETTINGS, resume=True) as folder:
        assert (folder.step("one", {}, put("again", made)) / "file").read_text() == "one"
        assert (folder.step("two", {}, put("two", made)) / "file").read_text() == "two"
    assert made == ["two"]


def test_a_folder_with_something_in_it_is_refused_without_resume(out: Place) -> None:
    (out / "thesis.tex").write_text("do not lose this")
    with (
        pytest.raises(UsageError, match="not empty; continue the run in it with --resume"),
        RunFolder(out, SETTINGS, resume=False),
    ):
        pass


def test_resume_refuses_a_folder_that_no_run_was_begun_in(out: Place) -> None:
    (out / "thesis.tex").write_text("do not lose this")
    with pytest.raises(UsageError, match=r"no run\.json"), RunFolder(out, SETTINGS, resume=True):
        pass
    assert (out / "thesis.tex").exists()


def test_resume_refuses_other_settings_and_says_which(out: Place) -> None:
    with RunFolder(out, SETTINGS, resume=False) as folder:
        folder.step("one", {}, put("one"))
    other = {**SETTINGS, "nodes": 30}
    with pytest.raises(UsageError, match=r"nodes 20 \(now 30\)"), RunFolder(out, other, resume=True):
        pass


def test_resume_of_nothing_begins(out: Place) -> None:
    with RunFolder(out, SETTINGS, resume=True) as folder:
        assert (folder.step("one", {}, put("one")) / "file").read_text() == "one"


def test_a_run_that_finished_no_step_leaves_nothing_behind(out: Place) -> None:
    made, given = out / "made", out / "given"
    given.make()
    for out in (made, given):
        with pytest.raises(RuntimeError), RunFolder(out, SETTINGS, resume=False) as folder:
            folder.step("one", {}, _fail)
    assert not made.exists()
    assert given.is_folder(), "it was there before us"
    for out in (made, given):
        with RunFolder(out, {"nodes": 30}, resume=False) as folder:
            folder.step("one", {}, put("one"))


def _fail(path: Place) -> None:
    raise RuntimeError(f"no {path}")


def test_a_run_killed_in_its_first_step_does_not_keep_others_from_the_folder(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, signal
from hullcast.sim.experiments.steps import RunFolder
with RunFolder(pathlib.Path({str(tmp_path)!r}), {SETTINGS!r}, resume=False) as folder:
    folder.step("one", {{}}, lambda path: os.kill(os.getpid(), signal.SIGKILL))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    with RunFolder(tmp_path, {"nodes": 30}, resume=False) as folder:
        assert (folder.step("one", {}, put("whole")) / "file").read_text() == "whole"


@pytest.mark.parametrize(("file", "text"), [("file", "fir"), ("file", None), ("step.json", "[]"), ("step.json", "{")])
def test_a_damaged_step_is_made_again(tmp_path: Path, file: str, text: str | None) -> None:
    with RunFolder(tmp_path, SETTINGS, resume=False) as folder:
        damaged = folder.step("one", {}, put("first")) / file
    if text is None:
        damaged.remove()
    else:
        damaged.write_text(text)
    with RunFolder(tmp_path, SETTINGS, resume=True) as folder:
        assert (folder.step("one", {}, put("again")) / "file").read_text() == "again"
        assert folder.reused == []


@pytest.mark.parametrize("text", ["[]", "{", '{"nodes": 20}'])
def test_a_damaged_run_is_refused_and_it_is_said_what_to_remove(tmp_path: Path, text: str) -> None:
    with RunFolder(tmp_path / "out", SETTINGS, resume=False) as folder:
        folder.step("one", {}, put("first"))
    (tmp_path / "out" / "run.json").write_text(text)
    with (
        pytest.raises(UsageError, match=r"run\.json is damaged or does not belong to a run; remove .*out "),
        RunFolder(tmp_path / "out", SETTINGS, resume=True),
    ):
        pass


def test_two_runs_cannot_have_one_folder(tmp_path: Path) -> None:
    with (
        RunFolder(tmp_path, SETTINGS, resume=False),
        pytest.raises(DirectoryInUse),
        RunFolder(tmp_path, SETTINGS, resume=True),
    ):
        pass


def test_reports_and_pictures_are_beside_the_steps_wherever_those_are(out: Place) -> None:
    with RunFolder(out, SETTINGS, resume=False) as folder:
        folder.step("one", {}, put("one"))
        (folder.folder / "report.md").write_text("found")
    assert (out / "report.md").read_text() == "found"
    assert {item.name for item in out.entries()} - {"lock"} == {"report.md", "run.json", "steps"}
    assert out.is_local == folder.folder.exists(), "a folder of ours for what is elsewhere goes away"


def test_two_runs_cannot_have_one_folder_elsewhere(elsewhere: Place) -> None:
    with RunFolder(elsewhere, SETTINGS, resume=False) as folder:
        folder.step("one", {}, put("one"))
        lock = elsewhere / "lock"
        told = json.loads(lock.read_text())
        with subprocess.Popen(["sleep", "60"]) as other:
            lock.write_text(json.dumps({**told, "process": other.pid}))
            with (
                pytest.raises(UsageError, match=rf"in use by process {other.pid} on .*; if .* ended, remove {lock}"),
                RunFolder(elsewhere, SETTINGS, resume=True),
            ):
                pass
            other.kill()
        lock.write_text(json.dumps({**told, "host": "far"}))
        with pytest.raises(UsageError, match="on far since"), RunFolder(elsewhere, SETTINGS, resume=True):
            pass
    lock.write_text(json.dumps({**told, "process": other.pid}))
    with RunFolder(elsewhere, SETTINGS, resume=True) as folder:
        assert folder.step("one", {}, put("again")).exists(), "a lock of a process of this machine that is gone"
    assert folder.reused == ["one"]
    assert not lock.exists()


def test_a_full_disk_is_told_in_a_line_and_leaves_no_half_of_anything(tmp_path: Path) -> None:
    out, trace = tmp_path / "out", tmp_path / "trace"
    with RunFolder(out, {}, resume=False) as folder, limited_files(3_000):
        folder.step("one", {}, lambda path: (path / "file").write_text("one"))
        with pytest.raises(UsageError, match=r"cannot write .*/two/file: File too large"):
            folder.step("two", {}, lambda path: (path / "file").write_bytes(bytes(5_000)))
    assert [path.name for path in (out / "steps").iterdir()] == ["one"]
    with limited_files(3_000), pytest.raises(UsageError, match=r"cannot write .*\.parquet: File too large"):
        table51_trace(trace, rows=500, updates=500)
    assert not trace.exists()
    with pytest.raises(UsageError, match=r"file is a file, not a folder"):
        RunFolder(out / "steps" / "one" / "file", {}, resume=False).__enter__()


def test_fingerprints_do_not_depend_on_the_order_of_names() -> None:
    assert fingerprint({"a": 1, "b": (2, 3)}) == fingerprint({"b": [2, 3], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})


def test_two_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "net.txt"
    path.write_text("0 1")
    first = file_mark(path)
    path.write_text("0 2")
    assert file_mark(path) != first
    assert file_mark(None) is None
    with pytest.raises(UsageError, match=r"nowhere\.txt cannot be read"):
        file_mark(tmp_path / "nowhere.txt")
