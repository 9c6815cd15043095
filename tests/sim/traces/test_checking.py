"""A trace is whole, or is refused with what is missing."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.traces import trace
from hullcast.sim.traces.checking import check_whole
from hullcast.sim.traces.synthetic import table51_trace
from hullcast.sim.traces.trace import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path, partitioning=None)), path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda files: files[0].unlink(), "is incomplete: .*00000.parquet is missing"),
        (lambda files: files[3].unlink(), "is incomplete: .*00003.parquet is missing"),
        (lambda files: shutil.rmtree(files[0].parent), "is missing"),
        (
            lambda files: _rewritten(files[3], lambda table: table.slice(0, 2)),
            "2 rows numbered 3 to 4, but 3 to 5 come",
        ),
        (lambda files: _rewritten(files[3], lambda table: table.take([0, 2])), "2 rows numbered 3 to 5, but 3 to 5"),
        (lambda files: files[4].replace(files[3]), "3 rows numbered 6 to 8, but 3 to 5 come next"),
        (lambda files: _rewritten(files[3], lambda table: table.drop(["at"])), "has no column at"),
        (lambda files: files[3].write_bytes(b"PAR1 no more"), "cannot read"),
    ],
)
def test_a_trace_that_is_not_whole_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[list[Path]], object], message: str
) -> None:
    monkeypatch.setattr(trace, "PART_EVENTS", 3)
    info = table51_trace(tmp_path, rows=4, updates=10)
    check_whole(tmp_path, info)
    damage([part.place.local for part in parts_of(tmp_path)])
    with pytest.raises(UsageError, match=message):
        check_whole(tmp_path, info)


def test_a_list_of_files_that_lacks_some_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "PART_EVENTS", 3)
    info = table51_trace(tmp_path, rows=4, updates=10)
    parts = parts_of(tmp_path)
    for left, message in ((parts[:-1], "holds 9 events, its trace.json says 10"), (parts[2:], "but -4 to 2 come next")):
        trace.write_info(info, tmp_path, left)
        with pytest.raises(UsageError, match=message):
            check_whole(tmp_path, info)
