"""Deephaven: an incremental engine inside the process, in a Java virtual machine."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

import numpy as np

from hullcast.network.wire.arrays import Ints
from hullcast.sim.bench.peers.engines import COUNT, EnginePeer, InProcessEngine, bucket, spans
from hullcast.sim.bench.peers.interface import Facts, Part, executable, free_port, importable
from hullcast.sim.bench.peers.workload import Call, Rows

#: The engine works in cycles, by default of a second; as short as it takes.
CYCLE_MS = 1
MEMORY = "4g"


class DeephavenEngine(InProcessEngine):
    """Rows go in as small tables, one a call; of each ID the last row counts."""

    def __init__(self, facts: Facts, part: Part) -> None:
        super().__init__(facts, part)
        self._publisher: Any = None
        self._kept: list[Any] = []  # the engine forgets what nobody holds

    def begin(self) -> None:
        """Start the virtual machine, and publish the first rows."""
        ours = _output_kept()
        from deephaven_server import Server

        folders = [f"-Ddeephaven.{name}Dir={self.facts['folder']}/{name}" for name in ("cache", "config", "data")]
        cycle = f"-DPeriodicUpdateGraph.targetCycleDurationMillis={CYCLE_MS}"
        server = Server(port=free_port(), jvm_args=[f"-Xmx{MEMORY}", cycle, *folders])
        server.start()
        sys.stdout = ours  # Deephaven has put its own in place
        self._kept.append(server)
        self._build()
        self._put(self.job.start, np.zeros(len(self.job.start), np.int64))

    def _build(self) -> None:
        from deephaven import agg, dtypes, merge, new_table
        from deephaven.column import double_col, long_col
        from deephaven.stream.table_publisher import table_publisher
        from deephaven.table_listener import listen

        columns = {"ID": dtypes.int64, "RISK": dtypes.double, "PER": dtypes.double}
        rows, self._publisher = table_publisher("stock", {**columns, "BUCKET": dtypes.int64, "NUMBER": dtypes.int64})
        stock = rows.last_by("ID")
        which, low, high, buckets = spans(self.job)
        ends = [double_col("LOW", low), double_col("HIGH", high)]
        ranges = new_table([long_col("I", which), *ends, long_col("BUCKET", buckets)])
        pairs = ranges.join(stock.view(["BUCKET", "RISK", "PER"]), on="BUCKET").where("RISK >= LOW && RISK <= HIGH")
        answers = pairs.agg_by(agg.min_("LEAST = PER"), by="I").view(["I", "LEAST"])
        last = stock.agg_by(agg.max_("NUMBER")).view([f"I = (long) {COUNT}", "LEAST = (double) NUMBER"])
        both = merge([answers, last])  # one table, so that a call's answers and its number come together
        self._kept += [both, listen(both, self._heard)]

    def _heard(self, update: Any, is_replay: bool) -> None:
        for rows in (update.added(), update.modified()):
            if rows:
                self.took(np.asarray(rows["I"]), np.asarray(rows["LEAST"]))
        self.finished()

    def put(self, call: Call) -> None:
        """One table a call."""
        self._put(call.rows, np.arange(call.first + 1, call.end + 1))

    def _put(self, rows: Rows, numbers: Ints) -> None:
        from deephaven import new_table
        from deephaven.column import double_col, long_col

        values = [double_col("RISK", rows.risk), double_col("PER", rows.per)]
        places = [long_col("BUCKET", bucket(rows.risk)), long_col("NUMBER", numbers)]
        self._publisher.add(new_table([long_col("ID", rows.ids), *values, *places]))

    def failed(self) -> str:
        """It ends with the process only."""
        return ""

    async def close(self) -> None:
        """The virtual machine ends with the process."""


def _output_kept() -> TextIO:
    """Standard output, where our answers go, under another number: the virtual machine prints to that one."""
    ours = os.dup(sys.stdout.fileno())
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
    return os.fdopen(ours, "w")


class Deephaven(EnginePeer):
    """Nothing to start."""

    name, title = "deephaven", "Deephaven, in process"
    subscriber = DeephavenEngine

    def missing(self) -> str:
        """It is large, so no extra brings it."""
        if not importable("deephaven_server"):
            return "not installed (pip install deephaven-server; with what it needs 630 MB, and Java 17)"
        return "" if executable("java") else "Java is not installed (apt install openjdk-17-jre-headless)"
