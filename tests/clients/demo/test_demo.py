"""The demo's own parts: who wants what, the record, streams of events, the judge, what others would send, the look.

The processes themselves are in tests/system/test_demo_run.py.
"""

from __future__ import annotations

import io
import json
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from hullcast.broker.engine.engine import Engine
from hullcast.clients.demo.director import DemoSettings, DemoState, Shown
from hullcast.clients.demo.judge import Continuity, Judge, Moment, Verdict, count_different, judge_all, same
from hullcast.clients.demo.record import Acknowledged, Rebuilt, RecordReader, written, written_event
from hullcast.clients.demo.scenario import (
    AT_FIRST,
    CLIENTS,
    GATEWAYS,
    HOSTS,
    MANY,
    PUBLISHER,
    VICTIM,
    WANTED,
    many_ranges,
    share_of,
)
from hullcast.clients.demo.stocks import CREATES, Removal, Upsert, stock_trace
from hullcast.clients.demo.traffic import HOPS, ContentNetwork, DemoTraffic, LinkLoad, unicast
from hullcast.clients.demo.view import AFFECTED, Summary, closing, frame, news, picture, plain_line
from hullcast.clients.demo.workers import shown
from hullcast.network.answers.events import Resync, Snapshot
from hullcast.sim.traces.table51 import RangeColumns

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from hullcast.clients.demo.judge import Moved

RANGES = many_ranges(30 * len(CLIENTS), 0)


class Played:
    """A small trace through an embedded engine: what each client would bring, and the judge beside it."""

    def __init__(self) -> None:
        engine, self.judge, self.moments = Engine(), Judge(), list[Moment]()
        self.entries: list[tuple[Acknowledged, list[Moved]]] = []
        trace = stock_trace(60, 400, batch=40, root=3)
        for sql in CREATES:
            engine.execute(sql)

        def apply(action: Upsert | Removal, *, moment: bool) -> None:
            first = engine.seq + 1
            if isinstance(action, Upsert):
                engine.upsert(action.table, list(action.rows))
            else:
                engine.delete(action.table, list(action.keys))
            entry = Acknowledged(first, engine.seq, action, moment)
            self.entries.append((entry, self.judge.apply(entry)))

        for action in trace.start:
            apply(action, moment=False)
        singles = {client: engine.subscribe(one.sql) for client, one in WANTED.items()}
        many = {
            client: engine.subscribe_many(MANY, share_of(RANGES, client).low, share_of(RANGES, client).high)
            for client in CLIENTS
        }
        events = {client: [written_event(Snapshot(engine.seq, one.answer))] for client, one in singles.items()}
        for batch in trace.batches:
            for action in batch:
                apply(action, moment=action is batch[-1])
            expected = {one.sql: self.judge.answer(one.sql) for one in WANTED.values()}
            self.moments.append(Moment(self.judge.seq, expected))
            for client, subscription in singles.items():
                events[client] += [written_event(event) for event in subscription.drain()]
        self.results: dict[str, dict[str, Any]] = {}
        for client in CLIENTS:
            watched = (
                {
                    "kind": WANTED[client].kind,
                    "sql": WANTED[client].sql,
                    "answer": written(singles[client].answer),
                    "events": events[client],
                }
                if client in WANTED
                else None
            )
            answers = [None if value != value else value for value in many[client].answers.tolist()]
            self.results[client] = {
                "seq": engine.seq,
                "watched": watched,
                "many": answers,
                "rebuilt": list(answers),
            }
        self.results = json.loads(json.dumps(self.results))  # as they come from another process

    def verdict(self) -> Verdict:
        return judge_all(self.results, self.judge, self.moments, RANGES)

    def watched(self, kind: str) -> dict[str, Any]:
        client = next(client for client, one in WANTED.items() if one.kind == kind)
        watched: dict[str, Any] = self.results[client]["watched"]
        return watched

    def events(self, kind: str) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.watched(kind)["events"]
        return events


@pytest.fixture
def played() -> Played:
    return Played()


# --- who wants what ---------------------------------------------------------------------------------------------


def test_there_is_a_subscription_of_every_kind_on_the_screen() -> None:
    kinds = {one.kind for one in WANTED.values()}
    assert kinds == {"MIN", "MAX", "DISTINCT", "COUNT", "SUM", "AVG", "rows", "join", "band join"}


