"""The judge of the demo: SQLite, filled from the trace alone, says what every answer must be."""

from __future__ import annotations

import sqlite3
from math import isclose
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.stocks import CREATES, Upsert

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from sim.stocks import Action

    Floats = npt.NDArray[np.float64]

#: SUM and AVG: SQLite adds in the order of its rows, the engine as rows come and go; the last digits may differ.
RELATIVE = 1e-9


class Judge:
    """The same rows in a database of another make. Nothing of the engine is used here."""

    def __init__(self, start: Iterable[Action]) -> None:
        self._database = sqlite3.connect(":memory:")
        for sql in CREATES:
            self._database.execute(sql)
        self._database.execute("CREATE INDEX BY_RISK ON STOCK (RISK, PER)")
        self.apply(start)

    def apply(self, actions: Iterable[Action]) -> None:
        """Take a batch of the trace."""
        for action in actions:
            if isinstance(action, Upsert):
                for row in action.rows:
                    self._upsert(action.table, row)
            else:
                (key,) = self._database.execute(
                    "SELECT name FROM pragma_table_info(?) WHERE pk", (action.table,)
                ).fetchone()
                self._database.executemany(
                    f"DELETE FROM {action.table} WHERE {key} = ?", [(value,) for value in action.keys]
                )

    def agrees(self, sql: str, answer: Any) -> bool:
        """Whether an answer is what this SQL gives."""
        rows = self._database.execute(sql).fetchall()
        if isinstance(answer, list):
            return sorted(map(tuple, answer), key=repr) == sorted(rows, key=repr)
        if isinstance(answer, set):
            return answer == {value for (value,) in rows}
        ((expected,),) = rows
        if isinstance(answer, float) and isinstance(expected, float):
            return isclose(answer, expected, rel_tol=RELATIVE)
        return bool(answer == expected)

    def count_wrong_minima(self, low: Floats, high: Floats, answers: Floats) -> int:
        """How many answers of range-MIN subscriptions over RISK differ from SQL; NaN stands for NULL."""
        self._database.execute("CREATE TEMP TABLE ASKED (ID INTEGER PRIMARY KEY, LOW REAL, HIGH REAL)")
        self._database.executemany(
            "INSERT INTO ASKED VALUES (?, ?, ?)", zip(range(len(low)), low.tolist(), high.tolist(), strict=True)
        )
        rows = self._database.execute(
            "SELECT (SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN LOW AND HIGH) FROM ASKED ORDER BY ID"
        ).fetchall()
        self._database.execute("DROP TABLE ASKED")
        expected = np.array([np.nan if value is None else value for (value,) in rows], np.float64)
        return len(answers) - int(np.sum((answers == expected) | (np.isnan(answers) & np.isnan(expected))))

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def _upsert(self, table: str, row: dict[str, Any]) -> None:
        columns = list(row)  # the key comes first in every row of the trace
        marks = ", ".join("?" * len(columns))
        changes = ", ".join(f"{column} = excluded.{column}" for column in columns[1:])
        values = list(row.values())
        if table == "STOCK" and "SECTOR" not in row:  # a change of a row that is there; SECTOR is NOT NULL
            assignments = ", ".join(f"{column} = ?" for column in columns[1:])
            self._database.execute(f"UPDATE {table} SET {assignments} WHERE {columns[0]} = ?", (*values[1:], values[0]))
            return
        self._database.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT DO UPDATE SET {changes}", values
        )
