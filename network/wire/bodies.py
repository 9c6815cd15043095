"""Bodies: what requests ask of the server, and what it answers. PROTOCOL.md says what each is for.

A body is a MessagePack array, its type first. Only clients and the server look inside; nodes pass them on. Each is
declared here and nowhere else (`layouts.py`): fields travel in their order, as their types say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeAlias, TypedDict, TypeVar, get_args

import numpy as np

from hullcast.network.wire.body_fields import (
    Absent,
    Arguments,
    Epoch,
    GroupNumber,
    Marks,
    NamedValues,
    Number,
    Parameters,
    Portion,
    Published,
    Publisher,
    ReceiptList,
    Scalars,
    Seqs,
    Snapshot,
    Table,
    Ticket,
    TicketOrEmpty,
    ValueColumn,
    by_channel,
)
from hullcast.network.wire.channels import CHANNELS
from hullcast.network.wire.columns import Columns
from hullcast.network.wire.errors import BadFrame
from hullcast.network.wire.fields import Matrix, choice, integer, items, mapping, named, number, row, text
from hullcast.network.wire.frames import Channel, Form, Install
from hullcast.network.wire.layouts import UNSENT, Tagged, array_of, codec_of, map_of, part
from hullcast.network.wire.limits import WireLimits
from hullcast.network.wire.value_columns import check_masks, is_values

#: Parts of staged answers: as many as a server keeps for one client, at some megabytes each.
MOST_PARTS = 4096
#: Parts of a table that is read as of a sequence number.
MOST_TABLE_PARTS = 1 << 16
#: How the tables that a query reads may have to fit together. consistent: all as of one sequence number.
READ_SETS = ("consistent",)
#: Priorities of queries are from minus this to this.
MOST_PRIORITY = 1_000_000
#: Links in one LinksGone.
MOST_GONE = 4096
#: Owners with a channel in one Left.
MOST_LEFT = 1024
#: The longest deadline of a query: about a year.
MOST_DEADLINE_S = 366 * 86400.0
#: The shortest and the longest period of a conditional subscription.
LEAST_PERIOD_S, MOST_PERIOD_S = 0.1, 366 * 86400.0
#: The least that may lie between two runs of it, and how many tables it may follow.
LEAST_PAUSE_S, MOST_TABLES = 0.001, 64


class Body:
    """A request or a reply."""

    __slots__ = ()


BODIES: Tagged[Body] = Tagged("body", lambda limits: limits.body_bytes)
encode, decode, reply = BODIES.encode, BODIES.decode, BODIES.declare
#: Bodies that ask, by their types on the wire.
REQUESTS: dict[str, type[Body]] = {}
AnyBody = TypeVar("AnyBody", bound=type[Body])


def request(tag: str) -> Callable[[AnyBody], AnyBody]:
    """Declares a body that asks, as `reply` does one that answers."""

    def declared(kind: AnyBody) -> AnyBody:
        REQUESTS[tag] = kind
        return BODIES.declare(tag)(kind)

    return declared


# -- requests ----------------------------------------------------------------------------------------------


@request("execute")
@dataclass(frozen=True, slots=True)
class Execute(Body):
    """CREATE TABLE or DROP TABLE. (`publisher`, `number`) name the request: it is applied once, however often sent."""

    sql: str
    publisher: Publisher
    number: Number


@request("publish")
@dataclass(frozen=True, slots=True, eq=False)
class Publish(Body):
    """Insert or change rows.

    `absent` has a mask of the rows that lack a column, for each column that some row lacks (network/wire/values.py).
    """

    table: Table
    columns: Published
    absent: Absent | None
    publisher: Publisher
    number: Number

    def check(self, limits: WireLimits) -> None:
        """Masks are of columns that are there, and as long."""
        if self.absent is not None:
            check_masks(self.absent, self.columns)


@request("delete")
@dataclass(frozen=True, slots=True, eq=False)
class Delete(Body):
    """Remove rows by primary key."""

    table: Table
    keys: ValueColumn
    publisher: Publisher
    number: Number


@request("query")
@dataclass(frozen=True, slots=True)
class Query(Body):
    """Read rows once.

    `freshness`: 1 waits for everything acknowledged before, 0 reads what is loaded, between them is a preference. Past
    `deadline_s` (from its arrival on) it is aborted. Of several that wait, a higher `priority` goes first. `read_set`
    is empty, or one of READ_SETS: how the tables it reads must fit together.
    """

    sql: str
    parameters: Scalars
    freshness: Annotated[float, number(0.0, 1.0)] = 1.0
    deadline_s: Annotated[float, number(0.0, MOST_DEADLINE_S)] | None = None
    priority: Annotated[int, integer(least=-MOST_PRIORITY, most=MOST_PRIORITY)] = 0
    read_set: Annotated[str, choice("", *READ_SETS)] = ""


@request("fetch_rows")
@dataclass(frozen=True, slots=True)
class FetchRows(Body):
    """Portion `part` (the first is 1) of an answer whose first rows came with a ticket."""

    ticket: Ticket
    part: Annotated[int, integer("a part", 1)]


@request("give_up")
@dataclass(frozen=True, slots=True)
class GiveUp(Body):
    """Nobody waits any more for the answer to the sender's query or statement whose request has the same id as this
    one's."""


