"""Every error a user of Hullcast can meet, in one small tree.

The branch tells the caller what to do::

    HullcastError
    ├── UsageError (ValueError)   change the call, then it works; never retried
    │   ├── SqlError              the statement is outside the language: what, and what is accepted
    │   ├── UnknownTable          no such table
    │   ├── UnknownColumn         no such column in that table
    │   ├── DuplicateTable        the name is taken, perhaps by a table of another definition
    │   ├── BadValue              one value of one row is not acceptable: row, column, reason
    │   ├── BadBatch              the rows as a whole have a wrong form
    │   ├── BadParameter          a bound parameter is missing, too many, or of the wrong type
    │   ├── TableInUse            the table cannot go while subscriptions read it
    │   ├── SubscriptionClosed    the subscription was closed before
    │   ├── ClientClosed          the client was closed before, or not opened yet
    │   ├── UnknownChannel        no open channel of that name
    │   ├── BadSetting            a setting is out of its range
    │   ├── BadDirectory          no data directory, or none that can be used
    │   ├── DirectoryInUse        another server runs on this data directory
    │   ├── RetryTooOld           a change sent again so late that nobody can tell whether it was applied before
    │   ├── Superseded            a change that comes after a later one of the same client was applied
    │   └── TooLarge              what would be sent is larger than any receiver takes
    ├── NotPermitted (PermissionError)   the server's rights do not allow it: ask its operator
    ├── PeerError                 the other side broke the protocol: that link is closed
    │   ├── BadFrame              bytes that are not a frame, or a frame beyond the limits
    │   ├── VersionMismatch       the other side speaks another version
    │   └── PeerClosed            the other side closed the link, and said why
    ├── Unavailable               nothing wrong with the call: wait and try again
    │   ├── ConnectionLost        no way to the server at the moment
    │   ├── TimedOut              no answer in the time given
    │   ├── Overloaded            a queue is full
    │   ├── OutOfTurn             an earlier change of the same client has not been applied yet
    │   ├── SubscriptionOverflow  a subscription's events came faster than they were taken
    │   ├── CheckpointFailed      no checkpoint could be written; the log is as it was
    │   └── LogBroken             the commit log cannot be written any more: the server must be restarted
    ├── LogDamaged                data on disk is not what was written: restore it
    └── InvariantBroken           a bug in this code: stop and report it

Fields are attributes, so no caller ever parses a text; `args` are the fields, so each error
pickles (Spark sends errors between processes). `to_wire` and `from_wire` carry an error to the process that asked: its
code is the name of its class, its arguments are the fields.
"""

from __future__ import annotations

import inspect
from typing import Any, Self, cast


class HullcastError(Exception):
    """Base of every error raised on purpose."""


class UsageError(HullcastError, ValueError):
    """The call cannot work as it stands; change it."""


class Remedy(str):
    """Words of an error that depend on who reads it: the text names calls of the embedded engine, `remote` those of a
    client and of the command line, and is what travels to them (`to_wire`)."""

    __slots__ = ("remote",)
    remote: str

    def __new__(cls, local: str, remote: str) -> Self:
        """The same advice twice."""
        remedy = super().__new__(cls, local)
        remedy.remote = remote
        return remedy

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # str has one
        return str(self), self.remote


class SqlError(UsageError):
    """A statement outside the language: the offending part, and what would be accepted."""

    def __init__(self, part: str, reason: str, accepted: str = "") -> None:
        super().__init__(part, reason, accepted)
        self.part, self.reason, self.accepted = part, reason, accepted

    def __str__(self) -> str:
        hint = f"; {self.accepted}" if self.accepted else ""
        where = f"`{self.part}`: " if self.part and not self.reason.startswith(self.part) else ""
        return f"{where}{self.reason}{hint}"


