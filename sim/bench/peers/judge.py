"""The judge: which answers are wrong after so many updates, by NumPy and by SQL."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np

from hullcast.network.wire.arrays import Floats
from hullcast.sim.bench.live.benchmark import range_minima
from hullcast.sim.bench.peers.workload import CREATE, RANGE_MIN, Job


def wrong_answers(job: Job, published: int, answers: Floats) -> int:
    """How many of all answers differ from what the rows give."""
    rows = job.after(published)
    right = range_minima(rows.risk, rows.per, job.low, job.high)
    return _different(answers, right)


def wrong_by_sql(job: Job, published: int, answers: Floats) -> int:
    """The same, with SQLite as the judge: some seconds for 100,000 answers."""
    rows = job.after(published)
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(CREATE)
        columns = zip(rows.ids.tolist(), rows.risk.tolist(), rows.per.tolist(), strict=True)
        database.executemany("INSERT INTO STOCK VALUES (?, ?, ?)", columns)
        database.execute("CREATE INDEX BY_RISK ON STOCK (RISK, PER)")
        found = [
            database.execute(RANGE_MIN, between).fetchone()[0]
            for between in zip(job.low.tolist(), job.high.tolist(), strict=True)
        ]
    return _different(answers, np.array(found, np.float64))


def _different(answers: Floats, right: Floats) -> int:
    if len(answers) != len(right):
        return len(right)
    return int((~((answers == right) | (np.isnan(answers) & np.isnan(right)))).sum())
