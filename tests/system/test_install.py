"""The installed package: one name, typed, that neither takes a user's module names nor is broken by them."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import hullcast

ROOT = Path(__file__).parents[2]
FOLDERS = ("broker", "clients", "network", "sim")
SOURCES = ("hullcast", *FOLDERS, "pyproject.toml", "README.md", "LICENSE")

USER = """\
import asyncio
from typing import assert_type

import hullcast
from hullcast import testing

import broker, clients, network, sim  # the user's own
assert clients.MINE and network.MINE and broker.MINE and sim.MINE

SELECT = "SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?"


async def main() -> None:
    async with testing.cluster() as endpoint, hullcast.connect(endpoint) as hc:
        assert_type(endpoint, str)
        assert_type(hc, hullcast.Client)
        await hc.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, RISK REAL, PER REAL)")
        receipt = await hc.publish("STOCK", [{"SYMBOL": "A", "RISK": 30, "PER": 7.5}])
        assert_type(receipt, hullcast.Receipt)
        assert_type(receipt.seq, int)
        async with hc.subscribe(SELECT, 20, 60) as sub:
            assert_type(sub, hullcast.Subscription)
            assert sub.answer == 7.5
            await hc.publish("STOCK", [{"SYMBOL": "B", "RISK": 40, "PER": 3}])
            async for event in sub:
                assert_type(event, hullcast.Change | hullcast.Resync | hullcast.StreamTuple)
                if isinstance(event, hullcast.Change):
                    assert event.answer == 3
                    break
        assert_type(await hc.query("SELECT * FROM STOCK"), hullcast.QueryRows)


def blocking() -> None:
    with testing.blocking_cluster() as endpoint, hullcast.connect_blocking(endpoint) as hc:
        assert_type(hc, hullcast.BlockingClient)
        hc.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, RISK REAL, PER REAL)", timeout=99)
        assert_type(hc.publish("STOCK", {"SYMBOL": ["A"], "RISK": [30], "PER": [7.5]}, nan="null"), hullcast.Receipt)
        with hc.subscribe(SELECT, 20, 60, overflow="block", buffer=8) as sub:
            assert_type(sub, hullcast.BlockingSubscription)
            assert_type(sub.seq, int)
            assert sub.answer == 7.5
        with hc.subscribe_many(SELECT, [20], [60]) as many:
            assert_type(many, hullcast.BlockingSubscriptions)


def embedded() -> None:
    engine = hullcast.Engine()
    assert_type(engine, hullcast.Engine)
    engine.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, RISK REAL, PER REAL)")
    assert_type(engine.subscribe(SELECT, 20, 60), hullcast.EngineSubscription)


def mistakes() -> None:  # never called: each line is one that a type checker must refuse
    hullcast.conect("tcp://127.0.0.1:7600")  # type: ignore[attr-defined]
    hullcast.connect(7600)  # type: ignore[arg-type]
    hc = hullcast.connect_blocking(tiemout=3)  # type: ignore[call-arg]
    hc.publish("STOCK")  # type: ignore[call-arg]
    hc.subscribe(SELECT, 20, 60, overflow="newest")  # type: ignore[call-overload]
    hc.subscribe(SELECT, 20, 60).anser  # type: ignore[attr-defined]


