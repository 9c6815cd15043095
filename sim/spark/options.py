"""What users may say about Spark: where it runs, its settings, and what it ships and logs."""

from __future__ import annotations

import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.storage import Place, place_of

#: `--env` for workers that have all packages installed.
INSTALLED = "none"
ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
#: Settings that have an option of their own, and those that decide what is found: with others, results would differ.
_ELSEWHERE = {
    "spark.master": "--master",
    "spark.driver.memory": "--driver-memory",
    "spark.ui.enabled": "--ui",
    "spark.eventLog.enabled": "--event-log",
    "spark.eventLog.dir": "--event-log",
}
_FIXED = ("spark.sql.session.timeZone", "spark.sql.sources.partitionColumnTypeInference.enabled")


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where and how Spark runs. The default is all cores of this machine."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)  # Spark's own settings; they win over ours
    env: str | None = None  # an archive with Python for the workers; INSTALLED: they have all; None: ours is shipped
    memory: str = "2g"  # of the driver
    ui: bool = False
    event_log: Place | None = None

    def __post_init__(self) -> None:
        for key in self.conf:
            if key in _ELSEWHERE:
                raise UsageError(f"{key} has an option of its own: {_ELSEWHERE[key]}")
            if key in _FIXED:
                raise UsageError(f"{key} decides what is found, so it cannot be set")
            if not re.fullmatch(r"spark(\.[^\s.=]+(/[^\s.=]*)*)+", key):
                raise UsageError(
                    f"{key!r} is not a setting of Spark; they begin with spark. (as in spark.executor.memory)"
                )
        if not re.fullmatch(r"[1-9]\d*[kmgt]b?", self.memory, re.IGNORECASE):
            raise UsageError(f"{self.memory!r} is not an amount of memory; write it as 800m or 4g")
        if self.env is not None and self.env != INSTALLED:
            self._check_archive(self.env)

    def _check_archive(self, env: str) -> None:
        if not env.endswith(ARCHIVES):
            raise UsageError(
                f"--env {env} is not an archive ({', '.join(ARCHIVES)}); pack an environment with venv-pack or "
                f"conda-pack, or give `{INSTALLED}` if the workers have all packages"
            )
        place = place_of(env)
        if not place.is_local:
            return
        if not place.local.is_file():
            raise UsageError(f"--env {env}: no such file")
        try:
            has_python = any(name.removeprefix("./") == "bin/python" for name in _names_in(place.local))
        except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
            raise UsageError(f"--env {env} cannot be unpacked: {error}") from error
        if not has_python:
            raise UsageError(
                f"--env {env} has no bin/python, which workers are to run; pack the environment itself, not a folder "
                "around it (venv-pack and conda-pack do)"
            )


def _names_in(archive: Path) -> Iterator[str]:
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as opened:
            yield from opened.namelist()
    else:
        with tarfile.open(archive) as tar:
            yield from (member.name for member in tar)


def settings_of(given: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` as often as it is given; the last one counts."""
    found = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UsageError(f"--conf {text!r} is not KEY=VALUE; write it as --conf spark.executor.memory=4g")
        found[key.strip()] = value
    return found
