"""All benchmarks, in the order of `hullcast bench --help`."""

from __future__ import annotations

from typing import Any

from hullcast.sim.bench.covers import COVERS
from hullcast.sim.bench.engine.benchmark import ENGINE
from hullcast.sim.bench.frame.benchmark import Benchmark
from hullcast.sim.bench.hop.benchmark import HOP
from hullcast.sim.bench.idle import IDLE
from hullcast.sim.bench.joins.benchmark import JOINS
from hullcast.sim.bench.live.benchmark import LIVE
from hullcast.sim.bench.nodes import NODE_SIZES
from hullcast.sim.bench.peers.benchmark import PEERS_BENCH
from hullcast.sim.bench.spark_source import SPARK
from hullcast.sim.bench.streams.benchmark import STREAMS
from hullcast.sim.bench.views.benchmark import VIEWS
from hullcast.sim.bench.warehouse.benchmark import WAREHOUSE

BENCHMARKS: dict[str, Benchmark[Any]] = {
    one.name: one
    for one in (*(ENGINE, JOINS, NODE_SIZES, COVERS, LIVE, PEERS_BENCH, HOP, IDLE, SPARK, WAREHOUSE, VIEWS, STREAMS),)
}