@request("drop_rows")
@dataclass(frozen=True, slots=True)
class DropRows(Body):
    """Nobody will fetch the rest of the answer with this ticket."""

    ticket: Ticket


@request("gone")
@dataclass(frozen=True, slots=True)
class LinksGone(Body):
    """From a node: its links with these numbers are gone for good, so nobody takes answers that way."""

    links: Annotated[tuple[int, ...], items(integer(), most=MOST_GONE, many="links gone at once")]


@request("left")
@dataclass(frozen=True, slots=True)
class Left(Body):
    """From a node: of the groups that were installed for its own clients, so many are gone. Each with the owner of the
    clients (their key, or without one the number of the link), and the channel."""

    groups: Annotated[
        tuple[tuple[str, int, int], ...],
        items(
            row("groups that left", owner=text("an owner"), channel=integer("a channel"), groups=integer(least=1)),
            "groups that left",
            MOST_LEFT,
            "entries of groups that left",
        ),
    ]


#: Whose policy: what decides for one-time queries, or for joins over streams.
PolicyOf: TypeAlias = Literal["warehouse", "streams"]


@request("policy")
@dataclass(frozen=True, slots=True)
class SetPolicy(Body):
    """Let this policy decide what is done next, by the warehouse or by the operators of joins over streams; an empty
    name: only which one does, and which there are."""

    name: Annotated[str, text("a policy")] = ""
    of: Annotated[PolicyOf, choice(*get_args(PolicyOf), what="whose policy")] = "warehouse"


@part("a trigger")
@dataclass(frozen=True, slots=True)
class Trigger:
    """When the SELECT of a conditional subscription is run: each time that the answer of the SELECT `when` changes, or
    else anything in one of the `tables`, and at each multiple of `every_s` seconds by the server's clock. At least one
    of them is given. `at_most_every_s` lie between two runs, however often something changes."""

    when: str | None = None
    parameters: Scalars = ()
    every_s: Annotated[float, number(LEAST_PERIOD_S, MOST_PERIOD_S)] | None = None
    tables: Annotated[tuple[str, ...], items(text("a table"), most=MOST_TABLES, many="tables in a trigger")] = ()
    at_most_every_s: Annotated[float, number(LEAST_PAUSE_S, MOST_PERIOD_S)] | None = None

    def check(self, limits: WireLimits) -> None:
        """It is one of those that there can be."""
        if self.when is not None and self.tables:
            raise BadFrame("a trigger has a text or tables, not both")
        if self.when is None and (self.parameters or not (self.tables or self.every_s is not None)):
            raise BadFrame("a trigger is a text with its parameters or tables, or a period, or both")
        if self.at_most_every_s is not None and self.when is None and not self.tables:
            raise BadFrame("at_most_every_s is for a trigger with a text or tables")


