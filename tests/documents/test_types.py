"""The Python of README.md, FIRST_STEPS.md and SDK.md passes mypy --strict and pyright."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import hullcast
from tests.support.documents import ROOT, text_of

PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

EVENTS = """
from typing import assert_type

import hullcast
from hullcast import BlockingSubscription, Change, Event, Progress, Resync, Snapshot, StreamTuple, Subscription


async def everything(hc: hullcast.Client, db: hullcast.BlockingClient, some: bool) -> None:
    async for event in hc.subscribe(""):
        assert_type(event, Change | Resync | StreamTuple)
        print(event.seq, event.answer, event.conflated)
    async for first in hc.subscribe("", snapshot=True):
        assert_type(first, Event | Snapshot)
        print(first.answer, first.conflated)
    async for passed in hc.subscribe("", progress=True):
        if not isinstance(passed, Progress):
            assert_type(passed, Change | Resync | StreamTuple)
    async for any_event in hc.subscribe("", progress=some, snapshot=some):
        assert_type(any_event, Event | Snapshot | Progress)
    async for batch in hc.subscribe("").batches():
        assert_type(batch, list[Change | Resync | StreamTuple])
    assert_type(await hc.subscribe(""), Subscription[Event])
    plain: Subscription = await hc.subscribe("", OPTIONS)
    assert_type(plain.take_nowait(), Event | None)
    assert_type((await hc.subscribe_many("", []))[0], Subscription[Event])

    for heard in db.subscribe(""):
        assert_type(heard, Change | Resync | StreamTuple)
    assert_type(db.subscribe("", snapshot=True).next(1.0), Event | Snapshot | None)
    blocking: BlockingSubscription = db.subscribe("", OPTIONS)
    assert_type(blocking.next(), Event | None)

    def hear(event: Event) -> None: ...

    async def hear_first(event: Event | Snapshot) -> None: ...

    await hc.subscribe("", callback=hear)
    await hc.subscribe("", callback=hear_first, snapshot=True)
    db.subscribe("", callback=hear)


async def wrong(hc: hullcast.Client) -> None:
    async for event in hc.subscribe("", progress=True):
        print(event.answer)  # wrong
"""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module for each example of the pages, and one for `subscribe` itself."""
    folder = tmp_path_factory.mktemp("examples")
    for number, code in enumerate(PYTHON.findall(text_of("README.md") + text_of("FIRST_STEPS.md"))):
        (folder / f"readme_{number}.py").write_text(code)
    for number, code in enumerate(PYTHON.findall(text_of("SDK.md"))):
        begin = "import hullcast\n\n\nasync def example(hc: hullcast.Client) -> None:\n"
        (folder / f"sdk_{number}.py").write_text(begin + textwrap.indent(code, "    "))
    parameters = inspect.signature(hullcast.Client.subscribe).parameters.values()
    options = ", ".join(f"{one.name}={one.default!r}" for one in parameters if one.kind is one.KEYWORD_ONLY)
    (folder / "events.py").write_text(EVENTS.replace("OPTIONS", options))
    assert len(list(folder.iterdir())) > 25
    return folder


def refused(folder: Path, *words: str) -> list[str]:
    """The places that a checker refuses, `file:line`."""
    command = [sys.executable, "-m", *words]
    ran = subprocess.run(command, cwd=folder, env={"MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    found = re.findall(r"(\w+\.py:\d+):.*\berror: ", ran.stdout.replace(" - error", " error"))
    assert found, f"it must refuse one place:\n{ran.stdout}{ran.stderr}"
    return found


#: A Progress has no answer.
WRONG = [f"events.py:{EVENTS.splitlines().index('        print(event.answer)  # wrong') + 1}"]


def test_mypy_takes_the_examples(examples: Path) -> None:
    # NumPy's types would take three quarters of the time
    quick = ("--follow-imports=silent", "--no-site-packages", "--ignore-missing-imports")
    assert refused(examples, "mypy", "--strict", *quick, ".") == WRONG


def test_pyright_takes_the_examples(examples: Path) -> None:
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)]}
    (examples / "pyrightconfig.json").write_text(json.dumps(settings))
    assert refused(examples, "basedpyright", "--level", "error", "--pythonpath", sys.executable) == WRONG
