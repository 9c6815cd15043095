"""The streams process beside a log that grows: results are those of a plain evaluation, through any number of kills."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

from hullcast.broker.log.history import Life
from hullcast.broker.log.payload import decode_batch, positioned
from hullcast.broker.processes.ends import BlockingEnd, message_bytes
from hullcast.broker.server.streams import STREAMS
from hullcast.broker.streams.batch import StreamMoment
from hullcast.broker.streams.messages import (
    AskPaths,
    BeginStreams,
    CloseQuery,
    OpenQuery,
    QueryFailed,
    QueryOpened,
    QueryPaths,
    QueryStart,
    QueryTerms,
    ReleasedTo,
    SourceTerms,
    StreamResults,
    StreamsReport,
    TimeWord,
    TookResults,
)
from hullcast.broker.streams.operators.windows import StreamWindow
from hullcast.broker.streams.plan import StreamInput, StreamQuery, TableInput, WantedRanges
from hullcast.broker.tables.schema import AT, POSITION, Column, Table
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import HistoryGone, from_wire
from hullcast.network.wire.values import keys_to_column, rows_to_columns, to_list
from tests.support.ledger import Ledger
from tests.support.log_oracle import Logged, evaluate

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
WORDS = ["IBM", "SAP", "ORCL"]
ZERO = NOON.timestamp() * 1e6
MOST_S = 20.0


class StreamLedger(Ledger):
    """A data directory with two streams and a table, and the log as the oracle takes it: texts are their numbers."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        for name in ("R", "S"):
            self.execute(
                f"CREATE TABLE {name} (TS TIMESTAMP NOT NULL, SYMBOL TEXT, V INTEGER, POSITION INTEGER PRIMARY KEY)"
            )
        self.execute("CREATE TABLE STOCK (SYMBOL TEXT, K INTEGER PRIMARY KEY, V REAL)")
        self.logged: list[Logged] = []
        self.words: dict[str, list[TimeWord]] = {"r": [], "s": []}

    def append(self, name: str, tuples: list[tuple[float, int | None, int | None]]) -> None:
        first = self.seq + 1
        rows: list[dict[str, Any]] = [
            {
                "TS": NOON + timedelta(seconds=at),
                "SYMBOL": None if symbol is None else WORDS[symbol],
                "V": value,
                "POSITION": first + i,
            }
            for i, (at, symbol, value) in enumerate(tuples)
        ]
        self.publish_to(name, *rows_to_columns(rows))
        for i, (at, symbol, value) in enumerate(tuples):
            code = ZERO + at * 1e6
            cells = (code, _code(symbol), _code(value), float(first + i))
            self.logged.append(Logged(first + i, "tuple", name.lower(), cells, code))

    def publish_to(self, name: str, columns: Any, absent: Any) -> None:
        self.ask(lambda number: bodies.Publish(name, columns, absent, b"p" * 16, number))

    def retain(self, name: str, positions: list[int]) -> None:
        self.ask(lambda number: bodies.Delete(name, keys_to_column(positions), b"p" * 16, number))
        self.logged.append(Logged(self.seq, "", ""))

    def heartbeat(self, name: str, at: float) -> None:
        word = TimeWord(self.seq, ZERO + at * 1e6)
        self.words[name.lower()].append(word)
        self.logged.append(Logged(self.seq, "reached", name.lower(), (), word.time))

    def set_stock(self, key: int, symbol: int | None, value: float) -> None:
        columns, absent = rows_to_columns([{"SYMBOL": None if symbol is None else WORDS[symbol], "K": key, "V": value}])
        done = self.ask(lambda number: bodies.Publish("STOCK", columns, absent, b"p" * 16, number))
        self.logged.append(Logged(done.first, "row", "stock", (_code(symbol), float(key), value)))

    def delete_stock(self, key: int) -> None:
        done = self.ask(lambda number: bodies.Delete("STOCK", keys_to_column([key]), b"p" * 16, number))
        self.logged.append(Logged(done.first, "gone", "stock", (0.0, float(key), 0.0)))

    def life_of(self, name: str) -> Life:
        store = self.data.engine.catalogue.store(name)
        return Life(store.table, store.created)


