"""Queries as the streams process runs them, without the process: opened bit by bit while others go on."""

from __future__ import annotations

import random
from collections import Counter
from math import inf
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from hullcast.broker.log.checkpoint import open_checkpoint
from hullcast.broker.streams import following, live
from hullcast.broker.streams.batch import StreamMoment
from hullcast.broker.streams.live import LiveStreams
from hullcast.broker.streams.messages import (
    BeginStreams,
    CloseQuery,
    GiveWay,
    QueryFailed,
    QueryOpened,
    QueryStart,
    QueryTerms,
    ReleasedTo,
    SourceTerms,
    StreamResults,
    TimeWord,
    TookResults,
)
from hullcast.broker.streams.plan import StreamQuery
from hullcast.broker.tables import stream
from hullcast.network.wire.errors import HistoryGone, Overloaded, from_wire, to_wire
from hullcast.network.wire.values import rows_to_columns
from tests.broker.streams.test_process import StreamLedger, opening, publish_some, results_in, terms_of, wanted


class Live:
    """The queries over a ledger, and what they say."""

    def __init__(self, ledger: StreamLedger, policy: str = "chain", **limits: int) -> None:
        sizes = {"limit_bytes": 1 << 20, "memory_bytes": 1 << 30} | limits
        self.ledger = ledger
        self.streams = LiveStreams(BeginStreams(str(ledger.path), policy, **sizes), self.hear)
        self.told = {"r": 0, "s": 0}
        self.opened: list[int] = []
        self.failed: dict[int, QueryFailed] = {}
        self.at: dict[int, list[int]] = {}
        self.messages: Counter[int] = Counter()

    def hear(self, message: object) -> None:
        if isinstance(message, QueryOpened):
            self.opened.append(message.number)
        elif isinstance(message, QueryFailed):
            self.failed[message.number] = message
        elif isinstance(message, StreamResults):
            self.at.setdefault(message.number, []).extend(at for at, _ in results_in(message))
            self.messages[message.number] += message.made is not None
            self.streams.on_message(TookResults(message.batch_number))

    def release(self) -> None:
        words: dict[str, tuple[TimeWord, ...]] = {}
        for name, all_of_them in self.ledger.words.items():
            words[name] = tuple(all_of_them[self.told[name] :])
            self.told[name] = len(all_of_them)
        self.streams.on_message(ReleasedTo(self.ledger.seq, words))

    def open(self, number: int, terms: QueryTerms, *, gives_way: bool = False) -> None:
        """Begin with what comes from now on."""
        names = ["r"] if terms.right is None or terms.right.is_table else ["r", "s"]
        seq = self.ledger.seq if len(names) == 1 else terms.left.life.created
        words = tuple(tuple(self.ledger.words[name]) for name in names)
        start = QueryStart(self.ledger.seq, (StreamMoment(-inf, seq),) * len(names), words)
        self.streams.on_message(opening(number, terms, start, gives_way))

    def give_way(self) -> None:
        full = bool(self.streams.report().full)
        self.streams.on_message(GiveWay(full, *to_wire(Overloaded("updates", 1))))

    def finish(self) -> None:
        for _ in range(10_000):
            if not self.streams.turn():
                return
        raise AssertionError("there is always more to do")


@pytest.fixture(autouse=True)
def bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SLICE_S", 0.0)
    monkeypatch.setattr(live, "STRETCH", 7)
    monkeypatch.setattr(following, "STORED_AT_ONCE", 5)


def test_results_of_others_come_while_a_query_is_opened(tmp_path: Path) -> None:
    ledger = StreamLedger(tmp_path / "data")
    lookup, windows = terms_of(ledger, "table")[0], terms_of(ledger, "windows")[0]
    ledger.set_stock(1, 0, 1.0)
    running = Live(ledger, "fifo")  # others go by what they measure, and may fill windows first
    running.open(0, lookup)
    running.release()
    running.finish()
    assert running.opened == [0]
    for i in range(100):
        ledger.append("R", [(float(i), 1, 1)] * 5)  # not in the table
    running.open(1, windows)
    ledger.append("R", [(100.0, 0, 1)])
    running.release()
    while not running.at.get(0):
        assert running.streams.turn()
    assert running.at[0] == [ledger.seq]
    assert running.opened == [0], "the other one is not ready"
    running.finish()
    assert running.opened == [0, 1]
    running.streams._runner.check()


