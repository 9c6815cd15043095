"""Bodies: what requests ask of the server, and what it answers. PROTOCOL.md says what each is for.

A body is a MessagePack array, its type first. Only clients and the server look inside; nodes pass them on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from typing import Any, Literal, TypeAlias, assert_never, cast, get_args

import numpy as np

from hullcast.network.wire import columns as column_format
from hullcast.network.wire import fields, packing
from hullcast.network.wire.arrays import Booleans, Ints
from hullcast.network.wire.columns import Columns
from hullcast.network.wire.errors import BadFrame, TooLarge
from hullcast.network.wire.fields import Matrix, array, integer, text
from hullcast.network.wire.frames import Form, Install, pack_channels, read_channels, read_form
from hullcast.network.wire.limits import DEFAULT, WireLimits
from hullcast.network.wire.packing import Scalar
from hullcast.network.wire.value_columns import (
    Masks,
    ValueColumns,
    Values,
    are_plain,
    check_scalars,
    is_values,
    pack_value_columns,
    pack_values,
    unpack_masks,
    unpack_value_columns,
    unpack_values,
)

# -- requests ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Execute:
    """CREATE TABLE or DROP TABLE. (`publisher`, `number`) name the request: it is applied once, however often sent."""

    sql: str
    publisher: bytes
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Publish:
    """Insert or change rows.

    `absent` has a mask of the rows that lack a column, for each column that some row lacks (network/wire/values.py).
    """

    table: str
    columns: ValueColumns
    absent: Masks | None
    publisher: bytes
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Delete:
    """Remove rows by primary key."""

    table: str
    keys: Values
    publisher: bytes
    number: int


@dataclass(frozen=True, slots=True)
class Query:
    """Read rows once.

    `freshness`: 1 waits for everything acknowledged before, 0 reads what is loaded, between them is a preference. Past
    `deadline_s` (from its arrival on) it is aborted. Of several that wait, a higher `priority` goes first. `read_set`
    is empty, or one of READ_SETS: how the tables it reads must fit together.
    """

    sql: str
    parameters: tuple[Scalar, ...]
    freshness: float = 1.0
    deadline_s: float | None = None
    priority: int = 0
    read_set: str = ""


@dataclass(frozen=True, slots=True)
class FetchRows:
    """Portion `part` (the first is 1) of an answer whose first rows came with a ticket."""

    ticket: bytes
    part: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nobody waits any more for the answer to the sender's query or statement whose request has the same id as this
    one's."""


@dataclass(frozen=True, slots=True)
class DropRows:
    """Nobody will fetch the rest of the answer with this ticket."""

    ticket: bytes


@dataclass(frozen=True, slots=True)
class LinksGone:
    """From a node: its links with these numbers are gone for good, so nobody takes answers that way."""

    links: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """From a node: of the groups that were installed for its own clients, so many are gone. Each with the owner of the
    clients (their key, or without one the number of the link), and the channel."""

    groups: tuple[tuple[str, int, int], ...]


#: Whose policy: what decides for one-time queries, or for joins over streams.
PolicyOf: TypeAlias = Literal["warehouse", "streams"]


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """Let this policy decide what is done next, by the warehouse or by the operators of joins over streams; an empty
    name: only which one does, and which there are."""

    name: str = ""
    of: PolicyOf = "warehouse"


@dataclass(frozen=True, slots=True)
class Trigger:
    """When the SELECT of a conditional subscription is run: each time that the answer of the SELECT `when` changes, or
    else anything in one of the `tables`, and at each multiple of `every_s` seconds by the server's clock. At least one
    of them is given. `at_most_every_s` lie between two runs, however often something changes."""

    when: str | None = None
    parameters: tuple[Scalar, ...] = ()
    every_s: float | None = None
    tables: tuple[str, ...] = ()
    at_most_every_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """`count` subscriptions to one text: a column per `?`, or, for a single one, a scalar per `?`.

    `channel` is the one it listened to, if it is subscribed again; else 0. With a `trigger` it is a single conditional
    subscription, and the text any SELECT that a query may be. `after`: of tuples of a stream, those behind this
    position are wanted, as far as there are; None: those that come from now on.
    """

    group: int
    sql: str
    parameters: tuple[Values | Scalar, ...]
    count: int
    channel: int = 0
    trigger: Trigger | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Subscribe, or subscribe again after having seen all of `epoch` up to `since`.

    With a `ticket` it is the last word on an earlier one, whose answers were `Staged` and have been fetched.
    """

    groups: tuple[Group, ...]
    since: int | None = None
    epoch: bytes | None = None
    ticket: bytes | None = None


@dataclass(frozen=True, slots=True)
class Fetch:
    """One part of answers that are `Staged`."""

    ticket: bytes
    part: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Answered after all that was applied before has been delivered."""


