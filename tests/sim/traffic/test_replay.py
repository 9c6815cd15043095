"""The Spark job: starting states, chunks that do not matter, traces that are refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow has no types
import pytest
from hypothesis import strategies as st

from hullcast.network.wire.errors import UsageError
from hullcast.sim.overlay.placement import choose_brokers, place
from hullcast.sim.seeds import generator
from hullcast.sim.topology.inet import inet
from hullcast.sim.topology.paths import routes
from hullcast.sim.traffic import replay as job
from hullcast.sim.traffic.chunk import APPROACHES, COLUMNS, replay_chunk
from hullcast.sim.traffic.rectangles import Events, StartRows
from hullcast.sim.traffic.replay import (
    check_trace,
    last_words,
    replay,
    replay_sums,
    states,
    sums_of,
    with_chunks,
)
from hullcast.sim.traffic.sending import SentWorld, sent
from hullcast.sim.traffic.world import World
from tests.sim.traffic.worlds import NOWHERE, Change, expected, small_world

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "seq long, key string, x double, y double"
Row = tuple[int, str, float | None, float | None]


@pytest.fixture(scope="module")
def world() -> World:
    """300 subscriptions on 12 brokers, in all placements and with CAN's own way in."""
    random = generator(5, "replay test")
    low = random.integers(0, 40, 300).astype(np.float64)
    high = low + random.integers(0, 12, 300)
    points = np.stack((low, high), axis=1)
    topology = inet(60, root=1)
    ways = routes(topology, choose_brokers(topology, 12, root=1))
    kinds = [
        ("can", "map"),
        ("can", "greedy"),
        ("tree-content", "map"),
        ("tree-nearest", "map"),
        ("tree-random", "map"),
    ]
    placed = [place(name, ways, points[:100], fanout=3, entry=entry, root=1) for name, entry in kinds]  # type: ignore[arg-type]  # literals in a list
    return World.of(low, high, [(placement, placement.gateways(points, 1)) for placement in placed])


@pytest.fixture(scope="module")
def given(spark: SparkSession, world: World) -> Iterator[SentWorld]:
    with sent(spark, world) as there:
        yield there


def a_trace(count: int = 400, keys: int = 25, start: int = 15) -> list[Row]:
    """Inserts, changes, moves and deletes on a coarse grid, so that ties are common; some keys are there before."""
    random = generator(7, "replay trace", count, keys)
    rows: list[Row] = [
        (k - start, f"k{k}", float(random.integers(40)), float(random.integers(9))) for k in range(start)
    ]
    for seq in range(count):
        key = f"k{random.integers(keys)}"
        if random.random() < 0.15:
            rows.append((seq, key, None, None))
        else:
            rows.append((seq, key, float(random.integers(40)), float(random.integers(9))))
    return rows


def frame(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA)


def in_order(costs: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in costs.collect())


def plainly(rows: Sequence[Row], world: World) -> list[tuple[Any, ...]]:
    """The same without Spark: the last row of each key before the first event, then all events as one chunk."""
    number = {key: i for i, key in enumerate(sorted({row[1] for row in rows}))}
    first = {row[1]: row[2:] for row in sorted(rows) if row[0] < 0}
    there = {number[key]: place for key, place in first.items() if place[0] is not None}
    state = StartRows(np.array(list(there), np.int64), *np.array(list(there.values()), np.float64).reshape(-1, 2).T)
    later = [row for row in sorted(rows) if row[0] >= 0]
    columns = replay_chunk(
        state,
        Events(
            np.array([row[0] for row in later]),
            np.array([number[row[1]] for row in later]),
            np.array([row[2] for row in later], np.float64),
            np.array([row[3] for row in later], np.float64),
        ),
        world,
    )
    names = [placed.placement.label for placed in world.placements]
    found = []
    for values in zip(*(columns[name].tolist() for name in COLUMNS), strict=True):
        seq, placement, approach, *rest = values
        found.append((seq, names[placement], APPROACHES[approach], *rest))
    return sorted(found)


