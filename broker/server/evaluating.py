"""Runs the SELECTs of conditional subscriptions, and makes those that a request to subscribe needs.

All rows are read by the warehouse, in other processes: here is only waiting. A few runs are under way at once; each
sees everything that was applied when it began, so one run may answer for several changes of its condition.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hullcast.broker.reformulate.result import Result
from hullcast.broker.server.conditionals import KEPT_S
from hullcast.broker.server.jobs import ANY, Awaited, Room, ServerJob
from hullcast.broker.server.subscribing import refuse_views
from hullcast.broker.sql.text import check_text, shorten
from hullcast.network.answers.result import encode_result
from hullcast.network.wire import bodies, errors, packing
from hullcast.network.wire.bodies import Failed
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.server.access import Access, Asked, Needs
    from hullcast.broker.server.changing import Changing
    from hullcast.broker.server.conditionals import Conditional, Conditionals
    from hullcast.broker.server.jobs import Jobs, Working
    from hullcast.broker.server.outcome import Outcome
    from hullcast.broker.server.pipeline import Commits
    from hullcast.broker.server.queries import Queries
    from hullcast.broker.server.subscribing import Prepared
    from hullcast.network.wire.bodies import Group, Subscribe

log = logger(__name__)

#: Bytes of one result: it goes to every subscriber, and is kept for those that reconnect. In base64 it is a third
#: more, and must be no longer than a text may be (`WireLimits.text_bytes`).
RESULT_BYTES = 750 << 10
#: Requests that wait for conditionals to be made.
REQUESTS = Room("requests for conditional subscriptions", waiting=1000, waiting_per_owner=200)
#: Conditions being opened, to be listened to.
MAKING = Room("conditions to listen to", waiting=ANY, waiting_per_owner=ANY)
#: Runs under way. The warehouse has its own places and its own order; more would only wait there.
RUNS = Room("conditional subscriptions", waiting=ANY, waiting_per_owner=ANY, at_once=4, at_once_per_owner=2)
#: Runs that the warehouse refuses for now, in a row, before the subscribers are told; and seconds before the next try.
REFUSALS, FIRST_PAUSE_S, LONGEST_PAUSE_S = 3, 0.1, 5.0
#: Seconds after which the clock is looked at again: it may have been set.
LOOK_S = 1.0
#: The owner of runs in the warehouse: whoever made them keeps its share for its own queries.
OWNER = "conditional subscriptions of {}"
#: Results from this size on are put together in a thread.
LARGE_BYTES = 16 << 10


@dataclass(eq=False)
class Evaluating:
    """The runs under way, and the requests that wait for a first result."""

    _engine: ServedEngine
    _queries: Queries
    _working: Working
    _jobs: Jobs
    _conditionals: Conditionals
    _changing: Changing
    _commits: Commits
    _make_for: Callable[[str, str], None]  # makes what the text of an owner's condition needs, before it is listened to
    _due: asyncio.Event  # set by `_conditionals`, when one has become due

    def __post_init__(self) -> None:
        self._making: dict[Conditional, asyncio.Future[None]] = {}  # the end of that
        self._awaiting: dict[Conditional, asyncio.Future[errors.HullcastError | None]] = {}  # the end of the next run

    # --- requests ------------------------------------------------------------------------------------------

    def wait(self, asked: Asked[Subscribe]) -> Awaited | None:
        """Make the conditionals that a request subscribes to, each with a first result; None if it needs none. What is
        being made for a client that has gone is made: it may return."""
        body = asked.body
        if body.ticket is not None or all(group.trigger is None for group in body.groups):
            return None
        return Awaited(REQUESTS, partial(self._prepare, body, asked.access))

    async def _prepare(self, body: Subscribe, access: Access) -> Prepared:
        groups = [group for group in body.groups if group.trigger is not None]
        found = await asyncio.gather(*(self._make(group, access) for group in groups), return_exceptions=True)
        prepared: dict[int, Needs | errors.HullcastError] = {}
        for group, one in zip(groups, found, strict=True):
            if isinstance(one, tuple | errors.HullcastError):
                prepared[group.group] = one
            elif isinstance(one, Exception):
                log.error("conditional subscription failed", exc_info=one)
                prepared[group.group] = errors.InvariantBroken(f"{type(one).__name__} in a conditional subscription")
            else:
                raise one
        return prepared

    async def _make(self, group: Group, access: Access) -> Needs:
        """Return when a group can be subscribed to: the conditional is there, and the sender may have it."""
        assert group.trigger is not None
        check_text(group.sql)
        access.check("query")
        owner = access.owner
        needs: Needs = (("query", await self._tables_read(group, owner)),)
        when, condition = group.trigger.when, None
        if when is not None:
            needs += (("subscribe", self._engine.catalogue.tables_named(when)),)
        elif group.trigger.tables:
            needs += (("subscribe", self._engine.catalogue.spelt(group.trigger.tables)),)
        access.allow(needs)
        if when is not None:
            refuse_views(self._engine, when, access, condition=True)
            condition = self._engine.catalogue.condition_needed(when)
            self._conditionals.attendance.shares.check(owner, condition)
        one = self._conditionals.find(group)
        if one is None:
            one = self._conditionals.make(group, owner, time.monotonic(), time.time(), condition=condition)
            made = self._making[one] = asyncio.get_running_loop().create_future()
            begin = partial(self._begin, one, made)
            self._jobs.put(ServerJob(owner, time.monotonic(), 0, None, MAKING, None, begin))
        one.keep_until = max(one.keep_until, time.monotonic() + KEPT_S)
        one.reads = needs[0][1]
        if one in self._making:
            await asyncio.shield(self._making[one])  # others may wait for it, too
        if not one.ready or (one.error is not None and self._conditionals.attends(one) is None):
            await self._next_result(one)
            if one.error is not None and not group.channel and self._conditionals.attends(one) is None:
                one.keep_until = 0.0
                raise one.error
        return needs

    async def _tables_read(self, group: Group, owner: str) -> tuple[str, ...]:
        """The tables that its SELECT reads. If they were dropped meanwhile, whoever comes back to it may stay: the next
        results say what is wrong."""
        try:
            return tuple(await self._queries.tables_read(owner, group.sql))
        except errors.UsageError:
            known = self._conditionals.find(group)
            if known is None or not group.channel:
                raise
            return known.reads

    async def _begin(self, one: Conditional, made: asyncio.Future[None]) -> None:
        """Listen to its condition, before it is run for the first time: no change of it is missed."""
        trigger, one.making = one.trigger, True
        try:
            self._conditionals.follow(one, self._engine.catalogue.followable(trigger.tables))
            if trigger.when is not None:
                watched = await self._working.do(one.owner, self._watching(one, trigger.when, trigger.parameters))
                self._conditionals.watch(one, watched)
            self._conditionals.want(one)
            made.set_result(None)
        except BaseException as error:
            self._conditionals.remove(one)
            if not isinstance(error, Exception):
                made.cancel()
                raise
            if isinstance(error, errors.BadParameter):
                error = errors.BadParameter(error.position, f"{error.reason} (of the condition)", error.row)
            made.set_exception(error)
            made.exception()  # perhaps nobody waits for it
        finally:
            one.making = False
            del self._making[one]

    def _watching(self, one: Conditional, sql: str, parameters: Sequence[object]) -> Work:
        self._make_for(sql, one.owner)
        return (yield from self._engine.watching(sql, parameters))

    async def _next_result(self, one: Conditional) -> None:
        """Wait for the end of a run, which is begun if none is due; raises why there was none."""
        if not one.serving:
            self._conditionals.want(one)
        ended = self._awaiting.setdefault(one, asyncio.get_running_loop().create_future())
        while not ended.done():  # a conditional that is waited for stays
            one.keep_until = max(one.keep_until, time.monotonic() + KEPT_S)
            await asyncio.wait((ended,), timeout=KEPT_S / 2)
        error = ended.result()
        if error is not None:
            raise error

    def _tell(self, one: Conditional, error: errors.HullcastError | None = None) -> None:
        ended = self._awaiting.pop(one, None)
        if ended is not None:
            ended.set_result(error)

    # --- runs ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            due_at = self._conditionals.tick(time.time())
            for one in self._conditionals.take_due(time.monotonic()):
                run = partial(self._take_turn, one)
                self._jobs.put(ServerJob(one.owner, time.monotonic(), 0, None, RUNS, None, run, lambda _: None))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s(due_at)):
                    await self._due.wait()
            self._due.clear()

    def _pause_s(self, due_at: float | None) -> float | None:
        """How long there is nothing to do, unless something happens."""
        pauses = [] if due_at is None else [min(LOOK_S, due_at - time.time())]
        next_time = self._conditionals.next_time()
        if next_time is not None:
            pauses.append(next_time - time.monotonic())
        return max(0.0, min(pauses)) if pauses else None

    async def _take_turn(self, one: Conditional) -> None:
        if one.queued and self._commits.busy:  # none is computed while too much waits for the disk
            self._conditionals.postpone(one, time.monotonic() + FIRST_PAUSE_S)
            self._due.set()
        elif one.queued:
            await self._run(one)

    async def _run(self, one: Conditional) -> None:
        """Run a SELECT once, and deliver what comes of it: rows, or why there are none."""
        began = time.monotonic()
        fired = self._conditionals.begun(one, began)
        error: errors.HullcastError | None = None
        try:
            answer = await self._answer(one)
        except errors.Unavailable as refusal:
            one.refusals += 1
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**one.refusals)
            self._conditionals.put_back(one, fired, time.monotonic() + pause_s)
            self._tell(one, refusal)
            if one.refusals == REFUSALS:  # they learn that there is something that they do not know yet
                self._give(one, _told(refusal), fired)
            return
        except errors.HullcastError as refusal:
            error, answer = refusal, _told(refusal)
        except Exception as bug:
            log.exception("conditional subscription failed", extra={"query": shorten(one.sql)})
            error = errors.InvariantBroken(f"{type(bug).__name__} in a conditional subscription")
            answer = _told(error)
        took_s = time.monotonic() - began
        self._conditionals.ended(one, took_s, error)
        one.last = {"took_s": took_s, "bytes": len(answer.text), "as_of": answer.as_of, "fired": fired}
        if error is not None:
            one.last["error"] = str(error)
        else:
            one.columns = answer.names
        self._give(one, answer, fired)
        self._tell(one)

    def _give(self, one: Conditional, answer: _Answer, fired: int | None) -> None:
        result = Result(answer.text, fired, float(time.time_ns() // 1000))

        def make() -> list[Outcome]:
            outcome = self._changing.deliver(one.channel, result, time.monotonic())
            if outcome is None:
                return []
            self._conditionals.told(one)
            return [outcome]

        if one in self._conditionals:
            self._commits.change(make)

    async def _answer(self, one: Conditional) -> _Answer:
        first, rest = await self._queries.run_once(OWNER.format(one.owner), one.sql, one.parameters)
        parts, size = [first], len(first)
        if rest is not None:
            try:
                last = False
                while not last and size <= RESULT_BYTES:
                    portion, last = await rest.read(len(parts) - 1)
                    parts.append(portion)
                    size += len(portion)
            finally:
                self._queries.let_go(rest)
        if size > RESULT_BYTES:
            reason = f"its rows take more than {RESULT_BYTES >> 10} KiB, too much for an event"
            remedy = "aggregate them, add a WHERE or a LIMIT, or subscribe to less and query() the rows at each event"
            raise errors.SqlError(shorten(one.sql), reason, remedy)
        return _packed(parts) if size < LARGE_BYTES else await asyncio.to_thread(_packed, parts)


class _Answer(NamedTuple):
    """The answer to a SELECT as the text of a result; the names of its columns, and the update that it is as of."""

    text: str
    names: tuple[str, ...] = ()
    as_of: int | None = None


def _packed(parts: list[bytes]) -> _Answer:
    first, last = packing.unpack(parts[0]), packing.unpack(parts[-1])
    return _Answer(encode_result(parts), tuple(first[1]), last[-1]["seq"])


def _told(error: errors.HullcastError) -> _Answer:
    """An error as a result. Whose rights decide which tables it may name is not known here: it names none."""
    if isinstance(error, errors.UnknownTable):
        error = errors.UnknownTable(error.table)
    return _Answer(encode_result([bodies.encode(Failed(*errors.to_wire(error)))]))
