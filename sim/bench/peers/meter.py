"""What processes use: CPU time, memory and bytes over TCP, read the same way for every peer."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hullcast.sim.bench.frame.machine import cpu_s, process_of

_RECEIVED = re.compile(rb"bytes_received:(\d+)")
_OWNER = re.compile(rb"pid=(\d+)")


@dataclass(frozen=True, slots=True)
class Reading:
    """Totals so far. Bytes are None where `ss` cannot count them."""

    cpu_s: float
    peak_bytes: int  # of all processes together, each at its own peak
    wire_bytes: int | None  # received over TCP by all processes
    client_bytes: int | None  # by those that hold the subscribers' connections


def read(servers: Iterable[int], publisher: int, clients: Iterable[int]) -> Reading:
    """Read all now; servers with their child processes."""
    own_clients = set(clients)
    pids = {publisher, *own_clients}
    for pid in servers:
        pids |= {pid, *(child.pid for child in process_of(pid).children(recursive=True))}
    received = _received()
    return Reading(
        sum(map(cpu_s, pids)),
        sum(map(_peak_bytes, pids)),
        None if received is None else sum(received.get(pid, 0) for pid in pids),
        None if received is None else sum(received.get(pid, 0) for pid in own_clients),
    )


def _peak_bytes(pid: int) -> int:
    """The most memory that a process has had resident, or has now where the system does not say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return int(process_of(pid).memory_info().rss)
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0])


def _received() -> dict[int, int] | None:
    """Bytes received by each process over the TCP connections that it has open now."""
    if not shutil.which("ss"):
        return None
    said = subprocess.run(["ss", "-tinHpO", "state", "established"], capture_output=True, check=False).stdout
    found: dict[int, int] = {}
    for line in said.splitlines():
        owner, received = _OWNER.search(line), _RECEIVED.search(line)
        if owner and received:
            pid = int(owner[1])
            found[pid] = found.get(pid, 0) + int(received[1])
    return found