def tables_before(rows: Sequence[Row], size: int, chunks: int) -> list[dict[str, tuple[float, float]]]:
    """By the plain rule: the table before each chunk."""
    tables: list[dict[str, tuple[float, float]]] = []
    for chunk in range(chunks):
        table: dict[str, tuple[float, float]] = {}
        for seq, key, x, y in sorted(rows):
            if seq < size * chunk:
                table.pop(key, None)
                if x is not None and y is not None:
                    table[key] = (x, y)
        tables.append(table)
    return tables


def states_of(words: pa.Table, chunks: int) -> list[dict[str, tuple[float, float]]]:
    """The same by `states`, which must not give a key twice."""
    found: list[dict[str, tuple[float, float]]] = [{} for _ in range(chunks)]
    for chunk, part in states(words, chunks):
        for row in part.to_pylist():
            assert row["key"] not in found[chunk], "a key twice"
            found[chunk][row["key"]] = (row["x"], row["y"])
    return found


def test_a_chunk_starts_from_the_last_word_on_each_key_before_it(spark: SparkSession) -> None:
    rows = a_trace(60, 8, 5)
    words = last_words(with_chunks(frame(spark, rows), 7), 9).toArrow()
    assert words.num_rows < len(rows)
    assert states_of(words, 9) == tables_before(rows, 7, 9)


events_drawn = st.lists(
    st.tuples(st.sampled_from("abcd"), st.none() | st.tuples(st.sampled_from([1.0, 2.0]), st.sampled_from([1.0, 2.0]))),
    min_size=1,
    max_size=24,
)


