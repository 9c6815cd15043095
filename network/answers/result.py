"""Results of conditional subscriptions: each event brings all rows, and says how current they are.

On the wire a result is one row (PROTOCOL.md, 7.3): the bodies that a query would have been answered with, as a text;
which update of the condition led to it; and when it was computed. So it is heard, queued, replayed and stored as any
row is, and read only when somebody looks.
"""

from __future__ import annotations

import base64
import binascii
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hullcast.network.answers.collection import Collection
from hullcast.network.answers.events import Change
from hullcast.network.answers.named import QueryRows, QueryWorth
from hullcast.network.answers.rows import RowAnswers
from hullcast.network.wire import bodies, packing
from hullcast.network.wire.bodies import Failed, QueryAnswer, QueryPart
from hullcast.network.wire.errors import BadFrame, HullcastError, from_wire
from hullcast.network.wire.values import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from hullcast.network.answers.collection import Waiting
    from hullcast.network.wire.arrays import Ints
    from hullcast.network.wire.columns import Columns

#: What the row of a result shows, as in a channel's spec.
RESULT_ROW = {"RESULT": "TEXT", "FIRED": "INTEGER", "AT": "TIMESTAMP"}
#: The key of that row: there is no other.
RESULT_KEY = 0


class ResultRows(QueryRows):
    """The rows of a conditional subscription's SELECT at one moment; `worth` says at which, and how long they took.

    `at` is when they were computed. `fired` is the update that changed the condition's answer (of several, the last);
    None if it was the time, or the first result. If the SELECT could not be run then, `error` says why; to look at the
    rows raises it, so that no failure is taken for an empty answer.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        rows: Iterable[tuple[Any, ...]],
        worth: QueryWorth | None = None,
        *,
        fired: int | None = None,
        at: datetime | None = None,
        error: HullcastError | None = None,
    ) -> None:
        super().__init__(columns, rows, worth)
        self.fired, self.at, self.error = fired, at, error

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def __iter__(self) -> Iterator[Any]:
        self._check()
        return super().__iter__()

    def __len__(self) -> int:
        self._check()
        return super().__len__()

    def __getitem__(self, which: Any) -> Any:
        self._check()
        return super().__getitem__(which)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ResultRows) and (self.error is not None or other.error is not None):
            return repr(self.error) == repr(other.error)
        self._check()
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # as lists

    def __repr__(self) -> str:
        return super().__repr__() if self.error is None else f"<no rows: {self.error}>"

    def __reduce__(self) -> tuple[Any, ...]:
        rows = [] if self.error is not None else list(map(tuple, self))
        return _rebuilt, (self.columns, rows, self.worth, self.fired, self.at, self.error)


def _rebuilt(
    columns: tuple[str, ...],
    rows: list[tuple[Any, ...]],
    worth: QueryWorth | None,
    fired: int | None,
    at: datetime | None,
    error: HullcastError | None,
) -> ResultRows:
    return ResultRows(columns, rows, worth, fired=fired, at=at, error=error)


def encode_result(answer: Sequence[bytes]) -> str:
    """The text of a result: the encoded bodies `rows` and perhaps `portion`, or `failed`."""
    return base64.b64encode(packing.pack(list(answer))).decode()


def decode_result(text: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]], QueryWorth | None]:
    """The names, the rows and the worth of a result; raises why there are none, or BadFrame."""
    try:
        parts = packing.unpack(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as error:
        raise BadFrame("the text of a result is not base64") from error
    if type(parts) is not list or not parts or not {bytes}.issuperset(map(type, parts)):
        raise BadFrame("a result is an array of bodies")
    first, *others = map(bodies.decode, parts)
    if isinstance(first, Failed):
        raise from_wire(first.code, first.arguments)
    if not isinstance(first, QueryAnswer):
        raise BadFrame(f"a result begins with its rows, not with {type(first).__name__}")
    rows, worth = rows_of(first.columns), first.worth
    for portion in others:
        if not isinstance(portion, QueryPart) or len(portion.columns) != len(first.names):
            raise BadFrame(f"{type(portion).__name__} is not a portion of this result")
        rows += rows_of(portion.columns)
        worth = portion.worth or worth
    return first.names, rows, None if worth is None else QueryWorth.of(worth)


class DeliveredResult(tuple[Any, ...]):
    """The row of a result as it came, (text, fired, at). What it says is read once, by whoever looks first."""

    @cached_property
    def rows(self) -> ResultRows:
        """The result as users see it."""
        text, fired, at = self
        try:
            return ResultRows(*decode_result(text), fired=fired, at=at)
        except HullcastError as error:
            return ResultRows((), (), fired=fired, at=at, error=error)


class ResultAnswers(RowAnswers):
    """One row a listener, which each message replaces."""

    def entries(self, columns: Columns, rows: Ints) -> list[tuple[Any, Any]]:
        return [(key, DeliveredResult(row)) for key, row in super().entries(columns, rows)]

    def restored(self, stored: list[Any]) -> dict[Any, Any]:
        return {key: DeliveredResult(row) for key, row in stored}

    def collection(
        self, contents: dict[Any, Any], names: tuple[str, ...], limit: int, room: int = sys.maxsize
    ) -> Collection:
        return ResultCollection(contents, None, limit, room)


class ResultCollection(Collection):
    """The result there is, and those that nobody has taken yet."""

    def _present(self, contents: dict[Any, Any]) -> Any:
        result: DeliveredResult = contents[RESULT_KEY]
        return result.rows

    def _event(self, waiting: Waiting, answer: Callable[[], Any]) -> Change:
        return Change(
            waiting.seq, answer, conflated=waiting.conflated
        )  # as of one value: what came and what went is not what this is about
