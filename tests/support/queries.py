"""Subscriptions of every type and range form over three small tables, and rows for these, drawn by chance.

Values come from coarse grids with NULLs, so that ties, empty ranges and full ones are all common. Plain functions
of a `Random`, each drawn from one number: hypothesis left to itself draws the same few small things again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

CREATE = (
    "CREATE TABLE R (K INTEGER PRIMARY KEY, A INTEGER, B REAL, C TEXT, D INTEGER, T TIMESTAMP)",
    "CREATE TABLE S (K TEXT PRIMARY KEY, A REAL, B REAL, C TEXT, E INTEGER, U TIMESTAMP)",
    "CREATE TABLE W (V TIMESTAMP PRIMARY KEY, F INTEGER, G TEXT)",
)
START = datetime(2026, 1, 31, 12, tzinfo=UTC)
INSTANTS = [START + timedelta(microseconds=step) for step in (0, 1, 2, 1_000_000)]
TEXTS = ["", "a", "b", "ü"]

#: Per column: what rows hold, besides NULL.
GRIDS: dict[str, list[Any]] = {
    "A": [0, 1, 2, 3],
    "B": [-0.5, 0.0, 0.5, 1.5, 2.0],
    "C": TEXTS,
    "D": [-1, 0, 5],
    "E": [0, 1, 2],
    "F": [0, 1],
    "G": TEXTS,
    "T": INSTANTS,
    "U": INSTANTS,
}
KEYS: dict[str, list[Any]] = {"R": [1, 2, 3, 4, 5, 6], "S": ["p", "q", "r", "s", "t"], "W": INSTANTS}
KEY = {"R": "K", "S": "K", "W": "V"}
COLUMNS = {"R": "ABCDT", "S": "ABCEU", "W": "FG"}
INSTANT, TEXT = set("TUV"), set("CG")


class Asked(NamedTuple):
    """A subscription to be made."""

    sql: str
    parameters: tuple[object, ...]


SEEDS = st.integers(0, 2**48)


def row(rng: Random, table: str, given: Sequence[str] | None = None) -> dict[str, Any]:
    """A row with its key and the columns given, or some of them, one, none or all."""
    names = COLUMNS[table]
    if given is None:
        some: list[Sequence[str]] = [names, names, rng.choice(names), rng.choice(names), "", rng.sample(names, 2)]
        given = rng.choice(some)
    return {KEY[table]: rng.choice(KEYS[table])} | {name: rng.choice([*GRIDS[name], None]) for name in given}


def subscriptions() -> st.SearchStrategy[Asked]:
    """Any subscription."""
    return SEEDS.map(lambda seed: subscription(Random(seed)))


def subscription(rng: Random) -> Asked:
    """Any subscription."""
    return rng.choice([aggregate, aggregate, aggregate, selection, join])(rng)


# --- conditions ----------------------------------------------------------------------------------------------------


def value(rng: Random, table: str, column: str) -> Any:
    """What a column is compared with: a row's value, one between, one beyond, no bound."""
    if column in INSTANT:
        return rng.choice([*INSTANTS, START - timedelta(days=1), START + timedelta(microseconds=500)])
    if column == "K":
        return rng.choice([0, 1, 2.5, 3, 4, 6] if table == "R" else [*KEYS["S"], "never"])
    if column in TEXT:
        return rng.choice([*TEXTS, *TEXTS, "never"])
    return rng.choice([*GRIDS[column], *GRIDS[column], -9, 0.25, 1, 1.0, 9.75, inf, -inf])


FORMS = ["BETWEEN", "BETWEEN", "BETWEEN", ">=", ">", "<=", "<", "=", "open", "half", "turned", "twice"]


def range_on(rng: Random, table: str, column: str, name: str) -> tuple[str, list[Any]]:
    """A range of a column, in one of its spellings; some are empty."""
    one, other = value(rng, table, column), value(rng, table, column)
    if rng.random() < 0.9 and other < one:
        one, other = other, one
    match form := rng.choice(FORMS):
        case "BETWEEN":
            return f"{name} BETWEEN ? AND ?", [one, other]
        case "open":
            return f"{name} > ? AND {name} < ?", [one, other]
        case "half":
            return f"{name} >= ? AND ? > {name}", [one, other]
        case "turned":
            return f"? <= {name}", [one]
        case "twice":
            return f"{name} >= ? AND {name} > ?", [one, other]
        case _:
            return f"{name} {form} ?", [one]