@part("a group")
@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """`count` subscriptions to one text: a column per `?`, or, for a single one, a scalar per `?`.

    `channel` is the one it listened to, if it is subscribed again; else 0. With a `trigger` it is a single conditional
    subscription, and the text any SELECT that a query may be. `after`: of tuples of a stream, those behind this
    position are wanted, as far as there are; None: those that come from now on.
    """

    group: GroupNumber
    sql: str
    parameters: Parameters
    count: int
    channel: Channel = 0
    trigger: Trigger | None = None
    after: int | None = None

    def check(self, limits: WireLimits) -> None:
        """Each parameter has a value for each subscription, and a conditional one is alone."""
        if self.count > limits.rows:
            raise BadFrame(f"count must be a whole number from 0 to {limits.rows}")
        bound = [one for one in self.parameters if is_values(one)]
        for column in bound:
            if len(column) != self.count:
                raise BadFrame(f"{len(column)} values of a parameter for {self.count} subscriptions")
        if self.count != 1 and len(bound) < len(self.parameters):
            raise BadFrame("one value of a parameter for several subscriptions")
        if self.trigger is not None and (self.count != 1 or bound):
            raise BadFrame("a conditional subscription is alone in its group, with a scalar per parameter")


@request("subscribe")
@dataclass(frozen=True, slots=True)
class Subscribe(Body):
    """Subscribe, or subscribe again after having seen all of `epoch` up to `since`.

    With a `ticket` it is the last word on an earlier one, whose answers were `Staged` and have been fetched.
    """

    groups: Annotated[
        tuple[Group, ...], items(codec_of(Group), most=lambda limits: limits.groups, many="groups in one subscribe")
    ]
    since: int | None = None
    epoch: Epoch | None = None
    ticket: Ticket | None = None


@request("fetch")
@dataclass(frozen=True, slots=True)
class Fetch(Body):
    """One part of answers that are `Staged`."""

    ticket: Ticket
    part: Annotated[int, integer("a part")]


@request("sync")
@dataclass(frozen=True, slots=True)
class Sync(Body):
    """Answered after all that was applied before has been delivered."""


@request("status")
@dataclass(frozen=True, slots=True)
class Status(Body):
    """How the server and its nodes are doing."""


@request("explain")
@dataclass(frozen=True, slots=True)
class Explain(Body):
    """How a subscription would be served; with a `trigger`, a conditional one."""

    sql: str
    parameters: Scalars
    trigger: Trigger | None = None


@request("describe")
@dataclass(frozen=True, slots=True)
class Describe(Body):
    """Which tables there are."""


@request("history")
@dataclass(frozen=True, slots=True)
class AskHistory(Body):
    """Which changes of a table can be read."""

    table: Table


@request("changes")
@dataclass(frozen=True, slots=True)
class ReadChanges(Body):
    """Changes of a table behind `after`, up to `through`; without them, from the first that is kept, and up to what is
    on disk."""

    table: Table
    after: int | None = None
    through: int | None = None


@request("rows_at")
@dataclass(frozen=True, slots=True)
class ReadTable(Body):
    """Rows of a table as it was after update `seq`; without one, as it is on disk. `part` of `parts`, from `start` on,
    which is the `next` of the reply before."""

    table: Table
    seq: int | None = None
    part: Annotated[int, integer("a part")] = 0
    parts: Annotated[int, integer(least=1, most=MOST_TABLE_PARTS)] = 1
    start: int | None = None

    def check(self, limits: WireLimits) -> None:
        """It is one of the parts."""
        if self.part >= self.parts:
            raise BadFrame(f"a part must be a whole number from 0 to {self.parts - 1}")


