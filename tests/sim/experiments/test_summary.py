"""The summary of a per-event table, against the same in plain Python."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import pytest

from sim.experiments.summary import (
    Line,
    Stress,
    read_lines,
    read_stress,
    reduced,
    summarize,
    write_lines,
    write_stress,
)
from sim.seeds import generator

if TYPE_CHECKING:
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


def test_means_and_percentiles_are_exact(spark: SparkSession) -> None:
    rows = a_table(250)
    costs, stress = summarize(reduced(spark.createDataFrame(rows, SCHEMA)))
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
def test_the_p99_is_the_least_value_that_99_in_100_do_not_exceed(spark: SparkSession, calm: int, p99: int) -> None:
    stress = [2] * calm + [500] * 2
    rows = [(seq, "can", "CN", 1, 1, 1, value, 3, 1, 1) for seq, value in enumerate(stress)]
    (cost,), _ = summarize(reduced(spark.createDataFrame(rows, SCHEMA)))
    assert (cost.node_stress_p99, cost.node_stress_max) == (p99, 500)


def test_a_workload_where_all_is_ignorable(spark: SparkSession) -> None:
    rows = [(seq, "can", "CN", 2, 10, 20, 1, 1, 0, 0) for seq in range(4)]
    (cost,), _ = summarize(reduced(spark.createDataFrame(rows, SCHEMA)))
    assert (cost.changing, cost.bytes, cost.bytes_changing) == (0, 10.0, 0.0)


def test_lines_and_stress_come_back_from_disk_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    costs, stress = summarize(reduced(spark.createDataFrame(a_table(20), SCHEMA)))
    lines = [Line("market", "INET", 5.0, 100, 10, 20, 1.5, 1_000, cost) for cost in costs]
    write_lines(lines, tmp_path / "lines.parquet")
    write_stress(stress, tmp_path / "stress.parquet")
    assert read_lines([tmp_path / "lines.parquet"] * 2) == lines * 2
    assert read_stress(tmp_path / "stress.parquet") == stress
    assert isinstance(stress[0], Stress)
