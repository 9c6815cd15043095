"""A process that writes a commit log until it is killed, and says on its output what is on disk.

    python -m tests.support.log_writer DIR IDENTITY SEED          the log alone; starts quickly
    python -m tests.support.log_writer DIR engine SEED            a whole data directory, with checkpoints

Record n (from the second on) sets the row of key n % 50 to the value n, so what a log says is known from its length.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.broker.log.commit_log import CommitLog
from hullcast.broker.log.record import RecordKind
from hullcast.broker.log.segment import SegmentWriter
from hullcast.broker.log.tail import Tail

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = 50
CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL, S TEXT)"


def row_of(number: int) -> dict[str, object]:
    return {"K": number % KEYS, "V": float(number), "S": "x" * (number % 700)}


def expected(number: int) -> dict[int, tuple[float, str]]:
    """The rows after record `number`."""
    rows = [row_of(n) for n in range(max(2, number - KEYS + 1), number + 1)]
    return {int(str(row["K"])): (float(str(row["V"])), str(row["S"])) for row in rows}


def log_alone(directory: Path, identity: bytes, seed: int) -> None:
    tail = Tail(directory / "log", identity)
    for _ in tail.records():
        pass
    end = tail.end
    segment = SegmentWriter.resume(*end.segment) if end.segment else None
    log = CommitLog(directory / "log", identity, number=end.number, seq=end.seq, segment=segment, segment_bytes=60_000)

    def append() -> None:
        number = log.number + 1
        payload = json.dumps({"table": "T", "rows": [row_of(number)]}).encode()
        log.append(RecordKind.BATCH, payload, first=log.seq + 1, count=1, publisher=b"p" * 16, publisher_number=number)

    write_for_ever(log, append, lambda: None, seed)


def whole_directory(directory: Path, seed: int) -> None:
    from tests.support.durable import captured, execute, opened, publish

    data = opened(directory, segment_bytes=60_000)
    if not data.log.number:
        execute(data, CREATE)

    def append() -> None:
        number = data.log.number + 1
        row = {name: [value] for name, value in row_of(number).items()}
        publish(data, row, publisher=b"p" * 16, number=number)

    def checkpoint() -> None:
        data.write_checkpoint(captured(data))

    write_for_ever(data.log, append, checkpoint, seed)


def write_for_ever(log: CommitLog, append: Callable[[], None], checkpoint: Callable[[], None], seed: int) -> None:
    """One thread appends, the other syncs and reports."""
    chance = random.Random(seed)
    wanted, free = threading.Semaphore(0), threading.Semaphore(2)  # one group is written, one gathers

    def sync() -> None:
        while True:
            wanted.acquire()
            os.write(1, f"{log.write_and_sync()}\n".encode())
            free.release()

    threading.Thread(target=sync, daemon=True).start()
    groups = 0
    while True:
        for _ in range(chance.randrange(1, 30)):
            append()
        wanted.release()
        free.acquire()
        groups += 1
        if groups % 40 == 0:
            checkpoint()


if __name__ == "__main__":
    if sys.argv[2] == "engine":
        whole_directory(Path(sys.argv[1]), int(sys.argv[3]))
    else:
        log_alone(Path(sys.argv[1]), bytes.fromhex(sys.argv[2]), int(sys.argv[3]))
