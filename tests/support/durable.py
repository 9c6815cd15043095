"""A data directory whose records are simple: a batch is JSON, so that the log is tested without the wire format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hullcast.broker.engine.engine import Engine
from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.log.checkpoint import CapturedState
from hullcast.broker.log.record import NOBODY, Record, RecordKind
from hullcast.broker.log.recovery import DataDirectory, open_directory
from hullcast.broker.scheduling.driver import finish

CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL)"


def apply(engine: Engine, record: Record) -> None:
    """What a server does with a record."""
    if record.kind is RecordKind.STATEMENT:
        engine.execute(record.payload.decode())
        return
    what = json.loads(record.payload)
    if "delete" in what:
        engine.delete(what["table"], what["delete"])
    else:
        engine.upsert(what["table"], what["rows"])


def opened(path: Path, **options: Any) -> DataDirectory:
    return open_directory(path, ServedEngine(), apply, **options)


def captured(data: DataDirectory) -> CapturedState:
    """The state as it is now, to be written as a checkpoint."""
    state: CapturedState = finish(data.capturing())
    return state


def execute(data: DataDirectory, sql: str, publisher: bytes = NOBODY, number: int = 0) -> int:
    data.engine.execute(sql)
    first = data.engine.seq + 1
    record = data.log.append(
        RecordKind.STATEMENT, sql.encode(), first=first, count=0, publisher=publisher, publisher_number=number
    )
    data.publishers.applied(publisher, number, first, data.engine.seq)
    return record


def publish(
    data: DataDirectory, rows: dict[str, list[Any]], table: str = "T", publisher: bytes = NOBODY, number: int = 0
) -> int:
    batch = data.engine.upsert(table, rows)
    payload = json.dumps({"table": table, "rows": rows}).encode()
    return _append(data, payload, batch.first_seq, batch.last_seq, publisher, number)


def delete(data: DataDirectory, keys: list[Any], table: str = "T") -> int:
    batch = data.engine.delete(table, keys)
    payload = json.dumps({"table": table, "delete": keys}).encode()
    return _append(data, payload, batch.first_seq, batch.last_seq, NOBODY, 0)


def _append(data: DataDirectory, payload: bytes, first: int, last: int, publisher: bytes, number: int) -> int:
    record = data.log.append(
        RecordKind.BATCH, payload, first=first, count=last - first + 1, publisher=publisher, publisher_number=number
    )
    data.publishers.applied(publisher, number, first, last)
    return record


def rows(data: DataDirectory, table: str = "T") -> dict[Any, Any]:
    return {key: tuple(rest) for key, *rest in data.engine.query(f'SELECT * FROM "{table}"')}


def crash(data: DataDirectory) -> None:
    """Let go of the directory as a killed process does: nothing more is written."""
    if data.log._segment is not None:
        data.log._segment.close()
    data.log._broken = "crashed"
    data._lock.release()


def only_segment(path: Path) -> Path:
    (segment,) = (path / "log").iterdir()
    return segment
