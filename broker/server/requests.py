"""What can be asked of the server: one row for each request, and nothing else decides what is done with one.

To add a request: declare its body in `network/wire/bodies.py`, and add its row here. A body without a row does not
import. `broker/server/hall.py` makes all checks that the rows name, in one order for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from hullcast.broker.scheduling.driver import Until
from hullcast.broker.server.jobs import Awaited, Room
from hullcast.broker.server.outcome import Outcome
from hullcast.broker.sql.create import AdvanceStream, CreateDerived, parse_statement
from hullcast.broker.sql.view import CreateView
from hullcast.network.wire.bodies import (
    REQUESTS,
    AskHistory,
    Body,
    Delete,
    Describe,
    DropRows,
    Execute,
    Explain,
    Fetch,
    FetchRows,
    GiveUp,
    Information,
    Left,
    LinksGone,
    NodeReport,
    Publish,
    Query,
    ReadChanges,
    ReadTable,
    SetPolicy,
    Status,
    Subscribe,
    Sync,
    Synced,
)
from hullcast.network.wire.errors import HullcastError, InvariantBroken
from hullcast.network.wire.value_columns import most_rows

if TYPE_CHECKING:
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.server.access import Asked
    from hullcast.broker.server.service import Server
    from hullcast.broker.server.subscribing import Prepared
    from hullcast.network.security.rights import Action

#: Requests that wait until a server without a data directory has files.
FILES = Room("requests that wait for files")
#: Texts read in one go, to find out whether one of them is a join over streams: a few milliseconds each.
READ_AT_ONCE = 4


class Lane(Enum):
    """Where a request is done."""

    TOGETHER = "with all that arrived together, as one batch"
    INLINE = "now: it takes moments"
    SLICES = "on the event loop, a few milliseconds at a time"
    PROCESS = "elsewhere: here it only waits"


@dataclass(frozen=True, slots=True)
class Handler:
    """A row of the table.

    `rights`: the sender has one of these at least, or the request is refused unread if it is large; empty: any. Where
    `tables` names the tables, the (one) right must be on all of them; else the function finds them in a text, and asks.
    """

    body: type[Body]
    rights: tuple[Action, ...]
    tables: Callable[[Any], Iterable[str]] | None
    lane: Lane
    do: Callable[..., Any]
    first: Callable[[Server, Asked[Any]], Awaited | None] | None = None  # what it waits for; `do` is given its result
    on_disk: bool = False  # it changes rows, or shows changes: refused while those applied wait for room on the disk
    stays: bool = False  # once begun it is done, even if its client leaves
    ends: bool = False  # it only says that nobody waits any more: taken in any case, and never answered
    of_nodes: bool = False  # only nodes send it, and get no answer

    def check(self, asked: Asked[Any]) -> None:
        """NotPermitted unless the sender has the right on all tables that the body names."""
        if self.tables is not None:
            (right,) = self.rights
            asked.access.check(right, self.tables(asked.body))


def table_of(body: Publish | Delete | AskHistory | ReadChanges) -> tuple[str]:
    """The table that a body names."""
    return (body.table,)


def no_table(_: Body) -> tuple[str, ...]:
    """It is not about a table."""
    return ()


# --- what is done with each ------------------------------------------------------------------------------------------


def publish(s: Server, arrived: Sequence[Asked[Publish]]) -> list[Outcome | Exception]:
    """Apply publishes that arrived together."""
    return s.changing.publish(arrived, s.now())


def publish_alone(s: Server, asked: Asked[Publish]) -> Work:
    """Apply a publish that is large, or comes behind a large change: to the same table, or of the same publisher."""
    with s.changing.in_line(asked):
        yield from _freed(s, (asked.body.table,), asked)
        if s.changing.is_large(asked.body, most_rows(asked.body.columns)):
            return (yield from s.changing.change_in_slices(asked, s.now))
        (outcome,) = s.changing.publish([asked], s.now())
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def delete(s: Server, asked: Asked[Delete]) -> Work:
    """Remove rows."""
    with s.changing.in_line(asked):
        yield from _freed(s, (asked.body.table,), asked)
        if s.changing.is_large(asked.body, len(asked.body.keys)):
            return (yield from s.changing.change_in_slices(asked, s.now))
        return s.changing.change(asked, s.now())


def _freed(s: Server, tables: tuple[str, ...] | None, change: Asked[Any] | None = None) -> Work:
    """Returns when no large batch holds one of these tables (None: any table), and it is the turn of a change."""

    def comes() -> bool:
        return not s.engine.held(tables) and (change is None or not s.changing.is_behind(change))

    while not comes():
        yield Until(comes)


def execute_first(s: Server, asked: Asked[Execute]) -> Awaited | None:
    """A view is made before there is such a view; a derived stream needs files that the streams process can read."""
    try:
        statement = parse_statement(asked.body.sql)
        if isinstance(statement, CreateView):
            asked.access.check("admin")
            if s.engine.catalogue.bound(statement) is not None:
                return _or_refused(s, asked, s.views.wait(statement, asked.access.owner))
    except HullcastError:
        return None  # whoever executes it says what is wrong
    if isinstance(statement, CreateDerived) and not s.storage.has_files:
        return _or_refused(s, asked, Awaited(FILES, s.storage.for_queries))
    return None


def _or_refused(s: Server, asked: Asked[Execute], wait: Awaited) -> Awaited:
    """What a change waits for; if that fails, later changes of its publisher may pass."""

    async def run() -> Any:
        try:
            return await wait.run()
        except HullcastError as error:
            s.changing.refused(asked, error)
            raise

    return wait._replace(run=run)


def execute(s: Server, asked: Asked[Execute], made: object = None) -> Work:
    """Execute a statement; the view that it creates was made before, and has a number."""
    try:
        with s.changing.in_line(asked):
            tables: tuple[str, ...] | None = None
            with suppress(HullcastError):  # it is refused when it is executed
                statement = parse_statement(asked.body.sql) if s.engine.held() else None
                tables = (statement.name,) if isinstance(statement, AdvanceStream) else None
            yield from _freed(s, tables, asked)
            return s.changing.change(asked, s.now())
    finally:
        if isinstance(made, int):
            statement = parse_statement(asked.body.sql)
            assert isinstance(statement, CreateView)
            s.views.executed(statement, made)


def subscribe_first(s: Server, asked: Asked[Subscribe]) -> Awaited | None:
    """Conditionals are made before, and files where a join over streams needs them: what comes behind the request must
    be in them. Only a server without a data directory has none."""
    s.subscribing.check_size(asked.body)
    wait = s.evaluating.wait(asked)
    if wait is not None or s.storage.has_files or not s.engine.streams:
        return wait
    texts = [group.sql for group in asked.body.groups if group.trigger is None and _may_join(group.sql)]
    try:
        joins = len(texts) > READ_AT_ONCE or any(s.engine.catalogue.join_to_make(sql) is not None for sql in texts)
    except HullcastError:
        return None  # whoever subscribes says what is wrong
    return Awaited(FILES, s.storage.for_queries) if joins else None


def _may_join(sql: str) -> bool:
    """Whether a text may be a join, at a glance."""
    _, _, behind = sql.lower().partition("from")
    return "join" in behind or "," in behind


def subscribe(s: Server, asked: Asked[Subscribe], prepared: object = None) -> Work:
    """All groups of a request, in one reply."""
    known: Prepared = prepared if isinstance(prepared, dict) else {}
    return s.subscribing.subscribe(asked.body, asked.access, s.now, known)


def links_gone(s: Server, asked: Asked[LinksGone]) -> None:
    """Links of a node are gone: nobody takes answers that way."""
    links, route = asked.body.links, asked.request.route
    s.jobs.gone(links, route)
    s.leaving.links_gone(links, route)


def policy(s: Server, asked: Asked[SetPolicy]) -> Outcome:
    """Switch a policy, if one is named; which one decides, and which there are."""
    body = asked.body
    place = s.streams if body.of == "streams" else s.warehouse
    if body.name:
        asked.access.check("admin")
        place.switch(body.name)
    return Outcome(Information(place.policy_facts()))


def sync(s: Server, asked: Asked[Sync]) -> Outcome:
    """Say how far everything is; the answer leaves behind all messages up to there."""
    return Outcome(Synced(s.engine.seq), ordered=True)


def explain(s: Server, asked: Asked[Explain]) -> Work:
    """How a subscription would be served."""
    yield from _freed(s, None)
    return Outcome(Information(s.describing.explain(asked.body, asked.access)))


def describe(s: Server, asked: Asked[Describe]) -> Outcome:
    """The tables and views that the sender may do something with."""
    return Outcome(Information(s.describing.describe(asked.access)))


def left(s: Server, asked: Asked[Left]) -> None:
    """Groups of a node's clients are gone."""
    s.leaving.groups_left(asked.body.groups, asked.request.route)


