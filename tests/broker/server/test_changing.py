"""Publishes that arrive together are one batch, and nobody can tell: outcomes are those of one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.log.publishers import scoped
from hullcast.broker.server.outcome import Outcome
from hullcast.network.wire import bodies
from hullcast.network.wire.columns import Columns, concatenate
from hullcast.network.wire.frames import Origin, Request
from hullcast.network.wire.values import rows_to_columns
from tests.broker.server.test_deciding import ME, MIN, TABLE, YOU, Desk, refusal

OTHER = "CREATE TABLE OTHER (K INTEGER PRIMARY KEY, V REAL NOT NULL, SECTOR TEXT)"
DISTINCT = "SELECT DISTINCT SECTOR FROM STOCK WHERE PER BETWEEN ? AND ?"
NOBODY = bytes(16)

stocks = st.fixed_dictionaries(
    {"SYMBOL": st.sampled_from("ABC")},
    optional={
        "RISK": st.sampled_from([1.0, 2.0]),
        "PER": st.sampled_from([1.0, 2.0, 3.0, "bad", None]),
        "SECTOR": st.sampled_from(["x", "y", None]),
    },
)
others = st.fixed_dictionaries({"K": st.integers(0, 2)}, optional={"V": st.sampled_from([1.0, 2.0]), "U": st.just(1)})
tables = st.one_of(
    st.tuples(st.just("STOCK"), st.lists(stocks, max_size=2)),
    st.tuples(st.just("OTHER"), st.lists(others, min_size=1, max_size=2)),
    st.tuples(st.sampled_from(["stock", "NOWHERE"]), st.just([{"SYMBOL": "D", "PER": 0.5}])),
)
publishes = st.tuples(
    tables,
    st.sampled_from([ME, YOU, NOBODY]),
    st.integers(1, 6),  # number
    st.integers(0, 5),  # after
    st.booleans(),  # again
    st.booleans(),  # apart
)


def desk() -> Desk:
    found = Desk()
    for sql in (TABLE, OTHER):
        found.ask(bodies.Execute(sql, NOBODY, 1))
    for group, sql in enumerate((MIN, DISTINCT), 1):
        found.ask(bodies.Subscribe((bodies.Group(group, sql, (0.0, 9.0), 1),), None, found.office.epoch))
    return found


def arrived(publish: Any, number: int) -> tuple[bodies.Publish, Request]:
    (table, rows), publisher, change, after, again, apart = publish
    columns, absent = rows_to_columns(rows, table)
    body = bodies.Publish(table, columns, absent, publisher, change)
    return (body, Request(number, (1,), Origin(None, ""), bodies.encode(body), after, again, apart))


def messages(outcomes: list[Outcome]) -> dict[int, dict[str, list[Any]]]:
    found: dict[int, list[Columns]] = {}
    for outcome in outcomes:
        for channel, columns in outcome.messages.items():
            found.setdefault(channel, []).append(columns)
    return {
        channel: {name: np.asarray(column).tolist() for name, column in concatenate(parts).items() if name != "value"}
        for channel, parts in found.items()
    }


@settings(max_examples=300, deadline=None)
@given(st.lists(publishes, max_size=12), st.data())
def test_what_arrives_together_is_as_if_it_had_come_one_by_one(several: list[Any], data: st.DataObject) -> None:
    together, singly = desk(), desk()
    whole = [arrived(publish, number) for number, publish in enumerate(several, 1)]
    cut = data.draw(st.integers(0, len(whole)))
    outcomes = [outcome for part in (whole[:cut], whole[cut:]) for outcome in together.office.publish(part) if part]
    expected = [singly.office.publish([one])[0] for one in whole]
    assert [(outcome.reply, outcome.entry) for outcome in outcomes] == [
        (outcome.reply, outcome.entry) for outcome in expected
    ]
    assert messages(outcomes) == messages(expected)
    assert max([outcome.through for outcome in outcomes], default=0) == max(
        [outcome.through for outcome in expected], default=0
    )
    assert together.engine.seq == singly.engine.seq
    for sql in ("SELECT * FROM STOCK ORDER BY 1", "SELECT * FROM OTHER ORDER BY 1"):
        assert together.engine.query(sql) == singly.engine.query(sql)


def single(
    publisher: bytes, number: int, per: object, after: int = 0, *, apart: bool = False
) -> tuple[bodies.Publish, Request]:
    return arrived((("STOCK", [{"SYMBOL": "A", "PER": per}]), publisher, number, after, False, apart), number)


def test_rows_of_many_publishers_are_one_batch_with_a_receipt_each() -> None:
    stock = desk()
    several = [single(bytes([who]) * 16, 1, float(who)) for who in range(1, 101)]
    outcomes = stock.office.publish(several)
    assert [outcome.reply for outcome in outcomes] == [bodies.Done(seq, seq) for seq in range(1, 101)]
    assert [outcome.through for outcome in outcomes] == [0] * 99 + [100]
    assert [outcome.entry.first for outcome in outcomes if outcome.entry] == list(range(1, 101))
    statistics = stock.engine.statistics()
    assert all(one.updates == 100 for one in statistics.values())


def test_a_row_refused_alone_is_waited_for() -> None:
    stock = desk()
    good, bad, later = single(ME, 1, 1.0), single(ME, 2, "bad", 1, apart=True), single(ME, 3, 3.0, 2)
    first, refused, behind = stock.office.publish([good, bad, later])
    assert first.reply == bodies.Done(1, 1)
    assert "PER" in refusal(refused)
    assert "waits for its earlier change 2" in refusal(behind)
    mended, behind = stock.office.publish([single(ME, 2, 2.0, apart=True), later])
    assert [mended.reply, behind.reply] == [bodies.Done(2, 2), bodies.Done(3, 3)]
    assert stock.office.publishers.judge(scoped("", ME), 2) == (2, 2)


def test_a_publish_refused_for_good_is_not_waited_for() -> None:
    stock = desk()
    refused, behind = stock.office.publish([single(ME, 2, "bad"), single(ME, 3, 3.0, 2)])
    assert "PER" in refusal(refused)
    assert behind.reply == bodies.Done(1, 1)


def test_rows_that_only_travel_together_are_not_a_batch_that_is_too_large() -> None:
    stock = desk()  # a batch has at most 1000 rows
    rows = [{"SYMBOL": str(number), "PER": 1.0} for number in range(1024)]
    together, batch, more = (
        stock.office.publish([arrived((("STOCK", some), NOBODY, 1, 0, False, apart), 1)])[0]
        for some, apart in ((rows, True), (rows, False), ([*rows, {"SYMBOL": "A"}], True))
    )
    assert together.reply == bodies.Done(1, 1024)
    assert "rows in one batch (send smaller batches): 1,024 is more than the limit of 1,000" in refusal(batch)
    assert "1,025" in refusal(more)


def test_a_refusal_does_not_overtake_a_row_that_comes_again() -> None:
    """That the first lacks a NOT NULL value shows only when the rows are applied, after all were judged."""
    stock = desk()

    def other(number: int, after: int, *rows: dict[str, Any], apart: bool = False) -> tuple[bodies.Publish, Request]:
        return arrived((("OTHER", list(rows)), ME, number, after, False, apart), number)

    lacking = other(1, 0, {"K": 1, "V": 1.0}, {"K": 2}, apart=True)
    refused, later = other(2, 1, {"K": 3, "V": "bad"}), other(3, 2, {"K": 1, "V": 3.0})
    outcomes = stock.office.publish([lacking, refused, later])
    assert "V" in refusal(outcomes[0])
    assert "waits for its earlier change 1" in refusal(outcomes[1])
    assert "waits for its earlier change 2" in refusal(outcomes[2])
    mended, still, behind = stock.office.publish([other(1, 0, {"K": 1, "V": 1.0}), refused, later])
    assert mended.reply == bodies.Done(1, 1)
    assert "V" in refusal(still)
    assert behind.reply == bodies.Done(2, 2)
