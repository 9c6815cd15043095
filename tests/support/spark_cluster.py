"""A Spark cluster on this machine: a standalone master and workers, each with a bare Python and folders of its own.

Where the operating system lets us, a worker has a mount namespace in which the driver's folder is empty: two machines
that share no disk. What they do share is a storage of its own, `webhdfs://`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 300.0


@dataclass
class SparkCluster:
    """What a test needs of it."""

    master: str
    folder: Path  # the driver's, which no worker sees
    shared: Path  # a folder that all see
    python: Path  # the workers', with nothing installed
    storage: str  # a URL that all see
    stored: Path  # where the storage keeps it, to look at
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def hullcast(self, *words: str, cluster: bool = True, timeout: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, on the cluster or on this machine."""
        process = self.start(*words, cluster=cluster)
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def start(self, *words: str, cluster: bool = True) -> subprocess.Popen[str]:
        """Start a command."""
        where = ["--master", self.master if cluster else "local[2]"]
        if cluster:  # ports and addresses on loopback
            where += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
        return subprocess.Popen(
            [sys.executable, "-m", "hullcast", "sim", *words, *where],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(self.python)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_worker(self, number: int) -> None:
        """As a machine that loses its power: the worker and its executors are gone at once."""
        worker = self.workers[number]
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def private_mounts() -> str:
    """Why workers cannot have file systems of their own here; empty if they can."""
    if shutil.which("unshare") is None:
        return "no unshare here"
    done = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], check=False, capture_output=True, text=True
    )
    return "" if done.returncode == 0 else f"no mount namespaces for this user: {done.stderr.strip()}"


@contextmanager
def spark_cluster(folder: Path, *, workers: int = 2, hidden: bool = True) -> Iterator[SparkCluster]:
    """Master, workers with one core each, and storage, all on loopback, at ports of the system's choice."""
    import pyspark

    home = Path(pyspark.__file__).parent
    driver, shared, stored = (folder / name for name in ("driver", "shared", "stored"))
    for made in (driver, shared, stored):
        made.mkdir()
    venv.create(folder / "bare", with_pip=False)
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "SPARK", "PYSPARK"))
    }
    environment |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_MASTER_OPTS"] = "-Dspark.master.rest.enabled=false"  # it would take port 6066
    hide = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{driver}" && exec "$@"', "sh"] if hidden else []

    with ExitStack() as ends:

        def start(name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
            with (folder / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            ends.callback(_end, process)
            return process

        def of_spark(kind: str, *words: str) -> list[str]:
            common = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            return [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *common, *words]

        start("master", of_spark("master.Master"))
        master = wait_for(folder / "master.log", r"Starting Spark master at (spark://\S+)")
        environment["PYTHONPATH"] = str(ROOT)
        start("storage", [sys.executable, "-m", "tests.support.webhdfs", str(stored)])
        del environment["PYTHONPATH"]
        port = wait_for(folder / "storage.log", r"^(\d+)\n")
        found = SparkCluster(
            master, driver, shared, folder / "bare" / "bin" / "python", f"webhdfs://127.0.0.1:{port}", stored
        )
        for number in range(workers):
            work = folder / f"worker{number}"
            work.mkdir()
            words = ("--cores", "1", "--memory", "1g", "--work-dir", str(work), master)
            found.workers.append(start(work.name, [*hide, *of_spark("worker.Worker", *words)]))
        for number in range(workers):
            wait_for(folder / f"worker{number}.log", f"Successfully registered with master ({re.escape(master)})")
        yield found


def wait_for(log: Path, words: str) -> str:
    """What the first group of `words` matches, once it is in a log."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        found = re.search(words, log.read_text(), re.MULTILINE)
        if found:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"not in {log}: {words}; it says: {log.read_text()[-2000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started: executors end with their worker."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