def _code(value: int | None) -> float:
    return float("nan") if value is None else float(value)


class StreamsProcess:
    """The process, held as a server would hold it."""

    def __init__(
        self, ledger: StreamLedger, policy: str = "chain", limit_bytes: int = 1 << 20, memory_bytes: int = 1 << 30
    ) -> None:
        self.ledger, self.policy, self.limit_bytes, self.memory_bytes = ledger, policy, limit_bytes, memory_bytes
        self.opened: dict[int, QueryTerms] = {}
        self.begun: dict[int, QueryStart] = {}
        self.results: dict[int, list[tuple[Any, ...]]] = {}
        self.last: dict[int, StreamResults] = {}
        self.failed: dict[int, Exception] = {}
        self.paths: dict[int, Any] = {}
        self.report: StreamsReport | None = None
        self.ready: set[int] = set()
        self.told = {"r": 0, "s": 0}
        self.start()

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(STREAMS.command(theirs), stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),))
        theirs.close()
        self.connection = ours
        self.connection.settimeout(MOST_S)
        self.end = BlockingEnd(ours)
        self.write(BeginStreams(str(self.ledger.path), self.policy, self.limit_bytes, self.memory_bytes))
        self.told = {name: len(words) for name, words in self.ledger.words.items()}
        self.release()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.connection.close()

    def restart(self) -> None:
        """Kill it, and open all queries again, with what was heard last."""
        self.kill()
        self.start()
        for number, terms in self.opened.items():
            last = self.last.get(number)
            start = self.begun[number]
            if last is not None:
                start = QueryStart(self.ledger.seq, start.bases, self.words_of(terms), last.reached)
            self.write(opening(number, terms, start))

    def words_of(self, terms: QueryTerms) -> tuple[tuple[TimeWord, ...], ...]:
        sources = [terms.left] if terms.right is None or terms.right.is_table else [terms.left, terms.right]
        return tuple(tuple(self.ledger.words[source.life.table.name.lower()]) for source in sources)

    def write(self, message: object) -> None:
        self.connection.sendall(message_bytes(message))

    def release(self) -> None:
        words = {name: tuple(words[self.told[name] :]) for name, words in self.ledger.words.items()}
        self.told = {name: len(words) for name, words in self.ledger.words.items()}
        self.write(ReleasedTo(self.ledger.seq, words))

    def open(self, number: int, terms: QueryTerms) -> None:
        """Whatever its streams have may be in a window: read them from the beginning."""
        self.release()
        count = 1 if terms.right is None or terms.right.is_table else 2
        created = terms.left.life.created
        start = QueryStart(self.ledger.seq, (StreamMoment(-inf, created),) * count, self.words_of(terms))
        self.opened[number] = terms
        self.begun[number] = start
        self.results.setdefault(number, [])
        self.write(opening(number, terms, start))

    def hear(self) -> object:
        message = self.end.read()
        match message:
            case StreamResults():
                self.last[message.number] = message
                self.results[message.number] += results_in(message)
                self.write(TookResults(message.batch_number))
            case QueryOpened(number):
                self.ready.add(number)
            case QueryFailed(number, code, arguments):
                self.failed[number] = from_wire(code, arguments)
            case QueryPaths(number, paths):
                self.paths[number] = paths
            case StreamsReport():
                self.report = message
        return message

    def report_now(self) -> StreamsReport:
        """The next report."""
        while not isinstance(message := self.hear(), StreamsReport):
            pass
        return message

    def hear_until(self, done: Any) -> None:
        deadline = time.monotonic() + MOST_S
        while not done():
            assert time.monotonic() < deadline, (self.failed, {n: len(found) for n, found in self.results.items()})
            self.hear()


@contextmanager
def running(ledger: StreamLedger, **options: Any) -> Iterator[StreamsProcess]:
    process = StreamsProcess(ledger, **options)
    try:
        yield process
    finally:
        process.kill()


