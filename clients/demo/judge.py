"""The judge of the demo: SQLite, filled from the publisher's record, says what each answer must be."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from math import isclose
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.demo.record import Rebuilt, canonical
from hullcast.clients.demo.scenario import share_of
from hullcast.clients.demo.stocks import CREATES, Upsert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hullcast.clients.demo.record import Acknowledged
    from hullcast.clients.demo.stocks import MarketAction
    from hullcast.network.wire.arrays import Floats
    from hullcast.sim.traces.table51 import RangeColumns


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
        self._ranges, self._ranges_s = 0, 0.0  # those asked by `minima`, and the CPU time that SQLite took for them
        self._keys: dict[str, str] = {}
        for sql in CREATES:
            self._database.execute(sql)
        for table, key in self._database.execute(
            "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table' AND p.pk"
        ):
            self._keys[table] = key
        self._database.execute("CREATE INDEX BY_RISK ON STOCK (RISK, PER)")

    def apply(self, entry: Acknowledged) -> list[Moved]:
        """Take an entry of the record; what each of its updates did."""
        self.seq = entry.last
        return list(self._apply(entry.action))

    def answer(self, sql: str) -> Any:
        """What this SQL gives now, in the form in which answers are compared."""
        rows = self._database.execute(sql).fetchall()
        return rows[0][0] if sql.startswith(_SINGLE) else canonical([list(row) for row in rows])

    def minima(self, ranges: RangeColumns) -> Floats:
        """The answers of range-MIN subscriptions over RISK; NaN stands for NULL."""
        self._database.execute("CREATE TEMP TABLE ASKED (ID INTEGER PRIMARY KEY, LOW REAL, HIGH REAL)")
        asked = zip(range(len(ranges)), ranges.low.tolist(), ranges.high.tolist(), strict=True)
        self._database.executemany("INSERT INTO ASKED VALUES (?, ?, ?)", asked)
        began = process_time()
        rows = self._database.execute(
            "SELECT (SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN LOW AND HIGH) FROM ASKED ORDER BY ID"
        ).fetchall()
        self._ranges, self._ranges_s = self._ranges + len(ranges), self._ranges_s + process_time() - began
        self._database.execute("DROP TABLE ASKED")
        return np.array([np.nan if value is None else value for (value,) in rows], np.float64)

    @property
    def range_s(self) -> float:
        """The CPU time that SQLite took for a range, on average."""
        return self._ranges_s / max(1, self._ranges)

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def _apply(self, action: MarketAction) -> Iterable[Moved]:
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


SHOWN_FAULTS = 5


@dataclass(slots=True)
class Moment:
    """What SQL said after the update `seq`, by query."""

    seq: int
    answers: Mapping[str, Any]


@dataclass(slots=True)
class Verdict:
    """How many checks of each kind were made, and what they found."""

    final: int = 0  # answers at the end, against SQL
    rebuilt: int = 0  # answers rebuilt from events alone, against SQL, at many moments
    events: int = 0
    moments: int = 0
    resyncs: Counter[str] = field(default_factory=Counter)  # by reason; at a "gap" or "overflow" events are missing
    unseen: int = 0  # moments inside a gap that a Resync told of
    wrong: int = 0
    faults: list[str] = field(default_factory=list)  # the first few

    def fault(self, text: str, count: int = 1) -> None:
        """Something is wrong."""
        self.wrong += count
        if len(self.faults) < SHOWN_FAULTS:
            self.faults.append(text)


class Continuity:
    """Whether the acknowledged calls have sequence numbers without a gap: nothing was applied twice or by others."""

    def __init__(self) -> None:
        self._last: int | None = None
        self.fault: str | None = None

    def follow(self, entry: Acknowledged) -> None:
        """Take the next entry of the record."""
        if self._last is not None and entry.first != self._last + 1 and self.fault is None:
            self.fault = f"no client published the updates {self._last + 1} to {entry.first - 1}"
        self._last = entry.last


def judge_all(
    results: Mapping[str, Mapping[str, Any]], judge: Judge, moments: Iterable[Moment], ranges: RangeColumns
) -> Verdict:
    """Judge what each client brought: its final answers, those it would have from events alone, and its many."""
    verdict = Verdict()
    moments = list(moments)
    verdict.moments = len(moments)
    for client, result in results.items():
        if result["seq"] != judge.seq:
            verdict.fault(f"{client} is at update {result['seq']}, the publisher at {judge.seq}")
        if result["watched"] is not None:
            _judge_stream(verdict, client, result["watched"], judge, moments)
        mine = share_of(ranges, client)
        expected = judge.minima(mine)
        for name, count in (("many", "final"), ("rebuilt", "rebuilt")):
            different = count_different(_column(result[name]), expected)
            setattr(verdict, count, getattr(verdict, count) + len(mine))
            if different:
                verdict.fault(
                    f"{client}: {different:,} of {len(mine):,} MIN ranges ({name}) are not as in SQL", different
                )
    return verdict


def _judge_stream(verdict: Verdict, client: str, one: Mapping[str, Any], judge: Judge, moments: list[Moment]) -> None:
    sql, events = one["sql"], one["events"]
    verdict.events += len(events) - 1  # the first is the answer to begin with
    verdict.resyncs.update(event["how"] for event in events[1:] if "how" in event)
    verdict.final += 1
    expected = judge.answer(sql)
    if not same(canonical(one["answer"]), expected):
        verdict.fault(f"{client}: {sql} is {one['answer']!r:.60}, in SQL {expected!r:.60}")
    known = Rebuilt(events)
    answers = [(moment, known.at(moment.seq)) for moment in moments]
    last = known.at(judge.seq)
    for text in known.faults:
        verdict.fault(f"{client}: {sql}: {text}")
    for moment, answer in answers:
        if not known.sees(moment.seq):
            verdict.unseen += 1
            continue
        verdict.rebuilt += 1
        if not same(answer, moment.answers[sql]):
            verdict.fault(
                f"{client}: {sql} at {moment.seq}: events give {answer!r:.60}, SQL {moment.answers[sql]!r:.60}"
            )
    if not same(last, expected):
        verdict.fault(f"{client}: {sql}: the events give {last!r:.60} at the end, SQL {expected!r:.60}")


def _column(values: list[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values], np.float64)
