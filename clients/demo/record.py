"""What the demo's processes write down: acknowledged calls, and events that answers are rebuilt from."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hullcast.clients.demo.stocks import Removal, Upsert
from hullcast.network.answers.events import AnyEvent, Change, Resync, Snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from hullcast.clients.demo.stocks import MarketAction


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One acknowledged call. `moment`: a micro-batch ends here, at which answers can be judged."""

    first: int
    last: int
    action: MarketAction
    moment: bool

    def line(self) -> str:
        """As it is written."""
        action = self.action
        what = {"rows": action.rows} if isinstance(action, Upsert) else {"keys": action.keys}
        facts = {"first": self.first, "last": self.last, "moment": self.moment, "table": action.table, **what}
        return json.dumps(facts) + "\n"

    @classmethod
    def read(cls, line: str) -> Acknowledged:
        """From such a line."""
        facts = json.loads(line)
        table = facts["table"]
        action = Upsert(table, tuple(facts["rows"])) if "rows" in facts else Removal(table, tuple(facts["keys"]))
        return cls(facts["first"], facts["last"], action, facts["moment"])


class RecordReader:
    """Follows a record while it is written; gives whole lines only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def new(self) -> list[Acknowledged]:
        """What was added since last asked."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return []
        self._at += len(whole) + 1
        return [Acknowledged.read(line) for line in whole.decode().split("\n")]


def written(answer: Any) -> Any:
    """An answer as JSON can hold it: a number or None, or a list of the values of a set, or of rows as lists."""
    if isinstance(answer, set):
        return [[value] for value in answer]
    return [list(row) for row in answer] if isinstance(answer, list) else answer


def written_event(event: AnyEvent) -> dict[str, Any]:
    """An event as JSON can hold it: of rows and sets only what came and went, never the whole answer."""
    match event:
        case Snapshot(seq, answer):
            return {"seq": seq, "answer": written(answer), "how": "snapshot"}
        case Resync(seq, answer, _, reason):
            return {"seq": seq, "answer": written(answer), "how": reason}
        case Change(seq) if event.entered or event.left or event.changed:
            before, after = (tuple(pair[side] for pair in event.changed) for side in (0, 1))
            return {"seq": seq, "left": _rows(event.left + before), "entered": _rows(event.entered + after)}
        case Change(seq):
            return {"seq": seq, "answer": event.answer}
    raise AssertionError(f"the demo asks for no {type(event).__name__}")


def _rows(items: tuple[Any, ...]) -> list[list[Any]]:
    return [list(item) if isinstance(item, tuple) else [item] for item in items]


def canonical(answer: Any) -> Any:
    """Equal for equal answers, whatever the order of rows."""
    return sorted((tuple(row) for row in answer), key=repr) if isinstance(answer, list) else answer


class Rebuilt:
    """The answer as known from these events alone; `at` goes forward through them.

    `faults` says what cannot be: an event not later than the one before, or a row that leaves though it was not there.
    `blind` holds the stretches before a Resync in which events are missing, as that Resync says.
    """

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._events = events
        self._next = 0
        self._seq = -1
        self._value: Any = None
        self._rows: Counter[tuple[Any, ...]] | None = None
        self.faults: list[str] = []
        self.blind: list[tuple[int, int]] = []

    def at(self, seq: int) -> Any:
        """The answer (canonical) after the update `seq`."""
        while self._next < len(self._events) and self._events[self._next]["seq"] <= seq:
            self._hear(self._events[self._next])
            self._next += 1
        return self._value if self._rows is None else sorted(self._rows.elements(), key=repr)

    def sees(self, seq: int) -> bool:
        """Whether the answer at `seq` can be known: after the beginning, and not in a gap that a Resync tells of."""
        return seq >= self._events[0]["seq"] and not any(start < seq < stop for start, stop in self.blind)

    def _hear(self, event: dict[str, Any]) -> None:
        seq = event["seq"]
        if seq <= self._seq and event.get("how") is None:
            self.faults.append(f"an event of update {seq} after one of {self._seq}")
        if "answer" not in event:
            self._apply(event)
        elif isinstance(event["answer"], list):
            self._rows = Counter(tuple(row) for row in event["answer"])
        else:
            self._value = event["answer"]
        if event.get("how") in ("gap", "overflow"):
            self.blind.append((self._seq, seq))
        self._seq = seq

    def _apply(self, event: dict[str, Any]) -> None:
        if self._rows is None:
            self.faults.append(f"rows come and go at {event['seq']} where there was no collection")
            return
        self._rows.subtract(tuple(row) for row in event["left"])
        self._rows.update(tuple(row) for row in event["entered"])
        if min(self._rows.values(), default=0) < 0:
            self.faults.append(f"a row leaves at {event['seq']} that was not there")
        self._rows = +self._rows
