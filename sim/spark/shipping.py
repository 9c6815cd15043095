"""What is sent to a cluster's workers: this package with its kernels, and the packages it imports.

    packages-MARK.tgz   numpy, numba, pyarrow, ..: as installed here; large, and the same for weeks
    hullcast-MARK.tgz   our sources, and the compiled kernels that are there; small, made again at each change

Both are Spark archives: every executor fetches them from the driver and unpacks them once into its working folder,
where PYTHONPATH finds them. A worker thus needs Spark, and a Python of our minor version with nothing installed. The
kernels find their compiled code beside the sources if the processor is the same; if not, each executor compiles once.

They are kept in the user's cache folder under a mark of all versions and files in them, and go away when they have not
been used for a week.
"""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from re import match

import hullcast
from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.options import INSTALLED, SparkOptions
from hullcast.sim.spark.storage import place_of

#: What our code imports in workers, beside pyspark, which comes with Spark; what these need themselves comes along.
PACKAGES = ("numpy", "numba", "pyarrow", "msgpack", "sqlglot", "sortedcontainers")
#: Parts of packages that nobody imports there.
_LEFT_OUT = frozenset({"tests", "include", "src"})
_LEFT_OUT_FILES = (".pyi", ".pyx", ".pxd", ".a", ".h", ".hpp", ".c", ".cpp")
#: Compressing more takes longer than sending.
_LEVEL = 1
_UNUSED_S = 7 * 86_400
_OURS, _THEIRS, _GIVEN = "hullcast-code", "hullcast-packages", "hullcast-environment"

#: Where a file is here, and where it goes.
Files = dict[str, Path]


def shipped(options: SparkOptions) -> tuple[dict[str, str], str]:
    """Spark's settings for a cluster's executors, and the Python that they run; archives are made if need be."""
    python = os.environ.get("PYSPARK_PYTHON") or f"python{sys.version_info.major}.{sys.version_info.minor}"
    if options.env == INSTALLED:
        return {}, python
    if options.env is not None:
        given = place_of(options.env)
        return _settings([f"{given.to_write}#{_GIVEN}"], [], options.conf), f"./{_GIVEN}/bin/python"
    theirs, ours = archive("packages", package_files()), archive("hullcast", our_files())
    archives = [f"file:{theirs}#{_THEIRS}", f"file:{ours}#{_OURS}"]
    return _settings(archives, [_OURS, _THEIRS], options.conf), python


def _settings(archives: list[str], paths: list[str], given: Mapping[str, str]) -> dict[str, str]:
    """Ours beside what the user has set."""
    path_key, archives_key = "spark.executorEnv.PYTHONPATH", "spark.archives"
    settings = {archives_key: ",".join(filter(None, [given.get(archives_key, ""), *archives]))}
    if paths:
        settings[path_key] = os.pathsep.join(filter(None, [*paths, given.get(path_key, "")]))
    return settings


def our_files() -> Files:
    """The sources of this package, through the links to its four folders, and the kernels that are compiled."""
    from hullcast.network.compiling import code_folder

    assert hullcast.__file__ is not None
    top = Path(hullcast.__file__).parent
    found: Files = {}
    for folder, folders, names in os.walk(top, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        under = Path(top.name, Path(folder).relative_to(top))
        found |= {str(under / name): Path(folder, name) for name in names if name.endswith((".py", ".md"))}
        # numba names the folder by where the sources are, links followed
        for place in (code_folder(Path(folder).resolve()), Path(folder, "__pycache__")):
            code = (path for end in ("nbi", "nbc") for path in place.glob(f"*.{end}"))
            found |= {str(under / "__pycache__" / path.name): path for path in code}
    return found


def package_files() -> Files:
    """All files of PACKAGES and of what they need, as they are in site-packages."""
    found: Files = {}
    for distribution in distributions(PACKAGES):
        for file in distribution.files or ():
            parts = file.parts
            unwanted = ".." in parts or _LEFT_OUT.intersection(parts[1:]) or file.name.endswith(_LEFT_OUT_FILES)
            path = Path(str(file.locate()))
            if not unwanted and path.is_file():
                found[file.as_posix()] = path
    return found


def distributions(names: Iterable[str]) -> list[metadata.Distribution]:
    """Installed distributions by their names, and all that they cannot do without."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name in PACKAGES:
                raise UsageError(f"{name} is not installed here; install it with pip install 'hullcast[sim]'") from None
            continue  # for another system or version of Python
        for need in found[name].requires or ():
            needed = match(r"[\w.-]+", need)
            if needed is not None and "extra ==" not in need:
                waiting.append(needed[0])
    return list(found.values())


def archive(name: str, files: Files) -> Path:
    """An archive of these files, from the cache folder or made now."""
    mark = blake2b(digest_size=12)
    for inside, path in sorted(files.items()):
        status = path.stat()
        mark.update(f"{inside} {status.st_size} {status.st_mtime_ns}\n".encode())
    folder = _cache()
    made = folder / f"{name}-{mark.hexdigest()}.tgz"
    try:
        _forget(folder)
        if made.exists():
            os.utime(made)
            return made
        with _making(made) as part, tarfile.open(part, "w:gz", compresslevel=_LEVEL) as tar:
            for inside, path in sorted(files.items()):
                tar.add(path.resolve(), inside, recursive=False)
    except OSError as error:
        raise UsageError(
            f"cannot write {made}, which the workers need: {error.strerror or error}; make room, set XDG_CACHE_HOME "
            f"to another folder, or use --env {INSTALLED} if the workers have all packages"
        ) from error
    return made


@contextmanager
def _making(file: Path) -> Iterator[Path]:
    """A name to write a file under that appears whole or not at all; says so if it takes long."""
    if file.name.startswith("packages"):
        print("packing the Python packages that workers need .. (once, about half a minute)", file=sys.stderr)
    number, part = tempfile.mkstemp(prefix=".making-", dir=file.parent)
    os.close(number)
    try:
        yield Path(part)
        os.replace(part, file)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    base = Path(home) / "hullcast" if os.path.isabs(home) else Path(tempfile.gettempdir(), f"hullcast-{os.geteuid()}")
    folder = base / "spark"
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make {folder} for what the workers need: {error.strerror}; set XDG_CACHE_HOME to another folder"
        ) from error
    return folder


def _forget(folder: Path) -> None:
    """Remove what nobody has used for a week, or was left by a process that was killed."""
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process does the same
            if time.time() - path.stat().st_mtime > _UNUSED_S:
                path.unlink()
