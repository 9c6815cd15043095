"""The SQL that maintains a view, written from its definition: pure text, run by `broker/warehouse/files/view_file.py`.

A file has a *copy* of each source (the rows that meet its conditions, the columns that are needed) and the *result*.
Changes of one source, coalesced, come in a temporary table `n`: a row for each key, and whether it is *there*. Then

    delta    what the copy has for these keys with weight -1, and what is there now with weight +1
    joined   delta x the other copies, in an order that begins with the delta and follows equalities, by indexes
    result   projection: rows with weight -1 are removed, those with +1 are put, by the keys of all sources
             groups: counts and sums of weights are added to the group's row; for MIN and MAX how often each value
             occurs is kept by (group, value), so the next one is there when the last of the least is removed
    copy     becomes what is there now

CROSS JOIN is SQLite's way to say that the order is meant. An INTEGER's sum is two whole numbers (of its upper and its
lower 32 bits): neither can overflow. A REAL's sum is exact (`exact.py`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from hullcast.broker.queries.sqlite_copy import RESULT, affinity, quoted
from hullcast.broker.sql.query import Ref
from hullcast.broker.sql.text import MAXIMUM_NAME
from hullcast.broker.tables.schema import ColumnType
from hullcast.broker.views import exact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hullcast.broker.queries.view import ViewCondition, ViewDefinition, ViewOutput
    from hullcast.broker.sql.view import Constant

_LOW: Final = 2**32


def _own(name: str) -> str:
    """A name of ours, longer than a view's may be."""
    return f"hullcast_{name}".ljust(MAXIMUM_NAME + 1, "_")


class _Step(NamedTuple):
    """A source that a join goes on with: what connects it with those before it."""

    side: int
    columns: tuple[int, ...]  # of its own
    conditions: tuple[str, ...]


class SourceStatements(NamedTuple):
    """What is run for changes of one source. `reads` are the columns of its table that `put` takes, in their order."""

    reads: tuple[int, ...]
    clear: tuple[str, ...]
    put: str  # a row that is there, if it meets the conditions
    put_stored: str  # a row as the copy has it
    put_gone: str  # a key that is gone
    drop_unchanged: str
    is_changed: str
    propagate: tuple[str, ...]  # from the delta to the result
    store: tuple[str, ...]  # from `n` to the copy
    sample: str