class UnknownTable(UsageError):
    """No table of that name."""

    def __init__(self, table: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(table, known)
        self.table, self.known = table, known

    def __str__(self) -> str:
        return f"no table {self.table}" + (f"; tables: {', '.join(self.known)}" if self.known else "")


class UnknownColumn(UsageError):
    """No column of that name in that table."""

    def __init__(self, column: str, table: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(column, table, known)
        self.column, self.table, self.known = column, table, known

    def __str__(self) -> str:
        have = f"; columns: {', '.join(self.known)}" if self.known else ""
        return f"no column {self.column} in {self.table}{have}"


class DuplicateTable(UsageError):
    """The table name is taken; `difference` says how the existing table differs, where IF NOT EXISTS was said."""

    def __init__(self, table: str, difference: str = "") -> None:
        super().__init__(table, difference)
        self.table, self.difference = table, difference

    def __str__(self) -> str:
        if self.difference:
            return (
                f"table {self.table} exists with another definition: {self.difference}; "
                f"change the statement, choose another name or DROP TABLE {self.table}"
            )
        return (
            f"table {self.table} already exists; use CREATE TABLE IF NOT EXISTS, choose another name or "
            f"DROP TABLE {self.table}"
        )


class BadValue(UsageError):
    """One value of a batch is not acceptable; nothing of the batch was applied."""

    def __init__(self, table: str, row: int, column: str, reason: str) -> None:
        super().__init__(table, row, column, reason)
        self.table, self.row, self.column, self.reason = table, row, column, reason

    def __str__(self) -> str:
        return f"{self.table} row {self.row}, column {self.column}: {self.reason}; nothing was applied"


class BadBatch(UsageError):
    """The rows as a whole have a wrong form; nothing of the batch was applied."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(table, reason)
        self.table, self.reason = table, reason

    def __str__(self) -> str:
        return f"rows for {self.table}: {self.reason}; nothing was applied"


class BadParameter(UsageError):
    """A bound parameter does not fit its placeholder (numbered from 1). `row`: of a column the row, else -1."""

    def __init__(self, position: int, reason: str, row: int = -1) -> None:
        super().__init__(position, reason, row)
        self.position, self.reason, self.row = position, reason, row

    def __str__(self) -> str:
        where = f" (row {self.row})" if self.row >= 0 else ""
        return (f"parameter {self.position}: {self.reason}" if self.position else self.reason) + where


class TableInUse(UsageError):
    """The table has open channels."""

    def __init__(self, table: str, channels: tuple[str, ...]) -> None:
        super().__init__(table, channels)
        self.table, self.channels = table, channels

    def __str__(self) -> str:
        first = f"{self.channels[0]}{' ..' if len(self.channels) > 1 else ''}"
        count = len(self.channels)
        return f"table {self.table} is read by {count} open channel(s): {first}; close their subscriptions first"


class SubscriptionClosed(UsageError):
    """The subscription was closed, so it has no answer any more."""

    def __init__(self, sql: str) -> None:
        super().__init__(sql)
        self.sql = sql

    def __str__(self) -> str:
        return f"the subscription `{self.sql}` is closed; subscribe again"


class ClientClosed(UsageError):
    """The client is not open (any more)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"the client {self.name} is not open; use it inside `async with hullcast.connect(..)`"


class UnknownChannel(UsageError):
    """No open channel of that name."""

    def __init__(self, channel: str) -> None:
        super().__init__(channel)
        self.channel = channel

    def __str__(self) -> str:
        return f"no open channel {self.channel!r}; engine.statistics() lists them"


class BadSetting(UsageError):
    """A setting has a value that cannot work."""

    def __init__(self, setting: str, value: object, reason: str) -> None:
        super().__init__(setting, value, reason)
        self.setting, self.value, self.reason = setting, value, reason

    def __str__(self) -> str:
        return f"{self.setting} = {self.value!r}: {self.reason}"


class BadDirectory(UsageError):
    """A data directory that cannot be used."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(directory, reason)
        self.directory, self.reason = directory, reason

    def __str__(self) -> str:
        return f"data directory {self.directory}: {self.reason}"


class DirectoryInUse(UsageError):
    """Another server runs on this data directory."""

    def __init__(self, directory: str, owner: str) -> None:
        super().__init__(directory, owner)
        self.directory, self.owner = directory, owner

    def __str__(self) -> str:
        return f"data directory {self.directory} is in use by {self.owner}; stop it or choose another directory"


class RetryTooOld(UsageError):
    """A change that was sent again so late that its receipt is forgotten: it may have been applied before."""

    def __init__(self, number: int, oldest: int) -> None:
        super().__init__(number, oldest)
        self.number, self.oldest = number, oldest

    def __str__(self) -> str:
        kept = f"the receipts kept begin with {self.oldest}" if self.oldest else "its receipts are forgotten"
        return (
            f"change {self.number} of this client was sent again too late to tell whether it was applied before "
            f"({kept}); nothing was changed now: look at the rows, and publish them again if they are missing"
        )


class Superseded(UsageError):
    """A change that arrived after a later one of the same client was applied: applying it would undo that."""

    def __init__(self, number: int, latest: int) -> None:
        super().__init__(number, latest)
        self.number, self.latest = number, latest

    def __str__(self) -> str:
        return (
            f"change {self.number} of this client was not applied, because its later change {self.latest} was: it had "
            "been refused or given up before; publish the rows again if they are still right"
        )


class TooLarge(UsageError):
    """What would be sent is larger than any receiver takes; nothing was sent."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(what, size, limit)
        self.what, self.size, self.limit = what, size, limit

    def __str__(self) -> str:
        return f"{self.what}: {self.size}, at most {self.limit} can be sent at once; send it in several parts"


class NotPermitted(HullcastError, PermissionError):
    """The server's rights do not allow this. `table` is empty where no single table is meant."""

    def __init__(self, who: str, action: str, table: str = "") -> None:
        super().__init__(who, action, table)
        self.args = (who, action, table)  # OSError reads a number, a text and a file name into its own, and cuts these
        self.errno = self.strerror = self.filename = None
        self.who, self.action, self.table = who, action, table

    def __str__(self) -> str:
        on = f" on {self.table}" if self.table else ""
        return f"{self.who} may not {self.action}{on}; the server's operator can grant it"


class PeerError(HullcastError):
    """The other side broke the protocol; the link to it is closed. `code` is what it is told (PROTOCOL.md, BYE)."""

    code = "protocol"


class BadFrame(PeerError):
    """Bytes that are not a frame, or a frame beyond the limits."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"not a frame: {self.reason}; is the other side a Hullcast of this version?"


class VersionMismatch(PeerError):
    """The other side speaks another version of the protocol."""

    code = "version"

    def __init__(self, ours: int, theirs: int) -> None:
        super().__init__(ours, theirs)
        self.ours, self.theirs = ours, theirs

    def __str__(self) -> str:
        older = "this side" if self.ours < self.theirs else "the other side"
        return f"this side speaks protocol version {self.ours}, the other {self.theirs}; upgrade {older}"


class PeerClosed(PeerError):
    """The other side closed the link: its code, and its words."""

    def __init__(self, code: str, text: str = "") -> None:
        super().__init__(code, text)
        self.code, self.text = code, text

    def __str__(self) -> str:
        words = f": {self.text}" if self.text else ""
        return f"the other side closed the link ({self.code}){words}"


class Unavailable(HullcastError):
    """Nothing is wrong with the call; wait and try again."""


class ConnectionLost(Unavailable):
    """There is no way to the server at the moment."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"no connection to the server: {self.reason}; try again when it is reachable"


class TimedOut(Unavailable):
    """No answer came in the time given; whether the request was applied is not known."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(what, seconds)
        self.what, self.seconds = what, seconds

    def __str__(self) -> str:
        return (
            f"{self.what} took longer than {self.seconds:g} s; give it more time, or check whether the server is busy "
            "(`hullcast status`)"
        )


class Overloaded(Unavailable):
    """A queue is full."""

    def __init__(self, queue: str, limit: int) -> None:
        super().__init__(queue, limit)
        self.queue, self.limit = queue, limit

    def __str__(self) -> str:
        return f"{self.queue} is full ({self.limit} waiting); slow down, or raise its limit"


class OutOfTurn(Unavailable):
    """A change that came before an earlier one of the same client was applied; to be sent again after that one."""

    def __init__(self, number: int, after: int) -> None:
        super().__init__(number, after)
        self.number, self.after = number, after

    def __str__(self) -> str:
        return (
            f"change {self.number} of this client waits for its earlier change {self.after}, which is not applied yet"
        )


class SubscriptionOverflow(Unavailable):
    """Events came faster than they were taken, and the subscription's policy is to end then."""

    def __init__(self, sql: str, buffer: int) -> None:
        super().__init__(sql, buffer)
        self.sql, self.buffer = sql, buffer

    def __str__(self) -> str:
        return (
            f"{self.buffer} events of `{self.sql}` wait and more came; take them faster, raise `buffer`, or choose "
            "another `overflow`"
        )


class LogBroken(Unavailable):
    """The commit log could not be written or synced; nothing is acknowledged any more."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(directory, reason)
        self.directory, self.reason = directory, reason

    def __str__(self) -> str:
        return (
            f"the commit log in {self.directory} cannot be written ({self.reason}); nothing more is accepted. "
            "Free disk space or replace the disk, then restart the server: what was acknowledged is safe"
        )


class CheckpointFailed(Unavailable):
    """No checkpoint could be written; the log and the older checkpoints are as they were."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(directory, reason)
        self.directory, self.reason = directory, reason

    def __str__(self) -> str:
        return (
            f"no checkpoint could be written in {self.directory} ({self.reason}); nothing is lost, but the log grows. "
            "Free disk space"
        )


class LogDamaged(HullcastError):
    """Data on disk is not what was written there; `offset` is -1 where the whole file is meant."""

    def __init__(self, file: str, offset: int, reason: str, help: str) -> None:
        super().__init__(file, offset, reason, help)
        self.file, self.offset, self.reason, self.help = file, offset, reason, help

    def __str__(self) -> str:
        where = f"{self.file} at byte {self.offset}" if self.offset >= 0 else self.file
        return f"{where} is damaged: {self.reason}. {self.help}"


class InvariantBroken(HullcastError):
    """A bug in this code: the structure named is not what its documentation says."""


# -- errors on the wire ------------------------------------------------------------------------------------

_TEXT_LIMIT = 2000  # characters of one argument: an error is read by people
_LIST_LIMIT = 100


def to_wire(error: HullcastError) -> tuple[str, tuple[object, ...]]:
    """The code and arguments of an error. A class that is not of this file goes as its nearest ancestor here."""
    for kind in type(error).__mro__:
        fields = _FIELDS.get(kind.__name__)
        if fields is not None and _CLASSES[kind.__name__] is kind:
            arguments = tuple(_plain(argument) for argument in error.args)
            if not _fit(fields, arguments):
                return HullcastError.__name__, (_plain(str(error)),)
            return kind.__name__, arguments
    return HullcastError.__name__, (_plain(str(error)),)


def from_wire(code: str, arguments: tuple[object, ...]) -> HullcastError:
    """The error of a code. What does not fit becomes a plain HullcastError that shows what was said."""
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
    if not inspect.isfunction(kind.__init__):  # Exception's own
        return (("str", True),)
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    return tuple((cast("str", p.annotation), p.default is not inspect.Parameter.empty) for p in parameters)


_CLASSES: dict[str, type[HullcastError]] = {
    name: kind for name, kind in list(globals().items()) if isinstance(kind, type) and issubclass(kind, HullcastError)
}
_FIELDS = {name: _fields(kind) for name, kind in _CLASSES.items()}
