"""The judge of the demo: SQLite, filled from the publisher's own record, says what every answer must be."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from math import isclose
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.demo.stocks import CREATES, Upsert
from hullcast.clients.demo.stream import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from hullcast.clients.demo.record import Entry
    from hullcast.clients.demo.scenario import Ranges
    from hullcast.clients.demo.stocks import Action

    Floats = npt.NDArray[np.float64]

Row = tuple[Any, ...]

#: SUM and AVG: SQLite adds in the order of its rows, the engine as rows come and go; the last digits may differ.
RELATIVE = 1e-9
_SINGLE = ("SELECT MIN", "SELECT MAX", "SELECT COUNT", "SELECT SUM", "SELECT AVG")


@dataclass(frozen=True, slots=True)
class Moved:
    """An update as the table saw it: the row before, and after; None where there was none."""

    before: Row | None
    after: Row | None


class Judge:
    """The same rows in a database of another make. Nothing of the engine is used here."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:")
        self.seq = 0
        self._keys: dict[str, str] = {}
        for sql in CREATES:
            self._database.execute(sql)
        for table, key in self._database.execute(
            "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table' AND p.pk"
        ):
            self._keys[table] = key
        self._database.execute("CREATE INDEX BY_RISK ON STOCK (RISK, PER)")

    def apply(self, entry: Entry) -> list[Moved]:
        """Take an entry of the record; what each of its updates did."""
        self.seq = entry.last
        return list(self._apply(entry.action))

    def answer(self, sql: str) -> Any:
        """What this SQL gives now, in the form in which answers are compared."""
        rows = self._database.execute(sql).fetchall()
        return rows[0][0] if sql.startswith(_SINGLE) else canonical([list(row) for row in rows])

    def minima(self, ranges: Ranges) -> Floats:
        """The answers of range-MIN subscriptions over RISK; NaN stands for NULL."""
        self._database.execute("CREATE TEMP TABLE ASKED (ID INTEGER PRIMARY KEY, LOW REAL, HIGH REAL)")
        asked = zip(range(len(ranges)), ranges.low.tolist(), ranges.high.tolist(), strict=True)
        self._database.executemany("INSERT INTO ASKED VALUES (?, ?, ?)", asked)
        rows = self._database.execute(
            "SELECT (SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN LOW AND HIGH) FROM ASKED ORDER BY ID"
        ).fetchall()
        self._database.execute("DROP TABLE ASKED")
        return np.array([np.nan if value is None else value for (value,) in rows], np.float64)

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def _apply(self, action: Action) -> Iterable[Moved]:
        if isinstance(action, Upsert):
            for row in action.rows:
                before = self._row(action.table, row[self._keys[action.table]])
                self._upsert(action.table, row, is_new=before is None)
                yield Moved(before, self._row(action.table, row[self._keys[action.table]]))
        else:
            for key in action.keys:
                before = self._row(action.table, key)
                self._database.execute(f"DELETE FROM {action.table} WHERE {self._keys[action.table]} = ?", (key,))
                yield Moved(before, None)

    def _row(self, table: str, key: Any) -> Row | None:
        row: Row | None = self._database.execute(
            f"SELECT * FROM {table} WHERE {self._keys[table]} = ?", (key,)
        ).fetchone()
        return row

    def _upsert(self, table: str, row: dict[str, Any], *, is_new: bool) -> None:
        if is_new:
            marks = ", ".join("?" * len(row))
            self._database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
        else:
            changes = ", ".join(f"{column} = ?" for column in row)
            key = self._keys[table]
            self._database.execute(f"UPDATE {table} SET {changes} WHERE {key} = ?", (*row.values(), row[key]))


def same(answer: Any, expected: Any) -> bool:
    """Whether two answers in canonical form are equal; of real numbers the last digits may differ."""
    if isinstance(answer, float) and isinstance(expected, float):
        return isclose(answer, expected, rel_tol=RELATIVE)
    return bool(answer == expected)


def count_different(answers: Floats, expected: Floats) -> int:
    """How many of many answers differ; NaN is NULL, and equals itself."""
    if len(answers) != len(expected):
        return max(len(answers), len(expected))
    return len(answers) - int(np.sum((answers == expected) | (np.isnan(answers) & np.isnan(expected))))