@request("report")
@dataclass(frozen=True, slots=True)
class NodeReport(Body):
    """A node's statistics. It has no answer."""

    node: Annotated[dict[str, Any], mapping("a report")]


# -- replies -----------------------------------------------------------------------------------------------


@reply("done")
@dataclass(frozen=True, slots=True)
class Done(Body):
    """Applied as updates `first` to `last`; without rows, last is first - 1. `deleted` says how many rows a Delete
    removed; None for other changes, and for one that was sent again."""

    first: int
    last: int
    deleted: int | None = None


@reply("receipts")
@dataclass(frozen=True, slots=True)
class Receipts(Body):
    """Several changes of one client were applied: of each the id of its request and its first and last update. The
    reply around it has the id of the last."""

    changes: ReceiptList


class SentTableWorth(TypedDict):
    """How good the rows of one table are."""

    seq: int
    staleness_s: float
    unapplied: int


class SentViewWorth(SentTableWorth, total=False):
    """The same of what may be a view."""

    refresh_s: float
    promise_s: float


class SentWorth(TypedDict):
    """How good the rows of an answer are."""

    seq: int | None
    tables: Annotated[dict[str, SentViewWorth], named(map_of(SentViewWorth, "a table's worth", "table worth"))]
    waited_s: float
    ran_s: float
    deadline_s: float | None
    met: bool
    policy: str


Worth: TypeAlias = Annotated[dict[str, Any], map_of(SentWorth, "a worth", "worth")]


@reply("rows")
@dataclass(frozen=True, slots=True, eq=False)
class QueryAnswer(Body):
    """A query's answer, or its first portion: then the others are fetched with the `ticket` (else empty).

    Names may occur twice, so the columns stand in their order. `worth` says how good the rows are: a map with the keys
    of PROTOCOL.md, checked when it is read. It comes with the last rows, and may come with the first.
    """

    names: tuple[str, ...]
    columns: Portion
    ticket: TicketOrEmpty = b""
    worth: Worth | None = None

    def check(self, limits: WireLimits) -> None:
        """Each column has a name."""
        if len(self.names) != len(self.columns):
            raise BadFrame("as many columns as names")


@reply("portion")
@dataclass(frozen=True, slots=True, eq=False)
class QueryPart(Body):
    """A further portion of a query's answer; whether there are `more`, and with the last one its worth."""

    columns: Portion
    more: bool
    worth: Worth | None = None


@reply("failed")
@dataclass(frozen=True, slots=True)
class Failed(Body):
    """An error: see `errors.to_wire` and `errors.from_wire`."""

    code: Annotated[str, text("a code")]
    arguments: Arguments


@part("an opened group")
@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A group of subscriptions at its beginning; without a snapshot it is resumed, see the replay, or (`as_of` is not
    empty) its snapshot has been fetched before.

    A snapshot may be older than the reply: `as_of` then says in runs (members, seq) how old, and the replay has what
    came after. Of several groups one may have failed, and then says so here. Of tuples of a stream, `after` is the
    position behind which they are all there; if that is not the position asked for, some are missing. `boxes` says how
    many points each member has, one after the other; None: one each.

    `points` is not part of the body: the points of a group travel once, as the install of the reply that every node on
    the way reads too. `with_points` puts them here.
    """

    group: GroupNumber
    channel: Channel
    columns: tuple[str, ...]
    snapshot: Snapshot | None
    failed: Annotated[Failed, array_of(Failed, "an error")] | None = None
    as_of: Annotated[tuple[tuple[int, int], ...], items(row("a run", members=integer(), seq=integer()), "runs")] = ()
    after: int = 0
    boxes: Seqs | None = None
    points: Annotated[Matrix, UNSENT] = field(default_factory=lambda: np.empty((0, 1)))


@reply("staged")
@dataclass(frozen=True, slots=True)
class Staged(Body):
    """First answers that are too large for one frame: fetch so many parts, then subscribe with the ticket."""

    ticket: Ticket
    parts: Annotated[int, integer(least=1, most=MOST_PARTS)]


@reply("part")
@dataclass(frozen=True, slots=True, eq=False)
class AnswerPart(Body):
    """Some rows of the snapshots of groups; a group's rows follow each other, from part to part."""

    snapshots: Annotated[
        tuple[tuple[int, Columns], ...],
        items(row("a group's rows", group=integer("a group"), columns=codec_of(Snapshot))),
    ]


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """What a subscriber needs to know of a channel to understand its messages.

    It travels as a map of these names. A field that has its default is left out, and one that a reader does not know is
    ignored: so a new kind of subscription can add a field, and older peers still read the others.
    """

    name: str
    kind: str
    form: Form
    dimensions: int = 0
    partitioned: bool = False
    function: int = 0
    y_type: str = ""
    key_types: tuple[str, ...] = ()
    row_names: tuple[str, ...] = ()
    row_types: tuple[str, ...] = ()


