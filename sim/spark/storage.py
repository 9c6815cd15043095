"""Places: files and folders on this machine, or wherever else Spark can write (`hdfs://`, `s3a://`, `viewfs://`, ..).

What Spark writes and what we write beside it go to the same place by the same way: for another scheme than `file:` that
is Spark's own file system, with its settings and its credentials, which needs an open session. A place of this machine
needs none.

    trace = place_of("s3a://bucket/trace")
    (trace / "trace.json").read_bytes()
    spark.read.parquet((trace / "events").to_read)

Object stores rename nothing, and a folder is there as soon as something is in it. So nothing here renames: a file
appears whole or not at all (`write_bytes`), and whoever writes several files writes the one that vouches for them last.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: `s3a://bucket/x`; `file:` is this machine, and a name like `o:1` is one.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_PATTERN_SIGNS = "\\{}[]*?"


@dataclass(frozen=True, slots=True)
class Found:
    """What is in a folder."""

    name: str
    is_folder: bool
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Place:
    """A file or a folder, or where one will be. `path` names it on this machine; else `url` in another storage."""

    path: Path | None
    url: str = ""

    def __str__(self) -> str:
        return str(self.path) if self.path is not None else self.url

    def __truediv__(self, name: str) -> Place:
        if self.path is not None:
            return Place(self.path / name)
        return Place(None, f"{self.url.rstrip('/')}/{name}")

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine, or on a disk that this machine mounts."""
        return self.path is not None

    @property
    def local(self) -> Path:
        """Where it is on this machine."""
        assert self.path is not None, f"{self.url} is not on this machine"
        return self.path

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.name if self.path is not None else self.url.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Place:
        """The folder it is in."""
        return (
            Place(self.path.parent) if self.path is not None else Place(None, self.url.rstrip("/").rpartition("/")[0])
        )

    @property
    def to_write(self) -> str:
        """As Spark takes it where it writes."""
        return f"file:{self.path.resolve()}" if self.path is not None else self.url

    @property
    def to_read(self) -> str:
        """As Spark takes it where it looks for patterns: the file `o[1]`, not what matches it."""
        return "".join("\\" + sign if sign in _PATTERN_SIGNS else sign for sign in self.to_write)

    def exists(self) -> bool:
        """Whether it is there."""
        if self.path is not None:
            return self.path.exists()
        system, path = self._hadoop()
        return bool(system.exists(path))

    def is_folder(self) -> bool:
        """Whether it is there, and a folder."""
        if self.path is not None:
            return self.path.is_dir()
        system, path = self._hadoop()
        return bool(system.exists(path)) and bool(system.getFileStatus(path).isDirectory())

    def size_bytes(self) -> int:
        """Of a file."""
        if self.path is not None:
            return self.path.stat().st_size
        system, path = self._hadoop()
        return int(system.getFileStatus(path).getLen())

    def entries(self) -> list[Found]:
        """What is in a folder, by name; nothing if it is not there."""
        if self.path is not None:
            there = self.path.iterdir() if self.path.is_dir() else iter(())
            found = [Found(item.name, item.is_dir(), 0 if item.is_dir() else item.stat().st_size) for item in there]
        else:
            system, path = self._hadoop()
            listed = system.listStatus(path) if self.is_folder() else ()
            found = [
                Found(str(item.getPath().getName()), bool(item.isDirectory()), int(item.getLen())) for item in listed
            ]
        return sorted(found, key=lambda item: item.name)

    def files(self) -> dict[str, int]:
        """All files below a folder, by the way from it to them, and their sizes."""
        return dict(self._below(""))

    def _below(self, before: str) -> Iterator[tuple[str, int]]:
        for item in self.entries():
            if item.is_folder:
                yield from (self / item.name)._below(f"{before}{item.name}/")
            else:
                yield f"{before}{item.name}", item.size_bytes

    def make(self) -> None:
        """Make the folder, and those above it."""
        if self.path is not None:
            self.path.mkdir(parents=True, exist_ok=True)
        else:
            system, path = self._hadoop()
            system.mkdirs(path)

    def remove(self) -> None:
        """Remove a file, or a folder with all that is in it; nothing if it is not there."""
        if self.path is not None:
            if self.path.is_dir() and not self.path.is_symlink():
                shutil.rmtree(self.path)
            else:
                self.path.unlink(missing_ok=True)
        else:
            system, path = self._hadoop()
            system.delete(path, True)

    def read_bytes(self) -> bytes:
        """All of a file; FileNotFoundError if it is not there."""
        if self.path is not None:
            return self.path.read_bytes()
        system, path = self._hadoop()
        if not system.exists(path):
            raise FileNotFoundError(self.url)
        stream = system.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def read_start(self, most: int) -> bytes:
        """The first bytes of a file, up to so many."""
        if self.path is not None:
            with self.path.open("rb") as file:
                return file.read(most)
        system, path = self._hadoop()
        if not system.exists(path):
            raise FileNotFoundError(self.url)
        stream = system.open(path)
        try:
            return bytes(stream.readNBytes(most))
        finally:
            stream.close()

    def read_text(self) -> str:
        """All of a file as text."""
        return self.read_bytes().decode("utf-8")

    def write_bytes(self, content: bytes) -> None:
        """Write a file that is there whole or not at all; the folder it is in is made."""
        self.parent.make()
        if self.path is not None:
            part = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            part.write_bytes(content)
            part.replace(self.path)
            return
        # An object store shows an object when it is closed; for all others it is written beside, and renamed.
        system, path = self._hadoop()
        if _is_object_store(self.url):
            self._put(system, path, content)
            return
        beside, beside_path = (self.parent / f".{self.name}.{os.getpid()}")._hadoop()
        self._put(beside, beside_path, content)
        system.delete(path, False)
        if not system.rename(beside_path, path):
            raise OSError(f"cannot rename {beside_path} to {path}")

    def write_text(self, text: str) -> None:
        """The same of text."""
        self.write_bytes(text.encode("utf-8"))

    @staticmethod
    def _put(system: Any, path: Any, content: bytes) -> None:
        stream = system.create(path, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def _hadoop(self) -> tuple[Any, Any]:
        """Spark's file system for this place, and its name there."""
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is None:
            raise UsageError(f"{self.url} is reached through Spark, and no Spark session is open")
        jvm: Any = session.sparkContext._jvm
        java: Any = session.sparkContext._jsc
        path = jvm.org.apache.hadoop.fs.Path(self.url)
        return path.getFileSystem(java.sc().hadoopConfiguration()), path


def place_of(name: Place | Path | str) -> Place:
    """The place that a user names: a path of this machine (also as `file:..`), or a URL that Spark understands."""
    if isinstance(name, Place):
        return name
    if isinstance(name, Path):
        return Place(name)
    if name.startswith("file:"):
        return Place(Path(re.sub(r"^file:(//(localhost)?(?=/))?", "", name)))
    found = _SCHEME.fullmatch(name)
    if found is None:
        return Place(Path(name))
    if not found[2].strip("/"):
        raise UsageError(f"{name} names a storage, but no folder in it; write {found[1]}://host/folder")
    return Place(None, name.rstrip("/"))


def _is_object_store(url: str) -> bool:
    return url.partition(":")[0].lower() in ("s3a", "s3", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cosn")