@dataclass(frozen=True, slots=True)
class Status:
    """How the server and its nodes are doing."""


@dataclass(frozen=True, slots=True)
class Explain:
    """How a subscription would be served; with a `trigger`, a conditional one."""

    sql: str
    parameters: tuple[Scalar, ...]
    trigger: Trigger | None = None


@dataclass(frozen=True, slots=True)
class Describe:
    """Which tables there are."""


@dataclass(frozen=True, slots=True)
class AskHistory:
    """Which changes of a table can be read."""

    table: str


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """Changes of a table behind `after`, up to `through`; without them, from the first that is kept, and up to what is
    on disk."""

    table: str
    after: int | None = None
    through: int | None = None


@dataclass(frozen=True, slots=True)
class ReadTable:
    """Rows of a table as it was after update `seq`; without one, as it is on disk. `part` of `parts`, from `start` on,
    which is the `next` of the reply before."""

    table: str
    seq: int | None = None
    part: int = 0
    parts: int = 1
    start: int | None = None


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node's statistics. It has no answer."""

    node: dict[str, Any]


# -- replies -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    """Applied as updates `first` to `last`; without rows, last is first - 1. `deleted` says how many rows a Delete
    removed; None for other changes, and for one that was sent again."""

    first: int
    last: int
    deleted: int | None = None


@dataclass(frozen=True, slots=True)
class Receipts:
    """Several changes of one client were applied: of each the id of its request and its first and last update. The
    reply around it has the id of the last."""

    changes: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class QueryAnswer:
    """A query's answer, or its first portion: then the others are fetched with the `ticket` (else empty).

    Names may occur twice, so the columns stand in their order. `worth` says how good the rows are: a map with the keys
    of PROTOCOL.md, checked when it is read. It comes with the last rows, and may come with the first.
    """

    names: tuple[str, ...]
    columns: tuple[Values, ...]
    ticket: bytes = b""
    worth: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QueryPart:
    """A further portion of a query's answer; whether there are `more`, and with the last one its worth."""

    columns: tuple[Values, ...]
    more: bool
    worth: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """An error: see `errors.to_wire` and `errors.from_wire`."""

    code: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A group of subscriptions at its beginning; without a snapshot it is resumed, see the replay, or (`as_of` is not
    empty) its snapshot has been fetched before.

    A snapshot may be older than the reply: `as_of` then says in runs (members, seq) how old, and the replay has what
    came after. Of several groups one may have failed, and then says so here. Of tuples of a stream, `after` is the
    position behind which they are all there; if that is not the position asked for, some are missing.

    `points` is not part of the body: the points of a group travel once, as the install of the reply that every node on
    the way reads too. `with_points` puts them here.
    """

    group: int
    channel: int
    columns: tuple[str, ...]
    snapshot: Columns | None
    failed: Failed | None = None
    as_of: tuple[tuple[int, int], ...] = ()
    after: int = 0
    points: Matrix = field(default_factory=lambda: np.empty((0, 1)))


@dataclass(frozen=True, slots=True)
class Staged:
    """First answers that are too large for one frame: fetch so many parts, then subscribe with the ticket."""

    ticket: bytes
    parts: int


@dataclass(frozen=True, slots=True, eq=False)
class AnswerPart:
    """Some rows of the snapshots of groups; a group's rows follow each other, from part to part."""

    snapshots: tuple[tuple[int, Columns], ...]


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


@dataclass(frozen=True, slots=True, eq=False)
class Subscribed:
    """The answers as of `seq`, and what each channel's messages mean."""

    seq: int
    epoch: bytes
    groups: tuple[Opened, ...]
    channels: dict[int, ChannelSpec] = field(default_factory=dict)
    replay: dict[int, Columns] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class Synced:
    """All up to `seq` has been delivered."""

    seq: int


