"""The warehouse process, with what the server and workers say given by hand: in an order that is seldom, but may be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from hullcast.broker.queries.reading import read_query
from hullcast.broker.views.upkeep import Propagation, Spent
from hullcast.broker.warehouse.deciding.board import Answer, Load
from hullcast.broker.warehouse.files.table_loader import Loaded
from hullcast.broker.warehouse.messages import (
    AnswerRows,
    Ask,
    Begin,
    BuildView,
    DiskLimits,
    Failure,
    Finished,
    FirstRows,
    Known,
    LoadTable,
    MakeView,
    Pinned,
    QueryLimits,
    QueryRefused,
    ReadPlan,
    Released,
    Select,
)
from hullcast.broker.warehouse.process.live import LiveWarehouse
from hullcast.broker.warehouse.process.workers import Hand
from hullcast.network.wire.bodies import QueryAnswer, decode, encode
from hullcast.network.wire.errors import UnknownTable, from_wire, to_wire
from tests.broker.warehouse.files.test_table_file import life_of
from tests.support.base_tables import view_life

#: The largest number that a process could have; none has it.
NO_PROCESS = (1 << 31) - 1


class SpokenWorker(Hand):
    """A worker that does nothing by itself."""

    def __init__(self) -> None:
        super().__init__(NO_PROCESS, cast("Any", self))
        self.tasks: list[object] = []

    def write(self, message: object) -> None:
        self.tasks.append(message)


def ask(warehouse: LiveWarehouse, number: int, table: str) -> None:
    """Somebody asks for a table or view, by a text that was read before."""
    sql = f"SELECT 1 FROM {table}"
    warehouse._questions._plans[sql] = read_query(sql, warehouse.loads.named_in(sql), attached=True)
    warehouse.on_message(Ask(number, "you", sql, (), (table,), time.monotonic(), b""))


def warehouse_of(path: Path, workers: list[SpokenWorker], say: Callable[[object], None]) -> LiveWarehouse:
    begin = Begin(str(path), 2, QueryLimits(10.0, 1 << 30, 100, 1 << 30), "fifo", DiskLimits(1 << 30))
    warehouse = LiveWarehouse(begin, say)
    warehouse._workers._hands += workers
    return warehouse


async def test_an_answer_is_worth_what_its_reader_saw_though_a_load_has_ended_since(tmp_path: Path) -> None:
    said: list[object] = []
    loader, reader = SpokenWorker(), SpokenWorker()
    warehouse = warehouse_of(tmp_path, [loader, reader], said.append)
    warehouse.on_message(Known("t", life_of("T", "K INTEGER PRIMARY KEY")))
    warehouse.on_message(Released(3, time.monotonic(), {"t": (1, 3, 3)}))
    warehouse.loads.feeds["t"].put()
    warehouse.board.feeds["t"].period_s = 60.0  # so it is loaded at once
    warehouse._fill()
    assert [type(task) for task in loader.tasks] == [LoadTable]
    warehouse._on_worker(loader, Finished(result=Loaded(3, 3, 3)))
    warehouse.on_message(Released(5, time.monotonic(), {"t": (4, 5, 2)}))
    warehouse._fill()
    assert [type(task) for task in loader.tasks] == [LoadTable] * 2
    warehouse.on_message(Ask(1, "me", "SELECT 1 FROM T", (), ("t",), time.monotonic(), b"", freshness=0.0))
    warehouse._fill()
    assert [type(task) for task in reader.tasks] == [Select]
    warehouse._on_worker(loader, Finished(result=Loaded(5, 5, 2)))  # it is heard first
    warehouse._on_worker(reader, Pinned((3,)))
    warehouse._on_worker(reader, FirstRows(encode(QueryAnswer((), ())), more=False))
    (rows,) = said
    assert isinstance(rows, AnswerRows)
    assert rows.body is not None
    answer = decode(rows.body)
    assert isinstance(answer, QueryAnswer)
    assert answer.worth is not None
    assert answer.worth["seq"] == 3
    assert answer.worth["tables"]["T"]["unapplied"] == 2
    assert answer.worth["tables"]["T"]["staleness_s"] > 0


async def test_a_view_that_is_being_made_holds_up_no_load_and_is_given_up_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hullcast.broker.warehouse.process.loads.BUILD_S", 0.01)
    said: list[object] = []
    builder, loader = SpokenWorker(), SpokenWorker()
    warehouse = warehouse_of(tmp_path, [builder, loader], said.append)
    table = life_of("T", "K INTEGER PRIMARY KEY")
    view = view_life("CREATE VIEW V AS SELECT K FROM T WITH (response_time = '1s')", table)
    monkeypatch.setattr(warehouse._workers, "one_more", lambda: None)
    monkeypatch.setattr(warehouse._workers, "replace", lambda hand: None)
    warehouse.on_message(Known("t", table))
    warehouse.on_message(Released(3, time.monotonic(), {"t": (1, 3, 3)}))
    warehouse.on_message(MakeView(1, "me", view))
    warehouse._fill()
    assert [type(task) for task in builder.tasks] == [BuildView]
    ask(warehouse, 2, "t")
    warehouse._fill()
    assert [type(task) for task in loader.tasks] == [LoadTable], "with two places one is for loads"
    await asyncio.sleep(0.05)
    (refused,) = said
    assert isinstance(refused, QueryRefused)
    assert "creating the view was stopped after 0.01 s" in str(from_wire(refused.code, refused.arguments))
    assert builder.doing is None


async def test_a_propagation_that_takes_long_makes_way_for_other_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on; and the others are served one after the other, by another worker. Of three that take long, the last
    keeps the place of views."""
    monkeypatch.setattr("hullcast.broker.warehouse.process.live.LONG_S", 0.01)
    warehouse = warehouse_of(tmp_path, [SpokenWorker() for _ in range(3)], lambda message: None)
    hired: list[SpokenWorker] = []

    def one_more() -> None:
        hired.append(SpokenWorker())
        warehouse._workers._hands.append(hired[-1])

    monkeypatch.setattr(warehouse._workers, "one_more", one_more)
    names = [f"v{number}" for number in range(5)]
    table = life_of("T", "K INTEGER PRIMARY KEY")
    warehouse.on_message(Known("t", table))
    for name in names:
        view = view_life(f"CREATE VIEW {name} AS SELECT K FROM T WITH (response_time = '1s')", table)
        warehouse.on_message(Known(name, view))
    warehouse.on_message(Released(3, time.monotonic(), {"t": (1, 3, 3)}))
    for number, name in enumerate(names):
        ask(warehouse, number, name)

    def propagating() -> list[str]:
        doing = [hand.doing for hand in warehouse._workers.busy()]
        return [task.table for task in doing if isinstance(task, Load) and task.table in names]

    begun = len(hired)
    warehouse._fill()
    assert propagating() == ["v0"], "one place for all"
    await asyncio.sleep(0.1)
    assert sorted(propagating()) == ["v0", "v1", "v2"]
    assert len(hired) == begun + 2
    await asyncio.sleep(0.1)
    assert sorted(propagating()) == ["v0", "v1", "v2"], "that is enough at once"
    longest = next(hand for hand in warehouse._workers.busy() if getattr(hand.doing, "table", "") == "v1")
    warehouse._on_worker(longest, Finished(result=Propagation({"t": Spent(3, 1.0)})))
    await asyncio.sleep(0.1)
    assert sorted(propagating()) == ["v0", "v2", "v3"]
    assert len(hired) == begun + 2
    assert warehouse.report().counters["long_propagations"] == 3