def test_every_client_is_in_a_process_and_every_gateway_has_clients() -> None:
    assert tuple(name for names in HOSTS.values() for name in names) == CLIENTS
    assert {AT_FIRST[name] for name in CLIENTS} == set(GATEWAYS)
    assert {one.kind for name, one in WANTED.items() if AT_FIRST[name] == VICTIM} >= {"MIN", "COUNT", "join"}


def test_the_ranges_are_shared_out_completely() -> None:
    ranges = many_ranges(1000, 7)
    assert sum(len(share_of(ranges, client)) for client in CLIENTS) == 1000
    assert np.array_equal(np.concatenate([share_of(ranges, client).low for client in CLIENTS]), ranges.low)
    assert (ranges.low <= ranges.high).all()


# --- the record -------------------------------------------------------------------------------------------------


def test_the_record_is_read_as_it_was_written_and_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "record"
    reader = RecordReader(path)
    assert reader.new() == []
    entries = [
        Acknowledged(1, 2, Upsert("STOCK", ({"SYMBOL": "Ä", "PER": None}, {"SYMBOL": "B", "PER": 0.1})), moment=False),
        Acknowledged(3, 3, Removal("STOCK", ("Ä",)), moment=True),
    ]
    text = "".join(entry.line() for entry in entries)
    path.write_text(text[:-5])
    assert reader.new() == entries[:1]
    path.write_text(text)
    assert reader.new() == entries[1:]
    assert reader.new() == []


def test_a_hole_in_the_sequence_numbers_is_noticed() -> None:
    continuity = Continuity()
    for first, last in ((4, 9), (10, 10), (12, 12)):
        continuity.follow(Acknowledged(first, last, Removal("STOCK", ()), moment=False))
    assert continuity.fault == "no client published the updates 11 to 11"


# --- the verdict ------------------------------------------------------------------------------------------------


def test_all_is_right_if_all_answers_and_all_events_are(played: Played) -> None:
    verdict = played.verdict()
    assert verdict.faults == []
    assert verdict.final == len(WANTED) + len(RANGES)
    assert verdict.rebuilt == len(WANTED) * len(played.moments) + len(RANGES)
    assert verdict.events > 100
    assert not verdict.resyncs


@pytest.mark.parametrize("kind", ["MIN", "COUNT", "SUM", "AVG", "rows", "band join"])
def test_an_event_that_is_missing_is_noticed(played: Played, kind: str) -> None:
    events = played.events(kind)
    del events[-1]
    assert played.verdict().wrong


@pytest.mark.parametrize("kind", ["AVG", "rows"])
def test_an_event_told_twice_is_noticed(played: Played, kind: str) -> None:
    events = played.events(kind)
    events.insert(2, events[1])
    assert any("after one of" in fault or "was not there" in fault for fault in played.verdict().faults)


def test_a_wrong_answer_at_the_end_is_noticed(played: Played) -> None:
    played.watched("SUM")["answer"] *= 1 + 1e-6
    assert played.verdict().wrong == 1


@pytest.mark.parametrize("which", ["many", "rebuilt"])
def test_one_wrong_answer_among_many_is_noticed(played: Played, which: str) -> None:
    column = played.results[CLIENTS[1]][which]
    place = next(i for i, value in enumerate(column) if value is not None)
    column[place] += 0.01
    verdict = played.verdict()
    assert verdict.wrong == 1
    assert verdict.faults[0].startswith("client-2: 1 of 30 MIN ranges")


def test_a_client_that_did_not_come_to_the_end_is_noticed(played: Played) -> None:
    played.results[CLIENTS[2]]["seq"] -= 1
    assert played.verdict().wrong == 1


def test_a_gap_that_a_resync_tells_of_is_no_fault_but_is_counted(played: Played) -> None:
    events = played.events("rows")
    seq, answer = played.judge.seq, played.watched("rows")["answer"]
    kept = [event for event in events if event["seq"] < played.moments[2].seq]
    rows = [tuple(row) for row in answer]
    events[:] = [*kept, written_event(Resync(seq, rows, 5, "gap"))]
    verdict = played.verdict()
    assert verdict.faults == []
    assert verdict.resyncs == {"gap": 1}
    assert verdict.unseen > 0


