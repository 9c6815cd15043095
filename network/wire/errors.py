"""Every error a user of Hullcast can meet, in one small tree.

The branch tells the caller what to do::

    HullcastError
    ├── UsageError (ValueError)   change the call, then it works; never retried
    │   ├── SqlError              the statement is not supported: which part, and what is accepted
    │   ├── UnknownTable          no such table
    │   ├── UnknownColumn         no such column in that table
    │   ├── DuplicateTable        a table of that name exists, perhaps with another definition
    │   ├── UnknownView           no such view
    │   ├── DuplicateView         a view or table of that name exists, or a view with another definition
    │   ├── PromiseTooShort       this machine cannot keep a view ready within its response time: says what it can
    │   ├── BadValue              one value of one row is not acceptable: row, column, reason
    │   ├── BadBatch              the rows as a whole have the wrong form
    │   ├── BadParameter          a bound parameter is missing, too many, or of the wrong type
    │   ├── TableInUse            the table cannot be dropped while subscriptions read it
    │   ├── TableInView           the table cannot be dropped while views read it
    │   ├── SubscriptionClosed    the subscription is closed
    │   ├── ClientClosed          the client is closed, or not open yet
    │   ├── UnknownChannel        no open channel of that name
    │   ├── BadSetting            a setting is out of its range
    │   ├── BadDirectory          the data directory is missing or cannot be used
    │   ├── DirectoryInUse        another server runs on this data directory
    │   ├── RetryTooOld           a change was retried too late to know whether it was applied before
    │   ├── Superseded            a change arrived after a later one of the same client was applied
    │   ├── NoHistory             the server keeps no change history: it has no data directory
    │   ├── HistoryGone           part of the change history is no longer there: says from where on it is
    │   ├── AnswerGone            the rest of a large answer is no longer kept: run the query again
    │   └── TooLarge              larger than any receiver accepts
    ├── NotPermitted (PermissionError)   the server's rights do not allow it: ask its operator
    ├── DeadlineMissed            a query was aborted at its deadline: give it longer, or accept older rows
    ├── PeerError                 the other side broke the protocol: that link is closed
    │   ├── BadFrame              bytes that are not a frame, or a frame beyond the limits
    │   ├── VersionMismatch       the other side has another version of the protocol
    │   └── PeerClosed            the other side closed the link, and said why
    ├── Unavailable               the call is fine: wait and try again
    │   ├── ConnectionLost        the server cannot be reached at the moment
    │   ├── TimedOut              no reply within the timeout
    │   ├── Overloaded            a queue is full
    │   ├── OutOfTurn             an earlier change of the same client has not been applied yet
    │   ├── SubscriptionOverflow  a subscription's events came faster than they were taken
    │   ├── CheckpointFailed      a checkpoint could not be written; nothing is lost
    │   ├── LoadFailed            a table could not be brought up to date for queries; nothing is lost
    │   ├── DiskFull              the server's disk is full: changes are refused until there is room, all else goes on
    │   └── LogBroken             the commit log cannot be written: the server must be restarted
    ├── QueriesFailed             one-time queries cannot be answered: the disk refuses their files. All else goes on
    ├── LogDamaged                data on disk is not what was written: restore it
    └── InvariantBroken           a bug in this code: stop and report it

An error is declared by its fields and its text. Fields are attributes, so no caller parses a text. `args` are the
fields, so each error pickles (Spark sends errors between processes). `to_wire` and `from_wire` carry an error to the
client: its code is the name of its class, its arguments are the fields; PROTOCOL.md lists them.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Any, Self, dataclass_transform

from hullcast.network.wire.durations import time_shown


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class HullcastError(Exception):
    """Base of every error raised on purpose."""

    _says = ""  # the text, from the fields; a class whose text needs more has its own __str__

    def __init_subclass__(cls) -> None:
        if "__annotations__" in vars(cls):
            dataclass(eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        self.args = tuple(vars(self).values())

    def __str__(self) -> str:
        return self._says.format_map(vars(self)) if self._says else super().__str__()


class UsageError(HullcastError, ValueError):
    """The call cannot work as it stands; change it."""


class Remedy(str):
    """Advice whose words depend on the reader. The text itself names calls of the embedded engine; `remote` names those
    of a client and the command line, and is what `to_wire` sends."""

    __slots__ = ("remote",)
    remote: str

    def __new__(cls, local: str, remote: str) -> Self:
        """The advice in both forms."""
        remedy = super().__new__(cls, local)
        remedy.remote = remote
        return remedy

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # str has one
        return str(self), self.remote


class SqlError(UsageError):
    """A statement that is not supported: the offending part, the reason, and what would be accepted."""

    part: str
    reason: str
    accepted: str = ""

    def __str__(self) -> str:
        hint = f"; {self.accepted}" if self.accepted else ""
        where = f"`{self.part}`: " if self.part and not self.reason.startswith(self.part) else ""
        return f"{where}{self.reason}{hint}"


class UnknownTable(UsageError):
    """There is no table of that name."""

    table: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"no table {self.table}" + (f"; tables: {', '.join(self.known)}" if self.known else "")


class UnknownColumn(UsageError):
    """The table has no column of that name."""

    column: str
    table: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        have = f"; columns: {', '.join(self.known)}" if self.known else ""
        return f"no column {self.column} in {self.table}{have}"


class DuplicateTable(UsageError):
    """A table or stream (`word`) of that name exists. With IF NOT EXISTS, `difference` says how it differs."""

    table: str
    difference: str = ""
    word: str = "table"

    def __str__(self) -> str:
        drop = f"choose another name or DROP {self.word.upper()} {self.table}"
        if self.difference:
            return (
                f"{self.word} {self.table} exists with another definition: {self.difference}; change the statement, "
                f"{drop}"
            )
        return f"{self.word} {self.table} already exists; use CREATE {self.word.upper()} IF NOT EXISTS, {drop}"


class UnknownView(UsageError):
    """There is no view of that name."""

    view: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"no view {self.view}" + (f"; views: {', '.join(self.known)}" if self.known else "")


class DuplicateView(UsageError):
    """A view or a table of that name exists; `kind` says which. With IF NOT EXISTS the view is another one."""

    view: str
    kind: str = "view"
    text: str = ""

    def __str__(self) -> str:
        if self.text:
            return f"view {self.view} exists with another definition, {self.text}; DROP VIEW {self.view} first"
        keep = ", or keep it with CREATE VIEW IF NOT EXISTS" if self.kind == "view" else ""
        drop = f"choose another name or DROP {self.kind.upper()} {self.view}"
        return f"{self.kind} {self.view} already exists; {drop}{keep}"


class PromiseTooShort(UsageError):
    """A view cannot be kept ready within the response time asked for."""

    view: str
    response_time_s: float
    shortest_s: float

    def __str__(self) -> str:
        return (
            f"view {self.view} cannot be kept ready within {time_shown(self.response_time_s)} on this machine; the "
            f"shortest response time it can promise is {time_shown(self.shortest_s)}"
        )


class BadValue(UsageError):
    """One value of a batch is not acceptable; nothing of the batch was applied."""

    table: str
    row: int
    column: str
    reason: str
    _says = "{table} row {row}, column {column}: {reason}; nothing was applied"


class BadBatch(UsageError):
    """The rows as a whole have the wrong form; nothing of the batch was applied."""

    table: str
    reason: str
    _says = "rows for {table}: {reason}; nothing was applied"


class BadParameter(UsageError):
    """A value does not fit its placeholder. Placeholders count from 1; `row` is the row of a column, from 0, or -1."""

    position: int
    reason: str
    row: int = -1

    def __str__(self) -> str:
        where = f" (row {self.row})" if self.row >= 0 else ""
        return (f"parameter {self.position}: {self.reason}" if self.position else self.reason) + where


class TableInUse(UsageError):
    """Subscriptions still read the table."""

    table: str
    channels: tuple[str, ...]

    def __str__(self) -> str:
        others = len(self.channels) - 1
        more = f" and {others} other {'query' if others == 1 else 'queries'}" if others else ""
        return f"table {self.table} is in use by subscriptions to {self.channels[0]}{more}; close them first"


class TableInView(UsageError):
    """Views still read the table."""

    table: str
    views: tuple[str, ...]

    def __str__(self) -> str:
        drops = "; ".join(f"DROP VIEW {view}" for view in self.views[:5])
        named = f"view{'' if len(self.views) == 1 else 's'} {', '.join(self.views[:5])}"
        return f"table {self.table} is read by {named}; {drops} first"


class SubscriptionClosed(UsageError):
    """The subscription is closed, so it has no answer."""

    sql: str
    _says = "the subscription `{sql}` is closed; subscribe again"


class ClientClosed(UsageError):
    """The client is closed, or not open yet."""

    name: str
    _says = (
        "the client {name} is not open; use it inside `async with hullcast.connect(..)` or "
        "`with hullcast.connect_blocking(..)`"
    )


class UnknownChannel(UsageError):
    """There is no open channel of that name."""

    channel: str
    _says = "no open channel {channel!r}; engine.statistics() lists them"


class BadSetting(UsageError):
    """A setting or argument has a value that is not allowed."""

    setting: str
    value: object
    reason: str
    _says = "{setting} = {value!r}: {reason}"


class BadDirectory(UsageError):
    """The data directory is missing or cannot be used."""

    directory: str
    reason: str
    _says = "data directory {directory}: {reason}"


class DirectoryInUse(UsageError):
    """Another server runs on this data directory."""

    directory: str
    owner: str
    _says = "data directory {directory} is in use by {owner}; stop it or choose another directory"


class RetryTooOld(UsageError):
    """A change was retried so late that the server no longer knows whether it was applied before."""

    number: int
    oldest: int

    def __str__(self) -> str:
        kept = f"it remembers changes from {self.oldest} on" if self.oldest else "it has forgotten this client"
        return (
            f"change {self.number} of this client was retried too late: the server no longer knows whether it was "
            f"applied before ({kept}). Nothing was changed now; look at the rows, and publish them again if they are "
            "missing"
        )


class Superseded(UsageError):
    """A change arrived after a later one of the same client was applied. Applying it now would undo the later one."""

    number: int
    latest: int
    _says = (
        "change {number} of this client was not applied, because its later change {latest} already was; "
        "publish the rows again if they are still right"
    )


class NoHistory(UsageError):
    """The server has no data directory, and so no change history."""

    server: str
    _says = "{server} keeps no change history, because it keeps its data in memory only; start it with --data DIR"


class HistoryGone(UsageError):
    """An update, or the table as it was before it, can no longer be read. `first` is the first update that can."""

    table: str
    asked: int
    first: int
    why: str
    _says = "update {asked:,} of {table} cannot be read ({why}); the history of {table} begins with update {first:,}"


class AnswerGone(UsageError):
    """The rest of a large answer is no longer kept. `part` is the portion that was asked for."""

    part: int
    reason: str
    _says = "portion {part} of this answer is no longer there ({reason}); run the query again"


class TooLarge(UsageError):
    """The request or reply is larger than any receiver accepts; nothing was sent."""

    what: str  # with a remedy in brackets at its end, if there is a better one than to send or ask for less
    size: int
    limit: int

    def __str__(self) -> str:
        remedy = "" if self.what.endswith(")") else "; send or ask for less at once"
        return f"{self.what}: {self.size:,} is more than the limit of {self.limit:,}{remedy}"


class NotPermitted(HullcastError, PermissionError):
    """The key has no right to do this. `table` is empty if it is not about one table."""

    who: str
    action: str
    table: str = ""

    def __str__(self) -> str:
        on = f" on {self.table}" if self.table else ""
        return f"{self.who} does not have the right `{self.action}`{on}; ask the server's operator for it"


class DeadlineMissed(HullcastError):
    """A query was aborted at its deadline. It `waited_s` for its turn and for rows to be loaded, and then `ran_s`."""

    deadline_s: float
    waited_s: float
    ran_s: float

    def __str__(self) -> str:
        waited = f"it waited {time_shown(self.waited_s)} for its turn and for rows to be loaded"
        if self.ran_s <= 0:
            then, help = ", and did not begin", ", a higher priority or a freshness below 1"
        else:
            then, help = f" and ran for {time_shown(self.ran_s)}", " or a SELECT that reads less"
        return (
            f"the query was aborted at its deadline of {time_shown(self.deadline_s)}: {waited}{then}. Use a later "
            f"deadline{help}"
        )


class PeerError(HullcastError):
    """The other side broke the protocol; its link is closed, with this `code` (PROTOCOL.md, BYE)."""

    code = "protocol"


class BadFrame(PeerError):
    """Bytes that are not a frame, or a frame beyond the limits."""

    reason: str
    _says = "malformed frame: {reason}; is the other side Hullcast, and of the same version?"


class VersionMismatch(PeerError):
    """The other side has another version of the protocol."""

    code = "version"

    ours: int
    theirs: int

    def __str__(self) -> str:
        older = "this side" if self.ours < self.theirs else "the other side"
        return f"this side has protocol version {self.ours}, the other side {self.theirs}; upgrade {older}"


class PeerClosed(PeerError):
    """The other side closed the link, with this code and text."""

    code: str = field()  # not that of PeerError
    text: str = ""

    def __str__(self) -> str:
        words = f": {self.text}" if self.text else ""
        return f"the other side closed the link ({self.code}){words}"


class Unavailable(HullcastError):
    """The call is fine; wait and try again."""


class ConnectionLost(Unavailable):
    """The server cannot be reached at the moment."""

    reason: str
    _says = "no connection to the server: {reason}"


class TimedOut(Unavailable):
    """No reply came within the timeout. A change may have been applied or not."""

    what: str
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.what}: no reply after {round(self.seconds, 3):g} s; check whether the server is running and not "
            "too busy (`hullcast status`), or give a longer timeout"
        )


class Overloaded(Unavailable):
    """A queue is full."""

    queue: str
    limit: int
    _says = "{queue}: the limit of {limit:,} is reached; try again later"


class OutOfTurn(Unavailable):
    """A change arrived before an earlier one of the same client was applied; send it again after that one."""

    number: int
    after: int

    def __str__(self) -> str:
        earlier = f"its earlier change {self.after}, which has not been applied yet"
        return f"change {self.number} of this client waits for {earlier}"


class SubscriptionOverflow(Unavailable):
    """Events came faster than they were taken, and the subscription has `overflow="error"`."""

    sql: str
    buffer: int
    _says = (
        "the subscription `{sql}` ended, because more than {buffer:,} events were waiting; take them "
        "faster, raise `buffer`, or choose another `overflow`"
    )


class LogBroken(Unavailable):
    """The commit log could not be written or synced; the server acknowledges nothing more."""

    directory: str
    reason: str
    _says = (
        "the commit log in {directory} cannot be written ({reason}), so the server accepts no more "
        "changes. Free disk space or replace the disk, then restart the server; everything acknowledged is safe"
    )


class DiskFull(Unavailable):
    """The disk of the commit log has too little room: changes are refused until there is more, and all else goes on."""

    directory: str
    free_bytes: int
    least_bytes: int
    _says = (
        "the server's disk is full: {free_bytes:,} bytes are free in {directory}, and changes need "
        "{least_bytes:,}. Changes are refused, while queries and subscriptions go on; free disk space there, "
        "and changes are accepted again without a restart"
    )


class CheckpointFailed(Unavailable):
    """A checkpoint could not be written; the log and the older checkpoints are unchanged."""

    directory: str
    reason: str
    _says = (
        "a checkpoint could not be written in {directory} ({reason}); nothing is lost, but the log "
        "grows. Free disk space"
    )


class LoadFailed(Unavailable):
    """A table or view could not be brought up to date for queries; nothing is lost, and it is tried again. `kind` says
    which it is."""

    table: str
    reason: str
    kind: str = "table"

    def __post_init__(self) -> None:
        self.args = (self.table, self.reason, *([] if self.kind == "table" else [self.kind]))  # as long as others read

    def __str__(self) -> str:
        said = (
            f"{self.kind} {self.table} cannot be loaded for queries ({self.reason}); no update is lost. Check that the "
            "server's data directory has free space and can be written to, then ask again"
        )
        return f"{said}; freshness=0 answers from what is loaded" if self.kind == "table" else said


class QueriesFailed(HullcastError):
    """The server cannot write the files that one-time queries read; everything else goes on."""

    directory: str
    reason: str
    _says = (
        "one-time queries cannot be answered: the server cannot write their files in {directory} "
        "({reason}). Free disk space there; everything else goes on"
    )


class LogDamaged(HullcastError):
    """Data on disk is not what was written there. `offset` is -1 if it is about the whole file."""

    file: str
    offset: int
    reason: str
    help: str

    def __str__(self) -> str:
        where = f"{self.file} at byte {self.offset}" if self.offset >= 0 else self.file
        return f"{where} is damaged: {self.reason}. {self.help}"


class InvariantBroken(HullcastError):
    """A bug in this code: the structure named is not what its documentation says."""


# -- errors on the wire ------------------------------------------------------------------------------------

_TEXT_LIMIT = 2000  # characters of one argument: an error is read by people
_LIST_LIMIT = 100


def to_wire(error: HullcastError) -> tuple[str, tuple[object, ...]]:
    """The code and arguments of an error. A class from elsewhere is sent as its nearest ancestor in this file."""
    for kind in type(error).__mro__:
        fields = _FIELDS.get(kind.__name__)
        if fields is not None and _CLASSES[kind.__name__] is kind:
            arguments = tuple(_plain(argument) for argument in error.args)
            if not _fit(fields, arguments):
                return HullcastError.__name__, (_plain(str(error)),)
            return kind.__name__, arguments
    return HullcastError.__name__, (_plain(str(error)),)


def from_wire(code: str, arguments: tuple[object, ...]) -> HullcastError:
    """The error of a code. An unknown code, or other arguments, become a HullcastError that shows them as text."""
    fields = _FIELDS.get(code)
    given = tuple(tuple(argument) if isinstance(argument, list) else argument for argument in arguments)
    if fields is not None and _fit(fields, given):
        return _CLASSES[code](*given)
    said = ", ".join(str(_plain(argument)) for argument in given[:_LIST_LIMIT])
    return HullcastError(said if code == HullcastError.__name__ else f"{code[:_TEXT_LIMIT]}: {said}")


def _plain(argument: object) -> object:
    """An argument as it may travel, cut to what a person reads."""
    if isinstance(argument, Remedy):
        argument = argument.remote
    if isinstance(argument, str):
        return argument if len(argument) <= _TEXT_LIMIT else argument[:_TEXT_LIMIT] + ".."
    if isinstance(argument, tuple | list):
        return tuple(_plain(str(item)) for item in argument[:_LIST_LIMIT])
    if (
        argument is None
        or isinstance(argument, bool | float)
        or (isinstance(argument, int) and abs(argument) < 1 << 63)
    ):
        return argument
    return repr(argument)[:_TEXT_LIMIT]


def _fit(fields: tuple[tuple[str, bool], ...], arguments: tuple[object, ...]) -> bool:
    """Whether arguments are those of a class: as many, and of its types."""
    needed = sum(not optional for _, optional in fields)
    return needed <= len(arguments) <= len(fields) and all(
        _OF_TYPE[kind](argument) for (kind, _), argument in zip(fields, arguments, strict=False)
    )


_OF_TYPE: dict[str, Any] = {  # by annotation
    "str": lambda value: isinstance(value, str),
    "int": lambda value: type(value) is int,
    "float": lambda value: type(value) in (int, float),
    "tuple[str, ...]": lambda value: isinstance(value, tuple) and all(isinstance(item, str) for item in value),
    "object": lambda value: value is None or isinstance(value, bool | int | float | str),
}


def _fields(kind: type[HullcastError]) -> tuple[tuple[str, bool], ...]:
    """The type of each argument, and whether it may be left out; one text where a class has no fields."""
    declared: dict[str, Any] = getattr(kind, "__dataclass_fields__", {})
    return tuple((field.type, field.default is not MISSING) for field in declared.values()) or (("str", True),)


_CLASSES: dict[str, type[HullcastError]] = {
    name: kind for name, kind in list(globals().items()) if isinstance(kind, type) and issubclass(kind, HullcastError)
}
_FIELDS = {name: _fields(kind) for name, kind in _CLASSES.items()}
