"""Turns: what a free worker does next, as the policy chooses within bounds for every policy. Pure.

Of two places or more, queries and loads each leave one to the other. Of the places of queries one owner leaves one to
others. The last free place of queries, and the last of loads, goes to the owner that was served least of late. Tables
are not held for a query for long. Behind those that the policy sees very many may wait, in a line.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING

from hullcast.broker.scheduling.policy import FairShare, Item
from hullcast.broker.scheduling.ranking import Ranking
from hullcast.broker.warehouse.deciding.board import Answer, Load
from hullcast.broker.warehouse.deciding.policies.policy import Fifo, in_turn
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hullcast.broker.warehouse.deciding.board import Board, Question, Task
    from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy

log = logger(__name__)

#: Seconds for which a query that waits may keep its tables as they are if others need later rows of them, or for as
#: long as it had waited before.
HOLD_S = 0.5
#: Questions that wait on the board, of all and of one owner.
AHEAD, AHEAD_OF_ONE = 64, 32
#: A question without a deadline comes forward as if it had one so many seconds after its arrival: so none starves.
PATIENCE_S = 10.0


class QuestionLine:
    """Questions that wait behind those among which a policy chooses: by owner, and owners by what they were given.

    A policy looks at all that waits on the board whenever a place is free, so few may wait there; very many may wait
    here. Who comes forward next: of the owners that have fewer than `AHEAD_OF_ONE` on the board the one that was served
    least of late, with its most urgent question. That takes O(log n).

    N1  An owner has its turn if it has questions here, ranked as the shares say when one came, or it was served.
    """

    def __init__(self, shares: FairShare) -> None:
        self._shares = shares
        self._owners: dict[str, Ranking[Question]] = {}
        self._turns: Ranking[str] = Ranking()

    def __len__(self) -> int:
        return sum(map(len, self._owners.values()))

    def add(self, question: Question) -> None:
        """A question waits here from now on."""
        until = question.deadline if question.deadline < inf else question.arrived + PATIENCE_S
        self._owners.setdefault(question.owner, Ranking()).set(question, (-question.priority, until))
        self.rank(question.owner)

    def remove(self, question: Question) -> bool:
        """A question waits here no longer; whether it did."""
        mine = self._owners.get(question.owner)
        if mine is None or question not in mine:
            return False
        mine.drop(question)
        self.rank(question.owner)
        return True

    def rank(self, owner: str) -> None:
        """What an owner has here, or was given, is something else now."""
        mine = self._owners.get(owner)
        first = None if mine is None else mine.first()
        if first is None:
            self._owners.pop(owner, None)
            self._turns.drop(owner)
        else:
            self._turns.set(owner, (self._shares.rank(owner), first.arrived))

    def forward(self, ahead: Iterable[Question]) -> list[Question]:
        """Those that come forward, when these wait on the board; they are here no longer."""
        counts, found, full = Counter(question.owner for question in ahead), [], []
        while counts.total() < AHEAD and (owner := self._turns.first()) is not None:
            if counts[owner] >= AHEAD_OF_ONE:  # two owners at most
                self._turns.drop(owner)
                full.append(owner)
                continue
            question = self._owners[owner].first()
            assert question is not None, "N1"
            self.remove(question)
            found.append(question)
            counts[owner] += 1
        for owner in full:
            self.rank(owner)
        return found


class Turns:
    def __init__(self, board: Board, policy: WarehousePolicy) -> None:
        self._board = board
        self.policy = policy
        self._most_answers = self._most_loads = max(1, board.places - 1)
        self._most_of_one = max(1, self._most_answers - 1)
        self._shares = FairShare()
        self.line = QuestionLine(self._shares)

    # -- who waits -------------------------------------------------------------------------------------------

    def ask(self, question: Question) -> None:
        """A question waits from now on, at first in the line."""
        self._board.note(question)
        self.line.add(question)

    def come_forward(self, now: float) -> None:
        """Let questions come from the line to the board, as far as there is room."""
        for question in self.line.forward(self._board.waiting):
            self.put(question, now)

    def put(self, question: Question, now: float) -> None:
        """A question waits on the board, for the first time or again."""
        self._board.wait(question)
        self.policy.asked(question, self._board, now)

    def withdraw(self, question: Question, now: float) -> None:
        """A question needs no answer any more, wherever it is."""
        if not self.line.remove(question):
            self._board.withdraw(question)
            self.policy.withdrawn(question, self._board, now)

    @property
    def waiting(self) -> int:
        return len(self.line) + len(self._board.waiting)

    def served(self, owner: str, seconds: float, now: float) -> None:
        self._shares.served(Item(owner, now), seconds, now)
        self.line.rank(owner)

    # -- whose turn it is ------------------------------------------------------------------------------------

    def next(self, running: Sequence[object], now: float) -> Task | None:
        """What a free place does next; None: nothing, until something happens."""
        owners = Counter(task.question.owner for task in running if isinstance(task, Answer))
        free = self._most_answers - owners.total()
        self._let_tables_go(owners, now)
        last = self._least_served(owners, now) if free == 1 else None

        def may(owner: str) -> bool:
            return free > 0 and owners[owner] < self._most_of_one and last in (None, owner)

        loads = sum(isinstance(one, Load) for one in running)
        task = self._chosen(may, now)
        if isinstance(task, Load) and loads < self._most_loads:
            if loads == self._most_loads - 1:
                task = self._load_for_least_served(now) or task
            if task.question is not None and owners[task.question.owner] >= self._most_of_one:
                task = Load(task.table, task.through)  # it will not run soon, and need not hold its tables
            return task
        if isinstance(task, Answer) and may(task.question.owner):
            return task
        others = [one for one in in_turn(self._board.waiting) if may(one.owner)]
        ready = next((one for one in others if self._board.ready(one)), None)
        if ready is not None:
            return Answer(ready)
        if others:  # or its tables would never be of one moment, under a policy that always loads
            self._board.aim(others[0], now)
        return None

    def _least_served(self, owners: Counter[str], now: float) -> str | None:
        """Who gets the last free place of queries, if several have something for it. So with one place for all, nobody
        waits behind everything that somebody else has asked before."""
        waiting = {question.owner for question in self._board.waiting if self._board.ready(question)}
        may = [owner for owner in waiting if owners[owner] < self._most_of_one]
        return min(may, key=lambda owner: self._shares.given(owner, now)) if len(may) > 1 else None

    def _load_for_least_served(self, now: float) -> Load | None:
        """What the last free place of loads does if several owners wait for loads; else the policy decides."""
        wanted = {question.owner for question in self._board.waiting if self._board.missing(question)}
        if len(wanted) < 2:
            return None
        owner = min(wanted, key=lambda owner: self._shares.given(owner, now))
        asked = in_turn([question for question in self._board.waiting if question.owner == owner])
        return next(loads[0] for question in asked if (loads := self._board.missing(question)))

    def _let_tables_go(self, owners: Counter[str], now: float) -> None:
        """Let loads go on where a query keeps its tables as they are but will not read them soon: because its owner has
        all places that it may have, or because another of its tables takes long and somebody needs later rows."""
        for question in self._board.waiting:
            if question.target is not None and (
                owners[question.owner] >= self._most_of_one
                or (
                    now - question.held_at > max(HOLD_S, question.held_at - question.arrived)
                    and self._is_in_the_way(question)
                )
            ):
                self._board.let_go(question)

    def _is_in_the_way(self, holding: Question) -> bool:
        assert holding.target is not None
        return any(
            other.owner != holding.owner
            and other.seq > holding.target
            and not set(other.tables).isdisjoint(holding.tables)
            and not self._board.ready(other)
            for other in self._board.waiting
        )

    def _chosen(self, may: Callable[[str], bool], now: float) -> Task | None:
        """What the policy chooses. It does not see questions that could be answered but may not: it would choose one
        of them again and again."""
        waiting = self._board.waiting
        self._board.waiting = [one for one in waiting if may(one.owner) or not self._board.ready(one)]
        try:
            return self.policy.next(self._board, now)
        except Exception:
            log.exception("policy failed", extra={"policy": self.policy.name})
            self.policy = Fifo()
            return self.policy.next(self._board, now)
        finally:
            self._board.waiting = waiting
