"""Every error a user of Hullcast can meet, in one small tree.

The branch tells the caller what to do::

    HullcastError
    ├── UsageError (ValueError)   change the call, then it works; never retried
    │   ├── SqlError              the statement is outside the language: what, and what is accepted
    │   ├── UnknownTable          no such table
    │   ├── UnknownColumn         no such column in that table
    │   ├── DuplicateTable        the name is taken
    │   ├── BadValue              one value of one row is not acceptable: row, column, reason
    │   ├── BadBatch              the rows as a whole have a wrong form
    │   ├── BadParameter          a bound parameter is missing, too many, or of the wrong type
    │   ├── TableInUse            the table cannot go while subscriptions read it
    │   ├── SubscriptionClosed    the subscription was closed before
    │   ├── UnknownChannel        no open channel of that name
    │   └── BadSetting            a setting is out of its range
    └── InvariantBroken           a bug in this code: stop and report it

Fields are attributes, so no caller ever parses a text; `args` are the fields, so each error
pickles (Spark sends errors between processes).
"""

from __future__ import annotations


class HullcastError(Exception):
    """Base of every error raised on purpose."""


class UsageError(HullcastError, ValueError):
    """The call cannot work as it stands; change it."""


class SqlError(UsageError):
    """A statement outside the language: the offending part, and what would be accepted."""

    def __init__(self, part: str, reason: str, accepted: str = "") -> None:
        super().__init__(part, reason, accepted)
        self.part, self.reason, self.accepted = part, reason, accepted

    def __str__(self) -> str:
        hint = f"; {self.accepted}" if self.accepted else ""
        return f"cannot take `{self.part}`: {self.reason}{hint}"


class UnknownTable(UsageError):
    """No table of that name."""

    def __init__(self, table: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(table, known)
        self.table, self.known = table, known

    def __str__(self) -> str:
        have = f"tables: {', '.join(self.known)}" if self.known else "no table exists yet"
        return f"no table {self.table}; {have}"


class UnknownColumn(UsageError):
    """No column of that name in that table."""

    def __init__(self, column: str, table: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(column, table, known)
        self.column, self.table, self.known = column, table, known

    def __str__(self) -> str:
        return f"no column {self.column} in {self.table}; columns: {', '.join(self.known)}"


class DuplicateTable(UsageError):
    """The table name is taken."""

    def __init__(self, table: str) -> None:
        super().__init__(table)
        self.table = table

    def __str__(self) -> str:
        return f"table {self.table} exists already; choose another name or DROP TABLE {self.table}"


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
    """A bound parameter does not fit its placeholder (numbered from 1)."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position, self.reason = position, reason

    def __str__(self) -> str:
        return f"parameter {self.position}: {self.reason}" if self.position else self.reason


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


class InvariantBroken(HullcastError):
    """A bug in this code: the structure named is not what its documentation says."""
