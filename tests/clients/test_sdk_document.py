"""Each piece of Python in clients/SDK.md runs, against a real server and a node."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import hullcast
from hullcast import testing

DOCUMENT = Path(__file__).parents[2] / "clients" / "SDK.md"
PIECES = re.findall(r"^## (.*?)$|^```python\n(.*?)^```$", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def pieces() -> list[Any]:
    found: list[Any] = []
    heading = ""
    for title, code in PIECES:
        heading = title or heading
        if code:
            found.append(pytest.param(code, id=f"{len(found)} {heading}"))
    return found


@pytest.mark.parametrize("code", pieces())
async def test_an_example_runs(code: str) -> None:
    names: dict[str, Any] = {"hullcast": hullcast}
    exec(compile(f"async def example(hc):\n{textwrap.indent(code, '    ')}", str(DOCUMENT), "exec"), names)
    async with testing.cluster(nodes=1) as endpoint, hullcast.connect(endpoint) as hc:
        await hc.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK REAL, PER REAL)")
        await names["example"](hc)
