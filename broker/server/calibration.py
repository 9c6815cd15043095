"""The costs of join plans in a file: `hullcast calibrate` writes it, a server reads it at its start.

It is no part of the data: the log does without it, `hullcast log copy` leaves it out (another machine has other costs),
and it may be written or removed beside a running server, which has read it already.
"""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from hullcast.broker.joins.costs import DEFAULTS, Coefficients
from hullcast.broker.log.private import open_private, sync_directory
from hullcast.network.wire.errors import BadDirectory
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from pathlib import Path

log = logger(__name__)

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


def read_coefficients(directory: Path) -> Coefficients:
    """The coefficients in the file, or the defaults if there is none; UNREADABLE if it is damaged."""
    try:
        with (directory / NAME).open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        return DEFAULTS
    if len(content) > LARGEST_BYTES:
        raise ValueError(f"it has more than {LARGEST_BYTES} bytes")
    return Coefficients.from_json(content.decode())


UNREADABLE = (OSError, ValueError, RecursionError)


def stored_coefficients(directory: Path) -> Coefficients:
    """The coefficients that a server starts with: from the file, or the defaults with a warning if it is damaged."""
    path = directory / NAME
    try:
        found = read_coefficients(directory)
    except UNREADABLE as error:
        log.warning(
            "costs of join plans not read, defaults used; run `hullcast calibrate` again or remove the file",
            extra={"file": str(path), "why": str(error)},
        )
        return DEFAULTS
    if found is not DEFAULTS and found.machine != this_machine():
        log.warning(
            "costs of join plans were measured on another machine; run `hullcast calibrate` again",
            extra={"file": str(path), "measured_on": dict(found.machine)},
        )
    return found


def check_place(directory: Path) -> None:
    """Raise BadDirectory if coefficients could not be stored in a folder: better known before they are measured."""
    if not directory.is_dir():
        raise BadDirectory(str(directory), "there is no such folder; start the server once, or create it")
    temporary = _temporary(directory)
    try:
        os.close(open_private(temporary, os.O_WRONLY | os.O_CREAT))
        temporary.unlink()
    except OSError as error:
        raise BadDirectory(str(directory), f"{NAME} cannot be written there ({error.strerror})") from error


def _temporary(directory: Path) -> Path:
    return directory / f"{NAME}.{os.getpid()}.tmp"


def store_coefficients(directory: Path, coefficients: Coefficients) -> Path:
    """Write them, at one moment, also beside a running server; gives the file."""
    path, temporary = directory / NAME, _temporary(directory)
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
