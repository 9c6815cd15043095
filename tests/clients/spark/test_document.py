"""SPARK.md as it is written: every piece of Python runs, in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hullcast
from tests.clients.spark.conftest import Live

PAGE = Path(hullcast.__file__).parent.parent / "clients" / "spark" / "SPARK.md"


def test_the_page_runs_as_it_is_written(live: Live, tmp_path: Path) -> None:
    live.db.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK REAL, PER REAL)")
    live.db.publish("STOCK", {"SYMBOL": [f"S{i}" for i in range(200)], "RISK": [30.0] * 200, "PER": [9.0] * 200})
    pieces = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(pieces) == 6
    names: dict[str, Any] = {"spark": live.spark}
    for piece in pieces:
        exec(piece.replace("tcp://127.0.0.1:7600", live.url), names)
    assert live.rows("SELECT PER FROM STOCK WHERE SYMBOL = 'IBM'") == [(11.5,)]
    assert names["now"].count() == 200
    assert names["then"].count() == 100
    assert names["changes"].count() == 101
    for name, rows in (("stream", 201), ("events", 1)):
        writer = names[name].writeStream.format("memory").queryName(name).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / name)).start().awaitTermination()
        assert live.spark.table(name).count() == rows
