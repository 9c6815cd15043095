"""What the demo does: an engine, a few subscriptions one looks at, many in the background, and a trace to play."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from broker.engine import Engine
from network.answers.events import Resync
from network.wire.errors import UsageError
from sim.seeds import generator
from sim.stocks import CREATES, Upsert, size_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from broker.subscription import Subscription
    from sim.stocks import Action, Trace

    Floats = npt.NDArray[np.float64]

#: The subscriptions one looks at: what kind, and the SQL.
WATCHED: tuple[tuple[str, str], ...] = (
    ("MIN", "SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN 20 AND 60"),
    ("MIN by sector", "SELECT MIN(PER) FROM STOCK WHERE SECTOR = 'TECH'"),
    ("MAX", "SELECT MAX(PER) FROM STOCK WHERE RECO < 1.5"),
    ("DISTINCT", "SELECT DISTINCT SECTOR FROM STOCK WHERE PER > 60"),
    ("COUNT", "SELECT COUNT(*) FROM STOCK WHERE PER BETWEEN 10 AND 15"),
    ("SUM", "SELECT SUM(PER) FROM STOCK WHERE RISK > 90"),
    ("AVG", "SELECT AVG(PER) FROM STOCK WHERE RECO BETWEEN 2 AND 3"),
    ("rows", "SELECT SYMBOL, PER FROM STOCK WHERE RISK < 40 AND PER < 6"),
    ("join", "SELECT SYMBOL, LEVEL FROM STOCK JOIN SECTOR_INDEX USING (SECTOR) WHERE PER > 60 AND LEVEL > 1000"),
    ("band join", "SELECT NAME, SYMBOL FROM STOCK JOIN ANALYST ON TARGET - PER BETWEEN 0 AND 0.05"),
)

#: The many in the background: ranges of RISK, as a million users might draw them.
BACKGROUND = "SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?"


@dataclass(slots=True)
class Watched:
    """A subscription one looks at, and what it has heard."""

    kind: str
    sql: str
    subscription: Subscription
    answer: Any
    before: Any = None
    changes: int = 0

    def look(self) -> None:
        """Take the waiting events and the answer."""
        for event in self.subscription.drain():
            self.changes += event.lost if isinstance(event, Resync) else 1
        answer = self.subscription.answer
        if answer != self.answer:
            self.before, self.answer = self.answer, answer


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the updates became, over the range-MIN channel that the background subscribes to."""

    updates: int  # of the table it reads
    messages: int  # that describe them: S-CN, what the server sends
    told: int  # subscriptions concerned: S-UN, what a server would send that tells each one by itself
    subscriptions: int

    @property
    def described(self) -> float:
        """Messages per update, S-CN."""
        return self.messages / max(1, self.updates)

    @property
    def unicast(self) -> float:
        """Messages per update if each subscription were told by itself."""
        return self.told / max(1, self.updates)

    @property
    def ratio(self) -> float:
        """How many times more unicast would send."""
        return self.told / max(1, self.messages)


class Scenario:
    """An engine with its subscriptions; `play` gives it a batch. Counts only the time spent inside the engine."""

    def __init__(self, trace: Trace, background: int, root: int) -> None:
        if background < 0:
            raise UsageError(f"the number of subscriptions must not be negative, got {background}")
        self.engine = Engine()
        self.updates = 0
        self.busy_s = 0.0
        for sql in CREATES:
            self.engine.execute(sql)
        self._apply(trace.start)
        self.low, self.high = _ranges(background, root)
        self._many = self.engine.subscribe_many(BACKGROUND, self.low, self.high) if background else None
        self._channel = self.engine.open_channel(BACKGROUND)
        self.watched = [self._watch(kind, sql) for kind, sql in WATCHED]

    def play(self, batch: Iterable[Action]) -> None:
        """Give the engine one micro-batch of the trace."""
        started = time.perf_counter()
        self.updates += self._apply(batch)
        self.busy_s += time.perf_counter() - started

    def look(self) -> None:
        """Bring what is shown up to date."""
        for watched in self.watched:
            watched.look()

    def traffic(self) -> Traffic:
        """What went out so far."""
        seen = self.engine.statistics()[self._channel]
        return Traffic(seen.updates, seen.messages, seen.told, seen.subscriptions)

    @property
    def background_answers(self) -> Floats:
        """The answers of the background, NaN for NULL."""
        return np.empty(0) if self._many is None else self._many.answers

    def _watch(self, kind: str, sql: str) -> Watched:
        subscription = self.engine.subscribe(sql)
        return Watched(kind, sql, subscription, subscription.answer)

    def _apply(self, actions: Iterable[Action]) -> int:
        updates = 0
        for action in actions:
            if isinstance(action, Upsert):
                self.engine.upsert(action.table, list(action.rows))
            else:
                self.engine.delete(action.table, list(action.keys))
            updates += size_of(action)
        return updates


def _ranges(count: int, root: int) -> tuple[Floats, Floats]:
    """Ranges of RISK (0 to 100) shaped like those of the thesis's Table 5.1."""
    random = generator(root, "demo", "background", count)
    middle, length = random.normal(50, 15, count), np.abs(random.normal(10, 10, count))
    return np.round(middle - length / 2, 1), np.round(middle + length / 2, 1)
