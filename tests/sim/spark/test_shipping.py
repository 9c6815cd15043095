"""What is sent to workers: all that they import, made once, whole or not at all, and gone when nobody uses it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest

from hullcast.network.matching.index import PointIndex
from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark import shipping
from hullcast.sim.spark.options import SparkOptions
from hullcast.sim.spark.shipping import archive, our_files, package_files, shipped
from tests.support.processes import limited_files

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hullcast" / "spark"


def test_our_sources_are_sent_as_one_package_with_their_kernels() -> None:
    PointIndex(2).insert(
        np.arange(3), np.zeros((3, 2))
    )  # its kernels are compiled beside the sources, if they were not
    files = our_files()
    for name in ("hullcast/__init__.py", "hullcast/sim/traffic/replay.py", "hullcast/broker/engine/engine.py"):
        assert files[name].is_file()
    assert not [name for name in files if "/tests/" in name or name.endswith(".pyc")]
    kernels = set((ROOT / "network" / "matching" / "__pycache__").glob("*.nbi"))
    sent = {path.resolve() for name, path in files.items() if name.startswith("hullcast/network/matching/__pycache__/")}
    assert kernels
    assert kernels <= sent


def test_workers_do_with_the_packages_that_are_sent() -> None:
    """Whatever the modules that workers import load from site-packages is among the files sent."""
    program = """
import sys
import hullcast.sim.traffic.replay, hullcast.sim.traces.yahoo
from hullcast.network.compiled import load
load()
for module in list(sys.modules.values()):
    file = getattr(module, "__file__", None) or ""
    if "site-packages" in file:
        print(file.rpartition("site-packages/")[2])
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    # Some come with Spark or a virtual environment; scipy (of numba) and mypy_extensions (of sqlglot) are optional.
    brought = (
        "pyspark/",
        "py4j/",
        "_distutils_hack/",
        "setuptools/",
        "scipy/",
        "_cyutility",
        "_csparsetools",
        "mypy_ext",
    )
    needed = {name for name in done.stdout.splitlines() if not name.startswith(brought)}
    assert len(needed) > 100
    assert needed <= set(package_files())


def test_an_archive_is_made_once_for_the_same_files(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("1")
    first = archive("some", {"x/a.py": file})
    assert archive("some", {"x/a.py": file}) == first
    with tarfile.open(first) as tar:
        assert tar.getnames() == ["x/a.py"]
    file.write_text("22")
    assert archive("some", {"x/a.py": file}) != first
    os.utime(first, (0, time.time() - shipping._UNUSED_S - 60))
    archive("some", {"x/a.py": file})
    assert not first.exists(), "not used for a week"
    assert len(list(cache.iterdir())) == 1


def test_a_disk_that_is_full_is_told_in_a_line_and_nothing_is_left(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(os.urandom(200_000))
    told = r"cannot write .*tgz, which the workers need: File too large; make room"
    with limited_files(50_000), pytest.raises(UsageError, match=told):
        archive("some", {"large": file})
    assert list(cache.iterdir()) == []


def test_an_interrupt_while_packing_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    program = "from hullcast.sim.spark.shipping import archive, package_files; archive('packages', package_files())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(cache.glob(".making-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "packing the Python packages that workers need" in said
    assert "KeyboardInterrupt" in said
    assert list(cache.iterdir()) == []


def test_what_users_set_themselves_stays_beside_ours(tmp_path: Path) -> None:
    packed = tmp_path / "mine.tar.gz"
    (tmp_path / "python").touch(0o755)
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(tmp_path / "python", "bin/python")
    given = {"spark.archives": "hdfs://host/data.zip#data"}
    settings, python = shipped(SparkOptions("spark://host:7077", given, env=str(packed)))
    assert settings == {"spark.archives": f"hdfs://host/data.zip#data,file:{packed}#hullcast-environment"}
    assert python == "./hullcast-environment/bin/python"


def test_nothing_is_sent_to_workers_that_have_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert shipped(SparkOptions("spark://host:7077", env="none")) == ({}, minor)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert shipped(SparkOptions("spark://host:7077", env="none")) == ({}, "/opt/python")