SPEC = map_of(ChannelSpec, "a channel's description", "spec")


@reply("subscribed")
@dataclass(frozen=True, slots=True, eq=False)
class Subscribed(Body):
    """The answers at `seq`, and what each channel's messages mean."""

    seq: int
    epoch: Epoch
    groups: tuple[Opened, ...]
    channels: Annotated[dict[int, ChannelSpec], by_channel(SPEC)] = field(default_factory=dict)
    replay: Annotated[dict[int, Columns], CHANNELS] = field(default_factory=dict)


def with_points(body: Subscribed, installs: tuple[Install, ...]) -> Subscribed:
    """The body of a reply together with the points of its groups, which are the reply's installs; or BadFrame."""
    points = {(install.group, install.channel): install.points for install in installs}
    try:
        groups = tuple(
            opened if opened.failed is not None else replace(opened, points=points[opened.group, opened.channel])
            for opened in body.groups
        )
    except KeyError as error:
        raise BadFrame("a Subscribed in a reply that does not install all of its groups") from error
    return replace(body, groups=groups)


@reply("synced")
@dataclass(frozen=True, slots=True)
class Synced(Body):
    """All up to `seq` has been delivered."""

    seq: int


@reply("span")
@dataclass(frozen=True, slots=True)
class HistorySpan(Body):
    """Changes `first` to `last` can be read, and the table as of `first` - 1 to `last`. It was created after update
    `created`."""

    first: int
    last: int
    created: int


@reply("changed")
@dataclass(frozen=True, slots=True, eq=False)
class ChangedRows(Body):
    """All changes of a table from where was asked up to `last`; those up to `through` are on disk. Of deleted rows only
    the key is there, other columns are NULL."""

    last: int
    through: int
    seq: Seqs
    deleted: Marks
    columns: NamedValues

    def check(self, limits: WireLimits) -> None:
        """All columns have one length."""
        if {len(self.seq)} != set(map(len, (self.deleted, *self.columns.values()))):
            raise BadFrame("columns of changes have one length")


@reply("as_of")
@dataclass(frozen=True, slots=True, eq=False)
class RowsAsOf(Body):
    """Rows of a part of a table at `seq`. `next` is where the next ones begin; None if there are no more. It may
    have no rows and yet a next: then the table is still being prepared."""

    seq: int
    next: int | None
    columns: NamedValues

    def check(self, limits: WireLimits) -> None:
        """All columns have one length."""
        if len(set(map(len, self.columns.values()))) > 1:
            raise BadFrame("columns of rows have one length")


@reply("information")
@dataclass(frozen=True, slots=True)
class Information(Body):
    """A map for people and monitors."""

    values: Annotated[dict[str, Any], mapping("information")]


def tag_of(encoded: bytes) -> str:
    """The kind of an encoded body, as we write it, by a look at its first bytes; else empty."""
    size = encoded[1] & 0x1F if len(encoded) > 1 and encoded[1] >> 5 == 0b101 else 0
    return encoded[2 : 2 + size].decode("ascii", "replace")