# --- the table ------------------------------------------------------------------------------------------------------

TOGETHER, INLINE, SLICES, PROCESS = Lane
READS: tuple[Action, ...] = ("subscribe", "query")

#: By body. (A change that was applied before is answered whatever its sender may do now: `Changing` asks for rights.)
HANDLERS: dict[type[Body], Handler] = {}


def add(*handlers: Handler) -> None:
    """Enter rows into the table."""
    HANDLERS.update((handler.body, handler) for handler in handlers)


# fmt: off
add(
    #       body         one of these rights   on        lane      what it does
    Handler(Publish,     ("publish",),         None,     TOGETHER, publish, on_disk=True, stays=True),
    Handler(Delete,      ("publish",),         None,     SLICES,   delete, on_disk=True, stays=True),
    Handler(Execute,     ("admin", "publish"), None,     SLICES,   execute, execute_first, on_disk=True),
    Handler(Sync,        (),                   None,     INLINE,   sync, on_disk=True),
    Handler(Subscribe,   READS,                None,     SLICES,   subscribe, subscribe_first, on_disk=True),
    Handler(Fetch,       (),                   None,     INLINE,   lambda s, a: s.subscribing.fetch(a, s.now())),
    Handler(Query,       ("query",),           None,     PROCESS,  lambda s, a: s.queries.wait(a)),
    Handler(FetchRows,   (),                   None,     PROCESS,  lambda s, a: s.queries.fetch(a)),
    Handler(AskHistory,  ("query",),           table_of, INLINE,   lambda s, a: s.history.span(a)),
    Handler(ReadChanges, ("query",),           table_of, PROCESS,  lambda s, a: s.history.wait(a)),
    Handler(ReadTable,   ("query",),           table_of, PROCESS,  lambda s, a: s.history.wait(a)),
    Handler(Explain,     READS,                None,     SLICES,   explain),
    Handler(Describe,    (),                   None,     INLINE,   describe),
    Handler(Status,      ("admin",),           no_table, INLINE,   lambda s, _: Outcome(Information(s.status()))),
    Handler(SetPolicy,   (),                   None,     INLINE,   policy),
    Handler(GiveUp,      (),                   None,     INLINE,   lambda s, a: s.jobs.give_up(a.request), ends=True),
    Handler(DropRows,    (),                   None,     INLINE,   lambda s, a: s.queries.drop(a), ends=True),
    Handler(LinksGone,   (),                   None,     INLINE,   links_gone, ends=True, of_nodes=True),
    Handler(Left,        (),                   None,     INLINE,   left, ends=True, of_nodes=True),
    Handler(NodeReport,  (),                   None,     INLINE,   lambda s, a: s.nodes.take(a.body), of_nodes=True),
)
# fmt: on


def check_complete() -> None:
    """InvariantBroken if something can be asked that nobody does."""
    missing = [body.__name__ for body in REQUESTS.values() if body not in HANDLERS]
    if missing:
        raise InvariantBroken(f"no handler in broker/server/requests.py for {', '.join(missing)}")


check_complete()
