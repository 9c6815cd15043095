"""The most memory that this process and all it started (Spark's JVM, Python workers) had at one time."""

from __future__ import annotations

import threading
from typing import Self

import psutil

INTERVAL_S = 0.5


class PeakMemory:
    """Looks every half second, for `with`; `peak_bytes` afterwards.

    Counted is the proportional share (PSS) where the system tells it: a page that three workers share counts once,
    not three times. Elsewhere it is the resident size, which counts shared pages often and so says too much.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self._look()

    def _look(self) -> None:
        self.peak_bytes = max(self.peak_bytes, tree_bytes())


def tree_bytes() -> int:
    """The memory of this process and its descendants now."""
    here = psutil.Process()
    return sum(map(_bytes, [here, *here.children(recursive=True)]))


def _bytes(process: psutil.Process) -> int:
    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    except psutil.NoSuchProcess:
        return 0
    except psutil.AccessDenied:
        return int(process.memory_info().rss)