@hypothesis.given(events_drawn, st.integers(0, 5), st.integers(1, 6), st.integers(1, 3))
def test_keys_that_come_and_go_at_borders_are_in_the_states_they_should_be(
    drawn: list[tuple[str, tuple[float, float] | None]], start: int, size: int, portion: int
) -> None:
    """Ties, deletes and inserts right before and after the borders, in portions of a few rows."""
    start = min(start, len(drawn) - 1)
    rows: list[Row] = [(i - start, key, *(place or (None, None))) for i, (key, place) in enumerate(drawn)]
    count = len(drawn) - start
    chunks = -(-count // size)
    last = {(key, seq // size if seq >= 0 else -1): (x, y) for seq, key, x, y in rows if seq < (chunks - 1) * size}
    columns = {
        "key": [key for key, _ in last],
        "chunk": [chunk for _, chunk in last],
        "x": [x for x, _ in last.values()],
        "y": [y for _, y in last.values()],
    }
    kinds = (pa.string(), pa.int32(), pa.float64(), pa.float64())
    words = pa.table(
        {name: pa.array(column, kind) for (name, column), kind in zip(columns.items(), kinds, strict=True)}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "STATE_ROWS", portion)
        assert states_of(words, chunks) == tables_before(rows, size, chunks)


@pytest.mark.parametrize("adaptive", [pytest.param("false", marks=pytest.mark.slow), "true"])
def test_sums_made_in_workers_are_those_of_the_whole_table(
    spark: SparkSession, world: World, given: SentWorld, adaptive: str
) -> None:
    rows, before = a_trace(300), spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        found = replay_sums(spark, frame(spark, rows), given, chunks=7)
        sums, names = in_order(found), found.columns
        wanted = sums_of(replay(spark, frame(spark, rows), given, chunks=2)).select(*names)
        assert sums == in_order(wanted)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", str(before))
    by_hand: Counter[tuple[Any, ...]] = Counter()
    for seq, placement, approach, messages, _, _, node, link, rectangles, _ in plainly(rows, world):
        by_hand[placement, approach, rectangles == 0, node, link, "events"] += 1
        by_hand[placement, approach, rectangles == 0, node, link, "messages"] += messages
        by_hand[placement, approach, rectangles == 0, node, link, "seq"] += seq
    for row in found.collect():
        group = (row["placement"], row["approach"], row["ignorable"], row["node_stress"], row["link_stress"])
        assert [by_hand.pop((*group, name)) for name in ("events", "messages", "seq")] == [
            row["events"],
            row["messages"],
            row["seq"],
        ]
    assert not by_hand


@pytest.mark.parametrize("chunks", [1, 13])
def test_the_number_of_chunks_does_not_matter(spark: SparkSession, world: World, given: SentWorld, chunks: int) -> None:
    rows = a_trace(200)
    assert in_order(replay(spark, frame(spark, rows), given, chunks=chunks)) == plainly(rows, world)


def test_spark_counts_what_plain_counting_counts(spark: SparkSession) -> None:
    small = small_world(4)
    random = generator(9, "counted by hand")
    changes: list[Change] = []
    for _ in range(60):
        gone, place = random.random() < 0.2, (float(random.integers(7)), float(random.integers(4)))
        changes.append((int(random.integers(6)), NOWHERE if gone else place))
    rows: list[Row] = [(seq, str(key), *_place(row)) for seq, (key, row) in enumerate(changes)]
    names = [placement.label for placement, _ in small.placements]
    wanted = [
        (seq, names[placement], APPROACHES[approach], *rest)
        for seq, placement, approach, *rest in expected(small.oracles(), changes)
    ]
    assert any(row[3] for row in wanted), "nothing is sent: a test that tells nothing"
    with sent(spark, small.world) as given:
        assert in_order(replay(spark, frame(spark, rows), given, chunks=5)) == sorted(wanted)


def _place(row: tuple[float, float]) -> tuple[float | None, float | None]:
    return (None, None) if row == NOWHERE else row


def test_neither_the_order_of_rows_nor_their_partitions_matter(
    spark: SparkSession, world: World, given: SentWorld
) -> None:
    rows = a_trace(150)
    shuffled = generator(1, "shuffle").permutation(len(rows))
    mixed = frame(spark, [rows[i] for i in shuffled]).repartition(5)
    assert in_order(replay(spark, mixed, given, chunks=3)) == plainly(rows, world)


def test_settings_of_a_user_s_own_session_do_not_matter(spark: SparkSession, world: World, given: SentWorld) -> None:
    rows, own = a_trace(60), {
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "Pacific/Apia",
    }  # fmt: skip
    before = {name: spark.conf.get(name) for name in own}
    try:
        for name, text in own.items():
            spark.conf.set(name, text)
        assert in_order(replay(spark, frame(spark, rows), given, chunks=3)) == plainly(rows, world)
    finally:
        for name, old in before.items():
            assert old is not None
            spark.conf.set(name, old)


def test_a_trace_that_starts_empty_and_ends_empty(spark: SparkSession, world: World, given: SentWorld) -> None:
    rows: list[Row] = [(0, "a", 3.0, 1.0), (1, "a", 3.0, 1.0), (2, "a", None, None), (3, "a", None, None)]
    assert in_order(replay(spark, frame(spark, rows), given, chunks=4)) == plainly(rows, world)


def test_more_chunks_than_events_are_fine(spark: SparkSession, world: World, given: SentWorld) -> None:
    rows: list[Row] = [(-1, "a", 3.0, 1.0), (0, "a", 3.0, 2.0)]
    assert in_order(replay(spark, frame(spark, rows), given, chunks=1_000)) == plainly(rows, world)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([(0, "a", 1.0, 1.0), (2, "a", 1.0, 1.0)], "seq 1 is missing"),
        ([(1, "a", 1.0, 1.0), (2, "a", 1.0, 1.0)], "seq 0 is missing"),
        ([(0, "a", 1.0, 1.0), (0, "b", 1.0, 1.0)], "several rows with seq 0"),
        ([(-1, "a", 1.0, 1.0), (-1, "a", 2.0, 1.0), (0, "b", 1.0, 1.0)], "several rows with seq -1"),
        ([(0, "a", 1.0, None)], "row 0 has"),
        ([(0, "a", 1.0, 1.0), (1, "a", None, 1.0)], "row 1 has"),
        ([(0, "a", float("nan"), 1.0)], "row 0 has"),
        ([(0, "a", 1.0, float("inf"))], "row 0 has"),
        ([(0, None, 1.0, 1.0)], "row 0 has no key"),
        ([(None, "a", 1.0, 1.0)], "have no seq"),
        ([(-1, "a", 1.0, 1.0)], "no events"),
    ],
)
def test_a_trace_that_is_not_one_is_refused(spark: SparkSession, rows: list[Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        check_trace(frame(spark, rows))


def test_no_chunks_are_refused(spark: SparkSession, given: SentWorld) -> None:
    with pytest.raises(UsageError, match="at least 1 chunk"):
        replay(spark, frame(spark, a_trace(3)), given, chunks=0)
