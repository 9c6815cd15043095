"""The command line, mostly as a user meets it: a process, its output and its exit code."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

import hullcast
from hullcast.broker.server import warming
from hullcast.clients.cli import main as cli
from hullcast.clients.cli.commands import warm as warm_command
from hullcast.network import compiling
from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("demo",),
        ("bench",),
        ("bench", "engine"),
        ("bench", "nodes"),
        ("bench", "covers"),
        ("bench", "live"),
        ("calibrate",),
        ("warm",),
    ],
)
def test_every_command_has_help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([*words, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert " ".join(("usage: hullcast", *words)) in text
    assert len(text.splitlines()) > 5


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    for name, _ in cli.COMMANDS:
        assert re.search(rf"^    {name}\b", text, re.MULTILINE)


def test_help_does_not_wait_for_the_engine() -> None:
    script = "import sys; from hullcast.clients.cli import main as cli; cli.main([]); assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"hullcast {hullcast.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("demo", "--rows", "0"),
        ("demo", "--seconds", "-1"),
        ("demo", "--seconds", "nan"),
        ("demo", "--updates", "many"),
        ("bench",),
        ("bench", "engine", "--only", "nothing"),
    ],
)
def test_bad_arguments_are_refused_with_code_2(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_errors_of_ours_are_one_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--rows", "100000000"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("hullcast: a market has 1 to")
    assert captured.err.count("\n") == 1


class Failing:
    """A command that ends with a given exception."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """None."""

    def run(self, arguments: argparse.Namespace, console: Console) -> int:
        """Fail."""
        raise self._error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("one\nand two"), 2, "hullcast: one and two\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 0, None),
    ],
)
def test_exit_codes(
    error: BaseException,
    code: int,
    said: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli, "_load", lambda module: Failing(error))
    if said is None:
        monkeypatch.setattr(sys, "stderr", open(os.devnull, "w"))  # noqa: SIM115  (the command closes it)
    assert cli.main(["warm"]) == code
    if said is not None:
        assert capsys.readouterr().err == said


WITHOUT_EXTRAS = """
import sys
for package in ("markdown_it", "matplotlib", "networkx", "pandas", "psutil", "pyarrow", "pyspark", "scipy"):
    sys.modules[package] = None  # as where it is not installed
import contextlib, hullcast
from hullcast.clients.cli import main as cli
from hullcast.clients.sdk.history import TablePart
from hullcast.network.wire.bodies import RowsAsOf
with contextlib.suppress(SystemExit):
    cli.main(["bench", "live", "--help"])
assert cli.main(["bench", "spark", "--quick"]) == cli.main(["bench", "streams", "--quick"]) == 2
del sys.modules["pyspark"]  # who registers a source has it
for call in (lambda: hullcast.spark.register(None), lambda: TablePart(RowsAsOf(1, None, {})).to_arrow()):
    try:
        call()
    except hullcast.UsageError as error:
        print(error, file=sys.stderr)
"""


def test_without_the_extras_each_thing_that_needs_one_says_how_to_install_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True, check=False)
    packages = "markdown_it, networkx, scipy, pyspark, pyarrow, pandas, matplotlib, psutil"
    assert done.stderr.splitlines() == [
        f"hullcast: bench spark needs {packages}; install them with pip install 'hullcast[sim]'",
        f"hullcast: bench streams needs {packages}; install them with pip install 'hullcast[sim]'",
        "hullcast.spark needs pyarrow; install it with pip install 'hullcast[arrow]'",
        "to_arrow() needs pyarrow; install it with pip install 'hullcast[arrow]'",
    ]
    assert "usage: hullcast bench live" in done.stdout
    assert done.returncode == 0


def test_an_error_that_is_not_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_load", lambda module: Failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.main(["warm"])


def test_compiling_is_mentioned_once_where_there_is_no_bar(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def compiles() -> warming.Warmth:
        compiling.announce()
        return warming.Warmth(1, 0.0)

    monkeypatch.setattr(compiling, "_shown", False)
    monkeypatch.setattr(warm_command, "warm", compiles)
    out = io.StringIO()
    warm_command.warm_with_bar(Console(file=out))
    assert out.getvalue().count("kernels") == 1
    assert not caplog.records
