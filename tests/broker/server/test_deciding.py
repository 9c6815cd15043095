"""What the server decides: requests in, outcomes as data; no socket, no disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import pytest

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.log.publishers import Publishers, scoped
from hullcast.broker.log.record import RecordKind
from hullcast.broker.reformulate.selection import SelectionChannel
from hullcast.broker.scheduling.driver import finish
from hullcast.broker.server import subscribing
from hullcast.broker.server.attendance import Attendance
from hullcast.broker.server.outcome import Outcome
from hullcast.broker.server.retention import Retention
from hullcast.broker.sql.query import Predicates
from hullcast.network.matching.messages import query_boxes
from hullcast.network.security.rights import Rights
from hullcast.network.wire import bodies
from hullcast.network.wire.columns import Columns
from hullcast.network.wire.errors import Overloaded, from_wire
from hullcast.network.wire.frames import Origin, Request
from hullcast.network.wire.packing import Scalar
from hullcast.network.wire.values import keys_to_column, rows_to_columns, to_list
from tests.support.engines import attend
from tests.support.office import Office

TABLE = "CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, RISK REAL, PER REAL, SECTOR TEXT)"
MIN = "SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?"
BY_SECTOR = "SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ? AND SECTOR = ?"
ME, YOU = b"m" * 16, b"y" * 16
KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"


class Desk:
    """An office, and short ways to ask it."""

    def __init__(
        self, rights: Rights | None = None, window: int = 1 << 20, publishers: Publishers | None = None
    ) -> None:
        self.engine = ServedEngine()
        self.wanted: set[int] = set()
        self.held = True  # what subscribers elsewhere are believed to ask for: everything, or nothing
        self.retention = Retention(window)
        self.attendance = Attendance(
            self.engine, self.retention, 30.0, lambda _, partitions: np.full(len(partitions), self.held)
        )
        self.rights = rights or Rights.everything()
        self.office = Office(
            self.engine,
            publishers,
            rights=lambda: self.rights,
            attendance=self.attendance,
            wanted=lambda: self.wanted,
            epoch=b"e" * 16,
            make_for=lambda sql, owner: self.make_for(sql, owner),  # noqa: PLW0108  (a test may replace it)
        )
        self.number = 0

    def ask(self, body: bodies.Body, key: str | None = None, after: int = 0, again: bool = False) -> Outcome:
        return self.handle(body, Request(1, (1,), Origin(key, ""), bodies.encode(body), after, again))

    def handle(self, body: bodies.Body, request: Request, now: float = 0.0) -> Outcome:
        self.office.moment = now
        outcome: Outcome = finish(self.office.work(body, request))
        return outcome

    def make_for(self, sql: str, owner: str) -> None:
        """Called before a text is subscribed to."""

    def execute(self, sql: str) -> Outcome:
        self.number += 1
        return self.ask(bodies.Execute(sql, ME, self.number))

    def publish(self, *rows: Mapping[str, object], number: int | None = None) -> Outcome:
        self.number += 1
        columns, absent = rows_to_columns(list(rows))
        return self.ask(bodies.Publish("STOCK", columns, absent, ME, number or self.number))

    def subscribe(self, sql: str, *parameters: Scalar, since: int | None = None) -> Outcome:
        group = bodies.Group(1, sql, parameters, 1)
        return self.ask(bodies.Subscribe((group,), since, self.office.epoch))


def subscribed(outcome: Outcome) -> bodies.Subscribed:
    assert isinstance(outcome.reply, bodies.Subscribed), outcome.reply
    return outcome.reply


def refusal(outcome: Outcome) -> str:
    assert isinstance(outcome.reply, bodies.Failed), outcome.reply
    return str(from_wire(outcome.reply.code, outcome.reply.arguments))


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.execute(TABLE)
    return desk


def test_a_delete_says_how_many_rows_there_were_but_not_again(desk: Desk) -> None:
    desk.publish({"SYMBOL": "A", "PER": 1.0}, {"SYMBOL": "B", "PER": 2.0})
    delete = bodies.Delete("STOCK", keys_to_column(["A", "never there", "A"]), ME, 9)
    assert desk.ask(delete).reply == bodies.Done(3, 5, 1)
    assert desk.ask(delete, again=True).reply == bodies.Done(3, 5, None)  # a receipt does not hold it


def test_a_published_batch_goes_to_the_log_as_it_came(desk: Desk) -> None:
    columns, absent = rows_to_columns([{"SYMBOL": "A", "RISK": 1.0, "PER": 2.0, "SECTOR": None}])
    body = bodies.Publish("STOCK", columns, absent, ME, 9)
    outcome = desk.ask(body)
    assert outcome.reply == bodies.Done(1, 1)
    assert outcome.entry is not None
    assert outcome.entry[:4] == (RecordKind.BATCH, bodies.encode(body), 1, 1)
    assert outcome.entry[4:] == (scoped("", ME), 9)


def test_rows_that_lack_columns_go_to_the_log_as_they_are_after_it(desk: Desk) -> None:
    desk.publish({"SYMBOL": "A", "RISK": 1.0, "PER": 2.0, "SECTOR": "tech"})
    columns, absent = rows_to_columns([{"symbol": "A", "PER": 3.0}, {"SYMBOL": "B"}, {"SYMBOL": "A", "RISK": None}])
    outcome = desk.ask(bodies.Publish("stock", columns, absent, ME, 9))
    assert outcome.reply == bodies.Done(2, 4)
    assert outcome.entry is not None
    logged = bodies.decode(outcome.entry.payload)
    assert isinstance(logged, bodies.Publish)
    assert (logged.publisher, logged.number, logged.absent) == (ME, 9, None)
    assert {name: to_list(column) for name, column in logged.columns.items()} == {
        "SYMBOL": ["A", "B", "A"],
        "RISK": [1.0, None, None],
        "PER": [3.0, None, 3.0],
        "SECTOR": ["tech", None, "tech"],
    }
    one = desk.publish({"SYMBOL": "B", "SECTOR": "steel"}, number=10)
    assert one.entry is not None
    logged = bodies.decode(one.entry.payload)
    assert isinstance(logged, bodies.Publish)
    assert logged.columns == {"SYMBOL": "B", "RISK": None, "PER": None, "SECTOR": "steel"}


def test_a_text_that_its_own_batch_overwrites_is_in_the_log(desk: Desk) -> None:
    """The interner is swept right behind a batch, and forgets texts that no row has any more."""
    desk.publish({"SYMBOL": "A", "SECTOR": "first"})
    for start in range(0, 5000, 1000):
        columns, absent = rows_to_columns({"SYMBOL": ["A"] * 1000, "SECTOR": [f"s{start + i}" for i in range(1000)]})
        desk.number += 1
        entry = desk.ask(bodies.Publish("STOCK", columns, absent, ME, desk.number)).entry
        assert entry is not None
        logged = bodies.decode(entry.payload)
        assert isinstance(logged, bodies.Publish)
        assert to_list(logged.columns["SECTOR"]) == [f"s{start + i}" for i in range(1000)]
    assert desk.engine.changes.sweeps


def test_a_request_sent_twice_is_applied_once(desk: Desk) -> None:
    first = desk.publish({"SYMBOL": "A", "PER": 1.0}, number=50)
    desk.publish({"SYMBOL": "A", "PER": 2.0}, number=51)
    again = desk.publish({"SYMBOL": "A", "PER": 1.0}, number=50)
    assert again.reply == first.reply
    assert again.entry is None
    assert desk.engine.query("SELECT PER FROM STOCK") == [(2.0,)]


def price(publisher: bytes, number: int, value: float) -> bodies.Publish:
    columns, absent = rows_to_columns([{"SYMBOL": "A", "PER": value}])
    return bodies.Publish("STOCK", columns, absent, publisher, number)


def test_a_change_that_overtook_an_earlier_one_is_sent_back(desk: Desk) -> None:
    assert "waits for its earlier change 50" in refusal(desk.ask(price(ME, 51, 2.0), after=50))
    desk.ask(price(ME, 50, 1.0))
    assert desk.ask(price(ME, 51, 2.0), after=50).reply == bodies.Done(2, 2)
    assert desk.engine.query("SELECT PER FROM STOCK") == [(2.0,)]


def test_a_change_that_was_given_up_does_not_undo_a_later_one(desk: Desk) -> None:
    desk.ask(price(ME, 51, 2.0))
    assert "later change 51" in refusal(desk.ask(price(ME, 50, 1.0)))
    assert desk.engine.query("SELECT PER FROM STOCK") == [(2.0,)]


def test_a_change_behind_one_that_was_refused_for_good_need_not_wait(desk: Desk) -> None:
    assert "no table" in refusal(desk.ask(bodies.Publish("NOWHERE", {}, None, ME, 50)))
    assert desk.ask(price(ME, 51, 2.0), after=50).reply == bodies.Done(1, 1)
    # a refusal out of turn is none: 53 has not come yet
    assert "waits for" in refusal(desk.ask(bodies.Publish("NOWHERE", {}, None, ME, 54), after=53))
    assert "waits for" in refusal(desk.ask(price(ME, 55, 5.0), after=54))


KEYS = {"honest": KEY, "mallory": KEY[::-1]}


def two_keys(publishers: Publishers) -> Desk:
    given = [{"name": name, "public": key, "publish": ["STOCK"], "admin": True} for name, key in KEYS.items()]
    desk = Desk(Rights.parse({"key": given}), publishers=publishers)
    desk.ask(bodies.Execute(TABLE, ME, 1), KEY)
    return desk


@pytest.mark.parametrize("flooding", ["mallory", "honest"])
def test_made_up_publishers_never_let_a_late_retry_undo_a_newer_value(flooding: str) -> None:
    """Of another key they do not even keep the retry from its answer; of the same key the retry is refused."""
    desk = two_keys(Publishers(key_bytes=20_000, total_bytes=40_000))
    first = desk.ask(price(ME, 2, 1.0), KEY)
    desk.ask(price(YOU, 1, 2.0), KEY)  # newer
    for made_up in range(1, 1000):
        made = made_up.to_bytes(16)
        columns, absent = rows_to_columns([{"SYMBOL": "B", "PER": 1.0}])
        flood = desk.ask(bodies.Publish("STOCK", columns, absent, made, 1), KEYS[flooding])
        assert isinstance(flood.reply, bodies.Done)
    desk.office.publishers.check()
    late = desk.ask(price(ME, 2, 1.0), KEY, again=True)
    if flooding == "mallory":
        assert late.reply == first.reply
    else:
        assert "retried too late" in refusal(late)
    assert desk.engine.query("SELECT PER FROM STOCK WHERE SYMBOL = 'A'") == [(2.0,)]
    assert isinstance(desk.ask(price(b"new".ljust(16), 1, 3.0), KEY).reply, bodies.Done)  # a first try is never refused


def test_nobody_gets_the_receipts_of_another_key() -> None:
    desk = two_keys(Publishers())
    desk.ask(price(ME, 2, 1.0), KEY)
    assert desk.ask(price(ME, 2, 3.0), KEYS["mallory"]).reply == bodies.Done(2, 2)
    assert desk.ask(price(ME, 2, 9.0), KEY, again=True).reply == bodies.Done(1, 1)


def test_a_table_is_created_once_however_often_the_request_comes(desk: Desk) -> None:
    again = desk.ask(bodies.Execute(TABLE, ME, 1))
    assert again.reply == bodies.Done(1, 0)
    assert "already exists" in refusal(desk.ask(bodies.Execute(TABLE, YOU, 1)))


def test_a_refused_batch_changes_nothing_and_is_not_logged(desk: Desk) -> None:
    outcome = desk.publish({"SYMBOL": "A", "PER": "much"})
    assert "PER" in refusal(outcome)
    assert outcome.entry is None
    assert desk.engine.seq == 0


def test_limits_of_one_request(desk: Desk) -> None:
    assert "1,001" in refusal(desk.publish(*({"SYMBOL": str(i)} for i in range(1001))))
    column = np.zeros(101)
    group = bodies.Group(1, MIN, (column, column), 101)
    assert "101" in refusal(desk.ask(bodies.Subscribe((group,))))


def test_the_number_of_open_channels_is_limited(desk: Desk) -> None:
    for kind in ("MIN", "MAX", "SUM"):
        subscribed(desk.subscribe(f"SELECT {kind}(PER) FROM STOCK"))
    assert "open channels" in refusal(desk.subscribe("SELECT AVG(PER) FROM STOCK"))
    assert len(desk.engine.statistics()) == 3
    subscribed(desk.subscribe("SELECT MIN(PER) FROM STOCK"))  # one that is open is no more


def test_a_subscription_gets_its_point_and_its_answer(desk: Desk) -> None:
    desk.publish({"SYMBOL": "A", "RISK": 30.0, "PER": 5.0})
    outcome = desk.subscribe(MIN, 20, 60)
    reply = subscribed(outcome)
    (opened,) = reply.groups
    assert reply.seq == 1
    assert opened.snapshot is not None
    assert np.asarray(opened.snapshot["best"]).tolist() == [5.0]
    assert [install.points.tolist() for install in outcome.installs] == [[[20.0, 60.0]]]
    assert outcome.ordered


def test_messages_leave_only_for_channels_that_somebody_attends(desk: Desk) -> None:
    assert desk.publish({"SYMBOL": "A", "RISK": 30.0, "PER": 5.0}).messages == {}
    channel = subscribed(desk.subscribe(MIN, 20, 60)).groups[0].channel
    messages = desk.publish({"SYMBOL": "B", "RISK": 40.0, "PER": 4.0}).messages
    assert list(messages) == [channel]
    assert np.asarray(messages[channel]["best"]).tolist() == [4.0]


def test_who_comes_back_gets_what_it_missed(desk: Desk) -> None:
    desk.subscribe(MIN, 20, 60)
    desk.publish({"SYMBOL": "A", "RISK": 30.0, "PER": 5.0})
    desk.publish({"SYMBOL": "B", "RISK": 70.0, "PER": 1.0})  # not in range
    desk.publish({"SYMBOL": "C", "RISK": 40.0, "PER": 4.0})
    reply = subscribed(desk.subscribe(MIN, 20, 60, since=1))
    assert reply.groups[0].snapshot is None
    (replay,) = reply.replay.values()
    assert np.asarray(replay["seq"]).tolist() == [3]


def test_who_missed_too_much_gets_a_snapshot() -> None:
    desk = Desk(window=100)
    desk.execute(TABLE)
    desk.subscribe(MIN, 20, 60)
    for i in range(5):
        desk.publish({"SYMBOL": "A", "RISK": 30.0, "PER": float(9 - i)})
    assert subscribed(desk.subscribe(MIN, 20, 60, since=1)).groups[0].snapshot is not None
    assert subscribed(desk.subscribe(MIN, 20, 60, since=5)).groups[0].snapshot is None


def test_another_epoch_or_the_future_is_not_resumed(desk: Desk) -> None:
    desk.subscribe(MIN, 20, 60)
    group = bodies.Group(1, MIN, (20, 60), 1)
    stale = desk.ask(bodies.Subscribe((group,), 0, b"x" * 16))
    assert subscribed(stale).groups[0].snapshot is not None
    assert subscribed(desk.subscribe(MIN, 20, 60, since=99)).groups[0].snapshot is not None


def test_a_table_made_anew_is_not_resumed(desk: Desk) -> None:
    desk.subscribe(MIN, 20, 60)
    desk.execute("DROP TABLE STOCK")  # nobody wants the channel at this moment
    desk.execute(TABLE)
    assert subscribed(desk.subscribe(MIN, 20, 60, since=0)).groups[0].snapshot is not None


def test_a_table_that_somebody_reads_is_not_dropped(desk: Desk) -> None:
    desk.wanted = {subscribed(desk.subscribe(MIN, 20, 60)).groups[0].channel}
    assert "is in use by subscriptions" in refusal(desk.execute("DROP TABLE STOCK"))


def test_of_several_groups_one_may_be_wrong(desk: Desk) -> None:
    groups = (bodies.Group(1, MIN, (20, 60), 1), bodies.Group(2, "SELECT MIN(PER) FROM NOWHERE", (), 1))
    reply = subscribed(desk.ask(bodies.Subscribe(groups)))
    assert reply.groups[0].failed is None
    assert reply.groups[1].failed is not None
    assert "NOWHERE" in refusal(desk.subscribe("SELECT MIN(PER) FROM NOWHERE"))


def test_predicates_that_nothing_satisfies_are_where_no_message_reaches(desk: Desk) -> None:
    (install,) = desk.subscribe(MIN, 60, 20).installs
    assert install.points.tolist() == [[np.inf, -np.inf]]
    (never,) = desk.subscribe("SELECT MIN(PER) FROM STOCK WHERE SECTOR = 'A' AND SECTOR = 'B'").installs
    assert never.points[0, 0] == np.inf


def test_partition_numbers_that_somebody_holds_survive_a_sweep(desk: Desk) -> None:
    (tech,) = desk.subscribe(BY_SECTOR, 0, 9, "TECH").installs
    for i in range(12):  # more texts than an interner keeps without looking for dead ones
        desk.publish(*({"SYMBOL": f"{i}-{j}", "SECTOR": f"{i}-{j}"} for j in range(1000)))
        desk.ask(bodies.Delete("STOCK", keys_to_column([f"{i}-{j}" for j in range(1000)]), YOU, i + 1))
    assert desk.engine.changes.sweeps
    (again,) = desk.subscribe(BY_SECTOR, 0, 9, "TECH").installs
    assert again.points.tolist() == tech.points.tolist()


def test_after_a_sweep_nobody_is_replayed_old_partition_numbers(desk: Desk) -> None:
    desk.subscribe(BY_SECTOR, 0, 9, "TECH")
    desk.publish({"SYMBOL": "A", "RISK": 1.0, "PER": 1.0, "SECTOR": "TECH"})
    before = desk.engine.seq
    desk.held = False
    for i in range(12):
        desk.publish(*({"SYMBOL": f"{i}-{j}", "SECTOR": f"{i}-{j}"} for j in range(1000)))
        desk.ask(bodies.Delete("STOCK", keys_to_column([f"{i}-{j}" for j in range(1000)]), YOU, i + 1))
    assert desk.engine.changes.sweeps
    assert subscribed(desk.subscribe(BY_SECTOR, 0, 9, "TECH", since=before)).groups[0].snapshot is not None


def test_a_deserted_channel_lingers_and_closes(desk: Desk) -> None:
    number = subscribed(desk.subscribe(MIN, 20, 60)).groups[0].channel
    for wanted, now in ({number}, 0.0), (set(), 1.0), ({number}, 2.0), (set(), 3.0), (set(), 32.0):
        desk.attendance.close_deserted(wanted, now)  # at 2.0 somebody came back
        assert [one.number for one in desk.attendance] == [number]
    desk.attendance.close_deserted(set(), 33.0)
    assert not len(desk.attendance)
    assert desk.engine.statistics() == {}
    assert subscribed(desk.subscribe(MIN, 20, 60)).groups[0].channel == number + 1  # never the same number again


PEERS = "SELECT STOCK.SYMBOL, PEER.SYMBOL FROM STOCK JOIN PEER USING (SECTOR) WHERE STOCK.RISK BETWEEN ? AND ?"


@pytest.fixture
def joining(desk: Desk) -> Desk:
    """A desk with a second table, and a pair at RISK 7."""
    desk.execute("CREATE TABLE PEER (SYMBOL TEXT PRIMARY KEY, SECTOR TEXT)")
    desk.number += 1
    columns, absent = rows_to_columns([{"SYMBOL": "P", "SECTOR": "TECH"}])
    desk.ask(bodies.Publish("PEER", columns, absent, ME, desk.number))
    desk.publish({"SYMBOL": "A", "RISK": 7.0, "SECTOR": "TECH"})
    return desk


def ranges(desk: Desk) -> list[tuple[int, int]]:
    return [attending.channel.ranges_known() for attending in desk.attendance]


def test_an_outcome_owns_the_ranges_of_a_join_until_they_are_forgone(joining: Desk) -> None:
    first, second = joining.subscribe(PEERS, 5, 10), joining.subscribe(PEERS, 5, 10)
    joining.subscribe(MIN, 5, 10)
    never = joining.subscribe(PEERS, 10, 5)
    assert ranges(joining) == [(1, 2), (0, 0)]
    for outcome in (first, second, never):
        (install,) = outcome.installs
        assert install.counted
        joining.attendance.forgo(install.channel, install.points)
    assert ranges(joining) == [(1, 2), (0, 0)]  # whoever owns them says when there is time for it
    assert not joining.attendance.forgo_some()
    assert ranges(joining) == [(0, 0), (0, 0)]
    (install,) = joining.subscribe(MIN, 5, 10).installs
    assert not install.counted


def test_requests_that_come_to_nothing_leave_no_range(joining: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = bodies.Group(1, PEERS, (0, 1), 1)
    joining.ask(bodies.Subscribe((kept, bodies.Group(2, "SELECT MIN(PER) FROM NOWHERE", (), 1))))
    assert ranges(joining) == [(1, 1)]
    with monkeypatch.context() as patch:
        patch.setattr(subscribing, "HELD_BYTES_PER_OWNER", 0)
        assert "first answers" in refusal(joining.subscribe(PEERS, 5, 10))
        two = (bodies.Group(1, PEERS, (5, 10), 1), bodies.Group(2, PEERS, (6, 11), 1))
        assert "first answers" in refusal(joining.ask(bodies.Subscribe(two)))
    assert ranges(joining) == [(1, 1)]
    with monkeypatch.context() as patch:
        patch.setattr(subscribing, "PART_BYTES", 1)
        staged = joining.subscribe(PEERS, 5, 10).reply
    assert isinstance(staged, bodies.Staged)
    assert ranges(joining) == [(2, 2)]  # the client may still fetch it
    joining.office.subscribing.expire(subscribing.STAGED_S + 1)
    assert ranges(joining) == [(1, 1)]


def test_a_range_that_nobody_wanted_meanwhile_begins_with_a_snapshot(joining: Desk) -> None:
    joining.subscribe(PEERS, 0, 1)  # keeps the channel, and what it says
    (install,) = joining.subscribe(PEERS, 5, 10).installs
    joining.publish({"SYMBOL": "B", "RISK": 100.0})
    since = joining.engine.seq
    joining.publish({"SYMBOL": "A", "RISK": 8.0, "SECTOR": "TECH"})
    resumed = subscribed(joining.subscribe(PEERS, 5, 10, since=since))
    assert resumed.groups[0].snapshot is None
    assert len(resumed.replay[install.channel]["seq"]) == 1
    assert subscribed(joining.subscribe(PEERS, 4, 10, since=since)).groups[0].snapshot is not None
    for _ in range(2):
        joining.attendance.forgo(install.channel, install.points)
    joining.attendance.forgo_some()
    joining.publish({"SYMBOL": "A", "RISK": 5.5, "SECTOR": "OIL"})  # leaves [4, 10] too, which is still wanted
    now = joining.engine.seq
    assert subscribed(joining.subscribe(PEERS, 5, 10, since=since)).groups[0].snapshot is not None
    assert subscribed(joining.subscribe(PEERS, 5, 10, since=now)).groups[0].snapshot is None


def test_ranges_of_lost_subscribers_linger_and_go(joining: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    installs = [joining.subscribe(PEERS, low, 10).installs[0] for low in (1, 2, 3, 4)]
    channel, attendance = installs[0].channel, joining.attendance
    for until, install in enumerate(installs[:3], 1):
        attendance.forgo(channel, install.points, float(until))
    assert (ranges(joining), attendance.lingering) == ([(4, 4)], 3)
    attendance.expire(1.0)
    attendance.forgo_some()
    assert (ranges(joining), attendance.lingering) == ([(3, 3)], 2)
    monkeypatch.setattr("hullcast.broker.server.attendance.MOST_LINGERING", 2)
    attendance.forgo(channel, installs[3].points, 4.0)
    attendance.forgo_some()
    assert (ranges(joining), attendance.lingering) == ([(2, 2)], 2)  # the oldest made room
    attendance.close_deserted(set(), 0.0)
    attendance.close_deserted(set(), 100.0)
    assert (ranges(joining), attendance.lingering) == ([], 0)
    joining.subscribe(PEERS, 5, 10)
    assert ranges(joining) == [(1, 1)]  # a new channel


def test_many_ranges_come_and_go_in_slices(joining: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribing, "WANTED_AT_ONCE", 10)
    body = bodies.Subscribe((bodies.Group(1, PEERS, (np.arange(35.0), np.arange(35.0) + 1), 35),))
    request = Request(1, (1,), Origin(None, ""), bodies.encode(body))
    joining.subscribe(PEERS, 100, 101)
    work = joining.office.work(body, request)
    seen = []
    for _ in range(3):
        work.send(None)
        seen += ranges(joining)
    assert seen == [(11, 11), (21, 21), (31, 31)]
    work.close()  # its owner has gone
    assert ranges(joining) == [(1, 1)]
    (install,) = joining.handle(body, request).installs
    joining.attendance.forgo(install.channel, install.points)
    assert joining.attendance.forgo_some(20)
    assert ranges(joining) == [(16, 16)]
    assert not joining.attendance.forgo_some(20)
    assert ranges(joining) == [(1, 1)]


@pytest.mark.parametrize("by", ["a.SECTOR = ?", "a.SECTOR = ? AND b.SYMBOL = ?"])
def test_partitions_of_ranges_that_come_in_slices_outlive_sweeps_in_between(
    joining: Desk, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("broker.tables.interning", "broker.index.grouping"):
        monkeypatch.setattr(f"hullcast.{module}.SWEEP_SLACK", 0)
    monkeypatch.setattr(subscribing, "WANTED_AT_ONCE", 1)
    names = [f"sector {i}" for i in range(5)]
    sql = f"SELECT a.SYMBOL, b.SYMBOL FROM STOCK a JOIN STOCK b ON a.PER = b.PER WHERE {by}"
    columns = (keys_to_column(names), keys_to_column(["B"] * 5))[: by.count("?")]
    body = bodies.Subscribe((bodies.Group(1, sql, columns, 5),))
    request = Request(1, (1,), Origin(None, ""), bodies.encode(body))
    work = joining.office.work(body, request)
    for i in range(4):
        work.send(None)
        joining.publish({"SYMBOL": "B", "SECTOR": f"another {i}", "PER": 1.0})
    assert joining.engine.changes.sweeps
    with pytest.raises(StopIteration) as done:
        work.send(None)
    (install,) = done.value.value.installs
    assert ranges(joining) == [(5, 5)]
    for name in names:
        messages = joining.publish({"SYMBOL": "A", "SECTOR": name, "PER": 1.0}).messages[install.channel]
        boxes = query_boxes("places", 0, True, messages)[1]
        concerned = [
            ((low <= install.points) & (install.points <= high)).all(axis=1) for low, high in zip(*boxes, strict=True)
        ]
        assert np.any(concerned, axis=0).tolist() == [name == one for one in names]


def test_a_join_that_nothing_can_satisfy_is_no_range(joining: Desk) -> None:
    for conditions, values in [
        ("STOCK.SYMBOL = ? AND STOCK.SYMBOL = ?", ("A", "B")),
        ("STOCK.SYMBOL = ? AND STOCK.RISK = ? AND STOCK.RISK = ?", ("A", 1, 2)),
        ("STOCK.RISK > ? AND STOCK.SYMBOL = ? AND STOCK.SYMBOL = ?", (1, "A", "B")),
    ]:
        sql = f"SELECT STOCK.SYMBOL, PEER.SYMBOL FROM STOCK JOIN PEER USING (SECTOR) WHERE {conditions}"
        assert subscribed(joining.subscribe(sql, *values)).groups[0].snapshot is not None
    assert set(ranges(joining)) == {(0, 0)}


def test_explaining_says_when_nothing_is_known_of_a_range_of_a_join(joining: Desk) -> None:
    joining.subscribe(PEERS, 5, 10)
    joining.publish({"SYMBOL": "A", "RISK": 8.0, "SECTOR": "TECH"})
    told = cast("bodies.Information", joining.ask(bodies.Explain(PEERS, (5, 10))).reply).values
    assert (told["ranges_distinct"], told["ranges_wanted"], told["recent_messages_matching"]) == (1, 1, 1)
    told = cast("bodies.Information", joining.ask(bodies.Explain(PEERS, (6, 10))).reply).values
    assert told["range_is_new"] is True
    assert "recent_messages" not in told
    assert ranges(joining) == [(1, 1)]


def test_explaining_does_not_keep_a_channel_open(desk: Desk) -> None:
    outcome = desk.ask(bodies.Explain(MIN, (20, 60)))
    told = cast("bodies.Information", outcome.reply).values
    assert told["channel"] == "MIN(PER) FROM STOCK OVER RISK"
    assert (told["low"], told["high"]) == ([20.0], [60.0])
    assert not told["channel_open"]
    assert desk.engine.statistics() == {}


def test_explaining_a_self_join_tells_its_sides_apart(desk: Desk) -> None:
    sql = "SELECT a.SYMBOL, b.SYMBOL FROM STOCK a JOIN STOCK b USING (SECTOR) WHERE a.PER > 5 AND b.PER < 3"
    told = cast("bodies.Information", desk.ask(bodies.Explain(sql, ())).reply).values
    assert (told["tables"], told["ranges"]) == (["STOCK", "STOCK 2"], ["STOCK.PER", "STOCK 2.PER"])


def test_explaining_counts_recent_messages_that_would_have_concerned_it(desk: Desk) -> None:
    desk.subscribe(MIN, 20, 60)
    desk.publish({"SYMBOL": "A", "RISK": 30.0, "PER": 5.0}, {"SYMBOL": "B", "RISK": 90.0, "PER": 5.0})
    told = cast("bodies.Information", desk.ask(bodies.Explain(MIN, (80, 95))).reply).values
    assert (told["recent_messages"], told["recent_messages_matching"]) == (2, 1)
    assert desk.engine.statistics()  # the channel of the subscription is still there


def test_explaining_a_join_tells_what_is_known_of_the_ranges_that_others_ask_for(desk: Desk) -> None:
    desk.ask(bodies.Execute("CREATE TABLE FUND (ID INTEGER PRIMARY KEY, SYMBOL TEXT, SHARES REAL)", ME, 2))
    sql = (
        "SELECT FUND.ID, STOCK.PER FROM FUND JOIN STOCK ON FUND.SYMBOL = STOCK.SYMBOL WHERE STOCK.RISK BETWEEN ? AND ?"
    )
    assert "join" not in cast("bodies.Information", desk.ask(bodies.Explain(sql, (1, 2))).reply).values
    desk.subscribe(sql, 20, 60)
    desk.subscribe(sql, 20, 60)
    desk.subscribe(sql, 30, 60)
    reply = desk.ask(bodies.Explain(sql, (1, 2))).reply
    known = cast("dict[str, object]", cast("bodies.Information", reply).values["join"])
    assert (known["ranges"], known["wanted by"]) == (2, 3)


RIGHTS = {"key": [{"name": "reader", "public": KEY, "subscribe": ["stock"]}]}


@pytest.mark.parametrize(
    "body",
    [
        bodies.Execute("CREATE TABLE T (A TEXT PRIMARY KEY)", ME, 1),
        bodies.Publish("STOCK", {}, None, ME, 1),
        bodies.Delete("STOCK", keys_to_column(["A"]), ME, 1),
    ],
)
def test_what_is_not_allowed_is_refused_counted_and_not_done(desk: Desk, body: bodies.Body) -> None:
    desk.rights = Rights.parse(RIGHTS)
    outcome = desk.ask(body, KEY)
    assert "reader does not have the right" in refusal(outcome)
    assert desk.office.hall.refused == 1
    assert outcome.entry is None


def test_rights_are_by_table(desk: Desk) -> None:
    desk.execute("CREATE TABLE SECRET (A TEXT PRIMARY KEY, B REAL)")
    desk.rights = Rights.parse(RIGHTS)
    group = bodies.Group(1, MIN, (20, 60), 1)
    assert len(subscribed(desk.ask(bodies.Subscribe((group,)), KEY)).groups) == 1
    secret = bodies.Group(1, "SELECT MIN(B) FROM SECRET", (), 1)
    assert "SECRET" in refusal(desk.ask(bodies.Subscribe((secret,)), KEY))
    assert "SECRET" in refusal(desk.ask(bodies.Explain("SELECT MIN(B) FROM SECRET", ()), KEY))
    assert "no list" in refusal(desk.ask(bodies.Subscribe((group,)), "x" * 40))


def test_status_is_for_administrators_and_tables_for_those_who_may_use_them(desk: Desk) -> None:
    desk.execute("CREATE TABLE SECRET (A TEXT PRIMARY KEY, B REAL)")
    desk.rights = Rights.parse(RIGHTS)
    assert "admin" in refusal(desk.ask(bodies.Status(), KEY))
    told = cast("bodies.Information", desk.ask(bodies.Describe(), KEY).reply).values
    assert list(told["tables"]) == ["STOCK"]


def test_a_bug_in_reading_is_answered_and_harms_nobody(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk.engine, "attending", lambda *_: 1 // 0)
    assert "ZeroDivisionError" in refusal(desk.subscribe(MIN, 20, 60))
    monkeypatch.undo()
    subscribed(desk.subscribe(MIN, 20, 60))


def test_a_bug_after_rows_have_changed_stops_the_server(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.subscribe(MIN, 20, 60)
    monkeypatch.setattr(desk.retention, "keep", lambda *_: 1 // 0)
    desk.publish({"SYMBOL": "A", "RISK": 30.0, "PER": 5.0})
    assert isinstance(desk.office.own.failed, ZeroDivisionError)


def test_first_answers_are_limited_before_they_are_gathered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hullcast.broker.reformulate.first.FIRST_ROWS", 25)
    desk.publish(*({"SYMBOL": str(i), "RISK": float(i), "PER": 1.0} for i in range(10)))
    rows = "SELECT SYMBOL FROM STOCK WHERE RISK >= ?"
    column = np.zeros(3)
    assert "limit of 25" in refusal(desk.ask(bodies.Subscribe((bodies.Group(1, rows, (column,), 3),))))
    distinct = "SELECT DISTINCT SYMBOL FROM STOCK WHERE RISK >= ?"
    assert "limit of 25" in refusal(desk.ask(bodies.Subscribe((bodies.Group(1, distinct, (column,), 3),))))
    both = (bodies.Group(1, rows, (column,), 3), bodies.Group(2, MIN, (20, 60), 1))
    large, small = sorted(subscribed(desk.ask(bodies.Subscribe(both))).groups, key=lambda opened: opened.group)
    assert (large.failed is not None, small.failed) == (True, None)


ROWS = "SELECT SYMBOL, SECTOR FROM STOCK WHERE RISK >= ?"


@pytest.fixture
def staging(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk that stages all but the smallest first answers."""
    monkeypatch.setattr(subscribing, "PART_BYTES", 100)
    monkeypatch.setattr(subscribing, "AT_ONCE_LOOKS", -1)
    desk.publish(*({"SYMBOL": str(i), "RISK": float(i), "SECTOR": "TECH"} for i in range(20)))
    return desk


