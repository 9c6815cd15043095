"""Folders of traces: replaced only when the new trace is whole, only by force, and never anything but a trace."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.traces.checking import check_whole
from hullcast.sim.traces.folders import UNFINISHED, check_folder, writing
from hullcast.sim.traces.synthetic import table51_trace
from hullcast.sim.traces.trace import files_of, read_info, read_parts

if TYPE_CHECKING:
    from pathlib import Path


def made(folder: Path, updates: int = 7, *, force: bool = False) -> int:
    return table51_trace(folder, rows=5, updates=updates, force=force).events


def test_only_traces_are_replaced_and_only_by_force(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "trace"
    made(folder)
    with pytest.raises(UsageError, match="not empty"):
        made(folder, 8)
    assert read_info(folder).events == 7
    made(folder, 8, force=True)
    assert read_info(folder).events == 8
    assert sorted(path.name for path in folder.iterdir()) == ["events", "trace.json"]


@pytest.mark.parametrize(
    "name",
    [
        "thesis.tex",
        "events/thesis.tex",
        "events/mine/x.parquet",
        "events/_temporary/0/thesis.tex",
        "refused/thesis.tex",
        "refused/mine/x.parquet",
        ".unfinished/thesis.tex",
    ],
)
def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path: Path, name: str) -> None:
    made(tmp_path)
    strange = tmp_path / name
    strange.parent.mkdir(parents=True, exist_ok=True)
    strange.write_text("years of work")
    with pytest.raises(UsageError, match="more than a trace"):
        made(tmp_path, force=True)
    assert strange.read_text() == "years of work"
    assert read_info(tmp_path).events == 7


def test_what_spark_leaves_in_a_trace_is_of_the_trace(tmp_path: Path) -> None:
    made(tmp_path)
    for name in ("_SUCCESS", "._SUCCESS.crc", ".x.parquet.crc", "_temporary/0/_temporary/part=1/y.parquet"):
        (tmp_path / "events" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "events" / name).write_text("")
    assert made(tmp_path, 8, force=True) == 8
    assert sorted(path.name for path in (tmp_path / "events").iterdir()) == sorted(files_of(tmp_path)["events"])


def test_folders_that_only_look_like_traces_are_left_alone(tmp_path: Path) -> None:
    rows = tmp_path / "mine" / "events" / "x.parquet"
    rows.parent.mkdir(parents=True)
    rows.write_text("somebody's table")
    with pytest.raises(UsageError, match=r"nothing else: .* has no trace\.json"):
        made(tmp_path / "mine", force=True)
    (tmp_path / "linked").mkdir()
    made(tmp_path / "linked" / "trace")
    (tmp_path / "linked" / "trace" / "refused").symlink_to(tmp_path / "mine")
    with pytest.raises(UsageError, match=r"more than a trace \(refused\)"):
        made(tmp_path / "linked" / "trace", force=True)
    assert rows.read_text() == "somebody's table"


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    made(tmp_path / "trace")
    for folder, force in ((tmp_path / "trace", True), (tmp_path / "new" / "one", False)):
        with pytest.raises(ZeroDivisionError), writing(folder, force=force) as place:  # noqa: PT012 - the block fails
            (place / "events" / "part-7.parquet").write_bytes(b"the first of many")
            (place / "refused" / "part-7.parquet").write_bytes(b"and of others")
            raise ZeroDivisionError
    assert read_info(tmp_path / "trace").events == 7
    check_whole(tmp_path / "trace", read_info(tmp_path / "trace"))
    assert sorted(path.name for path in (tmp_path / "trace").iterdir()) == ["events", "trace.json"]
    assert {path.name for path in (tmp_path / "trace" / "events").iterdir()} == files_of(tmp_path / "trace")["events"]
    assert not (tmp_path / "new" / "one").exists()


def killed_while(folder: Path, step: str) -> None:
    """Replace the trace in a folder, and die as a process does that is killed after that step."""
    before = sorted(folder.rglob("*"))
    program = f"""
import os
from hullcast.sim.spark.storage import Place
from hullcast.sim.traces.synthetic import table51_trace
write = Place.write_bytes
def dying(self, content):
    write(self, content)
    if self.name.endswith({step!r}):
        os._exit(9)
Place.write_bytes = dying
table51_trace({str(folder)!r}, rows=3, updates=11, force=True)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    assert sorted(folder.rglob("*")) != before


@pytest.mark.parametrize(
    ("step", "events"), [("unfinished", 7), ("00002.parquet", 7), ("00003.parquet", 7), ("trace.json", 11)]
)
def test_a_killed_run_leaves_the_old_trace_or_the_new_one(tmp_path: Path, step: str, events: int) -> None:
    made(tmp_path)
    killed_while(tmp_path, step)
    info = read_info(tmp_path)
    assert info.events == events
    check_whole(tmp_path, info)
    assert sum(table.num_rows for table in read_parts(tmp_path)) == info.events + info.start
    made(tmp_path, 9, force=True)
    assert read_info(tmp_path).events == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events", "trace.json"]
    assert {path.name for path in (tmp_path / "events").iterdir()} == files_of(tmp_path)["events"]


def test_what_a_killed_run_left_without_a_trace_is_replaced_by_force(tmp_path: Path) -> None:
    (tmp_path / UNFINISHED).write_text("")
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "00000.parquet").write_text("half of one")
    made(tmp_path, 9, force=True)
    assert read_info(tmp_path).events == 9
    assert sorted(path.name for path in (tmp_path / "events").iterdir()) == ["00001.parquet", "00002.parquet"]


def test_places_where_no_folder_can_be_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "file/sub", "file/sub/more"):
        with pytest.raises(UsageError, match="file is a file, not a folder"):
            check_folder(tmp_path / name)
    with pytest.raises(UsageError, match="cannot write to /proc/nope"):
        made(type(tmp_path)("/proc/nope"))
