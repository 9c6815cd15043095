"""What a request leads to, as data: what the log must hold, what is answered, which messages go out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hullcast.broker.log.record import RecordKind
    from hullcast.network.wire.bodies import Body
    from hullcast.network.wire.columns import Columns
    from hullcast.network.wire.frames import Install


class LogEntry(NamedTuple):
    """What the log must hold before a change is acknowledged or sent."""

    kind: RecordKind
    payload: bytes
    first: int
    updates: int
    publisher: bytes
    publisher_number: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request leads to. Nothing of it may leave the server before the entry, if there is one, is synced.

    It owns the ranges of its counted installs: if they never leave, they are forgone (`Leaving.forgo`).
    """

    reply: Body | bytes  # bytes: a body that is encoded already
    entry: LogEntry | None = None
    installs: tuple[Install, ...] = ()
    through: int = 0
    messages: dict[int, Columns] = field(default_factory=dict)
    void: tuple[int, ...] = ()  # channels with more messages than can be sent: their subscribers must begin again
    ordered: bool = False  # the reply must not overtake messages of earlier requests
    on_disk: bool = False  # the reply tells of no row that is not on disk: it passes those that wait for room there
    at_once: bool = False  # the same, and it tells of none that others wait for: it leaves now
    then: tuple[Outcome, ...] = ()  # what followed from it by itself: it comes right behind, and nobody waits for it