@dataclass(frozen=True, slots=True)
class HistorySpan:
    """Changes `first` to `last` can be read, and the table as of `first` - 1 to `last`. It was created after update
    `created`."""

    first: int
    last: int
    created: int


@dataclass(frozen=True, slots=True, eq=False)
class ChangedRows:
    """All changes of a table from where was asked up to `last`; those up to `through` are on disk. Of deleted rows only
    the key is there, other columns are NULL."""

    last: int
    through: int
    seq: Ints
    deleted: Booleans
    columns: dict[str, Values]


@dataclass(frozen=True, slots=True, eq=False)
class RowsAsOf:
    """Rows of a part of a table as of `seq`. `next` is where the next ones begin; None if there are no more. It may
    have no rows and yet a next: then the table is still being prepared."""

    seq: int
    next: int | None
    columns: dict[str, Values]


@dataclass(frozen=True, slots=True)
class Information:
    """A map for people and monitors."""

    values: dict[str, Any]


Body: TypeAlias = (
    Execute
    | Publish
    | Delete
    | Query
    | FetchRows
    | GiveUp
    | DropRows
    | LinksGone
    | Left
    | SetPolicy
    | Subscribe
    | Fetch
    | Sync
    | Status
    | Explain
    | Describe
    | AskHistory
    | ReadChanges
    | ReadTable
    | NodeReport
    | Done
    | Receipts
    | QueryAnswer
    | QueryPart
    | Subscribed
    | Staged
    | AnswerPart
    | Synced
    | HistorySpan
    | ChangedRows
    | RowsAsOf
    | Information
    | Failed
)


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

# -- to bytes ----------------------------------------------------------------------------------------------


def encode(body: Body, limits: WireLimits = DEFAULT) -> bytes:
    """The bytes of a body; TooLarge if no receiver would take them."""
    if isinstance(body, Subscribe) and len(body.groups) > limits.groups:
        raise TooLarge("groups in this subscribe", len(body.groups), limits.groups)
    listed = _listed(body)
    encoded = packing.pack(listed)
    packing.check_taken(str(listed[0]), listed, encoded, limits.body_bytes, limits)
    return encoded


def _listed(body: Body) -> list[object]:
    match body:
        case Publish():
            masks = None if body.absent is None else column_format.pack(body.absent)
            return ["publish", body.table, pack_value_columns(body.columns), masks, body.publisher, body.number]
        case Done():
            return ["done", body.first, body.last, body.deleted]
        case Receipts():
            return ["receipts", [number for change in body.changes for number in change]]
        case Delete():
            return ["delete", body.table, pack_values(body.keys), body.publisher, body.number]
        case Execute():
            return ["execute", body.sql, body.publisher, body.number]
        case Query():
            terms = [float(body.freshness), _seconds(body.deadline_s), body.priority, body.read_set]
            return ["query", body.sql, body.parameters, *terms]
        case FetchRows():
            return ["fetch_rows", body.ticket, body.part]
        case GiveUp():
            return ["give_up"]
        case DropRows():
            return ["drop_rows", body.ticket]
        case LinksGone():
            return ["gone", body.links]
        case Left():
            return ["left", body.groups]
        case SetPolicy():
            return ["policy", body.name, body.of]
        case Subscribe():
            groups = [_listed_group(group) for group in body.groups]
            return ["subscribe", groups, body.since, body.epoch, body.ticket]
        case Fetch():
            return ["fetch", body.ticket, body.part]
        case Explain():
            return ["explain", body.sql, body.parameters, _listed_trigger(body.trigger)]
        case Sync() | Status() | Describe():
            return [type(body).__name__.lower()]
        case AskHistory():
            return ["history", body.table]
        case ReadChanges():
            return ["changes", body.table, body.after, body.through]
        case ReadTable():
            return ["rows_at", body.table, body.seq, body.part, body.parts, body.start]
        case HistorySpan():
            return ["span", body.first, body.last, body.created]
        case ChangedRows():
            marks = [column_format.pack_column(column) for column in (body.seq, body.deleted)]
            return ["changed", body.last, body.through, *marks, _packed(body.columns)]
        case RowsAsOf():
            return ["as_of", body.seq, body.next, _packed(body.columns)]
        case NodeReport():
            return ["report", body.node]
        case QueryAnswer():
            packed = [pack_values(column) for column in body.columns]
            return ["rows", body.names, packed, body.ticket or None, _listed_worth(body.worth)]
        case QueryPart():
            return ["portion", [pack_values(column) for column in body.columns], body.more, _listed_worth(body.worth)]
        case Subscribed():
            specs = [[channel, _spec_map(spec)] for channel, spec in body.channels.items()]
            opened = [_listed_opened(opened) for opened in body.groups]
            return ["subscribed", body.seq, body.epoch, opened, specs, pack_channels(body.replay)]
        case Staged():
            return ["staged", body.ticket, body.parts]
        case AnswerPart():
            return ["part", [[group, column_format.pack(columns)] for group, columns in body.snapshots]]
        case Synced():
            return ["synced", body.seq]
        case Information():
            return ["information", body.values]
        case Failed():
            return ["failed", body.code, body.arguments]
        case _:
            assert_never(body)


