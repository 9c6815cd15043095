"""What Spark needs: a new enough Java, a cluster that answers, workers that can import this package."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.storage import Place, place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
#: How long a cluster's master may take to answer.
ANSWER_S = 5.0
#: How long its workers may take to give us executors, and how long none must come until we think that all are there.
EXECUTORS_S, SETTLED_S = 60.0, 1.0
#: How often executors are asked until all have answered.
ROUNDS = 5
#: What a replay imports in Spark's workers, and how many numbers of its version must be the same there and here.
IMPORTED = {
    "pyspark": 2,
    "hullcast": 3,
    "numpy": 2,
    "numba": 2,
    "pyarrow": 0,
    "hullcast.sim.traffic.replay": 0,
}
_MASTERS = r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?|local-cluster\[.+\]|k8s://.+"


def check_java() -> None:
    """Refuse to go on without a Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    help_text = f"install Java {OLDEST_JAVA} or newer, or let JAVA_HOME name it"
    if java is None:
        raise UsageError(f"Spark needs Java, and none is on the PATH; {help_text}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError(f"Spark needs Java, but {java} does not run: {error}; {help_text}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', said)  # 1.8 was Java 8
    if version is not None and int(version[1]) < OLDEST_JAVA:
        raise UsageError(f"{java} is Java {version[1]}, too old for Spark; {help_text}")


def check_master(master: str) -> None:
    """Refuse a name that is not a Spark master, and one that does not answer (Spark itself would wait for a minute)."""
    help_text = "give local[4], local[*], spark://host:7077, yarn or k8s://https://host:443"
    if master == "yarn":
        if not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
            raise UsageError("yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR, the folder with the cluster's settings")
    elif master.startswith("spark://"):
        addresses = [address.rpartition(":") for address in master.removeprefix("spark://").split(",")]
        if not all(host and port.isdigit() and int(port) < 65_536 for host, _, port in addresses):
            raise UsageError(f"{master} is not the address of a Spark master; write spark://host:7077")
        problems = [_no_answer(host.strip("[]"), int(port)) for host, _, port in addresses]
        if all(problems):
            raise UsageError(f"no Spark master answers at {master}: {problems[0]}; is it running?")
    elif not re.fullmatch(_MASTERS, master):
        raise UsageError(f"{master!r} is not a Spark master; {help_text}")


def _no_answer(host: str, port: int) -> str:
    """Why there is no answer from there; empty if there is one."""
    try:
        socket.create_connection((host, port), ANSWER_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python and what it could import: of a worker, or ours."""

    host: str
    program: str
    python: str
    versions: dict[str, str]  # of what it can import
    failures: dict[str, str]  # why it cannot import the rest


def is_local(master: str) -> bool:
    """Whether workers are processes of this machine that run the same Python as we do."""
    return master == "local" or master.startswith("local[")


def check_workers(spark: SparkSession) -> None:
    """UsageError, within seconds, if the cluster gives us no worker, or one that cannot run our Python code.

    Of workers that come later `worker_trouble` tells.
    """
    names = tuple(IMPORTED)

    # Inside a function, so that it is sent as code: workers could not import this module if the package is missing.
    def look(_: Iterable[int]) -> Iterator[Any]:
        import os
        import platform
        import socket
        import sys

        versions, failures = {}, {}
        for name in names:
            try:
                versions[name] = str(getattr(import_module(name), "__version__", ""))
            except Exception as error:  # noqa: BLE001  # whatever a broken package raises is what is to be told
                failures[name] = str(error) or type(error).__name__
        where = (socket.gethostname(), os.getcwd())
        yield where, (where[0], sys.executable, platform.python_version(), versions, failures)

    _wait_for_executors(spark)
    found = _asked(spark, look)
    problem = differences([Interpreter(*facts) for facts in found], Interpreter(*next(look(()))[1]))
    if problem:
        raise UsageError(problem)


def check_shared(spark: SparkSession, *, write: Iterable[Place | Path] = (), read: Iterable[Place | Path] = ()) -> None:
    """UsageError if a worker of a cluster does not see files or folders of this machine, or others of the same name.

    Without it each worker would write to a disk of its own, and whoever reads the results would miss most of them.
    """
    if is_local(spark.sparkContext.master or ""):
        return
    token = uuid4().hex
    probes = [_nearest(place.local) / f".hullcast-{token}" for place in map(place_of, write) if place.is_local]
    seen = [str(place.local.resolve()) for place in map(place_of, read) if place.is_local]
    if not probes and not seen:
        return
    try:
        for probe in probes:
            probe.mkdir()
            (probe / "driver").write_text(token)
        found = _asked(spark, _looker([str(probe.resolve()) for probe in probes], seen, token))
        for host, problems, written in found:
            unseen = [os.path.dirname(os.path.dirname(path)) for path in written if not os.path.exists(path)]
            problem = next(iter(problems), f"writes to another {unseen[0]} than we read" if unseen else "")
            if problem:
                raise UsageError(
                    f"the Spark worker on {host} {problem}; give a folder that all machines share, or a URL that all "
                    "can reach, such as hdfs://host/folder or s3a://bucket/folder"
                )
    except OSError as error:
        raise UsageError(f"cannot write to {error.filename}: {error.strerror}") from error
    finally:
        for probe in probes:
            shutil.rmtree(probe, ignore_errors=True)


def _looker(probes: Sequence[str], read: Sequence[str], token: str) -> Callable[[Iterable[int]], Any]:
    """What a worker does to see whether it shares our folders; sent as code, like `look` above."""

    def looks(path: str) -> tuple[str, object]:
        """What tells a file or folder from another of the same name: its size, or what is in it."""
        import os

        if os.path.isdir(path):
            return ("folder", sorted(os.listdir(path)))
        return ("file", os.path.getsize(path)) if os.path.exists(path) else ("nothing", None)

    expected = {path: looks(path) for path in read}

    def look(numbers: Iterable[int]) -> Iterator[Any]:
        import os
        import socket

        problems, written = [], []
        for path, there in expected.items():
            if looks(path) != there:
                problems.append(f"does not see {path} as it is here")
        for probe in probes:
            folder, mine = os.path.dirname(probe), os.path.join(probe, f"worker-{next(iter(numbers))}")
            try:
                with open(os.path.join(probe, "driver")) as file:
                    seen = file.read() == token
                with open(mine, "w") as file:
                    file.write(token)
                written.append(mine)
            except FileNotFoundError:
                seen = False
            except OSError as error:
                seen = True
                problems.append(f"cannot write to {folder} ({error.strerror})")
            if not seen:
                problems.append(f"does not see {folder} of this machine")
        where = (socket.gethostname(), os.getcwd())
        yield where, (where[0], problems, written)

    return look


def _nearest(path: Path) -> Path:
    """A folder, or the first above it that is there."""
    return next(place for place in (path.resolve(), *path.resolve().parents) if place.is_dir())


def _asked(spark: SparkSession, look: Callable[[Iterable[int]], Iterator[Any]]) -> list[Any]:
    """What `look` gives on all executors: pairs of where it ran and the answer.

    A task for every core reaches every executor that is idle. Should one have been left out, they are asked again.
    """
    context = spark.sparkContext
    found: dict[Any, Any] = {}
    for _ in range(ROUNDS):
        cores = context.defaultParallelism
        found |= dict(context.parallelize(range(cores), cores).mapPartitions(look).collect())
        if len(found) >= _executors(spark):
            break
    return list(found.values())


def _executors(spark: SparkSession) -> int:
    java: Any = spark.sparkContext._jsc
    others = int(java.sc().getExecutorMemoryStatus().size()) - 1  # the driver is one of them
    return others or int(is_local(spark.sparkContext.master or ""))  # and the only one of a local session


def _wait_for_executors(spark: SparkSession) -> None:
    """Wait until the cluster has given us something, and for a second nothing more; Spark would wait for ever."""
    begun = settled = monotonic()
    count = 0
    while (now := monotonic()) - settled < SETTLED_S or not count:
        if not count and now - begun > EXECUTORS_S:
            raise UsageError(
                f"{spark.sparkContext.master} has given us no executor within {EXECUTORS_S:.0f} s; does it have "
                "workers with cores and memory free, can they reach this machine, and is their Spark version "
                f"{spark.version}? (--conf spark.executor.memory=1g, spark.executor.cores, spark.driver.host)"
            )
        if (there := _executors(spark)) != count:
            count, settled = there, now
        sleep(0.1)


def differences(workers: Sequence[Interpreter], ours: Interpreter) -> str:
    """What keeps a worker from running our code, with the remedy, for the first such worker; empty if nothing does."""
    for worker in workers:
        faults = [f"cannot import {_listed(worker.failures)}"] if worker.failures else []
        faults += [
            f"has {name} {worker.versions[name]} (here: {ours.versions[name]})"
            for name, count in IMPORTED.items()
            if name in worker.versions and _first(worker.versions[name], count) != _first(ours.versions[name], count)
        ]
        if faults:
            said = (
                f"the Spark worker on {worker.host} {' and '.join(faults)} in {worker.program} (Python {worker.python})"
            )
            if _first(worker.versions.get("pyspark", ""), 2) != _first(ours.versions["pyspark"], 2):
                return f"{said}; driver and cluster need the same Spark, up to the second number"
            return f"{said}; {_remedy(ours.python, ours.versions['hullcast'])}"
    return ""


def worker_trouble(text: str) -> str:
    """The same, of a worker that failed with this text; empty if its Python ran and something else is wrong."""
    told = _remedy(platform.python_version())
    if program := re.search(r'Cannot run program "([^"]+)"', text):
        return f"a Spark worker has no Python {program[1]}; {told}"
    if version := re.search(r"Python in worker has different version: (.+?) than that in driver: ([\d.]+\d)", text):
        return f"a Spark worker runs Python {version[1]}, here it is {version[2]}; {told}"
    if module := re.search(r"^(?:ModuleNotFoundError|ImportError): (.+)$", text, re.MULTILINE):
        return f"a Spark worker cannot import what it needs ({module[1].strip()}); {told}"
    return ""


def _remedy(python: str, version: str = "") -> str:
    wanted, minor = f"hullcast[sim]{f'=={version}' if version else ''}", _first(python, 2)
    return (
        f"workers need Python {minor} (set PYSPARK_PYTHON here to its path there; default: python{minor}) and get the "
        f"packages from here, or from --env ARCHIVE; with --env none they need '{wanted}' too"
    )


def _listed(failures: dict[str, str]) -> str:
    """Names of packages, and what the first import said."""
    packages = [name for name in failures if "." not in name] or list(failures)
    return f"{', '.join(packages)} ({next(iter(failures.values()))})"


def _first(version: str, count: int) -> str:
    """`2.4` of 2.4.1; nothing where no part of the version matters."""
    return ".".join(version.split(".")[:count])