def equal_to(rng: Random, table: str, column: str, name: str) -> tuple[str, list[Any]]:
    """An equality; now and then two that may contradict each other."""
    wanted = [value(rng, table, column) for _ in range(rng.choice([1, 1, 1, 1, 1, 1, 1, 2]))]
    return " AND ".join([f"{name} = ?"] * len(wanted)), wanted


def ordered(table: str) -> list[str]:
    """The columns with an order, the key among them."""
    key = [] if table == "S" else [KEY[table]]
    return [*(name for name in COLUMNS[table] if name not in TEXT), *key]


def conditions(rng: Random, table: str, most_ranges: int, qualifier: str = "") -> tuple[list[str], list[Any]]:
    """Up to so many ranges, and up to two equalities on other columns."""
    ranged = rng.sample(ordered(table), min(rng.randint(0, most_ranges + 1), most_ranges))
    others = [name for name in (*COLUMNS[table], KEY[table]) if name not in ranged]
    equal = rng.sample(others, min(len(others), rng.choice([0, 0, 0, 0, 1, 1, 2])))
    parts = [range_on(rng, table, name, qualifier + name) for name in ranged]
    parts += [equal_to(rng, table, name, qualifier + name) for name in equal]
    rng.shuffle(parts)
    return [text for text, _ in parts], [wanted for _, some in parts for wanted in some]


def alternatives(rng: Random, table: str, ranges: int, qualifier: str = "") -> tuple[list[str], list[Any]]:
    """What `conditions` gives, but with OR, NOT, IN and <> between and in them; texts are named only."""
    named = rng.sample(ordered(table), rng.randint(1, min(ranges, len(ordered(table)))))
    text, parameters = tree(
        rng, table, named[: 1 if qualifier else None], qualifier, 1 if qualifier else rng.randint(1, 2)
    )
    others = [name for name in (*COLUMNS[table], KEY[table]) if name not in ordered(table)]
    if others and rng.random() < 0.4:
        name = rng.choice(others)
        wanted = [value(rng, table, name) for _ in range(rng.randint(1, 3))]
        more = f"{qualifier}{name} IN ({', '.join('?' * len(wanted))})"
        more = rng.choice([more, f"({' OR '.join([f'{qualifier}{name} = ?'] * len(wanted))})"])
        return [more, f"({text})"], [*wanted, *parameters]
    return [f"({text})"], parameters


def tree(rng: Random, table: str, named: list[str], qualifier: str, depth: int) -> tuple[str, list[Any]]:
    """AND, OR and NOT over comparisons of some columns."""
    if depth:
        parts = [tree(rng, table, named, qualifier, depth - 1) for _ in range(rng.randint(1, 2 if qualifier else 3))]
        text = rng.choice([" AND ", " OR ", " OR "]).join(f"({text})" for text, _ in parts)
        parameters = [wanted for _, some in parts for wanted in some]
    else:
        name = rng.choice(named)
        wanted = [value(rng, table, name) for _ in range(3)]
        least, most, _ = wanted
        text, parameters = rng.choice(
            [
                (f"{qualifier}{name} IN (?, ?, ?)", wanted),
                (f"{qualifier}{name} NOT IN (?, ?, ?)", wanted),
                (f"{qualifier}{name} <> ?", wanted[:1]),
                (f"{qualifier}{name} NOT BETWEEN ? AND ?", [least, most]),
                *([(f"{qualifier}{name} IS {rng.choice(['', 'NOT '])}NULL", [])] if not qualifier else []),
                range_on(rng, table, name, qualifier + name),
            ]
        )
    return (f"NOT ({text})", parameters) if rng.random() < 0.2 else (text, parameters)


# --- subscriptions -------------------------------------------------------------------------------------------------


def _where(texts: list[str]) -> str:
    return f" WHERE {' AND '.join(texts)}" if texts else ""


def aggregate(rng: Random) -> Asked:
    """MIN, MAX, COUNT, SUM, AVG or DISTINCT."""
    table = rng.choice("RRRSSW")
    numbers = [name for name in COLUMNS[table] if name not in TEXT | INSTANT]
    everything = [*COLUMNS[table], KEY[table]]
    match function := rng.choice(
        ["MIN", "MAX", "MIN", "MAX", "DISTINCT", "DISTINCT", "COUNT(*)", "COUNT", "SUM", "AVG"]
    ):
        case "MIN" | "MAX":
            what, ranges = f"{function}({rng.choice(ordered(table))})", 1
        case "DISTINCT":
            what, ranges = f"DISTINCT {rng.choice(everything)}", 1
        case "COUNT(*)":
            what, ranges = function, 2
        case "COUNT":
            what, ranges = f"COUNT({rng.choice(everything)})", 2
        case _:
            what, ranges = f"{function}({rng.choice(numbers)})", 2
    several = ranges > 1 and rng.random() < 0.4
    texts, parameters = (alternatives if several else conditions)(rng, table, ranges)
    return Asked(f"SELECT {what} FROM {table}{_where(texts)}", tuple(parameters))


