"""A small table of every column type, and a subscription of each kind over it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hullcast import Engine
from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.reformulate.channel import Attended
from hullcast.broker.scheduling.driver import finish

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MIN = "SELECT MIN(Y) FROM T WHERE X BETWEEN ? AND ?"
MAX = "SELECT MAX(Y) FROM T WHERE X BETWEEN ? AND ?"
ROWS = "SELECT K, Y FROM T WHERE X BETWEEN ? AND ?"
DISTINCT = "SELECT DISTINCT Y FROM T WHERE X BETWEEN ? AND ?"
COUNT = "SELECT COUNT(*) FROM T WHERE X BETWEEN ? AND ?"


def engine_with(*rows: dict[str, Any], **options: Any) -> Engine:
    engine = Engine(**options)
    engine.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL, Y REAL, N INTEGER NOT NULL, P TEXT, W TIMESTAMP)")
    if rows:
        engine.upsert("T", [{"N": 0} | row for row in rows])
    return engine


def attend(engine: ServedEngine, sql: str, columns: Sequence[Any], count: int = 1) -> Attended:
    """Open the channel of subscriptions elsewhere, and let it know their ranges, all now."""
    attended: Attended = finish(engine.attending(sql, columns, count))
    attended.channel.want(attended.channel.points_elsewhere(attended.predicates))
    return attended
