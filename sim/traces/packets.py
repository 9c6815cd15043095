"""Traces of packets, as they were recorded: when each came, and how large it was where that is known."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.errors import UsageError

#: The files that experiments look for: an Ethernet of 1989 (seconds and bytes by line), and one hour of UDP between
#: Digital Equipment Corporation and the world (a MATLAB file with the seconds between packets).
ETHERNET, UDP = "BC-pAug89-small.TL.gz", "DEC-PKT-1-UDP.mat"


@dataclass(frozen=True, slots=True)
class PacketTrace:
    """Packets in order; times in seconds from the first on, sizes as multiples of their mean (None: not recorded)."""

    name: str
    times: Floats
    sizes: Floats | None = None

    def __len__(self) -> int:
        return len(self.times)

    def stretch(self, first: int, many: int) -> PacketTrace:
        """So many packets in a row."""
        some = slice(first, first + many)
        times = self.times[some]
        return PacketTrace(self.name, times - times[0], None if self.sizes is None else self.sizes[some])


def packet_traces(folder: Path) -> list[PacketTrace]:
    """Both traces; UsageError if a file is missing or damaged."""
    missing = [name for name in (ETHERNET, UDP) if not (folder / name).is_file()]
    if missing:
        raise UsageError(f"--data {folder}: {', '.join(missing)} not found; leave out --data to run without real data")
    return [ethernet_trace(folder / ETHERNET), udp_trace(folder / UDP)]


def ethernet_trace(path: Path) -> PacketTrace:
    """A file with a line for each frame: when, and how many bytes."""
    try:
        with gzip.open(path, "rt") as file:
            lines = file.read().splitlines()
        columns = np.loadtxt(lines, ndmin=2) if lines else np.zeros((0, 0))
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if columns.shape[1:] != (2,) or not len(columns):
        raise UsageError(f"{path}: each line must hold a time and a size in bytes")
    times, sizes = columns[:, 0], columns[:, 1]
    return PacketTrace("Ethernet", _checked(times - times[0], path), sizes / sizes.mean())


def udp_trace(path: Path) -> PacketTrace:
    """A MATLAB file whose variable S holds the seconds between packets."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        between = loadmat(path)["S"].ravel().astype(np.float64)
    except (OSError, ValueError, LookupError, TypeError, MatReadError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    times = np.cumsum(between)
    return PacketTrace("UDP", _checked(times - times[0], path))


def _checked(times: Floats, path: Path) -> Floats:
    if not np.all(np.diff(times) >= 0):
        raise UsageError(f"{path}: times must not go back")
    return np.ascontiguousarray(times)
