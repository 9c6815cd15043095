"""A folder of finished steps: each appears whole or not at all, so that a run can be broken off and continued.

    OUT/run.json            the settings of the run; --resume goes on only with the same ones
    OUT/steps/NAME/         a finished step: its files, and step.json with its fingerprint
    OUT/steps/.making-..    a step under way, or what a killed run left of one; swept away at the next start

A step writes into a folder with a temporary name, which gets its own name when all is there. Renaming is one action of
the file system: there is no moment at which a half-written step looks finished.
"""

from __future__ import annotations

import json
import os
import shutil
from hashlib import blake2b, file_digest
from typing import TYPE_CHECKING, Self

from broker.log.lock import DirectoryLock
from network.wire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

#: Raised when what steps compute or write changes: steps of another version are not reused.
VERSION = 1
_MAKING = ".making-"
_LOCK = "lock"  # the name `DirectoryLock` uses


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

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            there = {entry.name for entry in self.folder.iterdir()} - {_LOCK}
        except OSError as error:
            raise UsageError(f"cannot use {self.folder} for results: {error.strerror}") from error
        if there and not self._resume:
            raise UsageError(
                f"{self.folder} is not empty; --resume goes on with a run begun there, or give another --out"
            )
        self._lock = DirectoryLock(self.folder)
        try:
            self._agree(bool(there))
            self._steps.mkdir(exist_ok=True)
            for left in self._steps.glob(f"{_MAKING}*"):
                shutil.rmtree(left)
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

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
        (making / "step.json").write_text(
            json.dumps({"fingerprint": mark, "settings": settings}, indent=1, default=str)
        )
        if place.exists():  # of other settings: out of the way under a name that is swept
            place.rename(self._steps / f"{_MAKING}old-{name}-{os.getpid()}")
        making.rename(place)
        self._made.add(name)
        return place

    def finished(self, name: str, settings: Mapping[str, object]) -> bool:
        """Whether a step is there already."""
        return self._finished(self._steps / name, fingerprint({**self._settings, "step": name, **settings}))

    def _finished(self, place: Path, mark: str) -> bool:
        try:
            return bool(json.loads((place / "step.json").read_text())["fingerprint"] == mark)
        except (FileNotFoundError, KeyError, ValueError):
            return False

    def _agree(self, begun: bool) -> None:
        path = self.folder / "run.json"
        if not begun:
            write_text(path, json.dumps(self._settings, indent=1) + "\n")
            return
        try:
            before = json.loads(path.read_text())
        except (OSError, ValueError):
            raise UsageError(f"{self.folder} has no run.json: no run was begun there; give another --out") from None
        if before != self._settings:
            names = sorted(before.keys() | self._settings.keys())
            other = [name for name in names if before.get(name) != self._settings.get(name)]
            told = ", ".join(f"{name} {before.get(name)} (now {self._settings.get(name)})" for name in other)
            raise UsageError(f"{self.folder} was made with other settings: {told}; give the same, or another --out")


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
