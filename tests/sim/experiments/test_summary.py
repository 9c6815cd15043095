"""The summary of a per-event table, against the same in plain Python."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow has no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.traffic.charts import _handles, draw_summary
from hullcast.sim.experiments.traffic.summary import (
    Stress,
    TrafficLine,
    read_lines,
    read_stress,
    summarize,
    verified,
    write_lines,
    write_stress,
)
from hullcast.sim.seeds import generator
from hullcast.sim.traffic.chunk import APPROACHES
from hullcast.sim.traffic.replay import sums_of
from tests.sim.experiments.builders import a_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = "seq long, placement string, approach string, messages long, bytes long, byte_links long, node_stress long, "
SCHEMA += "link_stress long, rectangles int, affected long"


def a_table(count: int) -> list[tuple[Any, ...]]:
    random = generator(3, "summary")
    rows = []
    for seq in range(count):
        rectangles, affected = int(random.integers(3)), int(random.integers(50))
        for approach in ("CN", "S-CN"):
            numbers = [int(random.integers(9)) for _ in range(5)]
            rows.append((seq, "can", approach, *numbers, rectangles, affected))
    return rows


def grouped(rows: list[tuple[Any, ...]]) -> pa.Table:
    """What `sums_of` gives, in plain Python."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for seq, placement, approach, messages, bytes_, byte_links, node, link, rectangles, affected in rows:
        sums = found.setdefault((placement, approach, rectangles == 0, node, link), [0] * 7)
        for place, value in enumerate((1, seq, messages, bytes_, byte_links, rectangles, affected)):
            sums[place] += value
    names = ["placement", "approach", "ignorable", "node_stress", "link_stress", "events", "seq"]
    names += ["messages", "bytes", "byte_links", "rectangles", "affected"]
    return pa.Table.from_pylist([dict(zip(names, (*key, *sums), strict=True)) for key, sums in found.items()])


def test_spark_groups_as_plain_python_does(spark: SparkSession) -> None:
    rows = a_table(250)
    found, plain = sums_of(spark.createDataFrame(rows, SCHEMA)).toArrow(), grouped(rows)
    assert found.column_names == plain.column_names
    order = [(name, "ascending") for name in plain.column_names]
    assert found.sort_by(order).to_pylist() == plain.sort_by(order).to_pylist()


def of_all_approaches(seqs: Iterable[int]) -> list[tuple[Any, ...]]:
    return [(seq, "can", approach, 1, 1, 1, 1, 1, 1, 1) for seq in seqs for approach in APPROACHES]


def test_a_result_with_every_event_once_is_let_pass() -> None:
    whole = grouped(of_all_approaches(range(8)))
    assert verified(whole, ["can"], 8) is whole


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (of_all_approaches(range(2)), "has 2 events for can, S-CN, but the trace has 8"),
        (of_all_approaches([0, 1, 2, 3, 0, 1, 2, 3]), "has other events for can, S-CN, but the trace has 8"),
        (of_all_approaches([*range(8), 3]), "has 9 events"),
        ([row for row in of_all_approaches(range(8)) if row[2] != "CN"], "has 0 events for can, CN"),
        ([*of_all_approaches(range(8)), (0, "ring", *of_all_approaches([0])[0][2:])], "for ring, S-CN, which was not"),
        (of_all_approaches(range(8))[:-1], "has 7 events for can, CN"),
    ],
)
def test_a_result_with_other_events_is_refused(rows: list[tuple[Any, ...]], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        verified(grouped(rows), ["can"], 8)


def test_means_and_percentiles_are_exact() -> None:
    rows = a_table(250)
    costs, stress = summarize(grouped(rows))
    assert [(cost.placement, cost.approach) for cost in costs] == [("can", "CN"), ("can", "S-CN")]
    for cost in costs:
        mine = [row for row in rows if row[2] == cost.approach]
        changing = [row for row in mine if row[8] > 0]
        assert (cost.events, cost.changing) == (250, len(changing))
        for name, place in (("messages", 3), ("bytes", 4), ("byte_links", 5)):
            assert getattr(cost, name) == pytest.approx(sum(row[place] for row in mine) / 250)
            mean = sum(row[place] for row in changing) / len(changing)
            assert getattr(cost, f"{name}_changing") == pytest.approx(mean)
        assert cost.affected == pytest.approx(sum(row[9] for row in mine) / 250)
        assert cost.rectangles == pytest.approx(sum(row[8] for row in mine) / 250)
        for name, place in (("node_stress", 6), ("link_stress", 7)):
            values = sorted(row[place] for row in mine)
            assert getattr(cost, name) == pytest.approx(sum(values) / 250)
            assert getattr(cost, f"{name}_p99") == values[ceil(0.99 * 250) - 1]
            assert getattr(cost, f"{name}_max") == values[-1]
        counted = {entry.node_stress: entry.events for entry in stress if entry.approach == cost.approach}
        assert counted == {v: sum(row[6] == v for row in mine) for v in {row[6] for row in mine}}


@pytest.mark.parametrize(("calm", "p99"), [(98, 500), (198, 2)])
def test_the_p99_is_the_least_value_that_99_in_100_do_not_exceed(calm: int, p99: int) -> None:
    stress = [2] * calm + [500] * 2
    rows = [(seq, "can", "CN", 1, 1, 1, value, 3, 1, 1) for seq, value in enumerate(stress)]
    (cost,), _ = summarize(grouped(rows))
    assert (cost.node_stress_p99, cost.node_stress_max) == (p99, 500)


def test_a_workload_where_all_is_ignorable() -> None:
    rows = [(seq, "can", "CN", 2, 10, 20, 1, 1, 0, 0) for seq in range(4)]
    (cost,), _ = summarize(grouped(rows))
    assert (cost.changing, cost.bytes, cost.bytes_changing) == (0, 10.0, 0.0)


def test_lines_and_stress_come_back_from_disk_as_they_were(tmp_path: Path) -> None:
    costs, stress = summarize(grouped(a_table(20)))
    lines = [TrafficLine("market", "INET", 5.0, 100, 10, 20, 1.5, 1_000, cost, 2) for cost in costs]
    write_lines(lines, tmp_path / "lines.parquet")
    write_stress(stress, tmp_path / "stress.parquet")
    assert read_lines(tmp_path / "lines.parquet") == lines
    assert read_stress(tmp_path / "stress.parquet") == stress
    assert isinstance(stress[0], Stress)


@pytest.mark.parametrize("read", [read_lines, read_stress])
def test_a_damaged_file_is_told_with_what_to_remove(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "5.8-0.00" / "lines.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"strange": [1]}), path)
    with pytest.raises(UsageError, match=r"is damaged .*remove the folder .*5\.8-0\.00 and continue with --resume"):
        read(path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(UsageError, match=r"is damaged .*remove the folder .*5\.8-0\.00 and continue with --resume"):
        read(path)


@pytest.mark.parametrize("costs", [(0.0, 0.0), (0.0, 5.0), (3.0, 5.0)])
def test_the_chart_names_every_approach_also_where_nothing_is_sent(tmp_path: Path, costs: tuple[float, float]) -> None:
    pairs = zip(("S-CN", "CN"), costs, strict=True)
    lines = [a_line(5, "can", name, bytes_, stress=int(bytes_ > 0)) for name, bytes_ in pairs]
    assert draw_summary(lines, tmp_path / "summary.png").read_bytes().startswith(b"\x89PNG")
    assert [handle.get_label() for handle in _handles(lines)] == ["S-CN", "CN"]