@pytest.mark.parametrize("seed", range(6))
def test_whenever_queries_are_opened_their_results_are_those_of_the_log(tmp_path: Path, seed: int) -> None:
    chance = random.Random(f"opening {seed}")
    ledger = StreamLedger(tmp_path / "data", segment_bytes=4_000)
    running = Live(ledger)
    queries: dict[int, tuple[tuple[QueryTerms, StreamQuery], int]] = {}
    closed: set[int] = set()
    for i in range(60):
        publish_some(ledger, chance, float(i))
        if chance.random() < 0.2:
            ledger.checkpoint()
        if chance.random() < 0.15:
            both = terms_of(ledger, chance.choice(["windows", "table"]))
            number = len(queries)
            queries[number] = both, len(wanted(ledger, *both, ledger.logged))
            running.open(number, both[0])
        if chance.random() < 0.7:
            running.release()
        for _ in range(chance.choice([0, 1, 5, 30])):
            running.streams.turn()
        if queries and chance.random() < 0.05:
            closed.add(chance.choice(list(queries)))
            running.streams.on_message(CloseQuery(max(closed)))
            closed.add(max(closed))
    for name in "RS":
        ledger.heartbeat(name, 1000.0)
    running.release()
    running.finish()
    running.streams._runner.check()
    assert not running.failed
    for number, (both, before) in queries.items():
        if number not in closed:
            expected = [at for at, _ in wanted(ledger, *both, ledger.logged)[before:]]
            assert running.at.get(number, []) == expected
    assert len(queries) > len(closed)


def test_a_heartbeat_right_behind_the_beginning_is_not_taken_for_one_before_it(tmp_path: Path) -> None:
    ledger = StreamLedger(tmp_path / "data")
    windows = terms_of(ledger, "windows")[0]
    ledger.append("R", [(5.0, 0, 5)])
    ledger.append("S", [(5.0, 0, 5)])
    ledger.append("S", [(6.0, 0, 5)])  # waits for the time of the other stream
    running = Live(ledger)
    running.open(0, windows)
    ledger.heartbeat("R", 7.0)
    running.release()  # all at once: the query is not open yet
    running.finish()
    assert running.at[0] == [ledger.seq]


def test_results_with_long_texts_go_in_small_portions_and_too_long_ones_fail_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SENT_BYTES", 20)
    monkeypatch.setattr(live, "MOST_BYTES", 30)
    ledger = StreamLedger(tmp_path / "data")
    lookup = terms_of(ledger, "table")[0]
    ledger.set_stock(1, 0, 1.0)
    running = Live(ledger)
    running.open(0, lookup)
    ledger.append("R", [(1.0, 0, 1)] * 10)
    running.release()
    running.finish()
    assert (len(running.at[0]), running.messages[0] >= 2) == (10, True)
    monkeypatch.setattr(live, "MOST_BYTES", 2)
    ledger.append("R", [(2.0, 0, 1)] * 10)
    running.release()
    running.finish()
    assert running.failed[0].code == "TooLarge"
    assert len(running.at[0]) == 10


