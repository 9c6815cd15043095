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

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    file = path / "events.parquet"
    pq.write_table(change(pq.read_table(file, partitioning=None)), file)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda events: shutil.rmtree(events / "part=start"), "but -4 comes next"),
        (lambda events: shutil.rmtree(events / "part=0001"), "part=0002 has 3 rows numbered 6 to 8, but 3 comes next"),
        (
            lambda events: shutil.rmtree(events / "part=0003"),
            "9 events and 4 rows of the start, .* says 10 and 4",
        ),
        (shutil.rmtree, "holds 0 events and 0 rows"),
        (lambda events: _rewritten(events / "part=0001", lambda table: table.slice(0, 2)), "but 5 comes next"),
        (lambda events: _rewritten(events / "part=0001", lambda table: table.take([0, 2])), "2 rows numbered 3 to 5"),
        (lambda events: _rewritten(events / "part=0001", lambda table: table.drop(["at"])), "has no column at"),
        (lambda events: (events / "part=0001" / "events.parquet").write_bytes(b"PAR1 no more"), "cannot read"),
    ],
)
def test_a_trace_that_is_not_whole_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object], message: str
) -> None:
    monkeypatch.setattr(trace, "PART_EVENTS", 3)
    info = table51_trace(tmp_path, rows=4, updates=10)
    check_whole(tmp_path, info)
    damage(tmp_path / "events")
    with pytest.raises(UsageError, match=message):
        check_whole(tmp_path, info)
