"""The table of subscription kinds: everything the parser, server, engine and clients know of each.

A new kind is one row here, its answers (a file in this folder) and its channel (a file in broker/reformulate); see
"Adding a subscription kind" in ARCHITECTURE.md.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hullcast.network.answers.aggregate import AggregateAnswers
from hullcast.network.answers.distinct import DistinctAnswers
from hullcast.network.answers.extremum import ExtremumAnswers
from hullcast.network.answers.result import ResultAnswers
from hullcast.network.answers.rows import RowAnswers
from hullcast.network.answers.tuples import TupleAnswers

if TYPE_CHECKING:
    from hullcast.network.answers.answers import Answers

NUMBERS = ("INTEGER", "REAL")
ORDERED = (*NUMBERS, "TIMESTAMP")
ANY_TYPE = (*ORDERED, "TEXT")


@dataclass(frozen=True, slots=True, eq=False)  # a row is itself: compared by identity
class SubscriptionKind:
    """One kind of subscription."""

    name: str  # on the wire, in resume tokens and for people; of a function, its name in SQL
    answers: type[Answers]  # what subscribers keep, in an engine as in a client
    channel: str  # what the server computes: "module:class", since nobody else needs it, nor may import it
    takes: tuple[str, ...] = ()  # types of the column that the SQL function of this name takes; none: no function
    star: bool = False  # whether `*` may stand for the column

    def load_channel(self) -> Any:
        """The channel's class."""
        return pkgutil.resolve_name(self.channel)


_CHANNELS = "hullcast.broker.reformulate"

#: By name. SELECT is rows of one table, JOIN rows of two, RESULT what a conditional subscription delivers, TUPLES what
#: comes in a stream.
KINDS = {
    kind.name: kind
    for kind in (
        SubscriptionKind("MIN", ExtremumAnswers, f"{_CHANNELS}.extremum:ExtremumChannel", ORDERED),
        SubscriptionKind("MAX", ExtremumAnswers, f"{_CHANNELS}.extremum:ExtremumChannel", ORDERED),
        SubscriptionKind("DISTINCT", DistinctAnswers, f"{_CHANNELS}.distinct:DistinctChannel"),
        SubscriptionKind("COUNT", AggregateAnswers, f"{_CHANNELS}.aggregate:AggregateChannel", ANY_TYPE, star=True),
        SubscriptionKind("SUM", AggregateAnswers, f"{_CHANNELS}.aggregate:AggregateChannel", NUMBERS),
        SubscriptionKind("AVG", AggregateAnswers, f"{_CHANNELS}.aggregate:AggregateChannel", NUMBERS),
        SubscriptionKind("SELECT", RowAnswers, f"{_CHANNELS}.selection:SelectionChannel"),
        SubscriptionKind("JOIN", RowAnswers, f"{_CHANNELS}.join:JoinChannel"),
        SubscriptionKind("RESULT", ResultAnswers, f"{_CHANNELS}.result:ResultChannel"),
        SubscriptionKind("TUPLES", TupleAnswers, f"{_CHANNELS}.tuples:TuplesChannel"),
    )
}