class ViewStatements:
    """All statements of one view."""

    def __init__(self, view: ViewDefinition) -> None:
        self._view = view
        self._counted = list(
            dict.fromkeys(output.column for output in view.outputs if output.function and output.column is not None)
        )
        self._extremes = [
            number
            for number, ref in enumerate(self._counted)
            if any(output.column == ref and output.function in ("MIN", "MAX") for output in view.outputs)
        ]
        self._summed = [
            number
            for number, ref in enumerate(self._counted)
            if any(output.column == ref and output.function in ("SUM", "AVG") for output in view.outputs)
        ]

    # -- tables --------------------------------------------------------------------------------------------

    @cached_property
    def create(self) -> tuple[str, ...]:
        """The tables of a new file, and what queries see."""
        view, made = self._view, []
        for side in range(len(view.sources)):
            made.append(f"CREATE TABLE {_copy(side)} ({self._source_columns(side)}){self._rowid(side)}")
        if view.groups is None:
            keys = [f"k{side} {affinity(source.table.key_column)}" for side, source in enumerate(view.sources)]
            outputs = [f"o{number} {_affinity(output.type)}" for number, output in enumerate(view.outputs)]
            names = ", ".join(f"k{side}" for side in range(len(view.sources)))
            made.append(f"CREATE TABLE {RESULT} ({', '.join(keys + outputs)}, PRIMARY KEY ({names})) WITHOUT ROWID")
        else:
            columns = ["id INTEGER PRIMARY KEY", *self._group_columns(), *self._counters()]
            columns += [f"o{number} {_affinity(view.outputs[number].type)}" for number in self._functions]
            made.append(f"CREATE TABLE {RESULT} ({', '.join(columns)})")
            for number in self._extremes:
                value = f"v {affinity(view.column(self._counted[number]))}"
                key = "PRIMARY KEY (id, v)) WITHOUT ROWID"
                made.append(f"CREATE TABLE {_values(number)} (id INTEGER, {value}, n INTEGER, {key}")
            if not view.groups:  # one row, also for no rows
                zeros = ", ".join(zero for _, zero in self._counter_zeros())
                outputs = [
                    f", {0 if view.outputs[number].function == 'COUNT' else 'NULL'}" for number in self._functions
                ]
                made.append(f"INSERT INTO {RESULT} VALUES (1, {zeros}{''.join(outputs)})")
        shown = (f"{self._stored(number)} AS {quoted(output.name)}" for number, output in enumerate(view.outputs))
        made.append(f"CREATE VIEW {quoted(view.name)} AS SELECT {', '.join(shown)} FROM {RESULT}")
        return tuple(made)

    @cached_property
    def indexes(self) -> tuple[str, ...]:
        """What joins and groups look up by; made when the copies are filled."""
        made = []
        for side, sets in sorted(self._lookups.items()):
            for number, columns in enumerate(sets):
                names = ", ".join(f"c{column}" for column in columns)
                made.append(f"CREATE INDEX {_own(f'index{side}_{number}')} ON {_copy(side)} ({names})")
        if self._view.groups:
            names = ", ".join(f"g{number}" for number in range(len(self._view.groups)))
            made.append(f"CREATE INDEX {_own('groups')} ON {RESULT} ({names})")
        return tuple(made)

    @cached_property
    def temporary(self) -> tuple[str, ...]:
        """The temporary tables of a connection."""
        view = self._view
        made = [
            f"CREATE TEMP TABLE n{side} ({self._source_columns(side)}, there INTEGER){self._rowid(side)}"
            for side in range(len(view.sources))
        ]
        if view.groups is None:
            made.append(f"CREATE TEMP TABLE j ({', '.join(['w', *self._keys(), *self._outputs()])})")
            return tuple(made)
        if self._extremes:
            made.append(f"CREATE TEMP TABLE j ({', '.join(['w', *self._group_columns(), *self._value_columns()])})")
        counters = ", ".join(["id INTEGER", *self._group_columns(), *self._counters()])
        made.append(f"CREATE TEMP TABLE dg ({counters})")
        made += [f"CREATE TEMP TABLE dm{number} (id INTEGER, v, n INTEGER)" for number in self._extremes]
        return tuple(made)

    def clear(self) -> list[str]:
        """Remove all rows of the file."""
        return [*(f"DELETE FROM main.{_copy(side)}" for side in range(len(self._view.sources))), *self.clear_result()]

    def clear_result(self) -> list[str]:
        """Remove the result, and leave the copies."""
        cleared = [f"DELETE FROM main.{_values(number)}" for number in self._extremes]
        if self._view.groups == ():
            zeros = [f"{name} = {zero}" for name, zero in self._counter_zeros()]
            for number in self._functions:
                zeros.append(f"o{number} = {0 if self._view.outputs[number].function == 'COUNT' else 'NULL'}")
            return [*cleared, f"UPDATE main.{RESULT} SET {', '.join(zeros)}"]
        return [*cleared, f"DELETE FROM main.{RESULT}"]

    # -- copies --------------------------------------------------------------------------------------------

    def copy(self, side: int, stored: str, as_copied: Callable[[int], str]) -> str:
        """Fill the copy of a source from a table (`stored`), whose columns are read by `as_copied`."""
        source = self._view.sources[side]
        columns = ", ".join(f"{as_copied(column)} AS c{column}" for column in self._reads(side))
        where = self._conditions(side, lambda column: f"c{column}")
        names = ", ".join(f"c{column}" for column in source.columns)
        text = f"INSERT INTO main.{_copy(side)} SELECT {names} FROM (SELECT {columns} FROM {stored})"
        return f"{text}{f' WHERE {where}' if where else ''} ORDER BY c{source.table.key}"

    def count(self, side: int) -> str:
        """How many rows the copy of a source has."""
        return f"SELECT COUNT(*) FROM main.{_copy(side)}"

    @cached_property
    def sources(self) -> tuple[SourceStatements, ...]:
        """What is run for each source."""
        return tuple(map(self._source, range(len(self._view.sources))))

    def _source(self, side: int) -> SourceStatements:
        source = self._view.sources[side]
        reads, columns, key = self._reads(side), source.columns, f"c{source.table.key}"
        names = ", ".join(f"c{column}" for column in columns)
        marks = {column: f"?{number}" for number, column in enumerate(reads, 1)}
        there = self._conditions(side, marks.__getitem__)
        copy, new = f"main.{_copy(side)}", f"temp.n{side}"
        old = f"SELECT 1 FROM {copy} s WHERE s.{key} = n.{key}"
        same = " AND ".join(f"s.c{column} IS n.c{column}" for column in columns)
        emptied = ["j"] if self._view.groups is None or self._extremes else []
        emptied += [] if self._view.groups is None else ["dg", *(f"dm{number}" for number in self._extremes)]
        delta = f"(SELECT -1 AS w, {', '.join(f's.c{column}' for column in columns)} FROM {new} n"
        delta += f" CROSS JOIN {copy} s ON s.{key} = n.{key} UNION ALL SELECT 1, {names} FROM {new} WHERE there)"
        return SourceStatements(
            reads,
            tuple(f"DELETE FROM temp.{table}" for table in (f"n{side}", *emptied)),
            f"INSERT INTO {new} ({names}, there) VALUES ({', '.join(marks[column] for column in columns)}, "
            + (f"({there}) IS TRUE)" if there else "1)"),
            f"INSERT INTO {new} ({names}, there) VALUES ({', '.join('?' * len(columns))}, 1)",
            f"INSERT INTO {new} ({key}, there) VALUES (?, 0)",
            f"DELETE FROM {new} AS n WHERE CASE WHEN there THEN EXISTS ({old} AND {same}) ELSE NOT EXISTS ({old}) END",
            f"SELECT EXISTS (SELECT 1 FROM {new})",
            tuple(self._propagate(side, delta)),
            tuple(self._store(side)),
            f"SELECT {names} FROM {copy} ORDER BY random() LIMIT ?",
        )

    def _store(self, side: int) -> list[str]:
        """From `n` to the copy. Where only columns without an index changed, no index is touched, nor its pages."""
        source, copy, new = self._view.sources[side], f"main.{_copy(side)}", f"temp.n{side}"
        key, names = f"c{source.table.key}", ", ".join(f"c{column}" for column in source.columns)
        looked_up = {column for columns in self._lookups.get(side, ()) for column in columns}
        plain = [column for column in source.columns if column != source.table.key and column not in looked_up]
        others = [f"c{column} = excluded.c{column}" for column in source.columns if column != source.table.key]
        on_conflict = f"ON CONFLICT ({key}) DO " + (f"UPDATE SET {', '.join(others)}" if others else "NOTHING")
        removed = f"DELETE FROM {copy} WHERE {key} IN (SELECT {key} FROM {new} WHERE NOT there)"
        put = f"INSERT INTO {copy} ({names}) SELECT {names} FROM {new} AS n WHERE there"
        if not looked_up or not plain:
            return [removed, f"{put} {on_conflict}"]
        same = " AND ".join(f"s.c{column} IS n.c{column}" for column in [source.table.key, *sorted(looked_up)])
        changed = ", ".join(f"c{column}" for column in plain)
        there = f"SELECT {changed} FROM {new} AS n WHERE n.{key} = s.{key}"
        return [
            removed,
            f"{put} AND NOT EXISTS (SELECT 1 FROM {copy} s WHERE {same}) {on_conflict}",
            f"UPDATE {copy} AS s SET ({changed}) = ({there}) WHERE {key} IN (SELECT {key} FROM {new} WHERE there)",
        ]

    def _reads(self, side: int) -> tuple[int, ...]:
        """The columns of a table that are read: those of the copy, and those of conditions."""
        source = self._view.sources[side]
        refs = [ref for left, _, right in source.conditions for ref in (left, right) if isinstance(ref, Ref)]
        return tuple(sorted({*source.columns, *(ref.column for ref in refs)}))

    def _conditions(self, side: int, column: Callable[[int], str]) -> str:
        conditions = self._view.sources[side].conditions
        return " AND ".join(_condition(condition, lambda ref: column(ref.column)) for condition in conditions)

    def _source_columns(self, side: int) -> str:
        table = self._view.sources[side].table
        declared = [f"c{column} {affinity(table.columns[column])}" for column in self._view.sources[side].columns]
        declared[self._view.sources[side].columns.index(table.key)] += " PRIMARY KEY"
        return ", ".join(declared)

    def _rowid(self, side: int) -> str:
        """An INTEGER key is the rowid, as in a table's file; any other is the key of the tree itself."""
        is_rowid = self._view.sources[side].table.key_column.type is ColumnType.INTEGER
        return "" if is_rowid else " WITHOUT ROWID"

    # -- joins ---------------------------------------------------------------------------------------------

    def _order(self, start: int) -> list[_Step]:
        """The other sources, each connected with those before it: by its key if possible, or by most columns."""
        steps: list[_Step] = []
        reached = {start}
        while len(reached) < len(self._view.sources):
            candidates = [self._step(side, reached) for side in range(len(self._view.sources)) if side not in reached]
            best = max(
                (step for step in candidates if step.columns),
                key=lambda step: (self._view.sources[step.side].table.key in step.columns, len(step.columns)),
            )
            steps.append(best)
            reached.add(best.side)
        return steps

    @cached_property
    def _lookups(self) -> dict[int, list[tuple[int, ...]]]:
        """By which columns, other than its key, joins look up rows of a source."""
        wanted: dict[int, set[tuple[int, ...]]] = {}
        for start in range(len(self._view.sources)):
            for step in self._order(start):
                if self._view.sources[step.side].table.key not in step.columns:
                    wanted.setdefault(step.side, set()).add(step.columns)
        return {
            side: [one for one in sorted(sets) if not any(other[: len(one)] == one for other in sets - {one})]
            for side, sets in wanted.items()
        }

    def _step(self, side: int, reached: set[int]) -> _Step:
        conditions: dict[str, None] = {}
        columns: set[int] = set()
        for equal in self._equal:
            own = [ref for ref in equal if ref.side == side]
            before = [ref for ref in equal if ref.side in reached]
            if own and before:
                columns.update(ref.column for ref in own)
                conditions.update((f"{_cell(ref)} = {_cell(other)}", None) for ref in own for other in before)
        for condition in self._view.residual:
            assert isinstance(condition.right, Ref)
            sides = {condition.left.side, condition.right.side}
            if side in sides and sides <= reached | {side}:
                conditions[_condition(condition, _cell)] = None
        return _Step(side, tuple(sorted(columns)), tuple(conditions))

    @cached_property
    def _equal(self) -> list[list[Ref]]:
        """Columns that are all equal in a row of the join, since equalities between some of them say so."""
        classes: list[set[Ref]] = []
        for pair in self._view.equalities:
            touched = [one for one in classes if one & set(pair)]
            classes = [one for one in classes if one not in touched] + [set(pair).union(*touched)]
        return [sorted(one) for one in classes]

    def _join(self, start: int, first: str) -> str:
        """FROM `first`, which stands for the source `start`, and the other copies."""
        text = f"{first} AS s{start}"
        for step in self._order(start):
            text += f" CROSS JOIN main.{_copy(step.side)} AS s{step.side} ON {' AND '.join(step.conditions)}"
        return text

    # -- results -------------------------------------------------------------------------------------------

    def _propagate(self, side: int, delta: str) -> list[str]:
        joined = self._join(side, delta)
        if self._view.groups is None:
            keys = ", ".join(self._keys())
            refs = [Ref(one, source.table.key) for one, source in enumerate(self._view.sources)]
            cells = [f"s{side}.w", *map(_cell, refs), *(self._cell_of(output) for output in self._view.outputs)]
            row = ", ".join([*self._keys(), *self._outputs()])
            return [
                f"INSERT INTO temp.j SELECT {', '.join(cells)} FROM {joined}",
                f"DELETE FROM main.{RESULT} WHERE ({keys}) IN (SELECT {keys} FROM temp.j WHERE w < 0)",
                f"INSERT INTO main.{RESULT} ({row}) SELECT {row} FROM temp.j WHERE w > 0",
            ]
        rows = f"(SELECT s{side}.w AS w{self._group_cells()} FROM {joined})"
        if self._extremes:
            return [f"INSERT INTO temp.j SELECT * FROM {rows}", *self._grouped("temp.j", delta=True)]
        return self._grouped(rows, delta=True)

    def build(self, start: int, most: int) -> list[str]:
        """Compute the whole result from the copies, beginning with one of them; there is none yet. Of what they join
        to, one row more than `most` is enough: it is too much then (`joined`)."""
        joined = f"{self._join(start, f'main.{_copy(start)}')} LIMIT {most + 1}"
        if self._view.groups is None:
            refs = [Ref(one, source.table.key) for one, source in enumerate(self._view.sources)]
            keys = [f"{_cell(ref)} AS k{side}" for side, ref in enumerate(refs)]
            cells = [*keys, *(self._cell_of(output) for output in self._view.outputs)]
            rows = f"(SELECT {', '.join(cells)} FROM {joined})"
            return [f"INSERT INTO main.{RESULT} SELECT * FROM {rows} ORDER BY {', '.join(self._keys())}"]
        return [
            "DELETE FROM temp.dg",
            *self._grouped(f"(SELECT 1 AS w{self._group_cells()} FROM {joined})", delta=False),
        ]

    @property
    def joined(self) -> str:
        """How many rows of the join the result is made of."""
        return f"SELECT {'COUNT(*)' if self._view.groups is None else 'COALESCE(SUM(n), 0)'} FROM main.{RESULT}"

    def _group_cells(self) -> str:
        assert self._view.groups is not None
        cells = [f", {_cell(ref)} AS g{number}" for number, ref in enumerate(self._view.groups)]
        cells += [f", {_cell(ref)} AS v{number}" for number, ref in enumerate(self._counted)]
        return "".join(cells)

    def _grouped(self, rows: str, *, delta: bool) -> list[str]:
        """From weighted rows to the groups' rows."""
        groups = self._view.groups
        assert groups is not None
        names = [f"g{number}" for number in range(len(groups))]
        by = ", ".join(names) or "'all'"

        def found(one: str) -> str:
            if not names:
                return "1"
            return f"(SELECT r.id FROM main.{RESULT} r WHERE {' AND '.join(f'r.{g} IS {one}.{g}' for g in names)})"

        sums = ", ".join(self._sums())
        grouped = f"(SELECT {''.join(f'{g}, ' for g in names)}{sums} FROM {rows} GROUP BY {by})"
        counters = [name for name, _ in self._counter_zeros()]
        columns = ", ".join(["id", *names, *counters])
        done = [f"INSERT INTO temp.dg ({columns}) SELECT {found('q')}, q.* FROM {grouped} q"]
        if names:
            zeros = ", ".join(zero for _, zero in self._counter_zeros())
            done += [
                f"INSERT INTO main.{RESULT} ({', '.join([*names, *counters])})"
                f" SELECT {', '.join(names)}, {zeros} FROM temp.dg WHERE id IS NULL",
                f"UPDATE temp.dg AS d SET id = {found('d')} WHERE id IS NULL",
            ]
        for number in self._extremes:
            some = f"SELECT {found('q')} AS id, v{number} AS v, n FROM (SELECT {''.join(f'{g}, ' for g in names)}"
            some += f"v{number}, SUM(w) AS n FROM {rows} WHERE v{number} IS NOT NULL"
            some += f" GROUP BY {''.join(f'{g}, ' for g in names)}v{number} HAVING SUM(w) <> 0) q"
            values = f"main.{_values(number)}"
            if not delta:
                done.append(f"INSERT INTO {values} SELECT * FROM ({some}) ORDER BY id, v")
                continue
            done += [
                f"INSERT INTO temp.dm{number} {some}",
                f"INSERT INTO {values} SELECT id, v, n FROM temp.dm{number} WHERE TRUE"
                " ON CONFLICT (id, v) DO UPDATE SET n = n + excluded.n",
                f"DELETE FROM {values} WHERE (id, v) IN (SELECT id, v FROM temp.dm{number} WHERE n < 0) AND n = 0",
            ]
        changed = [f"{name} = {_added(name)}" for name in counters]
        changed += [f"o{number} = {self._function(self._view.outputs[number])}" for number in self._functions]
        done.append(f"UPDATE main.{RESULT} AS g SET {', '.join(changed)} FROM temp.dg AS d WHERE g.id = d.id")
        if names and delta:
            done.append(f"DELETE FROM main.{RESULT} WHERE id IN (SELECT id FROM temp.dg) AND n = 0")
        return done

    def _sums(self) -> list[str]:
        """What a group's row is changed by, in the order of the counters."""
        sums = ["SUM(w)"]
        for number, ref in enumerate(self._counted):
            if not self._view.column(ref).not_null:
                sums.append(f"SUM(w * (v{number} IS NOT NULL))")
            if number not in self._summed:
                continue
            if self._view.column(ref).type is ColumnType.REAL:
                sums.append(f"{exact.SUM}(v{number}, w)")
            else:
                sums += [f"COALESCE(SUM(w * (v{number} >> 32)), 0)", f"COALESCE(SUM(w * (v{number} & {_LOW - 1})), 0)"]
        return sums

    def _counter_zeros(self) -> list[tuple[str, str]]:
        """The counters of a group's row, and what they are without rows."""
        counters = [("n", "0")]
        for number, ref in enumerate(self._counted):
            if not self._view.column(ref).not_null:
                counters.append((f"n{number}", "0"))
            if number not in self._summed:
                continue
            if self._view.column(ref).type is ColumnType.REAL:
                counters.append((f"x{number}", "x''"))
            else:
                counters += [(f"h{number}", "0"), (f"l{number}", "0")]
        return counters

    def _counters(self) -> list[str]:
        return [f"{name} {'BLOB' if name.startswith('x') else 'INTEGER'}" for name, _ in self._counter_zeros()]

    def _function(self, output: ViewOutput) -> str:
        """What an aggregate is, of the group's row `g` and what it is changed by, `d`."""
        if output.column is None:
            return _added("n")
        number = self._counted.index(output.column)
        if output.function in ("MIN", "MAX"):
            order = "DESC" if output.function == "MAX" else "ASC"
            return f"(SELECT v FROM main.{_values(number)} m WHERE m.id = g.id ORDER BY v {order} LIMIT 1)"
        column = self._view.column(output.column)
        count = _added("n" if column.not_null else f"n{number}")
        if output.function == "COUNT":
            return count
        if column.type is ColumnType.REAL:
            total = f"{exact.ROUNDED}({_added(f'x{number}')})"
        else:
            high, low = _added(f"h{number}"), _added(f"l{number}")
            total = f"(({high} + ({low} >> 32)) * {_LOW} + ({low} & {_LOW - 1}))"
        if output.function == "AVG":
            total = f"CAST({total} AS REAL) / {count}"
        return f"CASE WHEN {count} THEN {total} END"

    @cached_property
    def _functions(self) -> list[int]:
        """The outputs that are aggregates."""
        return [number for number, output in enumerate(self._view.outputs) if output.function]

    def _stored(self, number: int) -> str:
        """Where an output is in the result."""
        output, groups = self._view.outputs[number], self._view.groups
        if output.function or groups is None:
            return f"o{number}"
        assert output.column is not None
        return f"g{groups.index(output.column)}"

    def _cell_of(self, output: ViewOutput) -> str:
        assert output.column is not None
        return _cell(output.column)

    def _keys(self) -> list[str]:
        return [f"k{side}" for side in range(len(self._view.sources))]

    def _outputs(self) -> list[str]:
        return [f"o{number}" for number in range(len(self._view.outputs))]

    def _group_columns(self) -> list[str]:
        refs = self._view.groups or ()
        return [f"g{number} {affinity(self._view.column(ref))}" for number, ref in enumerate(refs)]

    def _value_columns(self) -> list[str]:
        return [f"v{number} {affinity(self._view.column(ref))}" for number, ref in enumerate(self._counted)]