if __name__ == "__main__":
    asyncio.run(main())
    blocking()
    embedded()
    print("fine", hullcast.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, so that nothing is left in them."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / "source" / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, folder / "source" / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", folder, folder / "source"], check=True)
    (found,) = folder.glob("hullcast-*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """An environment with the wheel and the packages it needs, and nothing of this checkout."""
    folder = wheel.parent / "environment"
    venv.create(folder, with_pip=False, symlinks=True)
    interpreter = folder / "bin" / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(interpreter),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*command, wheel], check=True)
    # What the wheel needs is borrowed. No .pth file of a borrowed folder is read, so the checkout stays unknown.
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name in FOLDERS:  # and code that is compiled already; what is missing takes longer
        for compiled in (ROOT / name).rglob("*.nb[ci]"):
            target = site / "hullcast" / compiled.relative_to(ROOT)
            target.parent.mkdir(exist_ok=True)
            shutil.copy(compiled, target)
    return interpreter


def test_one_name_is_installed_and_it_is_typed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    top = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert top == {"hullcast"}
    assert "hullcast/py.typed" in names
    folders = {name.split("/")[1] for name in names if name.count("/") > 1}
    assert set(FOLDERS) <= folders
    here = {path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert here == {name.removeprefix("hullcast/") for name in names if name.endswith(".py") and name.count("/") > 1}


def test_a_program_beside_modules_of_our_old_names_runs_and_is_type_checked(python: Path, tmp_path: Path) -> None:
    for name in ("broker", "clients"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    for name in ("network", "sim"):
        (tmp_path / f"{name}.py").write_text("MINE = True\n")
    program = tmp_path / "program.py"
    program.write_text(USER)
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    clean["HULLCAST_TIMEOUT"] = "240"  # kernels may have to be compiled
    ran = subprocess.run([python, program], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"fine {python.parents[1]}")
    words = ["--strict", "--python-executable", str(python), "--cache-dir", "cache", "program.py"]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *words], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


def test_names_for_type_checkers_and_for_python_are_the_same() -> None:
    tree = ast.parse(Path(hullcast.__file__).read_text("utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    homes = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            homes[alias.asname or alias.name] = (node.module, alias.name)
    assert sorted(homes) == sorted(set(hullcast.__all__) - {"__version__"})
    for name, (module, own) in homes.items():
        assert module is not None
        place = __import__(module, fromlist=[own])
        assert getattr(hullcast, name) is getattr(place, own), name


def test_tracebacks_and_breakpoints_name_the_files_that_people_edit() -> None:
    from hullcast.broker.engine import engine
    from hullcast.network.wire import errors

    assert Path(engine.__file__) == ROOT / "broker/engine/engine.py"
    assert Path(errors.__file__) == ROOT / "network/wire/errors.py"


@pytest.mark.parametrize(
    ("held", "names"),
    [
        (
            hullcast.Client,
            "change_once changes close connected delete drain execute explain history open policy progress publish "
            "publisher query query_portions seq statistics status subscribe subscribe_many sync table_at tables views",
        ),
        (
            hullcast.Subscription,
            "answer batches close closed columns conflated dropped has_answer lag missed_share pending seq "
            "take_nowait token",
        ),
        (hullcast.Subscriptions, "answers changes close closed conflated next_changes seq"),
        (
            hullcast.BlockingClient,
            "change_once changes close connected delete drain execute explain history policy progress publish "
            "publisher query query_portions seq statistics status subscribe subscribe_many sync table_at tables views",
        ),
        (
            hullcast.BlockingSubscription,
            "answer batches close closed columns conflated dropped events has_answer lag missed_share next pending "
            "seq sql token",
        ),
        (hullcast.BlockingSubscriptions, "answers changes close closed conflated next_changes seq sql"),
        (
            hullcast.Engine,
            "close_channel delete execute memory_bytes open_channel progress query rows seq statistics subscribe "
            "subscribe_many tables upsert",
        ),
        (hullcast.EngineSubscription, "answer close closed drain pending seq"),
        (hullcast.Receipt, "deleted first_seq seq updates"),
    ],
)
def test_completion_shows_what_is_for_users_and_nothing_else(held: type, names: str) -> None:
    assert [name for name in dir(held) if not name.startswith("_")] == names.split()


def test_a_copy_without_the_links_says_what_it_lacks(tmp_path: Path) -> None:
    """As git makes it where it may not make links, and as Python's own zipfile unpacks an archive."""
    shutil.copytree(ROOT / "hullcast", tmp_path / "hullcast", ignore=shutil.ignore_patterns(*FOLDERS, "__pycache__"))
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    for names in (FOLDERS, ()):  # none: what is installed from such a copy
        for name in names:
            (tmp_path / "hullcast" / name).write_text(f"../{name}")
        command = [sys.executable, "-c", "import hullcast"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "ImportError" in ran.stderr
        assert "core.symlinks=true" in ran.stderr
        for name in names:
            (tmp_path / "hullcast" / name).unlink()
    made = subprocess.run([".ci/venv", "never", "dev"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 1
    assert "core.symlinks=true" in made.stderr
    assert not (tmp_path / "never").exists()