def _seconds(value: float | None) -> float | None:
    return None if value is None else float(value)


def _listed_worth(worth: dict[str, Any] | None) -> dict[str, Any] | None:
    """A worth in its usual order, and whole seconds as floats too."""
    if worth is None:
        return None
    tables = {name: _in_order(one, _TABLE_READERS) for name, one in worth["tables"].items()}
    return _in_order({**worth, "tables": tables}, _WORTH_READERS)


def _in_order(given: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    return {name: _seconds(given[name]) if name.endswith("_s") else given[name] for name in known}


def _packed(columns: dict[str, Values]) -> dict[str, list[object]]:
    return {name: pack_values(column) for name, column in columns.items()}


def _listed_group(group: Group) -> list[object]:
    parameters = [pack_values(value) if is_values(value) else value for value in group.parameters]
    trigger = _listed_trigger(group.trigger)
    return [group.group, group.sql, parameters, group.count, group.channel, trigger, group.after]


def _listed_trigger(trigger: Trigger | None) -> list[object] | None:
    if trigger is None:
        return None
    seconds = (_seconds(trigger.every_s), _seconds(trigger.at_most_every_s))
    return [trigger.when, trigger.parameters, seconds[0], trigger.tables, seconds[1]]


def _spec_map(spec: ChannelSpec) -> dict[str, object]:
    found = ((one.name, getattr(spec, one.name), one.default) for one in dataclass_fields(ChannelSpec))
    return {name: value for name, value, default in found if value != default}


def _listed_opened(opened: Opened) -> list[object]:
    return [
        opened.group,
        opened.channel,
        opened.columns,
        None if opened.snapshot is None else column_format.pack(opened.snapshot),
        None if opened.failed is None else [opened.failed.code, opened.failed.arguments],
        opened.as_of,
        opened.after,
    ]


# -- from bytes --------------------------------------------------------------------------------------------


def decode(data: bytes, limits: WireLimits = DEFAULT) -> Body:
    """The body of bytes, or BadFrame; never anything else, whatever the bytes."""
    if len(data) > limits.body_bytes:
        raise BadFrame(f"a body of {len(data)} bytes; at most {limits.body_bytes}")
    parts = array(packing.unpack(data, limits), "a body")
    kind = parts[0] if parts else None
    reader = _READERS.get(kind) if type(kind) is str else None
    if reader is None:
        raise BadFrame(f"a body begins with its type, not with {kind!r:.40}")
    size, read = reader
    return read(array(parts, f"a {kind} body", size), limits)


def only_ends(encoded: bytes) -> bool:
    """Whether an encoded body, as we write it, is one that only ends something: a look at its first bytes."""
    return encoded.startswith(_ENDS)


def tag_of(encoded: bytes) -> str:
    """The kind of an encoded body, as we write it, by a look at its first bytes; else empty."""
    size = encoded[1] & 0x1F if len(encoded) > 1 and encoded[1] >> 5 == 0b101 else 0
    return encoded[2 : 2 + size].decode("ascii", "replace")


_ENDS = (b"\x91\xa7give_up", b"\x92\xa9drop_rows", b"\x92\xa4gone", b"\x92\xa4left")


def _execute(parts: list[Any], limits: WireLimits) -> Execute:
    return Execute(text(parts[1], "sql"), *_name(parts[2], parts[3]))


def _name(publisher: object, number: object) -> tuple[bytes, int]:
    return fields.identity(publisher, "a publisher"), integer(number, "a number")


def _publish(parts: list[Any], limits: WireLimits) -> Publish:
    _, table, columns, absent, publisher, number = parts
    values = unpack_value_columns(columns, limits)
    masks = fields.optional(absent, unpack_masks, values, limits)
    return Publish(text(table, "a table"), values, masks, *_name(publisher, number))


def _delete(parts: list[Any], limits: WireLimits) -> Delete:
    return Delete(text(parts[1], "a table"), unpack_values(parts[2], limits), *_name(parts[3], parts[4]))


def _scalars(value: object, limits: WireLimits) -> tuple[Scalar, ...]:
    found = array(value, "parameters")
    if len(found) > limits.columns:
        raise BadFrame(f"{len(found)} parameters; at most {limits.columns}")
    return check_scalars(found, limits)


def _query(parts: list[Any], limits: WireLimits) -> Query:
    _, sql, parameters, freshness, deadline_s, priority, read_set = parts
    return Query(
        text(sql, "sql"),
        _scalars(parameters, limits),
        fields.number(freshness, "freshness", 0.0, 1.0),
        fields.optional(deadline_s, fields.number, "deadline_s", 0.0, MOST_DEADLINE_S),
        integer(priority, "priority", -MOST_PRIORITY, MOST_PRIORITY),
        fields.choice(read_set, "read_set", "", *READ_SETS),
    )


def _fetch_rows(parts: list[Any], limits: WireLimits) -> FetchRows:
    return FetchRows(fields.identity(parts[1], "a ticket"), integer(parts[2], "a part", 1))


def _gone(parts: list[Any], limits: WireLimits) -> LinksGone:
    links = fields.integers(parts[1], "links")
    if len(links) > MOST_GONE:
        raise BadFrame(f"{len(links)} links gone at once; at most {MOST_GONE}")
    return LinksGone(links)


def _left(parts: list[Any], limits: WireLimits) -> Left:
    def one(value: object) -> tuple[str, int, int]:
        owner, channel, groups = array(value, "groups that left", 3)
        return text(owner, "an owner"), integer(channel, "a channel"), integer(groups, "groups", 1)

    groups = fields.items(parts[1], "groups that left", one)
    if len(groups) > MOST_LEFT:
        raise BadFrame(f"{len(groups)} entries of groups that left; at most {MOST_LEFT}")
    return Left(groups)


def _explain(parts: list[Any], limits: WireLimits) -> Explain:
    _, sql, parameters, trigger = parts
    return Explain(text(sql, "sql"), _scalars(parameters, limits), fields.optional(trigger, _trigger, limits))


def _trigger(value: object, limits: WireLimits) -> Trigger:
    when, parameters, every_s, tables, at_most_every_s = array(value, "a trigger", 5)
    if len(array(tables, "tables")) > MOST_TABLES:
        raise BadFrame(f"{len(tables)} tables in a trigger; at most {MOST_TABLES}")
    found = Trigger(
        fields.optional(when, text, "when"),
        _scalars(parameters, limits),
        fields.optional(every_s, fields.number, "every_s", LEAST_PERIOD_S, MOST_PERIOD_S),
        fields.items(tables, "tables", lambda name: text(name, "a table")),
        fields.optional(at_most_every_s, fields.number, "at_most_every_s", LEAST_PAUSE_S, MOST_PERIOD_S),
    )
    if found.when is not None and found.tables:
        raise BadFrame("a trigger has a text or tables, not both")
    if found.when is None and (found.parameters or not (found.tables or found.every_s is not None)):
        raise BadFrame("a trigger is a text with its parameters or tables, or a period, or both")
    if found.at_most_every_s is not None and found.when is None and not found.tables:
        raise BadFrame("at_most_every_s is for a trigger with a text or tables")
    return found


def _subscribe(parts: list[Any], limits: WireLimits) -> Subscribe:
    _, groups, since, epoch, ticket = parts
    if len(array(groups, "groups")) > limits.groups:
        raise BadFrame(f"{len(groups)} groups in one subscribe; at most {limits.groups}")
    return Subscribe(
        fields.items(groups, "groups", lambda group: _group(group, limits)),
        fields.optional(since, integer, "since"),
        fields.optional(epoch, fields.identity, "an epoch"),
        fields.optional(ticket, fields.identity, "a ticket"),
    )


def _fetch(parts: list[Any], limits: WireLimits) -> Fetch:
    return Fetch(fields.identity(parts[1], "a ticket"), integer(parts[2], "a part"))


def _group(value: object, limits: WireLimits) -> Group:
    number, sql, parameters, count, channel, triggered, after = array(value, "a group", 7)
    if len(array(parameters, "parameters")) > limits.columns:
        raise BadFrame(f"{len(parameters)} parameters; at most {limits.columns}")
    integer(count, "count", 0, limits.rows)
    if count == 1 and are_plain(parameters):  # all at once: a stranger may send two million
        bound = tuple(parameters)
    else:
        bound = tuple(_parameter(parameter, count, limits) for parameter in parameters)
    trigger = fields.optional(triggered, _trigger, limits)
    if trigger is not None and (count != 1 or any(map(is_values, bound))):
        raise BadFrame("a conditional subscription is alone in its group, with a scalar per parameter")
    return Group(
        integer(number, "a group"),
        text(sql, "sql"),
        bound,
        count,
        integer(channel, "a channel"),
        trigger,
        fields.optional(after, integer, "after"),
    )


def _parameter(value: object, count: int, limits: WireLimits) -> Values | Scalar:
    if type(value) is list:
        column = unpack_values(value, limits)
        if len(column) != count:
            raise BadFrame(f"{len(column)} values of a parameter for {count} subscriptions")
        return column
    if count != 1:
        raise BadFrame("one value of a parameter for several subscriptions")
    return check_scalars([value], limits)[0]


def _read_changes(parts: list[Any], limits: WireLimits) -> ReadChanges:
    _, table, after, through = parts
    return ReadChanges(
        text(table, "a table"),
        fields.optional(after, integer, "after"),
        fields.optional(through, integer, "through"),
    )


def _read_table(parts: list[Any], limits: WireLimits) -> ReadTable:
    _, table, seq, part, count, start = parts
    integer(count, "parts", 1, MOST_TABLE_PARTS)
    return ReadTable(
        text(table, "a table"),
        fields.optional(seq, integer, "seq"),
        integer(part, "a part", 0, count - 1),
        count,
        fields.optional(start, integer, "start"),
    )


def _done(parts: list[Any], limits: WireLimits) -> Done:
    return Done(integer(parts[1], "first"), integer(parts[2], "last"), fields.optional(parts[3], integer, "deleted"))


def _receipts(parts: list[Any], limits: WireLimits) -> Receipts:
    numbers = fields.integers(parts[1], "receipts")
    if len(numbers) % 3:
        raise BadFrame("receipts are three numbers each")
    return Receipts(tuple(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)))


