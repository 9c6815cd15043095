"""All views of a warehouse: looked at when something happened to them, and not otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.broker.views.upkeep import Propagation, Spent, Upkeep
from hullcast.broker.warehouse.deciding.board import Board, Load, Question
from hullcast.broker.warehouse.deciding.policies.policy import Fifo
from hullcast.broker.warehouse.deciding.turns import Turns
from hullcast.broker.warehouse.process.feeds import MOST_WAIT_S, FeedWorld, LiveView, ViewTurns
from tests.broker.warehouse.files.test_table_file import life_of
from tests.support.base_tables import view_life

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class CountingUpkeep(Upkeep):
    """Notes how often it is asked."""

    asked = 0

    def due(self, pending: Mapping[str, int], now: float) -> tuple[str, ...]:
        self.asked += 1
        return super().due(pending, now)


class Views:
    """Views v0, v1, .. of these tables, where a change takes a millisecond."""

    def __init__(self, path: Path, tables: list[tuple[str, ...]], response_time_s: float) -> None:
        self.board, self.upkeeps = Board(2), list[CountingUpkeep]()
        self.turns = ViewTurns(self.board)
        self.next = self.turns.next
        world = FeedWorld(path, self.board, Turns(self.board, Fifo()), self.turns)
        self.views: list[LiveView] = []
        for number, its in enumerate(tables):
            lives = tuple(life_of(table.upper(), "K INTEGER PRIMARY KEY") for table in its)
            joined = " JOIN ".join(f"{table} USING (K)" if at else table for at, table in enumerate(its))
            life = view_life(f"CREATE VIEW V{number} AS SELECT K FROM {joined} WITH (response_time = '1s')", *lives)
            view = LiveView(world, f"v{number}", life)
            view.put()
            measured = {table: [Spent(1, 1e-3), Spent(100, 1e-1)] for table in its}
            self.upkeeps.append(CountingUpkeep(its, response_time_s, measured))
            view.upkeep = self.upkeeps[-1]
            self.views.append(view)

    def released(self, table: str, first: int, through: int, rows: int, at: float) -> None:
        for view in self.views:
            if table in view.sources:
                view.released(table, first, through, rows, at)


def test_only_views_that_something_happened_to_are_looked_at(tmp_path: Path) -> None:
    views = Views(tmp_path, [("r",), ("s",)], 100.0)
    assert views.next(0.5) is None
    of_r, of_s = views.upkeeps
    views.released("r", 1, 3, 3, 1.0)
    for _ in range(5):
        assert views.next(1.0) is None
    assert (of_r.asked, of_s.asked) == (1, 0)
    views.released("r", 4, 4, 1, 2.0)
    assert views.next(2.0) is None
    assert (of_r.asked, of_s.asked) == (2, 0)


def test_what_is_due_stays_due_until_it_is_done(tmp_path: Path) -> None:
    views = Views(tmp_path, [("r",)], 0.1)
    board, (upkeep,) = views.board, views.upkeeps
    views.released("r", 1, 200, 200, 1.0)
    load = views.next(1.0)
    assert isinstance(load, Load)
    board.begin(load, 1.0)
    assert views.next(1.0) is None, "it is being done"
    board.end(load, 1.0, done=False)
    load = views.next(1.0)
    assert isinstance(load, Load), "it failed, and is due as before"
    board.begin(load, 1.0)
    board.end(load, 1.1)
    views.views[0].loaded(load, Propagation({"r": Spent(200, 0.1)}), 0.1)
    assert views.next(1.1) is None
    asked = upkeep.asked
    assert views.next(1.2) is None
    assert upkeep.asked == asked


def test_what_is_due_waits_while_somebody_is_about_to_read_and_is_found_again(tmp_path: Path) -> None:
    views = Views(tmp_path, [("r",)], 0.1)
    board = views.board
    question = Question(1, "me", ("v0",), 1.0)
    board.ask(question)
    views.released("r", 1, 200, 200, 1.0)
    assert views.next(1.0) is None, "the question needs nothing of it, and reads before it changes"
    board.withdraw(question)
    views.views[0].over(question, answered=False)
    assert isinstance(views.next(1.0), Load)


def test_changes_that_nobody_asks_for_do_not_wait_for_ever(tmp_path: Path) -> None:
    views = Views(tmp_path, [("r", "s"), ("s",)], 100.0)
    board = views.board
    views.released("r", 1, 3, 3, 1.0)
    views.turns.look_at_age(1.0 + MOST_WAIT_S)
    assert views.next(1.0 + MOST_WAIT_S) is None
    views.turns.look_at_age(1.1 + MOST_WAIT_S)
    load = views.next(1.1 + MOST_WAIT_S)
    assert isinstance(load, Load)
    assert (load.table, load.only) == ("v0", ("r",))
    board.begin(load, 20.0)
    board.end(load, 20.0)
    views.views[0].loaded(load, Propagation({"r": Spent(3, 0.003)}), 0.1)
    views.turns.look_at_age(30.0)
    assert views.next(30.0) is None


def test_a_worker_is_told_where_the_changes_of_each_table_begin(tmp_path: Path) -> None:
    views = Views(tmp_path, [("r", "s", "t")], 100.0)
    board = views.board
    views.released("r", 4, 6, 3, 1.0)
    views.released("s", 2, 2, 1, 1.0)
    board.advance(9)
    message = views.views[0].message(Load("v0", 9), 2.0)
    assert message.through == {"r": 9, "s": 9, "t": 9}
    assert message.since == {"r": 3, "s": 1, "t": 9}
