"""The rectangles of one update, seen in the plane of subscriptions (x1, x2): disjoint, and just the affected points."""

from __future__ import annotations

from itertools import combinations
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.engine.engine import Engine
from hullcast.broker.reformulate.messages import Messages
from tests.support.reference import Message, Point, answers
from tests.support.reference import messages as definition

XS = st.none() | st.integers(0, 5).map(float)
YS = st.none() | st.integers(0, 4).map(float)
UPDATES = st.lists(st.tuples(st.integers(0, 7), st.just(None) | st.tuples(XS, YS)), min_size=1, max_size=25)
#: Ends of ranges: on rows' places, between them, beyond them, and none at all.
ENDS = [-inf, -1.0, *(step / 2 for step in range(11)), 6.0, inf]


def messages_of(messages: Messages, best: str) -> list[Message]:
    columns = [messages.columns[name].tolist() for name in (best, "INNER_L", "INNER_R", "OUTER_L", "OUTER_R")]
    return [Message(*fields) for fields in zip(*columns, strict=True)]


def overlap(one: Message, other: Message) -> bool:
    """Whether two rectangles share a point of the plane, on or off any grid."""
    return max(one.outer_l, other.outer_l) < min(one.inner_l, other.inner_l) and max(one.inner_r, other.inner_r) < min(
        one.outer_r, other.outer_r
    )


def point_of(row: tuple[float | None, float | None] | None) -> Point | None:
    if row is None or row[0] is None or row[1] is None:
        return None
    return row[0], row[1]


@pytest.mark.parametrize(("function", "sign", "best"), [("MIN", 1.0, "NEWMIN"), ("MAX", -1.0, "NEWMAX")])
@given(updates=UPDATES)
@settings(max_examples=150)
def test_rectangles_never_overlap_and_cover_just_what_changed(
    function: str, sign: float, best: str, updates: list[tuple[int, tuple[float | None, float | None] | None]]
) -> None:
    engine = Engine()
    engine.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL, Y REAL)")
    channel = engine.open_channel(f"SELECT {function}(Y) FROM T WHERE X BETWEEN ? AND ?")
    rows: dict[int, Point] = {}
    for key, row in updates:
        if row is None:
            batch = engine.delete("T", key)
        else:
            batch = engine.upsert("T", {"K": key, "X": row[0], "Y": row[1]})
        before = answers(rows.values(), ENDS, sign)
        old, new = rows.pop(key, None), point_of(row)
        expected = definition(rows.values(), old, new, sign) if old != new else set()
        if new is not None:
            rows[key] = new
        after = answers(rows.values(), ENDS, sign)
        said = messages_of(batch.messages[channel], best)
        assert batch.messages[channel].seqs.tolist() == [engine.seq] * len(said)
        assert not any(overlap(one, other) for one, other in combinations(said, 2))
        told = {ends: [m.best for m in said if m.concerns(*ends)] for ends in before}
        changed = {ends: [after[ends]] if after[ends] != before[ends] else [] for ends in before}
        assert told == changed
        assert set(said) == expected
