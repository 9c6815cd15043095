"""Conditional subscriptions: which there are, what each waits for, and whose SELECT is run next.

A conditional is a SELECT and its trigger (a condition or tables, a period, or both). However many clients subscribe to
the same one, it is one: its condition is one subscription that the server itself listens to, its SELECT is run once,
its result is one message (broker/reformulate/result.py). It lives as long as its channel has subscribers, and
`linger_s` longer.

    update -> engine -> the condition's channel -> `hear`: fired -> `next`: run -> delivered as an update of its own
           -> a table that it follows -----------> `hear`: fired -^
    clock  --------------------------------------> `tick`: fired -^

Nothing waits here (broker/server/evaluating.py does), and time is an argument.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hullcast.broker.reformulate.channel import Attended
from hullcast.broker.scheduling.ranking import Ranking
from hullcast.broker.server.attendance import ASKED
from hullcast.broker.server.making import check_share
from hullcast.broker.sql.query import Predicates
from hullcast.broker.sql.text import shorten
from hullcast.broker.tables.schema import fold
from hullcast.network.wire import packing
from hullcast.network.wire.bodies import Group
from hullcast.network.wire.durations import duration_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hullcast.broker.engine.served import ServedEngine, WatchedCondition
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.reformulate.messages import Batch
    from hullcast.broker.reformulate.result import ResultChannel
    from hullcast.broker.server.attendance import Attendance, Attending
    from hullcast.network.wire.bodies import Trigger
    from hullcast.network.wire.errors import HullcastError
    from hullcast.network.wire.packing import Scalar

#: Seconds that a conditional without subscribers is kept for a request that is being answered with it.
KEPT_S = 10.0
#: All predicates of a result's subscribers: there is nothing to tell them apart by.
_ANY = Predicates(np.empty((1, 0)), np.empty((1, 0)), ())


@dataclass(slots=True)
class TriggerCounts:
    """What one conditional, or all that there ever were, have led to."""

    fires: int = 0
    runs: int = 0
    failures: int = 0
    delivered: int = 0
    took_s: float = 0.0  # all runs

    def shown(self) -> dict[str, Any]:
        return {"fired": self.fires, "runs": self.runs, "failed": self.failures, "delivered": self.delivered}


@dataclass(slots=True, eq=False)
class Conditional:
    """One SELECT under one trigger, with all who subscribe to it. Its owner is who made it.

    Invariants (`check` tests them):
      C1  For each change of its condition's answer, or of a table that it follows, at update s, a result is delivered
          that is as of s or later: `fired` is set until a run begins behind s, and a run that gave no result sets it
          again.
      C2  At most one run is under way, and at most one more is due: it waits for its time, or for its turn (`queued`).
    """

    owner: str
    name: str
    sql: str
    parameters: tuple[Scalar, ...]
    trigger: Trigger
    channel: ResultChannel
    keep_until: float
    condition: str | None = None  # the channel that its condition reads
    reads: tuple[str, ...] = ()  # the tables of its SELECT
    watched: WatchedCondition | None = None  # its condition
    follows: tuple[str, ...] = ()  # the tables that fire it (folded names)
    next_at: float | None = None  # by the wall clock, if it has a period
    counts_for_subscribers: bool = False  # the condition's channel, and not for the owner because it was made for it
    making: bool = False  # its condition is being opened
    due: bool = False
    queued: bool = False
    serving: bool = False
    not_before: float = 0.0
    #: The last update that changed the condition's answer, and no run has begun since. Of tables, one that changed
    #: them: `_Followed` knows the last.
    fired: int | None = None
    columns: tuple[str, ...] = ()  # of the last result that has rows
    error: HullcastError | None = None  # why the last run gave no rows
    counts: TriggerCounts = field(default_factory=TriggerCounts)
    refusals: int = 0  # in a row, of a warehouse that was not there
    last: dict[str, Any] = field(default_factory=dict)  # the last run, for people

    @property
    def ready(self) -> bool:
        return self.counts.runs > 0

    @property
    def attended(self) -> Attended:
        return Attended(self.channel, _ANY, self.columns)

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            **_asked(self.sql, self.trigger),
            **self.counts.shown(),
            "under_way": self.serving,
            "due": self.due,
            "mean_s": self.counts.took_s / max(self.counts.runs, 1),
            "last": self.last,
        }


@dataclass(slots=True, eq=False)
class _Followed:
    everybody: dict[Conditional, None] = field(default_factory=dict)
    #: Those for which nothing has changed since their last run began. The others are due already: a batch costs nothing
    #: for them.
    unfired: dict[Conditional, None] = field(default_factory=dict)
    seq: int = 0  # its last change


class Conditionals:
    """All conditionals of a server, at most `limit`, and of one owner at most half of them."""

    def __init__(self, engine: ServedEngine, attendance: Attendance, limit: int, on_due: Callable[[], None]) -> None:
        """`on_due` is called when one has become due."""
        self._engine, self.attendance, self._limit, self._on_due = engine, attendance, limit, on_due
        self._named: dict[str, Conditional] = {}
        self._watching: dict[str, dict[int, Conditional]] = {}  # by the condition's channel, and its number there
        self._followed: dict[str, _Followed] = {}  # by the table's folded name
        self._later: Ranking[Conditional] = Ranking()  # due and neither queued nor under way, by `not_before`
        self.counts = TriggerCounts()

    def __len__(self) -> int:
        return len(self._named)

    def __iter__(self) -> Iterator[Conditional]:
        return iter(list(self._named.values()))

    def __contains__(self, one: Conditional) -> bool:
        return self._named.get(one.name) is one

    # --- which there are -----------------------------------------------------------------------------------

    def find(self, group: Group) -> Conditional | None:
        return self._named.get(name_of(group))

    def make(self, group: Group, owner: str, now: float, wall: float, *, condition: str | None = None) -> Conditional:
        """A new one; TooLarge or Overloaded if there are too many. `condition`: the channel that its condition reads,
        which counts for its owner until there are subscribers, for which it counts then."""
        assert group.trigger is not None
        what = "different conditional subscriptions"
        of_one, of_all = f"{what} of one client (close some)", f"{what} (max_conditionals)"
        check_share(owner, [one.owner for one in self], self._limit, of_one, of_all)
        name = name_of(group)
        parameters = cast("tuple[Scalar, ...]", group.parameters)  # a conditional is alone in its group
        channel = self._engine.open_result(name)
        one = Conditional(owner, name, group.sql, parameters, group.trigger, channel, now + KEPT_S, condition)
        if condition is not None:
            self.attendance.shares.hold(owner, ASKED, condition)
        if group.trigger.every_s is not None:
            one.next_at = next_multiple(wall, group.trigger.every_s)
        self._named[name] = one
        return one

    def watch(self, one: Conditional, watched: WatchedCondition) -> None:
        """Its condition is listened to from now on. What it has heard already, the first run will see."""
        one.watched = watched
        watched.channel.outbox.forget(np.array([watched.listener]))
        self._watching.setdefault(watched.channel.name, {})[watched.listener] = one

    def follow(self, one: Conditional, tables: Iterable[str]) -> None:
        """Any change of these tables fires it from now on."""
        one.follows = tuple(dict.fromkeys(map(fold, tables)))
        for name in one.follows:
            followed = self._followed.setdefault(name, _Followed())
            followed.everybody[one] = followed.unfired[one] = None

    def is_followed(self, table: str) -> bool:
        return fold(table) in self._followed

    def remove(self, one: Conditional) -> None:
        if one not in self:
            return
        del self._named[one.name]
        self._later.drop(one)
        one.due = one.queued = False
        self._attended(one)
        if one.watched is not None:
            watching = self._watching[one.watched.channel.name]
            del watching[one.watched.listener]
            if not watching:
                del self._watching[one.watched.channel.name]
            self._engine.unwatch(one.watched)
            one.watched = None
        for name in one.follows:
            followed = self._followed[name]
            del followed.everybody[one]
            followed.unfired.pop(one, None)
            if not followed.everybody:
                del self._followed[name]
        one.follows = ()
        self._engine.close_result(one.channel)

    def _attended(self, one: Conditional) -> None:
        """Its condition's channel counts for its subscribers, if for anybody."""
        if not one.counts_for_subscribers and one.condition is not None:
            self.attendance.shares.release(one.owner, ASKED, one.condition)
        one.counts_for_subscribers = True

    def attends(self, one: Conditional) -> Attending | None:
        return self.attendance.find(one.channel.name)

    def expire(self, now: float) -> None:
        """Let go of those that have no subscribers any more; their channels were closed after `linger_s`."""
        for one in self:
            if self.attends(one) is not None:
                self._attended(one)
            elif now >= one.keep_until and not one.making:
                self.remove(one)

    def close_now(self, table: str, wanted: set[int]) -> None:
        """Let go of those that a table fires, which is about to be dropped, if nobody subscribes to them."""
        folded = fold(table)
        for one in self:
            reads = one.follows if one.watched is None else map(fold, one.watched.channel.shape.tables)
            if folded not in reads:
                continue
            attending = self.attends(one)
            if attending is None:
                self.remove(one)
            elif attending.number not in wanted and not attending.pins:
                self.attendance.close(attending)
                self.remove(one)

    def channels(self) -> list[Channel]:
        return [next(iter(those.values())).watched.channel for those in self._watching.values()]  # type: ignore[union-attr]

    # --- what fires them -----------------------------------------------------------------------------------

    def hear(self, batch: Batch, table: str | None) -> None:
        """A batch was applied, and changed this table: who follows it, and whose condition has another answer? Costs
        nothing where nobody is concerned, or all who are have fired already."""
        if self._followed and table is not None and len(batch):
            followed = self._followed.get(fold(table))
            if followed is not None:
                followed.seq = batch.last_seq
                fired, followed.unfired = followed.unfired, {}
                for one in fired:
                    self.fire(one, followed.seq)
        if not self._watching:
            return
        for name in self._watching.keys() & batch.messages.keys():
            those = self._watching[name]
            outbox = next(iter(those.values())).watched.channel.outbox  # type: ignore[union-attr]
            for listener in outbox.who_waits().tolist():
                if listener in those:  # else it is just being made: see `watch`
                    taken, lost = outbox.take(listener), outbox.take_lost(listener)
                    self.fire(those[listener], batch.last_seq if lost else taken.seqs[-1])

    def tick(self, wall: float) -> float | None:
        """Fire those whose time has come; returns when the next one's does. The clock may have been set meanwhile:

        forward, by many periods         it fires once
        far back                         it goes on with the multiples of then
        back, by half a period at most   as clocks are corrected: the multiple that has fired is not fired again
        """
        following: float | None = None
        for one in self._named.values():
            every_s = one.trigger.every_s
            if one.next_at is None or every_s is None:
                continue
            if wall >= one.next_at:
                self.fire(one, None)
                one.next_at = next_multiple(wall, every_s)
            elif one.next_at - wall > 1.5 * every_s:
                one.next_at = next_multiple(wall, every_s)
            following = one.next_at if following is None else min(following, one.next_at)
        return following

    def fire(self, one: Conditional, seq: int | None) -> None:
        """Its SELECT must be run: the condition's answer changed at an update, or the time has come (None)."""
        for counts in (one.counts, self.counts):
            counts.fires += 1
        self._want(one, seq)

    def want(self, one: Conditional) -> None:
        """Its SELECT must be run, for whoever subscribes and waits for it, however short ago it was run."""
        if not one.refusals:
            one.not_before = 0.0
            if one in self._later:
                self._later.set(one, 0.0)
                self._on_due()
        self._want(one, None)

    def _want(self, one: Conditional, seq: int | None) -> None:
        one.fired = seq if seq is not None else one.fired
        if not one.due:
            one.due = True
            if not one.serving:
                self._later.set(one, one.not_before)
                self._on_due()

    # --- running them --------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._later) + sum(one.queued for one in self)

    def take_due(self, now: float) -> list[Conditional]:
        """Those whose time has come: they wait for their turn from now on."""
        found = []
        while (one := self._later.first()) is not None and one.not_before <= now:
            self._later.drop(one)
            one.queued = True
            found.append(one)
        return found

    def next_time(self) -> float | None:
        one = self._later.first()
        return None if one is None else one.not_before

    def postpone(self, one: Conditional, until: float) -> None:
        one.queued = False
        self._later.set(one, until)

    def begun(self, one: Conditional, now: float) -> int | None:
        """A run begins, behind all that was applied by now (also since it was queued: it is not due again for that);
        returns the update that led to it."""
        fired, one.fired, one.due = one.fired, None, False
        one.queued, one.serving = False, True
        one.not_before = now + (one.trigger.at_most_every_s or 0.0)
        for name in one.follows:
            followed = self._followed[name]
            followed.unfired[one] = None
            fired = None if fired is None else max(fired, followed.seq)
        return fired

    def ended(self, one: Conditional, took_s: float, error: HullcastError | None) -> None:
        one.error, one.refusals = error, 0
        for counts in (one.counts, self.counts):
            counts.runs += 1
            counts.took_s += took_s
            counts.failures += error is not None
        self._again(one)

    def told(self, one: Conditional) -> None:
        for counts in (one.counts, self.counts):
            counts.delivered += 1

    def put_back(self, one: Conditional, fired: int | None, not_before: float) -> None:
        """A run gave nothing, and is tried again later (C1)."""
        one.due, one.not_before = True, not_before
        one.fired = fired if one.fired is None else one.fired
        self._again(one)

    def _again(self, one: Conditional) -> None:
        one.serving = False
        one.due = one.due and one in self
        if one.due:
            self._later.set(one, one.not_before)
            self._on_due()

    def status(self) -> dict[str, Any]:
        return {
            "limit": self._limit,
            **self.counts.shown(),
            "waiting": self.waiting,
            "took_s": self.counts.took_s,
            "each": [one.facts() for one in self],
        }

    def explain(self, sql: str, parameters: tuple[Scalar, ...], trigger: Trigger) -> dict[str, Any]:
        """What is known of one, whether or not it is there; nothing is made for it."""
        known = self._named.get(name_of(Group(0, sql, parameters, 1, trigger=trigger)))
        return {**_asked(sql, trigger), **({} if known is None else known.facts()), "made": known is not None}

    def check(self) -> None:
        """Verify C2, and that all who know a conditional know the same."""
        self._later.check()
        for one in self:
            assert (one in self._later) + one.queued == (one.due and not one.serving), "C2"
            if one.watched is not None:
                assert self._watching[one.watched.channel.name][one.watched.listener] is one
        for name, followed in self._followed.items():
            assert all(name in one.follows and one in self for one in followed.everybody)
            assert followed.unfired.keys() <= followed.everybody.keys()
            assert all(one.due for one in followed.everybody if one not in followed.unfired), "C1"
        assert set(self._later) <= set(self)
        assert sum(map(len, self._watching.values())) == sum(one.watched is not None for one in self)


