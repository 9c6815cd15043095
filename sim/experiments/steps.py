"""A folder of finished steps: each counts when it is whole, so a run can be continued.

    OUT/run.json            the settings of the run; --resume goes on only with the same ones
    OUT/steps/NAME/         a step: its files, and step.json with its fingerprint and the files' sizes

OUT is any place that Spark can write to. Not all of them can rename a folder, so nothing is renamed: `step.json` is
written last, and a step without one is unfinished. It is removed, at the latest when the next run begins. A step whose
files have other sizes than it was left with (a full disk, a broken copy) is made again.

A run that finished no step leaves nothing to continue: its folder counts as empty, whatever its settings were.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow has no types

from hullcast.broker.log.directory import DirectoryLock
from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.storage import Place, place_of

#: Raised when what steps compute or write changes: steps of another version are not reused.
VERSION = 2
_LOCK = "lock"  # the name `DirectoryLock` uses
_RUN, _STEP, _STEPS = "run.json", "step.json", "steps"


class RunFolder:
    """Where a run puts its steps. One process at a time has it, for `with`.

    `folder` is where reports, tables and pictures are written, always on this machine: OUT itself, or a folder whose
    files are copied to OUT when the block ends.
    """

    def __init__(self, out: Place | Path | str, settings: Mapping[str, object], *, resume: bool) -> None:
        """UsageError if the folder has something in it and `resume` is not set, or was made with other settings."""
        self.place = place_of(out)
        self.folder = self.place.local if self.place.is_local else Path()
        self.reused: list[str] = []  # steps of an earlier run
        self._made: set[str] = set()
        self._settings = json.loads(json.dumps({"version": VERSION, **settings}))
        self._steps = self.place / _STEPS
        self._resume = resume
        self._ends = ExitStack()
        self.is_new = True  # or there is something to continue

    def __enter__(self) -> Self:
        with ExitStack() as ends:
            try:
                self._made_folder = not self.place.exists()
                self.place.make()
                self._look()
            except OSError as error:
                raise UsageError(f"cannot use {self.place} for results: {error.strerror}") from error
            if self.place.is_local:
                ends.callback(DirectoryLock(self.folder).release)
            else:
                self.folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="hullcast-")))
                ends.callback(_locked(self.place / _LOCK))
            self._look()  # again: another run may have had the folder a moment ago
            self._agree()
            self._steps.make()
            self._sweep()
            self._ends = ends.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        with self._ends:
            if not self.place.is_local:
                self._copy(failed=kind is not None)
            if self.is_new and not self.finished_steps():
                self._remove()

    def finished_steps(self) -> list[Place]:
        """The folders of all steps that are there, of this run or of earlier ones; whether whole is not looked at."""
        return [place for place in self._all_steps() if (place / _STEP).exists()]

    def step(self, name: str, settings: Mapping[str, object], make: Callable[[Place], object]) -> Place:
        """The folder of a finished step; `make` fills it, unless it is there already with the same settings.

        `make` raises if what it wrote is not what it should have written (rows, events): nothing is left then.
        """
        place, mark = self._steps / name, fingerprint({**self._settings, "step": name, **settings})
        if self._finished(place, mark):
            if name not in self._made:
                self.reused.append(name)
            return place
        place.remove()  # of other settings, or damaged
        place.make()
        try:
            make(place)
            told = {"fingerprint": mark, "settings": settings, "files": _sizes(place)}
            (place / _STEP).write_text(json.dumps(told, indent=1, default=str))
        except BaseException:
            with suppress(Exception):  # the storage may be what failed; without step.json the rest does not count
                place.remove()
            raise
        self._made.add(name)
        return place

    def _all_steps(self) -> list[Place]:
        return [self._steps / item.name for item in self._steps.entries() if item.is_folder]

    def _finished(self, place: Place, mark: str) -> bool:
        try:
            told = json.loads((place / _STEP).read_text())
        except (OSError, ValueError):
            return False
        return isinstance(told, dict) and told.get("fingerprint") == mark and told.get("files") == _sizes(place)

    def _sweep(self) -> None:
        for place in self._all_steps():
            if not (place / _STEP).exists():
                place.remove()

    def _copy(self, *, failed: bool) -> None:
        """Put reports and pictures where the steps are."""
        try:
            for name in Place(self.folder).files():
                (self.place / name).copy_from(self.folder / name)
        except Exception:
            if not failed:  # or it is of no interest beside what happened before
                raise

    def _remove(self) -> None:
        """Leave nothing of a run that finished no step: the next one may have other settings."""
        with suppress(OSError, UsageError):  # whatever is in the way stays, and the folder still counts as empty
            self._sweep()
            if not self._steps.entries():
                self._steps.remove()
            (self.place / _RUN).remove()
            left = {item.name for item in self.place.entries()} - {_LOCK}
            if self._made_folder and not left:
                self.place.remove()

    def _look(self) -> None:
        """Whether there is something to continue; UsageError if there is, and `resume` is not set."""
        there = {item.name for item in self.place.entries()} - {_LOCK}
        self.is_new = there <= {_RUN, _STEPS} and not self.finished_steps()
        if not self.is_new and not self._resume:
            raise UsageError(f"{self.place} is not empty; continue the run in it with --resume, or give another --out")

    def _agree(self) -> None:
        path = self.place / _RUN
        before = self._settings_before(path)
        if self.is_new:
            path.write_text(json.dumps(self._settings, indent=1) + "\n")
        elif before != self._settings:
            names = sorted(before.keys() | self._settings.keys())
            other = [name for name in names if before.get(name) != self._settings.get(name)]
            told = ", ".join(f"{name} {before.get(name)} (now {self._settings.get(name)})" for name in other)
            raise UsageError(
                f"{self.place} was made with other settings: {told}; give the same settings, or another --out"
            )

    def _settings_before(self, path: Place) -> dict[str, object]:
        try:
            before = json.loads(path.read_text())
        except FileNotFoundError:
            if self.is_new:
                return {}
            raise UsageError(f"{self.place} has no {_RUN}: it holds no run to continue; give another --out") from None
        except (OSError, ValueError):
            before = None
        if not isinstance(before, dict) or "version" not in before:
            remedy = f"remove {self.place} to start over, or give another --out"
            raise UsageError(f"{path} is damaged or does not belong to a run; {remedy}")
        return before


def _locked(file: Place) -> Callable[[], None]:
    """Lock a folder that is not on this machine: what unlocks it.

    The lock is a file that says who has the folder. Unlike a lock of the operating system it outlives a process that is
    killed. If that was on this machine, it is seen and the lock is taken over; if not, a user has to remove the file.
    Object stores may let two runs lock at the same moment: so it is read again, which makes that unlikely, not
    impossible.
    """
    mine = {"host": socket.gethostname(), "process": os.getpid(), "since": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"}
    content = json.dumps(mine | {"token": uuid4().hex}).encode()
    if not file.write_new(content):
        try:
            other = json.loads(file.read_text())
            host, process, since = str(other["host"]), int(other["process"]), str(other["since"])
        except (ValueError, KeyError, TypeError, FileNotFoundError):
            raise UsageError(f"{file.parent} is in use by another run; if that has ended, remove {file}") from None
        if host != mine["host"] or not _is_gone(process):
            raise UsageError(
                f"{file.parent} is in use by process {process} on {host} since {since}; if that process has ended, "
                f"remove {file}"
            )
        file.write_bytes(content)
    if file.read_bytes() != content:
        raise UsageError(f"{file.parent} is in use: another run has begun in it just now")
    return file.remove


def _is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return process == os.getpid()  # of an earlier run in this process, which cannot be under way


def _sizes(place: Place) -> dict[str, int]:
    """The files of a step and their sizes."""
    return {name: size for name, size in place.files().items() if name != _STEP}


def fingerprint(settings: Mapping[str, object]) -> str:
    """A digest of settings, the same in every process."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def file_mark(path: Place | Path | None) -> str | None:
    """The name of a file or a folder and a digest of its contents (`Place.mark`): for settings, which must tell two of
    one name apart."""
    if path is None:
        return None
    try:
        return f"{path.name} {place_of(path).mark()}"
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or 'it is not there'}") from error


def write_rows(rows: Iterable[Mapping[str, Any]], path: Place | Path) -> None:
    """Write a small table as Parquet, there whole or not at all."""
    place_of(path).write_table(pa.Table.from_pylist(list(map(dict, rows))))


def read_rows(path: Place | Path) -> list[dict[str, Any]]:
    """What `write_rows` wrote; UsageError if it is damaged."""
    try:
        return list(place_of(path).read_table().to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from error


def damaged(path: Place | Path, error: Exception) -> UsageError:
    """The error that a step's file is not what was written."""
    return UsageError(f"{path} is damaged ({error}); remove the folder {path.parent} and continue with --resume")