def terms_of(ledger: StreamLedger, kind: str) -> tuple[QueryTerms, StreamQuery]:
    """A query as the process takes it, and as the oracle does."""
    r, s, stock = (ledger.life_of(name) for name in ("R", "S", "STOCK"))
    if kind == "table":
        terms = QueryTerms(
            SourceTerms(r, 0, columns=(2,), boxes=(((0.0, 3.0),),)),
            SourceTerms(stock, columns=(0,), boxes=((("IBM", "IBM"),), (("SAP", "SAP"),)), is_table=True),
            ((1, 0),),
            ((0, 3), (0, 1), (1, 1), (1, 2)),
        )
        left = StreamInput("r", 4, WantedRanges((2,), (((0.0, 3.0),),)))
        table = TableInput("stock", 3, 1, WantedRanges((0,), (((0.0, 0.0),), ((1.0, 1.0),))))
        return terms, StreamQuery(left, table, terms.equal, terms.out)
    windows = StreamWindow(rows=5), StreamWindow(range=3e6)
    terms = QueryTerms(
        SourceTerms(r, 0, windows[0], (2,), (((1.0, 9.0),),)),
        SourceTerms(s, 0, windows[1]),
        ((1, 1),),
        ((1, 3), (0, 3), (0, 1), (1, 0)),
    )
    left = StreamInput("r", 4, WantedRanges((2,), (((1.0, 9.0),),)), windows[0])
    right = StreamInput("s", 4, None, windows[1])
    return terms, StreamQuery(left, right, terms.equal, terms.out)


def opening(number: int, terms: QueryTerms, start: QueryStart, gives_way: bool = False) -> OpenQuery:
    """A query whose results are tuples of a stream with columns C0, C1 .. and AT."""
    out = [column_of(terms, side, column) for side, column in terms.out]
    columns = (*(Column(f"C{place}", column.type) for place, column in enumerate(out)), AT, POSITION)
    return OpenQuery(number, terms, Table("MADE", columns, len(out) + 1), start, gives_way)


def results_in(message: StreamResults) -> list[tuple[int, tuple[Any, ...]]]:
    """(AT, values) of each result, as whoever reads the log will find them."""
    if message.made is None:
        return []
    rows = message.made.rows.cells.shape[1]
    body = decode_batch(positioned(message.made.record, rows, 7))
    assert isinstance(body, bodies.Publish)
    *columns, at, positions = (to_list(column) for column in body.columns.values())
    assert positions == list(range(7, 7 + rows))
    return list(zip(at, zip(*columns, strict=True), strict=True))


def column_of(terms: QueryTerms, side: int, column: int) -> Column:
    source = terms.right if side else terms.left
    assert source is not None
    return source.life.table.columns[column]


def wanted(ledger: StreamLedger, terms: QueryTerms, query: StreamQuery, log: list[Logged]) -> list[Any]:
    """What the oracle says, as values."""
    found = []
    for result in evaluate(query, log):
        values: list[Any] = []
        for (side, column), code in zip(terms.out, result.cells, strict=True):
            name = column_of(terms, side, column).name
            if code != code:
                values.append(None)
            elif name == "SYMBOL":
                values.append(WORDS[int(code)])
            elif name == "TS":
                values.append(NOON + timedelta(microseconds=code - ZERO))
            else:
                values.append(int(code) if name in ("POSITION", "K") else code)
        found.append((result.at, tuple(values)))
    return found


def publish_some(ledger: StreamLedger, chance: random.Random, now: float) -> None:
    for name in chance.sample("RS", 2):
        count = chance.choice([0, 1, 1, 2, 40])
        tuples = [
            (now + chance.randint(-3, 3), chance.choice([0, 1, 2, None]), chance.choice([0, 1, 5, None]))
            for _ in range(count)
        ]
        if tuples:
            ledger.append(name, tuples)
    if chance.random() < 0.4:
        ledger.set_stock(chance.randint(0, 4), chance.choice([0, 1, 2, None]), chance.choice([0.5, 1.5]))
    if chance.random() < 0.1:
        ledger.delete_stock(chance.randint(0, 4))
    if chance.random() < 0.2:
        ledger.elsewhere()
        ledger.logged.append(Logged(ledger.seq, "", ""))
    if chance.random() < 0.2:
        ledger.heartbeat(chance.choice("RS"), now + chance.randint(-1, 2))


