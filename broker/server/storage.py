"""Where the server's rows come from and go to: a data directory, or nothing but memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hullcast.broker.log.record import RecordKind
from hullcast.broker.log.recovery import DataDirectory, open_directory, open_memory
from hullcast.broker.server.brain import apply_batch
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import BadFrame

if TYPE_CHECKING:
    from pathlib import Path

    from hullcast.broker.engine.engine import Engine
    from hullcast.broker.log.commit_log import Log
    from hullcast.broker.log.publishers import Publishers
    from hullcast.broker.log.record import Record


class Storage(NamedTuple):
    """An engine with its log and receipts; `directory` is None where nothing lasts."""

    engine: Engine
    log: Log
    publishers: Publishers
    directory: DataDirectory | None

    def close(self) -> None:
        """Write what is pending, and let others have the directory."""
        if self.directory is not None:
            self.directory.close()
        else:
            self.log.close()


def open_storage(data: Path | None, segment_bytes: int) -> Storage:
    """Recover what the data directory holds, or begin with nothing."""
    if data is None:
        engine, publishers, log = open_memory()
        return Storage(engine, log, publishers, None)
    directory = open_directory(data, replay, segment_bytes=segment_bytes)
    return Storage(directory.engine, directory.log, directory.publishers, directory)


def replay(engine: Engine, record: Record) -> None:
    """Do once more what a record of the log did."""
    if record.kind is RecordKind.STATEMENT:
        engine.execute(record.payload.decode())
        return
    body = bodies.decode(record.payload)
    if not isinstance(body, bodies.Publish | bodies.Delete):
        raise BadFrame(f"a {type(body).__name__} in the log")
    apply_batch(engine, body)
