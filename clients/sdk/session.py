"""The client's brain: waiting requests, groups of subscriptions, the position; effects as data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import UnionType
from typing import TYPE_CHECKING, Literal

import numpy as np

from hullcast.clients.sdk.effects import (
    CallAnswered,
    CallRefused,
    Effect,
    Ended,
    Failover,
    GroupOpened,
    RetryLater,
    RowRefused,
    SendFrame,
)
from hullcast.clients.sdk.groups import Groups, SubscriptionGroup, catch_up, moment_of
from hullcast.clients.sdk.resuming import Resuming, Standing
from hullcast.network.answers.kinds import KINDS
from hullcast.network.wire import bodies, frames
from hullcast.network.wire.bodies import (
    AnswerPart,
    Delete,
    Done,
    Execute,
    Failed,
    Fetch,
    GiveUp,
    Publish,
    Query,
    Receipts,
    Staged,
    Subscribe,
    Subscribed,
    Sync,
    Synced,
)
from hullcast.network.wire.columns import concatenate
from hullcast.network.wire.errors import (
    BadFrame,
    BadValue,
    HullcastError,
    LogBroken,
    OutOfTurn,
    TooLarge,
    Unavailable,
    UsageError,
    from_wire,
)
from hullcast.network.wire.value_columns import most_rows, taken

if TYPE_CHECKING:
    from hullcast.clients.sdk.listening import Listening
    from hullcast.network.wire.arrays import Ints
    from hullcast.network.wire.columns import Columns


#: Seconds before a request that nobody could take is sent again; doubled each time.
FIRST_RETRY_S, LONGEST_RETRY_S = 0.05, 1.0

Urgency = Literal["overtakes", "needed", "waits"]


class Fetching:
    """First answers that come in parts: what is here, and what to ask for next. Any break begins it again."""

    def __init__(self, staged: Staged) -> None:
        self.staged = staged
        self.asked = 0  # parts
        self._columns: dict[int, list[Columns]] = {}

    def next(self, body: Subscribe) -> bytes:
        """The next request: for a part, or, when all are here, for the rest."""
        if self.asked < self.staged.parts:
            self.asked += 1
            return bodies.encode(Fetch(self.staged.ticket, self.asked - 1))
        return bodies.encode(replace(body, ticket=self.staged.ticket))

    def take(self, part: AnswerPart) -> None:
        """A part is here."""
        for group, columns in part.snapshots:
            self._columns.setdefault(group, []).append(columns)

    def complete(self, reply: Subscribed) -> Subscribed:
        """The reply with the snapshots that were fetched before it."""
        try:
            groups = tuple(
                replace(opened, snapshot=concatenate(self._columns[opened.group]))
                if opened.as_of and opened.snapshot is None
                else opened
                for opened in reply.groups
            )
        except (KeyError, ValueError) as error:
            raise BadFrame("parts of answers that do not fit together") from error
        return replace(reply, groups=groups)


@dataclass(slots=True)
class _Call:
    """A request until it is answered. Sent again after a break, under another id."""

    number: int
    body: bodies.Body
    encoded: bytes
    change: int = 0  # its number among the publisher's changes, if it is one
    sent_as: int = 0  # 0: not sent on the present path
    attempts: int = 0
    pausing: bool = False  # a RetryLater is under way
    behind: int = 0  # of a change: the request, with the change before it, that it was last sent behind
    lost: bool = False  # sent once without a reply, so it may have been applied
    apart: bool = False  # of a Publish: its rows stand apart, a bad one is taken out and the rest sent again
    thinned: int = 0  # so many rows were taken out
    lazy: bool = False  # of a change: nobody waits for its receipt
    group: SubscriptionGroup | None = None  # a Subscribe of a new group
    suspects: tuple[Listening, Ints] | None = None  # a Subscribe that only asks for recomputed sums
    fetching: Fetching | None = None  # a Subscribe whose answers come in parts
    error: HullcastError | None = field(default=None)  # why it was last refused


class ClientSession:
    """Decides what a client says and what what it hears means. No clock, no socket: the caller makes it happen.

    Invariants:
      N1  `position`: every listener has heard all messages up to it that concern it.
      N2  After a break nothing delivered counts for a group until it is subscribed again: the reply brings what came
          since. Groups are subscribed again in portions; messages reach only those that are back (`heard`).
      N3  A request is on the way at most once per path; after a break it goes again under a new id, so that a
          late reply to the old one is nobody's.
      N4  Changes are sent in the order of their calls, many at once. Each names the one before it that has no reply;
          the server refuses it (OutOfTurn) if that one was not applied. A change is sent only if the one before it is
          on the way. While the first is tried again, the others wait for its reply. A change that was refused for now
          is sent again only after the one before it was answered, given up, or sent again itself.
      N5  A change whose rows stand apart keeps its number when it loses a row, so its place in the order is kept too:
          those behind it are refused (OutOfTurn) until it was applied with the rows that are left. When it loses a
          second row, they wait for its reply.
    """

    def __init__(self) -> None:
        self.groups = Groups()
        self.heard = 0  # up to which groups that are not away have heard everything
        self.epoch: bytes | None = None
        self.up = False
        self.resumes = 0  # how often all groups were subscribed again
        self.retries = 0  # requests that nobody could take, and that are sent again
        self._calls: dict[int, _Call] = {}  # by number, in the order they were made
        self._sent: dict[int, _Call] = {}  # by request id
        self._changes: dict[int, _Call] = {}  # those of the calls that change something
        self._next_call = 1
        self._next_request = 1
        self._resuming: Resuming | None = None
        self._asking: _Call | None = None  # for a portion of the groups
        self._server: bytes | None = None  # the epoch told last, perhaps not yet that of `heard`
        self._unsent: list[Effect] = []  # leaves, while there is no connection but the session may go on

    # --- calls ---------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Up to which all groups have heard everything."""
        return self.heard if self._resuming is None else self._resuming.position

    def standing(self, group: SubscriptionGroup) -> Standing:
        """Up to which update of which server one group has heard everything."""
        return group.away or Standing(self.heard, self.epoch)

    @property
    def waiting(self) -> int:
        """Calls without a reply."""
        return len(self._calls)

    @property
    def doubtful(self) -> bool:
        """Whether sums are being recomputed: until then those answers may be off by a little."""
        return bool(self.groups.attention.doubted)

    @property
    def resuming(self) -> bool:
        """Whether the groups are being subscribed again at the moment."""
        return self._resuming is not None or not self.up

    def call(self, body: bodies.Body, *, apart: bool = False, lazy: bool = False) -> tuple[int, list[Effect]]:
        """Ask something; returns the call's number. TooLarge if it cannot be sent at all.

        `apart`: the rows of a Publish were published one by one, so a bad one is refused alone (RowRefused). `lazy`:
        nobody waits for the receipt of this change, which may come later, with others.
        """
        call = self._new_call(body)
        if isinstance(body, Execute | Publish | Delete):
            call.change, call.apart, call.lazy = body.number, apart, lazy
            self._changes[call.number] = call
            return call.number, self._send_changes()
        return call.number, self._send(call)

    def subscribe(
        self, group: SubscriptionGroup, since: int | None = None, epoch: bytes | None = None
    ) -> tuple[int, list[Effect]]:
        """Open a group of subscriptions; its number is given here."""
        self.groups.check_room(group.count)
        self.groups.number(group)
        call = self._new_call(Subscribe((group.on_wire(),), since, epoch))
        call.group = group
        return call.number, self._send(call)

    def abandon(self, number: int) -> list[Effect]:
        """Nobody waits for a call any more. A late Subscribed is answered by leaving again; a query need not be, nor a
        statement, which may create a view and take long. That leaves before the changes that waited for it."""
        call = self._calls.get(number)
        if call is None:
            return []
        self._sent.pop(call.sent_as, None)
        return self._given_up(call, Query | Execute) + self._over(call)

    def tell(self, body: bodies.DropRows) -> list[Effect]:
        """Say what has no reply, and may get lost."""
        self._next_request += 1
        return self._said([_dispensable(self._next_request - 1, body)])

    def _given_up(self, call: _Call, kinds: type | UnionType = Query) -> list[Effect]:
        """Of a call of these kinds that was sent: the server need not answer it. Under its id, so an error instead is
        nobody's."""
        if not call.sent_as or not isinstance(call.body, kinds):
            return []
        return self._said([_dispensable(call.sent_as, GiveUp())])

    def why_waiting(self, number: int) -> str:
        """What a call has been waiting for, in words."""
        call = self._calls.get(number)
        if not self.up:
            return "no connection"
        if call is not None and call.error is not None:
            return str(call.error)
        return "no reply"

    def retry(self, number: int) -> list[Effect]:
        """The time has come that `RetryLater` named."""
        asking = self._asking
        call = asking if asking is not None and asking.number == number else self._calls.get(number)
        if call is None or call.sent_as:
            return []
        call.pausing = False
        return self._send_changes() if call.change else self._send(call)

    def leave(self, group: SubscriptionGroup, listeners: Ints | None = None) -> list[Effect]:
        """Close a group, or some of its listeners."""
        members = self.groups.leave(group, listeners)
        if members is not None and not len(members):
            return []
        return self._said([SendFrame(frames.encode(frames.Leave(group.number, members, group.resumable)))])

    def _said(self, effects: list[Effect]) -> list[Effect]:
        """What needs no reply: now, or when the link is back as it was. On a fresh one it has no meaning any more."""
        if self.up:
            return effects
        self._unsent += effects
        return []

    def _new_call(self, body: bodies.Body) -> _Call:
        call = self._made_call(body)
        self._calls[call.number] = call
        return call

    def _made_call(self, body: bodies.Body) -> _Call:
        call = _Call(self._next_call, body, bodies.encode(body))
        self._next_call += 1
        return call

    def _over(self, call: _Call) -> list[Effect]:
        """A call has its reply, or nobody waits for one: changes behind it may go."""
        del self._calls[call.number]
        if not call.change:
            return []
        del self._changes[call.number]
        return self._send_changes()

    def _send_changes(self) -> list[Effect]:
        """Send the changes whose turn it is (N4)."""
        effects: list[Effect] = []
        before: _Call | None = None
        for call in self._changes.values():
            if not call.sent_as:
                if call.pausing or not self.up or (before is not None and before.sent_as == call.behind):
                    break
                effects += self._send(call, before)
            if call.attempts or call.thinned > 1:  # it may lose more rows, and those behind it come back each time
                break
            before = call
        return effects

    def _send(self, call: _Call, before: _Call | None = None) -> list[Effect]:
        """Send a call; a change with the one `before` it that has no reply."""
        held = self._resuming is not None and call is not self._asking and isinstance(call.body, Subscribe | Sync)
        if not self.up or held:  # by N2 a new group's messages might not count yet, and nothing is in sync
            return []
        call.sent_as = self._next_request
        self._next_request += 1
        self._sent[call.sent_as] = call
        call.behind, after = (0, 0) if before is None else (before.sent_as, before.change)
        encoded = call.encoded
        if call.fetching is not None and isinstance(call.body, Subscribe):
            encoded = call.fetching.next(call.body)
        request = frames.Request(call.sent_as, (), None, encoded, after, call.lost, call.apart, call.lazy)
        return [SendFrame(frames.encode(request))]

    def not_taken(self, payload: bytes, error: TooLarge) -> list[Effect]:
        """A frame is more than the present parent takes: whoever asked is told, and nobody waits for a reply."""
        frame = frames.decode(payload)
        call = self._sent.pop(frame.id, None) if isinstance(frame, frames.Request) else None
        if call is None:
            return []
        call.sent_as = 0
        return self._failed(call, error)

    # --- the link ------------------------------------------------------------------------------------------

    def link_up(self, fresh: bool) -> list[Effect]:
        """The link is there. If fresh, the other side knows nothing of us."""
        self.up = True
        said, self._unsent = self._unsent, []
        return self._begin_again() if fresh else said + self._send_unsent()

    def link_down(self) -> list[Effect]:
        """The link is gone; it may come back as it was."""
        self.up = False
        return []

    def _begin_again(self) -> list[Effect]:
        """All that was on the way is void: subscribe again, and ask again what was not answered."""
        self._sent.clear()
        for call in self._calls.values():
            call.lost |= call.sent_as != 0
            call.sent_as, call.pausing, call.fetching = 0, False, None
        for number in [call.number for call in self._calls.values() if call.suspects is not None]:
            del self._calls[number]
        for listening in self.groups.attention.doubted:  # asked for again when the groups are there again
            listening.ask_again()
        position = self.position
        self._resuming = self._asking = None
        self.groups.part(Standing(self.heard, self.epoch))
        effects: list[Effect] = []
        if len(self.groups):
            self.resumes += 1
            self._resuming = Resuming(self.groups, position)
            effects += self._ask_for_more()
        return effects + self._send_unsent()

    def _send_unsent(self) -> list[Effect]:
        others = [call for call in self._calls.values() if not call.sent_as and not call.change]
        return [effect for call in others for effect in self._send(call)] + self._send_changes()

    # --- what comes in -------------------------------------------------------------------------------------

    def urgency(self, payload: bytes) -> Urgency:
        """Of a frame that comes while others, earlier ones, are held back: may it overtake them, is what it says
        waited for (then they must be heard first), or can it wait with them?"""
        frame = frames.decode(payload)
        if not isinstance(frame, frames.Reply):
            return "waits"
        call = self._sent.get(frame.id)
        if call is None:  # given up; but the receipts of others may be with it
            reply = bodies.decode(frame.body)
            waited = isinstance(reply, Receipts) and any(number in self._sent for number, _, _ in reply.changes)
            return "overtakes" if waited else "waits"
        if not isinstance(call.body, Subscribe | Sync):
            return "overtakes"
        ordered = (one for one in self._calls.values() if isinstance(one.body, Subscribe | Sync))
        return "needed" if any(one.suspects is None for one in ordered) else "waits"

    def take(self, payload: bytes) -> list[Effect]:
        """Understand a frame; BadFrame if a server or node would not send it."""
        frame = frames.decode(payload)
        match frame:
            case frames.Deliver():
                return self._deliver(frame)
            case frames.Advance():
                self._advance(frame.through)
                return []
            case frames.Reply():
                return self._reply(frame)
            case frames.Reset():  # the link is as it was, and perhaps also the way behind it: no query runs twice; a
                # statement does not anyway, so a view that is being made need not be begun again
                given_up = [effect for call in self._calls.values() for effect in self._given_up(call)]
                return given_up + self._begin_again()
            case frames.Directory():
                self._server = frame.epoch
                return [Failover(frame)]
        raise BadFrame(f"{type(frame).__name__} is not a frame for clients")

    @property
    def _counts(self) -> bool:
        """Whether what is delivered counts for somebody."""
        return self._resuming is None or self._resuming.begun

    def _advance(self, through: int) -> None:
        if not self._counts:
            return
        if self._server != self.epoch and not len(self.groups):  # groups meet a server by the reply to their Subscribe
            self.heard, self.epoch = through, self._server
        self.heard = max(self.heard, through)

    def _stand(self, reply: Subscribed) -> None:
        """A Subscribed says where its server is; what was delivered before it came before it."""
        self.heard = max(self.heard, reply.seq) if reply.epoch == self.epoch else reply.seq
        self.epoch = self._server = reply.epoch

    def _deliver(self, frame: frames.Deliver) -> list[Effect]:
        if not self._counts:
            return []
        for channel, columns in frame.channels.items():
            listening = self.groups.channels.get(channel)
            if listening is not None:
                listening.hear(columns)
        self._advance(frame.through)
        return self._ask_for_suspects()

    def _reply(self, frame: frames.Reply) -> list[Effect]:
        reply = bodies.decode(frame.body)
        if isinstance(reply, Receipts):
            return self._receipts(reply)
        call = self._sent.pop(frame.id, None)
        if call is None:
            return self._leave_unknown(reply)
        call.sent_as = 0
        if isinstance(reply, Failed):
            return self._failed(call, from_wire(reply.code, reply.arguments))
        if isinstance(reply, Staged | AnswerPart):
            return self._fetch(call, reply)
        if isinstance(reply, Subscribed):
            asked = [group.group for group in call.body.groups] if isinstance(call.body, Subscribe) else []
            if sorted(opened.group for opened in reply.groups) != sorted(asked):
                raise BadFrame("a Subscribed that does not answer what was asked")
            reply = bodies.with_points(reply, frame.installs)
        if call.fetching is not None:
            reply = call.fetching.complete(_expected(reply, Subscribed))
        if call is self._asking:
            return self._resumed(_expected(reply, Subscribed))
        unblocked = self._over(call)
        if call.suspects is not None:
            return self._recomputed(call, _expected(reply, Subscribed))
        if call.group is not None:
            return self._subscribed(call, call.group, _expected(reply, Subscribed))
        if isinstance(reply, Synced):
            self._advance(reply.seq)
        return [CallAnswered(call.number, reply), *unblocked]

    def _receipts(self, reply: Receipts) -> list[Effect]:
        """Several changes were applied; those behind them go when all of these are known."""
        effects: list[Effect] = []
        for number, first, last in reply.changes:
            call = self._sent.pop(number, None)
            if call is None:
                continue
            if not call.change:
                raise BadFrame(f"a receipt is not a reply to {type(call.body).__name__}")
            del self._calls[call.number], self._changes[call.number]
            effects.append(CallAnswered(call.number, Done(first, last)))
        return effects + self._send_changes()

    def _fetch(self, call: _Call, reply: Staged | AnswerPart) -> list[Effect]:
        """First answers are too large for a frame, and come in parts: ask for the next."""
        if not isinstance(call.body, Subscribe) or isinstance(reply, AnswerPart) == (call.fetching is None):
            raise BadFrame(f"{type(reply).__name__} is not a reply to {type(call.body).__name__}")
        if isinstance(reply, Staged):
            call.fetching = Fetching(reply)
        elif call.fetching is not None:
            call.fetching.take(reply)
        return self._send(call)

    def _failed(self, call: _Call, error: HullcastError) -> list[Effect]:
        call.error = error
        staged, call.fetching = call.fetching is not None, None
        if staged or (isinstance(error, Unavailable) and not isinstance(error, LogBroken)):
            self.retries += 1
            if call.change and self._waits_for_another(call, error):
                return self._send_changes()
            call.pausing = True
            delay = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(call.attempts, 16))
            call.attempts += 1
            return [RetryLater(call.number, delay)]
        if call is self._asking and self._resuming is not None:
            return self._end(self._resuming.refused(error), error) + self._ask_for_more()
        if call.apart and isinstance(error, BadValue) and isinstance(call.body, Publish):
            rows = most_rows(call.body.columns)
            if 0 <= error.row < rows and error.column in call.body.columns:  # else it is about all of them
                return self._without(call, call.body, error, rows)
        unblocked = self._over(call)
        if call.suspects is not None:  # the group's table or our right to it is gone: it will end by itself
            return []
        return [CallRefused(call.number, error), *unblocked]

    def _without(self, call: _Call, body: Publish, error: BadValue, rows: int) -> list[Effect]:
        """Send a change again without one of its rows (N5). The last one left is like any other change."""
        kept = np.delete(np.arange(rows), error.row)
        call.body = replace(body, columns={name: taken(values, kept) for name, values in body.columns.items()})
        call.encoded = bodies.encode(call.body)
        call.apart = rows > 2
        call.thinned += 1
        alone = BadValue(error.table, 0, error.column, error.reason)
        return [RowRefused(call.number, error.row, alone), *self._send_changes()]

    def _waits_for_another(self, call: _Call, error: HullcastError) -> bool:
        """Whether a change that came back is sent again when the one before it is answered, and needs no clock."""
        first = next(iter(self._changes.values()))
        return call is not first or (isinstance(error, OutOfTurn) and call.behind != 0)

    # --- subscriptions ---------------------------------------------------------------------------------------

    def _subscribed(self, call: _Call, group: SubscriptionGroup, reply: Subscribed) -> list[Effect]:
        opened = reply.groups[0]
        if opened.failed is not None:
            return [CallRefused(call.number, from_wire(opened.failed.code, opened.failed.arguments))]
        spec = reply.channels.get(opened.channel)
        if spec is not None and spec.kind not in KINDS:
            error = UsageError(f"this client does not know {spec.kind} subscriptions; install the server's version")
            return [CallRefused(call.number, error), *self._leave_unknown(reply)]
        self.groups.open(group, opened, reply)
        self._stand(reply)
        return [GroupOpened(call.number, group), *self._ask_for_suspects()]

    def _ask_for_more(self) -> list[Effect]:
        """Subscribe the next groups again; when there are no more, what had to wait for that is asked."""
        assert self._resuming is not None
        effects: list[Effect] = []
        while (portion := self._resuming.next(self.groups)) is not None:
            try:
                self._asking = self._made_call(portion.body())
            except TooLarge as error:
                effects += self._end(self._resuming.refused(error), error)
                continue
            return effects + self._send(self._asking)
        self._resuming = self._asking = None
        return effects + self._send_unsent() + self._ask_for_suspects()

    def _resumed(self, reply: Subscribed) -> list[Effect]:
        """A portion of the groups is here again: they hear what they missed, or start again (N1 holds for them)."""
        assert self._resuming is not None
        told = [opened.group for opened in reply.groups]
        if self._resuming.begun and reply.epoch != self.epoch:
            raise BadFrame("a Subscribed of another server than the one before")
        refused = self.groups.resume(reply, first=not self._resuming.begun)
        self._stand(reply)
        self._resuming.begun = True
        effects: list[Effect] = []
        for group, error in refused:
            if self._resuming.refused_one(group, error):
                effects += self._end([group], error)
        left = self.groups.gone(told)
        effects += [SendFrame(frames.encode(frames.Leave(*one))) for one in left]
        return effects + self._leave_unknown(reply) + self._ask_for_more()

    def _end(self, groups: list[SubscriptionGroup], error: HullcastError) -> list[Effect]:
        """The server does not take these again."""
        for group in groups:
            self.groups.leave(group, None)
        return [Ended(group, error) for group in groups]

    def _leave_unknown(self, reply: bodies.Body) -> list[Effect]:
        """A reply that nobody waits for any more: what it opened is left again."""
        if not isinstance(reply, Subscribed):
            return []
        unknown = [opened.group for opened in reply.groups if opened.failed is None and opened.group not in self.groups]
        if not unknown:
            return []
        pending = {call.group.number for call in self._calls.values() if call.group is not None}
        return [SendFrame(frames.encode(frames.Leave(number, None))) for number in unknown if number not in pending]

    # --- sums that must be recomputed ---------------------------------------------------------------------------

    def _ask_for_suspects(self) -> list[Effect]:
        effects: list[Effect] = []
        for listening in self.groups.attention.doubted:
            for number, suspects in listening.doubted().items():
                group = self.groups.get(number)
                if group is None or group.away is not None:
                    continue
                listeners, again = group.of(suspects)
                listening.ask(listeners)
                self.groups.number(again)
                call = self._new_call(Subscribe((again.on_wire(),)))
                call.suspects = (listening, listeners)
                effects += self._send(call)
        return effects

    def _recomputed(self, call: _Call, reply: Subscribed) -> list[Effect]:
        assert call.suspects is not None
        listening, listeners = call.suspects
        opened = reply.groups[0]
        self._advance(reply.seq)
        present = np.array([listener in listening.asked for listener in listeners.tolist()], np.bool_)
        if opened.snapshot is not None and present.any():
            here = np.where(present, listeners, -1)
            listening.restart(here, opened.snapshot, moment_of(opened, reply), "sum")
            catch_up(listening, here, opened, reply)
        return self._said([SendFrame(frames.encode(frames.Leave(opened.group, None)))])


def _dispensable(number: int, body: bodies.GiveUp | bodies.DropRows) -> SendFrame:
    return SendFrame(frames.encode(frames.Request(number, (), None, bodies.encode(body))), dispensable=True)


def _expected(reply: bodies.Body, kind: type[Subscribed]) -> Subscribed:
    if not isinstance(reply, kind):
        raise BadFrame(f"{type(reply).__name__} is not a reply to Subscribe")
    return reply


def receipt_of(reply: bodies.Body) -> Done:
    """The reply to a change, or BadFrame."""
    if not isinstance(reply, Done):
        raise BadFrame(f"{type(reply).__name__} is not a reply to a change")
    return reply