def test_results_go_on_through_kills_as_if_nothing_had_happened(tmp_path: Path) -> None:
    chance = random.Random("kills")
    ledger = StreamLedger(tmp_path / "data", segment_bytes=20_000)
    for i in range(10):
        publish_some(ledger, chance, float(i))
    with running(ledger) as process:
        queries = {number: terms_of(ledger, kind) for number, kind in enumerate(("windows", "table"))}
        before = len(ledger.logged)
        for number, (terms, _) in queries.items():
            process.open(number, terms)
        process.hear_until(lambda: process.ready == {0, 1})
        for i in range(10, 60):
            publish_some(ledger, chance, float(i))
            if chance.random() < 0.7:
                process.release()
            if i % 12 == 5:
                process.hear()
                process.restart()
            if i % 20 == 15:
                ledger.checkpoint()
        process.release()
        final = {number: wanted(ledger, *queries[number], ledger.logged) for number in queries}
        skipped = {number: len(wanted(ledger, *queries[number], ledger.logged[:before])) for number in queries}
        expected = {number: final[number][skipped[number] :] for number in queries}
        process.hear_until(lambda: all(len(process.results[number]) >= len(expected[number]) for number in queries))
        process.hear_until(lambda: isinstance(process.hear(), StreamsReport))
        assert not process.failed
        assert len(expected[0]) > 100
        assert process.results[0] == expected[0]
        assert sorted(process.results[1], key=repr) == sorted(expected[1], key=repr)


def test_too_much_that_waits_is_reported_by_stream_until_a_heartbeat_lets_the_join_go_on(tmp_path: Path) -> None:
    ledger = StreamLedger(tmp_path / "data")
    ledger.append("S", [(0.0, 0, 1)])
    terms, query = terms_of(ledger, "windows")
    with running(ledger, limit_bytes=20_000) as process:
        process.open(0, terms)
        for i in range(20):  # the other stream is silent: none of this can be joined
            ledger.append("R", [(1.0 + i, 0, 5)] * 100)
        process.release()
        process.hear_until(lambda: process.report is not None and "r" in process.report.full)
        assert process.report is not None
        assert process.report.full == {"r"}
        assert process.report.counters["waiting_bytes"] > 20_000
        ledger.append("S", [(2.0, 0, 1)])  # behind all that waits: it must be read nevertheless
        ledger.heartbeat("S", 1000.0)
        process.release()
        process.hear_until(lambda: not process.report_now().full)
        expected = wanted(ledger, terms, query, ledger.logged)
        assert len(expected) > 100
        process.hear_until(lambda: len(process.results[0]) >= len(expected))
        assert process.results[0] == expected
        process.write(AskPaths(0))
        process.hear_until(lambda: 0 in process.paths)
        left, right = process.paths[0]
        assert [operator.name for operator in left.operators] == [
            "selection",
            "projection",
            "window join",
            "projection",
        ]
        assert [operator.name for operator in right.operators] == ["projection", "window join", "projection"]
        assert left.operators[0].tuples == 2000
        assert left.operators[-1].made == len(expected)
        assert not any(operator.waiting for operator in (*left.operators, *right.operators))


