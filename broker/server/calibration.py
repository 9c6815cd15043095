"""The costs of join plans, as a file in a data directory: `hullcast calibrate` writes it, a server reads it at start.

It is no part of the data: the log does without it, `hullcast log copy` leaves it out (another machine has other costs),
and it may be written or removed beside a running server, which has read it already.
"""

from __future__ import annotations

import logging
import os
import platform
from typing import TYPE_CHECKING

from hullcast.broker.joins.costs import DEFAULTS, Coefficients
from hullcast.broker.log.private import open_private
from hullcast.broker.log.segment import sync_directory

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

NAME = "joins.json"
LARGEST_BYTES = 1 << 16


def this_machine() -> dict[str, str]:
    """What costs depend on, as far as it is easily known."""
    return {"processor": platform.machine(), "model": _model(), "cores": str(os.cpu_count() or 1)}


def _model() -> str:
    """The processor's name, where the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def stored_coefficients(directory: Path) -> Coefficients:
    """The coefficients measured on this machine; the defaults where there are none, or none that can be read."""
    path = directory / NAME
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            raise ValueError(f"it has more than {LARGEST_BYTES} bytes")
        found = Coefficients.from_json(content.decode())
    except FileNotFoundError:
        return DEFAULTS
    except (OSError, ValueError, RecursionError) as error:
        log.warning(
            "costs of join plans not read, defaults used; run `hullcast calibrate` again or remove the file",
            extra={"file": str(path), "why": str(error)},
        )
        return DEFAULTS
    if found.machine != this_machine():
        log.warning(
            "costs of join plans were measured on another machine; run `hullcast calibrate` again",
            extra={"file": str(path), "measured_on": dict(found.machine)},
        )
    return found


def store_coefficients(directory: Path, coefficients: Coefficients) -> Path:
    """Write them, at one moment, also beside a running server; gives the file."""
    path, temporary = directory / NAME, directory / f"{NAME}.{os.getpid()}.tmp"
    descriptor = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(coefficients.to_json())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(directory)
    return path
