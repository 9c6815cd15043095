"""The channel of a conditional subscription: the latest result of its SELECT, told to all who listen.

No update of a table leads here: the server runs the SELECT when its trigger says so (broker/server/conditionals.py),
and what comes of it is one message, whoever listens and however many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.reformulate.channel import Channel
from hullcast.network.answers.result import RESULT_KEY, RESULT_ROW
from hullcast.network.wire.bodies import ChannelSpec
from hullcast.network.wire.columns import TextColumn
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.reformulate.channel import Opening
    from hullcast.broker.reformulate.messages import Messages
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.store import Updates
    from hullcast.network.wire.columns import Columns


class Result(NamedTuple):
    """What running a SELECT gave, as it travels (network/answers/result.py)."""

    text: str
    fired: int | None  # the update that changed the condition's answer
    at: float  # in microseconds since 1970

    def row(self) -> Columns:
        """The one row that it is, in columns that travel."""
        fired = np.nan if self.fired is None else float(self.fired)
        return {
            "key.0": np.array([float(RESULT_KEY)]),
            "row.0": TextColumn.from_texts([self.text]),
            "row.1": np.array([fired]),
            "row.2": np.array([self.at]),
        }


class ResultChannel(Channel):
    """All who subscribe to one SELECT under one trigger. Nothing tells them apart, so no point and no message does.

    It reads no table, and has a result before anybody listens. Only the latest is kept here; those before it are in the
    retention, and nowhere else.
    """

    result = Result("", None, 0.0)

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening._replace(event_limit=1))  # nobody listens here, in the server

    def _spec(self) -> ChannelSpec:
        return ChannelSpec(
            name=self.name,
            kind=self.shape.kind.name,
            form=self.shape.kind.answers.form,
            key_types=("INTEGER",),
            row_names=tuple(RESULT_ROW),
            row_types=tuple(RESULT_ROW.values()),
        )

    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        raise InvariantBroken(f"{self.name}: a result is of no table")

    def deliver(self, result: Result, seq: int) -> Columns:
        """Take a new result; returns the message that tells of it, as update `seq`."""
        self.result = result
        self.count(1, np.array([0, 1, 0]))
        there = np.ones(1, np.bool_)
        marks: Columns = {"seq": np.array([seq]), "old.there": there, "new.there": there, "altered": there}
        return marks | result.row()

    def capture(self, predicates: Predicates) -> Callable[[], Columns]:
        first: Columns = {"of": np.zeros(1, np.int64), **self.result.row()}
        return lambda: first

    def capture_cost(self, n: int) -> int:
        return 0

    def memory_bytes(self) -> int:
        return super().memory_bytes() + len(self.result.text)
