"""Values that nobody should pass, through every door: what comes out is an answer or a UsageError, and nothing else."""

from __future__ import annotations

import collections
import enum
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs are installed
import pyarrow as pa  # type: ignore[import-untyped]  # has none
import pytest

from hullcast.broker.engine.served import ServedEngine
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import BadParameter, BadValue, UsageError
from hullcast.network.wire.values import from_user, scalars
from tests.support.engines import attend

PUBLISHER = bytes(range(16))
COLUMNS = "KXNWJ"
TABLE = "(K INTEGER PRIMARY KEY, X REAL, N TEXT, W TIMESTAMP, J INTEGER)"
QUERIES = [
    "SELECT COUNT(*) FROM T WHERE K > ?",
    "SELECT SUM(X) FROM T WHERE X <= ?",
    "SELECT MIN(X) FROM T WHERE J = ?",
    "SELECT * FROM T WHERE N = ?",
    "SELECT DISTINCT X FROM T WHERE W < ?",
    "SELECT T.K, U.K FROM T, U WHERE T.N = U.N AND T.X > -?",
    "SELECT T.K, U.K FROM T, U WHERE U.W - T.W BETWEEN -? AND 5",
    "SELECT T.K, U.K FROM T, U WHERE U.J - T.J BETWEEN -5 AND ?",
]
READS = ["SELECT ?", "SELECT * FROM T WHERE X > ?", "SELECT * FROM T WHERE W > ?", "SELECT * FROM T WHERE N = ?"]


class Colour(str, enum.Enum):  # noqa: UP042  a StrEnum would be its text anyway
    RED = "red"


def numpy_scalars() -> list[Any]:
    found: list[Any] = [np.timedelta64(5), np.timedelta64("NaT"), np.datetime64("NaT")]
    for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"):
        for kind in (np.datetime64, np.timedelta64):
            found += [kind(ticks, unit) for ticks in (0, 5, -(2**62), 2**63 - 1)]
            found += [kind("NaT", unit), kind(5, (unit, 7))]  # type: ignore[arg-type]
    for code in np.typecodes["AllInteger"]:
        found += [np.dtype(code).type(np.iinfo(code).max), np.dtype(code).type(np.iinfo(code).min)]
    for code in np.typecodes["AllFloat"]:  # complex ones among them
        found += [np.dtype(code).type(value) for value in (1, math.nan, math.inf)]
    records = np.array([(1, 10**5000)], dtype=[("a", "i4"), ("b", "O")])
    return [
        *found,
        np.bool_(True),
        np.str_("x"),
        np.bytes_(b"x"),
        np.void(b"abc"),
        records[0],
        np.array(5),
        np.array([]),
    ]


PLAIN: list[Any] = [
    *(None, True, 1, -0.0, 1.5, math.nan, math.inf, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**400, -(10**5000), 1j),
    *(Decimal("sNaN"), Decimal("1e999999"), Fraction(1, 3), "", "x", "2026-01-01", "0001-01-01T00:00+14:00", "a\0b"),
    *("\ud800", "é" * 40_000, b"", b"x", bytearray(b"x"), memoryview(b"x"), Colour.RED),
    *(datetime(1, 1, 1), datetime(9999, 12, 31), datetime.max.replace(tzinfo=UTC), date.min, date.max, time(1)),
    *(
        timedelta.max,
        timedelta.min,
        UTC,
        pd.NaT,
        pd.NA,
        pd.Timestamp.max,
        pd.Timestamp("2020", tz="Asia/Tokyo"),
    ),
    *(pd.Timedelta.max, pd.Period("2020"), pd.Timestamp, pd.DatetimeIndex(["2020"]), pd.Series([1]), pa.scalar(1)),
    *(object(), int, list, [], [10**5000], (1,), {}, {"a": 1}, {1}, range(3), iter([1]), Ellipsis, len),
    *(collections.deque([1]), ValueError("x"), np.ma.masked),
]


@pytest.fixture(scope="module")
def engine() -> ServedEngine:
    engine = ServedEngine()
    for name in "TU":
        engine.execute(f"CREATE TABLE {name} {TABLE}")
        engine.upsert(name, [{"K": 1, "X": 1.0, "N": "x", "W": "2026-01-01", "J": 1}])
    for kind in ("REAL", "TEXT", "TIMESTAMP"):
        engine.execute(f"CREATE TABLE KEYED_{kind} (K {kind} PRIMARY KEY)")
    return engine


words: list[str] = []  # of all refusals: saying them must not fail either


def tried(act: Callable[[], Any]) -> Any:
    """What comes of it, or None if it is refused in words."""
    try:
        return act()
    except UsageError as error:
        words.append(str(error))
        return None