def _rows(parts: list[Any], limits: WireLimits) -> QueryAnswer:
    _, names, packed, ticket, worth = parts
    columns = _portion_columns(packed, limits)
    if len(fields.texts(names, "names")) != len(columns):
        raise BadFrame("as many columns as names")
    kept = fields.optional(ticket, fields.identity, "a ticket") or b""
    return QueryAnswer(tuple(names), columns, kept, fields.optional(worth, _worth, limits))


def _portion(parts: list[Any], limits: WireLimits) -> QueryPart:
    _, packed, more, worth = parts
    columns = _portion_columns(packed, limits)
    return QueryPart(columns, fields.boolean(more, "more"), fields.optional(worth, _worth, limits))


def _portion_columns(packed: object, limits: WireLimits) -> tuple[Values, ...]:
    if len(array(packed, "columns")) > limits.columns:
        raise BadFrame(f"at most {limits.columns} columns")
    columns = fields.items(packed, "columns", lambda column: unpack_values(column, limits))
    if len(set(map(len, columns))) > 1:
        raise BadFrame("columns of an answer have one length")
    return columns


def _worth(value: object, limits: WireLimits) -> dict[str, Any]:
    """A query's worth, without what a reader does not know."""
    found = _known(value, "a worth", _WORTH_READERS)
    tables = _map(found["tables"], "tables")
    if len(tables) > limits.columns or not {str}.issuperset(map(type, tables)):
        raise BadFrame(f"tables are a map of names, at most {limits.columns}")
    found["tables"] = {name: _table_worth(one) for name, one in tables.items()}
    return found


