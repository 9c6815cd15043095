"""A folder of finished steps: each appears whole or not at all, so that a run can be interrupted and continued.

    OUT/run.json            the settings of the run; --resume goes on only with the same ones
    OUT/steps/NAME/         a finished step: its files, and step.json with its fingerprint and the files' sizes
    OUT/steps/.making-..    a step under way, or what a killed run left of one; swept away at the next start

A step writes into a folder with a temporary name, which gets its own name when all is there. Renaming is one action of
the file system: there is no moment at which a half-written step looks finished. A step whose files have other sizes
than it was left with (a full disk, a broken copy) is made again.

A run that finished no step leaves nothing to continue: its folder counts as empty, whatever its settings were.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Self

from hullcast.broker.log.directory import DirectoryLock
from hullcast.network.wire.errors import UsageError

#: Raised when what steps compute or write changes: steps of another version are not reused.
VERSION = 2
_MAKING = ".making-"
_LOCK = "lock"  # the name `DirectoryLock` uses
_RUN, _STEP = "run.json", "step.json"


class RunFolder:
    """Where a run puts its steps. One process at a time has it, for `with`."""

    def __init__(self, folder: Path, settings: Mapping[str, object], *, resume: bool) -> None:
        """UsageError if the folder has something in it and `resume` is not set, or was made with other settings."""
        self.folder = folder
        self.reused: list[str] = []  # steps of an earlier run
        self._made: set[str] = set()
        self._settings = json.loads(json.dumps({"version": VERSION, **settings}))
        self._steps = folder / "steps"
        self._resume = resume
        self.is_new = True  # or there is something to continue

    def __enter__(self) -> Self:
        try:
            was_there = self.folder.exists()
            self.folder.mkdir(parents=True, exist_ok=True)
            self._look()
        except OSError as error:
            raise UsageError(f"cannot use {self.folder} for results: {error.strerror}") from error
        self._made_folder = not was_there
        self._lock = DirectoryLock(self.folder)
        try:
            self._look()  # again: another run may have had the folder a moment ago
            self._agree()
            self._steps.mkdir(exist_ok=True)
            self._sweep()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        if self.is_new and not self.finished_steps():
            self._remove()
        self._lock.release()

    def finished_steps(self) -> list[Path]:
        """The folders of all steps that are there, of this run or of earlier ones; whether whole is not looked at."""
        if not self._steps.is_dir():
            return []
        return sorted(place for place in self._steps.iterdir() if not place.name.startswith(_MAKING))

    def step(self, name: str, settings: Mapping[str, object], make: Callable[[Path], None]) -> Path:
        """The folder of a finished step; `make` fills it, unless it is there already with the same settings."""
        place, mark = self._steps / name, fingerprint({**self._settings, "step": name, **settings})
        if self._finished(place, mark):
            if name not in self._made:
                self.reused.append(name)
            return place
        making = self._steps / f"{_MAKING}{name}"
        shutil.rmtree(making, ignore_errors=True)  # of a step that failed in this very run
        making.mkdir()
        make(making)
        told = {"fingerprint": mark, "settings": settings, "files": _sizes(making)}
        (making / _STEP).write_text(json.dumps(told, indent=1, default=str))
        if place.exists():  # of other settings: out of the way under a name that is swept
            place.rename(self._steps / f"{_MAKING}old-{name}-{os.getpid()}")
        making.rename(place)
        self._made.add(name)
        return place

    def _finished(self, place: Path, mark: str) -> bool:
        try:
            told = json.loads((place / _STEP).read_text())
        except (OSError, ValueError):
            return False
        return isinstance(told, dict) and told.get("fingerprint") == mark and told.get("files") == _sizes(place)

    def _sweep(self) -> None:
        for left in self._steps.glob(f"{_MAKING}*"):
            shutil.rmtree(left)

    def _remove(self) -> None:
        """Leave nothing of a run that finished no step: the next one may have other settings."""
        with suppress(OSError):  # whatever is in the way stays, and the folder still counts as empty
            self._sweep()
            self._steps.rmdir()
            (self.folder / _RUN).unlink()
            if self._made_folder:
                (self.folder / _LOCK).unlink()
                self.folder.rmdir()

    def _look(self) -> None:
        """Whether there is something to continue; UsageError if there is, and `resume` is not set."""
        there = {entry.name for entry in self.folder.iterdir()} - {_LOCK}
        self.is_new = there <= {_RUN, self._steps.name} and not self.finished_steps()
        if not self.is_new and not self._resume:
            raise UsageError(f"{self.folder} is not empty; continue the run in it with --resume, or give another --out")

    def _agree(self) -> None:
        path = self.folder / _RUN
        before = self._settings_before(path)
        if self.is_new:
            write_text(path, json.dumps(self._settings, indent=1) + "\n")
        elif before != self._settings:
            names = sorted(before.keys() | self._settings.keys())
            other = [name for name in names if before.get(name) != self._settings.get(name)]
            told = ", ".join(f"{name} {before.get(name)} (now {self._settings.get(name)})" for name in other)
            raise UsageError(
                f"{self.folder} was made with other settings: {told}; give the same settings, or another --out"
            )

    def _settings_before(self, path: Path) -> dict[str, object]:
        try:
            before = json.loads(path.read_text())
        except FileNotFoundError:
            if self.is_new:
                return {}
            raise UsageError(f"{self.folder} has no {_RUN}: it holds no run to continue; give another --out") from None
        except (OSError, ValueError):
            before = None
        if not isinstance(before, dict) or "version" not in before:
            remedy = f"remove {self.folder} to start over, or give another --out"
            raise UsageError(f"{path} is damaged or does not belong to a run; {remedy}")
        return before


def _sizes(place: Path) -> dict[str, int]:
    """The files of a step and their sizes."""
    files = sorted(path for path in place.rglob("*") if path.is_file() and path != place / _STEP)
    return {path.relative_to(place).as_posix(): path.stat().st_size for path in files}


def fingerprint(settings: Mapping[str, object]) -> str:
    """A digest of settings, the same in every process."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def file_mark(path: Path | None) -> str | None:
    """A file's name and a digest of its contents: for settings, which must tell two files of one name apart."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return f"{path.name} {file_digest(file, 'blake2b').hexdigest()[:32]}"
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)