def test_results_wait_here_while_the_server_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step makes many; if their texts are long, all of them at once would take gigabytes on their way."""
    monkeypatch.setattr(live, "SENT_AT_ONCE", 2)
    monkeypatch.setattr(live, "UNTAKEN_BYTES", 100)
    ledger = StreamLedger(tmp_path / "data")
    ledger.set_stock(1, 0, 1.0)
    running = Live(ledger)
    running.open(0, terms_of(ledger, "table")[0])
    running.release()
    running.finish()
    untaken: list[StreamResults] = []
    running.streams._say = lambda message: untaken.append(message) if isinstance(message, StreamResults) else None
    for _ in range(3):
        ledger.append("R", [(1.0, 0, 1)] * 50)
        running.release()
        running.finish()
    at: list[int] = []
    while found := [seq for message in untaken for seq, _ in results_in(message)]:
        assert len(found) <= 10, "of 150"
        at += found
        last, untaken[:] = untaken[-1].batch_number, []
        running.streams.on_message(TookResults(last))
        running.finish()
    assert at == list(range(ledger.seq - 149, ledger.seq + 1))


def test_what_waits_too_long_gives_way_if_only_subscriptions_need_it(tmp_path: Path) -> None:
    ledger = StreamLedger(tmp_path / "data")
    ledger.append("S", [(0.0, 0, 1)])
    lookup, windows = terms_of(ledger, "table")[0], terms_of(ledger, "windows")[0]
    running = Live(ledger, limit_bytes=2_000)
    running.open(0, lookup, gives_way=True)
    running.open(1, windows, gives_way=True)
    running.open(2, windows._replace(out=windows.out[:1]))  # a derived stream: it waits in the same way
    for i in range(20):  # the other stream is silent: none of this can be joined
        ledger.append("R", [(1.0 + i, 0, 5)] * 10)
    running.release()
    running.finish()
    assert running.streams.report().full == {"r"}
    running.give_way()
    assert {number: failed.code for number, failed in running.failed.items()} == {1: "Overloaded"}
    running.give_way()
    assert list(running.failed) == [1], "publishers are held up for a derived stream"
    running.streams.on_message(CloseQuery(2))
    assert not running.streams.report().full
    running.streams._runner.check()


def test_a_query_that_takes_most_of_the_time_gives_way_alone(tmp_path: Path) -> None:
    ledger = StreamLedger(tmp_path / "data")
    ledger.set_stock(1, 0, 1.0)
    lookup, windows = terms_of(ledger, "table")[0], terms_of(ledger, "windows")[0]
    running = Live(ledger)
    running.give_way()
    for number, terms in enumerate((lookup, windows)):
        running.open(number, terms, gives_way=True)
    running.release()
    running.finish()
    assert sorted(running.opened) == [0, 1]
    for i in range(50):
        for name in "RS":
            ledger.append(name, [(float(i), 1, 5)] * 20)  # of no row of the table
    running.release()
    running.finish()
    taken = running.streams._runner.seconds()
    slower = max(range(2), key=lambda number: taken[running.streams._queries[number].running])
    running.give_way()
    assert list(running.failed) == [slower]


def test_how_far_the_log_was_read_counts_queries_that_are_being_opened(tmp_path: Path) -> None:
    ledger = StreamLedger(tmp_path / "data")
    windows = terms_of(ledger, "windows")[0]
    for i in range(30):
        ledger.append("R", [(float(i), 1, 5)] * 5)
    begins = ledger.seq
    running = Live(ledger)
    running.open(0, windows)
    for i in range(30):
        ledger.append("S", [(float(i), 1, 5)] * 5)
    running.release()
    seen = {running.streams.report().read}
    while running.streams.turn():
        seen.add(running.streams.report().read)
    assert min(seen - {0}) == begins, "what is before only fills windows"
    assert len(seen) > 10
    assert running.streams.report().read == ledger.seq


def test_what_was_cut_from_the_log_is_read_from_a_checkpoint_but_not_for_every_stretch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random("cut")
    ledger = StreamLedger(tmp_path / "data", segment_bytes=4_000, history_bytes=0)
    terms, query = terms_of(ledger, "windows")
    running = Live(ledger)
    running.open(0, terms)
    running.release()
    running.finish()
    for i in range(100):
        publish_some(ledger, chance, float(i))
        if i in (50, 60, 70):
            ledger.checkpoint()
    for name in "RS":
        ledger.heartbeat(name, 1000.0)
    assert ledger.data.readable_from > 100 * live.STRETCH, "far ahead of what was read"
    opened = MagicMock(wraps=open_checkpoint)
    monkeypatch.setattr(following, "open_checkpoint", opened)
    running.release()
    for _ in range(6):  # a checkpoint is read bit by bit, also when it was removed meanwhile
        assert running.streams.turn()
        for _ in range(2):
            ledger.elsewhere()
            ledger.checkpoint()
        running.release()
    assert not running.at
    running.finish()
    assert not running.failed
    assert running.at[0] == [at for at, _ in wanted(ledger, terms, query, ledger.logged)]
    assert opened.call_count <= 2 * 2, "for each stream, and where the log was cut again: not for every stretch"


def test_a_query_whose_tuples_are_neither_in_the_log_nor_retained_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "FEWEST_OVER", 2)
    ledger = StreamLedger(tmp_path / "data", segment_bytes=2_000, history_bytes=0)
    ledger.execute("CREATE STREAM TICKS (V INTEGER) WITH (retain_rows = 20)")
    terms = QueryTerms(SourceTerms(ledger.life_of("TICKS")), None, (), ((0, 0),))
    running = Live(ledger)
    running.streams.on_message(opening(0, terms, QueryStart(ledger.seq, (StreamMoment(0.0, ledger.seq),))))
    running.release()
    running.finish()
    assert running.opened == [0]
    for _ in range(3):
        for _ in range(30):
            ledger.publish_to("TICKS", *rows_to_columns([{"V": i} for i in range(10)]))
        while outcomes := ledger.office.changing.settle(0.0):
            ledger.keep(*outcomes)
        ledger.checkpoint()
    running.release()
    running.finish()
    (failed,) = running.failed.values()
    assert isinstance(from_wire(failed.code, failed.arguments), HistoryGone), "nobody would know what is missing"