def _table_worth(value: object) -> dict[str, Any]:
    found = _known(value, "a table's worth", _TABLE_READERS)
    given = _map(value, "a table's worth")
    return found | {name: read(given[name], name) for name, read in _VIEW_READERS.items() if name in given}


def _known(value: object, what: str, readers: dict[str, Callable[[object, str], Any]]) -> dict[str, Any]:
    """The fields of a map that there must be; others may be added later, and are ignored."""
    given = _map(value, what)
    if missing := readers.keys() - given.keys():
        raise BadFrame(f"{what} has no {min(missing)}")
    return {name: read(given[name], name) for name, read in readers.items()}


def _perhaps(read: Callable[[object, str], Any]) -> Callable[[object, str], Any]:
    return lambda value, what: fields.optional(value, read, what)


_WORTH_READERS: dict[str, Callable[[object, str], Any]] = {
    "seq": _perhaps(integer),
    "tables": lambda value, what: value,  # read table by table
    "waited_s": fields.number,
    "ran_s": fields.number,
    "deadline_s": _perhaps(fields.number),
    "met": fields.boolean,
    "policy": text,
}
_TABLE_READERS: dict[str, Callable[[object, str], Any]] = {
    "seq": integer,
    "staleness_s": fields.number,
    "unapplied": integer,
}
_VIEW_READERS: dict[str, Callable[[object, str], Any]] = {  # only of views
    "refresh_s": fields.number,
    "promise_s": fields.number,
}


