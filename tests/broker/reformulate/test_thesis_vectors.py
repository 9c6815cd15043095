"""The thesis's running example, message for message, through the engine."""

from __future__ import annotations

import pytest

from hullcast.broker.engine.engine import Engine
from hullcast.broker.reformulate.messages import Messages

ROWS = {
    "t1": (20.0, 1.0),
    "t2": (100.0, 1.0),
    "t3": (30.0, 8.0),
    "t4": (40.0, 12.0),
    "t5": (50.0, 5.0),
    "t6": (70.0, 6.0),
}
FIELDS = ("INNER_L", "INNER_R", "OUTER_L", "OUTER_R")

Said = tuple[float, ...]


def stock(sign: float = 1.0) -> Engine:
    engine = Engine()
    engine.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, RISK REAL, PER REAL)")
    engine.upsert("STOCK", [{"SYMBOL": s, "RISK": x, "PER": sign * y} for s, (x, y) in ROWS.items()])
    return engine


def said(messages: Messages, best: str) -> list[Said]:
    columns = [messages.columns[name].tolist() for name in (best, *FIELDS)]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize(
    ("symbol", "y", "expected"),
    [
        ("t4", 4.0, {(4, 40, 40, 20, 100)}),
        ("t5", 9.0, {(9, 50, 50, 30, 70), (8, 30, 50, 20, 70), (6, 50, 70, 20, 100)}),
    ],
)
def test_the_thesis_messages_come_out_exactly(symbol: str, y: float, expected: set[Said]) -> None:
    engine = stock()
    channel = engine.open_channel("SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?")
    batch = engine.upsert("STOCK", {"SYMBOL": symbol, "PER": y})
    messages = said(batch.messages[channel], "NEWMIN")
    assert len(messages) == len(expected)
    assert set(messages) == expected
    assert batch.messages[channel].seqs.tolist() == [7] * len(expected)


@pytest.mark.parametrize(
    ("symbol", "y", "expected"),
    [
        ("t4", -4.0, {(-4, 40, 40, 20, 100)}),
        ("t5", -9.0, {(-9, 50, 50, 30, 70), (-8, 30, 50, 20, 70), (-6, 50, 70, 20, 100)}),
    ],
)
def test_max_is_the_mirror_image(symbol: str, y: float, expected: set[Said]) -> None:
    engine = stock(-1.0)
    channel = engine.open_channel("SELECT MAX(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?")
    batch = engine.upsert("STOCK", {"SYMBOL": symbol, "PER": y})
    messages = said(batch.messages[channel], "NEWMAX")
    assert len(messages) == len(expected)
    assert set(messages) == expected


@pytest.mark.parametrize(
    ("symbol", "row", "counted"),
    [
        ("t4", {"PER": 4.0}, "easy"),
        ("t5", {"PER": 9.0}, "difficult"),
        ("t4", {"PER": 12.0}, "ignorable"),  # nothing changes
        ("t9", {"RISK": 50.0, "PER": 5.0}, "ignorable"),  # another row at that x is as low
        ("t9", {"RISK": None, "PER": 0.0}, "ignorable"),  # NULL is in no range
        ("t9", {"RISK": 60.0, "PER": 0.0}, "easy"),
    ],
)
def test_updates_are_counted_by_class(symbol: str, row: dict[str, object], counted: str) -> None:
    engine = stock()
    channel = engine.open_channel("SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?")
    batch = engine.upsert("STOCK", {"SYMBOL": symbol, **row})
    statistics = engine.statistics()[channel]
    classes = {name: getattr(statistics, name) for name in ("ignorable", "easy", "difficult")}
    assert classes == {"ignorable": 0, "easy": 0, "difficult": 0, counted: 1}
    assert statistics.updates == 1
    assert statistics.messages == len(batch.messages[channel])


def test_only_the_ranges_inside_a_rectangle_are_told() -> None:
    engine = stock()
    sql = "SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?"
    inside = [(30, 60), (50, 50), (21, 99), (45, 70)]
    outside = [(20, 60), (50, 100), (60, 70), (30, 40)]
    told = [engine.subscribe(sql, *ends) for ends in inside]
    spared = [engine.subscribe(sql, *ends) for ends in outside]
    engine.upsert("STOCK", {"SYMBOL": "t5", "PER": 9.0})
    assert [[event.answer for event in one.drain()] for one in told] == [[8], [9], [6], [6]]
    assert [one.drain() for one in spared] == [[]] * 4
