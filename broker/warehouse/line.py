"""The line: questions that wait behind those among which a policy chooses, with the owners taking turns. Pure.

A policy looks at all that waits on the board whenever a place is free, so few may wait there; very many may wait here.
Who comes forward next: of the owners that have fewer than `AHEAD_OF_ONE` on the board the one that was served least of
late, with its most urgent question. That takes O(log n).
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING

from hullcast.broker.scheduling.ranking import Ranking

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hullcast.broker.scheduling.policy import FairShare
    from hullcast.broker.warehouse.board import Question

#: Questions that wait on the board, of all and of one owner.
AHEAD, AHEAD_OF_ONE = 64, 32
#: A question without a deadline comes forward as if it had one so many seconds after its arrival: so none starves.
PATIENCE_S = 10.0


class QuestionLine:
    """Questions by owner, and owners by what they were given.

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
