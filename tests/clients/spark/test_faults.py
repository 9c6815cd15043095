"""A gateway is killed and the server restarted while Spark writes and while it reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pytest

from tests.clients.spark.conftest import Live
from tests.clients.spark.test_reading import changes_into, check_changes, some, wait_for_seq
from tests.support.cluster import PATIENCE_S

pytestmark = pytest.mark.slow

ROWS = 150_000  # of each of two tasks


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5 * PATIENCE_S  # until Spark has started its workers, on a busy machine
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def break_things(live: Live) -> None:
    """The gateway that clients dial first is killed, and started again when the server has been restarted."""
    first = live.cluster.gateways[0]
    live.run(first.kill())
    live.run(live.cluster.kill("server"))
    live.run(live.cluster.restart_server())
    live.run(first.start())


def test_a_write_goes_on_after_a_killed_gateway_and_server_and_each_row_is_applied_once(
    live: Live, tmp_path: Path
) -> None:
    table = live.table("SYMBOL TEXT PRIMARY KEY, PER REAL")
    mended = str(tmp_path / "mended")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sent = 0
        for batch in batches:
            yield batch
            sent += batch.num_rows
            while sent >= 100_000 and not Path(mended).exists():  # in the middle
                time.sleep(0.01)

    sql = f"SELECT concat('S', id) AS SYMBOL, DOUBLE(id) AS PER FROM range(0, {2 * ROWS}, 1, 2)"
    frame = live.spark.sql(sql)
    start = live.db.sync()

    def disturb() -> None:
        try:
            wait_until(lambda: live.db.sync() >= start + 100_000)
            break_things(live)
        finally:
            Path(mended).touch()

    with ThreadPoolExecutor(1) as elsewhere:
        disturbing = elsewhere.submit(disturb)
        live.write(frame.mapInArrow(run, frame.schema), table)
        disturbing.result()
    assert live.rows(f"SELECT COUNT(*), SUM(PER) FROM {table}") == [(2 * ROWS, 2 * ROWS * (2 * ROWS - 1) / 2)]
    assert live.db.sync() - start == 2 * ROWS


def test_a_stream_goes_on_after_a_killed_gateway_and_server_with_nothing_lost_or_doubled(
    live: Live, tmp_path: Path
) -> None:
    table = live.table()
    start = live.db.sync()
    over = threading.Event()

    def publish() -> None:
        turn = 0.0
        while not over.wait(0.02):
            live.db.publish(table, some(0, 200, per=turn))
            turn += 1.0

    with ThreadPoolExecutor(1) as elsewhere:
        query = changes_into(live, table, tmp_path, startingSeq=start)
        try:
            publishing = elsewhere.submit(publish)
            wait_until(lambda: query.lastProgress is not None and query.lastProgress.numInputRows > 0)
            break_things(live)
            reached = live.db.sync()
            wait_until(lambda: live.db.sync() > reached + 1000)  # rows come again
            over.set()
            publishing.result(5 * PATIENCE_S)
            end = live.db.sync()
            wait_for_seq(query, end)
        finally:
            over.set()
            query.stop()
    check_changes(live, table, tmp_path, start, end)