def _asked(sql: str, trigger: Trigger) -> dict[str, Any]:
    return {
        "query": shorten(sql),
        "when": None if trigger.when is None else shorten(trigger.when),
        "tables": list(trigger.tables),
        "every_s": trigger.every_s,
        "at_most_every_s": trigger.at_most_every_s,
    }


def name_of(group: Group) -> str:
    """What a group subscribes to, in words that no other conditional has; the same after a restart."""
    assert group.trigger is not None
    trigger = group.trigger
    every = "" if trigger.every_s is None else f" EVERY {duration_text(trigger.every_s)}"
    pause = "" if trigger.at_most_every_s is None else f" AT MOST EVERY {duration_text(trigger.at_most_every_s)}"
    tables = sorted(set(trigger.tables))
    when = "" if not tables else f" WHEN {shorten(' OR '.join(tables))} CHANGES"
    when = when if trigger.when is None else f" WHEN {shorten(trigger.when)}"
    told: list[Any] = [group.sql, list(group.parameters), trigger.when, list(trigger.parameters), trigger.every_s]
    told += [tables, trigger.at_most_every_s]
    digest = hashlib.sha256(packing.pack(told)).hexdigest()[:32]
    return f"RESULT OF {shorten(group.sql)}{when}{every}{pause} #{digest}"


def next_multiple(wall: float, period_s: float) -> float:
    count = math.floor(wall / period_s) + 1
    return count * period_s if count * period_s > wall else (count + 1) * period_s