def selection(rng: Random) -> Asked:
    """Rows of one table within zero to three ranges."""
    table = rng.choice("RRSW")
    everything = [*COLUMNS[table], KEY[table]]
    shown = rng.choice([["*"], rng.sample(everything, rng.randint(1, 3))])
    where = alternatives if rng.random() < 0.4 else conditions
    texts, parameters = where(rng, table, 2 if table == "W" else 3)
    return Asked(f"SELECT {', '.join(shown)} FROM {table}{_where(texts)}", tuple(parameters))


NUMBERS = [-2, -0.5, 0, 0.25, 0.5, 1, 1.0, 3, inf]
SPANS = [timedelta(microseconds=n) for n in (-1_000_000, -1, 0, 1, 2, 1_000_000)]
EQUALITIES = ["R.C = S.C", "R.A = S.A", "S.B = R.B", "R.T = S.U", "R.D = S.E", "R.C = S.K"]
BANDS = [("R.B", "S.B"), ("R.A", "S.A"), ("R.D", "S.E"), ("R.T", "S.U")]
SHOWN = ["*", "R.K, S.K", "R.A, S.E", "R.*", "S.B AS x, R.B AS y", "R.K, S.C, R.T, S.U", "S.K"]
OWN_EQUALITIES = ["x.C = y.C", "x.A = y.A", "y.B = x.A", "x.T = y.T", "x.K = y.D"]
OWN_BANDS = [("x.B", "y.B"), ("x.A", "y.D"), ("x.T", "y.T"), ("x.B", "y.A")]
OWN_SHOWN = ["*", "x.K, y.K", "x.A, y.D", "y.*", "y.B AS p, x.B AS q", "x.T, y.T"]


def band(rng: Random, columns: list[tuple[str, str]]) -> tuple[str, list[Any]]:
    """A condition on the difference of two columns."""
    left, right = rng.choice(columns)
    ends: list[Any] = list(SPANS) if left[-1] in INSTANT else list(NUMBERS)
    one, other = rng.choice(ends), rng.choice(ends)
    if rng.random() < 0.9 and other < one:
        one, other = other, one
    spellings: list[tuple[str, list[Any]]] = [
        (f"{right} - {left} BETWEEN ? AND ?", [one, other]),
        (f"{left} - {right} BETWEEN ? AND ?", [one, other]),
        (f"ABS({right} - {left}) <= ?", [other]),
        (f"ABS({left} - {right}) < ?", [other]),
        (f"{right} - {left} > ?", [one]),
        (f"{left} < {right}", []),
    ]
    return rng.choice(spellings)


def join(rng: Random) -> Asked:
    """Pairs of R and S, or of R with itself, that meet in equal columns or within a band, with conditions on both."""
    parameters: list[Any] = []
    texts: list[str] = []
    sides, equalities, bands, shown = [("R", "R"), ("S", "S")], EQUALITIES, BANDS, SHOWN
    left, right = "R", "S"
    if rng.random() < 0.3:
        sides, equalities, bands, shown = [("R", "x"), ("R", "y")], OWN_EQUALITIES, OWN_BANDS, OWN_SHOWN
        left, right = "R x", "R y"
    how = rng.choice(["USING", "equal", "equal", "band", "band"])
    if how == "USING":
        source = f"{left} JOIN {right} USING (C)"
    else:
        on, parameters = (rng.choice(equalities), []) if how == "equal" else band(rng, bands)
        source = rng.choice([f"{left} JOIN {right} ON {on}", f"{left}, {right}"])
        texts = [on] if " JOIN " not in source else []
    for table, name in sides:
        where = alternatives if rng.random() < 0.2 else conditions
        more, wanted = where(rng, table, 1, f"{name}.")
        texts = texts + more
        parameters = parameters + wanted
    return Asked(f"SELECT {rng.choice(shown)} FROM {source}{_where(texts)}", tuple(parameters))
