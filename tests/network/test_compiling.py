"""Compiled code on disk: where it is kept, what is not trusted, and that nothing fails where nothing can be kept."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest

from hullcast.network.compiled import borrowing, kernel, load
from hullcast.network.compiling import _unusable
from hullcast.network.wire.arrays import Ints


class Rows(NamedTuple):
    values: Ints
    weights: Ints


ROOT = Path(__file__).parents[2]
#: Imports everything, and runs one small kernel; says whether it was compiled or came from disk.
PROGRAM = """
import hullcast.network.compiled as compiled
from hullcast.network.wire import walk
from hullcast.network.wire.limits import WireLimits
compiled.load()
assert walk.walk(bytes([0xC0]), WireLimits()) == ""
print("from disk" if walk._walk.stats.cache_hits else "compiled")
"""
#: The same, where no compiling is so short that nothing is said of it.
IMPATIENT = "import hullcast.network.compiling as c; c.PATIENCE_S = 0.0\n" + PROGRAM
#: Loads numba in many threads at the same moment, which switch as often as they can.
IN_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from hullcast.network import compiled, compiling
from hullcast.network.wire import walk
from hullcast.network.wire.limits import WireLimits

sys.setswitchinterval(1e-7)
together, alone, prepare = Barrier(16), Lock(), compiling.prepare

def watched():
    assert alone.acquire(blocking=False), "two threads fill numba's tables"
    prepare()
    alone.release()

def first(_):
    together.wait()
    compiled.load()
    return walk.walk(bytes([0xC0]), WireLimits())

compiling.prepare = watched
with ThreadPoolExecutor(16) as pool:
    print(set(pool.map(first, range(16))))
"""
#: Makes folders read-only in a mount namespace of its own, then runs what follows. Binds root, too.
READ_ONLY = 'for f in $FOLDERS; do mount --bind "$f" "$f" && mount -o remount,bind,ro "$f" || exit 77; done; exec "$@"'


def run(variables: dict[str, str], program: str = PROGRAM, read_only: tuple[Path, ...] = ()) -> tuple[str, list[str]]:
    """What a program prints, and the lines on its standard error."""
    words = [sys.executable, "-c", program]
    if read_only:
        as_root = () if os.geteuid() == 0 else ("--map-root-user",)
        words = ["unshare", "--mount", *as_root, "sh", "-c", READ_ONLY, "sh", *words]
    inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH", "LANG")}
    environment = inherited | {"PYTHONPATH": str(ROOT), "FOLDERS": " ".join(map(str, read_only))} | variables
    done = subprocess.run(words, env=environment, cwd="/", capture_output=True, text=True, check=False)
    if read_only and (done.returncode == 77 or "unshare" in done.stderr):
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.splitlines()


