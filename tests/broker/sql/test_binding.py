"""Binding: a closed box of floats that agrees with exact comparison, and checked parameters."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from math import inf, nan, nextafter

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]  # no stubs in the development environment
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.sql.query import Predicates
from hullcast.network.wire.errors import BadParameter
from tests.broker.sql.test_subscription import parse

OPERATORS = {"<": operator.lt, "<=": operator.le, "=": operator.eq, ">=": operator.ge, ">": operator.gt}
NOON = datetime(2024, 5, 1, 12)
NOON_CODE = 1_714_564_800_000_000.0

near_2_to_53 = st.integers(2**53 - 4, 2**53 + 4)
bounds = st.one_of(
    st.integers(-4, 4),  # a coarse grid, so that ties are common
    st.sampled_from([-1.5, 0.0, -0.0, 0.1, 5e-324, 1.7e308, inf, -inf]),
    near_2_to_53,
    near_2_to_53.map(operator.neg),
    st.integers(),
    st.integers(2**62, 2**64),
    st.floats(allow_nan=False),
    st.sampled_from([10**400, -(10**400), 2**1024, 2**1024 - 2**970]),
)
rows = st.one_of(
    st.integers(-4, 4).map(float),
    near_2_to_53.map(float),
    st.floats(allow_nan=False, allow_infinity=False),
)


def holds(predicates: Predicates, row: float, i: int = 0) -> bool:
    return bool((predicates.low[i] <= row).all() and (row <= predicates.high[i]).all())


def neighbours(value: float) -> list[float]:
    """Rows at and beside a bound: where an off-by-one-float would show."""
    try:
        nearest = float(value)
    except OverflowError:
        return []
    near = [nearest, nextafter(nearest, inf), nextafter(nearest, -inf)]
    return [row for row in near if abs(row) < inf]


@given(
    st.lists(st.tuples(st.sampled_from(sorted(OPERATORS)), bounds, st.booleans()), min_size=1, max_size=4),
    rows,
)
def test_the_box_agrees_with_exact_comparison(conditions: list[tuple[str, float, bool]], row: float) -> None:
    mirrored = {"<": ">", "<=": ">=", "=": "=", ">=": "<=", ">": "<"}
    where = " AND ".join(f"? {mirrored[sign]} PER" if turned else f"PER {sign} ?" for sign, _, turned in conditions)
    query = parse(f"SELECT SYMBOL FROM Stock WHERE {where}")
    values = [value for _, value, _ in conditions]
    one = query.bind(values)
    many = query.bind_many([[value, value] for value in values])
    for candidate in [row, *(near for value in values for near in neighbours(value))]:
        expected = all(OPERATORS[sign](candidate, value) for sign, value, _ in conditions)
        assert holds(one, candidate) == holds(many, candidate, 1) == expected
    assert_canonical(one)
    assert_canonical(many)


def assert_canonical(predicates: Predicates) -> None:
    """Not empty, or written (inf, -inf)."""
    for low, high in zip(predicates.low.flat, predicates.high.flat, strict=True):
        assert (low, high) == (inf, -inf) or (low <= high and low < inf and high > -inf)


@given(st.lists(bounds, min_size=2, max_size=2), rows)
def test_literals_mean_what_parameters_mean(values: list[float], row: float) -> None:
    values = [value for value in values if abs(value) < 1e300]
    if len(values) == 2:
        parameters = parse("SELECT SYMBOL FROM Stock WHERE PER > ? AND PER <= ?").bind(values)
        text = "SELECT SYMBOL FROM Stock WHERE PER > {} AND PER <= {}".format(*map(repr, values))
        literals = parse(text).bind()
        assert (parameters.low.tolist(), parameters.high.tolist()) == (
            literals.low.tolist(),
            literals.high.tolist(),
        )


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint32, np.uint64, np.float32, np.float64])
@given(data=st.data())
def test_arrays_bind_as_their_values_do(dtype: type[np.generic], data: st.DataObject) -> None:
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)  # type: ignore[type-var]  # narrowed by issubdtype only
        edges = [
            limits.min,
            limits.max,
            limits.max - 1,
            *(v for v in (2**53 + 1, 2**62 + 1) if v <= limits.max),
        ]
        values: list[float] = data.draw(
            st.lists(st.sampled_from(edges) | st.integers(limits.min, limits.max), max_size=8)
        )
    else:
        values = data.draw(st.lists(st.floats(allow_nan=False, width=32), max_size=8))
    column: npt.NDArray[np.generic] = np.array(values, dtype=dtype)
    query = parse("SELECT SYMBOL FROM Stock WHERE PER > ? AND RISK <= ? AND A = ? AND A >= ? AND VOLUME = ?")
    many = query.bind_many([column] * 5)
    assert many.low.shape == (len(values), 3)
    for i, value in enumerate(values):
        one = query.bind([value] * 5)
        assert (many.low[i].tolist(), many.high[i].tolist()) == (one.low[0].tolist(), one.high[0].tolist())
        assert many.partition[0][i] == one.partition[0][0]
        assert (many.never is not None and bool(many.never[i])) == (one.never is not None)


@pytest.mark.parametrize(
    "value",
    [
        NOON,
        NOON.replace(tzinfo=UTC),
        datetime(2024, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        "2024-05-01T12:00:00",
        "2024-05-01 12:00:00Z",
        "2024-05-01T14:00:00+02:00",
        np.datetime64("2024-05-01T12"),
        np.datetime64("2024-05-01T12:00:00.000000000"),
        pd.Timestamp(NOON),
        pd.Timestamp(NOON, tz="UTC").tz_convert("Europe/Berlin"),
    ],
)
def test_an_instant_is_microseconds_since_1970_in_utc(value: object) -> None:
    query = parse("SELECT SYMBOL FROM Stock WHERE AT BETWEEN ? AND TIMESTAMP '2024-05-01 12:00:00'")
    for bound in (
        query.bind([value]),
        query.bind_many([[value]]),
        query.bind_many([np.array([value], dtype=object)]),
    ):
        assert (bound.low.tolist(), bound.high.tolist()) == ([[NOON_CODE]], [[NOON_CODE]])


@given(
    st.lists(st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-5000, 5000), min_size=1),
    st.sampled_from(["h", "s", "ms", "us", "ns", "ps", "25us", "3ps"]),
    st.integers(-(2**53), 2**53) | st.integers(-10, 10),
)
def test_an_array_of_instants_agrees_with_exact_time(ticks: list[int], unit: str, row: int) -> None:
    column = np.array(ticks, dtype=np.int64).view(f"datetime64[{unit}]")
    length = {"h": 3_600_000_000, "s": 1_000_000, "ms": 1000, "us": 1, "25us": 25}.get(unit)
    exact = length or Fraction(*{"ns": (1, 1000), "ps": (1, 10**6), "3ps": (3, 10**6)}[unit])
    query = parse("SELECT SYMBOL FROM Stock WHERE AT > ? AND AT <= ?")
    above, below = (
        query.bind_many([column, column[:1].repeat(len(ticks))]),
        query.bind_many([column[:1], column[:1]]),
    )
    for i, tick in enumerate(ticks):
        one = query.bind([column[i], column[0]])
        expected = tick * exact < row <= ticks[0] * exact
        assert holds(above, row, i) == holds(one, row) == expected
    assert not holds(below, row)


def test_calendar_units_and_far_times_are_exact() -> None:
    query = parse("SELECT SYMBOL FROM Stock WHERE AT >= ? AND AT < ?")
    bound = query.bind([np.datetime64("1969-11"), np.datetime64("1971", "Y")])
    assert bound.low.tolist() == [[-61 * 86400e6]]
    assert bound.high.tolist() == [[nextafter(365 * 86400e6, -inf)]]
    everything = query.bind([datetime(1, 1, 1), datetime(9999, 12, 31, tzinfo=UTC)])
    assert holds(everything, -(2.0**53))
    assert holds(everything, 2.0**53)


REFUSED: list[tuple[str, object]] = [
    *(("PER > ?", value) for value in (None, "5", nan, True, np.bool_(True), 1j, b"5", [1], NOON, np.float64(nan))),
    *(("VOLUME < ?", value) for value in (None, "5", nan, np.longdouble(1), object())),
    *(("SECTOR = ?", value) for value in (None, 5, b"TECH", "\ud800")),
    *(("AT > ?", value) for value in (None, 5, 5.0, "soon", "", pd.NaT, np.datetime64("NaT"))),
    ("AT > ?", np.datetime64(20000, "Y")),
]


@pytest.mark.parametrize(("condition", "value"), REFUSED)
def test_a_parameter_of_the_wrong_type_names_its_position_and_column(condition: str, value: object) -> None:
    query = parse(f"SELECT SYMBOL FROM Stock WHERE RISK < ? AND {condition}")
    column = condition.split()[0]
    with pytest.raises(BadParameter, match=rf"^parameter 2: {column} \(") as caught:
        query.bind([1, value])
    assert caught.value.position == 2
    with pytest.raises(BadParameter, match=rf"^parameter 2: {column} \(.*row 0"):
        query.bind_many([[1], [value]])


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (([1.0], [1.0]), "takes 1 parameter .PER .REAL.., got 2"),
        ((), "got 0"),
        ((np.array([1.0, nan]),), "NaN .row 1"),
        ((np.array(["2024-01-01"], dtype="datetime64[s]"),), "takes a number"),
        ((np.array([True]),), "takes a number"),
        ((np.ones((2, 2)),), "2 dimensions"),
        (([1, 2, "x"],), "row 2"),
    ],
)
def test_columns_of_parameters_are_checked(columns: tuple[list[object], ...], reason: str) -> None:
    query = parse("SELECT SYMBOL FROM Stock WHERE PER > ?")
    with pytest.raises(BadParameter, match=reason):
        query.bind_many(columns)


def test_columns_must_have_one_length_and_scalars_one_count() -> None:
    query = parse("SELECT MIN(RISK) FROM Stock WHERE PER BETWEEN ? AND ?")
    with pytest.raises(BadParameter, match=r"parameter 2: PER .REAL. has 1 values, but the first parameter has 2"):
        query.bind_many([[1, 2], [3]])
    for parameters in ((), (1,), (1, 2, 3)):
        with pytest.raises(BadParameter, match="the query takes 2"):
            query.bind(parameters)
    with pytest.raises(BadParameter, match="the query takes 0 parameters, got"):
        parse("SELECT MIN(RISK) FROM Stock").bind([1])


def test_literals_are_broadcast_over_columns_of_parameters() -> None:
    query = parse("SELECT MIN(RISK) FROM Stock WHERE PER BETWEEN ? AND 5 AND SECTOR = 'TECH' AND SYMBOL = ?")
    many = query.bind_many([np.array([1, 6]), ["A", "B"]])
    assert many.low.tolist() == [[1], [inf]]
    assert many.high.tolist() == [[5], [-inf]]
    assert many.partition == (["A", "B"], ["TECH", "TECH"])
    assert many.never is None


def test_a_query_without_parameters_binds_to_as_many_as_asked() -> None:
    query = parse("SELECT MIN(RISK) FROM Stock WHERE PER < 5")
    assert len(query.binder.slots) == 0
    assert query.bind().low.shape == (1, 1)
    assert query.bind_many([], count=3).high.shape == (3, 1)
    assert parse("SELECT MIN(RISK) FROM Stock").bind_many([], count=3).high.shape == (3, 0)


@pytest.mark.parametrize(
    ("where", "parameters", "never"),
    [
        ("SECTOR = 'A' AND SECTOR = 'B'", (), True),
        ("SECTOR = 'A' AND SECTOR = 'A'", (), False),
        ("SECTOR = ? AND SECTOR = ?", ("A", "B"), True),
        ("SECTOR = ? AND 'A' = SECTOR", ("A",), False),
        ("RISK > 0 AND VOLUME = ? AND VOLUME = 3", (3.0,), False),
        ("RISK > 0 AND VOLUME = ? AND VOLUME = 3", (4,), True),
        ("RISK > 0 AND VOLUME = ?", (2**53 + 1,), True),
        ("RISK > 0 AND VOLUME = ?", (inf,), True),
        ("RISK > 0 AND VOLUME = -?", (3,), False),
        ("RISK > 0 AND AT = ? AND AT = TIMESTAMP '2024-05-01 12:00:00'", (NOON,), False),
    ],
)
def test_equalities_that_contradict_never_hold(where: str, parameters: tuple[object, ...], never: bool) -> None:
    query = parse(f"SELECT MIN(PER) FROM Stock WHERE {where}")
    many = query.bind_many([[parameter] * 2 for parameter in parameters], count=2)
    for bound, n in ((query.bind(parameters), 1), (many, 2)):
        assert (bound.never.tolist() if bound.never is not None else None) == ([True] * n if never else None)
        assert not never or (bound.low > bound.high).all()


def test_partition_values_are_text_or_codes() -> None:
    query = parse("SELECT COUNT(*) FROM Stock WHERE PER > 1 AND SECTOR = ? AND VOLUME = ? AND AT = ? AND RISK = -0.0")
    bound = query.bind(["TECH", 3, NOON])
    kinds = [type(values[0]) for values in bound.partition]
    assert bound.partition == ([0.0], [3.0], ["TECH"], [NOON_CODE])
    assert kinds == [float, float, str, float]
    assert str(bound.partition[0][0]) == "0.0"
    many = query.bind_many([np.array(["TECH"]), np.array([3]), np.array([NOON], dtype="datetime64[us]")])
    assert many.partition == bound.partition


def test_a_date_is_its_midnight_in_utc() -> None:
    query = parse("SELECT SYMBOL FROM Stock WHERE AT >= ?")
    assert query.bind([NOON.date()]).low.tolist() == query.bind([NOON.date().isoformat()]).low.tolist()
