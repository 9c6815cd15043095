"""What a derived stream is: a SELECT over streams, and the stream that its results are.

CREATE STREAM HOT AS SELECT t.SYMBOL, t.PRICE, q.BID FROM TRADES [ROWS 1000] t JOIN QUOTES [RANGE '10s'] q
  ON t.SYMBOL = q.SYMBOL WHERE t.PRICE > 100 WITH (memory = 10000)

HOT   SYMBOL, PRICE, BID   what is selected
      AT                   the position of the tuple that completed the result
      POSITION             as of any stream

A subscription to a join over streams is one to a derived stream, too, which has no name that users know: all that are
alike share it. Its columns are those that are shown or compared; constants and ranges are the subscriptions' own.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hullcast.broker.sql.binder import UnionBinder
from hullcast.broker.sql.create import CreateDerived, stream_table
from hullcast.broker.sql.query import Ref, Shape
from hullcast.broker.sql.subscription import ParsedQuery, parse_subscription
from hullcast.broker.sql.text import MAXIMUM_CHARACTERS
from hullcast.broker.tables.schema import AT, POSITION, Column, StreamTerms, Table, fold
from hullcast.network.wire.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How the names of streams begin that subscriptions make; no name of a user's stream does.
HIDDEN: Final = "(join "
#: Results kept for subscribers that come back.
HIDDEN_ROWS: Final = 50_000
_SIDES: Final = ("l", "r")


def is_hidden(name: str) -> bool:
    """Whether a stream was made by a subscription, and is not for users to see."""
    return name.startswith(HIDDEN)


def source_of(table: Table, catalog: Mapping[str, Table]) -> ParsedQuery:
    """The SELECT of a derived stream."""
    assert table.stream is not None
    return parse_subscription(table.stream.source, catalog)


def bind_derived(statement: CreateDerived, catalog: Mapping[str, Table]) -> Table:
    """The stream that a statement creates; SqlError, UnknownTable or UnknownColumn if its SELECT will not do."""
    query = parse_subscription(statement.terms.source, catalog)
    _check(query)
    columns: list[Column] = []
    for name, ref in zip(query.columns, query.shape.projection, strict=True):
        if fold(name) in (fold(AT.name), fold(POSITION.name)):
            hint = f"name the columns instead of *, and give this one another name: {name} AS NAME"
            raise SqlError(name, f"a derived stream has its own {name}", hint)
        if any(fold(name) == fold(column.name) for column in columns):
            raise SqlError(name, "two columns have this name", "give one of them another: AS NAME")
        columns.append(replace(query.tables[ref.side].columns[ref.column], name=name))
    return stream_table(statement.name, [*columns, AT], statement.terms)


def _check(query: ParsedQuery) -> None:
    if query.shape.kind.name != "TUPLES":
        names = " and ".join(query.shape.tables)
        raise SqlError(names, "a derived stream selects columns of a stream", "use CREATE VIEW for tables")
    if isinstance(query.binder, UnionBinder):
        reason = "a derived stream has one range: no OR, IN, <> or NOT BETWEEN"
        raise SqlError("WHERE", reason, "make one stream for each range, or filter in the subscription")
    if query.shape.on is not None and query.shape.on.band:
        raise SqlError(" and ".join(query.shape.tables), "streams are joined by =", "accepted: ON r.x = s.y, USING (c)")


def as_join(shape: Shape, source: ParsedQuery) -> Shape:
    """The shape of a subscription to a hidden stream, in terms of the join that it was written as; see `rewritten`."""
    places = source.shape.projection

    def meant(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
        return tuple(places[ref.column] for ref in refs)

    return replace(
        source.shape, ranges=meant(shape.ranges), partition=meant(shape.partition), projection=meant(shape.projection)
    )


class HiddenJoin:
    """The derived stream behind subscriptions to a join over streams: the statement that makes it, and what a
    subscription to the join is as one to that stream."""

    def __init__(self, query: ParsedQuery) -> None:
        _check(query)
        self._query = query
        shape = query.shape
        self._kept = sorted({*shape.ranges, *shape.partition, *shape.projection})
        self._select = self._text()
        self._memory = "" if shape.memory is None else f"memory = {shape.memory}"
        self.source = f"{self._select} WITH ({self._memory})" if self._memory else self._select
        self.name = f"{HIDDEN}{hashlib.sha256(self.source.encode()).hexdigest()[:24]})"

    def _text(self) -> str:
        """The SELECT, in words that are the same for all alike."""
        shape, tables = self._query.shape, self._query.tables
        assert shape.on is not None
        shown = ", ".join(f"{self._column(ref)} AS C{place}" for place, ref in enumerate(self._kept))
        sources = [
            f'"{table.name}"{f" {window.declared}" if window is not None else ""} AS {side}'
            for table, window, side in zip(tables, shape.windows or (None, None), _SIDES, strict=True)
        ]
        on = f"{self._column(Ref(0, shape.on.left))} = {self._column(Ref(1, shape.on.right))}"
        text = f"SELECT {shown} FROM {sources[0]} JOIN {sources[1]} ON {on}"
        if len(text) > MAXIMUM_CHARACTERS // 2:
            raise SqlError(" and ".join(shape.tables), "the join is too long", "select fewer columns")
        return text

    def _column(self, ref: Ref) -> str:
        return f'{_SIDES[ref.side]}."{self._query.tables[ref.side].columns[ref.column].name}"'

    @property
    def statement(self) -> CreateDerived:
        """What makes the stream."""
        return CreateDerived(self.name, StreamTerms(HIDDEN_ROWS, None, self.source), if_missing=True)

    @property
    def statement_text(self) -> str:
        """The same, as it is logged."""
        memory = f"{self._memory}, " if self._memory else ""
        return f'CREATE STREAM IF NOT EXISTS "{self.name}" AS {self._select} WITH ({memory}retain_rows = {HIDDEN_ROWS})'

    def rewritten(self, stream: Table) -> ParsedQuery:
        """The subscription as one to the stream; predicates stay what they are, since the order of columns does."""
        shape = self._query.shape
        places = {ref: Ref(0, place) for place, ref in enumerate(self._kept)}

        def mapped(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
            return tuple(places[ref] for ref in refs)

        own = Shape(
            kind=shape.kind,
            tables=(stream.name,),
            ranges=mapped(shape.ranges),
            partition=mapped(shape.partition),
            projection=mapped(shape.projection),
        )
        return replace(self._query, shape=own, tables=(stream,))