def _span(parts: list[Any], limits: WireLimits) -> HistorySpan:
    return HistorySpan(integer(parts[1], "first"), integer(parts[2], "last"), integer(parts[3], "created"))


def _changed(parts: list[Any], limits: WireLimits) -> ChangedRows:
    _, last, through, seq, deleted, columns = parts
    seqs, marks = column_format.unpack_column(seq, limits), column_format.unpack_column(deleted, limits)
    if not isinstance(seqs, np.ndarray) or seqs.dtype != np.int64:
        raise BadFrame("sequence numbers are whole numbers")
    if not isinstance(marks, np.ndarray) or marks.dtype != np.bool_:
        raise BadFrame("deleted rows are marked by truth values")
    values = _value_columns(columns, limits)
    if {len(seqs)} != set(map(len, (marks, *values.values()))):
        raise BadFrame("columns of changes have one length")
    return ChangedRows(
        integer(last, "last"), integer(through, "through"), cast("Ints", seqs), cast("Booleans", marks), values
    )


def _as_of(parts: list[Any], limits: WireLimits) -> RowsAsOf:
    values = _value_columns(parts[3], limits)
    if len(set(map(len, values.values()))) > 1:
        raise BadFrame("columns of rows have one length")
    return RowsAsOf(integer(parts[1], "seq"), fields.optional(parts[2], integer, "next"), values)


def _value_columns(packed: object, limits: WireLimits) -> dict[str, Values]:
    columns = _map(packed, "columns")
    if len(columns) > limits.columns or not {str}.issuperset(map(type, columns)):
        raise BadFrame(f"columns are a map of names, at most {limits.columns}")
    return {name: unpack_values(column, limits) for name, column in columns.items()}


def _subscribed(parts: list[Any], limits: WireLimits) -> Subscribed:
    _, seq, epoch, groups, channels, replay = parts
    specs: dict[int, ChannelSpec] = {}
    for pair in array(channels, "channels"):
        number, spec = array(pair, "a channel with what it is", 2)
        specs[integer(number, "a channel")] = _spec(spec)
    if len(specs) < len(channels):
        raise BadFrame("a channel twice")
    return Subscribed(
        integer(seq, "seq"),
        fields.identity(epoch, "an epoch"),
        fields.items(groups, "groups", lambda opened: _opened(opened, limits)),
        specs,
        read_channels(replay, limits),
    )


