"""Table 5.1 as a trace: it is the workload, and the share of ignorable events is the one asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hullcast.sim.traces.checking import classify
from hullcast.sim.traces.synthetic import table51_trace
from hullcast.sim.traces.table51 import DOMAIN, Mix, Workload
from hullcast.sim.traces.trace import read_info, read_parts

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_the_workload_row_by_row(tmp_path: Path) -> None:
    mix = Mix(spikes=0.1, inserts=0.1, deletes=0.1, step=200.0)
    info = table51_trace(tmp_path, rows=50, updates=400, mix=mix, root=5)
    assert info == read_info(tmp_path)
    load = Workload(50, root=5, mix=mix)
    changes = load.changes(400)
    start, events = read_parts(tmp_path)
    assert start.column("seq").to_pylist() == list(range(-50, 0))
    assert start.column("y").to_pylist() == load.rows.y.tolist()
    assert events.column("seq").to_pylist() == list(range(400))
    assert events.column("key").to_pylist() == list(map(str, changes.ids.tolist()))
    for name, column in (("x", changes.x), ("y", changes.y)):
        found = events.column(name).to_pylist()
        assert [value is None for value in found] == changes.deletes.tolist()
        assert [value for value in found if value is not None] == column[~changes.deletes].tolist()
    assert changes.deletes.any()


@pytest.mark.parametrize("share", [0.0, 0.5, 0.98])
def test_the_share_of_ignorable_events_is_a_knob(tmp_path: Path, share: float) -> None:
    table51_trace(tmp_path, rows=500, updates=4_000, mix=Mix(spikes=0.0, ignorable=share), root=1)
    classes = classify(tmp_path)
    assert classes.events == 4_000
    assert classes.share == pytest.approx(share, abs=0.02)


def test_spikes_are_as_many_as_asked_for(tmp_path: Path) -> None:
    table51_trace(tmp_path, rows=500, updates=4_000, mix=Mix(spikes=0.2), root=1)
    _, events = read_parts(tmp_path)
    bottom = int(np.sum(events.column("y").to_numpy() == 0.0))
    assert bottom == pytest.approx(4_000 * 0.2 / 1.2, rel=0.1)  # a spike is two of the updates
    assert read_info(tmp_path).domain == (0.0, DOMAIN)