class Compiled(NamedTuple):
    """Sources, a folder with what was compiled from them, and what was said meanwhile."""

    sources: Path
    cache: Path
    said: list[str]

    def environment(self, tmp_path: Path) -> dict[str, str]:
        """Where both are, the code as a copy that a test may damage."""
        shutil.copytree(self.cache, tmp_path / "cache")
        return {"PYTHONPATH": str(self.sources), "HULLCAST_CACHE": str(tmp_path / "cache")}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Compiled once for all tests that begin with code on disk: it takes seconds."""
    folder = tmp_path_factory.mktemp("compiled")
    sources, cache = copy_without_code(folder), folder / "cache"
    printed, said = run({"PYTHONPATH": str(sources), "HULLCAST_CACHE": str(cache)}, IMPATIENT)
    assert printed == "compiled"
    return Compiled(sources, cache, said)


def copy_without_code(tmp_path: Path) -> Path:
    """The sources once more, without what was compiled from them."""
    copy = tmp_path / "site"
    shutil.copytree(ROOT / "hullcast", copy / "hullcast", ignore=shutil.ignore_patterns("__pycache__", "sim"))
    return copy


def test_without_any_writable_folder_kernels_run_and_one_line_says_that_they_are_not_kept(tmp_path: Path) -> None:
    copy = copy_without_code(tmp_path)
    folders = (copy, *(path for path in (Path("/tmp"), Path("/var/tmp")) if path.is_dir()))
    nowhere = {"PYTHONPATH": str(copy), "HOME": "/proc/nowhere", "TMPDIR": "/proc/nowhere"}
    printed, said = run(nowhere, read_only=folders)
    assert printed == "compiled"
    lines = [line for line in said if not line.startswith("compiling ..")]
    assert len(lines) == 1
    assert "cannot be kept" in lines[0]
    assert "HULLCAST_CACHE" in lines[0]


def test_without_a_home_code_goes_to_a_private_temporary_folder_and_is_found_there(tmp_path: Path) -> None:
    copy, temporary = copy_without_code(tmp_path), tmp_path / "tmp"
    temporary.mkdir()
    asked = {"PYTHONPATH": str(copy), "TMPDIR": str(temporary)}
    if os.geteuid() == 0:  # root has a home without HOME
        asked["HOME"] = "/proc/nowhere"
    first, said = run(asked, read_only=(copy,))
    second, _ = run(asked, read_only=(copy,))
    assert (first, second) == ("compiled", "from disk")
    assert not [line for line in said if not line.startswith("compiling ..")]
    folder = temporary / f"hullcast-{os.geteuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.rglob("*.nbc"))


def test_code_that_came_with_read_only_sources_is_used(tmp_path: Path) -> None:
    copy = copy_without_code(tmp_path)
    first, _ = run({"PYTHONPATH": str(copy)})
    assert list(copy.rglob("*.nbc")), "kept beside the sources"
    second, said = run({"PYTHONPATH": str(copy), "XDG_CACHE_HOME": str(tmp_path / "cache")}, read_only=(copy,))
    assert (first, second, said) == ("compiled", "from disk", [])


def test_the_folder_that_was_asked_for_wins(once: Compiled) -> None:
    assert list(once.cache.rglob("*.nbc"))
    assert not list(once.sources.rglob("*.nbc"))


def test_a_folder_that_others_may_write_to_is_neither_read_nor_written(tmp_path: Path) -> None:
    copy, planted = copy_without_code(tmp_path), tmp_path / "planted"
    where = {"PYTHONPATH": str(copy), "HULLCAST_CACHE": str(planted)}
    run(where)
    before = {path: path.stat().st_mtime_ns for path in planted.rglob("*")}
    planted.chmod(0o777)
    printed, said = run(where)
    assert printed == "compiled", "what lies there may be anybody's"
    assert {path: path.stat().st_mtime_ns for path in planted.rglob("*")} == before
    lines = [line for line in said if not line.startswith("compiling ..")]
    assert len(lines) == 1
    assert f"HULLCAST_CACHE={planted}: other users may write to it" in lines[0]


def test_folders_of_other_users_and_links_are_not_trusted(tmp_path: Path) -> None:
    mine, link = tmp_path / "mine", tmp_path / "link"
    assert _unusable(mine) is None
    assert mine.stat().st_mode & 0o777 == 0o700
    link.symlink_to(mine)
    assert _unusable(link) == "not a folder"
    if os.geteuid() == 0:
        os.chown(mine, 12345, 12345)
        assert "belongs to another user" in str(_unusable(mine))


def test_a_broken_cache_is_compiled_anew(tmp_path: Path, once: Compiled) -> None:
    where = once.environment(tmp_path)
    assert run(where)[0] == "from disk", "a copy is as good"
    for kind in ("nbi", "nbc"):
        for file in (tmp_path / "cache").rglob(f"walk*.{kind}"):
            file.write_bytes(file.read_bytes()[:7])
        assert run(where)[0] == "compiled"
        assert run(where)[0] == "from disk"
    for file in (tmp_path / "cache").rglob("walk*.nbi"):
        file.write_bytes(b"chullcast.network.compiled\nRenamedSince\n.")  # a class of ours that kernels take
    assert run(where)[0] == "compiled"


@pytest.mark.parametrize("module", ["hullcast.network.wire.arrays", "hullcast.network.gone"])
def test_code_for_arguments_of_a_class_that_is_gone_is_compiled_anew(
    tmp_path: Path, once: Compiled, module: str
) -> None:
    where = once.environment(tmp_path)
    for file in (tmp_path / "cache").rglob("walk*.nbi"):
        held = BytesIO(file.read_bytes())
        pickle.load(held)  # the version, which stays
        file.write_bytes(held.getvalue()[: held.tell()] + f"c{module}\nGone\n.".encode())
    assert run(where)[0] == "compiled"
    assert run(where)[0] == "from disk"


def test_numba_may_be_loaded_in_many_threads_at_the_same_moment() -> None:
    assert run({}, IN_THREADS) == ("{''}", [])


def test_long_compiling_is_mentioned_once_and_loading_is_not(tmp_path: Path, once: Compiled) -> None:
    assert once.said == ["compiling .. (once, about a minute)"]
    assert run(once.environment(tmp_path), IMPATIENT) == ("from disk", [])


@borrowing
def _sum_of(rows: Rows) -> int:
    values, weights = rows
    total = 0
    for at in range(len(values)):
        total += values[at] * weights[at]
    return total


@kernel
def sum_of(rows: Rows) -> int:
    return _sum_of(rows)


@borrowing
def _doubled(values: Ints) -> Ints:
    return np.concatenate((values, values))


@kernel
def doubled(values: Ints) -> int:
    return len(_doubled(values))


def test_a_borrowing_part_leaves_the_count_of_references_as_it_was() -> None:
    values = np.arange(5)
    rows = Rows(values, np.ones(5, np.int64))
    before = sys.getrefcount(values)
    assert [sum_of(rows) for _ in range(3)] == [10, 10, 10]
    assert sys.getrefcount(values) == before


def test_a_part_that_only_borrows_can_make_no_array() -> None:
    load()
    with pytest.raises(numba.TypingError):
        doubled(np.arange(3))
