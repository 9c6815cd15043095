"""What a policy is: it says what a free place of the warehouse does next; and those of one rule. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.warehouse.deciding.board import Answer

if TYPE_CHECKING:
    from hullcast.broker.warehouse.deciding.board import Board, Feed, Load, Question, Release, Task


class WarehousePolicy:
    """Reads the board, never changes it. What it remembers itself may be lost at any moment: it can be exchanged for
    another one, which finds all that waits on the board."""

    name: ClassVar[str]
    #: What it is for, in a line.
    about: ClassVar[str]

    def next(self, board: Board, now: float) -> Task | None:
        """What a free place does next; None: nothing, until something happens. It is begun at once."""
        raise NotImplementedError

    def released(self, feed: Feed, release: Release, board: Board, now: float) -> None:
        """Updates of a table wait."""

    def asked(self, question: Question, board: Board, now: float) -> None:
        """A question waits."""

    def withdrawn(self, question: Question, board: Board, now: float) -> None:
        """A question needs no answer any more: its client left, or its deadline passed."""

    def ended(self, task: Task, took_s: float, board: Board, now: float) -> None:
        """A load or an answer is over."""

    def counters(self) -> dict[str, float]:
        """What it did, for people."""
        return {}


def in_turn(questions: list[Question]) -> list[Question]:
    return sorted(questions, key=lambda question: -question.priority)


def toward(question: Question, board: Board) -> Task | None:
    """What brings a question's answer nearer: the answer itself, or a load that must come before; None: such loads
    are under way."""
    if board.ready(question):
        return Answer(question)
    missing = board.missing(question)
    return missing[0] if missing else None


def oldest_load(board: Board) -> Load | None:
    """Load the table whose oldest pending update was released first; None if there is nothing to load."""
    feed = min(board.loadable(), key=lambda feed: feed.pending[0].at, default=None)
    return None if feed is None else board.load(feed)


def first_toward(questions: list[Question], board: Board) -> Task | None:
    """What brings the first of these questions nearer for which something can be done."""
    for question in questions:
        if (task := toward(question, board)) is not None:
            return task
    return None


class Fifo(WarehousePolicy):
    """What came first is done first. Priorities hold among questions."""

    name: ClassVar[str] = "fifo"
    about: ClassVar[str] = "queries and loads in the order in which they came"

    def next(self, board: Board, now: float) -> Task | None:
        oldest = min((feed.pending[0].at for feed in board.loadable()), default=None)
        earlier = [question for question in board.waiting if oldest is None or question.arrived < oldest]
        return (
            first_toward(in_turn(earlier), board) or oldest_load(board) or first_toward(in_turn(board.waiting), board)
        )


class QueriesFirst(WarehousePolicy):
    """The shortest waits; tables get older the more is asked."""

    name: ClassVar[str] = "queries-first"
    about: ClassVar[str] = "queries first; loads tables when no query waits"

    def next(self, board: Board, now: float) -> Task | None:
        return first_toward(in_turn(board.waiting), board) or (None if board.waiting else oldest_load(board))


class UpdatesFirst(WarehousePolicy):
    """The freshest answers; they come late, or never, while updates come faster than they can be loaded."""

    name: ClassVar[str] = "updates-first"
    about: ClassVar[str] = "loads first; answers queries when all tables are loaded"

    def next(self, board: Board, now: float) -> Task | None:
        return oldest_load(board) or first_toward(in_turn(board.waiting), board)