def _copy(side: int) -> str:
    return _own(f"copy{side}")


def _values(number: int) -> str:
    return _own(f"values{number}")


def _affinity(kind: ColumnType) -> str:
    return "TEXT" if kind is ColumnType.TIMESTAMP else kind.value


def _cell(ref: Ref) -> str:
    return f"s{ref.side}.c{ref.column}"


def _added(counter: str) -> str:
    return f"{exact.PLUS}(g.{counter}, d.{counter})" if counter.startswith("x") else f"(g.{counter} + d.{counter})"


def _condition(condition: ViewCondition, column: Callable[[Ref], str]) -> str:
    left, operator, right = condition
    if isinstance(right, Ref):
        return f"{column(left)} {operator} {column(right)}"
    if not right:
        return f"{column(left)} {operator}"
    return f"{column(left)} {operator} {_constants(right, 'IN' in operator)}"


def _constants(values: Sequence[Constant], several: bool) -> str:
    texts = ", ".join(map(_constant, values))
    return f"({texts})" if several else texts


def _constant(value: Constant) -> str:
    """A constant that is this very value to SQLite, which reads digits of a REAL beyond the fifteenth inexactly."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, int) or float(f"{value:.15g}") == value:
        return repr(value)
    whole, parts = value.as_integer_ratio()
    if abs(whole) < 2**63 and parts < 2**63:
        return f"({whole} * 1.0 / {parts})"
    return repr(value)
