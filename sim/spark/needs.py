"""What Spark needs: a Java that is new enough, a cluster that answers, and workers that can import this package."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
#: How long a cluster's master may take to answer.
ANSWER_S = 5.0
#: What a replay imports in Spark's workers, and how many numbers of its version must be the same there and here.
IMPORTED = {"hullcast": 3, "numpy": 2, "numba": 2, "pyarrow": 0, "hullcast.sim.traffic.replay": 0}
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
    """UsageError, within seconds, if a worker of the cluster cannot run our Python code.

    A task for every core reaches every executor that is there by now. Of those that come later `worker_trouble` tells.
    """
    names = tuple(IMPORTED)

    # Inside a function, so that it is sent as code: workers could not import this module if the package is missing.
    def look(_: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        import platform
        import socket
        import sys

        versions, failures = {}, {}
        for name in names:
            try:
                versions[name] = str(getattr(import_module(name), "__version__", ""))
            except Exception as error:  # noqa: BLE001  # whatever a broken package raises is what is to be told
                failures[name] = str(error) or type(error).__name__
        yield socket.gethostname(), sys.executable, platform.python_version(), versions, failures

    context = spark.sparkContext
    cores = context.defaultParallelism
    found = context.parallelize(range(cores), cores).mapPartitions(look).collect()
    problem = differences([Interpreter(*facts) for facts in found], Interpreter(*next(look(()))))
    if problem:
        raise UsageError(problem)


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
    wanted = f"hullcast[sim]{f'=={version}' if version else ''}"
    return (
        f"install Python {_first(python, 2)} and '{wanted}' on every worker, and set PYSPARK_PYTHON here to the path "
        "of that Python there (default: python3)"
    )


def _listed(failures: dict[str, str]) -> str:
    """Names of packages, and what the first import said."""
    packages = [name for name in failures if "." not in name] or list(failures)
    return f"{', '.join(packages)} ({next(iter(failures.values()))})"


def _first(version: str, count: int) -> str:
    """`2.4` of 2.4.1; nothing where no part of the version matters."""
    return ".".join(version.split(".")[:count])
