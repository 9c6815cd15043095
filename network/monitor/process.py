"""What Prometheus expects of every process, under the names it expects: memory, processor time, files, start."""

from __future__ import annotations

import os
import resource
import time
from typing import TYPE_CHECKING

from hullcast.network.monitor.metrics import counter, gauge

if TYPE_CHECKING:
    from hullcast.network.monitor.metrics import Metric
    from hullcast.network.monitor.pauses import Pauses

STARTED = time.time()  # when this module was loaded, which is when the process began, near enough
_FILES = "/proc/self/fd"
_MEMORY = "/proc/self/statm"


def pause_metrics(pauses: Pauses) -> list[Metric]:
    """How long the event loop stood still."""
    recent = "The longest pause of the event loop in the last minute."
    return [
        gauge("hullcast_loop_pause_recent_seconds", recent, pauses.recent_s),
        gauge("hullcast_loop_pause_longest_seconds", "The same, since the start.", pauses.longest_s),
    ]


def process_metrics() -> list[Metric]:
    """The numbers now; those that the system does not tell are left out."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = [
        gauge("process_start_time_seconds", "Start of the process, seconds since 1970.", STARTED),
        counter("process_cpu_seconds_total", "Processor time, user and system.", used.ru_utime + used.ru_stime),
        gauge("process_max_fds", "Files that may be open.", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ]
    if os.path.exists(_MEMORY):
        with open(_MEMORY, encoding="ascii") as file:
            virtual, resident = (int(pages) * resource.getpagesize() for pages in file.read().split()[:2])
        found += [
            gauge("process_virtual_memory_bytes", "Virtual memory.", virtual),
            gauge("process_resident_memory_bytes", "Memory that is really there.", resident),
        ]
    if os.path.exists(_FILES):
        found.append(gauge("process_open_fds", "Files and sockets that are open.", len(os.listdir(_FILES))))
    return found