def forms(value: Any) -> list[Any]:
    """Columns that hold a value."""
    boxed = np.empty(1, dtype=object)
    boxed[0] = value
    found: list[Any] = [[value], (value,), boxed, [value] * 10]
    if isinstance(value, np.generic):
        found += [np.array([value]), np.ma.MaskedArray(np.array([value, value]), [False, True])]
    return found


@pytest.mark.parametrize("value", [*numpy_scalars(), *PLAIN], ids=lambda value: type(value).__name__)
def test_any_value_is_taken_or_refused_in_words(engine: ServedEngine, value: Any) -> None:
    for name in COLUMNS:
        tried(lambda name=name: engine.upsert("T", [{"K": 2, name: value}]))  # type: ignore[misc]
        for form in forms(value):
            keys = list(range(len(form)))
            tried(lambda name=name, form=form, keys=keys: engine.upsert("T", {"K": keys, name: form}))  # type: ignore[misc]
    for table in ("T", "KEYED_REAL", "KEYED_TEXT", "KEYED_TIMESTAMP"):
        for keys in (value, *forms(value)):
            tried(lambda table=table, keys=keys: engine.delete(table, keys))  # type: ignore[misc]
    for sql in QUERIES:
        subscription = tried(lambda sql=sql: engine.subscribe(sql, value))  # type: ignore[misc]
        if subscription is not None:
            subscription.close()
        for column in (value, *forms(value)):
            subscriptions = tried(lambda sql=sql, column=column: engine.subscribe_many(sql, column))  # type: ignore[misc]
            if subscriptions is not None:
                subscriptions.close()
    for sql in READS:
        tried(lambda sql=sql: engine.query(sql, value))  # type: ignore[misc]
    for act in (engine.execute, engine.query, engine.subscribe, lambda table: engine.upsert(table, [{"K": 1}])):
        tried(lambda act=act: act(value))  # type: ignore[misc]


def apply(engine: ServedEngine, body: Any) -> None:
    if isinstance(body, bodies.Publish):
        engine.upsert_columns(body.table, body.columns, body.absent)
    else:
        engine.delete_column(body.table, body.keys)


@pytest.mark.parametrize("value", [*numpy_scalars(), *PLAIN], ids=lambda value: type(value).__name__)
def test_any_value_from_the_wire_is_taken_or_refused_in_words(engine: ServedEngine, value: Any) -> None:
    for form in forms(value):
        column, keys = from_user(form), from_user(list(range(len(form))))
        requests: list[Any] = [bodies.Delete("T", column, PUBLISHER, 1)]
        requests += [bodies.Publish("T", {"K": keys, name: column}, None, PUBLISHER, 1) for name in COLUMNS[1:]]
        for request in requests:
            arrived: Any = bodies.decode(bodies.encode(request))
            tried(lambda arrived=arrived: apply(engine, arrived))  # type: ignore[misc]
    for sql in QUERIES:
        group = bodies.Group(1, sql, scalars((value,)), 1)
        subscribe: Any = bodies.decode(bodies.encode(bodies.Subscribe((group,))))
        parameters = [[parameter] for parameter in subscribe.groups[0].parameters]
        attended = tried(lambda sql=sql, parameters=parameters: attend(engine, sql, parameters))  # type: ignore[misc]
        if attended is not None:
            engine.forsake(attended.channel.name)
    for sql in READS:
        query: Any = bodies.decode(bodies.encode(bodies.Query(sql, scalars((value,)))))
        tried(lambda sql=sql, query=query: engine.query(sql, *query.parameters))  # type: ignore[misc]


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_a_length_of_time_is_no_number(engine: ServedEngine, unit: str) -> None:
    span = np.timedelta64(5, unit)  # type: ignore[call-overload]
    for name in "XJ":
        with pytest.raises(BadValue, match="takes a"):
            engine.upsert("T", [{"K": 2, name: span}])
        with pytest.raises(BadParameter, match="takes a number"):
            engine.subscribe(f"SELECT COUNT(*) FROM T WHERE {name} > ?", span)
    with pytest.raises(BadValue, match="whole number"):
        engine.delete("T", [span])
    with pytest.raises(BadParameter, match="got timedelta64"):
        engine.query("SELECT ?", span)


def test_a_member_of_an_enum_of_texts_is_its_text() -> None:
    engine = ServedEngine()
    engine.execute("CREATE TABLE T (K TEXT PRIMARY KEY)")
    engine.upsert("T", [{"K": Colour.RED}])
    assert engine.query("SELECT K FROM T WHERE K = ?", Colour.RED) == [("red",)]
    assert engine.subscribe("SELECT COUNT(*) FROM T WHERE K = ?", Colour.RED).answer == 1
