"""The judge: which answers are wrong after so many updates, by NumPy and by SQL."""

from __future__ import annotations

from hullcast.network.wire.arrays import Floats
from hullcast.sim.bench.frame.answers import different, minima_by_sql, range_minima
from hullcast.sim.bench.peers.workload import CREATE, RANGE_MIN, Job


def wrong_answers(job: Job, published: int, answers: Floats) -> int:
    """How many of all answers differ from what the rows give."""
    rows = job.after(published)
    return _count(answers, range_minima(rows.risk, rows.per, job.low, job.high))


def wrong_by_sql(job: Job, published: int, answers: Floats) -> int:
    """The same, with SQLite as the judge: some seconds for 100,000 answers."""
    rows = job.after(published)
    columns = zip(rows.ids.tolist(), rows.risk.tolist(), rows.per.tolist(), strict=True)
    statements = (CREATE, "CREATE INDEX BY_RISK ON STOCK (RISK, PER)")
    return _count(answers, minima_by_sql(statements, columns, RANGE_MIN, job.low, job.high))


def _count(answers: Floats, right: Floats) -> int:
    return int(different(answers, right).sum()) if len(answers) == len(right) else len(right)
