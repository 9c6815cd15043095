"""Places: files and folders here, or wherever Spark can write (`hdfs://`, `s3a://`, ..).

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
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
    from pyspark.sql import SparkSession

#: `s3a://bucket/x`; `file:` is this machine, and a name like `o:1` is one.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_PATTERN_SIGNS = "\\{}[]*?"
#: For the first question to a storage.
_IMPATIENT = MappingProxyType(
    {
        "ipc.client.connect.max.retries": "1",
        "ipc.client.connect.max.retries.on.timeouts": "1",
        "ipc.client.connect.timeout": "5000",
        "dfs.client.failover.max.attempts": "3",
        "dfs.webhdfs.socket.connect-timeout": "5s",
        "fs.s3a.attempts.maximum": "2",
        "fs.s3a.retry.limit": "2",
        "fs.s3a.connection.establish.timeout": "5000",
    }
)


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
        with self._reached() as (system, path):
            return bool(system.exists(path))

    def is_folder(self) -> bool:
        """Whether it is there, and a folder."""
        if self.path is not None:
            return self.path.is_dir()
        with self._reached() as (system, path):
            return bool(system.exists(path)) and bool(system.getFileStatus(path).isDirectory())

    def size_bytes(self) -> int:
        """Of a file."""
        if self.path is not None:
            return self.path.stat().st_size
        with self._reached() as (system, path):
            return int(system.getFileStatus(path).getLen())

    def entries(self) -> list[Found]:
        """What is in a folder, by name; nothing if it is not there."""
        found: list[Found] = []
        if self.path is not None:
            there = self.path.iterdir() if self.path.is_dir() else iter(())
            found += [Found(item.name, item.is_dir(), 0 if item.is_dir() else item.stat().st_size) for item in there]
        else:
            with self._reached() as (system, path):
                listed = system.listStatus(path) if self.is_folder() else ()
                for item in listed:
                    size = 0 if item.isDirectory() else int(item.getLen())
                    found.append(Found(str(item.getPath().getName()), bool(item.isDirectory()), size))
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

    def mark(self) -> str:
        """A digest that another content would not have: of a file, or of a folder's files and their names.

        On this machine files are read for it; elsewhere their sizes and times of change have to do.
        """
        if self.is_folder():
            told = "".join(f"{name} {(self / name).mark()}\n" for name in sorted(self.files()))
            return blake2b(told.encode(), digest_size=16).hexdigest()
        if self.path is not None:
            with self.path.open("rb") as file:
                return file_digest(file, "blake2b").hexdigest()[:32]
        with self._reached() as (system, path):
            status = system.getFileStatus(path)
            return f"{int(status.getLen())} {int(status.getModificationTime())}"

    def make(self) -> None:
        """Make the folder, and those above it."""
        if self.path is not None:
            with _told_of_disk("make", self.path):
                self.path.mkdir(parents=True, exist_ok=True)
        else:
            with self._reached() as (system, path):
                if not system.mkdirs(path):
                    raise UsageError(f"cannot make the folder {self.url}: the storage says no more")

    def remove(self) -> None:
        """Remove a file, or a folder with all that is in it; nothing if it is not there."""
        if self.path is not None:
            if self.path.is_dir() and not self.path.is_symlink():
                shutil.rmtree(self.path)
            else:
                self.path.unlink(missing_ok=True)
        else:
            with self._reached() as (system, path):
                system.delete(path, True)

    def read_bytes(self) -> bytes:
        """All of a file; FileNotFoundError if it is not there."""
        if self.path is not None:
            return self.path.read_bytes()
        with self._reached() as (system, path):
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
        with self._reached() as (system, path):
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
            with _told_of_disk("write", self.path):
                try:
                    part.write_bytes(content)
                    part.replace(self.path)
                finally:
                    part.unlink(missing_ok=True)
            return
        # An object store shows an object when it is closed; for all others it is written beside, and renamed.
        with self._reached() as (system, path):
            if _is_object_store(self.url):
                self._put(system.create(path, True), content)
                return
            beside = self._path(f"{self.parent.url}/.{self.name}.{os.getpid()}")
            self._put(system.create(beside, True), content)
            system.delete(path, False)
            if not system.rename(beside, path):
                raise UsageError(f"cannot write {self.url}: the storage does not rename the finished file to it")

    def write_text(self, text: str) -> None:
        """The same of text."""
        self.write_bytes(text.encode("utf-8"))

    def read_table(self) -> pa.Table:
        """A small Parquet file."""
        import pyarrow as pa
        import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types

        return pq.read_table(pa.BufferReader(self.read_bytes()))

    def write_table(self, table: pa.Table) -> None:
        """Write a Parquet file that is there whole or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        self.write_bytes(sink.getvalue().to_pybytes())

    def write_new(self, content: bytes) -> bool:
        """Write a file unless it is there; whether it was written. Of several that try at once one succeeds, except in
        object stores, which cannot promise that."""
        self.parent.make()
        if self.path is not None:
            try:
                with self.path.open("xb") as file:
                    file.write(content)
            except FileExistsError:
                return False
            return True
        with self._reached() as (system, path):
            if system.exists(path):
                return False
            try:
                self._put(system.create(path, False), content)
            except Exception:
                if system.exists(path):
                    return False
                raise
            return True

    def copy_from(self, file: Path) -> None:
        """Copy a file of this machine to here, whatever its size."""
        if self.path is not None:
            with _told_of_disk("write", self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, self.path)
            return
        self.parent.make()
        with self._reached() as (system, path):
            system.copyFromLocalFile(False, True, self._path(f"file:{file.resolve()}"), path)

    def check(self) -> None:
        """UsageError, after seconds, if the storage does not answer or lets us see nothing of this place.

        Hadoop asks a name node that is not there again and again, for up to a quarter of an hour: right for a job that
        runs, and wrong for a name that was mistyped. So the first question is asked with other settings.
        """
        if self.path is None:
            with self._reached(_IMPATIENT) as (system, path):
                system.exists(path)

    @staticmethod
    def _put(stream: Any, content: bytes) -> None:
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    @staticmethod
    def _path(name: str) -> Any:
        return _session(name).sparkContext._jvm.org.apache.hadoop.fs.Path(name)  # type: ignore[union-attr]

    @contextmanager
    def _reached(self, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[tuple[Any, Any]]:
        """Spark's file system for this place, and its name there; what goes wrong is told in a line."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # ships no types
        from pyspark.errors.exceptions.captured import CapturedException

        context = _session(self.url).sparkContext
        jvm: Any = context._jvm
        java: Any = context._jsc
        configuration = java.sc().hadoopConfiguration()
        try:
            path = jvm.org.apache.hadoop.fs.Path(self.url)
            if settings:
                configuration = jvm.org.apache.hadoop.conf.Configuration(configuration)
                for key, text in settings.items():
                    configuration.set(key, text)
                yield jvm.org.apache.hadoop.fs.FileSystem.newInstance(path.toUri(), configuration), path
            else:
                yield path.getFileSystem(configuration), path
        except Py4JJavaError as error:
            raise _told(error.java_exception, self.url) from error
        except CapturedException as error:  # what PySpark makes of some of them
            raise _told(error._origin, self.url) from error


@contextmanager
def _told_of_disk(what: str, path: Path) -> Iterator[None]:
    """A full disk, a folder that may not be written to and the like are the user's to mend, so they are told so."""
    try:
        yield
    except FileExistsError as error:
        raise UsageError(f"{path} is a file, not a folder") from error
    except OSError as error:
        raise UsageError(f"cannot {what} {path}: {error.strerror or error}") from error


def _session(url: str) -> SparkSession:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        raise UsageError(f"{url} is reached through Spark, and no Spark session is open")
    return session


def _told(exception: Any, url: str) -> Exception:
    """An error of Hadoop's file systems as ours."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0]
    text = ""
    while exception is not None:
        kind, text = str(exception.getClass().getSimpleName()), str(exception.getMessage() or "").strip().split("\n")[0]
        if kind == "FileNotFoundException":
            return FileNotFoundError(url)
        if kind == "UnsupportedFileSystemException" or (kind == "ClassNotFoundException" and "FileSystem" in text):
            return UsageError(
                f"{url}: Spark here cannot reach {scheme}:// (its file system is not among Spark's jars; s3a needs "
                "hadoop-aws and its SDK); give a path that all machines see, or hdfs://"
            )
        if kind in ("UnknownHostException", "ConnectException", "NoRouteToHostException", "ConnectTimeoutException"):
            said = re.sub(r"; For more details see: .*|^Call From .*Exception: ", "", text) or kind
            return UsageError(f"{url}: no answer from {host} ({kind}: {said}); is the address right, and does it run?")
        if kind in ("AccessControlException", "AccessDeniedException"):
            return UsageError(f"{url}: no permission: {text}")
        exception = exception.getCause()
    return UsageError(f"{url}: {text or 'the storage fails without a word'}")


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
