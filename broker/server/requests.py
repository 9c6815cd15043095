"""What can be asked of the server: one row for each request, and nothing else decides what is done with one.

To add a request: declare its body in `network/wire/bodies.py`, and add its row here. A body without a row does not
import. `broker/server/hall.py` makes all checks that the rows name, in one order for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from hullcast.broker.scheduling.driver import until
from hullcast.broker.server.jobs import Awaited, Room
from hullcast.broker.server.outcome import Outcome
from hullcast.broker.server.status import server_status
from hullcast.broker.sql.create import AdvanceStream, CreateDerived, parse_statement
from hullcast.broker.sql.view import CreateView
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Body, Information
from hullcast.network.wire.errors import HullcastError, InvariantBroken
from hullcast.network.wire.value_columns import most_rows

if TYPE_CHECKING:
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.server.access import Asked, Needs
    from hullcast.broker.server.service import Server
    from hullcast.network.security.rights import Action

#: Requests that wait until a server without a data directory has files.
FILES = Room("requests that wait for files")
#: Texts read in one go, to find out whether one of them is a join over streams: a few milliseconds each.
READ_AT_ONCE = 4


class Lane(Enum):
    """Where a request is done."""

    INLINE = "now: it takes moments"
    SLICES = "on the event loop, a few milliseconds at a time"
    PROCESS = "elsewhere: here it only waits"


@dataclass(frozen=True, slots=True)
class Handler:
    """A row of the table.

    `rights`: the sender has one of these at least, or the request is refused unread if it is large; empty: any. When
    the body has been read, it says what the sender needs: the (one) right on all of its `tables`, or `needs`. Without
    either the function asks, for what it finds in a text.
    """

    body: type[Body]
    rights: tuple[Action, ...]
    tables: Callable[[Any], tuple[str, ...]] | None
    lane: Lane
    do: Callable[..., Any]
    first: Callable[[Server, Asked[Any]], Awaited | None] | None = None  # what it waits for; `do` is given its result
    needs: Callable[[Any], Needs] | None = None
    asks: bool = False  # not the hall asks for what it needs, but its function: if it was not applied before
    together: bool = False  # if it is small, it is done with all that arrived together, as one batch
    on_disk: bool = False  # it changes rows, or shows changes: refused while those applied wait for room on the disk
    stays: bool = False  # once begun it is done, even if its client leaves
    ends: bool = False  # it only says that nobody waits any more: taken in any case, and never answered
    of_nodes: bool = False  # only nodes send it, and get no answer

    def needed(self, body: Body) -> Needs:
        """What the sender must have the right to."""
        if self.tables is not None:
            return ((self.rights[0], self.tables(body)),)
        return () if self.needs is None else self.needs(body)


def table_of(body: bodies.Publish | bodies.Delete | bodies.AskHistory | bodies.ReadChanges) -> tuple[str]:
    return (body.table,)


def no_table(_: Body) -> tuple[str, ...]:
    return ()


def needs_of_text(body: bodies.Execute) -> Needs:
    """Who publishes to a stream may say how far its time is; all else is for administrators."""
    statement = parse_statement(body.sql)
    return (("publish", (statement.name,)) if isinstance(statement, AdvanceStream) else ("admin", ()),)


# --- what is done with each ------------------------------------------------------------------------------------------


def change(s: Server, asked: Asked[Any], rows: int) -> Work:
    """Apply a change of rows behind those that come first: a large one of its table, others of its publisher."""
    with s.changing.in_line(asked):
        yield from _turn(s, (asked.body.table,), asked)
        if s.changing.is_large(asked.body, rows):
            return (yield from s.changing.change_in_slices(asked, s.now))
        return s.changing.change(asked, s.now())


def _turn(s: Server, tables: tuple[str, ...] | None, asked: Asked[Any]) -> Work:
    """Returns when no large batch holds one of these tables (None: any table), and it is the turn of a change."""
    return until(lambda: not s.engine.changes.held(tables) and not s.changing.is_behind(asked))


def execute_first(s: Server, asked: Asked[bodies.Execute]) -> Awaited | None:
    """A view is made before there is such a view; a derived stream needs files that the streams process can read."""
    try:
        statement = parse_statement(asked.body.sql)
        if isinstance(statement, CreateView):
            asked.allow()
            if s.engine.catalogue.bound(statement) is not None:
                return _or_refused(s, asked, s.views.wait(statement, asked.access.owner))
    except HullcastError:
        return None  # whoever executes it says what is wrong
    if isinstance(statement, CreateDerived) and not s.storage.has_files:
        return _or_refused(s, asked, Awaited(FILES, s.storage.for_queries))
    return None


def _or_refused(s: Server, asked: Asked[bodies.Execute], wait: Awaited) -> Awaited:
    """What a change waits for; if that fails, later changes of its publisher may pass."""

    async def run() -> Any:
        try:
            return await wait.run()
        except HullcastError as error:
            s.changing.refused(asked, error)
            raise

    return wait._replace(run=run)


def execute(s: Server, asked: Asked[bodies.Execute], made: object = None) -> Work:
    """Execute a statement; the view that it creates was made before, and has a number."""
    try:
        with s.changing.in_line(asked):
            tables: tuple[str, ...] | None = None
            with suppress(HullcastError):  # it is refused when it is executed
                statement = parse_statement(asked.body.sql) if s.engine.changes.held() else None
                tables = (statement.name,) if isinstance(statement, AdvanceStream) else None
            yield from _turn(s, tables, asked)
            return s.changing.change(asked, s.now())
    finally:
        if isinstance(made, int):
            statement = parse_statement(asked.body.sql)
            assert isinstance(statement, CreateView)
            s.views.executed(statement, made)


def subscribe_first(s: Server, asked: Asked[bodies.Subscribe]) -> Awaited | None:
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

    async def files() -> None:  # and nothing that the request would be given
        await s.storage.for_queries()

    return Awaited(FILES, files) if joins else None


def _may_join(sql: str) -> bool:
    """Whether a text may be a join, at a glance."""
    _, _, behind = sql.lower().partition("from")
    return "join" in behind or "," in behind


def explain(s: Server, asked: Asked[bodies.Explain]) -> Work:
    yield from s.engine.changes.freed(None)
    return Outcome(Information(s.describing.explain(asked.body, asked.access)))


def links_gone(s: Server, asked: Asked[bodies.LinksGone]) -> None:
    links, route = asked.body.links, asked.request.route
    s.jobs.gone(links, route)
    s.leaving.links_gone(links, route)


def policy(s: Server, asked: Asked[bodies.SetPolicy]) -> Outcome:
    """Switch a policy, if one is named; which one decides, and which there are."""
    body = asked.body
    place = s.streams if body.of == "streams" else s.warehouse
    if body.name:
        place.switch(body.name)
    return Outcome(Information(place.policy_facts()))


# --- the table ------------------------------------------------------------------------------------------------------

INLINE, SLICES, PROCESS = Lane
READS: tuple[Action, ...] = ("subscribe", "query")

#: By body. (A change that was applied before is answered whatever its sender may do now: `Changing` asks for rights.)
HANDLERS: dict[type[Body], Handler] = {}


def add(*handlers: Handler) -> None:
    HANDLERS.update((handler.body, handler) for handler in handlers)


# fmt: off
add(
    #       body                one of these rights   on        lane      what it does
    Handler(bodies.Publish,     ("publish",),         table_of, SLICES,
            lambda s, a: change(s, a, most_rows(a.body.columns)), asks=True, together=True, on_disk=True, stays=True),
    Handler(bodies.Delete,      ("publish",),         table_of, SLICES,
            lambda s, a: change(s, a, len(a.body.keys)), asks=True, on_disk=True, stays=True),
    Handler(bodies.Execute,     ("admin", "publish"), None,     SLICES,   execute, execute_first,
            needs=needs_of_text, asks=True, on_disk=True),
    # the answer leaves behind all messages up to there
    Handler(bodies.Sync,        (),                   None,     INLINE,
            lambda s, _: Outcome(bodies.Synced(s.engine.seq), ordered=True), on_disk=True),
    Handler(bodies.Subscribe,   READS,                None,     SLICES,
            lambda s, a, made: s.subscribing.subscribe(a.body, a.access, s.now, made or {}), subscribe_first,
            on_disk=True),
    Handler(bodies.Fetch,       (),                   None,     INLINE,   lambda s, a: s.subscribing.fetch(a, s.now())),
    Handler(bodies.Query,       ("query",),           no_table, PROCESS,  lambda s, a: s.queries.wait(a)),
    Handler(bodies.FetchRows,   (),                   None,     PROCESS,  lambda s, a: s.queries.fetch(a)),
    Handler(bodies.AskHistory,  ("query",),           table_of, INLINE,   lambda s, a: s.history.span(a)),
    Handler(bodies.ReadChanges, ("query",),           table_of, PROCESS,  lambda s, a: s.history.wait(a)),
    Handler(bodies.ReadTable,   ("query",),           table_of, PROCESS,  lambda s, a: s.history.wait(a)),
    Handler(bodies.Explain,     READS,                None,     SLICES,   explain),
    Handler(bodies.Describe,    (),                   None,     INLINE,
            lambda s, a: Outcome(Information(s.describing.describe(a.access)))),
    Handler(bodies.Status,      ("admin",),           no_table, INLINE,
            lambda s, _: Outcome(Information(server_status(s)))),
    Handler(bodies.SetPolicy,   (),                   None,     INLINE,   policy,
            needs=lambda body: (("admin", ()),) if body.name else ()),
    Handler(bodies.GiveUp,      (),                   None,     INLINE,
            lambda s, a: s.jobs.give_up(a.request), ends=True),
    Handler(bodies.DropRows,    (),                   None,     INLINE,   lambda s, a: s.queries.drop(a), ends=True),
    Handler(bodies.LinksGone,   (),                   None,     INLINE,   links_gone, ends=True, of_nodes=True),
    Handler(bodies.Left,        (),                   None,     INLINE,
            lambda s, a: s.leaving.groups_left(a.body.groups, a.request.route), ends=True, of_nodes=True),
    Handler(bodies.NodeReport,  (),                   None,     INLINE,
            lambda s, a: s.nodes.take(a.body), of_nodes=True),
)
# fmt: on


def check_complete() -> None:
    """InvariantBroken if something can be asked that nobody does."""
    missing = [body.__name__ for body in bodies.REQUESTS.values() if body not in HANDLERS]
    if missing:
        raise InvariantBroken(f"no handler in broker/server/requests.py for {', '.join(missing)}")


check_complete()