def _spec(value: object) -> ChannelSpec:
    given = _map(value, "a channel's description")
    for name in ("name", "kind", "form"):
        if name not in given:
            raise BadFrame(f"a channel's description has no {name}")
    known = {name: read(given[name], name) for name, read in _SPEC_READERS.items() if name in given}
    return ChannelSpec(**known)


_SPEC_READERS: dict[str, Callable[[object, str], Any]] = {
    "name": text,
    "kind": text,
    "form": read_form,
    "dimensions": integer,
    "partitioned": fields.boolean,
    "function": integer,
    "y_type": text,
    "key_types": fields.texts,
    "row_names": fields.texts,
    "row_types": fields.texts,
}


def _opened(value: object, limits: WireLimits) -> Opened:
    group, channel, columns, snapshot, failed, as_of, after = array(value, "an opened group", 7)
    return Opened(
        integer(group, "a group"),
        integer(channel, "a channel"),
        fields.texts(columns, "columns"),
        fields.optional(snapshot, column_format.unpack, limits),
        fields.optional(failed, _error),
        fields.items(as_of, "runs", _run),
        integer(after, "after"),
    )


def _run(value: object) -> tuple[int, int]:
    members, seq = array(value, "a run", 2)
    return integer(members, "members"), integer(seq, "seq")


def _staged(parts: list[Any], limits: WireLimits) -> Staged:
    return Staged(fields.identity(parts[1], "a ticket"), integer(parts[2], "parts", 1, MOST_PARTS))


def _part(parts: list[Any], limits: WireLimits) -> AnswerPart:
    def snapshot(value: object) -> tuple[int, Columns]:
        group, columns = array(value, "a group's rows", 2)
        return integer(group, "a group"), column_format.unpack(columns, limits)

    return AnswerPart(fields.items(parts[1], "snapshots", snapshot))


def _error(value: object) -> Failed:
    code, arguments = array(value, "an error", 2)
    found = tuple(
        fields.texts(argument, "names") if type(argument) is list else check_scalars([argument])[0]
        for argument in array(arguments, "an error's arguments")
    )
    return Failed(text(code, "a code"), found)


def _failed(parts: list[Any], limits: WireLimits) -> Failed:
    return _error(parts[1:])


def _policy(parts: list[Any], limits: WireLimits) -> SetPolicy:
    of = fields.choice(parts[2], "whose policy", *get_args(PolicyOf))
    return SetPolicy(text(parts[1], "a policy"), cast("PolicyOf", of))


def _synced(parts: list[Any], limits: WireLimits) -> Synced:
    return Synced(integer(parts[1], "seq"))


def _map(value: object, what: str) -> Mapping[str, Any]:
    if type(value) is not dict:
        raise BadFrame(f"{what} must be a map")
    return value


_READERS: dict[str, tuple[int, Callable[[list[Any], WireLimits], Body]]] = {  # with the number of parts
    "execute": (4, _execute),
    "publish": (6, _publish),
    "delete": (5, _delete),
    "query": (7, _query),
    "fetch_rows": (3, _fetch_rows),
    "give_up": (1, lambda parts, limits: GiveUp()),
    "drop_rows": (2, lambda parts, limits: DropRows(fields.identity(parts[1], "a ticket"))),
    "gone": (2, _gone),
    "left": (2, _left),
    "policy": (3, _policy),
    "subscribe": (5, _subscribe),
    "fetch": (3, _fetch),
    "sync": (1, lambda parts, limits: Sync()),
    "status": (1, lambda parts, limits: Status()),
    "explain": (4, _explain),
    "describe": (1, lambda parts, limits: Describe()),
    "history": (2, lambda parts, limits: AskHistory(text(parts[1], "a table"))),
    "changes": (4, _read_changes),
    "rows_at": (6, _read_table),
    "report": (2, lambda parts, limits: NodeReport(dict(_map(parts[1], "a report")))),
    "done": (4, _done),
    "receipts": (2, _receipts),
    "rows": (5, _rows),
    "portion": (4, _portion),
    "subscribed": (6, _subscribed),
    "staged": (3, _staged),
    "part": (2, _part),
    "synced": (2, _synced),
    "span": (4, _span),
    "changed": (6, _changed),
    "as_of": (4, _as_of),
    "information": (2, lambda parts, limits: Information(dict(_map(parts[1], "information")))),
    "failed": (3, _failed),
}