def staged(outcome: Outcome) -> bodies.Staged:
    assert isinstance(outcome.reply, bodies.Staged), outcome.reply
    return outcome.reply


def pins(desk: Desk) -> int:
    return sum(attending.pins for attending in desk.attendance)


def test_first_answers_of_many_groups_end_before_they_fill_the_memory(
    staging: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    capture = SelectionChannel.capture

    def counted(self: SelectionChannel, predicates: Predicates) -> Callable[[], Columns]:
        taken.append(1)
        return capture(self, predicates)

    monkeypatch.setattr(SelectionChannel, "capture", counted)
    monkeypatch.setattr(subscribing, "HELD_BYTES_PER_OWNER", 3000)
    groups = tuple(bodies.Group(i, ROWS, (0,), 1) for i in range(1, 50))
    assert "first answers in one request" in refusal(staging.ask(bodies.Subscribe(groups)))
    assert len(taken) < 20
    staged(staging.ask(bodies.Subscribe(groups[:2])))
    assert pins(staging) == 2


def test_who_has_too_much_staged_may_try_again_later(staging: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = staged(staging.subscribe(ROWS, 0)).ticket
    monkeypatch.setattr(subscribing, "HELD_BYTES_PER_OWNER", staging.office.subscribing.staged_bytes + 100)
    outcome = staging.subscribe(ROWS, 0)
    assert isinstance(outcome.reply, bodies.Failed)
    assert isinstance(from_wire(outcome.reply.code, outcome.reply.arguments), Overloaded)
    subscribed(staging.ask(bodies.Subscribe((), ticket=ticket)))
    staged(staging.subscribe(ROWS, 0))


def test_answers_that_cannot_be_staged_leave_nothing_behind(staging: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(snapshots: object, part_bytes: int) -> list[bytes]:
        raise MemoryError

    monkeypatch.setattr(subscribing, "_parts", fails)
    assert "MemoryError" in refusal(staging.subscribe(ROWS, 0))
    assert not len(staging.attendance)
    assert not staging.engine.statistics()


def test_staged_answers_are_their_owners_while_they_may_have_them(staging: Desk) -> None:
    ticket = staged(staging.subscribe(ROWS, 0)).ticket
    fetch, rest = bodies.Fetch(ticket, 0), bodies.Subscribe((), ticket=ticket)
    for body in (fetch, rest):
        request = Request(1, (2,), Origin(None, ""), bodies.encode(body))
        assert "no longer kept" in refusal(finish(staging.office.work(body, request._replace(route=(9,)))))
    assert isinstance(staging.ask(fetch).reply, bytes)
    staging.rights = Rights.parse(RIGHTS)
    assert "does not have the right `subscribe`" in refusal(staging.ask(fetch))
    staging.rights = Rights.everything()
    subscribed(staging.ask(rest))
    assert pins(staging) == 0
    assert not staging.office.subscribing.staged_bytes


def test_staged_answers_are_not_kept_by_fetching_the_same_part_again(staging: Desk) -> None:
    ticket = staged(staging.subscribe(ROWS, 0)).ticket
    for now in range(0, 300, 20):
        staging.office.subscribing.expire(now)
        fetch = bodies.Fetch(ticket, 0)
        staging.handle(fetch, Request(1, (1,), Origin(None, ""), bodies.encode(fetch)), now)
    assert not staging.office.subscribing.staged_bytes


def test_a_resumed_group_that_begins_again_with_a_large_answer_fetches_it(
    staging: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(staging.ask(bodies.Subscribe((), ticket=staged(staging.subscribe(ROWS, 0)).ticket)))
    before = staging.engine.seq
    staging.publish(*({"SYMBOL": str(i), "RISK": float(i), "SECTOR": "AGRO"} for i in range(20)))
    assert subscribed(staging.subscribe(ROWS, 0, since=before + 1)).replay
    monkeypatch.setattr(subscribing, "REPLAY_BYTES", 100)
    staged(staging.subscribe(ROWS, 0, since=before + 1))


def test_what_cannot_be_replayed_is_known_before_anything_is_staged(
    staging: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be found out after all was fetched, and the client would begin again for ever."""
    number = subscribed(staging.subscribe(MIN, 0, 60)).groups[0].channel
    before = staging.engine.seq
    for i in range(9):
        staging.publish({"SYMBOL": "A", "RISK": 30.0, "PER": float(9 - i)})
    monkeypatch.setattr(subscribing, "REPLAY_BYTES", 100)
    groups = (bodies.Group(1, ROWS, (0,), 1), bodies.Group(2, MIN, (0, 60), 1, number))
    ticket = staged(staging.ask(bodies.Subscribe(groups, before, staging.office.epoch))).ticket
    assert len(subscribed(staging.ask(bodies.Subscribe((), ticket=ticket))).groups) == 2


def test_a_replay_that_is_too_large_becomes_a_snapshot(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.subscribe(MIN, 20, 60)
    for i in range(5):
        desk.publish({"SYMBOL": "A", "RISK": 30.0, "PER": float(9 - i)})
    assert subscribed(desk.subscribe(MIN, 20, 60, since=1)).groups[0].snapshot is None
    monkeypatch.setattr("hullcast.broker.server.subscribing.REPLAY_BYTES", 100)
    reply = subscribed(desk.subscribe(MIN, 20, 60, since=1))
    assert reply.groups[0].snapshot is not None
    assert reply.replay == {}


def test_only_the_channel_one_listened_to_is_resumed_at_its_opening(desk: Desk) -> None:
    number = subscribed(desk.subscribe(MIN, 20, 60)).groups[0].channel
    desk.publish({"SYMBOL": "A", "RISK": 30.0, "PER": 5.0})

    def again(channel: int) -> bodies.Opened:
        group = bodies.Group(1, MIN, (20, 60), 1, channel)
        return subscribed(desk.ask(bodies.Subscribe((group,), 0, desk.office.epoch))).groups[0]

    assert again(number).snapshot is None
    assert again(0).snapshot is not None
    assert again(number + 1).snapshot is not None


def test_a_table_made_anew_is_not_resumed_though_another_reopened_the_channel(desk: Desk) -> None:
    old = subscribed(desk.subscribe(MIN, 20, 60)).groups[0].channel
    desk.execute("DROP TABLE STOCK")
    desk.execute(TABLE)
    desk.subscribe(MIN, 20, 60)  # somebody else, at the same update
    group = bodies.Group(1, MIN, (20, 60), 1, old)
    reply = subscribed(desk.ask(bodies.Subscribe((group, group), 0, desk.office.epoch)))
    assert all(opened.snapshot is not None for opened in reply.groups)


def test_texts_that_only_questions_had_are_forgotten_though_no_row_changes(desk: Desk) -> None:
    subscribed(desk.subscribe(BY_SECTOR, 20, 60, "TECH"))
    desk.held = False
    for i in range(6000):
        desk.ask(bodies.Explain(BY_SECTOR, (20, 60, f"sector {i}")))
    assert len(desk.engine._interner) > 5000
    desk.office.tidy()
    assert len(desk.engine._interner) < 100


@pytest.mark.parametrize("opening", [False, True])
def test_a_channel_that_closes_does_not_forget_its_ranges_one_by_one(opening: bool) -> None:
    """That would take long for many, and be in vain; unless another request is just opening the same channel."""
    engine = ServedEngine()
    for table in ("L", "R"):
        engine.execute(f"CREATE TABLE {table} (K INTEGER PRIMARY KEY, J INTEGER, A REAL)")
    attendance = Attendance(engine, Retention(0), 0.0, lambda _, partitions: np.ones(len(partitions), np.bool_))
    sql = "SELECT L.K, R.K FROM L JOIN R ON L.J = R.J WHERE L.A BETWEEN ? AND ?"
    found = attend(engine, sql, [np.arange(5.0), np.arange(5.0) + 1])
    channel = found.channel
    attending = attendance.attend(channel, channel.name)
    attendance.forgo(attending.number, channel.points_elsewhere(found.predicates), until=1.0)
    channel.holders += opening
    attendance.close_deserted(set(), 1.0)
    assert channel.ranges_known() == (5, 5)
    attendance.close_deserted(set(), 2.0)
    assert not len(attendance)
    assert channel.ranges_known() == ((0, 0) if opening else (5, 5))
    assert (engine.described(sql, [0.0, 1.0])[2] is channel) is opening
    assert not attendance.forgo_some()
