"""Every statement in broker/streams/STREAMS.md is understood, in the order in which they stand there."""

from __future__ import annotations

import re

from hullcast.broker.engine.served import ServedEngine
from tests.support.documents import text_of

STATEMENTS = re.findall(
    r"^    .*?\b((?:CREATE|DROP|ADVANCE) STREAM .*|SELECT .*)$", text_of("broker/streams/STREAMS.md"), re.MULTILINE
)


def test_the_statements_of_the_page_run_one_after_the_other() -> None:
    engine = ServedEngine()
    engine.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, RISK REAL)")
    selects = 0
    for statement in STATEMENTS:
        if statement.startswith("SELECT"):
            if "hullcast" not in statement and ".." not in statement:
                engine.catalogue.tables_of(statement)
                engine.catalogue.join_to_make(statement)  # SqlError if it is a join that cannot be
                selects += 1
        else:
            engine.execute(statement)
    assert selects >= 6
    assert [stream.store.table.name for stream in engine.streams.derived] == ["HOT", "LARGE"]
