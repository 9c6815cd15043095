"""One-time queries as users ask them: terms are checked first, answers come in portions."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hullcast.clients.sdk.connecting import positive_seconds
from hullcast.clients.sdk.history import given_up, whole_number
from hullcast.network.answers.named import QueryRows, QueryWorth
from hullcast.network.wire.bodies import (
    MOST_DEADLINE_S,
    MOST_PRIORITY,
    READ_SETS,
    DropRows,
    FetchRows,
    Query,
    QueryAnswer,
    QueryPart,
)
from hullcast.network.wire.errors import AnswerGone, BadFrame, BadSetting, DeadlineMissed
from hullcast.network.wire.values import rows_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Any

    from hullcast.clients.sdk.history import Ask
    from hullcast.network.wire.bodies import Body
    from hullcast.network.wire.packing import Scalar
    from hullcast.network.wire.value_columns import Values

    Tell = Callable[[DropRows], None]

#: How often a query is run whose rows get lost under way (the server restarted, say) before the caller is told.
ATTEMPTS = 3
#: How much later than its deadline a query's reply may come before the client stops waiting for it.
GRACE_S = 5.0


def checked_query(
    sql: str,
    parameters: tuple[Scalar, ...],
    deadline: object,
    freshness: object,
    priority: object,
    read_set: object,
) -> Query:
    """The request; BadSetting, with what would be right, for a term that makes no sense."""
    deadline_s = None if deadline is None else positive_seconds("deadline", deadline)
    if deadline_s is not None and deadline_s > MOST_DEADLINE_S:
        raise BadSetting("deadline", deadline, f"must be at most {MOST_DEADLINE_S:,.0f} seconds")
    plain = not isinstance(freshness, bool) and isinstance(freshness, int | float | np.integer | np.floating)
    if not plain or not 0 <= float(freshness) <= 1:  # type: ignore[arg-type]  # it is a number
        raise BadSetting(
            "freshness", freshness, "must be a number from 0 (rows as loaded) to 1 (everything acknowledged)"
        )
    if read_set is not None and read_set not in READ_SETS:
        raise BadSetting("read_set", read_set, f"must be None or {READ_SETS[0]!r}")
    urgency = whole_number("priority", priority, -MOST_PRIORITY, MOST_PRIORITY)
    return Query(sql, parameters, float(freshness), deadline_s, urgency, str(read_set or ""))  # type: ignore[arg-type]


async def read_whole(ask: Ask, tell: Tell, query: Query, timeout_s: float | None) -> QueryRows:
    """All rows of a query. It only reads, so it is run again if the rest of its rows got lost."""
    clock = asyncio.get_running_loop().time
    began = clock()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            found: QueryRows | None = None
            async with aclosing(read_portions(ask, tell, query, timeout_s)) as portions:
                async for portion in portions:
                    if found is None:
                        found = portion
                    else:
                        found += portion
                        found.worth = portion.worth
            assert found is not None, "there is a portion, if only an empty one"
            return found
        except AnswerGone:
            if attempt == ATTEMPTS:
                raise
        if query.deadline_s is not None:
            gone = clock() - began
            if gone >= query.deadline_s:
                raise DeadlineMissed(query.deadline_s, gone, 0.0)
            query, began = replace(query, deadline_s=query.deadline_s - gone), clock()
    raise AssertionError("the last attempt returns or raises")


async def read_portions(ask: Ask, tell: Tell, query: Query, timeout_s: float | None) -> AsyncGenerator[QueryRows, None]:
    """The rows of a query, a portion at a time and one ahead; at least one, if only an empty one. After the last, or
    when the caller stops before, the server drops what it keeps."""
    reply = await ask(query, "query", timeout_s)
    if not isinstance(reply, QueryAnswer):
        raise BadFrame(f"{type(reply).__name__} is not a reply to a query")
    names, ticket = reply.names, reply.ticket
    if not ticket:
        yield portion_of(names, reply.columns, reply.worth)
        return

    def asked(part: int) -> asyncio.Task[Body]:
        return asyncio.create_task(_awaited(ask, FetchRows(ticket, part), timeout_s), name="client.query")

    coming, part, kept = asked(1), 1, True
    try:
        yield portion_of(names, reply.columns, None)
        while True:
            fetched = await coming
            if not isinstance(fetched, QueryPart) or len(fetched.columns) != len(names):
                raise BadFrame(f"{type(fetched).__name__} is not a portion of this answer")
            if fetched.more:
                part += 1
                coming = asked(part)
            yield portion_of(names, fetched.columns, None if fetched.more else fetched.worth)
            if not fetched.more:
                return
    except AnswerGone:
        kept = False
        raise
    finally:
        if kept:
            tell(DropRows(ticket))
        await given_up(coming)


async def _awaited(ask: Ask, body: Body, timeout_s: float | None) -> Body:
    return await ask(body, "query", timeout_s)


def portion_of(names: tuple[str, ...], columns: tuple[Values, ...], worth: dict[str, Any] | None) -> QueryRows:
    """Rows as users see them."""
    return QueryRows(names, rows_of(columns), None if worth is None else QueryWorth.of(worth))
