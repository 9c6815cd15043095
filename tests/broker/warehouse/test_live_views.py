"""All views of a warehouse: looked at when something happened to them, and not otherwise."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from hullcast.broker.views.upkeep import Propagation, Spent, Upkeep
from hullcast.broker.warehouse.board import Board, Load, Question, ViewFeed
from hullcast.broker.warehouse.live_views import MOST_WAIT_S, LiveView, LiveViews

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_LIFE: Any = None


class CountingUpkeep(Upkeep):
    """Notes how often it is asked."""

    asked = 0

    def due(self, pending: Mapping[str, int], now: float) -> tuple[str, ...]:
        self.asked += 1
        return super().due(pending, now)


def views_of(tables: list[tuple[str, ...]], response_time_s: float) -> tuple[Board, LiveViews, list[CountingUpkeep]]:
    """Views v0, v1, .. of these tables, where a change takes a millisecond."""
    board, upkeeps = Board(2), []
    views = LiveViews(board, lambda life: None, lambda life, after, through: None)
    for number, its in enumerate(tables):
        feed = ViewFeed(f"v{number}")
        feed.behind = {table: deque() for table in its}
        measured = {table: [Spent(1, 1e-3), Spent(100, 1e-1)] for table in its}
        upkeeps.append(CountingUpkeep(its, response_time_s, measured))
        board.add(feed)
        views.lives[feed.name] = NO_LIFE
        view = views._views[feed.name] = LiveView(NO_LIFE, feed, upkeeps[-1])
        for table in its:
            views._readers.setdefault(table, []).append(view)
    return board, views, upkeeps


def test_only_views_that_something_happened_to_are_looked_at() -> None:
    _, views, (of_r, of_s) = views_of([("r",), ("s",)], 100.0)
    views.released("r", 1, 3, 3, 1.0)
    for _ in range(5):
        assert views.next(1.0) is None
    assert (of_r.asked, of_s.asked) == (1, 0)
    views.released("r", 4, 4, 1, 2.0)
    assert views.next(2.0) is None
    assert (of_r.asked, of_s.asked) == (2, 0)


def test_what_is_due_stays_due_until_it_is_done() -> None:
    board, views, (upkeep,) = views_of([("r",)], 0.1)
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
    views.loaded(load, Propagation({"r": Spent(200, 0.1)}), 1.1)
    assert views.next(1.1) is None
    asked = upkeep.asked
    assert views.next(1.2) is None
    assert upkeep.asked == asked


def test_what_is_due_waits_while_somebody_is_about_to_read_and_is_found_again() -> None:
    board, views, _ = views_of([("r",)], 0.1)
    question = Question(1, "me", ("v0",), 1.0)
    board.ask(question)
    views.released("r", 1, 200, 200, 1.0)
    assert views.next(1.0) is None, "the question needs nothing of it, and reads before it changes"
    board.withdraw(question)
    views.over(question, answered=False)
    assert isinstance(views.next(1.0), Load)


def test_changes_that_nobody_asks_for_do_not_wait_for_ever() -> None:
    board, views, _ = views_of([("r", "s"), ("s",)], 100.0)
    views.released("r", 1, 3, 3, 1.0)
    views.look_at_age(1.0 + MOST_WAIT_S)
    assert views.next(1.0 + MOST_WAIT_S) is None
    views.look_at_age(1.1 + MOST_WAIT_S)
    load = views.next(1.1 + MOST_WAIT_S)
    assert isinstance(load, Load)
    assert (load.table, load.only) == ("v0", ("r",))
    board.begin(load, 20.0)
    board.end(load, 20.0)
    views.loaded(load, Propagation({"r": Spent(3, 0.003)}), 20.0)
    views.look_at_age(30.0)
    assert views.next(30.0) is None


def test_a_worker_is_told_where_the_changes_of_each_table_begin() -> None:
    board, views, _ = views_of([("r", "s", "t")], 100.0)
    views.released("r", 4, 6, 3, 1.0)
    views.released("s", 2, 2, 1, 1.0)
    board.advance(9)
    message = views.message(Load("v0", 9), 2.0)
    assert message.through == {"r": 9, "s": 9, "t": 9}
    assert message.since == {"r": 3, "s": 1, "t": 9}