class Spoken:
    """A warehouse with a table T of rows 1 to 3, loaded; workers are spoken for by hand."""

    def __init__(self, path: Path) -> None:
        self.said: list[object] = []
        self.hands = [SpokenWorker(), SpokenWorker()]
        self.warehouse = warehouse_of(path, self.hands, self.said.append)
        self.replaced: list[Hand] = []
        setattr(self.warehouse._workers, "replace", self.replaced.append)  # noqa: B010  mypy forbids the plain form
        self.table = life_of("T", "K INTEGER PRIMARY KEY")
        self.warehouse.on_message(Known("t", self.table))
        self.warehouse.on_message(Known("price", life_of("PRICE", "K INTEGER PRIMARY KEY")))
        self.release(1, 3)
        self.ask(1, "SELECT 1 FROM T", ("t",))
        self.hear(ReadPlan(read_query("SELECT 1 FROM T", self.select.known, attached=True)), Finished())
        self.hear(Finished(result=Loaded(3, 3, 3)))
        self.answer((3,))
        self.said.clear()

    def release(self, first: int, last: int) -> None:
        self.warehouse.on_message(Released(last, time.monotonic(), {"t": (first, last, last - first + 1)}))

    def ask(self, number: int, sql: str, tables: tuple[str, ...], **terms: Any) -> None:
        self.warehouse.on_message(Ask(number, "me", sql, (), tables, time.monotonic(), b"", **terms))
        self.warehouse._fill()

    @property
    def hand(self) -> SpokenWorker:
        """The one that answers, or else loads: changes that nobody waits for may be loaded beside an answer."""
        busy = [hand for hand in self.hands if hand.doing is not None]
        (hand,) = [hand for hand in busy if isinstance(hand.doing, Answer)] or busy
        return hand

    @property
    def select(self) -> Select:
        task = self.hand.tasks[-1]
        assert isinstance(task, Select)
        return task

    def hear(self, *messages: object) -> None:
        hand = self.hand
        for message in messages:
            self.warehouse._on_worker(hand, message)
        self.warehouse._fill()

    def answer(self, loaded: tuple[int, ...], *, plan: bool = False) -> None:
        """The worker reads the text, if it must, and answers."""
        if plan:
            self.hear(ReadPlan(read_query(self.select.sql, self.select.known, attached=True)))
        self.hear(Pinned(loaded), FirstRows(encode(QueryAnswer((), ())), more=False), Finished())


