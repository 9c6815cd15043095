"""Views on the board: propagated in parts, exact or not, and read only when they are."""

from __future__ import annotations

from collections import deque

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hullcast.broker.warehouse.deciding.board import MOST_BEHIND, Answer, Board, Feed, Load, Question, ViewFeed
from hullcast.broker.warehouse.deciding.policies import POLICIES

TABLES = ("r", "s", "t")
VIEW = "v"


class ViewOnBoard(RuleBasedStateMachine):
    """Updates of three tables, a view of two of them, loads in parts and whole, questions about view and table.

    The model is the file: the position of each table in it, and the sequence numbers of all updates.
    """

    def __init__(self) -> None:
        super().__init__()
        self.board = Board(2)
        self.view = ViewFeed(VIEW)
        self.view.behind = {"r": type(self.view.pending)(), "s": type(self.view.pending)()}
        self.board.add(self.view)
        self.board.add(Feed("t"))
        self.seq, self.now, self.number = 0, 0.0, 0
        self.updates: dict[str, list[int]] = {table: [] for table in TABLES}
        self.at = {"r": 0, "s": 0}  # how far the file has each
        self.table_at = 0
        self.running: list[Load] = []

    def exact_at(self) -> int | None:
        """The sequence number of which the file is the view, by its definition; None if there is none."""
        top = max(self.at.values())
        late = [seq for table, at in self.at.items() for seq in self.updates[table] if at < seq <= top]
        return None if late else top

    @rule(changes=st.lists(st.sampled_from(TABLES), min_size=1, max_size=4))
    def release(self, changes: list[str]) -> None:
        """One message may tell of several tables, whose updates alternate."""
        self.now += 1
        told: dict[str, list[int]] = {}
        for table in changes:
            self.seq += 1
            self.updates[table].append(self.seq)
            told.setdefault(table, []).append(self.seq)
        for table, seqs in told.items():
            if table == "t":
                self.board.release("t", seqs[0], seqs[-1], len(seqs), self.now)
            else:
                self.board.release_for(self.view, table, seqs[0], seqs[-1], len(seqs), self.now)
        self.board.advance(self.seq)

    @rule(consistent=st.booleans(), alone=st.booleans())
    def ask(self, consistent: bool, alone: bool) -> None:
        self.number += 1
        tables = (VIEW,) if alone else (VIEW, "t")
        question = Question(self.number, "me", tables, self.now)
        question.consistent = consistent
        self.board.ask(question)

    @precondition(lambda self: self.view.loading is None and self.board.reach(self.view) > self.view.loaded)
    @rule(only=st.sampled_from((("r",), ("s",), ("r", "s"), ())))
    def begin_upkeep(self, only: tuple[str, ...]) -> None:
        self._begin(Load(VIEW, self.board.reach(self.view), only=only))

    @rule()
    def begin_what_is_missing(self) -> None:
        for question in list(self.board.waiting):
            for load in (*self.board.missing(question, apart=True), *self.board.missing(question)):
                if self.board.feeds[load.table].loading is None:
                    self._begin(load)

    @rule(policy=st.sampled_from(sorted(POLICIES)))
    def ask_policy(self, policy: str) -> None:
        """No policy loads a view."""
        task = POLICIES[policy]().next(self.board, self.now)
        if isinstance(task, Load):
            assert task.table == "t"
            self._begin(task)

    def _begin(self, load: Load) -> None:
        self.board.begin(load, self.now)
        self.running.append(load)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), done=st.booleans())
    def end(self, data: st.DataObject, done: bool) -> None:
        load = data.draw(st.sampled_from(self.running))
        self.running.remove(load)
        if done and load.table == "t":
            self.table_at = max(self.table_at, load.through)
        elif done:
            for table in load.only or tuple(self.at):
                self.at[table] = max(self.at[table], load.through)
        self.board.end(load, self.now, done=done)

    @rule()
    def answer_what_is_ready(self) -> None:
        for question in list(self.board.waiting):
            if self.view.loading is None and self.board.feeds["t"].loading is None and self.board.ready(question):
                exact = self.exact_at()
                assert exact is not None
                assert not any(seq <= question.seq for seq in self._not_in_view())
                if "t" in question.tables:
                    first = min((seq for seq in self.updates["t"] if seq > self.table_at), default=self.seq + 1)
                    following = min((seq for seq in self._not_in_view()), default=self.seq + 1)
                    last_t = max((seq for seq in self.updates["t"] if seq <= self.table_at), default=0)
                    last_v = max(
                        (seq for table, at in self.at.items() for seq in self.updates[table] if seq <= at), default=0
                    )
                    assert max(last_t, last_v) < min(first, following), "they are of one moment"
                answer = Answer(question)
                self.board.begin(answer, self.now)
                self.board.pinned(question)
                self.board.end(answer, self.now)

    def _not_in_view(self) -> list[int]:
        return [seq for table, at in self.at.items() for seq in self.updates[table] if seq > at]

    @invariant()
    def the_board_knows_what_the_file_is(self) -> None:
        self.view.check()
        assert self.view.is_exact == (self.exact_at() is not None)
        pending = {table: sum(seq > at for seq in self.updates[table]) for table, at in self.at.items()}
        assert self.view.behind_rows() == pending

    def teardown(self) -> None:
        """Everything that waits can be answered in the end."""
        for load in list(self.running):
            self.board.end(load, self.now, done=False)
        self.running.clear()
        for _ in range(4 * len(self.board.waiting) + 4):
            self.begin_what_is_missing()
            for load in list(self.running):
                self.running.remove(load)
                for table in (load.only or tuple(self.at)) if load.table == VIEW else ():
                    self.at[table] = max(self.at[table], load.through)
                if load.table == "t":
                    self.table_at = max(self.table_at, load.through)
                self.board.end(load, self.now)
            self.answer_what_is_ready()
        assert not self.board.waiting


TestViewOnBoard = ViewOnBoard.TestCase


def test_a_view_that_nobody_asks_for_keeps_few_releases_and_counts_all_of_them() -> None:
    board, view = Board(2), ViewFeed(VIEW)
    view.behind = {"r": deque(), "s": deque()}
    board.add(view)
    for seq in range(1, 10_001):
        board.release_for(view, "rs"[seq % 2], seq, seq, 1, float(seq))
        if seq % 1000 == 0:
            view.check()
    assert view.behind_rows() == {"r": 5000, "s": 5000}
    assert len(view.pending) == 2 * MOST_BEHIND
    load = Load(VIEW, 10_000)
    board.begin(load, 0.0)
    for seq in range(10_001, 10_005):  # not added to what is being propagated
        board.release_for(view, "rs"[seq % 2], seq, seq, 1, float(seq))
    view.check()
    board.end(load, 1.0)
    view.check()
    assert view.behind_rows() == {"r": 2, "s": 2}
    assert board.valid_until(view) == 10_000
