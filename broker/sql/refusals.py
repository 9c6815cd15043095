"""What to tell the author of an expression that the language does not have."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from typing import Final, NoReturn

from sqlglot import exp
from sqlglot.errors import ErrorLevel

from hullcast.broker.sql.text import Statement, read_statement, refuse, refuse_to_follow, shorten
from hullcast.broker.sql.view import CREATE_VIEW, read_create_view
from hullcast.broker.tables.schema import Table, fold
from hullcast.network.wire.errors import Remedy

_CONDITIONS = "accepted: col BETWEEN a AND b, col IN (..), col <, <=, =, <>, >=, > a value, joined by AND, OR and NOT"

#: An empty hint: what is accepted where the expression stands.
_REFUSED: Final[tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...]] = (
    ((exp.Xor,), "XOR is not supported in a subscription", "use AND, OR and NOT"),
    (
        (exp.Like, exp.ILike, exp.Glob, exp.RegexpLike, exp.SimilarTo),
        "patterns are not supported in a subscription",
        "TEXT columns support = and IN only",
    ),
    ((exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ), "IS is not supported in a subscription", "compare with ="),
    ((exp.Boolean,), "TRUE and FALSE are not supported", ""),
    (
        (exp.Subquery, exp.Query, exp.Exists, exp.SubqueryPredicate),
        "subqueries are not supported in a subscription",
        "make one subscription for each query",
    ),
    ((exp.Window,), "windows are not supported in a subscription", "accepted: one aggregate over the whole range"),
    ((exp.Case, exp.If), "CASE is not supported in a subscription", ""),
    ((exp.AggFunc,), "this aggregate is not supported here", ""),
    ((exp.Func,), "functions are not supported in a subscription", ""),
    ((exp.Tuple,), "rows cannot be compared as a whole", "write one comparison for each column"),
    ((exp.Collate,), "collations are not supported", "compare TEXT with ="),
    ((exp.Binary, exp.Unary), "this arithmetic is not supported", "compare a plain column with a value"),
)
#: Mistakes, which no query would answer either.
_MISTAKES: Final[tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...]] = (
    ((exp.Null,), "a comparison with NULL is never true", "compare with a value"),
    ((exp.Placeholder, exp.Parameter), "parameters are written as ?", "write ? for each value and give them in order"),
    ((exp.Interval,), "INTERVAL is not supported", "write a number of seconds, or ? and pass a timedelta"),
)
_CLOCKS: Final = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.CurrentDatetime)
_CLOCK_NAMES: Final = ("NOW", "GETDATE", "SYSDATE", "LOCALTIMESTAMP", "UNIXEPOCH")

#: Conditions that no range can express; on a TEXT column the reason is that it has no ranges at all.
UNORDERED: Final = (exp.Like, exp.ILike, exp.Glob, exp.RegexpLike, exp.SimilarTo)
ONLY_EQUAL: Final = "TEXT columns support = and IN only"
ONLY_EQUAL_HINT: Final = "name the values: = or IN (..)"


def refuse_null_test(node: exp.Expr) -> NoReturn:
    """Refuse IS NULL, or IS NOT NULL, of a TEXT column."""
    refuse_to_follow(node, "TEXT columns are not tested for NULL in a subscription", "compare with = or IN")


def refuse_time(node: exp.Expr, joined: bool) -> None:
    """Refuse the time of now, and (but for the bands of joins) what is added to a time; if it is one of them."""
    if _reads_clock(node):
        hint = "bind a datetime with ?, or use a window over a stream: FROM stream [RANGE '1h']"
        refuse_to_follow(node, "time does not move by itself in a subscription", hint)
    if isinstance(node, exp.Interval) and not joined:
        refuse(node, "INTERVAL is not supported", "compute the time in your program and bind the datetime with ?")


def _reads_clock(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Func):
        return False
    named = isinstance(node, _CLOCKS) or node.name.upper() in _CLOCK_NAMES
    return named or any(text.name.lower() == "now" for text in node.find_all(exp.Literal))


def refuse_expression(node: exp.Expr, accepted: str = _CONDITIONS) -> NoReturn:
    """Refuse a part with the hint for its kind, or with the general one."""
    for kinds, reason, hint in _MISTAKES:
        if isinstance(node, kinds):
            refuse(node, reason, hint)
    for kinds, reason, hint in _REFUSED:
        if isinstance(node, kinds):
            refuse_to_follow(node, reason, hint or accepted)
    refuse(node, "this is not supported here", accepted)


#: Characters of a SELECT that an error writes out; of a longer one it shows the beginning and the end.
_WRITTEN_OUT: Final = 160
#: Words and signs up to which it is tried as a query and as a view; each takes a millisecond or two.
_TRIED_TOKENS: Final = 100


def with_other_ways(accepted: str, sql: str, statement: Statement, catalog: Mapping[str, Table]) -> Remedy:
    """What is accepted instead of a SELECT, and how its rows can be had as it is.

    A server sends all rows again when its tables change, or at times, or keeps them as a view, if it is one that a view
    can be; an engine answers it once. Nothing is said of windows over streams, which no query knows.
    """
    tree, tables = statement.tree, _tables_named(statement, catalog)
    if not tables or statement.windows:
        return Remedy(accepted, accepted)
    clock = any(map(_reads_clock, tree.find_all(exp.Func)))
    tried = len(statement.tokens) <= _TRIED_TOKENS
    refused = _refused_by_sqlite(sql, tables) if tried else ""
    if refused:
        columns = dict.fromkeys(column.name for table in tables for column in table.columns)
        instead = instead_in_query(refused, sql, columns)
        either = f"a query cannot do it either ({refused})" + (f": {instead}" if instead else "")
        either = f"{accepted}; {either}" if accepted else either
        return Remedy(either, f'{either}, and subscribe with every="1s"' if clock else either)
    once = f"engine.query({_quoted(sql)})"
    local = f"{accepted}; or ask once: {once}" if accepted else f"ask once: {once}"
    names, bound = [table.name for table in tables], bool(statement.placeholders)
    if clock:
        ways = f"To get all rows again and again: {call(sql, bound, every='1s')}"
    else:
        several = " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        ways = f"To get all rows whenever {several} changes: {call(sql, bound, when=names)}"
        ways += '; every="1h" instead of when= sends them on a schedule'
        if tried and not any(table.stream is not None for table in tables) and (view := _as_view(tree)) is not None:
            ways += f". To keep them ready for query(): {view}"
    return Remedy(local, f"{accepted}. {ways}" if accepted else f"t{ways[1:]}")


def tables_instead(accepted: str, sql: str, statement: Statement, catalog: Mapping[str, Table]) -> Remedy:
    """What is accepted instead of a SELECT that is the condition of another: it, or the names of its tables."""
    names = [table.name for table in _tables_named(statement, catalog)]
    said = "; or ".join(filter(None, (accepted, tables_hint(names) if names else "")))
    return Remedy(said, said)


def tables_hint(names: Collection[str]) -> str:
    """What to give as `when` instead of a condition that cannot be followed."""
    return f'name the tables whose changes count: when="{", ".join(names)}"'


def call(sql: str, bound: bool = False, *, when: Collection[str] = (), every: str = "") -> str:
    """The call that brings all rows of a SELECT whenever one of these tables changes, or at times."""
    trigger = f'when="{", ".join(when)}"' if when else f'every="{every}"'
    return f"hc.subscribe({_quoted(sql)}{', ..' if bound else ''}, {trigger})"


def instead_in_query(refused: str, sql: str, columns: Collection[str] = ()) -> str:
    """What to write in a query of these columns that SQLite refused with such words; empty if we do not know."""
    if refused.startswith("no such column") and columns:
        return f"columns: {', '.join(columns)}"
    if _MOMENTS.search(sql):
        return "write datetime('now', '-1 hour') for the time an hour ago"
    if _INSTANTS.search(sql):
        return "write a moment as text alone: '2024-05-01 12:30:00'"
    if refused.startswith("no such function"):
        return "queries have the functions of SQLite; select the columns and compute the rest in your program"
    return ""


_MOMENTS: Final = re.compile(r"\bINTERVAL\b|\b(NOW|GETDATE|SYSDATE|LOCALTIMESTAMP)\b", re.IGNORECASE)
_INSTANTS: Final = re.compile(r"\bTIMESTAMP\s*'", re.IGNORECASE)


def _tables_named(statement: Statement, catalog: Mapping[str, Table]) -> list[Table]:
    """The tables that a SELECT reads, each once; none if one of them is not known."""
    hidden = {fold(one.alias) for one in statement.tree.find_all(exp.CTE)}
    named = dict.fromkeys(fold(table.name) for table in statement.tree.find_all(exp.Table))
    tables = [catalog.get(name) for name in named if name not in hidden]
    return [] if None in tables else [table for table in tables if table is not None]


def _refused_by_sqlite(sql: str, tables: Collection[Table]) -> str:
    """Why SQLite does not take a SELECT, in its words; empty if it does."""
    with closing(sqlite3.connect(":memory:")) as database:
        for table in tables:
            names = (f'"{column.name}"' for column in table.columns)
            database.execute(f'CREATE TABLE "{table.name}" ({", ".join(names)})')
        try:
            database.execute(f"EXPLAIN {sql}")
        except sqlite3.ProgrammingError:  # a value for each ? is all that it lacks
            return ""
        except (sqlite3.Error, sqlite3.Warning) as error:
            return shorten(str(error))
    return ""


def _as_view(tree: exp.Expr) -> str | None:
    """The statement that keeps a SELECT ready, and the one that reads it in the same order; None if it cannot be."""
    with suppress(Exception):  # a foreign printer on a stranger's tree; advice is all that is lost
        select = tree.copy()
        assert isinstance(select, exp.Select), "a view is one"
        clauses = [select.args[clause].pop() for clause in ("order", "limit", "offset") if select.args.get(clause)]
        text = _text(select)
        view = f"CREATE VIEW name AS {text} WITH (response_time = '50ms')"
        read_create_view(read_statement(view, ("CREATE",), CREATE_VIEW), view)
        sorted_by = [column for clause in clauses for column in clause.find_all(exp.Column)]
        kept = {fold(name) for name in select.named_selects}
        if not select.is_star and any(fold(column.name) not in kept for column in sorted_by):
            return None
        for column in sorted_by:
            column.set("table", None)
        view = view.replace(text, _short(text))
        read = " ".join(["SELECT * FROM name", *(_text(clause).strip() for clause in clauses)])
        bound = ", .." if "?" in read else ""
        return f"{view}, and read it with hc.query({_quoted(read)}{bound})" if clauses else view
    return None


def _text(tree: exp.Expr) -> str:
    return tree.sql(dialect="sqlite", comments=False, unsupported_level=ErrorLevel.IGNORE)


def _quoted(sql: str) -> str:
    quotes = '"""' if '"' in sql else '"'
    return f"{quotes}{_short(sql)}{quotes}"


def _short(sql: str) -> str:
    """A SELECT on one line; of a long one the beginning and the end, which say which it is."""
    line = " ".join(sql.split()).rstrip("; ")
    line = line if line.isprintable() else ascii(line)
    if len(line) <= _WRITTEN_OUT:
        return line
    half = _WRITTEN_OUT // 2
    return f"{line[:half].rpartition(' ')[0] or line[:half]} .. {line[-half:].partition(' ')[2] or line[-half:]}"