async def test_a_new_text_is_read_and_answered_in_one_visit(tmp_path: Path) -> None:
    spoken = Spoken(tmp_path)
    spoken.ask(2, "SELECT K FROM T", ("t",))
    assert spoken.select.plan is None
    assert [file.life for file in spoken.select.files] == [spoken.table]
    spoken.answer((3,), plan=True)
    (rows,) = spoken.said
    assert isinstance(rows, AnswerRows)
    assert rows.tables == ("t",)
    assert not spoken.warehouse._workers.busy()
    spoken.ask(3, "SELECT K FROM T", ("t",))
    assert spoken.select.plan is not None, "it is known by now"


async def test_a_new_text_goes_back_to_the_board_if_its_table_is_not_fresh_enough(tmp_path: Path) -> None:
    spoken = Spoken(tmp_path)
    spoken.release(4, 5)
    spoken.ask(2, "SELECT K FROM T", ("t",))
    assert spoken.select.files == ()
    spoken.hear(ReadPlan(read_query("SELECT K FROM T", spoken.select.known, attached=True)), Finished())
    assert isinstance(spoken.hand.tasks[-1], LoadTable)
    spoken.hear(Finished(result=Loaded(5, 5, 2)))
    assert spoken.select.plan is not None
    spoken.answer((5,))
    assert [type(message) for message in spoken.said] == [AnswerRows]


async def test_a_new_text_is_answered_from_old_rows_at_once_if_that_is_enough(tmp_path: Path) -> None:
    spoken = Spoken(tmp_path)
    spoken.release(4, 5)
    spoken.ask(2, "SELECT K FROM T", ("t",), freshness=0.0)
    spoken.answer((3,), plan=True)
    assert [type(message) for message in spoken.said] == [AnswerRows]


@pytest.mark.parametrize("only_tables", [False, True])
async def test_a_text_that_reads_more_than_it_may_is_not_run(tmp_path: Path, only_tables: bool) -> None:
    spoken = Spoken(tmp_path)
    spoken.ask(2, "SELECT K FROM T", ("t",) if only_tables else (), only_tables=only_tables)
    assert spoken.select.only_read == only_tables
    spoken.hear(ReadPlan(read_query("SELECT K FROM T", spoken.select.known, attached=True)), Finished())
    assert spoken.said == [AnswerRows(2, ("t",))]
    assert not spoken.warehouse._workers.busy()


async def test_a_table_that_a_text_only_seems_to_read_holds_up_nothing(tmp_path: Path) -> None:
    spoken = Spoken(tmp_path)
    spoken.ask(2, "SELECT K AS PRICE FROM T", ("price", "t"))
    spoken.hear(ReadPlan(read_query("SELECT K AS PRICE FROM T", spoken.select.known, attached=True)), Finished())
    assert "price" not in spoken.warehouse.board.feeds, "it is not loaded"
    spoken.answer((3,))
    assert [type(message) for message in spoken.said] == [AnswerRows]


async def test_a_text_begins_again_if_a_table_is_dropped_while_it_is_read(tmp_path: Path) -> None:
    spoken = Spoken(tmp_path)
    spoken.ask(2, "SELECT K FROM T", ("t",))
    reading = spoken.hand
    spoken.warehouse.on_message(Known("t", None))
    assert spoken.replaced == [reading]
    spoken.warehouse._fill()
    assert (spoken.select.known, spoken.select.files) == ({}, ())
    spoken.hear(Failure(*to_wire(UnknownTable("t", ()))))
    (refused,) = spoken.said
    assert isinstance(refused, QueryRefused)
    assert not spoken.warehouse._workers.busy()


async def test_a_text_that_was_read_before_a_table_was_made_is_read_again(tmp_path: Path) -> None:
    spoken = Spoken(tmp_path)
    spoken.ask(2, "SELECT K FROM T", ("t",))
    spoken.warehouse.on_message(Known("other", life_of("OTHER", "K INTEGER PRIMARY KEY")))
    spoken.answer((3,), plan=True)
    spoken.ask(3, "SELECT K FROM T", ("t",))
    assert spoken.select.plan is None