def test_rows_that_come_and_go_are_counted_even_when_they_look_alike() -> None:
    known = Rebuilt(
        [
            {"seq": 1, "answer": [["A", 1], ["A", 1]], "how": "snapshot"},
            {"seq": 2, "left": [["A", 1]], "entered": []},
            {"seq": 3, "left": [["B", 1]], "entered": []},
        ]
    )
    assert known.at(1) == [("A", 1), ("A", 1)]
    assert known.at(2) == [("A", 1)]
    assert known.faults == []
    known.at(3)
    assert known.faults == ["a row leaves at 3 that was not there"]


def test_sums_may_differ_in_the_last_digits_and_null_is_only_null() -> None:
    assert same(0.1 + 0.2, 0.3)
    assert not same(1.0, 1.0001)
    assert not same(None, 0.0)
    assert same([("A", 1.5)], [("A", 1.5)])
    assert count_different(np.array([1.0, np.nan, 2.0]), np.array([1.0, np.nan, np.nan])) == 1


# --- what others would have sent --------------------------------------------------------------------------------


def test_content_networks_bring_each_row_once_to_every_link_below_which_somebody_holds_it(played: Played) -> None:
    count = 2 * len(CLIENTS)  # two for each client: one that holds all, one that holds nothing
    network = ContentNetwork(RangeColumns(np.tile([0.0, 200.0], count // 2), np.tile([100.0, 300.0], count // 2)))
    entry, moved = played.entries[0]  # the stocks
    network.carry("STOCK", entry.last, moved, AT_FIRST)
    links = 1 + len(GATEWAYS) + len(CLIENTS)  # to the root, to gateways, to clients
    assert network.load.messages == 60 * links
    holding = [one for one in WANTED.values() if "STOCK" in one.holds]
    assert len(CLIENTS) < network.asked <= len(CLIENTS) + len(holding)  # once a frame, however many rows it has
    once = network.load.size_bytes
    network.carry("STOCK", entry.last, moved, dict.fromkeys(AT_FIRST, GATEWAYS[1]))
    assert network.load.messages == 60 * (links + links - len(GATEWAYS) + 1)
    assert network.load.size_bytes < 2 * once
    network.close()


def test_content_networks_bring_a_row_only_where_a_range_holds_it(played: Played) -> None:
    entry, moved = played.entries[0]
    risks = [one.after[2] for one in moved if one.after is not None]
    first = min(risks)
    network = ContentNetwork(RangeColumns(np.full(len(CLIENTS), first), np.full(len(CLIENTS), first)))
    network.carry("STOCK", entry.last, moved, AT_FIRST)
    quiet = [client for client in CLIENTS if client not in WANTED]
    assert {client: len(network.concerned("STOCK", moved)[client]) for client in quiet} == dict.fromkeys(
        quiet, risks.count(first)
    )
    network.close()


def test_content_networks_know_who_holds_an_index(played: Played) -> None:
    network = ContentNetwork(many_ranges(0, 0))
    entry, moved = played.entries[1]
    assert isinstance(entry.action, Upsert)
    network.carry("SECTOR_INDEX", entry.last, moved, AT_FIRST)
    above = sum(row["LEVEL"] > 1000 for row in entry.action.rows)
    assert above > 0
    assert network.load.messages == 3 * above  # the join's client alone, over three links
    assert network.asked == 1
    network.close()


def test_unicast_tells_each_subscription_all_the_way() -> None:
    assert unicast(10, 100) == LinkLoad(HOPS * 10, HOPS * (10 * 24 + 100))


# --- how it looks -----------------------------------------------------------------------------------------------


def test_answers_are_shown_in_a_few_words() -> None:
    assert (shown(None), shown(1234.5), shown(1234)) == ("NULL", "1,234.50", "1,234")
    assert shown(set()) == shown([]) == "nothing"
    assert shown({"B", "A"}) == "A, B"
    assert shown([("A", 1.0), ("B", 2.5), ("C", 3.0), ("D", 4.0), ("E", 5.0)]) == "A 1, B 2.5, +3"


def _state() -> DemoState:
    rows = [Shown(client, one.kind, one.sql, "5.00", 5.0, 4.0, 12) for client, one in WANTED.items()]
    state = DemoState(
        DemoSettings(40, 500, 20_000, 30_000, 0), rows, subscriptions=30_010, playing=True, published=10_000
    )
    state.traffic = DemoTraffic(
        10_000, 19_000, 1_100_000, 4_000_000, LinkLoad(80_000, 5_000_000), LinkLoad(1, 10**7), LinkLoad(9, 10**8)
    )
    state.cpu_s = 8.0
    return state


def _drawn(shown: RenderableType, width: int) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(shown)
    return console.export_text().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (110, 30), (160, 45)])
def test_a_frame_fits_the_terminal_and_shows_every_kind(width: int, height: int) -> None:
    lines = _drawn(frame(_state(), width, height), width)
    assert len(lines) <= height
    assert sum("SELECT" in line for line in lines) == len(WANTED)
    assert any("one message per changed answer" in line and "100 MB" in line for line in lines)
    assert any("10,000 of 20,000 updates" in line for line in lines)
    assert sum(line.count("●") for line in lines) == len(CLIENTS) + 1 + 1  # the publisher, and what a dot means


def test_the_kill_and_the_moves_are_seen_and_told_once() -> None:
    state, told = _state(), set[str]()
    assert news(state, told) == []
    state.alive[VICTIM], state.killed_at_s = False, 20.0
    assert news(state, told) == ["kill -9 gateway-1, with 6 clients and the publisher"]
    for after_ms, name in enumerate(AFFECTED, 37):
        state.places[name], state.moved_ms[name] = "gateway-2", after_ms
    assert news(state, told) == ["all of them went on at other gateways within 43 ms"]
    assert news(state, told) == []
    text = "\n".join(_drawn(frame(state, 110, 30), 110))
    assert "kill -9 at 20.0 s; 7 moved within 43 ms" in text
    assert "each answer: 100 MB" in plain_line(state)


def test_the_last_lines_say_what_was_killed_and_lost_and_what_it_took() -> None:
    state, verdict = _state(), Verdict(final=30_010, rebuilt=50_000, events=9, moments=7)
    state.killed_at_s, state.moved_ms = 20.0, dict.fromkeys(AFFECTED, 40.0)
    summary = Summary.of(state, verdict, 10e-6, 50.0)
    lines = [line.rstrip() for line in _drawn(closing(summary), 100)]
    assert lines[:9] == [
        "10,000 updates in 0 s to 30,010 SQL subscriptions, 24 clients, 4 gateways",
        "",
        "killed  gateway-1 (kill -9) after 20.0 s; its 6 clients and the publisher were back within 40 ms",
        "lost    nothing: 9 events of the watched subscriptions, none missing, none twice",
        "wrong   nothing: 30,010 final answers and 50,000 rebuilt from events equal SQLite's",
        "",
        "                                           bytes            CPU",
        "Hullcast                                  5.0 MB          8.0 s",
        "rows by range, clients re-run their SQL  10.0 MB   2.0x  40.0 s  5.0x",
    ]
    assert "SQLite took 10 µs a range" in " ".join(lines[9:])
    assert json.loads(json.dumps(summary.as_json()))["right"] is True
    state.cpu_s = nan  # where it cannot be read
    assert "40.0 s" not in "\n".join(_drawn(closing(Summary.of(state, verdict, 10e-6, 50.0)), 100))


def test_the_last_lines_say_what_is_wrong() -> None:
    state, verdict = _state(), Verdict(final=30_010, rebuilt=50_000, events=9, moments=7)
    state.killed_at_s, state.moved_ms = 20.0, {PUBLISHER: 7.0}
    verdict.fault("client-1: [something] is wrong", 3)
    wrong = Summary.of(state, verdict, 10e-6, 50.0)
    assert not wrong.is_right
    assert wrong.lines() == [
        ("killed", "gateway-1 (kill -9) after 20.0 s; 1 of its 7 clients came back"),
        ("lost", "see the faults; 9 events"),
        ("fault", "client-1: [something] is wrong"),
        ("wrong", "3 faults"),
    ]
    assert "client-1: [something] is wrong" in "\n".join(_drawn(closing(wrong), 100))
    verdict.resyncs["gap"] = 2
    assert dict(wrong.lines())["lost"] == "2 gaps in 9 events, each announced by a Resync"


def test_a_picture_shows_the_last_screen_and_loads_nothing() -> None:
    state = _state()
    state.moved_ms = dict.fromkeys(AFFECTED, 40.0)
    text = picture(state, Summary.of(state, Verdict(), 10e-6, 50.0))
    assert text.startswith("<svg")
    assert "make&#160;demo" in text
    assert 'url("http' not in text
