"""The demo's market: the same for one seed in every process, and every update applies."""

from __future__ import annotations

import os
import subprocess
import sys

from hullcast.broker.engine.engine import Engine
from hullcast.clients.demo.stocks import CREATES, Upsert, size_of, stock_trace


def test_a_seed_gives_the_same_market_in_another_process() -> None:
    script = "from hullcast.clients.demo.stocks import stock_trace; print(stock_trace(5, 50, root=7))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "12345"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(stock_trace(5, 50, root=7))


def test_a_stock_trace_has_the_updates_it_promises_and_every_one_applies() -> None:
    trace = stock_trace(30, 1_000, batch=50, root=3)
    assert trace.updates == sum(size_of(action) for batch in trace.batches for action in batch) == 1_000
    assert len(trace.batches) == 20
    keys: set[str] = set()
    engine = Engine()
    for sql in CREATES:
        engine.execute(sql)
    for action in (*trace.start, *(action for batch in trace.batches for action in batch)):
        if isinstance(action, Upsert):
            engine.upsert(action.table, list(action.rows))
            keys |= {row["SYMBOL"] for row in action.rows if "SYMBOL" in row}
        else:
            assert keys.issuperset(action.keys)  # nothing is deleted that was never there
            engine.delete(action.table, list(action.keys))
            keys -= set(action.keys)
    assert engine.rows("STOCK") == len(keys)