def test_windows_and_tables_come_from_a_checkpoint_where_the_log_was_cut(tmp_path: Path) -> None:
    chance = random.Random("cut")
    ledger = StreamLedger(tmp_path / "data", segment_bytes=2000, history_bytes=0)
    for i in range(20):
        publish_some(ledger, chance, float(i))
    ledger.set_stock(9, 0, 2.5)
    ledger.retain("R", [one.seq for one in ledger.logged if one.name == "r"][:3])
    for _ in range(3):
        ledger.checkpoint()
        publish_some(ledger, chance, 20.0)
    queries = {number: terms_of(ledger, kind) for number, kind in enumerate(("windows", "table"))}
    with running(ledger) as process:
        before = {number: len(wanted(ledger, *queries[number], ledger.logged)) for number in queries}
        for number, (terms, _) in queries.items():
            base = StreamMoment(-inf, ledger.seq if number else terms.left.life.created)
            start = QueryStart(ledger.seq, (base,) * (2 - number), process.words_of(terms))
            process.opened[number], process.results[number] = terms, []
            process.write(opening(number, terms, start))
        for i in range(21, 40):
            publish_some(ledger, chance, float(i))
        process.release()
        expected = {number: wanted(ledger, *queries[number], ledger.logged)[before[number] :] for number in queries}
        process.hear_until(lambda: all(len(process.results[n]) >= len(expected[n]) for n in queries))
        assert process.results[0] == expected[0]
        assert sorted(process.results[1], key=repr) == sorted(expected[1], key=repr)
        assert all(expected.values())
        terms, _ = queries[1]
        process.write(CloseQuery(1))
        start = QueryStart(ledger.seq, (StreamMoment(-inf, terms.left.life.created),))
        process.write(opening(7, terms, start))  # no checkpoint is that old
        process.hear_until(lambda: 7 in process.failed)
        assert isinstance(process.failed[7], HistoryGone)


def test_alike_queries_share_their_operators_and_each_has_its_own_results(tmp_path: Path) -> None:
    chance = random.Random("alike")
    ledger = StreamLedger(tmp_path / "data")
    terms, query = terms_of(ledger, "windows")
    with running(ledger) as process:
        befores = []
        for number in range(3):
            for i in range(8):
                publish_some(ledger, chance, 8.0 * number + i)
            befores.append(len(wanted(ledger, terms, query, ledger.logged)))
            process.open(number, terms)
            process.hear_until(lambda n=number: n in process.ready)  # while one is being opened, nobody shares it
        process.write(CloseQuery(1))
        for i in range(24, 34):
            publish_some(ledger, chance, float(i))
        process.release()
        expected = wanted(ledger, terms, query, ledger.logged)
        for number in (0, 2):
            process.hear_until(lambda n=number: len(process.results[n]) >= len(expected) - befores[n])
            assert process.results[number] == expected[befores[number] :]
        assert befores[0] < befores[2] < len(expected)
        assert process.report_now().counters["queries"] == 1


def test_texts_that_nobody_keeps_are_forgotten(tmp_path: Path) -> None:
    ledger = StreamLedger(tmp_path / "data")
    terms, _ = terms_of(ledger, "table")
    for key, word in enumerate(("IBM", "SAP")):
        ledger.set_stock(key, WORDS.index(word), 1.0)
    with running(ledger, limit_bytes=50_000) as process:
        process.open(0, terms)
        for i in range(22):
            first = ledger.seq + 1
            symbols = [f"text {i}/{j}" for j in range(900)] + ["SAP"]
            columns, absent = rows_to_columns(
                [{"TS": NOON, "SYMBOL": symbol, "V": 1, "POSITION": first + j} for j, symbol in enumerate(symbols)]
            )
            ledger.publish_to("R", columns, absent)
            process.release()
        process.hear_until(lambda: len(process.results[0]) >= 22)
        assert [row[1] for _, row in process.results[0]] == ["SAP"] * 22
        assert process.report_now().counters["texts"] < 12_000


def test_a_heartbeat_is_heard_by_a_query_that_is_still_to_be_opened(tmp_path: Path) -> None:
    ledger = StreamLedger(tmp_path / "data")
    with running(ledger) as process:
        terms, query = terms_of(ledger, "windows")
        process.opened[0], process.results[0] = terms, []
        bases = (StreamMoment(-inf, terms.left.life.created),) * 2
        ledger.append("R", [(0.0, 0, 5)])
        ledger.append("S", [(1.0, 0, 5)])
        process.write(opening(0, terms, QueryStart(ledger.seq, bases, ((), ()), StreamMoment(-inf, -1))))
        ledger.heartbeat("R", 5.0)
        process.release()
        process.hear_until(lambda: process.results[0])
        assert process.results[0] == wanted(ledger, terms, query, ledger.logged)
