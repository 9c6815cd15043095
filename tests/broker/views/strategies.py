"""Views over four tables, drawn by chance, and rows for these: few values, so that keys meet and values tie."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from hullcast.broker.tables.schema import ColumnType
from tests.support.base_tables import table_of

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
CREATES = (
    "CREATE TABLE A (K INTEGER PRIMARY KEY, X INTEGER, R REAL, S TEXT, W TIMESTAMP)",
    'CREATE TABLE B (K TEXT PRIMARY KEY, X INTEGER NOT NULL, R REAL NOT NULL, "odd name" TEXT)',
    "CREATE TABLE C (X REAL, K REAL PRIMARY KEY, S TEXT)",
    "CREATE TABLE D (K TIMESTAMP PRIMARY KEY, X INTEGER, S TEXT)",
)
TABLES = tuple(map(table_of, CREATES))

VALUES: dict[ColumnType, list[Any]] = {
    ColumnType.INTEGER: [0, -1, 1, 2, 5, 2**53 - 1],
    ColumnType.REAL: [0.0, -1.0, 2.0, 0.1, 0.2, 1e16, -1e16],
    ColumnType.TEXT: ["a", "b", "", "A", "it's"],
    ColumnType.TIMESTAMP: [NOON, NOON + timedelta(microseconds=1), NOON - timedelta(days=20000), NOON + timedelta(1)],
}
_CONSTANTS = {
    ColumnType.INTEGER: ["0", "1", "-1", "0.5", "9007199254740993", "1e300"],
    ColumnType.REAL: ["0", "1.0", "0.1", "-1e16", "0.30000000000000004"],
    ColumnType.TEXT: ["''", "'a'", "'it''s'"],
    ColumnType.TIMESTAMP: ["'2024-02-29 12:00'", "TIMESTAMP '2024-02-29T12:00:00.000001Z'"],
}
_COMPARISONS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def rows_of(number: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """Rows of a table. Joined columns have fewer values than keys, and NULLs are rare: most rows should meet others."""
    return st.tuples(
        *(
            st.sampled_from(values if position == TABLES[number].key else [*values[:2] * 3, *values])
            if column.not_null
            else st.sampled_from([*values[:2] * 3, *values, None])
            for position, column in enumerate(TABLES[number].columns)
            for values in (VALUES[column.type],)
        )
    )


def keys_of(number: int) -> st.SearchStrategy[Any]:
    """Keys of a table."""
    return st.sampled_from(VALUES[TABLES[number].key_column.type])


@st.composite
def views(draw: st.DrawFn) -> str:
    """CREATE VIEW over one to four sources."""
    sources = draw(st.lists(st.sampled_from(range(len(TABLES))), min_size=1, max_size=4))
    columns = [
        (f's{side}."{column.name}"', column.type)
        for side, number in enumerate(sources)
        for column in TABLES[number].columns
    ]

    def some(kinds: set[ColumnType], side: int | None = None) -> str | None:
        found = [name for name, kind in columns if kind in kinds and (side is None or name.startswith(f"s{side}."))]
        return draw(st.sampled_from(found)) if found else None

    conditions = []
    for side in range(1, len(sources)):
        left, kind = draw(st.sampled_from([one for one in columns if one[0].startswith(f"s{side}.")]))
        right = some(_alike(kind), draw(st.integers(0, side - 1)))
        if right is None:  # every table has a number in X
            left, right = f"s{side}.X", f"s{side - 1}.X"
        conditions.append(f"{left} = {right}")
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2, 3]))):
        name, kind = draw(st.sampled_from(columns))
        conditions.append(
            draw(
                st.one_of(
                    st.builds(f"{name} {{}} {{}}".format, _COMPARISONS, st.sampled_from(_CONSTANTS[kind])),
                    st.builds(f"{name} {{}} {some(_alike(kind))}".format, _COMPARISONS),
                    st.sampled_from([f"{name} IS NULL", f"{name} IS NOT NULL"]),
                    st.just(f"{name} IN ({', '.join(_CONSTANTS[kind])})"),
                    st.just(f"{name} NOT IN ({_CONSTANTS[kind][0]})"),
                    st.just(f"{name} BETWEEN {_CONSTANTS[kind][0]} AND {_CONSTANTS[kind][1]}"),
                )
            )
        )
    tables = ", ".join(f"{TABLES[number].name} s{side}" for side, number in enumerate(sources))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    shape = draw(st.sampled_from(["projection", "groups", "total"]))
    some_columns = st.lists(st.sampled_from([name for name, _ in columns]), min_size=1, max_size=3)
    chosen = draw(some_columns) if shape != "total" else []
    outputs = [f"{name} AS o{number}" for number, name in enumerate(chosen)]
    if shape != "projection":
        outputs += draw(st.lists(_aggregates(columns), min_size=0 if chosen else 1, max_size=4, unique=True))
    group = f" GROUP BY {', '.join(chosen)}" if shape == "groups" else ""
    return f"CREATE VIEW V AS SELECT {', '.join(outputs)} FROM {tables}{where}{group} WITH (response_time = '50ms')"


def _aggregates(columns: list[tuple[str, ColumnType]]) -> st.SearchStrategy[str]:
    numbers = [name for name, kind in columns if kind.numeric]
    return st.one_of(
        st.just("COUNT(*)"),
        st.builds("{}({})".format, st.sampled_from(["SUM", "AVG"]), st.sampled_from(numbers)),
        st.builds("{}({})".format, st.sampled_from(["MIN", "MAX", "COUNT"]), st.sampled_from([n for n, _ in columns])),
    )


def _alike(kind: ColumnType) -> set[ColumnType]:
    return {ColumnType.INTEGER, ColumnType.REAL} if kind.numeric else {kind}
